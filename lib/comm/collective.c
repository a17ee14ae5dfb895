/* SPDX-License-Identifier: MIT */
#include "comm/collective.h"

#include <assert.h>
#include <stdint.h>

/* Values first .. first + n - 1 of a buffer. */
struct span {
    size_t first, n;
};

/* Returns the part of a member. */
static struct span part_of(const struct pp_collective *c, const size_t *at,
                           size_t total, int member)
{
    size_t n = (size_t)c->group.n, grain = c->grain ? c->grain : 1;
    size_t k = ((size_t)member + n - c->turn % n) % n;
    size_t first = at ? at[member] : pp_part_begin(total, grain, n, k);
    size_t end = at ? at[member + 1] : pp_part_begin(total, grain, n, k + 1);
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

/* The part of a member that is summed in one round: at most step values. */
static struct span window(const struct pp_collective *c, const size_t *at,
                          size_t total, int member, size_t round, size_t step)
{
    struct span part = part_of(c, at, total, member);
    size_t first = part.first + round * step, end = part.first + part.n;
    if (first >= end)
        return (struct span){end, 0};
    return (struct span){first, end - first < step ? end - first : step};
}

/* Adds the values of all members in order: those of the others are in the room,
 * member i's at i * step. */
static int add_up(const struct pp_collective *c, void *mine, size_t n,
                  size_t step, struct pp_err *err)
{
    int members = c->group.n, rc = 0;
    for (int i = 1; n > 0 && i < members && rc == 0; i++) {
        const void *next =
            i == c->group.index ? mine : value_at(c, c->room, (size_t)i * step);
        const void *sum = i == 1 && c->group.index == 0 ? mine : c->room;
        rc = c->sum(i + 1 == members ? mine : c->room, sum, next, n, c->stream);
    }
    return rc ? pp_fail(err, PP_EXIT_SYSTEM, "a sum over ranks failed: code %d",
                        rc)
              : 0;
}

/* One round: this member receives its window from all others and sends them
 * theirs. */
static int reduce_round(const struct pp_collective *c, void *buf,
                        const size_t *at, size_t total, size_t round,
                        size_t step, struct pp_err *err)
{
    int n = c->group.n;
    struct span mine = window(c, at, total, c->group.index, round, step);
    if (begin(c, err))
        return -1;
    for (int k = 1; k < n; k++) {
        int from = after(c, n - k);
        struct span to = {(size_t)from * step, mine.n};
        if (post(c, from, c->room, to, err))
            return -1;
    }
    for (int k = 1; k < n; k++) {
        int to = after(c, k);
        if (give(c, to, buf, window(c, at, total, to, round, step), err))
            return -1;
    }
    return end(c, err) || settle(c, err) ||
                   add_up(c, value_at(c, buf, mine.first), mine.n, step, err)
               ? -1
               : 0;
}

int pp_reduce_scatter(const struct pp_collective *c, void *buf,
                      const size_t *at, size_t total, struct pp_err *err)
{
    size_t step = c->room_values / (size_t)c->group.n, most = 0;
    if (c->group.n == 1)
        return 0;
    assert(step > 0);
    for (int i = 0; i < c->group.n; i++) {
        size_t n = window(c, at, total, i, 0, SIZE_MAX).n;
        most = n > most ? n : most;
    }
    for (size_t round = 0; round * step < most; round++)
        if (reduce_round(c, buf, at, total, round, step, err))
            return -1;
    return 0;
}

int pp_all_gather(const struct pp_collective *c, void *buf, const size_t *at,
                  size_t total, struct pp_err *err)
{
    int n = c->group.n;
    if (n == 1)
        return 0;
    if (begin(c, err))
        return -1;
    for (int k = 1; k < n; k++) {
        int from = after(c, n - k);
        if (post(c, from, buf, window(c, at, total, from, 0, SIZE_MAX), err))
            return -1;
    }
    for (int k = 1; k < n; k++)
        if (give(c, after(c, k), buf,
                 window(c, at, total, c->group.index, 0, SIZE_MAX), err))
            return -1;
    return end(c, err) || settle(c, err) ? -1 : 0;
}

int pp_all_reduce(const struct pp_collective *c, void *buf, size_t total,
                  struct pp_err *err)
{
    return pp_reduce_scatter(c, buf, NULL, total, err) ||
                   pp_all_gather(c, buf, NULL, total, err)
               ? -1
               : 0;
}

int pp_all_to_all_begin(const struct pp_collective *c, void *in,
                        const size_t *in_at, const void *out,
                        const size_t *out_at, struct pp_err *err)
{
    int n = c->group.n;
    if (n == 1)
        return 0;
    if (begin(c, err))
        return -1;
    for (int k = 1; k < n; k++) {
        int from = after(c, n - k);
        struct span s = {in_at[from], in_at[from + 1] - in_at[from]};
        if (post(c, from, in, s, err))
            return -1;
    }
    for (int k = 1; k < n; k++) {
        int to = after(c, k);
        struct span s = {out_at[to], out_at[to + 1] - out_at[to]};
        if (give(c, to, out, s, err))
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
    return pp_all_to_all_begin(c, in, in_at, out, out_at, err) ||
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
