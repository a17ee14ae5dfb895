/* SPDX-License-Identifier: MIT */
/* collective_contract - tests of collective.h as a program of ranks, like those
 * of comm_contract.h. */
#ifndef PP_TESTS_COLLECTIVE_CONTRACT_H
#define PP_TESTS_COLLECTIVE_CONTRACT_H

#include <stdlib.h>

#include "comm/collective.h"
#include "comm_contract.h"

#define COLLECTIVE_PROMISE \
    "collectives of every group, with the bits of sums in order"

/* Most values of a try; the last one has as many. */
enum { FEW_VALUES = 41, MOST_VALUES = 9001, FEW_ROOM = 16, MOST_ROOM = 4099 };

/* Element i of the buffer of a rank, in one try. The sum of four such numbers
 * depends on its order. */
static float original(int rank, size_t i, uint64_t try)
{
    uint64_t key = pp_rng_key(try, "collective");
    return (float)(pp_rng_normal(key, (uint64_t)rank * MOST_VALUES + i) *
                   (rank % 2 ? 1e3 : 1e-1));
}

__attribute__((unused)) static int
sum_floats(void *y, const void *a, const void *b, size_t n, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        ((float *)y)[i] = ((const float *)a)[i] + ((const float *)b)[i];
    return 0;
}

/* One call on a group, with the numbers that it should give. buf and in are
 * where the messages are. */
struct collective_try {
    struct contract *t;
    struct pp_collective c;
    uint64_t number;
    size_t total, at[MAX_RANKS + 1]; /* uneven parts, some empty */
    float *buf, *in;                 /* (MOST_VALUES), (MAX_RANKS, same) */
    float *seen;                     /* (MOST_VALUES) at the host */
};

static void put_originals(struct collective_try *y)
{
    struct pp_err err = {0};
    struct pp_device *d = y->c.comm->device;
    for (size_t i = 0; i < y->total; i++)
        y->seen[i] = original(y->c.comm->rank, i, y->number);
    expect(y->t, !pp_device_ops(d)->put(d, y->buf, y->seen,
                                        y->total * sizeof *y->seen, &err));
}

static void see(struct collective_try *y, const float *values, size_t n)
{
    struct pp_err err = {0};
    struct pp_device *d = y->c.comm->device;
    expect(y->t, !pp_device_ops(d)->get(d, y->seen, values, n * sizeof *y->seen,
                                        &err));
}

static float summed(const struct collective_try *y, size_t i)
{
    float sum = original(pp_group_rank(&y->c.group, 0), i, y->number);
    for (int k = 1; k < y->c.group.n; k++)
        sum += original(pp_group_rank(&y->c.group, k), i, y->number);
    return sum;
}

/* Expects value i to be the sum if it is in [first, end), else unchanged. */
static void expect_sums(struct collective_try *y, size_t first, size_t end)
{
    int bad = 0;
    see(y, y->buf, y->total);
    for (size_t i = 0; i < y->total; i++)
        bad += y->seen[i] != (i >= first && i < end
                                  ? summed(y, i)
                                  : original(y->c.comm->rank, i, y->number));
    expect(y->t, bad == 0);
}

static void try_sums(struct collective_try *y)
{
    struct pp_err err = {0};
    int me = y->c.group.index;
    put_originals(y);
    expect(y->t, !pp_all_reduce(&y->c, y->buf, y->total, &err));
    expect_sums(y, 0, y->total);
    put_originals(y);
    expect(y->t, !pp_reduce_scatter(&y->c, y->buf, y->at, y->total, &err));
    expect_sums(y, y->at[me], y->at[me + 1]);
    expect(y->t, !pp_all_gather(&y->c, y->buf, y->at, y->total, &err));
    expect_sums(y, 0, y->total);
}

/* Parts of whole grains, which begin at some member. */
static void try_grains(struct collective_try *y, size_t grain, size_t turn)
{
    struct pp_err err = {0};
    size_t n = (size_t)y->c.group.n;
    size_t part = ((size_t)y->c.group.index + n - turn % n) % n;
    const struct pp_values v = {y->buf, NULL, y->total, turn};
    y->c.grain = grain;
    put_originals(y);
    expect(y->t, !pp_reduce_scatter_many(&y->c, &v, 1, &err));
    expect_sums(y, pp_part_begin(y->total, grain, n, part),
                pp_part_begin(y->total, grain, n, part + 1));
    expect(y->t, !pp_all_gather_many(&y->c, &v, 1, &err));
    expect_sums(y, 0, y->total);
    y->c.grain = 0;
}

