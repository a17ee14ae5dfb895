/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "run/checkpoint/files.h"

static bool is_host(const struct pp_exchange *x)
{
    return pp_device_ops(x->device)->is_host;
}

int pp_exchange_init(struct pp_exchange *x, struct pp_comm *comm,
                     struct pp_device *device, const struct pp_group *group,
                     enum pp_direction direction, void *room, size_t room_bytes,
                     struct pp_err *err)
{
    size_t half = room_bytes / 2 / PP_LINE_BYTES * PP_LINE_BYTES;
    *x = (struct pp_exchange){.comm = comm,
                              .device = device,
                              .group = *group,
                              .direction = direction,
                              .most = PP_WINDOW_MOST};
    if (!room || half == 0)
        x->group.n = 1;
    if (x->group.n > 1) {
        x->most = half < x->most ? half : x->most;
        x->in = room;
        x->out = x->in + half;
    }
    bool in_place = x->in && is_host(x);
    x->parts = pp_try_calloc((size_t)x->group.n, sizeof *x->parts, err);
    x->window = pp_try_calloc(x->most, 1, err);
    x->received = in_place ? x->in : pp_try_calloc(x->most, 1, err);
    x->packed = in_place ? x->out : pp_try_calloc(x->most, 1, err);
    return x->parts && x->window && x->received && x->packed ? 0 : -1;
}

void pp_exchange_finish(struct pp_exchange *x)
{
    if (x->received != x->in)
        free(x->received);
    if (x->packed != x->out)
        free(x->packed);
    free(x->turned);
    free(x->window);
    free(x->parts);
    *x = (struct pp_exchange){0};
}

bool pp_exchange_pays(const struct pp_runs *p, size_t element_bytes)
{
    bool torn = !pp_piece_is_run(&p->piece) &&
                p->piece.count[0] * element_bytes < PP_WINDOW_LEAST;
    return torn || (p->cols && p->range.n < pp_piece_elements(&p->piece));
}

/* Parts are added nearly in order. */
void pp_exchange_add(struct pp_exchange *x, int rank,
                     const struct pp_runs *runs)
{
    size_t first = pp_runs_span(runs).first;
    int i = x->n_parts++;
    for (; i > 0 && x->parts[i - 1].first > first; i--)
        x->parts[i] = x->parts[i - 1];
    x->parts[i] = (struct pp_rank_runs){*runs, first, rank};
}

/* --- the windows of a tensor --- */

struct division {
    struct pp_range span; /* elements of the file's tensor */
    size_t n;
};

static struct division divide(const struct pp_exchange *x, size_t element_bytes)
{
    size_t first = x->parts[0].first, end = first;
    for (int i = 0; i < x->n_parts; i++) {
        struct pp_range s = pp_runs_span(&x->parts[i].runs);
        end = s.first + s.n > end ? s.first + s.n : end;
    }
    size_t n = end - first, most = x->most / element_bytes;
    size_t least = n * element_bytes / PP_WINDOW_LEAST;
    size_t needed = (n + most - 1) / most;
    return (struct division){{first, n}, least > needed ? least : needed};
}

/* Returns window number `round` of a part's rank; it may be empty. */
static struct pp_range window_of(const struct division *w, int n_parts,
                                 int part, size_t round)
{
    size_t n = (size_t)n_parts, k = (size_t)part;
    size_t i = pp_part_begin(w->n, 1, n, k) + round;
    if (i >= pp_part_begin(w->n, 1, n, k + 1))
        return (struct pp_range){0, 0};
    size_t first = pp_part_begin(w->span.n, 1, w->n, i);
    size_t end = pp_part_begin(w->span.n, 1, w->n, i + 1);
    return (struct pp_range){w->span.first + first, end - first};
}

/* --- writes --- */

/* Writes elements of the tensor from `first` on, unless this rank has failed.
 */
