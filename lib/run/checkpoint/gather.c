/* SPDX-License-Identifier: MIT */
/* gather - sends the pieces of all ranks to rank 0, which has one tensor
 * at a time: to compare gradients with other programs, and to give weights to
 * them. */
#include "run/checkpoint/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/num.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/agree.h"
#include "run/parameters/weights.h"

/* A range of a piece that a rank sends. Ranks exchange these. */
struct part {
    char name[PP_FQN_TEXT];
    uint64_t rows, cols, order; /* of the whole */
    struct pp_tensor_piece piece;
    struct pp_range range;
    uint64_t sizes[PP_TENSOR_DIMS]; /* in the file */
    uint64_t number;                /* among the parameters of its rank */
    uint64_t element_bytes;         /* in memory */
    int32_t n_dims, rank;
    bool transposed; /* in the file */
    bool follows;    /* the file has it fused with the tensors before it */
};

/* The state of a gathering on one rank. */
struct gathering {
    const struct pp_gather *g;
    struct pp_staging staging;
    struct part *list; /* of this rank, at rank 0 of all; later in model order
                        */
    size_t n;
    char *tensor; /* rank 0 only: room for the largest tensor, ... */
    char *turned; /* ... for the largest that is transposed ... */
    char *runs;   /* ... and for the largest part of several runs */
};

/* Most frozen tensors have no master weights. */
static enum pp_weights_block block_of(const struct pp_gather *g,
                                      const struct pp_parameter *t)
{
    return g->block == PP_BLOCK_MASTER && !pp_parameter_in(t, g->block)
               ? PP_BLOCK_W
               : g->block;
}

static size_t bytes_of(const struct pp_gather *g, const struct pp_parameter *t)
{
    return pp_parameters_bytes(g->params, block_of(g, t));
}

static struct pp_range sent(const struct pp_gather *g,
                            const struct pp_parameter *t)
{
    return pp_parameter_written(g->params, t, block_of(g, t));
}

static size_t count_parts(const struct pp_gather *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->params->n; i++)
        n += sent(g, &g->params->at[i]).n > 0;
    return n;
}

static void list_parts(const struct pp_gather *g, struct part *out)
{
    for (size_t i = 0; i < g->params->n; i++) {
        const struct pp_parameter *t = &g->params->at[i];
        struct pp_range range = sent(g, t);
        if (range.n == 0)
            continue;
        *out = (struct part){.rows = t->info.rows,
                             .cols = t->info.cols,
                             .order = t->order,
                             .piece = t->piece,
                             .range = range,
                             .number = i,
                             .element_bytes = bytes_of(g, t),
                             .rank = g->comm->rank,
                             .transposed = t->info.transposed,
                             .follows = pp_tensor_before(&t->info) > 0};
        memcpy(out->name, t->info.name, sizeof out->name);
        out->n_dims = pp_tensor_file_sizes(&t->info, out->sizes);
        out++;
    }
}

static int send_list(struct gathering *d, size_t n, struct pp_err *err)
{
    d->n = n;
    d->list = calloc(n + 1, sizeof *d->list);
    if (!d->list)
        return pp_give_up(d->g->comm, err);
    list_parts(d->g, d->list);
    return pp_comm_send_host(d->g->comm, 0, d->list, n * sizeof *d->list, err);
}

static int receive_lists(struct gathering *d, const uint64_t *counts,
                         struct pp_err *err)
{
    struct pp_comm *c = d->g->comm;
    struct part *to;
    for (int r = 0; r < c->size; r++)
        d->n += (size_t)counts[r];
    d->list = to = calloc(d->n + 1, sizeof *to);
    if (!to)
        return pp_give_up(c, err);
    list_parts(d->g, to);
    for (int r = 1; r < c->size; r++) {
        to += counts[r - 1];
        if (pp_comm_receive(c, r, PP_DIRECTION_HOST, to,
                            (size_t)counts[r] * sizeof *to, err))
            return -1;
    }
    return 0;
}

