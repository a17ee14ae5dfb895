/* SPDX-License-Identifier: MIT */
/* From a split to the one whose step is shortest, within --memory where that
 * can be. */
#include <math.h>

#include "split/split_step.h"
#include "ppsplit.h"

/* How often limits are lowered by what places in the arena cost. */
enum { MAX_CORRECTIONS = 8 };

/* Lowers the limit of each rank whose buffers fit together but not in their
 * places. *changed: there is one. */
static int correct(struct split_job *j, const size_t *bounds, bool *changed)
{
    struct split_run *run = &j->run;
    *changed = false;
    for (int r = 0; r < run->graph.n_rows; r++) {
        double need = pp_split_memory_need(&run->memory, bounds, r);
        size_t arena = 0;
        if (split_plan_rank(j, bounds, r, &arena))
            return -1;
        double over = split_rank_trained(j, bounds, r) + (double)arena -
                      (double)j->memory_bytes;
        if (over > 0 && need <= run->limit[r]) {
            run->limit[r] = need - over;
            *changed = true;
        }
    }
    return 0;
}

static bool fits(const struct split_job *j)
{
    for (int r = 0; r < j->run.graph.n_rows; r++)
        if (pp_split_memory_need(&j->run.memory, j->bounds, r) >
            (double)j->memory_bytes)
            return false;
    return true;
}

/* Units in atoms: the problem with one unit for each. */
struct merged {
    double (*times)[PP_N_TIMES], *messages;
    double (*bytes)[PP_N_UNIT_BYTES];
    size_t *bounds;
    struct pp_split_memory memory;
};

/* Of the units i .. end - 1, k is the atom. */
static void merge(const struct split_run *run, struct merged *x, size_t k,
                  size_t i, size_t end)
{
    size_t slices = (size_t)run->graph.n_slices;
    x->messages[k] = run->step.messages[end - 1];
    for (; i < end; i++) {
        for (size_t q = 0; q < slices; q++)
            for (int t = 0; t < PP_N_TIMES; t++)
                x->times[k * slices + q][t] += run->times[i * slices + q][t];
        for (int b = 0; b < PP_N_UNIT_BYTES; b++)
            x->bytes[k][b] = b == PP_UNIT_PASSING
                                 ? fmax(x->bytes[k][b], run->bytes[i][b])
                                 : x->bytes[k][b] + run->bytes[i][b];
    }
}

static int merge_all(struct split_job *j, const struct split_atoms *a,
                     struct merged *x, struct pp_split_step *step)
{
    struct split_run *run = &j->run;
    size_t slices = (size_t)run->graph.n_slices;
    struct pp_arena *arena = &j->arena;
    x->times = pp_arena_alloc(arena, a->n * slices, sizeof *x->times);
    x->messages = pp_arena_alloc(arena, a->n, sizeof *x->messages);
    x->bytes = pp_arena_alloc(arena, a->n, sizeof *x->bytes);
    x->bounds = pp_arena_alloc(arena, (size_t)run->graph.n_stages + 1,
                               sizeof *x->bounds);
    if (!x->times || !x->messages || !x->bytes || !x->bounds)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t k = 0; k < a->n; k++)
        merge(run, x, k, a->first[k], a->first[k + 1]);
    step->times = (const double(*)[PP_N_TIMES])x->times;
    step->messages = x->messages;
    step->n_units = a->n;
    if (j->memory_bytes == 0)
        return 0;
    if (a->n == j->n_units) { /* every atom is a unit */
        step->memory = &run->memory;
        return 0;
    }
    step->memory = &x->memory;
    return pp_split_memory_init(&x->memory, &run->lowered,
                                (const double(*)[PP_N_UNIT_BYTES])x->bytes,
                                a->n, split_largest_message(j), &j->t.err);
}

/* The split of atoms, and back. */
static int split_atoms(struct split_job *j, const struct split_atoms *a,
                       const struct pp_split_step *step, struct merged *x)
{
    size_t n = (size_t)(j->run.graph.n_stages / j->run.graph.n_copies);
    size_t k = 0;
    for (size_t s = 0; s <= n; s++) {
        while (a->first[k] < j->bounds[s])
            k++;
        x->bounds[s] = k;
    }
    if (pp_split_step(step, x->bounds, &j->run.found, &j->t.err))
        return -1;
    for (size_t s = 0; s <= n; s++)
        j->bounds[s] = a->first[x->bounds[s]];
    return 0;
}

int split_shorten(struct split_job *j, const struct split_atoms *a)
{
    struct split_run *run = &j->run;
    struct pp_split_step step = run->step;
    step.fit_only = j->fit_only;
    struct merged x = {0};
    bool again = false;
    int rc = -1;
    if (!run->known)
        return 0;
    for (int r = 0; r < run->graph.n_rows; r++)
        run->limit[r] = (double)j->memory_bytes;
    if (!j->shorten) {
        if (j->memory_bytes == 0)
            return 0;
        if (correct(j, j->bounds, &again))
            return -1;
        if (!again && fits(j))
            return 0;
    }
    if (merge_all(j, a, &x, &step))
        goto out;
    again = true;
    for (int i = 0; again && i < MAX_CORRECTIONS; i++) {
        again = false;
        if (split_atoms(j, a, &step, &x))
            goto out;
        /* What nothing keeps to, nothing keeps to when it is lowered. */
        if (j->memory_bytes && isfinite(run->found.makespan) &&
            correct(j, j->bounds, &again))
            goto out;
    }
    rc = 0;
out:
    pp_split_memory_finish(&x.memory);
    return rc;
}
