/* SPDX-License-Identifier: MIT */
#include "sched/search_vblocks.h"

#include <math.h>
#include <stdlib.h>

#include "sched/play.h"

enum { ACTIONS = 4 }; /* of a microbatch on a rank, weight gradients apart */

/* When a rank does them for the first microbatch. */
struct slots {
    double begin[ACTIONS], end[ACTIONS];
    int n;
};

struct vblocks {
    const struct pp_job *job;
    const struct pp_vblock_knobs *knobs;
    double period;
    bool reserve;        /* of room: see has_room */
    double *offset;      /* per group but W's: of its action in the block */
    double *base;        /* per microbatch: when its block begins */
    struct slots *slots; /* per rank */
    int32_t *word;
};

struct pp_vblock_knobs pp_vblock_setting(int i)
{
    static const double waits[] = {0, 1, 0.5};
    struct pp_vblock_knobs k = {.squeeze = i % 2 == 0 ? 1 : 0.01};
    i /= 2;
    for (int way = 0; way < ACTIONS; way++, i /= 3)
        k.wait[way] = waits[i % 3];
    return k;
}

/* Where [at, at + time) meets a slot of any microbatch: when that one ends, or
 * at. */
static double pass(const struct vblocks *v, const struct slots *s, double at,
                   double time)
{
    for (int i = 0; i < s->n; i++) {
        double length = s->end[i] - s->begin[i];
        double after = fmod(at - s->begin[i], v->period);
        after += after < 0 ? v->period : 0;
        /* Rounding must not pass for an overlap. */
        double slack = 1e-9 * v->period;
        if (after < length - slack)
            return at + length - after;
        if (after + time > v->period + slack)
            return at + v->period - after + length;
    }
    return at;
}

/* The first time from ready on that the repeated block leaves free; ready where
 * none is. */
static double place(struct vblocks *v, int rank, double ready, double time)
{
    struct slots *s = &v->slots[rank];
    double at = ready;
    for (int i = 0; i <= ACTIONS; i++) {
        double next = pass(v, s, at, time);
        if (next <= at)
            break;
        at = next;
    }
    if (pass(v, s, at, time) > at)
        at = ready;
    s->begin[s->n] = at;
    s->end[s->n++] = at + time;
    return at + time;
}

/* The block: each action where it first fits behind the one it waits for. */
static void plan(struct vblocks *v)
{
    const struct pp_job *j = v->job;
    int n = j->graph->n_stages;
    double now = 0;
    for (int i = 0; i < 2 * n; i++) {
        int kind = i < n ? PP_JOB_F : PP_JOB_I;
        int stage = i < n ? i : 2 * n - 1 - i;
        int32_t op = pp_job_op(j, kind, stage, 0);
        int group = j->group[op];
        double time = j->time[op], ready = now;
        for (int32_t e = j->first_in[op]; e < j->first_in[op + 1]; e++)
            if (pp_job_stage(j, j->in[e].op) != stage)
                ready = now + j->in[e].lag;
        ready += v->knobs->wait[2 * i / n] * time;
        now = place(v, j->rank[group], ready, time);
        v->offset[group] = now - time;
    }
}

/* The busiest rank's work for a microbatch. */
static double work(const struct pp_job *j, int microbatch)
{
    double most = 0;
    int n = j->graph->n_stages;
    for (int s = 0; s < n / 2; s++) {
        double sum = 0;
        for (int kind = PP_JOB_F; kind <= PP_JOB_W; kind++)
            sum += j->time[pp_job_op(j, kind, s, microbatch)] +
                   j->time[pp_job_op(j, kind, n - 1 - s, microbatch)];
        most = fmax(most, sum);
    }
    return most;
}

/* A rank's word as it grows. */
struct row {
    const struct vblocks *v;
    int stage[2]; /* on the way there, and back */
    double limit, clock, held;
    int32_t done[2][3]; /* of each stage, by kind */
    int32_t *word;
};

static int32_t next_op(const struct row *r, int i, int kind)
{
    return pp_job_op(r->v->job, kind, r->stage[i], r->done[i][kind]);
}

/* With a reserve a forward on the way there leaves what the way back takes, so
 * that the two never lock each other out. */
static bool has_room(const struct row *r, int i, int kind)
{
    const struct pp_job *j = r->v->job;
    double need = j->taken[j->group[next_op(r, i, kind)]];
    if (r->v->reserve && i == 0 && kind == PP_JOB_F)
        need += j->taken[j->group[pp_job_op(j, PP_JOB_F, r->stage[1], 0)]];
    return r->held + need <= r->limit;
}

