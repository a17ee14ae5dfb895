/* SPDX-License-Identifier: MIT */
/* statistics - what ranks tell each other after a step: squares of gradients,
 * losses, metrics, times.
 *
 * Almost all numbers belong to one rank. Each rank sends those that it has to
 * rank 0, which adds them up and sends the sums back: a job moves a few sums
 * for each rank, not every number of every rank. */
#include <math.h>
#include <string.h>

#include "run/train/squares.h"

/* The numbers of a rank alone; every rank gets those of all. Integers below
 * 2^53 are exact. */
enum own_number {
    OWN_COMPUTE,
    OWN_WALL,
    OWN_PRODUCTS,
    OWN_STOP,
    OWN_FLAGS, /* enum pp_own_flags */
    OWN_SLOTS,
    OWN_MESSAGES,
    OWN_BYTES,
    N_OWN
};
_Static_assert((int)N_OWN == (int)PP_OWN_NUMBERS, "the plan knows them");

size_t pp_rank_n_losses(const struct pp_rank *r)
{
    return pp_job_microbatches(r->job) * (size_t)r->job->accumulate;
}

size_t pp_rank_n_metrics(const struct pp_rank *r)
{
    size_t cp = (size_t)pp_layout_language(&r->env.layout)->mesh.cp;
    return r->job->objective ? pp_rank_n_losses(r) * cp * PP_MAX_METRICS : 0;
}

/* Adds the numbers of another rank, which come as a count and that many
 * entries. */
static int add_rank(struct pp_rank *r, int from, double *sum,
                    struct pp_err *err)
{
    uint64_t n;
    if (pp_comm_receive(r->env.comm, from, PP_DIRECTION_HOST, &n, sizeof n,
                        err) ||
        pp_comm_receive(r->env.comm, from, PP_DIRECTION_HOST, r->entries,
                        n * sizeof *r->entries, err))
        return -1;
    for (uint64_t i = 0; i < n; i++)
        sum[r->entries[i].index] += r->entries[i].value;
    return 0;
}

static int send_numbers(struct pp_rank *r, const double *own, size_t n,
                        struct pp_err *err)
{
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (own[i] != 0)
            r->entries[used++] = (struct pp_entry){i, own[i]};
    return pp_comm_send_host(r->env.comm, 0, &used, sizeof used, err) ||
                   pp_comm_send_host(r->env.comm, 0, r->entries,
                                     used * sizeof *r->entries, err)
               ? -1
               : 0;
}

int pp_rank_add_up(struct pp_rank *r, const double *own, size_t n,
                   struct pp_err *err)
{
    struct pp_comm *c = r->env.comm;
    if (c->rank > 0)
        return send_numbers(r, own, n, err) ||
                       pp_comm_receive(c, 0, PP_DIRECTION_HOST, r->sums,
                                       n * sizeof *r->sums, err)
                   ? -1
                   : 0;
    memcpy(r->sums, own, n * sizeof *r->sums);
    for (int k = 1; k < c->size; k++)
        if (add_rank(r, k, r->sums, err))
            return -1;
    for (int k = 1; k < c->size; k++)
        if (pp_comm_send_host(c, k, r->sums, n * sizeof *r->sums, err))
            return -1;
    return 0;
}

int pp_rank_exchange(struct pp_rank *r, const struct pp_own_numbers *own,
                     struct pp_err *err)
{
    const double numbers[N_OWN] = {
        [OWN_COMPUTE] = own->compute_seconds,
        [OWN_WALL] = own->seconds,
        [OWN_PRODUCTS] = own->product_seconds,
        [OWN_STOP] = own->stop,
        [OWN_FLAGS] = own->flags,
        [OWN_SLOTS] = own->peak_slots,
        [OWN_MESSAGES] = (double)own->messages,
        [OWN_BYTES] = (double)own->message_bytes,
    };
    size_t n_losses = pp_rank_n_losses(r);
    memset(r->mine, 0, r->n_numbers * sizeof *r->mine);
    if (pp_squares_of_gradients(r, err))
        return -1;
    memcpy(r->mine + r->n_tensors, r->losses, n_losses * sizeof *r->losses);
    if (r->metrics)
        memcpy(r->mine + r->n_tensors + n_losses, r->metrics,
               pp_rank_n_metrics(r) * sizeof *r->metrics);
    return pp_rank_add_up(r, r->mine, r->n_numbers, err) ||
                   r->env.comm->ops->allgather(r->env.comm, numbers,
                                               r->of_ranks, sizeof numbers, err)
               ? -1
               : 0;
}

