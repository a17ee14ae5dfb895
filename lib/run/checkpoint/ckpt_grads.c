/* SPDX-License-Identifier: MIT */
/* ckpt_grads - writes the gradients of all ranks to one file, to compare them
 * with other programs. Rank 0 receives the pieces of one tensor at a time. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/ckpt_agree.h"
#include "run/parameters/weights.h"

/* A piece to write: one that counts (pp_parameter_counts). Ranks exchange it.
 */
struct dumped_tensor {
    char name[PP_FQN_TEXT];
    uint64_t sizes[2], order; /* of the whole */
    struct pp_tensor_piece piece;
    int32_t n_dims, rank;
};

/* The state of a dump on one rank. */
struct dump {
    struct pp_comm *comm;
    const struct pp_parameters *params;
    struct pp_staging staging;
    struct dumped_tensor *list; /* rank 0 only: all, later in model order */
    size_t n;
    float *buf;  /* room for the largest piece of this rank, or at rank 0 for
                    the largest tensor ... */
    float *runs; /* ... and for the largest piece with several runs */
    struct pp_tensor_spec *specs;
    struct pp_tensor_writer *writer; /* rank 0 only */
};

static size_t count_dumped(const struct pp_parameters *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += pp_parameter_counts(&p->at[i]);
    return n;
}

static void list_dumped(const struct pp_parameters *p, int rank,
                        struct dumped_tensor *out)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (!pp_parameter_counts(t))
            continue;
        *out = (struct dumped_tensor){
            .order = t->order,
            .piece = pp_tensor_in_file(&t->info, &t->piece),
            .n_dims = t->info.n_dims,
            .rank = rank};
        pp_tensor_file_sizes(&t->info, out->sizes);
        memcpy(out->name, t->info.name, sizeof out->name);
        out++;
    }
}

static int send_list(struct pp_comm *c, const struct pp_parameters *p, size_t n,
                     struct pp_err *err)
{
    struct dumped_tensor *list = calloc(n + 1, sizeof *list);
    if (!list)
        return pp_give_up(c, err);
    list_dumped(p, c->rank, list);
    int rc = c->ops->send(c, 0, PP_DIRECTION_HOST, list, n * sizeof *list, err);
    if (rc == 0)
        rc = c->ops->send_wait(c, 0, PP_DIRECTION_HOST, 0, err);
    free(list);
    return rc;
}

static int receive_lists(struct dump *d, const uint64_t *counts,
                         struct pp_err *err)
{
    struct pp_comm *c = d->comm;
    struct dumped_tensor *to;
    for (int r = 0; r < c->size; r++)
        d->n += (size_t)counts[r];
    d->list = to = calloc(d->n + 1, sizeof *to);
    if (!to)
        return pp_give_up(c, err);
    list_dumped(d->params, 0, to);
    for (int r = 1; r < c->size; r++) {
        to += counts[r - 1];
        if (pp_comm_receive(c, r, PP_DIRECTION_HOST, to,
                            (size_t)counts[r] * sizeof *to, err))
            return -1;
    }
    return 0;
}

/* Collective. Lists the tensors of all ranks at rank 0. */
static int gather_lists(struct dump *d, struct pp_err *err)
{
    struct pp_comm *c = d->comm;
    uint64_t mine = count_dumped(d->params);
    uint64_t *counts = calloc((size_t)c->size, sizeof *counts);
    if (!counts)
        return pp_give_up(c, err);
    int rc = c->ops->allgather(c, &mine, counts, sizeof mine, err);
    if (rc == 0)
        rc = c->rank == 0 ? receive_lists(d, counts, err)
                          : send_list(c, d->params, (size_t)mine, err);
    free(counts);
    return rc;
}

static int by_order(const void *a, const void *b)
{
    uint64_t x = ((const struct dumped_tensor *)a)->order;
    uint64_t y = ((const struct dumped_tensor *)b)->order;
    if (x != y)
        return x < y ? -1 : 1;
    return ((const struct dumped_tensor *)a)->rank -
           ((const struct dumped_tensor *)b)->rank;
}

