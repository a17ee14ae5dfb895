/* SPDX-License-Identifier: MIT */
/* megatron - layers are divided among ranks first; each rank then divides
 * its layers among its chunks. */
#include "split/megatron.h"

/* Finds the layers of each rank other than ranks with a given count. */
static int middle_layers(const struct pp_megatron *m, size_t *each,
                         struct pp_err *err)
{
    size_t ends = m->first + m->last;
    size_t others = m->n_ranks - (m->first > 0) - (m->last > 0);
    if (ends > m->n_layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the first and last rank have %zu layers, but the model "
                       "has only %zu",
                       ends, m->n_layers);
    size_t left = m->n_layers - ends;
    *each = 0;
    if (others == 0 && left == 0)
        return 0;
    if (others == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu layers are left, but there is no rank between the "
                       "first and the last",
                       left);
    if (left == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "no layers are left for the %zu other ranks", others);
    if (left % others)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the %zu layers that are left do not divide by the %zu "
                       "other ranks",
                       left, others);
    *each = left / others;
    if (*each % m->n_chunks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu layers of a rank do not divide by its %zu chunks",
                       *each, m->n_chunks);
    return 0;
}

static int split_ends(const struct pp_megatron *m, size_t *counts,
                      struct pp_err *err)
{
    size_t each = 0, ends[2] = {m->first, m->last};
    if (m->n_ranks < 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "layer counts for the first or last rank need at least "
                       "2 ranks");
    for (int i = 0; i < 2; i++)
        if (ends[i] % m->n_chunks)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%zu layers of the %s rank do not divide by its %zu "
                           "chunks",
                           ends[i], i ? "last" : "first", m->n_chunks);
    if (middle_layers(m, &each, err))
        return -1;
    for (size_t s = 0; s < m->n_ranks * m->n_chunks; s++) {
        size_t rank = s % m->n_ranks, layers = each;
        if (rank == 0 && m->first > 0)
            layers = m->first;
        if (rank == m->n_ranks - 1 && m->last > 0)
            layers = m->last;
        counts[s] = layers / m->n_chunks;
    }
    return 0;
}

static int split_evenly(const struct pp_megatron *m, size_t *counts,
                        struct pp_err *err)
{
    static const char *const with[] = {"", " with the embedding",
                                       " with the loss",
                                       " with embedding and loss"};
    size_t n_stages = m->n_ranks * m->n_chunks;
    size_t layers = m->n_layers + m->embedding + m->loss;
    if (layers % m->n_ranks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu layers%s do not divide by %zu ranks", layers,
                       with[m->embedding + 2 * m->loss], m->n_ranks);
    if (layers / m->n_ranks % m->n_chunks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu layers of a rank do not divide by its %zu chunks",
                       layers / m->n_ranks, m->n_chunks);
    size_t each = layers / n_stages, ends[2] = {each, each};
    size_t *last = n_stages > 1 ? &ends[1] : &ends[0];
    ends[0] -= m->embedding;
    *last -= m->loss;
    for (size_t s = 0; s < n_stages; s++)
        counts[s] = s == 0 ? ends[0] : s == n_stages - 1 ? ends[1] : each;
    return 0;
}

int pp_split_megatron(const struct pp_megatron *m, size_t *counts,
                      struct pp_err *err)
{
    if (m->n_ranks == 0 || m->n_chunks == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    if (m->first == 0 && m->last == 0)
        return split_evenly(m, counts, err);
    if (m->embedding || m->loss)
        return pp_fail(err, PP_EXIT_INPUT,
                       "accounting for embedding or loss excludes layer counts "
                       "for the first and last rank");
    return split_ends(m, counts, err);
}
