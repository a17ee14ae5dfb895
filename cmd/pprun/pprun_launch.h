/* SPDX-License-Identifier: MIT */
/* pprun_launch - which rank of a job this process is, as its launcher's
 * environment says: torchrun's variables, Open MPI's, PMI's or Slurm's. */
#ifndef PP_CMD_PPRUN_LAUNCH_H
#define PP_CMD_PPRUN_LAUNCH_H

#include "comm/rendezvous.h"
#include "tool.h"

struct pprun_launch {
    const char *launcher;  /* NULL: none */
    const char *size_from; /* the variable that gave the number of ranks */
    struct pp_rendezvous_place place;
    char address[256];
};

/* Reads the environment. What is there and cannot be is PP_EXIT_INPUT, and so
 * is an address that is not there where one is needed: to_join. Where place has
 * an address all the same, rank 0 can be told of it. */
int pprun_launch_read(struct pprun_launch *l, bool to_join,
                      struct pp_err *err) PP_MUST_USE;

#endif
