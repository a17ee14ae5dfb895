/* SPDX-License-Identifier: MIT */
/* ckpt_shard_files - makes, fills and reads the files of a checkpoint's
 * tensors. Several ranks write one file, each its own bytes.
 *
 * A file has its full size before the other ranks open it. A client of a
 * network file system then sends the bytes that its rank wrote and no more,
 * also where two ranks meet inside a page. */
#include "run/checkpoint/ckpt_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/elements.h"
#include "base/file.h"

/* Returns the range of tensor i that this rank writes to a file. */
static struct pp_range written(const struct pp_shards *s,
                               const struct pp_shard *f, size_t i)
{
    return s->mine[i] && pp_shards_bytes(s, f->block, i) > 0
               ? pp_parameter_written(s->params, s->mine[i],
                                      pp_shards_source_of(s, f->block, i))
               : (struct pp_range){0, 0};
}

static bool is_mine(const struct pp_shards *s, const struct pp_shard *f)
{
    size_t i = f->first;
    while (i + 1 < f->end && pp_shards_bytes(s, f->block, i) == 0)
        i++;
    struct pp_range r = written(s, f, i);
    return r.n > 0 && r.first == 0 && s->mine[i]->piece.offset == 0;
}

/* Makes the header of a file, which the caller frees. */
static int make_header(const struct pp_shards *s, const struct pp_shard *f,
                       char **header, size_t *bytes, uint64_t *data_bytes,
                       struct pp_err *err)
{
    size_t n = 0;
    struct pp_tensor_spec *specs =
        pp_calloc(f->end - f->first, sizeof *specs, err);
    if (!specs)
        return -1;
    for (size_t i = f->first; i < f->end; i++) {
        const struct pp_tensor_info *t = &s->tensors[i];
        size_t size = s->blocks[f->block].element_bytes;
        if (pp_shards_bytes(s, f->block, i) == 0 || t->number > 0)
            continue;
        specs[n] = (struct pp_tensor_spec){
            .name = t->name,
            .dtype = size == sizeof(double)  ? PP_DTYPE_F64
                     : size == sizeof(float) ? PP_DTYPE_F32
                                             : PP_DTYPE_BF16};
        specs[n].n_dims = pp_tensor_file_sizes(t, specs[n].dims);
        n++;
    }
    int rc = pp_tensor_header_make(specs, n, header, bytes, data_bytes, err);
    free(specs);
    return rc;
}

