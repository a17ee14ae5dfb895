/* SPDX-License-Identifier: MIT */
/* csv - the files that hold a schedule for PyTorch (torch.distributed
 * .pipelining): a line for each rank, a cell for each action.
 *
 * Two forms: compute actions alone, with empty cells for idle steps, and with
 * communication. The file itself says which stage is on which rank; stages are
 * a chain. Reading is strict: a cell is matched to its end. */
#ifndef PP_SCHEDULE_CSV_CSV_H
#define PP_SCHEDULE_CSV_CSV_H

#include <stdio.h>

#include "schedule/ir/schedule.h"

struct pp_csv {
    struct pp_arena arena;
    struct pp_graph graph; /* the file's, where none was given */
    struct pp_schedule schedule;
    bool messages; /* the file has sends or receives */
    bool sharding; /* or UNSHARD, RESHARD or REDUCE_GRAD */
};

struct pp_csv_options {
    const struct pp_graph *on; /* the stages it is for; NULL: the file's */
    int n_microbatches;        /* 0: counted */
    bool old_dialect;          /* B is the input gradient, BW the whole */
    bool lenient;              /* skip empty cells where none belong */
};

/* Reads text of n bytes, with LF or CRLF. Malformed text, the other dialect
 * and empty cells where nobody waits (with communication, or one stage) are
 * PP_EXIT_INPUT, with the rank and the cell, counted from 0; ranks without
 * actions and stages on no rank PP_EXIT_NO. The actions are otherwise
 * unchecked. */
int pp_csv_parse(const char *text, size_t n, const struct pp_csv_options *o,
                 struct pp_csv *c, struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_csv_finish(struct pp_csv *c);

enum pp_csv_form { PP_CSV_COMPUTE, PP_CSV_COMMS, PP_CSV_COMMS_UNWAITED };

/* Writes the rows, PP_IDLE as an empty cell. PP_CSV_COMPUTE leaves out all but
 * compute actions. PP_CSV_COMMS adds UNSHARD, RESHARD and REDUCE_GRAD where s
 * has none: PyTorch neither reduces nor scales gradients without. It waits for
 * every send and sum, as versions that know WAIT_SEND_F ask;
 * PP_CSV_COMMS_UNWAITED is for those that do not know it. Refuses with
 * PP_EXIT_INPUT what the format cannot say: branches, slices, copies of the
 * weights. */
int pp_csv_print(FILE *f, const struct pp_schedule *s, enum pp_csv_form form,
                 struct pp_err *err) PP_MUST_USE;

#endif
