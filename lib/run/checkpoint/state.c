/* SPDX-License-Identifier: MIT */
/* state - the state of the trainer: tensors in a file, and a text. */
#include "run/checkpoint/shards.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/tensors/safetensors.h"
#include "run/checkpoint/files.h"
#include "run/parameters/optim.h"

#define STATE_FILE "optimizer/state.safetensors"
#define SETTINGS_FILE "optimizer/settings"

/* The tensors of the file: 64-bit integers and floats. Reading checks the
 * ranges of integers, so that products of them cannot overflow. A checksum is a
 * bit pattern. */
static const struct field {
    const char *name;
    size_t at, n; /* in struct pp_ckpt_state */
    enum pp_dtype dtype;
    int64_t min, max;
} fields[] = {
#define FIELD(name) #name, offsetof(struct pp_ckpt_state, name)
    {FIELD(step), 1, PP_DTYPE_I64, 0, INT64_MAX},
    {FIELD(microbatches), 1, PP_DTYPE_I64, 0, INT64_MAX},
    {FIELD(step_microbatches), 1, PP_DTYPE_I64, 1, INT64_MAX},
    {FIELD(data_checksum), 1, PP_DTYPE_I64, INT64_MIN, INT64_MAX},
    {FIELD(optimizer), 1, PP_DTYPE_I64, 0, PP_SGD_OPTIMIZER},
    {FIELD(epoch_microbatches), 1, PP_DTYPE_I64, 0, INT64_MAX},
    {FIELD(base_checksum), 1, PP_DTYPE_I64, INT64_MIN, INT64_MAX},
    {FIELD(betas), 2, PP_DTYPE_F64, 0, 0},
    {FIELD(lr), 1, PP_DTYPE_F64, 0, 0},
#undef FIELD
};
enum { N_FIELDS = sizeof fields / sizeof *fields, FIELD_BYTES = 8 };

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
    char path[PP_PATH_TEXT];
    struct pp_tensor_spec specs[N_FIELDS];
    struct pp_tensor_writer *w;
    int rc = 0;
    for (size_t i = 0; i < N_FIELDS; i++)
        specs[i] = (struct pp_tensor_spec){
            fields[i].name, fields[i].dtype, 1, {fields[i].n}};
    if (pp_path(path, err, "%s/" STATE_FILE, checkpoint) ||
        pp_tensor_writer_open(path, specs, N_FIELDS, &w, err))
        return -1;
    for (size_t i = 0; rc == 0 && i < N_FIELDS; i++)
        rc = pp_tensor_writer_put(w, (const char *)s + fields[i].at,
                                  fields[i].n * FIELD_BYTES, err);
    if (rc ||
        pp_ckpt_sums_add(sums, STATE_FILE, pp_tensor_writer_checksum(w), err)) {
        pp_tensor_writer_abort(w);
        return -1;
    }
    return pp_tensor_writer_close(w, err) ||
                   pp_ckpt_sums_put(sums, checkpoint, SETTINGS_FILE,
                                    s->settings, strlen(s->settings), err)
               ? -1
               : 0;
}

static int read_field(const struct pp_tensors *t, const struct field *f,
                      struct pp_ckpt_state *s, struct pp_err *err)
{
    const struct pp_tensor *x = pp_tensors_find(t, f->name);
    int64_t value;
    if (!x || x->dtype != f->dtype || x->n != f->n)
        return f->dtype == PP_DTYPE_I64
                   ? pp_fail(err, PP_EXIT_INPUT,
                             "'%s' must be there, as one 64-bit integer",
                             f->name)
                   : pp_fail(err, PP_EXIT_INPUT,
                             "'%s' must have %zu 64-bit floats", f->name, f->n);
    memcpy((char *)s + f->at, x->data, f->n * FIELD_BYTES);
    memcpy(&value, x->data, sizeof value);
    if (f->dtype == PP_DTYPE_I64 && (value < f->min || value > f->max))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' is out of range: '%" PRId64 "'", f->name, value);
    return 0;
}

int pp_ckpt_state_read(const char *checkpoint, struct pp_ckpt_state *s,
                       struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    struct pp_tensors *t;
    int rc = 0;
    if (pp_path(path, err, "%s/" STATE_FILE, checkpoint) ||
        pp_tensors_open(path, &t, err))
        return -1;
    for (size_t i = 0; rc == 0 && i < N_FIELDS; i++)
        rc = read_field(t, &fields[i], s, err);
    if (rc)
        pp_fail_at(err, "%s: ", path);
    pp_tensors_close(t);
    return rc || read_settings(checkpoint, s->settings, err) ? -1 : 0;
}
