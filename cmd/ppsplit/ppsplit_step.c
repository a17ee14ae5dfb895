/* SPDX-License-Identifier: MIT */
/* The schedule that will run: its order on the stages, what units take and
 * keep under it, and the split whose step is shortest. */
#include "split/split_step.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ppsplit.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

/* Stages times microbatches that are simulated; beyond, the costs of ranks are
 * all that is compared. */
enum { MAX_CELLS = 1 << 20 };

/* The kind that a placement is usually for. */
static const char *default_kind(const struct split_job *j)
{
    switch (j->placement) {
    case PP_PLACEMENT_BOTH_WAYS:
        return "dualpipe";
    case PP_PLACEMENT_V:
        return j->n_chunks == 1   ? "1f1b"
               : j->n_chunks == 2 ? "zbv"
               : j->n_chunks % 2  ? "gpipe"
                                  : "hanayo";
    case PP_PLACEMENT_LOOP:
        break;
    }
    return j->n_chunks == 1 ? "1f1b" : "interleaved";
}

static int emit(struct split_job *j, int n_microbatches, struct pp_schedule *s,
                struct pp_err *err)
{
    const struct pp_kind *kind = j->run.kind;
    struct pp_kind_options o = {.n_microbatches = n_microbatches};
    if (pp_schedule_init(s, &j->run.graph, kind->name, n_microbatches, err))
        return -1;
    return pp_kind_emit(kind, s, &o, err);
}

/* The kind that nobody asked for takes the next number of microbatches that it
 * can run. */
static int emit_default(struct split_job *j)
{
    struct split_run *run = &j->run;
    for (int64_t m = j->n_microbatches;; m++) {
        struct pp_err err = {0};
        if (!emit(j, (int)m, &run->order, &err)) {
            j->n_microbatches = m;
            return 0;
        }
        pp_schedule_finish(&run->order);
        if (err.code != PP_EXIT_INPUT ||
            m == j->n_microbatches + 2 * j->n_ranks) {
            j->t.err = err;
            return -1;
        }
    }
}

static bool has_halves(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (s->rows[r].actions[i].op == PP_I)
                return true;
    return false;
}

int split_schedule(struct split_job *j)
{
    struct split_run *run = &j->run;
    struct pp_err *err = &j->t.err;
    const char *name = j->automatic ? split_best_kind(j) : j->kind;
    run->kind = pp_kind_find(name ? name : default_kind(j));
    run->name = run->kind->name;
    run->fits = name != NULL;
    if (pp_graph_chain(&j->arena, (int)j->n_ranks, (int)j->n_chunks,
                       j->placement, &run->graph, err))
        return -1;
    run->graph.n_slices = run->kind->slices ? run->kind->slices : 1;
    if ((int64_t)run->graph.n_stages * run->graph.n_slices >
        MAX_CELLS / j->n_microbatches) {
        if (j->kind || j->rank_speed || j->recompute_auto)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%d stages of %" PRId64
                           " microbatches are too many to simulate",
                           run->graph.n_stages, j->n_microbatches);
        j->shorten = false;
        return 0;
    }
    if (j->kind ? emit(j, (int)j->n_microbatches, &run->order, err)
                : emit_default(j))
        return -1;
    run->known = true;
    run->halves = has_halves(&run->order);
    return pp_makespan_init(&run->makespan, &run->order, err);
}

/* Of unit i in each slice of a microbatch: products by tokens, attention by
 * pairs. */
static void set_times(struct split_job *j, size_t i)
{
    const struct pp_default_microbatch mb = split_microbatch(j);
    int64_t n = j->run.graph.n_slices;
    for (int64_t q = 0; q < n; q++) {
        struct pp_default_microbatch_part part =
            pp_default_microbatch_slice(&mb, q, n);
        struct pp_cost c = split_unit_cost(j, i, part.tokens, part.pairs);
        double *t = j->run.times[i * (size_t)n + (size_t)q];
        t[PP_TIME_F] = c.forward;
        t[PP_TIME_I] = c.input_grad;
        t[PP_TIME_W] = c.weight_grad;
        t[PP_TIME_B] = c.backward;
    }
}

static int init_memory(struct split_job *j)
{
    struct split_run *run = &j->run;
    return pp_split_memory_init(&run->memory, &run->lowered,
                                (const double(*)[PP_N_UNIT_BYTES])run->bytes,
                                j->n_units, split_largest_message(j),
                                &j->t.err);
}

int split_run_init(struct split_job *j)
{
    struct split_run *run = &j->run;
    struct pp_err *err = &j->t.err;
    size_t slices = (size_t)run->graph.n_slices;
    if (!run->known)
        return 0;
    run->times =
        pp_arena_alloc(&j->arena, j->n_units * slices, sizeof *run->times);
    run->bytes = pp_arena_alloc(&j->arena, j->n_units, sizeof *run->bytes);
    run->modes = pp_arena_alloc(&j->arena, j->n_units, sizeof *run->modes);
    run->limit =
        pp_arena_alloc(&j->arena, (size_t)j->n_ranks, sizeof *run->limit);
    double *messages = pp_arena_alloc(&j->arena, j->n_units, sizeof *messages);
    if (!run->times || !run->bytes || !run->modes || !run->limit || !messages)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++) {
        run->modes[i] = split_recompute(j, i);
        set_times(j, i);
        split_unit_bytes(j, i, run->bytes[i]);
        messages[i] = j->profile.latency +
                      j->profile.seconds_per_byte * split_message_bytes(j, i);
    }
    run->step =
        (struct pp_split_step){.makespan = &run->makespan,
                               .n_units = j->n_units,
                               .times = (const double(*)[PP_N_TIMES])run->times,
                               .messages = messages,
                               .speed = j->speeds,
                               .limit = run->limit};
    if (j->memory_bytes == 0 && !j->table)
        return 0;
    if (emit(j, (int)j->n_microbatches, &run->lowered, err) ||
        pp_lower(&run->lowered, err))
        return -1;
    return init_memory(j);
}

