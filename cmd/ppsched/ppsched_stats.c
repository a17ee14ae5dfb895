/* SPDX-License-Identifier: MIT */
/* --stats: figures of a schedule as one JSON object. */
#include <limits.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/quote.h"
#include "ppsched.h"
#include "schedule/simulate/sim.h"

static void print_real(FILE *f, const char *key, double v)
{
    char text[32];
    pp_format_real(v, text);
    fprintf(f, "\"%s\": %s", key, text);
}

double ppsched_span_bubble(const struct pp_sim *sim)
{
    double busy = 0;
    for (int r = 0; r < sim->n_rows; r++)
        busy += sim->rows[r].busy;
    return sim->span > 0 ? 1 - busy / (sim->n_rows * sim->span) : 0;
}

static void print_shape(const struct ppsched *p, FILE *f)
{
    const struct pp_schedule *s = p->schedule;
    fputs("{\n  \"kind\": ", f);
    pp_quote_json(f, s->kind);
    fprintf(f,
            ",\n  \"ranks\": %d,\n  \"stages\": %d,\n"
            "  \"microbatches\": %d,\n",
            s->graph->n_rows, s->graph->n_stages, s->n_microbatches);
    if (s->graph->n_copies > 1)
        fprintf(f, "  \"copies\": %d,\n", s->graph->n_copies);
    if (s->graph->n_slices > 1)
        fprintf(f, "  \"slices\": %d,\n", s->graph->n_slices);
    fprintf(f, "  \"canonical\": %s,\n",
            pp_schedule_is_canonical(s) ? "true" : "false");
    fprintf(f, "  \"time\": \"%s\",\n",
            p->costs.literal         ? "units"
            : p->costs.stage.profile ? "seconds"
                                     : "flops");
}

static void print_times(const struct ppsched *p, FILE *f,
                        const struct pp_sim *sim, const struct pp_sim *at)
{
    fputs("  ", f);
    print_real(f, "makespan", sim->makespan);
    fputs(",\n  ", f);
    print_real(f, "bubble", sim->bubble);
    fputs(",\n  ", f);
    print_real(f, "span", sim->span);
    fputs(",\n  ", f);
    print_real(f, "span_bubble", ppsched_span_bubble(sim));
    fprintf(f, ",\n  \"at_depth\": {\"depth\": %d, ",
            p->schedule->channel_depth);
    print_real(f, "makespan", at->makespan);
    fputs(", ", f);
    print_real(f, "bubble", at->bubble);
    fputs("},\n", f);
    if (p->costs.literal || !p->costs.stage.profile)
        return;
    fputs("  ", f);
    print_real(f, "step", at->makespan + pp_step_rest(&p->costs.stage));
    fputs(",\n", f);
}

static void print_bound(FILE *f, const struct pp_sim *sim,
                        const struct pp_bound *b)
{
    /* The bound may exceed the makespan in the last bits, as sums run in
     * another order. */
    double bound = b->makespan < sim->makespan ? b->makespan : sim->makespan;
    fputs("  ", f);
    print_real(f, "lower_bound", bound);
    fputs(",\n  ", f);
    print_real(f, "gap", bound > 0 ? sim->makespan / bound - 1 : 0);
    fprintf(f, ",\n  \"bound_rule\": \"%s\",\n", b->rule);
}

/* Prints each rank's busy and idle times. */
static void print_idle(FILE *f, const struct pp_sim *sim)
{
    fputs("  \"idle\": [", f);
    for (int r = 0; r < sim->n_rows; r++) {
        struct pp_idle idle = pp_idle_of(sim, r);
        fputs(r ? ",\n    {" : "\n    {", f);
        print_real(f, "busy", sim->rows[r].busy);
        fputs(", ", f);
        print_real(f, "fill", idle.fill);
        fputs(", ", f);
        print_real(f, "wait_forward", idle.wait_forward);
        fputs(", ", f);
        print_real(f, "wait_backward", idle.wait_backward);
        fputs(", ", f);
        print_real(f, "drain", idle.drain);
        fputc('}', f);
    }
    fputs("],\n", f);
}

static int print_channels(const struct ppsched *p, FILE *f)
{
    struct pp_channel_traffic *at = NULL;
    size_t n;
    if (pp_traffic(p->schedule, &p->costs.costs, &at, &n, &p->tool->err))
        return -1;
    fputs("  \"channels\": [", f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f,
                "%s\n    {\"from\": %d, \"to\": %d, \"direction\": \"%s\", "
                "\"messages\": %zu, ",
                i ? "," : "", at[i].from, at[i].to,
                at[i].backward ? "backward" : "forward", at[i].messages);
        print_real(f, "time", at[i].time);
        fputc('}', f);
    }
    fputs("]\n", f);
    free(at);
    return 0;
}

/* Prints the action at a place of a rank's row, as in the manifest. */
static void print_action(const struct ppsched *p, FILE *f, int rank,
                         size_t place)
{
    const struct pp_row *row = &p->schedule->rows[rank];
    char text[PP_ACTION_TEXT] = "";
    if (place < row->n)
        pp_action_format(row->actions[place], false, text);
    fprintf(f, "%s\"%s\"", rank ? ", " : "", text);
}

static void print_memory(const struct ppsched *p, FILE *f,
                         const struct ppsched_bytes *bytes)
{
    int n = p->manifest.graph.n_rows;
    fputs("  \"peak\": [", f);
    for (int r = 0; r < n; r++) {
        char text[32];
        pp_format_real(ppsched_slots(p, r), text);
        fprintf(f, "%s%s", r ? ", " : "", text);
    }
    fputs("],\n  \"peak_action\": [", f);
    for (int r = 0; r < n; r++) {
        size_t place;
        pp_row_peak(&p->schedule->rows[r], &place);
        print_action(p, f, r, place);
    }
    fputs("],\n", f);
    if (!p->costs.sized)
        return;
    fputs("  \"peak_bytes\": [", f);
    for (int r = 0; r < n; r++)
        fprintf(f, "%s%zu", r ? ", " : "", bytes[r].peak);
    fputs("],\n  \"peak_bytes_action\": [", f);
    for (int r = 0; r < n; r++)
        print_action(p, f, r, bytes[r].peak_place);
    fputs("],\n  \"arena_bytes\": [", f);
    for (int r = 0; r < n; r++)
        fprintf(f, "%s%zu", r ? ", " : "", bytes[r].arena);
    fputs("],\n", f);
}

int ppsched_stats(struct ppsched *p, FILE *f)
{
    struct pp_sim sim = {0}, at = {0};
    struct pp_bound bound;
    struct pp_err *err = &p->tool->err;
    struct ppsched_bytes *bytes =
        calloc((size_t)p->manifest.graph.n_rows, sizeof *bytes);
    int rc = bytes ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc || ppsched_memory(p, bytes) ||
        pp_simulate(p->schedule, &p->costs.costs, INT_MAX, &sim, err) ||
        pp_simulate(p->schedule, &p->costs.costs, p->schedule->channel_depth,
                    &at, err) ||
        ppsched_bound(p, &bound)) {
        rc = -1;
    } else {
        print_shape(p, f);
        print_times(p, f, &sim, &at);
        print_bound(f, &sim, &bound);
        print_idle(f, &sim);
        print_memory(p, f, bytes);
        fprintf(f, "  \"messages\": %zu,\n", sim.n_messages);
        rc = print_channels(p, f);
        fputs("}\n", f);
    }
    pp_sim_finish(&sim);
    pp_sim_finish(&at);
    free(bytes);
    return rc;
}
