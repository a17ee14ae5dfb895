/* SPDX-License-Identifier: MIT */
/* device_emulated - a device for the trainer whose kernels are the CUDA ones,
 * run on the CPU, and whose memory the host cannot touch: outside kernels and
 * copies it is protected, so that what would be wrong on a GPU ends the
 * test. */
#ifndef PP_TESTS_DEVICE_EMULATED_H
#define PP_TESTS_DEVICE_EMULATED_H

#include "run/device.h"

extern const struct pp_device_ops pp_device_emulated;

#endif
