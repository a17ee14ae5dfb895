/* SPDX-License-Identifier: MIT */
/* --stats: figures of a schedule as one JSON object. */
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "ppsched.h"
#include "schedule/simulate/sim.h"

double ppsched_span_bubble(const struct pp_sim *sim)
{
    double busy = 0;
    for (int r = 0; r < sim->n_rows; r++)
        busy += sim->rows[r].busy;
    return sim->span > 0 ? 1 - busy / (sim->n_rows * sim->span) : 0;
}

int ppsched_strict(struct ppsched *p, double *makespan)
{
    return pp_run_time(p->schedule, &p->costs.costs, p->schedule->channel_depth,
                       true, makespan, &p->tool->err);
}

static void print_shape(const struct ppsched *p, struct pp_json_writer *w)
{
    const struct pp_schedule *s = p->schedule;
    pp_json_string(w, "kind", s->kind);
    pp_json_int(w, "ranks", s->graph->n_rows);
    pp_json_int(w, "stages", s->graph->n_stages);
    pp_json_int(w, "microbatches", s->n_microbatches);
    if (s->graph->n_copies > 1)
        pp_json_int(w, "copies", s->graph->n_copies);
    if (s->graph->slices.n > 1)
        pp_json_int(w, "slices", s->graph->slices.n);
    pp_json_bool(w, "canonical", pp_schedule_is_canonical(s));
    pp_json_string(w, "time",
                   p->costs.literal                   ? "units"
                   : p->costs.step.costs.plan.profile ? "seconds"
                                                      : "flops");
}

/* Returns the tokens of a step of all data-parallel ranks. */
static double step_tokens(const struct ppsched *p)
{
    size_t n = (size_t)p->schedule->n_microbatches *
               (size_t)p->schedule->graph->slices.n;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p->costs.step.loads[i].of[PP_LANGUAGE].tokens;
    return sum * p->manifest.mesh.dp;
}

static void print_times(const struct ppsched *p, struct pp_json_writer *w,
                        const struct pp_sim *sim, const struct pp_sim *at,
                        double strict)
{
    pp_json_real(w, "makespan", sim->makespan);
    pp_json_real(w, "bubble", sim->bubble);
    pp_json_real(w, "span", sim->span);
    pp_json_real(w, "span_bubble", ppsched_span_bubble(sim));
    pp_json_object(w, "at_depth", PP_JSON_INLINE);
    pp_json_int(w, "depth", p->schedule->channel_depth);
    pp_json_real(w, "makespan", at->makespan);
    pp_json_real(w, "bubble", at->bubble);
    pp_json_real(w, "strict", strict);
    pp_json_end(w);
    if (p->costs.literal || !p->costs.step.costs.plan.profile)
        return;
    double step = at->makespan + pp_step_update(&p->costs.step);
    pp_json_real(w, "step", step);
    pp_json_real(w, "tokens_per_s", step_tokens(p) / step);
}

void ppsched_print_bound(struct pp_json_writer *w, const struct pp_sim *sim,
                         const struct pp_bound *b)
{
    pp_json_real(w, "lower_bound", b->makespan);
    pp_json_real(w, "gap",
                 b->makespan > 0 ? sim->makespan / b->makespan - 1 : 0);
    pp_json_string(w, "bound_rule", b->rule);
}

/* Prints each rank's busy and idle times. */
static void print_idle(struct pp_json_writer *w, const struct pp_sim *sim)
{
    pp_json_array(w, "idle", PP_JSON_HUGGED);
    for (int r = 0; r < sim->n_rows; r++) {
        struct pp_idle idle = pp_idle_of(sim, r);
        pp_json_object(w, NULL, PP_JSON_INLINE);
        pp_json_real(w, "busy", sim->rows[r].busy);
        pp_json_real(w, "fill", idle.fill);
        pp_json_real(w, "wait_forward", idle.wait_forward);
        pp_json_real(w, "wait_backward", idle.wait_backward);
        pp_json_real(w, "drain", idle.drain);
        pp_json_end(w);
    }
    pp_json_end(w);
}

