/* SPDX-License-Identifier: MIT */
#include "comm/collective.h"

#include <assert.h>
#include <stdint.h>

/* Values first .. first + n - 1 of a buffer. */
struct span {
    size_t first, n;
};

/* Returns the part of a member. */
static struct span part_of(const struct pp_collective *c,
                           const struct pp_values *v, int member)
{
    size_t n = (size_t)c->group.n, grain = c->grain ? c->grain : 1;
    size_t k = ((size_t)member + n - v->turn % n) % n;
    size_t first = v->at ? v->at[member] : pp_part_begin(v->n, grain, n, k);
    size_t end =
        v->at ? v->at[member + 1] : pp_part_begin(v->n, grain, n, k + 1);
    return (struct span){first, end - first};
}

static void *value_at(const struct pp_collective *c, const void *buf, size_t i)
{
    return (char *)buf + i * c->value_bytes;
}

/* Member k after this one, around the group, and its rank. */
static int after(const struct pp_collective *c, int k)
{
    return (c->group.index + k) % c->group.n;
}

static int rank_of(const struct pp_collective *c, int member)
{
    return pp_group_rank(&c->group, member);
}

static int post(const struct pp_collective *c, int member, void *buf,
                struct span s, struct pp_err *err)
{
    return s.n == 0
               ? 0
               : c->comm->ops->recv(c->comm, rank_of(c, member), c->direction,
                                    value_at(c, buf, s.first),
                                    s.n * c->value_bytes, err);
}

static int give(const struct pp_collective *c, int member, const void *buf,
                struct span s, struct pp_err *err)
{
    return s.n == 0
               ? 0
               : c->comm->ops->send(c->comm, rank_of(c, member), c->direction,
                                    value_at(c, buf, s.first),
                                    s.n * c->value_bytes, err);
}

static int begin(const struct pp_collective *c, struct pp_err *err)
{
    return pp_comm_begin_batch(c->comm, &c->group, c->direction, err);
}

static int end(const struct pp_collective *c, struct pp_err *err)
{
    return pp_comm_end_batch(c->comm, err);
}

/* Waits until every message of this rank has left or arrived. */
static int settle(const struct pp_collective *c, struct pp_err *err)
{
    return pp_comm_await_batches(c->comm, &c->group, c->direction, 0, err);
}

/* --- sums --- */

/* The values of a buffer that a round adds: at most `most` values of each part,
 * from `from` on. */
struct chunk {
    const struct pp_values *v;
    size_t from, most;
    size_t at; /* their place in the room of each member */
};

static struct span window(const struct pp_collective *c, const struct chunk *k,
                          int member)
{
    struct span part = part_of(c, k->v, member);
    size_t n = part.n > k->from ? part.n - k->from : 0;
    return (struct span){part.first + k->from, n < k->most ? n : k->most};
}

/* Adds the values of all members in order: the values of the others are in the
 * room, member i's at i * step. */
static int add_up(const struct pp_collective *c, const struct chunk *k,
                  size_t step, struct pp_err *err)
{
    struct span s = window(c, k, c->group.index);
    void *mine = value_at(c, k->v->buf, s.first);
    void *first = value_at(c, c->room, k->at);
    int members = c->group.n, rc = 0;
    for (int i = 1; s.n > 0 && i < members && rc == 0; i++) {
        const void *next =
            i == c->group.index ? mine : value_at(c, first, (size_t)i * step);
        const void *sum = i == 1 && c->group.index == 0 ? mine : first;
        rc = c->sum(i + 1 == members ? mine : first, sum, next, s.n, c->stream);
    }
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "a sum over ranks failed: code %d",
                        rc)
              : 0;
}

/* One round: this member receives its windows from all others and sends them
 * theirs. */
static int reduce_round(const struct pp_collective *c,
                        const struct chunk *chunks, size_t n, size_t step,
                        struct pp_err *err)
{
    if (begin(c, err))
        return -1;
    for (int k = 1; k < c->group.n; k++) {
        int from = after(c, c->group.n - k);
        for (size_t i = 0; i < n; i++) {
            struct span to = {(size_t)from * step + chunks[i].at,
                              window(c, &chunks[i], c->group.index).n};
            if (post(c, from, c->room, to, err))
                return -1;
        }
    }
    for (int k = 1; k < c->group.n; k++) {
        int to = after(c, k);
        for (size_t i = 0; i < n; i++)
            if (give(c, to, chunks[i].v->buf, window(c, &chunks[i], to), err))
                return -1;
    }
    int rc = end(c, err) || settle(c, err) ? -1 : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add_up(c, &chunks[i], step, err);
    return rc;
}

/* Buffers that one operation may exchange. A channel has room for one message,
 * so without batches each goes by itself. */
static size_t most_buffers(const struct pp_collective *c)
{
    return c->comm->ops->begin_batch ? PP_BATCH_MOST : 1;
}

/* Lets the transport add up to most_buffers buffers. */
static int sum_by_transport(const struct pp_collective *c,
                            const struct pp_values *v, size_t n,
                            struct pp_err *err)
{
    if (begin(c, err))
        return -1;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < c->group.n; k++) {
            struct span s = part_of(c, &v[i], k);
            if (s.n > 0 &&
                c->comm->ops->sum(c->comm, rank_of(c, k),
                                  value_at(c, v[i].buf, s.first), s.n, err))
                return -1;
        }
    return end(c, err) || settle(c, err) ? -1 : 0;
}

