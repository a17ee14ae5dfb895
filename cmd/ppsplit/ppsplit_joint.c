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

int split_plan_jointly(struct split_job *j)
{
    /* Megatron-LM's layouts have a loop only. */
    bool any = !tool_given(&j->t, "placement") && !j->request.layout;
    if (pp_split_joint(&j->request, any, &j->joint, &j->plan, &j->t.err))
        return -1;
    j->placement = j->joint.request.placement;
    j->n_chunks = j->joint.request.n_chunks;
    j->n_stages = j->plan.run.n_stages;
    return 0;
}

/* Returns the best combination of a kind. If none fits it is the one that needs
 * least, and NULL if there is no split. */
static const struct pp_split_choice *best_of(const struct split_job *j,
                                             const char *kind)
{
    const struct pp_split_joint *x = &j->joint;
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
static bool is_first(const struct split_job *j, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(j->joint.choices[k].kind, j->joint.choices[i].kind))
            return false;
    return true;
}

/* Prints a combination, or the memory that it lacks. With "B last" the last
 * stage runs B although the kind has I. */
static void print_choice(const struct split_job *j,
                         const struct pp_split_choice *c, FILE *f)
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
                100 * c->idle, need, 100 * (c->step / j->joint.bound.step - 1),
                c->whole_head ? "  B last" : "",
                strcmp(c->kind, j->plan.run.name) ? "" : "  best");
}

void split_print_tried(const struct split_job *j, FILE *f)
{
    const struct pp_split_joint *x = &j->joint;
    fprintf(f,
            "\nBest split of each schedule, and memory of its fullest rank:\n"
            "%-14s  %-9s  %9s  %6s  %10s  %s\n",
            "schedule", "placement", "step", "bubble", "memory",
            "above the bound");
    for (size_t i = 0; i < x->n_choices; i++) {
        const struct pp_split_choice *c = best_of(j, x->choices[i].kind);
        if (is_first(j, i) && c)
            print_choice(j, c, f);
    }
    fprintf(f, "The bound, %.4g, is that of %s.\n", x->bound.step,
            x->bound.rule == PP_LEAST_UNIT    ? "one unit alone"
            : x->bound.rule == PP_LEAST_UNITS ? "whole units"
                                              : "the work of all ranks");
}

/* Describes the search under x-search. */
static void set_search(const struct split_job *j, struct pp_arena *a,
                       struct pp_manifest *m)
{
    const struct pp_split_joint *x = &j->joint;
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
    const struct pp_manifest_search s = {.step = j->plan.run.found.makespan,
                                         .bound = j->plan.run.found.bound,
                                         .bound_rule =
                                             pp_least_rule_names[x->bound.rule],
                                         .tries = tries,
                                         .n_tries = x->n_choices};
    pp_manifest_set_search(m, &s);
}

int split_set_order(const struct split_job *j, struct pp_arena *a,
                    struct pp_manifest *m, struct pp_err *err)
{
    const struct pp_schedule *order = &j->plan.run.lowered;
    struct pp_schedule s = *order;
    if (j->joint.request.whole_head && s.kind == j->joint.request.kind)
        s.kind = "auto";
    if (pp_manifest_set_schedule(m, &s, err))
        return -1;
    set_search(j, a, m);
    return 0;
}
