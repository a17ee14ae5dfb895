/* SPDX-License-Identifier: MIT */
/* csv - CSV files that hold a schedule for PyTorch
 * (torch.distributed.pipelining): a line for each rank, a cell for each action.
 *
 * There are two forms: compute actions only, with empty cells for idle steps,
 * and with communication. The file says which stage is on which rank; stages
 * are a chain. Reading is strict: a cell is matched to its end. */
#ifndef PP_SCHEDULE_CSV_CSV_H
#define PP_SCHEDULE_CSV_CSV_H

#include <stdio.h>

#include "base/faults.h"
#include "schedule/ir/schedule.h"

/* The most rows of a file. */
enum { PP_CSV_ROWS = 1 << 24 };

struct pp_csv {
    struct pp_arena arena;
    struct pp_graph graph; /* the file's, if none was given */
    struct pp_schedule schedule;
    size_t **columns; /* per row and action: the byte of its cell in the line,
                         counted from 1; in the arena */
    bool messages;    /* the file has sends or receives */
    bool sharding;    /* the file has UNSHARD, RESHARD or REDUCE_GRAD */
};

struct pp_csv_options {
    const struct pp_graph *on; /* the stages of a manifest; NULL: the file's */
    int n_microbatches;        /* 0: counted */
    bool lenient;              /* skip empty cells in any file */
    struct pp_faults *faults;  /* takes all malformed cells, with the byte of
                                  the line as their place; NULL: none */
};

/* Reads text of n bytes, with LF or CRLF. Fails with PP_EXIT_INPUT for
 * malformed text, and an empty cell in a file with
 * communication or with one stage. Fails with PP_EXIT_NO for a rank without
 * actions or a stage on no rank. Errors name the rank and the cell, counted
 * from 0. The actions are otherwise unchecked. With faults, malformed cells
 * alone are no failure: then c is empty, and faults are not. */
int pp_csv_parse(const char *text, size_t n, const struct pp_csv_options *o,
                 struct pp_csv *c, struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_csv_finish(struct pp_csv *c);

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