/* Collective. Lists the parts of all ranks at rank 0. */
static int gather_lists(struct gathering *d, struct pp_err *err)
{
    struct pp_comm *c = d->g->comm;
    uint64_t mine = count_parts(d->g);
    uint64_t *counts = calloc((size_t)c->size, sizeof *counts);
    if (!counts)
        return pp_give_up(c, err);
    int rc = c->ops->allgather(c, &mine, counts, sizeof mine, err);
    if (rc == 0)
        rc = c->rank == 0 ? receive_lists(d, counts, err)
                          : send_list(d, (size_t)mine, err);
    free(counts);
    return rc;
}

static int by_order(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->rank - y->rank;
}

/* Lists the tensors whose parts are listed, and returns their number. */
static size_t list_specs(const struct gathering *d,
                         struct pp_tensor_spec *specs)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct part *t = &d->list[i];
        if (t->follows || (i > 0 && t->order == t[-1].order))
            continue;
        specs[n] = (struct pp_tensor_spec){
            .name = t->name,
            .dtype = pp_dtype_of_bytes(d->g->element_bytes),
            .n_dims = t->n_dims};
        memcpy(specs[n].dims, t->sizes, sizeof t->sizes);
        n++;
    }
    return n;
}

/* Returns the first run of a part; it may be all of it. */
static struct pp_run first_run(const struct part *t)
{
    struct pp_run r = {0};
    bool found = pp_piece_run(&t->piece, t->range, 0, &r);
    (void)found; /* a part is not empty */
    return r;
}

/* Called by rank 0 alone. */
static int make_room(struct gathering *d, struct pp_err *err)
{
    size_t most = 1, turned = 0, runs = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct part *t = &d->list[i];
        size_t whole = t->rows * t->cols * t->element_bytes;
        most = pp_most(most, whole);
        if (t->transposed)
            turned = pp_most(turned, whole);
        if (first_run(t).n < t->range.n)
            runs = pp_most(runs, t->range.n * t->element_bytes);
    }
    d->tensor = pp_try_calloc(most, 1, err);
    d->turned = pp_try_calloc(turned + 1, 1, err);
    d->runs = pp_try_calloc(runs + 1, 1, err);
    return d->tensor && d->turned && d->runs ? 0 : -1;
}

static int begin(struct gathering *d, struct pp_err *err)
{
    if (pp_staging_init(&d->staging, d->g->params, err))
        return -1;
    qsort(d->list, d->n, sizeof *d->list, by_order);
    if (d->g->comm->rank != 0)
        return 0;
    struct pp_tensor_spec *specs = pp_try_calloc(d->n + 1, sizeof *specs, err);
    if (!specs)
        return -1;
    int rc = make_room(d, err);
    if (rc == 0)
        rc = d->g->sink.begin(d->g->sink.ctx, specs, list_specs(d, specs), err);
    free(specs);
    return rc;
}

static int send_parts(struct gathering *d, struct pp_err *err)
{
    const struct pp_gather *g = d->g;
    for (size_t i = 0; i < d->n; i++) {
        const struct pp_parameter *t = &g->params->at[d->list[i].number];
        const void *data = pp_staging_read(&d->staging, t, block_of(g, t), err);
        if (!data) {
            g->comm->ops->abort(g->comm, err->text); /* rank 0 waits for it */
            return -1;
        }
        if (pp_comm_send_host(g->comm, 0, data, sent(g, t).n * bytes_of(g, t),
                              err))
            return -1;
    }
    return 0;
}

/* Puts a part in its place in d->tensor. A part of this rank is not read after
 * a failure, which *rc has. */
