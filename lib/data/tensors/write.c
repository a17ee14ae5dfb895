/* SPDX-License-Identifier: MIT */
/* write - writes one file front to back, tensors in header
 * order. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/num.h"
#include "data/tensors/safetensors.h"

struct pp_tensor_writer {
    struct pp_output out;
    char *path;
    uint64_t promised, put; /* bytes of data */
    struct pp_checksum_sum sum;
};

static int put_entry(struct pp_json_writer *w, const struct pp_tensor_spec *s,
                     uint64_t *at, struct pp_err *err)
{
    const char *dtype = pp_dtype_name(s->dtype);
    size_t bytes = pp_dtype_bytes(s->dtype);
    uint64_t begin = *at;
    if (!dtype || s->n_dims < 0 || s->n_dims > PP_MAX_DIMS)
        return pp_fail(err, PP_EXIT_SYSTEM, "'%s' has no dtype or shape",
                       s->name);
    for (int i = 0; i < s->n_dims; i++)
        if (pp_mul(bytes, s->dims[i], &bytes, err))
            return -1;
    if (__builtin_add_overflow(*at, bytes, at))
        return pp_fail(err, PP_EXIT_SYSTEM, "'%s' is too large", s->name);
    pp_json_object(w, s->name, PP_JSON_INLINE);
    pp_json_string(w, "dtype", dtype);
    pp_json_array(w, "shape", PP_JSON_INLINE);
    for (int i = 0; i < s->n_dims; i++)
        pp_json_uint(w, NULL, s->dims[i]);
    pp_json_end(w);
    pp_json_array(w, "data_offsets", PP_JSON_INLINE);
    pp_json_uint(w, NULL, begin);
    pp_json_uint(w, NULL, *at);
    pp_json_end(w);
    pp_json_end(w);
    return 0;
}

int pp_tensor_header_make(const struct pp_tensor_spec *specs, size_t n,
                          char **out, size_t *bytes, uint64_t *data_bytes,
                          struct pp_err *err)
{
    char size[PP_TENSOR_SIZE_BYTES] = {0};
    int rc = 0;
    *out = NULL;
    *data_bytes = 0;
    FILE *f = open_memstream(out, bytes);
    if (!f)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    fwrite(size, 1, sizeof size, f);
    struct pp_json_writer w = {.f = f, .compact = true};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_object(&w, "__metadata__", PP_JSON_INLINE);
    pp_json_string(&w, "format", "pt");
    pp_json_end(&w);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = put_entry(&w, &specs[i], data_bytes, err);
    pp_json_end(&w);
    for (long end = ftell(f); end % 8; end++)
        putc(' ', f);
    if ((ferror(f) | fclose(f)) != 0 && rc == 0)
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc) {
        free(*out);
        *out = NULL;
        return -1;
    }
    for (size_t i = 0; i < sizeof size; i++)
        (*out)[i] = (char)((uint64_t)(*bytes - sizeof size) >> 8 * i & 0xff);
    return 0;
}

static void destroy_writer(struct pp_tensor_writer *w)
{
    pp_output_abort(&w->out);
    pp_checksum_finish(&w->sum);
    free(w->path);
    free(w);
}

static int write_bytes(struct pp_tensor_writer *w, const void *data,
                       size_t bytes, struct pp_err *err)
{
    if (bytes > 0 && fwrite(data, 1, bytes, w->out.f) != bytes)
        return pp_fail_errno(err, "%s: cannot write", w->path);
    pp_checksum_add(&w->sum, data, bytes);
    return 0;
}

static int create_file(struct pp_tensor_writer *w, const char *path,
                       const char *header, size_t bytes, struct pp_err *err)
{
    w->path = strdup(path);
    if (!w->path)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", path);
    if (pp_checksum_begin(&w->sum, err) ||
        pp_output_open(&w->out, w->path, err))
        return -1;
    return write_bytes(w, header, bytes, err);
}

int pp_tensor_writer_open(const char *path, const struct pp_tensor_spec *specs,
                          size_t n, struct pp_tensor_writer **out,
                          struct pp_err *err)
{
    char *header = NULL;
    size_t bytes = 0;
    int rc = -1;
    *out = NULL;
    struct pp_tensor_writer *w = calloc(1, sizeof *w);
    if (!w)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", path);
    if (pp_tensor_header_make(specs, n, &header, &bytes, &w->promised, err)) {
        pp_fail_at(err, "%s: ", path);
        goto out;
    }
    rc = create_file(w, path, header, bytes, err);
out:
    free(header);
    if (rc)
        destroy_writer(w);
    else
        *out = w;
    return rc;
}

int pp_tensor_writer_put(struct pp_tensor_writer *w, const void *data,
                         size_t bytes, struct pp_err *err)
{
    if (bytes > w->promised - w->put)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "%s: more data than the header's %" PRIu64 " bytes",
                       w->path, w->promised);
    w->put += bytes;
    return write_bytes(w, data, bytes, err);
}

/* Flushes to the disk. Devices and pipes cannot be synced: EINVAL. */
static int flush_writer(struct pp_tensor_writer *w, struct pp_err *err)
{
    if (fflush(w->out.f) != 0)
        return pp_fail_errno(err, "%s: cannot write", w->path);
    if (fsync(fileno(w->out.f)) != 0 && errno != EINVAL && errno != EROFS)
        return pp_fail_errno(err, "%s: cannot sync", w->path);
    return pp_output_commit(&w->out, err);
}

uint64_t pp_tensor_writer_checksum(const struct pp_tensor_writer *w)
{
    return pp_checksum_value(&w->sum);
}

int pp_tensor_writer_close(struct pp_tensor_writer *w, struct pp_err *err)
{
    int rc;
    if (w->put != w->promised)
        rc = pp_fail(err, PP_EXIT_SYSTEM,
                     "%s: has %" PRIu64 " bytes of data, but the header says "
                     "%" PRIu64,
                     w->path, w->put, w->promised);
    else
        rc = flush_writer(w, err);
    destroy_writer(w);
    return rc;
}

void pp_tensor_writer_abort(struct pp_tensor_writer *w)
{
    if (w)
        destroy_writer(w);
}
