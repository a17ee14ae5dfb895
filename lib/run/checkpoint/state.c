/* SPDX-License-Identifier: MIT */
/* state - the state of the trainer: tensors in a file, and a text. */
#include "run/checkpoint/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "data/tensors/safetensors.h"
#include "run/checkpoint/files.h"
#include "run/parameters/optim.h"

#define STATE_FILE "optimizer/state.safetensors"
#define SETTINGS_FILE "optimizer/settings"

/* Reading checks the ranges, so that products of the counters cannot overflow.
 * The checksum is a bit pattern. */
static const struct counter {
    const char *name;
    int64_t min, max;
} counters[] = {
    {"step", 0, INT64_MAX},
    {"microbatches", 0, INT64_MAX},
    {"step_microbatches", 1, INT64_MAX},
    {"data_checksum", INT64_MIN, INT64_MAX},
    {"optimizer", 0, PP_SGD_OPTIMIZER},
    {"epoch_microbatches", 0, INT64_MAX},
    {"base_checksum", INT64_MIN, INT64_MAX},
};
enum { N_COUNTERS = sizeof counters / sizeof *counters };

/* Floats. */
static const struct real {
    const char *name;
    uint64_t n;
} reals[] = {{"betas", 2}, {"lr", 1}};
enum { BETAS, LR };
enum { N_REALS = sizeof reals / sizeof *reals };

/* The contents of the file: the counters, then the floats. */
struct values {
    int64_t counters[N_COUNTERS];
    double betas[2], lr;
};

static int write_settings(const char *checkpoint, const char *text,
                          struct pp_ckpt_sums *sums, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    size_t n = strlen(text);
    return pp_path(path, err, "%s/" SETTINGS_FILE, checkpoint) ||
                   pp_file_write(path, text, n, err) ||
                   pp_ckpt_sums_add(sums, SETTINGS_FILE,
                                    pp_checksum_of(text, n), err)
               ? -1
               : 0;
}

static int read_settings(const char *checkpoint, char text[PP_SETTINGS_LINES],
                         struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    const void *data;
    size_t n;
    if (pp_path(path, err, "%s/" SETTINGS_FILE, checkpoint) ||
        pp_file_map(path, &data, &n, err))
        return -1;
    snprintf(text, PP_SETTINGS_LINES, "%.*s",
             (int)(n < PP_SETTINGS_LINES ? n : PP_SETTINGS_LINES - 1),
             (const char *)data);
    pp_file_unmap(data, n);
    return 0;
}

int pp_ckpt_state_write(const char *checkpoint, const struct pp_ckpt_state *s,
                        struct pp_ckpt_sums *sums, struct pp_err *err)
{
    const struct values values = {
        {s->step, s->microbatches, s->step_microbatches,
         (int64_t)s->data_checksum, s->optimizer, s->epoch_microbatches,
         (int64_t)s->base_checksum},
        {s->betas[0], s->betas[1]},
        s->lr,
    };
    char path[PP_PATH_TEXT];
    struct pp_tensor_spec specs[N_COUNTERS + N_REALS];
    struct pp_tensor_writer *w;
    for (size_t i = 0; i < N_COUNTERS; i++)
        specs[i] =
            (struct pp_tensor_spec){counters[i].name, PP_DTYPE_I64, 1, {1}};
    for (size_t i = 0; i < N_REALS; i++)
        specs[N_COUNTERS + i] = (struct pp_tensor_spec){
            reals[i].name, PP_DTYPE_F64, 1, {reals[i].n}};
    if (pp_path(path, err, "%s/" STATE_FILE, checkpoint) ||
        pp_tensor_writer_open(path, specs, N_COUNTERS + N_REALS, &w, err))
        return -1;
    if (pp_tensor_writer_put(w, &values, sizeof values, err) ||
        pp_ckpt_sums_add(sums, STATE_FILE, pp_tensor_writer_checksum(w), err)) {
        pp_tensor_writer_abort(w);
        return -1;
    }
    return pp_tensor_writer_close(w, err) ||
                   write_settings(checkpoint, s->settings, sums, err)
               ? -1
               : 0;
}

static int read_counter(const struct pp_tensors *t, const struct counter *c,
                        int64_t *value, struct pp_err *err)
{
    const struct pp_tensor *x = pp_tensors_find(t, c->name);
    if (!x || x->dtype != PP_DTYPE_I64 || x->n != 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' must be there, as one 64-bit integer", c->name);
    memcpy(value, x->data, sizeof *value);
    if (*value < c->min || *value > c->max)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' is out of range: '%" PRId64 "'", c->name, *value);
    return 0;
}

static int read_real(const struct pp_tensors *t, const struct real *r,
                     double *to, struct pp_err *err)
{
    const struct pp_tensor *x = pp_tensors_find(t, r->name);
    if (!x || x->dtype != PP_DTYPE_F64 || x->n != r->n)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' must have %" PRIu64 " 64-bit floats", r->name,
                       r->n);
    memcpy(to, x->data, r->n * sizeof *to);
    return 0;
}

static int read_values(const struct pp_tensors *t, struct values *v,
                       struct pp_err *err)
{
    for (size_t i = 0; i < N_COUNTERS; i++)
        if (read_counter(t, &counters[i], &v->counters[i], err))
            return -1;
    return read_real(t, &reals[BETAS], v->betas, err) ||
                   read_real(t, &reals[LR], &v->lr, err)
               ? -1
               : 0;
}

int pp_ckpt_state_read(const char *checkpoint, struct pp_ckpt_state *s,
                       struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    struct pp_tensors *t;
    struct values v = {.betas = {0}};
    if (pp_path(path, err, "%s/" STATE_FILE, checkpoint) ||
        pp_tensors_open(path, &t, err))
        return -1;
    int rc = read_values(t, &v, err);
    if (rc)
        pp_fail_at(err, "%s: ", path);
    else
        *s = (struct pp_ckpt_state){
            .step = v.counters[0],
            .microbatches = v.counters[1],
            .step_microbatches = v.counters[2],
            .data_checksum = (uint64_t)v.counters[3],
            .optimizer = v.counters[4],
            .epoch_microbatches = v.counters[5],
            .base_checksum = (uint64_t)v.counters[6],
            .betas = {v.betas[0], v.betas[1]},
            .lr = v.lr,
        };
    pp_tensors_close(t);
    return rc || read_settings(checkpoint, s->settings, err) ? -1 : 0;
}