static int take_part(struct gathering *d, const struct part *t, int *rc,
                     struct pp_err *err)
{
    struct pp_run r = first_run(t);
    size_t size = t->element_bytes, bytes = t->range.n * size;
    bool one = r.n == t->range.n;
    char *to = one ? d->tensor + r.whole * size : d->runs;
    const char *from = to;
    if (t->rank != 0) {
        if (pp_comm_receive(d->g->comm, t->rank, PP_DIRECTION_HOST, to, bytes,
                            err))
            return -1;
    } else if (*rc == 0) {
        const struct pp_parameter *own = &d->g->params->at[t->number];
        from = pp_staging_read(&d->staging, own, block_of(d->g, own), err);
        *rc = from ? 0 : -1;
    }
    if (*rc || from == d->tensor + r.whole * size)
        return 0;
    for (size_t at = 0; pp_piece_run(&t->piece, t->range, at, &r); at += r.n)
        memcpy(d->tensor + r.whole * size, from + at * size, r.n * size);
    return 0;
}

/* Gives the sink a whole tensor, converted in parts. */
static int put_tensor(struct gathering *d, const struct part *t,
                      struct pp_err *err)
{
    const struct pp_gather_sink *s = &d->g->sink;
    uint64_t some[1 << 13];
    size_t n = t->rows * t->cols, here = t->element_bytes;
    size_t there = d->g->element_bytes, most = sizeof some / there;
    const char *data = d->tensor;
    if (t->transposed) {
        pp_transpose(d->turned, d->tensor, t->rows, t->cols, here);
        data = d->turned;
    }
    if (here == there)
        return s->put(s->ctx, data, n * here, err);
    for (size_t at = 0; at < n; at += most) {
        size_t k = n - at < most ? n - at : most;
        pp_elements_convert(some, there, data + at * here, here, k);
        if (s->put(s->ctx, some, k * there, err))
            return -1;
    }
    return 0;
}

/* Takes the tensors in model order. After a failure it still receives the
 * parts of the other ranks, which would block otherwise. */
static int take_parts(struct gathering *d, struct pp_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct part *t = &d->list[i];
        bool last = i + 1 == d->n || t[1].order != t->order;
        if (take_part(d, t, &rc, err))
            return -1;
        if (rc == 0 && last)
            rc = put_tensor(d, t, err);
    }
    return rc;
}

static int gather(struct gathering *d, struct pp_err *err)
{
    struct pp_comm *c = d->g->comm;
    if (gather_lists(d, err))
        return -1;
    int rc = begin(d, err);
    if (pp_agree(c, rc, err))
        return -1;
    rc = c->rank != 0 ? send_parts(d, err) : take_parts(d, err);
    return pp_agree(c, rc, err);
}

int pp_ckpt_gather(const struct pp_gather *g, struct pp_err *err)
{
    struct gathering d = {.g = g};
    int rc = gather(&d, err);
    pp_staging_finish(&d.staging);
    free(d.list);
    free(d.tensor);
    free(d.turned);
    free(d.runs);
    return rc;
}

/* --- gradients, in a file --- */

struct dump {
    const char *path;
    struct pp_tensor_writer *writer;
};

static int begin_dump(void *ctx, const struct pp_tensor_spec *specs, size_t n,
                      struct pp_err *err)
{
    struct dump *d = ctx;
    return pp_tensor_writer_open(d->path, specs, n, &d->writer, err);
}

static int put_dump(void *ctx, const void *data, size_t bytes,
                    struct pp_err *err)
{
    struct dump *d = ctx;
    return pp_tensor_writer_put(d->writer, data, bytes, err);
}

int pp_ckpt_dump_grads(const char *path, struct pp_comm *comm,
                       const struct pp_parameters *p, struct pp_err *err)
{
    struct dump d = {.path = path};
    const struct pp_gather g = {.comm = comm,
                                .params = p,
                                .block = PP_BLOCK_G,
                                .element_bytes = p->accumulator_bytes,
                                .sink = {begin_dump, put_dump, &d}};
    if (pp_ckpt_gather(&g, err)) {
        pp_tensor_writer_abort(d.writer);
        return -1;
    }
    return pp_agree(comm, d.writer ? pp_tensor_writer_close(d.writer, err) : 0,
                    err);
}
