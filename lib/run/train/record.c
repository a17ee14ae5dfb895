/* SPDX-License-Identifier: MIT */
/* record - gathers the recorders of all ranks at rank 0, on one clock. */
#include "run/train/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/train/rank.h"

/* Gathers n doubles of one rank for each row, its first. */
static double *gather_rows(struct pp_rank *r, const double *mine, size_t n,
                           struct pp_err *err)
{
    const struct pp_layout *l = &r->env.layout;
    double *all = pp_rank_gather(r, mine, n, err);
    struct pp_place p;
    for (int rank = 0; all && rank < r->env.comm->size; rank++)
        if (pp_layout_find(l, rank, &p) && p.dp + p.cp + p.tp == 0)
            memmove(all + (size_t)p.row * n, all + (size_t)rank * n,
                    n * sizeof *all);
    return all;
}

/* --- the clocks of the ranks --- */

/* Each rank asks rank 0 for the time. The answer was made between the question
 * and its arrival, so every round bounds the offset. After Cristian,
 * "Probabilistic clock synchronization", 1989. */
enum { ROUNDS = 8 };

static int answer_clock(struct pp_comm *c, struct pp_err *err)
{
    char asked;
    for (int rank = 1; rank < c->size; rank++)
        for (int i = 0; i < ROUNDS; i++) {
            if (pp_comm_receive(c, rank, PP_DIRECTION_HOST, &asked, 1, err))
                return -1;
            double now = pp_clock();
            if (pp_comm_send_host(c, rank, &now, sizeof now, err))
                return -1;
        }
    return 0;
}

/* Finds the seconds to add to this rank's clock (base/clock.h) so that it is
 * rank 0's, and how many they may be off. Both are 0 if the two may be one
 * clock, as on one machine. Collective. */
static int find_offset(struct pp_comm *c, double *offset, double *error,
                       struct pp_err *err)
{
    double least = -HUGE_VAL, most = HUGE_VAL, theirs;
    *offset = *error = 0;
    if (c->rank == 0)
        return answer_clock(c, err);
    for (int i = 0; i < ROUNDS; i++) {
        double asked = pp_clock();
        if (pp_comm_send_host(c, 0, "", 1, err) ||
            pp_comm_receive(c, 0, PP_DIRECTION_HOST, &theirs, sizeof theirs,
                            err))
            return -1;
        least = fmax(least, theirs - pp_clock());
        most = fmin(most, theirs - asked);
    }
    if (least <= 0 && most >= 0)
        return 0;
    *offset = (least + most) / 2;
    *error = (most - least) / 2;
    return 0;
}

/* --- gathering --- */

/* Moves n times from the clock of this rank to that of rank 0. */
static void move_times(double *times, size_t n, double offset)
{
    for (size_t i = 0; i < n; i++)
        times[i] += offset;
}

static int gather_error(struct pp_rank *r, double mine, double *most,
                        struct pp_err *err)
{
    double *all = pp_rank_gather(r, &mine, 1, err);
    for (int k = 0; all && k < r->env.comm->size; k++)
        *most = fmax(*most, all[k]);
    free(all);
    return all ? 0 : -1;
}