static void put(struct pp_exchange *x, const struct pp_target *to, size_t first,
                const char *data, size_t n, struct pp_err *err)
{
    size_t bytes = to->bytes.there;
    if (x->failed)
        return;
    if (to->memory) {
        size_t at = pp_runs_before(&x->parts->runs, first) - to->first;
        memcpy(to->memory + at * bytes, data, n * bytes);
    } else if (pp_file_write_at(to->fd, to->path, data, n * bytes,
                                to->offset + (uint64_t)first * bytes, err))
        x->failed = true;
}

/* Finds the elements from `at` on that lie in a window without a gap. Returns
 * false if there are none. */
static bool find_covered(const struct pp_exchange *x, struct pp_range window,
                         size_t at, struct pp_range *out)
{
    struct pp_file_run r;
    size_t first = window.first + window.n, end;
    for (int i = 0; i < x->n_parts; i++)
        if (pp_runs_find(&x->parts[i].runs, window, at, &r) && r.at < first)
            first = r.at;
    end = first;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < x->n_parts; i++)
            if (pp_runs_find(&x->parts[i].runs, window, end, &r) &&
                r.at == end) {
                end += r.n;
                more = true;
            }
    }
    *out = (struct pp_range){first, end - first};
    return out->n > 0;
}

static void put_window(struct pp_exchange *x, const struct pp_target *to,
                       struct pp_range window, struct pp_err *err)
{
    struct pp_range some;
    for (size_t at = window.first; find_covered(x, window, at, &some);
         at = some.first + some.n)
        put(x, to, some.first,
            x->window + (some.first - window.first) * to->bytes.there, some.n,
            err);
}

/* Writes the runs of one rank from its memory. */
static void put_runs(struct pp_exchange *x, const struct pp_target *to,
                     const char *data, struct pp_err *err)
{
    const struct pp_range all = {0, SIZE_MAX};
    struct pp_file_run r;
    for (size_t at = 0;
         !x->failed && pp_runs_find(&x->parts->runs, all, at, &r);
         at = r.at + r.n)
        put(x, to, r.at, data + r.from * to->bytes.here, r.n, err);
}

/* --- messages --- */

static void *at_element(void *buf, size_t i, const struct pp_target *to)
{
    return (char *)buf + i * to->bytes.there;
}

/* Packs and sends what this rank has of a window of another rank. */
static int give(struct pp_exchange *x, const struct pp_target *to, int part,
                struct pp_range window, const char *data, struct pp_err *err)
{
    const struct pp_runs *mine = &x->parts[x->mine].runs;
    size_t bytes = pp_runs_count(mine, window) * to->bytes.there;
    if (bytes == 0)
        return 0;
    if (data)
        pp_runs_pack(mine, window, data, to->bytes, x->packed);
    return (!is_host(x) &&
            x->device->ops->put(x->device, x->out, x->packed, bytes, err)) ||
                   x->comm->ops->send(x->comm, x->parts[part].rank,
                                      x->direction, x->out, bytes, err)
               ? -1
               : 0;
}

/* Posts the receive of what another rank has of this rank's window. */
static int post(struct pp_exchange *x, const struct pp_target *to, int part,
                struct pp_range window, struct pp_err *err)
{
    size_t n = pp_runs_count(&x->parts[part].runs, window), at = 0;
    for (int i = 0; i < part; i++)
        if (i != x->mine)
            at += pp_runs_count(&x->parts[i].runs, window);
    return n == 0 ? 0
                  : x->comm->ops->recv(x->comm, x->parts[part].rank,
                                       x->direction, at_element(x->in, at, to),
                                       n * to->bytes.there, err);
}

/* Exchanges the windows of a round. In step k a rank sends to the k-th after
 * it, and receives from the k-th before it, as all others do. */
