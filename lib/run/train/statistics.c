/* SPDX-License-Identifier: MIT */
/* statistics - what ranks tell each other after a step: squares of gradients,
 * losses, metrics, times.
 *
 * Almost all numbers belong to one rank. Each rank gives the numbers that it
 * has to the tree of ranks, without zeros. Rank 0 adds them up in the order of
 * the ranks, and the sums go back through the tree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "comm/tree.h"
#include "run/train/squares.h"

/* The numbers that all ranks have, behind numbers of tensors and microbatches,
 * and before the slots of each rank. Integers below 2^53 are exact. */
enum shared_number {
    OF_COMPUTE,
    OF_PRODUCTS,
    OF_MESSAGES,
    OF_BYTES,
    OF_BALANCE,
    OF_SIZE,
    OF_DROPPED,
    OF_AHEAD,  /* or of a generator: a job has one of both */
    OF_ROUNDS, /* the most, as the next two */
    OF_LOAD,
    OF_WALL,
    OF_STOP,  /* the first signal, or what a rank has else */
    OF_FLAGS, /* enum pp_own_flags */
    N_SHARED
};
_Static_assert((int)N_SHARED == (int)PP_SHARED_NUMBERS, "the plan knows them");

size_t pp_rank_n_losses(const struct pp_rank *r)
{
    return pp_job_microbatches(r->job) * (size_t)r->job->accumulate;
}

size_t pp_rank_n_metrics(const struct pp_rank *r)
{
    size_t cp = (size_t)pp_layout_language(&r->env.layout)->mesh.cp;
    return r->job->objective ? pp_rank_n_losses(r) * cp * PP_MAX_METRICS : 0;
}

/* Adds a number of a rank, after the numbers of lower ranks. */
static double combine(double sum, double value, size_t index, size_t shared)
{
    if (index >= shared + OF_ROUNDS && index <= shared + OF_WALL)
        return fmax(sum, value);
    if (index == shared + OF_STOP)
        return sum > 0 ? sum : value;
    if (index == shared + OF_FLAGS)
        return (double)((unsigned)sum | (unsigned)value);
    return sum + value;
}

static void add_entries(void *ctx, size_t first, size_t n)
{
    struct pp_rank *r = ctx;
    for (const struct pp_entry *e = r->entries + first; n > 0; n--, e++)
        r->sums[e->index] =
            combine(r->sums[e->index], e->value, e->index, r->n_of_model);
}

int pp_rank_clear_losses(struct pp_rank *r, size_t n, struct pp_err *err)
{
    struct pp_device *d = r->env.device;
    return d->ops->zero(d, r->losses, n * sizeof *r->losses, err);
}

int pp_rank_add_up(struct pp_rank *r, const double *own, size_t n,
                   struct pp_err *err)
{
    struct pp_records records = {.part = r->n_numbers,
                                 .columns = {{r->entries, sizeof *r->entries}}};
    for (size_t i = 0; i < n; i++)
        if (own[i] != 0)
            r->entries[records.n++] = (struct pp_entry){i, own[i]};
    memset(r->sums, 0, n * sizeof *r->sums);
    return pp_tree_collect(r->env.comm, &records, add_entries, r, err) ||
                   pp_tree_broadcast(r->env.comm, r->sums, n * sizeof *r->sums,
                                     err)
               ? -1
               : 0;
}

double *pp_rank_gather(struct pp_rank *r, const double *mine, size_t n,
                       struct pp_err *err)
{
    size_t all;
    if (pp_mul(n, (size_t)r->env.comm->size, &all, err))
        return NULL;
    double *to = pp_try_calloc(all, sizeof *mine, err);
    if (to && r->env.comm->ops->allgather(r->env.comm, mine, to,
                                          n * sizeof *mine, err)) {
        free(to);
        return NULL;
    }
    return to;
}

