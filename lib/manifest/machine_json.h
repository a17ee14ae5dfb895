/* SPDX-License-Identifier: MIT */
/* machine_json - the file of ppsplit --machine: an object with the keys of
 * "machine" in a manifest. */
#ifndef PP_MANIFEST_MACHINE_JSON_H
#define PP_MANIFEST_MACHINE_JSON_H

#include "base/arena.h"
#include "cost/machine.h"

/* Reads a machine; its name is in memory of a. Figures of a known GPU that the
 * file does not have come from the table. */
int pp_machine_read(const char *path, struct pp_arena *a, struct pp_machine *m,
                    struct pp_err *err) PP_MUST_USE;

#endif