static int pass(struct pp_exchange *x, const struct pp_target *to,
                const struct division *w, size_t round, const char *data,
                struct pp_err *err)
{
    int n = x->n_parts;
    for (int k = 1; k < n; k++) {
        int after = (x->mine + k) % n, before = (x->mine + n - k) % n;
        if (pp_comm_begin_batch(x->comm, &x->group, x->direction, err) ||
            post(x, to, before, window_of(w, n, x->mine, round), err) ||
            give(x, to, after, window_of(w, n, after, round), data, err) ||
            pp_comm_end_batch(x->comm, err) ||
            pp_comm_await_batches(x->comm, &x->group, x->direction, 0, err))
            return -1;
    }
    return 0;
}

/* Puts what has been received of this rank's window, and its own, to their
 * places. */
static int take(struct pp_exchange *x, const struct pp_target *to,
                struct pp_range window, const char *data, struct pp_err *err)
{
    size_t bytes = to->bytes.there, n = 0, at = 0;
    for (int i = 0; i < x->n_parts; i++)
        n += i == x->mine ? 0 : pp_runs_count(&x->parts[i].runs, window);
    if (n > 0 && !is_host(x) &&
        x->device->ops->get(x->device, x->received, x->in, n * bytes, err))
        return -1;
    for (int i = 0; i < x->n_parts; i++) {
        const struct pp_runs *runs = &x->parts[i].runs;
        const char *from = i == x->mine ? x->packed : x->received + at * bytes;
        if (i != x->mine)
            at += pp_runs_count(runs, window);
        else if (data)
            pp_runs_pack(runs, window, data, to->bytes, x->packed);
        pp_runs_unpack(runs, window, from, bytes, x->window);
    }
    return 0;
}

static int find_part(const struct pp_exchange *x, int rank)
{
    int i = 0;
    while (x->parts[i].rank != rank)
        i++;
    return i;
}

/* Puts a tensor in windows, and each to its target. */
static int exchange(struct pp_exchange *x, const struct pp_target *to,
                    const char *data, struct pp_err *err)
{
    x->mine = find_part(x, x->comm->rank);
    struct division w = divide(x, to->bytes.there);
    size_t n = (size_t)x->n_parts, rounds = (w.n + n - 1) / n;
    for (size_t round = 0; round < rounds; round++) {
        struct pp_range mine = window_of(&w, x->n_parts, x->mine, round);
        if (pass(x, to, &w, round, data, err) || take(x, to, mine, data, err))
            return -1;
        put_window(x, to, mine, err);
    }
    return 0;
}

int pp_exchange_write(struct pp_exchange *x, const struct pp_target *to,
                      const char *data, struct pp_err *err)
{
    bool as_it_is = x->n_parts == 1 && !x->parts->runs.cols &&
                    to->bytes.here == to->bytes.there;
    if (!as_it_is)
        return exchange(x, to, data, err);
    put_runs(x, to, data, err);
    return 0;
}

struct pp_runs pp_exchange_share(const struct pp_exchange *x, int rank,
                                 size_t element_bytes)
{
    struct division w = divide(x, element_bytes);
    size_t n = (size_t)x->n_parts, k = (size_t)find_part(x, rank);
    struct pp_runs r = x->parts->runs;
    size_t at[2];
    for (size_t i = 0; i < 2; i++) {
        size_t window = pp_part_begin(w.n, 1, n, k + i);
        at[i] = pp_runs_before(&r, w.span.first +
                                       pp_part_begin(w.span.n, 1, w.n, window));
    }
    r.range = (struct pp_range){at[0], at[1] - at[0]};
    r.cols = 0;
    return r;
}

int pp_exchange_turn(struct pp_exchange *x, struct pp_element_sizes bytes,
                     const char *data, struct pp_err *err)
{
    struct pp_range share =
        pp_exchange_share(x, x->comm->rank, bytes.there).range;
    size_t needed = share.n * bytes.there;
    if (needed > x->turned_bytes) {
        free(x->turned);
        x->turned = pp_try_calloc(needed, 1, err);
        x->turned_bytes = x->turned ? needed : 0;
        x->failed |= !x->turned;
    }
    const struct pp_target to = {
        .memory = x->turned, .first = share.first, .fd = -1, .bytes = bytes};
    return exchange(x, &to, data, err);
}
