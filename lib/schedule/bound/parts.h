/* SPDX-License-Identifier: MIT */
/* parts - what the files of the lower bound share, private to
 * lib/schedule/bound.
 *
 * A whole backward is treated as a split one whose W takes no time and holds
 * nothing. So is the backward that a frozen stage lacks: it takes no time and
 * waits for no other stage. The times of a stage are the least of any
 * microbatch, as the event graph needs them. */
#ifndef PP_SCHEDULE_BOUND_PARTS_H
#define PP_SCHEDULE_BOUND_PARTS_H

#include "schedule/bound/bound.h"
#include "schedule/ir/ops.h"

enum { PP_BOUND_F, PP_BOUND_I, PP_BOUND_W, PP_BOUND_OPS };

/* The most stages of one rank that a memory edge considers. With fewer the
 * bound is still valid. */
enum { PP_BOUND_ABOVE = 8 };

static inline double pp_bound_least(double a, double b)
{
    return a < b ? a : b;
}

static inline void pp_bound_raise(double *at, double to)
{
    *at = to > *at ? to : *at;
}

struct pp_bound_stage {
    double time[PP_BOUND_OPS];
    /* Work of its rank for each microbatch, up to the end of op and from its
     * start on. The head of the k-th op counts before k + 1 times, and its tail
     * counts after n - k times. */
    double before[PP_BOUND_OPS], after[PP_BOUND_OPS];
    struct pp_load load;
    int above[PP_BOUND_ABOVE]; /* the nearest stages on its rank that feed it */
    int n_above;
    int below[PP_BOUND_ABOVE]; /* the stages that have it above */
    int n_below;
    /* How far this stage may be ahead of each stage below, if memory is
     * limited: F(k + ahead_f) comes after F(k) of below, and W(k) comes before
     * W(k + ahead_w) of below. n: as far as it likes. */
    size_t ahead_f[PP_BOUND_ABOVE], ahead_w[PP_BOUND_ABOVE];
};

struct pp_bound_case {
    const struct pp_graph *g;
    size_t n; /* microbatches, or slices of them */
    bool uniform;
    struct pp_bound_stage *stages;
    /* The operations of one microbatch, numbered op * n_stages + stage, with
     * the least times. W waits for I alone, which waits for the rest. */
    struct pp_ops data;
    double *work;                /* per rank: true sum over microbatches */
    double *times[PP_BOUND_OPS]; /* true; by stage * n + microbatch */
    const double *limit;         /* per rank, or NULL */
    double *row_head, *row_tail;
    /* Earliest start (nondecreasing in k) and least time from the op's end to
     * the end of the step (nonincreasing), by stage * n + k. Entries of all ops
     * follow each other, so that times[0], head[0] and tail[0] go by number in
     * data * n + k. */
    double *head[PP_BOUND_OPS], *tail[PP_BOUND_OPS];
};

/* Sets the op and the stage at a place of data in an order in which each comes
 * after all that it waits for: the forwards, then the backwards. */
static inline void pp_bound_at(const struct pp_bound_case *c, int i, int *op,
                               int *s)
{
    int n = c->g->n_stages, back = i - n;
    *op = i < n ? PP_BOUND_F : PP_BOUND_I + (back & 1);
    *s = i < n ? i : n - 1 - (back >> 1);
}

/* Raises a head of microbatch k by what its operation waits for there, and a
 * tail by what waits for the operation. If own, microbatches have their own
 * times, else the least. */
static inline void pp_bound_raise_head(const struct pp_bound_case *c, int op,
                                       int s, size_t k, bool own)
{
    const struct pp_ops *d = &c->data;
    int at = op * c->g->n_stages + s;
    double *head = &c->head[op][(size_t)s * c->n + k], most = *head;
    for (int32_t i = d->in.first[at]; i < d->in.first[at + 1]; i++) {
        size_t from = (size_t)d->in.op[i], of = from * c->n + k;
        double time = own ? c->times[0][of] : d->time[from];
        pp_bound_raise(&most, c->head[0][of] + time + d->in.lag[i]);
    }
    *head = most;
}