/* Lists the tensors whose pieces are listed, and returns their number. */
static size_t list_specs(const struct dump *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct dumped_tensor *t = &d->list[i];
        if (i == 0 || t->order != d->list[i - 1].order)
            d->specs[n++] = (struct pp_tensor_spec){
                t->name, PP_DTYPE_F32, t->n_dims, {t->sizes[0], t->sizes[1]}};
    }
    return n;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int open_dump(struct dump *d, const char *path, struct pp_err *err)
{
    size_t most = 1, runs = 1, bytes, runs_bytes;
    for (size_t i = 0; i < d->params->n; i++)
        most = larger(most, d->params->at[i].n);
    for (size_t i = 0; i < d->n; i++) {
        const struct dumped_tensor *t = &d->list[i];
        most = larger(most, t->sizes[0] * t->sizes[1]);
        if (t->piece.n > 1)
            runs = larger(runs, pp_piece_elements(&t->piece));
    }
    if (pp_mul(most, sizeof *d->buf, &bytes, err) ||
        pp_mul(runs, sizeof *d->runs, &runs_bytes, err) ||
        pp_staging_init(&d->staging, d->params, err))
        return -1;
    d->buf = malloc(bytes);
    d->runs = malloc(runs_bytes);
    d->specs = calloc(d->n + 1, sizeof *d->specs);
    if (!d->buf || !d->runs || !d->specs)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", path);
    if (d->comm->rank != 0)
        return 0;
    qsort(d->list, d->n, sizeof *d->list, by_order);
    return pp_tensor_writer_open(path, d->specs, list_specs(d), &d->writer,
                                 err);
}

static int read_gradient(struct dump *d, const struct pp_parameter *t,
                         float *to, struct pp_err *err)
{
    const void *g = pp_staging_read(&d->staging, t, PP_BLOCK_G, err);
    if (!g)
        return -1;
    bool wide = d->params->accumulator_bytes == sizeof(double);
    size_t rows = t->info.transposed ? t->piece.rows : t->n;
    for (size_t i = 0; i < t->n; i++) {
        /* Element i of the file, if it has the transpose. */
        size_t at = i % rows * (t->n / rows) + i / rows;
        to[i] = wide ? (float)((const double *)g)[at] : ((const float *)g)[at];
    }
    return 0;
}

static int send_gradients(struct dump *d, struct pp_err *err)
{
    struct pp_comm *c = d->comm;
    for (size_t i = 0; i < d->params->n; i++) {
        const struct pp_parameter *t = &d->params->at[i];
        if (!pp_parameter_counts(t))
            continue;
        if (read_gradient(d, t, d->buf, err)) {
            c->ops->abort(c, err->text); /* rank 0 waits for this piece */
            return -1;
        }
        if (c->ops->send(c, 0, PP_DIRECTION_HOST, d->buf, t->n * sizeof *d->buf,
                         err) ||
            c->ops->send_wait(c, 0, PP_DIRECTION_HOST, 0, err))
            return -1;
    }
    return 0;
}

static const struct pp_parameter *by_name(const struct pp_parameters *p,
                                          const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->at[i].info.name, name))
            return &p->at[i];
    return NULL;
}

/* Puts a piece in its place in d->buf. A piece of this rank is not read after
 * a failure, which *rc has. */
static int take_piece(struct dump *d, const struct dumped_tensor *t, int *rc,
                      struct pp_err *err)
{
    const struct pp_tensor_piece *p = &t->piece;
    float *to = p->n > 1 ? d->runs : d->buf + p->offset;
    if (t->rank == 0) {
        if (*rc == 0)
            *rc = read_gradient(d, by_name(d->params, t->name), to, err);
    } else if (pp_comm_receive(d->comm, t->rank, PP_DIRECTION_HOST, to,
                               pp_piece_elements(p) * sizeof *to, err)) {
        return -1;
    }
    for (size_t run = 0; *rc == 0 && p->n > 1 && run < p->n; run++)
        memcpy(d->buf + p->offset + run * p->stride, to + run * p->count,
               p->count * sizeof *to);
    return 0;
}

/* Writes the tensors in model order. After a failure it still receives the
 * pieces of the other ranks, which would block otherwise. */
static int write_gradients(struct dump *d, struct pp_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct dumped_tensor *t = &d->list[i];
        bool last = i + 1 == d->n || t[1].order != t->order;
        if (take_piece(d, t, &rc, err))
            return -1;
        if (rc == 0 && last)
            rc = pp_tensor_writer_put(
                d->writer, d->buf, t->sizes[0] * t->sizes[1] * sizeof *d->buf,
                err);
    }
    return rc;
}

static int dump(struct dump *d, const char *path, struct pp_err *err)
{
    if (gather_lists(d, err))
        return -1;
    int rc = open_dump(d, path, err);
    if (pp_agree(d->comm, rc, err))
        return -1;
    if (d->comm->rank != 0)
        rc = send_gradients(d, err);
    else
        rc = write_gradients(d, err);
    if (rc == 0 && d->writer) {
        rc = pp_tensor_writer_close(d->writer, err);
        d->writer = NULL;
    }
    return pp_agree(d->comm, rc, err);
}

int pp_ckpt_dump_grads(const char *path, struct pp_comm *comm,
                       const struct pp_parameters *p, struct pp_err *err)
{
    struct dump d = {.comm = comm, .params = p};
    int rc = dump(&d, path, err);
    pp_tensor_writer_abort(d.writer);
    free(d.list);
    pp_staging_finish(&d.staging);
    free(d.specs);
    free(d.runs);
    free(d.buf);
    return rc;
}
