/* SPDX-License-Identifier: MIT */
/* weights - fills parameters from a seed or from Hugging Face tensors, and
 * moves them between device and host. */
#include "run/parameters/weights.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/elements.h"
#include "base/num.h"
#include "base/rng.h"
#include "base/thread.h"
#include "model/parts.h"
#include "run/parameters/stored.h"

/* Random numbers of a tensor are made by up to MAX_PARTS threads, with at least
 * about PART_ELEMENTS for each. */
#define MAX_PARTS 32
#define PART_ELEMENTS ((size_t)1 << 18)

void *pp_parameter_data(const struct pp_parameter *t,
                        enum pp_weights_block block)
{
    void *const data[] = {
        [PP_BLOCK_W] = t->w, [PP_BLOCK_G] = t->g,           [PP_BLOCK_M] = t->m,
        [PP_BLOCK_V] = t->v, [PP_BLOCK_MASTER] = t->master,
    };
    return data[block];
}

const char *pp_parameter_file_name(const struct pp_parameter *t)
{
    return t->tied_copy ? t->info.tied_to : t->info.name;
}

/* --- between device and host --- */

static bool is_host(const struct pp_staging *s)
{
    return pp_device_ops(s->params->device)->is_host;
}

int pp_staging_init(struct pp_staging *s, const struct pp_parameters *p,
                    struct pp_err *err)
{
    size_t most = 1, bytes;
    *s = (struct pp_staging){.params = p};
    if (is_host(s))
        return 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].n > most)
            most = p->at[i].n;
    if (pp_mul(most, p->accumulator_bytes, &bytes, err))
        return -1;
    s->buf = malloc(bytes);
    if (!s->buf)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory: %zu bytes", bytes);
    return 0;
}

void pp_staging_finish(struct pp_staging *s)
{
    free(s->buf);
    *s = (struct pp_staging){0};
}

const void *pp_staging_read(struct pp_staging *s, const struct pp_parameter *t,
                            enum pp_weights_block block, struct pp_err *err)
{
    return pp_device_read(s->params->device, pp_parameter_data(t, block),
                          pp_parameter_range(t, block).n *
                              pp_parameters_bytes(s->params, block),
                          s->buf, err);
}

/* Returns memory into which the host writes the elements of the tensor. They
 * have the accumulated type, whatever the block. store_staging then copies
 * them to the block. For PP_BLOCK_W it also sets the master weights, and rounds
 * the weights. */
static void *open_staging(struct pp_staging *s, const struct pp_parameter *t,
                          enum pp_weights_block block)
{
    return is_host(s) ? pp_parameter_data(t, block) : s->buf;
}

/* Copies the elements of a block to the device, from this element of the buffer
 * on. */
static int put(struct pp_staging *s, const struct pp_parameter *t,
               enum pp_weights_block block, size_t from, struct pp_err *err)
{
    struct pp_device *d = s->params->device;
    size_t size = pp_parameters_bytes(s->params, block);
    return d->ops->put(d, pp_parameter_data(t, block),
                       (char *)s->buf + from * size,
                       pp_parameter_range(t, block).n * size, err);
}

static int store_staging(struct pp_staging *s, const struct pp_parameter *t,
                         enum pp_weights_block block, struct pp_err *err)
{
    const struct pp_parameters *p = s->params;
    if (is_host(s))
        return 0;
    if (block != PP_BLOCK_W || p->element_bytes == p->accumulator_bytes)
        return put(s, t, block, 0, err);
    if (t->master &&
        put(s, t, PP_BLOCK_MASTER, t->own.first - t->held.first, err))
        return -1;
    pp_elements_convert(s->buf, p->element_bytes, s->buf, p->accumulator_bytes,
                        t->held.n);
    return put(s, t, PP_BLOCK_W, 0, err);
}

/* --- initialising and reading --- */

