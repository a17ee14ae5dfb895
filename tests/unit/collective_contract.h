/* SPDX-License-Identifier: MIT */
/* collective_contract - tests of collective.h as a program of ranks, like those
 * of comm_contract.h. */
#ifndef PP_TESTS_COLLECTIVE_CONTRACT_H
#define PP_TESTS_COLLECTIVE_CONTRACT_H

#include "comm/collective.h"
#include "comm_contract.h"

#define COLLECTIVE_PROMISE \
    "collectives of every group, with the bits of sums in order"

enum { MOST_VALUES = 41, MOST_ROOM = 16 };

/* Element i of the buffer of a rank, in one try. The sum of four such numbers
 * depends on its order. */
static double original(int rank, size_t i, uint64_t try)
{
    uint64_t key = pp_rng_key(try, "collective");
    return pp_rng_normal(key, (uint64_t)rank * MOST_VALUES + i) *
           (rank % 2 ? 1e3 : 1e-3);
}

static int sum_doubles(void *y, const void *a, const void *b, size_t n,
                       void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        ((double *)y)[i] = ((const double *)a)[i] + ((const double *)b)[i];
    return 0;
}

/* One call on a group, with the numbers that it should give. */
struct collective_try {
    struct contract *t;
    struct pp_collective c;
    uint64_t number;
    size_t total, at[MAX_RANKS + 1]; /* uneven parts, some empty */
    double buf[MOST_VALUES];
};

static void fill_originals(struct collective_try *y)
{
    for (size_t i = 0; i < y->total; i++)
        y->buf[i] = original(y->c.comm->rank, i, y->number);
}

static double summed(const struct collective_try *y, size_t i)
{
    double sum = original(pp_group_rank(&y->c.group, 0), i, y->number);
    for (int k = 1; k < y->c.group.n; k++)
        sum += original(pp_group_rank(&y->c.group, k), i, y->number);
    return sum;
}

/* Expects value i to be the sum if it is in [first, end), else unchanged. */
static void expect_sums(const struct collective_try *y, size_t first,
                        size_t end)
{
    for (size_t i = 0; i < y->total; i++)
        expect(y->t,
               y->buf[i] == (i >= first && i < end
                                 ? summed(y, i)
                                 : original(y->c.comm->rank, i, y->number)));
}

static void try_sums(struct collective_try *y)
{
    struct pp_err err = {0};
    int me = y->c.group.index;
    fill_originals(y);
    expect(y->t, !pp_all_reduce(&y->c, y->buf, y->total, &err));
    expect_sums(y, 0, y->total);
    fill_originals(y);
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
    y->c.grain = grain;
    y->c.turn = turn;
    fill_originals(y);
    expect(y->t, !pp_reduce_scatter(&y->c, y->buf, NULL, y->total, &err));
    expect_sums(y, pp_part_begin(y->total, grain, n, part),
                pp_part_begin(y->total, grain, n, part + 1));
    expect(y->t, !pp_all_gather(&y->c, y->buf, NULL, y->total, &err));
    expect_sums(y, 0, y->total);
    y->c.grain = y->c.turn = 0;
}

/* Member m sends member k its values at[k] .. at[k + 1] - 1. */
static void try_all_to_all(struct collective_try *y)
{
    struct pp_err err = {0};
    int me = y->c.group.index, n = y->c.group.n;
    size_t mine = y->at[me + 1] - y->at[me], in_at[MAX_RANKS + 1];
    double in[MAX_RANKS * MOST_VALUES];
    for (int k = 0; k <= n; k++)
        in_at[k] = (size_t)k * mine;
    fill_originals(y);
    expect(y->t, !pp_all_to_all(&y->c, in, in_at, y->buf, y->at, &err));
    for (int k = 0; k < n; k++)
        for (size_t i = 0; k != me && i < mine; i++)
            expect(y->t,
                   in[in_at[k] + i] == original(pp_group_rank(&y->c.group, k),
                                                y->at[me] + i, y->number));
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

__attribute__((unused)) static void collective_body(struct contract *t,
                                                    struct pp_comm *c)
{
    double room[MOST_ROOM];
    struct collective_try y = {.t = t};
    y.c = (struct pp_collective){.comm = c,
                                 .direction = PP_DIRECTION_DATA,
                                 .value_bytes = sizeof(double),
                                 .sum = sum_doubles,
                                 .room = room};
    for (uint64_t k = 0; k < 200; k++) {
        uint64_t r = pp_rng_bits(17, k);
        int stride = t->size % 2 || r % 3 == 0 ? 1 : 2;
        int n = r % 5 == 0 ? 1 : t->size / stride;
        y.number = k;
        y.c.group = group_of(c->rank, t->size, n, stride);
        y.c.room_values = (size_t)n + (r >> 8) % (MOST_ROOM - (size_t)n + 1);
        y.total = (r >> 16) % (MOST_VALUES + 1);
        for (int i = 1; i < n; i++)
            y.at[i] =
                y.at[i - 1] + (r >> 24 << i) % (y.total - y.at[i - 1] + 1);
        y.at[n] = y.total;
        try_sums(&y);
        try_grains(&y, 1 + (r >> 40) % 9, (r >> 48) % 7);
        try_all_to_all(&y);
    }
}

#endif
