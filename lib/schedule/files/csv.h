/* SPDX-License-Identifier: MIT */
/* csv - CSV files that hold a schedule for PyTorch
 * (torch.distributed.pipelining): a line for each rank, a cell for each action.
 *
 * There are two forms: compute actions only, with empty cells for idle steps,
 * and with communication. The file says which stage is on which rank; stages
 * are a chain. Reading is strict: a cell is matched to its end. */
#ifndef PP_SCHEDULE_FILES_CSV_H
#define PP_SCHEDULE_FILES_CSV_H

#include <stdio.h>

#include "schedule/files/import.h"

/* Reads lines that end in LF or CRLF. Also fails with PP_EXIT_INPUT for an
 * empty cell in a file with communication or with one stage. Errors name the
 * rank and the cell, counted from 0. */
int pp_csv_parse(const char *text, size_t n, const struct pp_import_options *o,
                 struct pp_import *c, struct pp_err *err) PP_MUST_USE;

enum pp_csv_form { PP_CSV_COMPUTE, PP_CSV_COMMS, PP_CSV_COMMS_UNWAITED };

/* Writes the rows, PP_IDLE as an empty cell. PP_CSV_COMPUTE writes compute
 * actions only. PP_CSV_COMMS adds UNSHARD, RESHARD and REDUCE_GRAD if s has
 * none: without them PyTorch neither reduces nor scales gradients. It waits for
 * every send and REDUCE_GRAD, as PyTorch versions that know WAIT_SEND_F
 * require; PP_CSV_COMMS_UNWAITED is for older versions. Refuses, with
 * PP_EXIT_INPUT, branches, slices and copies of the weights, which the format
 * does not have. */
int pp_csv_print(FILE *f, const struct pp_schedule *s, enum pp_csv_form form,
                 struct pp_err *err) PP_MUST_USE;

#endif