static void set_element(const struct pp_parameters *p, void *to, size_t i,
                        double x)
{
    if (p->accumulator_bytes == sizeof(double))
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

static void fill_constant(const struct pp_parameters *p,
                          const struct pp_parameter *t, void *to, double x)
{
    for (size_t i = 0; i < t->held.n; i++)
        set_element(p, to, i, x);
}

/* A part of a tensor's random numbers. */
struct random_part {
    const struct pp_parameters *p;
    const struct pp_parameter *t;
    void *to;
    uint64_t key;
    double range;
    bool uniform;     /* in [-range, range); else normal */
    size_t from, end; /* elements of the held range */
};

static void *fill_part(void *ctx)
{
    const struct random_part *f = ctx;
    size_t before = pp_tensor_before(&f->t->info), n;
    struct pp_run r;
    for (size_t at = f->from;
         at < f->end && pp_piece_run(&f->t->piece, f->t->held, at, &r);
         at += n) {
        n = r.n < f->end - at ? r.n : f->end - at;
        for (size_t i = 0; i < n; i++) {
            uint64_t index = before + r.whole + i;
            double x = f->uniform ? 2 * pp_rng_uniform(f->key, index) - 1
                                  : pp_rng_normal(f->key, index);
            set_element(f->p, f->to, at + i, f->range * x);
        }
    }
    return NULL;
}

/* Returns the number of parts in which n numbers are made at the same time. A
 * number depends only on its place. */
static size_t random_parts(size_t n)
{
    cpu_set_t cores;
    size_t all = sched_getaffinity(0, sizeof cores, &cores) == 0
                     ? (size_t)CPU_COUNT(&cores)
                     : 1;
    size_t parts = n / PART_ELEMENTS + 1;
    parts = parts < all ? parts : all;
    return parts < MAX_PARTS ? parts : MAX_PARTS;
}

static void fill_random(const struct pp_parameters *p,
                        const struct pp_parameter *t, void *to, uint64_t seed,
                        double range, bool uniform)
{
    struct random_part parts[MAX_PARTS];
    pthread_t threads[MAX_PARTS];
    bool started[MAX_PARTS] = {false};
    struct pp_err ignored = {0};
    size_t n = random_parts(t->held.n);
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct random_part){
            .p = p,
            .t = t,
            .to = to,
            .key = pp_rng_key(seed, pp_parameter_file_name(t)),
            .range = range,
            .uniform = uniform,
            .from = t->held.n / n * i,
            .end = i + 1 < n ? t->held.n / n * (i + 1) : t->held.n,
        };
        started[i] = i + 1 < n && pp_thread_start(&threads[i], fill_part,
                                                  &parts[i], &ignored) == 0;
        if (!started[i])
            fill_part(&parts[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
}

static int init_tensor(struct pp_staging *s, const struct pp_parameter *t,
                       const struct pp_model *m, uint64_t seed,
                       struct pp_err *err)
{
    const struct pp_parameters *p = s->params;
    const struct pp_model *of =
        t->unit < pp_component_first(m, PP_GENERATOR) ? m : m->generator;
    void *to = open_staging(s, t, PP_BLOCK_W);
    double sums = 2 * (double)of->n_layers;
    if (t->info.init == PP_INIT_NORMAL)
        fill_random(p, t, to, seed, of->init_range, false);
    else if (t->info.init == PP_INIT_RESIDUAL)
        fill_random(p, t, to, seed, of->init_range / sqrt(sums), false);
    else if (t->info.init == PP_INIT_BY_INPUTS)
        fill_random(p, t, to, seed, 1 / sqrt((double)t->info.cols), true);
    else
        fill_constant(p, t, to,
                      t->info.init == PP_INIT_VALUE
                          ? t->info.value
                          : t->info.init == PP_INIT_ONES);
    return store_staging(s, t, PP_BLOCK_W, err);
}

int pp_weights_init(struct pp_parameters *p, const struct pp_model *m,
                    uint64_t seed, struct pp_err *err)
{
    struct pp_staging s;
    int rc = pp_staging_init(&s, p, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = init_tensor(&s, &p->at[i], m, seed, err);
    pp_staging_finish(&s);
    return rc;
}

/* Reads a range of a piece, in the accumulated type. The tensor begins at
 * element `before` of the file's. */
static int read_range(const struct pp_parameters *p,
                      const struct pp_tensor_piece *piece, size_t before,
                      struct pp_range range, const struct pp_stored *x,
                      void *to, struct pp_err *err)
{
    struct pp_run r;
    for (size_t at = 0; pp_piece_run(piece, range, at, &r); at += r.n) {
        void *here = (char *)to + at * p->accumulator_bytes;
        if (pp_stored_read(x, before + r.whole, r.n, p->accumulator_bytes, here,
                           err))
            return -1;
    }
    return 0;
}

/* Does the same for a tensor whose transpose is in the file. */
static int read_transposed(const struct pp_parameters *p,
                           const struct pp_parameter *t, struct pp_range range,
                           const struct pp_stored *x, void *to,
                           struct pp_err *err)
{
    const struct pp_range all = {0, t->n};
    struct pp_tensor_piece piece = pp_tensor_in_file(&t->info, &t->piece);
    size_t size = p->accumulator_bytes;
    char *in = malloc(t->n * size + 1), *out = malloc(t->n * size + 1);
    int rc = in && out ? read_range(p, &piece, pp_tensor_before(&t->info), all,
                                    x, in, err)
                       : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc == 0) {
        pp_transpose(out, in, piece.rows, piece.cols, size);
        memcpy(to, out + range.first * size, range.n * size);
    }
    free(in);
    free(out);
    return rc;
}

static int read_tensor(struct pp_staging *s, const struct pp_parameter *t,
                       enum pp_weights_block block, const struct pp_tensors *in,
                       const struct pp_model *m, struct pp_err *err)
{
    const char *name = pp_parameter_file_name(t);
    struct pp_stored x;
    bool found = pp_stored_find(&x, in, m, name);
    if (!found && m && pp_stored_may_lack(in, name))
        return init_tensor(s, t, m, 0, err);
    if (!found)
        return pp_fail(err, PP_EXIT_INPUT, "no tensor '%s'", name);
    if (pp_stored_check(&t->info, &x, err))
        return -1;
    void *to = open_staging(s, t, block);
    const struct pp_range range = pp_parameter_range(t, block);
    if (pp_stored_transposed(&t->info, &x)
            ? read_transposed(s->params, t, range, &x, to, err)
            : read_range(s->params, &t->piece, pp_tensor_before(&t->info),
                         range, &x, to, err))
        return -1;
    return store_staging(s, t, block, err);
}

/* Finds a mapped tensor in its file. */
static int map_tensor(struct pp_parameter *t, const struct pp_tensors *in,
                      const struct pp_model *m, struct pp_err *err)
{
    const char *name = pp_parameter_file_name(t);
    return pp_stored_find(&t->stored, in, m, name)
               ? pp_stored_check(&t->info, &t->stored, err)
               : pp_fail(err, PP_EXIT_INPUT, "no tensor '%s'", name);
}

const void *pp_weights_in_place(const struct pp_parameters *p,
                                const struct pp_parameter *t, size_t first)
{
    const struct pp_tensor *x = t->stored.values;
    size_t size = p->element_bytes;
    bool same =
        x->dtype == (size == sizeof(float) ? PP_DTYPE_F32 : PP_DTYPE_F64);
    const char *at = x->data;
    at += (t->piece.offset[0] + first * t->piece.cols) * size;
    return same && pp_piece_is_run(&t->piece) && (uintptr_t)at % size == 0
               ? at
               : NULL;
}

int pp_weights_widen(const struct pp_parameters *p,
                     const struct pp_parameter *t, size_t first, size_t n,
                     void *to, struct pp_err *err)
{
    size_t cols = t->piece.cols;
    return read_range(p, &t->piece, 0,
                      (struct pp_range){first * cols, n * cols}, &t->stored, to,
                      err);
}

/* A frozen tensor has weights only. Files of master weights may lack it. */
static bool is_read(const struct pp_parameter *t, enum pp_weights_block block,
                    const struct pp_tensors *in, const struct pp_model *m)
{
    if (!pp_parameter_in(t, block))
        return false;
    return !t->info.frozen || m ||
           pp_tensors_find(in, pp_parameter_file_name(t));
}

/* m may be NULL: then names have no second form. */
static int read_block(struct pp_parameters *p, enum pp_weights_block block,
                      const struct pp_tensors *t, const struct pp_model *m,
                      struct pp_err *err)
{
    struct pp_staging s;
    int rc = pp_staging_init(&s, p, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        if (is_read(&p->at[i], block, t, m))
            rc = read_tensor(&s, &p->at[i], block, t, m, err);
    pp_staging_finish(&s);
    return rc;
}

int pp_weights_read(struct pp_parameters *p, enum pp_weights_block block,
                    const struct pp_tensors *t, struct pp_err *err)
{
    return read_block(p, block, t, NULL, err);
}

int pp_weights_load(struct pp_parameters *p, const struct pp_model *m,
                    const struct pp_tensors *t, struct pp_err *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].info.mapped && map_tensor(&p->at[i], t, m, err))
            return -1;
    return read_block(p, PP_BLOCK_W, t, m, err);
}

int pp_weights_check_tied(const struct pp_model *m, const struct pp_tensors *t,
                          struct pp_err *err)
{
    enum { PART = 4096 };
    struct pp_stored embedding;
    pp_stored_find(&embedding, t, m, pp_embedding_name(m));
    const struct pp_tensor *a = embedding.values;
    const struct pp_tensor *b = pp_tensors_find(t, pp_head_name(m));
    double x[PART], y[PART];
    if (!m->tied || !a || !b)
        return 0;
    bool same = a->n == b->n;
    if (same && a->dtype == b->dtype && !memcmp(a->data, b->data, a->bytes))
        return 0;
    for (uint64_t at = 0; same && at < a->n; at += PART) {
        uint64_t n = a->n - at < PART ? a->n - at : PART;
        if (pp_tensor_read_f64(a, at, n, x, err) ||
            pp_tensor_read_f64(b, at, n, y, err))
            return -1;
        same = !memcmp(x, y, n * sizeof *x);
    }
    if (same)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "'%s' differs from '%s', but tie_word_embeddings is true; "
                   "set it to false in config.json",
                   b->name, a->name);
}