static int gather_times(struct pp_rank *r, struct pp_record *record,
                        struct pp_err *err)
{
    const struct pp_recorder *rec = &r->recorder;
    double offset, error;
    size_t passes = (size_t)record->n_passes, steps = (size_t)record->n_steps;
    for (int k = 0; k < rec->schedule->graph->n_rows; k++)
        if (rec->schedule->rows[k].n > record->n)
            record->n = rec->schedule->rows[k].n;
    if (find_offset(r->env.comm, &offset, &error, err) ||
        gather_error(r, rec->error + error, &record->error, err))
        return -1;
    size_t n_spans = steps * passes * record->n, n_marks = steps;
    double(*spans)[2] = calloc(n_spans + 1, sizeof *spans);
    double(*marks)[PP_N_MARKS] = calloc(n_marks + 1, sizeof *marks);
    if (!spans || !marks) {
        free(spans);
        free(marks);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    for (size_t k = 0; k < steps; k++) {
        size_t at = (size_t)pp_recorder_place(rec, (int)k);
        memcpy(marks[k], rec->marks[at], sizeof *marks);
        for (size_t p = 0; p < passes; p++)
            memcpy(spans[(k * passes + p) * record->n],
                   rec->spans[(at * passes + p) * rec->n],
                   rec->n * sizeof *spans);
    }
    move_times((double *)spans, 2 * n_spans, offset);
    move_times((double *)marks, PP_N_MARKS * n_marks, offset);
    record->spans =
        (double(*)[2])(void *)gather_rows(r, (double *)spans, 2 * n_spans, err);
    if (record->spans)
        record->marks = (double(*)[PP_N_MARKS])(void *)gather_rows(
            r, (double *)marks, PP_N_MARKS * n_marks, err);
    free(spans);
    free(marks);
    return record->marks ? 0 : -1;
}

/* Fills the times of a unit: the mean over the ranks that measured it. */
static void add_fits(const struct pp_unit_fit *fits, size_t n_units, int size,
                     size_t unit, struct pp_unit_seconds *u, bool *alike)
{
    double n = 0;
    double *const to[PP_N_LAYER_TIMES] = {u->fwd, u->input, u->weight};
    for (int k = 0; k < size; k++) {
        const struct pp_unit_fit *f = &fits[(size_t)k * n_units + unit];
        n += f->n;
        *alike |= f->alike > 0;
        for (int time = 0; time < PP_N_LAYER_TIMES; time++)
            for (int i = 0; i < 2; i++)
                to[time][i] += f->seconds[time][i];
    }
    for (int time = 0; time < PP_N_LAYER_TIMES; time++)
        for (int i = 0; i < 2; i++)
            to[time][i] /= n > 0 ? n : 1;
}

/* Says which gradients of a unit the run did not make. */
static void set_frozen(const struct pp_model *m, size_t i,
                       struct pp_unit_seconds *u)
{
    const struct pp_shard all = pp_shard_whole(m);
    const struct pp_unit_id unit = pp_model_unit(m, i);
    enum pp_role role = pp_unit_role(m, unit);
    bool runs = pp_unit_runs(m, unit);
    struct pp_flops f = pp_unit_fwd_flops(&all, unit);
    u->no_input = runs && role == PP_ROLE_FORWARD;
    u->no_weight = runs && role != PP_ROLE_TRAINED;
    u->frozen = f.per_token > 0 ? f.frozen / f.per_token : 0;
}

static int gather_profile(struct pp_rank *r, struct pp_record *record,
                          struct pp_err *err)
{
    const struct pp_model *m = r->job->model;
    struct pp_profile *p = &record->profile;
    size_t n = pp_model_n_units(m), width = sizeof(struct pp_unit_fit) / 8;
    int skip = record->n_steps - record->n_profiled;
    struct pp_unit_fit *mine = calloc(n, sizeof *mine), *all = NULL;
    char name[PP_FQN_TEXT];
    if (!mine)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (!pp_fit_layers(r, skip, mine, err))
        all = (void *)pp_rank_gather(r, (const double *)mine, n * width, err);
    free(mine);
    if (!all)
        return -1;
    p->n_units = n;
    p->units = pp_arena_alloc(&record->arena, n, sizeof *p->units);
    for (size_t i = 0; i < n; i++) {
        pp_model_fqn(m, pp_model_unit(m, i), name);
        p->units[i].fqn = pp_arena_strdup(&record->arena, name);
        add_fits(all, n, r->env.comm->size, i, &p->units[i], &record->alike);
        set_frozen(m, i, &p->units[i]);
    }
    free(all);
    return pp_fit_messages(r, record, skip, p, err) ||
                   pp_fit_step(r, record, skip, p, err) ||
                   pp_fit_copies(r, record, skip, p, err) ||
                   pp_rank_gather_loads(r, record, err)
               ? -1
               : 0;
}

int pp_rank_gather_record(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_recorder *rec = &r->recorder;
    struct pp_record record = {.schedule = rec->schedule,
                               .n_passes = rec->kept.n_passes,
                               .has_profile = rec->kept.layers};
    record.n_steps = pp_recorder_n_kept(rec);
    record.first_step = r->step - record.n_steps + 1;
    int64_t warm = rec->n_done - PP_WARM_UP_STEPS;
    record.n_profiled = warm < 0                ? 0
                        : warm < record.n_steps ? (int)warm
                                                : record.n_steps;
    int rc = gather_times(r, &record, err);
    if (!rc && record.has_profile)
        rc = gather_profile(r, &record, err);
    if (!rc && r->env.comm->rank == 0)
        rc = r->job->recorded(r->job->ctx, &record, err);
    free(record.spans);
    free(record.marks);
    pp_arena_finish(&record.arena);
    return rc;
}
