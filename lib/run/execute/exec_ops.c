/* SPDX-License-Identifier: MIT */
/* exec_ops - the table of the executor. It has a file of its own so that a test
 * program can link another table in its place. */
#include "run/execute/exec_impl.h"
#include "run/execute/sync.h"

const struct pp_exec_ops pp_exec_ops = {
    .run = pp_exec_run,
    .view = pp_batch_view,
    .score = pp_score_rows,
    .player = {pp_exec_compute, pp_exec_send, pp_exec_receive, pp_exec_sync},
    .copy = pp_host_copy,
    .gather = pp_sync_gather,
};