static inline void pp_bound_raise_tail(const struct pp_bound_case *c, int op,
                                       int s, size_t k, bool own)
{
    const struct pp_ops *d = &c->data;
    int at = op * c->g->n_stages + s;
    double *tail = &c->tail[op][(size_t)s * c->n + k], most = *tail;
    for (int32_t i = d->out.first[at]; i < d->out.first[at + 1]; i++) {
        size_t to = (size_t)d->out.op[i], of = to * c->n + k;
        double time = own ? c->times[0][of] : d->time[to];
        pp_bound_raise(&most, c->tail[0][of] + time + d->out.lag[i]);
    }
    *tail = most;
}

/* Allocates c and fills everything but heads and tails. */
int pp_bound_read(struct pp_bound_case *c, bool split,
                  const struct pp_costs *costs,
                  const struct pp_memory_limit *memory,
                  struct pp_err *err) PP_MUST_USE;
void pp_bound_finish(struct pp_bound_case *c);

/* Returns the memory of a microbatch between its F and its I, and the least
 * from its F to its W. */
static inline double pp_bound_held(struct pp_load l)
{
    return l.f_to_i + l.f_to_w;
}

static inline double pp_bound_kept(struct pp_load l)
{
    return l.f_to_w + pp_bound_least(l.f_to_i, l.i_to_w);
}

/* Fills row_head and row_tail from data alone. Returns the critical path; with
 * copies of the weights that of the shorter copy. */
double pp_bound_path(struct pp_bound_case *c);

/* Fills head and tail. Fails with PP_EXIT_NO if a microbatch does not fit. */
int pp_bound_events(struct pp_bound_case *c, struct pp_err *err) PP_MUST_USE;

/* The work that must come before or after an op if memory is limited.
 * pp_bound_set_head returns the least time by which a rank can have run all
 * that must come before op k of a stage; pp_bound_set_tail returns the least
 * time that all that must come after it takes. Call them in rising k for heads
 * and falling k for tails, after the heads or tails of the ops in the set are
 * known. */
struct pp_bound_sets;
struct pp_bound_sets *pp_bound_sets_create(const struct pp_bound_case *c);
void pp_bound_sets_destroy(struct pp_bound_sets *sets);
double pp_bound_set_head(struct pp_bound_sets *sets, int s, int op, size_t k);
double pp_bound_set_tail(struct pp_bound_sets *sets, int s, int op, size_t k);

/* Returns the preemptive one-machine bound of the rank that holds stages. */
double pp_bound_machine(const struct pp_bound_case *c, const int *stages,
                        int n_stages);

/* Returns, per stage, the sum over all microbatches of the least time from the
 * start of F to the end of I. The caller frees it. */
double *pp_bound_holds(const struct pp_bound_case *c);

/* Returns the bound for a rank whose activations can leave for the host, of a
 * case that has no limit itself. hold is from pp_bound_holds. */
double pp_bound_offload(const struct pp_bound_case *c,
                        const struct pp_memory_limit *memory, int row,
                        const double *hold);

/* Returns the bound by shared work, if there are copies of the weights. Heads
 * and tails must come from pp_bound_path. */
double pp_bound_copies(const struct pp_bound_case *c);

/* Returns the bound for a rank that does the work of some stages, of one copy
 * of the weights, for n microbatches: each on whichever copy is best. */
double pp_bound_shared(const struct pp_bound_case *c, const int *stages,
                       int n_stages, size_t n);

/* Returns the bound by Little's law for a rank with a limit. */
double pp_bound_little(const struct pp_bound_case *c, const int *stages,
                       int n_stages, const double *hold);

/* Replaces heads and tails by heads and tails from each microbatch's own data
 * and times, for microbatches that differ. */
void pp_bound_own_paths(struct pp_bound_case *c);

/* Returns the preemptive one-machine bound on these heads and tails. */
double pp_bound_unequal(const struct pp_bound_case *c, const int *stages,
                        int n_stages);

/* Returns the largest makespan that windows refute, or the known bound, or -1
 * with *err filled. An order takes `reached`, so this and more cannot be
 * refuted. Heads and tails must come from pp_bound_events, and microbatches
 * must be alike. It works for so many seconds at most, at a fixed rate. */
double pp_bound_windows(const struct pp_bound_case *c, double known,
                        double reached, double seconds, struct pp_err *err);

#endif
