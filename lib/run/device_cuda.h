/* SPDX-License-Identifier: MIT */
/* device_cuda - a GPU as a rank's device. Rank r of a process has GPU r modulo
 * their number, so that several ranks may share one. Only compiled where the
 * CUDA toolkit is; the program starts where there is no GPU. */
#ifndef PP_RUN_DEVICE_CUDA_H
#define PP_RUN_DEVICE_CUDA_H

#include "run/device.h"

extern const struct pp_device_ops pp_device_cuda;

#endif
