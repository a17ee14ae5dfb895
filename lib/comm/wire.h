/* SPDX-License-Identifier: MIT */
/* wire - TCP as the ranks of a job use it: listening, connecting, and whole
 * reads and writes that end early when the job does. */
#ifndef PP_COMM_WIRE_H
#define PP_COMM_WIRE_H

#include <stddef.h>

#include "base/err.h"

enum pp_wire {
    PP_WIRE_DONE,
    PP_WIRE_STOPPED, /* stop became readable */
    PP_WIRE_LOST     /* errno says why; 0: the other side has closed */
};

/* A socket that listens at the address, or at every address of this machine
 * where that one belongs to something in front of it. */
int pp_wire_listen(const char *address, int port, int *fd,
                   struct pp_err *err) PP_MUST_USE;

/* Connects, and tries again for so many seconds while nobody listens. */
int pp_wire_connect(const char *address, int port, double seconds, int *fd,
                    struct pp_err *err) PP_MUST_USE;

/* Small messages leave at once, and a machine that has vanished is noticed
 * after about a minute. */
void pp_wire_prepare(int fd);

/* All of the bytes. stop is a descriptor, or -1. */
enum pp_wire pp_wire_write(int fd, int stop, const void *data, size_t bytes);
enum pp_wire pp_wire_read(int fd, int stop, void *data, size_t bytes);

#endif
