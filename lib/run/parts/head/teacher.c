/* SPDX-License-Identifier: MIT */
/* teacher - the loss and its gradient if the target of a row is a
 * teacher's distribution over some words: the divergence of the model from it
 * (Hinton et al. 2015). The distributions come from the host a few rows at a
 * time, so that no buffer holds the distributions of a microbatch. */
#include "run/parts/head/head.h"

#include <string.h>

/* Numbers of rows at a time. */
enum { ROOM = 4 * PP_MOST_TOP_K };
_Static_assert((int)PP_MOST_TOP_K <= (int)PP_MOST_SOFT_TARGETS, "kernels.h");

/* The targets of some rows in the layer's memory: weights and ids (n, top_k).
 * Behind them is room for a number of each row. */
struct soft_rows {
    void *weights;
    int32_t *ids;
    char *rest;
    double entropy[ROOM]; /* of each distribution */
};

/* Returns the rows whose targets fit in the room of the block. */
static size_t rows_that_fit(const struct pp_call *c,
                            const struct pp_head_block *h)
{
    size_t number = c->k->accumulator_bytes, k = c->mb->teacher.k;
    size_t row = k * (number + sizeof(int32_t)) + number;
    size_t fits = h->room_bytes / row, most = ROOM / k;
    size_t collected = pp_layer_collected_bytes(c) / number;
    fits = fits < most ? fits : most;
    fits = fits < collected ? fits : collected;
    if (fits == 0)
        pp_fail(c->err, PP_EXIT_INPUT,
                "there is no room for '%zu' words of a teacher beside a "
                "hidden_size of %zu; take shorter lists",
                k, c->C);
    return fits;
}

/* Converts numbers to the accumulated type and hands them to the layer. */
static void put_numbers(const struct pp_call *c, void *to, const double *x,
                        size_t n)
{
    float narrow[ROOM];
    bool wide = c->k->accumulator_bytes == sizeof *x;
    for (size_t i = 0; !wide && i < n; i++)
        narrow[i] = (float)x[i];
    pp_call_put(c, to, wide ? (const void *)x : narrow,
                n * c->k->accumulator_bytes);
}

/* Fetches the targets of the rows of a block. */
static void fetch(const struct pp_call *c, const struct pp_head_block *h,
                  struct soft_rows *rows)
{
    const struct pp_microbatch *mb = c->mb;
    double weights[ROOM];
    int32_t ids[ROOM];
    size_t numbers = h->n * mb->teacher.k, number = c->k->accumulator_bytes;
    rows->weights = h->room;
    rows->rest = (char *)h->room + numbers * number;
    rows->ids = (int32_t *)(rows->rest + h->n * number);
    PP_TRY(c, mb->teacher.fetch(mb->teacher.ctx, h->at, h->n, ids, weights,
                                rows->entropy, c->err));
    if (pp_call_failed(c))
        return;
    put_numbers(c, rows->weights, weights, numbers);
    pp_call_put(c, rows->ids, ids, numbers * sizeof *ids);
}

/* Adds up the terms of the words of every rank, in the order of the ranks. */
static void add_ranks(const struct pp_call *c, const void *own, size_t n,
                      void *logp)
{
    double sums[ROOM] = {0};
    size_t bytes = n * c->k->accumulator_bytes;
    const char *all = pp_layer_collect(c, own, bytes);
    for (size_t r = 0; r < pp_head_ranks(c); r++) {
        double room[ROOM];
        const void *p = pp_call_read(c, all + r * bytes, bytes, room);
        for (size_t i = 0; p && i < n; i++)
            sums[i] += bytes == n * sizeof(float)
                           ? (double)((const float *)p)[i]
                           : ((const double *)p)[i];
    }
    put_numbers(c, logp, sums, n);
}

/* One rank begins with the teacher's entropy. */
static void part_fwd(const struct pp_call *c, const struct pp_head_block *h,
                     void *logp)
{
    struct soft_rows rows;
    bool is_alone = pp_head_ranks(c) == 1;
    fetch(c, h, &rows);
    void *own = is_alone ? logp : rows.rest;
    if (!is_alone && c->env->tensor.group.index > 0)
        memset(rows.entropy, 0, h->n * sizeof *rows.entropy);
    if (pp_call_failed(c))
        return;
    put_numbers(c, own, rows.entropy, h->n);
    PP_RUN(c, soft_targets_fwd, own, h->logits, h->lse, rows.ids, rows.weights,
           h->n, pp_head_words(c), c->mb->teacher.k);
    if (!is_alone)
        add_ranks(c, own, h->n, logp);
}

void pp_head_teacher_fwd(const struct pp_call *c, const struct pp_head_block *h,
                         void *logp)
{
    size_t most = rows_that_fit(c, h);
    for (size_t i = 0; !pp_call_failed(c) && i < h->n; i += most) {
        const struct pp_head_block part = pp_head_part(c, h, i, most);
        part_fwd(c, &part, pp_statistic_at(c, logp, i));
    }
}

void pp_head_teacher_bwd(const struct pp_call *c, const struct pp_head_block *h,
                         const void *scale)
{
    size_t most = rows_that_fit(c, h);
    for (size_t i = 0; !pp_call_failed(c) && i < h->n; i += most) {
        struct soft_rows rows;
        const struct pp_head_block part = pp_head_part(c, h, i, most);
        fetch(c, &part, &rows);
        PP_RUN(c, soft_targets_bwd, part.logits, part.lse, rows.ids,
               rows.weights, pp_statistic_at(c, scale, i), part.n,
               pp_head_words(c), c->mb->teacher.k, pp_head_cap(c));
    }
}