/* The buffer as several, with parts that begin at other members. */
static void try_many(struct collective_try *y, uint64_t r)
{
    enum { MOST = PP_BATCH_MOST + 8 };
    struct pp_err err = {0};
    struct pp_values v[MOST];
    size_t n = 0;
    for (size_t at = 0; at < y->total; at += v[n++].n) {
        size_t left = y->total - at;
        size_t size = y->total / MOST + 1 + (r >> n % 32) % 7;
        v[n] = (struct pp_values){y->buf + at, NULL, size, n};
        if (n + 1 == MOST || size > left)
            v[n].n = left;
    }
    put_originals(y);
    expect(y->t, !pp_all_reduce_many(&y->c, v, n, &err));
    expect_sums(y, 0, y->total);
}

/* Member m sends member k its values at[k] .. at[k + 1] - 1. */
static void try_all_to_all(struct collective_try *y)
{
    struct pp_err err = {0};
    int me = y->c.group.index, n = y->c.group.n, bad = 0;
    size_t mine = y->at[me + 1] - y->at[me], in_at[MAX_RANKS + 1];
    for (int k = 0; k <= n; k++)
        in_at[k] = (size_t)k * mine;
    put_originals(y);
    expect(y->t, !pp_all_to_all(&y->c, y->in, in_at, y->buf, y->at, &err));
    for (int k = 0; k < n; k++) {
        see(y, y->in + in_at[k], mine);
        for (size_t i = 0; k != me && i < mine; i++)
            bad += y->seen[i] != original(pp_group_rank(&y->c.group, k),
                                          y->at[me] + i, y->number);
    }
    expect(y->t, bad == 0);
}

/* The groups of size ranks: all of them, halves with stride 2, pairs, and each
 * rank alone. */
static struct pp_group group_of(int rank, int size, int n, int stride)
{
    int block = n * stride;
    struct pp_group g = {.n = n, .step = 1, .size = {size, 1, 1}};
    g.base = rank / block * block + rank % stride;
    g.index = (rank - g.base) / stride;
    g.stride[0] = stride;
    return g;
}

/* Makes one try of random sizes, the last with many values. */
static void try_collectives(struct collective_try *y, bool last)
{
    uint64_t r = pp_rng_bits(17, y->number);
    int size = y->t->size, rank = y->c.comm->rank;
    int stride = size % 2 || r % 3 == 0 ? 1 : 2;
    int n = r % 5 == 0 && !last ? 1 : size / stride;
    size_t least = last ? MOST_ROOM - FEW_ROOM : 0;
    y->c.group = group_of(rank, size, n, stride);
    y->c.room_values =
        least + (size_t)n + (r >> 8) % (FEW_ROOM - (size_t)n + 1);
    y->total = last ? MOST_VALUES : (r >> 16) % (FEW_VALUES + 1);
    for (int i = 1; i < n; i++)
        y->at[i] =
            y->at[i - 1] + (r >> 24 << i) % (y->total - y->at[i - 1] + 1);
    y->at[n] = y->total;
    try_sums(y);
    try_grains(y, 1 + (r >> 40) % 9, (r >> 48) % 7);
    try_many(y, r);
    try_all_to_all(y);
}

/* sum adds floats where the messages are. */
static void collectives_with(struct contract *t, struct pp_comm *c,
                             pp_sum_fn *sum, int n_tries)
{
    struct pp_device *d = c->device;
    struct pp_err err = {0};
    struct collective_try y = {.t = t};
    y.buf = pp_device_alloc(d, MOST_VALUES, sizeof(float), "values", &err);
    y.in = pp_device_alloc(d, MAX_RANKS * MOST_VALUES, sizeof(float), "values",
                           &err);
    y.seen = calloc(MOST_VALUES, sizeof(float));
    y.c = (struct pp_collective){
        .comm = c,
        .direction = PP_DIRECTION_DATA,
        .value_bytes = sizeof(float),
        .sum = sum,
        .stream = d ? d->stream : NULL,
        .room = pp_device_alloc(d, MOST_ROOM, sizeof(float), "values", &err)};
    bool there = y.buf && y.in && y.seen && y.c.room;
    expect(t, there);
    for (int k = 0; there && k < n_tries; k++) {
        y.number = (uint64_t)k;
        try_collectives(&y, k + 1 == n_tries);
    }
    pp_device_free(d, y.buf);
    pp_device_free(d, y.in);
    pp_device_free(d, y.c.room);
    free(y.seen);
}

__attribute__((unused)) static void collective_body(struct contract *t,
                                                    struct pp_comm *c)
{
    collectives_with(t, c, sum_floats, 200);
}

#endif