static void print_channels(const struct ppsched *p, struct pp_json_writer *w)
{
    struct pp_channel_traffic *at = NULL;
    size_t n;
    pp_traffic(p->schedule, &p->costs.costs, &at, &n);
    pp_json_array(w, "channels", PP_JSON_HUGGED);
    for (size_t i = 0; i < n; i++) {
        pp_json_object(w, NULL, PP_JSON_INLINE);
        pp_json_int(w, "from", at[i].from);
        pp_json_int(w, "to", at[i].to);
        pp_json_string(w, "direction", at[i].backward ? "backward" : "forward");
        pp_json_uint(w, "messages", at[i].messages);
        pp_json_real(w, "time", at[i].time);
        pp_json_end(w);
    }
    pp_json_end(w);
    free(at);
}

/* Prints the action at a place of a rank's row, as in the manifest. */
static void print_action(const struct ppsched *p, struct pp_json_writer *w,
                         int rank, size_t place)
{
    const struct pp_row *row = &p->schedule->rows[rank];
    char text[PP_ACTION_TEXT] = "";
    if (place < row->n)
        pp_action_format(row->actions[place], false, text);
    pp_json_string(w, NULL, text);
}

static void print_memory(const struct ppsched *p, struct pp_json_writer *w,
                         const struct ppsched_bytes *bytes)
{
    int n = p->manifest.graph.n_rows;
    pp_json_array(w, "peak", PP_JSON_INLINE);
    for (int r = 0; r < n; r++)
        pp_json_real(w, NULL, ppsched_slots(p, r));
    pp_json_end(w);
    pp_json_array(w, "peak_action", PP_JSON_INLINE);
    for (int r = 0; r < n; r++) {
        size_t place;
        pp_row_peak(p->schedule, r, &place);
        print_action(p, w, r, place);
    }
    pp_json_end(w);
    if (!p->costs.sized)
        return;
    pp_json_array(w, "peak_bytes", PP_JSON_INLINE);
    for (int r = 0; r < n; r++)
        pp_json_uint(w, NULL, bytes[r].peak);
    pp_json_end(w);
    pp_json_array(w, "peak_bytes_action", PP_JSON_INLINE);
    for (int r = 0; r < n; r++)
        print_action(p, w, r, bytes[r].peak_place);
    pp_json_end(w);
    pp_json_array(w, "arena_bytes", PP_JSON_INLINE);
    for (int r = 0; r < n; r++)
        pp_json_uint(w, NULL, pp_rank_arena(&bytes[r].all));
    pp_json_end(w);
    size_t host = 0;
    for (int r = 0; r < n; r++)
        host |= bytes[r].host;
    if (host) {
        pp_json_array(w, "host_bytes", PP_JSON_INLINE);
        for (int r = 0; r < n; r++)
            pp_json_uint(w, NULL, bytes[r].host);
        pp_json_end(w);
    }
    pp_json_array(w, "rank_bytes", PP_JSON_INLINE);
    for (int r = 0; r < n; r++)
        pp_json_uint(w, NULL, pp_rank_total(&bytes[r].all));
    pp_json_end(w);
    pp_json_array(w, "memory", PP_JSON_HUGGED);
    for (int r = 0; r < n; r++)
        tool_memory_json(w, &bytes[r].all);
    pp_json_end(w);
}

int ppsched_stats(struct ppsched *p, FILE *f)
{
    struct pp_sim sim = {0}, at = {0};
    struct pp_bound bound;
    struct pp_err *err = &p->tool->err;
    struct ppsched_bytes *bytes =
        pp_calloc((size_t)p->manifest.graph.n_rows, sizeof *bytes);
    double strict;
    int rc = 0;
    if (ppsched_memory(p, bytes) ||
        pp_simulate(p->schedule, &p->costs.costs, INT_MAX, &sim, err) ||
        pp_simulate(p->schedule, &p->costs.costs, p->schedule->channel_depth,
                    &at, err) ||
        ppsched_strict(p, &strict) || ppsched_bound(p, sim.makespan, &bound)) {
        rc = -1;
    } else {
        struct pp_json_writer w = pp_json_lines(f);
        print_shape(p, &w);
        print_times(p, &w, &sim, &at, strict);
        ppsched_print_bound(&w, &sim, &bound);
        print_idle(&w, &sim);
        print_memory(p, &w, bytes);
        pp_json_uint(&w, "messages",
                     pp_schedule_count(p->schedule, PP_SEND_OPS));
        print_channels(p, &w);
        pp_json_finish(&w);
    }
    pp_sim_finish(&sim);
    pp_sim_finish(&at);
    free(bytes);
    return rc;
}
