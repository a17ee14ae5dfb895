/* SPDX-License-Identifier: MIT */
/* ppsplit_joint - --method joint: placement, chunks, recomputation, split and
 * order chosen together, and what they were chosen from. */
#include <math.h>
#include <string.h>

#include "ppsplit.h"

static const char *placement_name(const struct pp_split_choice *c)
{
    return c->n_chunks == 1                    ? "chain"
           : c->placement == PP_PLACEMENT_LOOP ? "loop"
                                               : "v";
}

/* Returns the best combination of a kind. If none fits it is the one that needs
 * least, and NULL if there is no split. */
static const struct pp_split_choice *best_of(const struct pp_split_joint *x,
                                             const char *kind)
{
    const struct pp_split_choice *best = NULL;
    for (size_t i = 0; i < x->n_choices; i++) {
        const struct pp_split_choice *c = &x->choices[i];
        if (strcmp(c->kind, kind) || c->need == 0)
            continue;
        /* The last of equals is the one that the search keeps. */
        bool smaller = best && c->need < best->need;
        if (!best || (isfinite(c->step) ? c->step <= best->step
                                        : isinf(best->step) && smaller))
            best = c;
    }
    return best;
}

/* Returns true if no earlier choice has the kind. */
static bool is_first(const struct pp_split_joint *x, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(x->choices[k].kind, x->choices[i].kind))
            return false;
    return true;
}

/* Prints a combination with the share of its step above the bound, or the
 * memory that it lacks. With "B last" the last stage runs B although the kind
 * has I. */
static void print_choice(const struct pp_split_choice *c, double bound,
                         bool best, FILE *f)
{
    char place[32], need[32];
    pp_format_size(pp_size_of(c->need), need);
    snprintf(place, sizeof place, c->n_chunks > 1 ? "%s %d" : "%s",
             placement_name(c), c->n_chunks);
    fprintf(f, "%-14s  %-9s", c->kind, place);
    if (isinf(c->step))
        fprintf(f, "  no split fits; one needs %s\n", need);
    else
        fprintf(f, "  %9.4g  %4.1f %%  %10s  %5.1f %%%s%s\n", c->step,
                100 * c->idle, need, 100 * (c->step / bound - 1),
                c->whole_head ? "  B last" : "", best ? "  best" : "");
}

void split_print_tried(const struct pp_split_joint *x, const char *best,
                       FILE *f)
{
    fprintf(f,
            "\nBest split of each schedule, and memory of its fullest rank:\n"
            "%-14s  %-9s  %9s  %6s  %10s  %s\n",
            "schedule", "placement", "step", "bubble", "memory",
            "above the bound");
    for (size_t i = 0; i < x->n_choices; i++) {
        const struct pp_split_choice *c = best_of(x, x->choices[i].kind);
        if (is_first(x, i) && c)
            print_choice(c, x->bound.step, !strcmp(c->kind, best), f);
    }
    fprintf(f, "The bound, %.4g, is that of %s.\n", x->bound.step,
            x->bound.rule == PP_LEAST_UNIT    ? "one unit alone"
            : x->bound.rule == PP_LEAST_UNITS ? "whole units"
                                              : "the work of all ranks");
}

/* Describes the search under x-search. */
static void set_search(const struct pp_split_joint *x,
                       const struct pp_split_found *found, struct pp_arena *a,
                       struct pp_manifest *m)
{
    struct pp_manifest_try *tries =
        pp_arena_alloc(a, x->n_choices, sizeof *tries);
    for (size_t i = 0; i < x->n_choices; i++) {
        const struct pp_split_choice *c = &x->choices[i];
        tries[i] = (struct pp_manifest_try){.placement = placement_name(c),
                                            .schedule = c->kind,
                                            .n_chunks = c->n_chunks,
                                            .whole_head = c->whole_head,
                                            .step = c->step};
    }
    const struct pp_manifest_search s = {.step = found->makespan,
                                         .bound = found->bound,
                                         .bound_rule =
                                             pp_least_rule_names[x->bound.rule],
                                         .tries = tries,
                                         .n_tries = x->n_choices};
    pp_manifest_set_search(m, &s);
}

int split_set_order(const struct pp_split_joint *x,
                    const struct pp_split_run *run, struct pp_arena *a,
                    struct pp_manifest *m, struct pp_err *err)
{
    struct pp_schedule s = run->lowered;
    if (x->request.whole_head && s.kind == x->request.kind)
        s.kind = "auto";
    if (pp_manifest_set_schedule(m, &s, err))
        return -1;
    set_search(x, &run->found, a, m);
    return 0;
}
