/* SPDX-License-Identifier: MIT */
/* fit_copies - the time of a byte between a rank and its host, for a profile:
 * of the copies of the plan, which run beside the computation; or of a few made
 * after training, for plans to come. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "model/profile.h"
#include "run/train/rank.h"
#include "run/train/record.h"

/* Copies of such a size, and as many each way. */
enum { MOST_BYTES = 32 << 20, TIMES = 8 };

/* Returns the points of the copies of all rows; *n is their number. */
static struct pp_fit_point *collect(const struct pp_rank *r,
                                    const struct pp_record *record, int skip,
                                    size_t *n, struct pp_err *err)
{
    const struct pp_schedule *s = record->schedule;
    size_t in_pass = 0;
    struct pp_stage_bytes *sizes = pp_job_sizes(r->job, PP_PASS_TRAIN, err);
    if (!sizes)
        return NULL;
    for (int row = 0; row < s->graph->n_rows; row++)
        for (size_t i = 0; i < s->rows[row].n; i++)
            in_pass += pp_is_copy(s->rows[row].actions[i].op);
    struct pp_fit_point *points = pp_try_calloc(
        in_pass * (size_t)record->n_steps * (size_t)record->n_passes,
        sizeof *points, err);
    for (int k = skip; k < record->n_steps && points; k++)
        for (int pass = 0; pass < record->n_passes; pass++)
            for (int row = 0; row < s->graph->n_rows; row++) {
                const double(*at)[2] = pp_record_spans(record, row, k, pass);
                for (size_t i = 0; i < s->rows[row].n; i++) {
                    struct pp_action a = s->rows[row].actions[i];
                    const struct pp_stage_bytes *b =
                        pp_slice_bytes(s->graph, sizes, a.stage, a.slice);
                    if (pp_is_copy(a.op))
                        points[(*n)++] = (struct pp_fit_point){
                            {(double)(b->act_i + b->act_w), 0},
                            at[i][1] - at[i][0]};
                }
            }
    free(sizes);
    return points;
}

/* Copies memory that training no longer needs, one way and back in turn. */
static int measure(struct pp_rank *r, struct pp_fit_point *points,
                   struct pp_err *err)
{
    struct pp_device *d = r->env.device;
    struct pp_host_arena host;
    size_t bytes = r->train.memory.arena_bytes;
    bytes = bytes < MOST_BYTES ? bytes : MOST_BYTES;
    int rc = pp_host_arena_open(&host, d, bytes, r->job->offload_dir, err);
    for (int i = 0; i < 2 * TIMES && !rc; i++) {
        bool out = i % 2 == 0;
        double start = pp_clock();
        rc = d->ops->copy(d, out ? host.at : r->arena, out ? r->arena : host.at,
                          bytes, err) ||
                     d->ops->wait(d, err)
                 ? -1
                 : 0;
        points[i] =
            (struct pp_fit_point){{(double)bytes, 0}, pp_clock() - start};
    }
    pp_host_arena_close(&host);
    return rc;
}

int pp_fit_copies(struct pp_rank *r, const struct pp_record *record, int skip,
                  struct pp_profile *p, struct pp_err *err)
{
    static const double share[] = {1, 0};
    struct pp_fit_point measured[2 * TIMES], *points = measured;
    double mine[2] = {0};
    size_t n = 0;
    bool planned = pp_schedule_copies(record->schedule);
    if (planned)
        points = collect(r, record, skip, &n, err);
    else if (measure(r, points, err))
        points = NULL;
    if (!points)
        return -1;
    pp_least_deviation(points, planned ? n : 2 * TIMES, share, mine);
    if (planned)
        free(points);
    /* All ranks have measured at once. */
    double *all = pp_rank_gather(r, mine, 1, err);
    p->copy_seconds_per_byte = 0;
    for (int k = 0; all && k < r->env.comm->size; k++)
        p->copy_seconds_per_byte += all[k] / r->env.comm->size;
    free(all);
    return all ? 0 : -1;
}