/* Writes all bytes at this offset. */
static int write_at(int fd, const char *path, const void *data, size_t n,
                    uint64_t offset, struct pp_err *err)
{
    const size_t most = (size_t)1 << 30; /* what every kernel takes at once */
    for (const char *at = data; n > 0;) {
        ssize_t done = pwrite(fd, at, n < most ? n : most, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return pp_fail_errno(err, "%s: cannot write", path);
        at += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static int create_file(const struct pp_shards *s, const struct pp_shard *f,
                       const char *path, struct pp_err *err)
{
    char *header;
    size_t bytes;
    uint64_t data_bytes;
    if (make_header(s, f, &header, &bytes, &data_bytes, err))
        return -1;
    int rc = -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        pp_fail_errno(err, "%s: cannot create", path);
    else if (ftruncate(fd, (off_t)(bytes + data_bytes)) != 0)
        pp_fail_errno(err, "%s: cannot write", path);
    else
        rc = write_at(fd, path, header, bytes, 0, err);
    if (fd >= 0 && close(fd) != 0 && rc == 0)
        rc = pp_fail_errno(err, "%s: cannot write", path);
    free(header);
    return rc;
}

int pp_shards_create(const struct pp_shards *s, const char *checkpoint,
                     struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    for (int i = 0; i < s->n_files; i++) {
        const struct pp_shard f = pp_shards_at(s, i);
        if (is_mine(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             create_file(s, &f, path, err)))
            return -1;
    }
    return 0;
}

/* The elements of a block in memory and in files. */
struct element_sizes {
    size_t here, there;
};

/* Writes n elements at this offset, converted in parts. */
static int write_elements(int fd, const char *path, const char *data, size_t n,
                          struct element_sizes bytes, uint64_t offset,
                          struct pp_err *err)
{
    uint64_t part[1 << 13];
    size_t most = sizeof part / bytes.there;
    if (bytes.here == bytes.there)
        return write_at(fd, path, data, n * bytes.here, offset, err);
    for (size_t at = 0; at < n; at += most) {
        size_t k = n - at < most ? n - at : most;
        pp_elements_convert(part, bytes.there, data + at * bytes.here,
                            bytes.here, k);
        if (write_at(fd, path, part, k * bytes.there, offset, err))
            return -1;
        offset += k * bytes.there;
    }
    return 0;
}

/* Writes a range of a piece of a tensor that begins at this offset. */
static int write_range(int fd, const char *path, const char *data,
                       const struct pp_tensor_piece *p, struct pp_range range,
                       struct element_sizes bytes, uint64_t offset,
                       struct pp_err *err)
{
    struct pp_run r;
    for (size_t at = 0; pp_piece_run(p, range, at, &r); at += r.n)
        if (write_elements(fd, path, data + at * bytes.here, r.n, bytes,
                           offset + (uint64_t)r.whole * bytes.there, err))
            return -1;
    return 0;
}

/* Writes a range of a piece whose transpose is in the file. Each column is a
 * run there, unless the range is the whole piece. */
static int write_transposed(int fd, const char *path, const char *data,
                            const struct pp_parameter *t, struct pp_range range,
                            struct element_sizes bytes, uint64_t offset,
                            struct pp_err *err)
{
    struct pp_tensor_piece f = pp_tensor_in_file(&t->info, &t->piece);
    size_t cols = t->piece.cols, row = range.first / cols;
    size_t skip = range.first % cols,
           end = skip + range.n; /* from the row on */
    size_t rows = (end + cols - 1) / cols;
    char *in = calloc(rows * cols + 1, bytes.here);
    char *out = calloc(rows * cols + 1, bytes.here);
    int rc =
        in && out ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", path);
    if (rc == 0) {
        memcpy(in + skip * bytes.here, data, range.n * bytes.here);
        pp_transpose(out, in, rows, cols, bytes.here);
    }
    if (rc == 0 && range.n == t->n)
        rc = write_range(fd, path, out, &f, range, bytes, offset, err);
    for (size_t c = 0; rc == 0 && range.n < t->n && c < cols; c++) {
        size_t from = c < skip, to = c < end ? (end - c - 1) / cols + 1 : 0;
        const struct pp_range run = {c * f.cols + row + from,
                                     to > from ? to - from : 0};
        rc = write_range(fd, path, out + (c * rows + from) * bytes.here, &f,
                         run, bytes, offset, err);
    }
    free(in);
    free(out);
    return rc;
}

/* Writes the ranges of this rank of tensors whose data start at this offset. */
static int write_tensors(const struct pp_shards *s, const struct pp_shard *f,
                         struct pp_staging *staging, int fd, const char *path,
                         uint64_t offset, struct pp_err *err)
{
    for (size_t i = f->first; i < f->end; i++) {
        enum pp_weights_block source = pp_shards_source_of(s, f->block, i);
        const struct element_sizes bytes = {
            pp_parameters_bytes(staging->params, source),
            s->blocks[f->block].element_bytes};
        const struct pp_parameter *p = s->mine[i];
        struct pp_range range = written(s, f, i);
        const void *data =
            range.n > 0 ? pp_staging_read(staging, p, source, err) : NULL;
        if (range.n > 0 && !data)
            return -1;
        if (data &&
            (p->info.transposed ? write_transposed(fd, path, data, p, range,
                                                   bytes, offset, err)
                                : write_range(fd, path, data, &p->piece, range,
                                              bytes, offset, err)))
            return -1;
        offset += pp_shards_bytes(s, f->block, i);
    }
    return 0;
}

static int fill_file(const struct pp_shards *s, const struct pp_shard *f,
                     struct pp_staging *staging, const char *path,
                     struct pp_err *err)
{
    char *header;
    size_t bytes;
    uint64_t data_bytes;
    if (make_header(s, f, &header, &bytes, &data_bytes, err))
        return -1;
    free(header);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail_errno(err, "%s: cannot write", path);
    int rc = write_tensors(s, f, staging, fd, path, bytes, err);
    if (close(fd) != 0 && rc == 0)
        rc = pp_fail_errno(err, "%s: cannot write", path);
    return rc;
}

static bool has_any(const struct pp_shards *s, const struct pp_shard *f)
{
    for (size_t i = f->first; i < f->end; i++)
        if (written(s, f, i).n > 0)
            return true;
    return false;
}

int pp_shards_fill(const struct pp_shards *s, const struct pp_parameters *p,
                   const char *checkpoint, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    struct pp_staging staging;
    int rc = pp_staging_init(&staging, p, err);
    for (int i = 0; rc == 0 && i < s->n_files; i++) {
        const struct pp_shard f = pp_shards_at(s, i);
        if (has_any(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             fill_file(s, &f, &staging, path, err)))
            rc = -1;
    }
    pp_staging_finish(&staging);
    return rc;
}

int pp_shards_sync(const struct pp_shards *s, const char *checkpoint,
                   struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    for (int i = 0; i < s->n_files; i++) {
        const struct pp_shard f = pp_shards_at(s, i);
        if (has_any(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             pp_file_sync(path, err)))
            return -1;
    }
    return 0;
}

static int sum_file(const char *path, uint64_t *sum, struct pp_err *err)
{
    const void *data;
    size_t n;
    if (pp_file_map(path, &data, &n, err))
        return -1;
    int rc = pp_checksum_map(PP_CHECKSUM_XXH3, data, n, NULL, NULL, sum, err);
    pp_file_unmap(data, n);
    return rc;
}

int pp_shards_sum(const struct pp_shards *s, const char *checkpoint,
                  uint64_t *sums, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    for (int i = 0; i < s->n_files; i++) {
        const struct pp_shard f = pp_shards_at(s, i);
        if (is_mine(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             sum_file(path, &sums[i], err)))
            return -1;
    }
    return 0;
}