/* Whether the rank has done what the next action of that kind rests on. */
static bool is_due(const struct row *r, int i, int kind)
{
    int32_t m = r->done[i][kind];
    if (m == r->v->job->n_microbatches)
        return false;
    if (kind == PP_JOB_F)
        return i == 0 || m < r->done[0][PP_JOB_F];
    return m < r->done[i][PP_JOB_F] && (i == 1 || m < r->done[1][PP_JOB_I]);
}

/* The stage that owes more weight gradients; -1: none. */
static int owing(const struct row *r)
{
    int owes[2];
    for (int i = 0; i < 2; i++)
        owes[i] = r->done[i][PP_JOB_I] - r->done[i][PP_JOB_W];
    int i = owes[1] > owes[0];
    return owes[i] > 0 ? i : -1;
}

static void put(struct row *r, int i, int kind)
{
    const struct pp_job *j = r->v->job;
    int32_t op = next_op(r, i, kind);
    r->clock += j->time[op];
    r->held += j->taken[j->group[op]] - j->freed[j->group[op]];
    r->done[i][kind]++;
    *r->word++ = op;
}

/* The action of the block that comes next: the first for which there is, or can
 * be made, room. Its time, or infinity at the end. */
static double choose(const struct row *r, bool can_make, int *stage, int *kind)
{
    double first = INFINITY;
    for (int i = 0; i < 2; i++)
        for (int k = PP_JOB_F; k <= PP_JOB_I; k++) {
            if (!is_due(r, i, k) || (!can_make && !has_room(r, i, k)))
                continue;
            int group = r->v->job->group[next_op(r, i, k)];
            double at = r->v->offset[group] + r->v->base[r->done[i][k]];
            if (at < first) {
                first = at;
                *stage = i;
                *kind = k;
            }
        }
    return first;
}

/* The block's order, weight gradients where they fit and where their room is
 * needed. */
static bool write_rank(struct vblocks *v, int rank)
{
    const struct pp_job *j = v->job;
    struct row r = {
        .v = v,
        .stage = {rank, j->graph->n_stages - 1 - rank},
        .limit = j->limit ? j->limit[rank] + j->slack : INFINITY,
        .word = v->word + j->first_word[rank],
    };
    for (int32_t left = j->first_word[rank + 1] - j->first_word[rank]; left > 0;
         left--) {
        int i = 0, kind = 0, weight = owing(&r);
        double at = choose(&r, weight >= 0, &i, &kind);
        bool none = at == INFINITY || !has_room(&r, i, kind);
        if (none && weight < 0)
            return false;
        if (none || (weight >= 0 &&
                     r.clock + v->knobs->squeeze *
                                   j->time[next_op(&r, weight, PP_JOB_W)] <=
                         at)) {
            put(&r, weight, PP_JOB_W);
        } else {
            r.clock = fmax(r.clock, at);
            put(&r, i, kind);
        }
    }
    return true;
}

/* A chain of stages on ranks there and back. */
static bool suits(const struct pp_job *j)
{
    const struct pp_graph *g = j->graph;
    if (j->n_kinds < 3 || g->n_stages != 2 * g->n_ranks ||
        j->n_ops != 3 * g->n_stages * j->n_microbatches)
        return false;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *node = &g->stages[s];
        int rank = s < g->n_ranks ? s : g->n_stages - 1 - s;
        if (node->rank != rank || node->n_inputs != (s > 0) ||
            (s > 0 && node->inputs[0] != s - 1))
            return false;
    }
    return true;
}

static bool write_all(struct vblocks *v)
{
    for (int r = 0; r < v->job->graph->n_ranks; r++)
        if (!write_rank(v, r))
            return false;
    return true;
}

static bool run(struct vblocks *v)
{
    const struct pp_job *j = v->job;
    v->period = work(j, 0);
    for (int m = 1; m < j->n_microbatches; m++)
        v->base[m] = v->base[m - 1] + work(j, m - 1);
    plan(v);
    if (write_all(v))
        return true;
    v->reserve = true;
    return write_all(v);
}

int pp_vblocks_run(const struct pp_job *j, const struct pp_vblock_knobs *knobs,
                   int32_t *word, struct pp_err *err)
{
    struct vblocks v = {.job = j, .knobs = knobs, .word = word};
    size_t stages = (size_t)j->graph->n_stages;
    int rc = PP_AGAIN;
    if (!suits(j))
        return PP_AGAIN;
    v.offset = calloc(2 * stages, sizeof *v.offset);
    v.base = calloc((size_t)j->n_microbatches, sizeof *v.base);
    v.slots = calloc(stages / 2, sizeof *v.slots);
    if (!v.offset || !v.base || !v.slots)
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (run(&v))
        rc = 0;
    free(v.offset);
    free(v.base);
    free(v.slots);
    return rc;
}