int pp_reduce_scatter_many(const struct pp_collective *c,
                           const struct pp_values *v, size_t n,
                           struct pp_err *err)
{
    enum { LINE = 64 }; /* kernels are fast at such places */
    size_t step = c->room_values / (size_t)c->group.n;
    struct chunk chunks[PP_BATCH_MOST];
    size_t n_chunks = 0, used = 0;
    if (c->group.n == 1)
        return 0;
    bool by_transport = c->by_transport && c->comm->ops->sum &&
                        c->comm->ops->can_sum(c->comm, &c->group, c->direction);
    for (size_t i = 0; i < n && by_transport; i += most_buffers(c)) {
        size_t left = n - i, most = most_buffers(c);
        if (sum_by_transport(c, &v[i], left < most ? left : most, err))
            return -1;
    }
    if (by_transport)
        return 0;
    step -= step > LINE ? step % LINE : 0;
    assert(step > 0);
    for (size_t i = 0; i < n; i++) {
        size_t largest = 0;
        for (int k = 0; k < c->group.n; k++) {
            size_t part = part_of(c, &v[i], k).n;
            largest = part > largest ? part : largest;
        }
        for (size_t from = 0, most; from < largest; from += most) {
            most = largest - from < step ? largest - from : step;
            if (n_chunks == most_buffers(c) || used + most > step) {
                if (reduce_round(c, chunks, n_chunks, step, err))
                    return -1;
                n_chunks = used = 0;
            }
            chunks[n_chunks++] = (struct chunk){&v[i], from, most, used};
            used += (most + LINE - 1) / LINE * LINE;
        }
    }
    return n_chunks ? reduce_round(c, chunks, n_chunks, step, err) : 0;
}

/* --- exchanges --- */

static int gather_batch(const struct pp_collective *c,
                        const struct pp_values *v, size_t n, struct pp_err *err)
{
    if (begin(c, err))
        return -1;
    for (int k = 1; k < c->group.n; k++) {
        int from = after(c, c->group.n - k);
        for (size_t i = 0; i < n; i++)
            if (post(c, from, v[i].buf, part_of(c, &v[i], from), err))
                return -1;
    }
    for (int k = 1; k < c->group.n; k++)
        for (size_t i = 0; i < n; i++)
            if (give(c, after(c, k), v[i].buf,
                     part_of(c, &v[i], c->group.index), err))
                return -1;
    return end(c, err) || settle(c, err) ? -1 : 0;
}

int pp_all_gather_many(const struct pp_collective *c, const struct pp_values *v,
                       size_t n, struct pp_err *err)
{
    size_t most = most_buffers(c);
    for (size_t i = 0; i < n && c->group.n > 1; i += most)
        if (gather_batch(c, &v[i], n - i < most ? n - i : most, err))
            return -1;
    return 0;
}

int pp_all_reduce_many(const struct pp_collective *c, const struct pp_values *v,
                       size_t n, struct pp_err *err)
{
    return pp_reduce_scatter_many(c, v, n, err) ||
                   pp_all_gather_many(c, v, n, err)
               ? -1
               : 0;
}

int pp_reduce_scatter(const struct pp_collective *c, void *buf,
                      const size_t *at, size_t total, struct pp_err *err)
{
    const struct pp_values v = {buf, at, total, 0};
    return pp_reduce_scatter_many(c, &v, 1, err);
}

int pp_all_gather(const struct pp_collective *c, void *buf, const size_t *at,
                  size_t total, struct pp_err *err)
{
    const struct pp_values v = {buf, at, total, 0};
    return pp_all_gather_many(c, &v, 1, err);
}

int pp_all_reduce(const struct pp_collective *c, void *buf, size_t total,
                  struct pp_err *err)
{
    const struct pp_values v = {buf, NULL, total, 0};
    return pp_all_reduce_many(c, &v, 1, err);
}

static struct span part(struct pp_parts of, int i)
{
    return (struct span){of.begin[i], of.end[i] - of.begin[i]};
}

int pp_all_to_all_begin(const struct pp_collective *c, void *in,
                        struct pp_parts in_parts, const void *out,
                        struct pp_parts out_parts, struct pp_err *err)
{
    int n = c->group.n;
    if (n == 1)
        return 0;
    if (begin(c, err))
        return -1;
    for (int k = 1; k < n; k++) {
        int from = after(c, n - k);
        if (post(c, from, in, part(in_parts, from), err))
            return -1;
    }
    for (int k = 1; k < n; k++) {
        int to = after(c, k);
        if (give(c, to, out, part(out_parts, to), err))
            return -1;
    }
    return end(c, err);
}

int pp_all_to_all_wait(const struct pp_collective *c, struct pp_err *err)
{
    return c->group.n == 1 ? 0 : settle(c, err);
}

int pp_all_to_all(const struct pp_collective *c, void *in, const size_t *in_at,
                  const void *out, const size_t *out_at, struct pp_err *err)
{
    struct pp_parts from = {in_at, in_at + 1}, to = {out_at, out_at + 1};
    return pp_all_to_all_begin(c, in, from, out, to, err) ||
                   pp_all_to_all_wait(c, err)
               ? -1
               : 0;
}

int pp_pass_begin(const struct pp_collective *c, void *in, const void *out,
                  size_t n, struct pp_err *err)
{
    struct span all = {0, n};
    if (c->group.n == 1)
        return 0;
    return begin(c, err) || post(c, after(c, c->group.n - 1), in, all, err) ||
                   give(c, after(c, 1), out, all, err) || end(c, err)
               ? -1
               : 0;
}

int pp_pass_wait(const struct pp_collective *c, int keep, struct pp_err *err)
{
    return c->group.n == 1 ? 0
                           : pp_comm_await_batches(c->comm, &c->group,
                                                   c->direction, keep, err);
}