int pp_rank_exchange(struct pp_rank *r, const struct pp_own_numbers *own,
                     struct pp_err *err)
{
    const double shared[N_SHARED] = {
        [OF_COMPUTE] = own->compute_seconds,
        [OF_PRODUCTS] = own->product_seconds,
        [OF_MESSAGES] = (double)own->messages,
        [OF_BYTES] = (double)own->message_bytes,
        [OF_BALANCE] = r->router.balance,
        [OF_SIZE] = r->router.size,
        [OF_DROPPED] = r->router.dropped,
        [OF_ROUNDS] = r->router.rounds,
        [OF_LOAD] = r->router.load,
        [OF_WALL] = own->seconds,
        [OF_STOP] = own->stop,
        [OF_FLAGS] = own->flags,
    };
    size_t n_losses = pp_rank_n_losses(r);
    double *of_all = r->mine + r->n_of_model;
    memset(r->mine, 0, r->n_numbers * sizeof *r->mine);
    if (pp_squares_of_gradients(r, err))
        return -1;
    memcpy(r->mine + r->n_tensors, r->host_sums, n_losses * sizeof *r->losses);
    if (r->metrics)
        memcpy(r->mine + r->n_tensors + n_losses, r->metrics,
               pp_rank_n_metrics(r) * sizeof *r->metrics);
    memcpy(of_all, shared, sizeof shared);
    of_all[OF_AHEAD] = r->host_sums[n_losses];
    of_all[N_SHARED + r->env.comm->rank] = own->peak_slots;
    return pp_rank_add_up(r, r->mine, r->n_numbers, err);
}

void pp_rank_combine_none(const struct pp_rank *r, double *combined)
{
    const struct pp_objective *o = pp_objectives[r->job->objective->number];
    for (size_t k = 0; k < o->n_metrics; k++)
        combined[k] = pp_metric_neutral(o->metrics[k].combine);
}

void pp_rank_combine(const struct pp_rank *r, const double *metrics, size_t n,
                     double *combined)
{
    const struct pp_objective *o = pp_objectives[r->job->objective->number];
    for (size_t k = 0; k < o->n_metrics; k++)
        for (size_t i = 0; i < n; i++)
            combined[k] = pp_metric_combine(o->metrics[k].combine, combined[k],
                                            metrics[i * PP_MAX_METRICS + k]);
}

static void report_metrics(struct pp_rank *r, struct pp_step_report *rep)
{
    if (!r->job->objective)
        return;
    pp_rank_combine_none(r, r->combined);
    pp_rank_combine(r, r->sums + r->n_tensors + pp_rank_n_losses(r),
                    pp_rank_n_metrics(r) / PP_MAX_METRICS, r->combined);
    rep->metrics = r->combined;
}

/* Returns the tensors of some units. */
static size_t count_tensors(const struct pp_model *m, size_t unit, size_t n)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t sum = 0;
    for (size_t i = unit; i < unit + n; i++)
        sum += pp_table_tensors(table,
                                pp_unit_params(m, pp_model_unit(m, i), table));
    return sum;
}

/* Fills the norms of the components. */
static void report_norms(const struct pp_rank *r, struct pp_step_report *rep)
{
    const struct pp_job *j = r->job;
    size_t unit = 0, tensor = 0;
    for (size_t k = 0; k < j->n_named; k++) {
        size_t end = tensor + count_tensors(j->model, unit, j->named_units[k]);
        double squares = 0;
        for (; tensor < end; tensor++)
            squares += r->sums[tensor];
        rep->norms[k] = sqrt(squares);
        unit += j->named_units[k];
    }
}

int pp_rank_report(struct pp_rank *r, struct pp_step_report *rep,
                   unsigned *flags)
{
    const double *of_all = r->sums + r->n_of_model;
    int n_ranks = r->env.comm->size;
    double squares = 0;
    rep->loss = 0;
    for (size_t i = 0; i < r->n_tensors; i++)
        squares += r->sums[i];
    for (size_t i = 0; i < pp_rank_n_losses(r); i++)
        rep->loss += r->sums[r->n_tensors + i];
    for (int k = 0; k < n_ranks; k++)
        r->peak_slots[k] = (int)of_all[N_SHARED + k];
    report_metrics(r, rep);
    report_norms(r, rep);
    rep->messages = (uint64_t)of_all[OF_MESSAGES];
    rep->message_bytes = (uint64_t)of_all[OF_BYTES];
    rep->aux_loss = of_all[OF_BALANCE];
    rep->z_loss = of_all[OF_SIZE];
    rep->dropped = of_all[OF_DROPPED];
    rep->expert_rounds = of_all[OF_ROUNDS];
    rep->mtp_loss = of_all[OF_AHEAD];
    rep->generator_loss = r->of_generator.scale > 0 ? of_all[OF_AHEAD] : NAN;
    rep->expert_load = of_all[OF_LOAD];
    rep->grad_norm = sqrt(squares);
    rep->bubble = r->env.device->ops->is_host
                      ? 1 - of_all[OF_COMPUTE] / (n_ranks * of_all[OF_WALL])
                      : -1;
    rep->products =
        r->job->time_products ? of_all[OF_PRODUCTS] / of_all[OF_COMPUTE] : -1;
    rep->peak_slots = r->peak_slots;
    *flags |= (unsigned)of_all[OF_FLAGS];
    return (int)of_all[OF_STOP];
}