/* Combines the metrics of all microbatches, in their order, and of the ranks
 * that divide them. */
static void combine_metrics(struct pp_rank *r, struct pp_step_report *rep)
{
    if (!r->job->objective)
        return;
    const struct pp_objective *o = pp_objectives[r->job->objective->number];
    size_t n = pp_rank_n_metrics(r) / PP_MAX_METRICS;
    const double *first = r->sums + r->n_tensors + pp_rank_n_losses(r);
    for (size_t k = 0; k < o->n_metrics; k++) {
        enum pp_combine how = o->metrics[k].combine;
        r->combined[k] = pp_metric_neutral(how);
        for (size_t i = 0; i < n; i++)
            r->combined[k] = pp_metric_combine(how, r->combined[k],
                                               first[i * PP_MAX_METRICS + k]);
    }
    rep->metrics = r->combined;
}

int pp_rank_report(struct pp_rank *r, struct pp_step_report *rep,
                   unsigned *flags)
{
    double squares = 0, compute = 0, products = 0, wall = 0;
    int stop = 0;
    rep->loss = 0;
    for (size_t i = 0; i < r->n_tensors; i++)
        squares += r->sums[i];
    for (size_t i = 0; i < pp_rank_n_losses(r); i++)
        rep->loss += r->sums[r->n_tensors + i];
    for (int k = 0; k < r->env.comm->size; k++) {
        const double *own = r->of_ranks + (size_t)k * N_OWN;
        compute += own[OWN_COMPUTE];
        products += own[OWN_PRODUCTS];
        wall = fmax(wall, own[OWN_WALL]);
        if (stop <= 0 && own[OWN_STOP] != 0)
            stop = (int)own[OWN_STOP];
        *flags |= (unsigned)own[OWN_FLAGS];
        r->peak_slots[k] = (int)own[OWN_SLOTS];
        rep->messages += (uint64_t)own[OWN_MESSAGES];
        rep->message_bytes += (uint64_t)own[OWN_BYTES];
    }
    combine_metrics(r, rep);
    rep->grad_norm = sqrt(squares);
    rep->bubble = r->env.device->ops->is_host
                      ? 1 - compute / (r->env.comm->size * wall)
                      : -1;
    rep->products = r->job->time_products ? products / compute : -1;
    rep->peak_slots = r->peak_slots;
    return stop;
}

int pp_rank_report_beside(struct pp_rank *r, struct pp_step_report *rep,
                          struct pp_err *err)
{
    enum { BALANCE, SIZE, LOAD, AHEAD, N };
    _Static_assert((int)N <= (int)N_OWN, "they share room");
    const double own[N] = {[BALANCE] = r->router.balance,
                           [SIZE] = r->router.size,
                           [LOAD] = r->router.load,
                           [AHEAD] = r->ahead.loss};
    if (r->env.comm->ops->allgather(r->env.comm, own, r->of_ranks, sizeof own,
                                    err))
        return -1;
    for (int k = 0; k < r->env.comm->size; k++) {
        const double *at = r->of_ranks + (size_t)k * N;
        rep->aux_loss += at[BALANCE];
        rep->z_loss += at[SIZE];
        rep->mtp_loss += at[AHEAD];
        rep->expert_load = fmax(rep->expert_load, at[LOAD]);
    }
    return 0;
}