int split_set_modes(struct split_job *j)
{
    struct split_run *run = &j->run;
    for (size_t i = 0; i < j->n_units; i++) {
        if (run->known && run->modes[i] == j->modes[i])
            continue;
        j->costs[i] = split_token_cost(j, i);
        if (!run->known)
            continue;
        run->modes[i] = j->modes[i];
        set_times(j, i);
        split_unit_bytes(j, i, run->bytes[i]);
    }
    if (!run->memory.before)
        return 0;
    return pp_split_memory_set(
        &run->memory, (const double(*)[PP_N_UNIT_BYTES])run->bytes, &j->t.err);
}

int split_run_take(struct split_job *j, struct pp_schedule *s)
{
    struct split_run *run = &j->run;
    pp_split_memory_finish(&run->memory);
    pp_schedule_finish(&run->order);
    pp_schedule_finish(&run->lowered);
    run->order = (struct pp_schedule){0};
    run->lowered = *s;
    return j->memory_bytes || j->table ? init_memory(j) : 0;
}

static const struct pp_schedule *order_of(const struct split_run *run)
{
    return run->order.rows ? &run->order : &run->lowered;
}

/* Most microbatches that each stage keeps at once; slices count by their part.
 */
static int count_live(struct split_job *j)
{
    struct split_run *run = &j->run;
    const struct pp_schedule *order = order_of(run);
    int *live = calloc((size_t)run->graph.n_stages, sizeof *live);
    int *most = calloc((size_t)run->graph.n_stages, sizeof *most);
    for (int r = 0; live && most && r < run->graph.n_rows; r++) {
        const struct pp_row *row = &order->rows[r];
        for (size_t i = 0; i < row->n; i++) {
            int s = row->actions[i].stage;
            enum pp_op op = row->actions[i].op;
            live[s] += op == PP_F;
            most[s] = live[s] > most[s] ? live[s] : most[s];
            live[s] -= op == PP_W || op == PP_B;
        }
    }
    for (int s = 0; live && most && s < run->graph.n_stages; s++)
        j->stages[s].live = (double)most[s] / run->graph.n_slices;
    bool done = live && most;
    free(live);
    free(most);
    return done ? 0 : pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
}

/* How long an action takes on one rank of the speed 1. */
static double action_time(const struct split_job *j, struct pp_action a)
{
    const struct split_run *run = &j->run;
    size_t slices = (size_t)run->graph.n_slices;
    int time =
        pp_time_of((enum pp_op)a.op, run->graph.stages[a.stage].input_grad);
    double sum = 0;
    for (size_t i = split_first(j, a.stage);
         time >= 0 && i < split_end(j, a.stage); i++)
        sum += run->times[i * slices + (size_t)a.slice][time];
    return sum;
}

/* How long each rank computes in a step. */
static void count_busy(struct split_job *j)
{
    struct split_run *run = &j->run;
    const struct pp_schedule *order = order_of(run);
    for (int r = 0; r < run->graph.n_rows; r++) {
        double speed = run->step.speed ? run->step.speed[r] : 1;
        for (size_t i = 0; i < order->rows[r].n; i++) {
            struct pp_action a = order->rows[r].actions[i];
            if (pp_is_compute(a.op))
                j->ranks[r].busy += action_time(j, a) / speed;
        }
    }
}

int split_measure_stages(struct split_job *j)
{
    return j->run.known ? count_live(j) : 0;
}

int split_measure_ranks(struct split_job *j)
{
    struct split_run *run = &j->run;
    if (!run->known || run->lowered.n_microbatches == 0)
        return 0;
    for (int r = 0; r < run->graph.n_rows; r++) {
        size_t bytes;
        if (split_plan_rank(j, j->bounds, r, &bytes))
            return -1;
        j->ranks[r].activations_bytes = (double)bytes;
    }
    if (j->graph.n_stages == j->graph.n_rows)
        for (int s = 0; s < j->graph.n_stages; s++)
            j->stages[s].activations_bytes =
                j->ranks[j->graph.stages[s].row].activations_bytes;
    count_busy(j);
    if (j->shorten || j->automatic)
        return 0;
    return pp_split_step_time(&run->step, j->bounds, &run->found.makespan,
                              &j->t.err);
}

void split_run_finish(struct split_run *run)
{
    pp_split_memory_finish(&run->memory);
    pp_makespan_finish(&run->makespan);
    pp_schedule_finish(&run->order);
    pp_schedule_finish(&run->lowered);
}
