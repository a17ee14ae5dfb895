/* SPDX-License-Identifier: MIT */
/* on_host - parameters of one rank in the memory of the CPU. */
#ifndef PP_TESTS_ON_HOST_H
#define PP_TESTS_ON_HOST_H

#include "run/parameters/parameters.h"

static const struct pp_parameter_memory floats = {.element_bytes = 4,
                                                  .accumulator_bytes = 4},
                                        doubles = {.element_bytes = 8,
                                                   .accumulator_bytes = 8};

#endif
