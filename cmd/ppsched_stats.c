/* SPDX-License-Identifier: MIT */
/* --stats: the figures of a schedule as one JSON object. */
#include <limits.h>
#include <stdlib.h>

#include "base/num.h"
#include "ppsched.h"

static void print_real(FILE *f, const char *key, double v)
{
    char text[32];
    pp_format_real(v, text);
    fprintf(f, "\"%s\": %s", key, text);
}

/* The bubble as papers on zero-bubble schedules count it: a rank may begin the
 * next step before the others have ended this one. */
static double span_bubble(const struct pp_sim *sim)
{
    double busy = 0;
    for (int r = 0; r < sim->n_ranks; r++)
        busy += sim->ranks[r].busy;
    return sim->span > 0 ? 1 - busy / (sim->n_ranks * sim->span) : 0;
}

static void print_shape(const struct ppsched *p, FILE *f)
{
    const struct pp_schedule *s = p->schedule;
    /* Kind names from a manifest may hold anything; the document's own string
     * rules have been applied, so only quotes and backslashes matter. */
    fputs("{\n  \"kind\": \"", f);
    for (const char *c = s->kind; *c; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', f);
        if ((unsigned char)*c < ' ')
            fprintf(f, "\\u%04x", *c);
        else
            fputc(*c, f);
    }
    fprintf(f,
            "\",\n  \"ranks\": %d,\n  \"stages\": %d,\n"
            "  \"microbatches\": %d,\n",
            s->graph->n_ranks, s->graph->n_stages, s->n_microbatches);
    if (s->graph->n_copies > 1)
        fprintf(f, "  \"copies\": %d,\n", s->graph->n_copies);
    if (s->graph->n_slices > 1)
        fprintf(f, "  \"slices\": %d,\n", s->graph->n_slices);
    fprintf(f, "  \"canonical\": %s,\n",
            pp_schedule_is_canonical(s) ? "true" : "false");
    fprintf(f, "  \"time\": \"%s\",\n", p->costs.literal ? "units" : "flops");
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
    print_real(f, "span_bubble", span_bubble(sim));
    fprintf(f, ",\n  \"at_depth\": {\"depth\": %d, ",
            p->schedule->channel_depth);
    print_real(f, "makespan", at->makespan);
    fputs(", ", f);
    print_real(f, "bubble", at->bubble);
    fputs("},\n", f);
}

static void print_memory(const struct ppsched *p, FILE *f,
                         const struct ppsched_bytes *bytes)
{
    int n = p->manifest.graph.n_ranks;
    fputs("  \"peak\": [", f);
    for (int r = 0; r < n; r++) {
        char text[32];
        pp_format_real(ppsched_slots(p, r), text);
        fprintf(f, "%s%s", r ? ", " : "", text);
    }
    fputs("],\n", f);
    if (!p->costs.sized)
        return;
    fputs("  \"peak_bytes\": [", f);
    for (int r = 0; r < n; r++)
        fprintf(f, "%s%zu", r ? ", " : "", bytes[r].peak);
    fputs("],\n  \"arena_bytes\": [", f);
    for (int r = 0; r < n; r++)
        fprintf(f, "%s%zu", r ? ", " : "", bytes[r].arena);
    fputs("],\n", f);
}

int ppsched_stats(struct ppsched *p, FILE *f)
{
    struct pp_sim sim = {0}, at = {0};
    struct pp_err *err = &p->tool->err;
    struct ppsched_bytes *bytes =
        calloc((size_t)p->manifest.graph.n_ranks, sizeof *bytes);
    int rc = bytes ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc || ppsched_memory(p, bytes) ||
        pp_simulate(p->schedule, &p->costs.costs, INT_MAX, &sim, err) ||
        pp_simulate(p->schedule, &p->costs.costs, p->schedule->channel_depth,
                    &at, err)) {
        rc = -1;
    } else {
        print_shape(p, f);
        print_times(p, f, &sim, &at);
        print_memory(p, f, bytes);
        fprintf(f, "  \"messages\": %zu\n}\n", sim.n_messages);
    }
    pp_sim_finish(&sim);
    pp_sim_finish(&at);
    free(bytes);
    return rc;
}
