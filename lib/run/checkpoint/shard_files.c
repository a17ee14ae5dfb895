/* SPDX-License-Identifier: MIT */
/* shard_files - makes, fills and reads the files of a checkpoint's
 * tensors. Several ranks write one file, each its own bytes.
 *
 * A file has its full size before the other ranks open it. A client of a
 * network file system then sends the bytes that its rank wrote and no more,
 * also where two ranks meet inside a page. */
#include "run/checkpoint/shards.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"

/* Returns the range of tensor i that this rank writes to a file. */
static struct pp_range written(const struct pp_shards *s,
                               const struct pp_shard_file *f, size_t i)
{
    return s->mine[i] && pp_shards_bytes(s, f->block, i) > 0
               ? pp_parameter_written(s->params, s->mine[i],
                                      pp_shards_source_of(s, f->block, i))
               : (struct pp_range){0, 0};
}

static bool is_mine(const struct pp_shards *s, const struct pp_shard_file *f)
{
    size_t i = f->first;
    while (i + 1 < f->end && pp_shards_bytes(s, f->block, i) == 0)
        i++;
    struct pp_range r = written(s, f, i);
    return r.n > 0 && r.first == 0 && s->mine[i]->piece.offset[0] == 0;
}

/* Makes the header of a file, which the caller frees. */
static int make_header(const struct pp_shards *s, const struct pp_shard_file *f,
                       char **header, size_t *bytes, uint64_t *data_bytes,
                       struct pp_err *err)
{
    size_t n = 0;
    struct pp_tensor_spec *specs =
        pp_try_calloc(f->end - f->first, sizeof *specs, err);
    if (!specs)
        return -1;
    for (size_t i = f->first; i < f->end; i++) {
        const struct pp_tensor_info *t = &s->tensors[i];
        if (pp_shards_bytes(s, f->block, i) == 0 || pp_tensor_before(t) > 0)
            continue;
        specs[n] = (struct pp_tensor_spec){
            .name = pp_shards_name(s, f->block, i),
            .dtype = pp_dtype_of_bytes(s->blocks[f->block].element_bytes)};
        specs[n].n_dims = pp_tensor_file_sizes(t, specs[n].dims);
        n++;
    }
    int rc = pp_tensor_header_make(specs, n, header, bytes, data_bytes, err);
    free(specs);
    return rc;
}

static int create_file(const struct pp_shards *s, const struct pp_shard_file *f,
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
        rc = pp_file_write_at(fd, path, header, bytes, 0, err);
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
        const struct pp_shard_file f = pp_shards_at(s, i);
        if (is_mine(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             create_file(s, &f, path, err)))
            return -1;
    }
    return 0;
}

static size_t table_of(const struct pp_shards *s, const struct pp_parameter *t,
                       struct pp_tensor_info *table)
{
    return pp_unit_params(s->model, pp_model_unit(s->model, t->unit), table);
}

/* A tensor that this rank writes a range of. */
struct written_tensor {
    const struct pp_shards *s;
    const struct pp_parameter *t;
    enum pp_weights_block source;
    struct pp_element_sizes bytes;
    size_t n_rows;
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
};

/* Finds what the rank with these shares writes. Returns false if nothing. */
static bool find_runs(const struct written_tensor *w,
                      const struct pp_shares *shares, struct pp_runs *runs)
{
    struct pp_parameter other = *w->t;
    if (!pp_parameter_at(w->s->params, w->table, w->n_rows, shares, &other))
        return false;
    struct pp_range range =
        pp_parameter_written(w->s->params, &other, w->source);
    *runs = pp_runs_of(&w->t->info, &other.piece, range);
    return range.n > 0;
}

/* The ranks that divide the state of a whole expert are others. */
static bool turns(const struct written_tensor *w,
                  const struct pp_exchange *turn)
{
    bool whole = w->t->expert && w->s->params->experts_whole;
    return w->t->info.transposed && turn->group.n > 1 && !whole;
}

/* Lists in turn the ranges of the ranks that divide the state of a piece. */
static void add_owners(const struct written_tensor *w, struct pp_shares shares,
                       int tp_rank, struct pp_exchange *turn)
{
    struct pp_runs runs;
    turn->n_parts = 0;
    shares.tp_rank = (size_t)tp_rank;
    for (int k = 0; k < turn->group.n; k++) {
        shares.owner = (size_t)k;
        if (find_runs(w, &shares, &runs))
            pp_exchange_add(turn, pp_group_rank(&turn->group, k), &runs);
    }
}

/* Adds what the ranks of the group write. Returns whether they should exchange
 * it. */
static bool add_parts(const struct written_tensor *w, struct pp_exchange *x,
                      struct pp_exchange *turn)
{
    bool pays = false;
    for (int i = 0; i < x->group.n; i++) {
        struct pp_runs runs;
        const struct pp_shares shares = pp_parameter_shares_of(
            w->s->params, w->t, (size_t)i, (size_t)x->group.n);
        if (!find_runs(w, &shares, &runs))
            continue;
        if (turns(w, turn)) {
            add_owners(w, shares, i, turn);
            runs = pp_exchange_share(turn, turn->comm->rank, w->bytes.there);
        }
        if (runs.range.n == 0)
            continue;
        pp_exchange_add(x, pp_group_rank(&x->group, i), &runs);
        pays |= pp_exchange_pays(&runs, w->bytes.there);
    }
    return pays;
}

/* Writes this rank's range, which is in data; NULL if x->failed. Fails if
 * messages fail. */
static int write_tensor(const struct written_tensor *w, struct pp_exchange *x,
                        struct pp_exchange *turn, struct pp_target to,
                        const char *data, struct pp_err *err)
{
    const struct pp_shares *shares = pp_parameter_shares(w->s->params, w->t);
    struct pp_runs own;
    find_runs(w, shares, &own);
    to.bytes = w->bytes;
    if (turns(w, turn)) {
        add_owners(w, *shares, (int)shares->tp_rank, turn);
        own = pp_exchange_share(turn, x->comm->rank, w->bytes.there);
        turn->failed = x->failed;
        if (pp_exchange_turn(turn, w->bytes, data, err))
            return -1;
        x->failed = turn->failed;
        data = x->failed ? NULL : turn->turned;
        to.bytes.here = w->bytes.there;
        if (own.range.n == 0)
            return 0;
    }
    x->n_parts = 0;
    if (x->group.n == 1 || !add_parts(w, x, turn)) {
        x->n_parts = 0;
        pp_exchange_add(x, x->comm->rank, &own);
    }
    return pp_exchange_write(x, &to, data, err);
}

/* Writes the ranges of this rank of tensors whose data start at this offset.
 * fd is -1 if x->failed. Fails if messages fail. */
static int write_tensors(const struct pp_shards *s,
                         const struct pp_shard_file *f,
                         struct pp_staging *staging, struct pp_exchange *x,
                         struct pp_exchange *turn, struct pp_target to,
                         struct pp_err *err)
{
    for (size_t i = f->first; i < f->end; i++) {
        struct written_tensor w = {
            .s = s,
            .t = s->mine[i],
            .source = pp_shards_source_of(s, f->block, i),
            .bytes.there = s->blocks[f->block].element_bytes};
        w.bytes.here = pp_parameters_bytes(s->params, w.source);
        if (written(s, f, i).n > 0) {
            const char *data =
                x->failed ? NULL : pp_staging_read(staging, w.t, w.source, err);
            x->failed |= !data;
            w.n_rows = table_of(s, w.t, w.table);
            if (write_tensor(&w, x, turn, to, data, err))
                return -1;
        }
        to.offset += pp_shards_bytes(s, f->block, i);
    }
    return 0;
}

/* Opens a file and finds where its data begin. Returns -1 on failure. */
static int open_file(const struct pp_shards *s, const struct pp_shard_file *f,
                     const char *path, uint64_t *offset, struct pp_err *err)
{
    char *header;
    size_t bytes;
    uint64_t data_bytes;
    if (make_header(s, f, &header, &bytes, &data_bytes, err))
        return -1;
    free(header);
    *offset = bytes;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? pp_fail_errno(err, "%s: cannot write", path) : fd;
}

/* Writes the ranges of this rank of one file. After a failure of its own the
 * rank still gives the others what they wait for. */
static int fill_file(const struct pp_shards *s, const struct pp_shard_file *f,
                     struct pp_staging *staging, struct pp_exchange *x,
                     struct pp_exchange *turn, const char *checkpoint,
                     struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    struct pp_target to = {.fd = -1, .path = path};
    if (!x->failed && pp_path(path, err, "%s/%s", checkpoint, f->name) == 0)
        to.fd = open_file(s, f, path, &to.offset, err);
    x->failed |= to.fd < 0;
    int rc = write_tensors(s, f, staging, x, turn, to, err);
    if (to.fd >= 0 && close(to.fd) != 0 && !x->failed) {
        pp_fail_errno(err, "%s: cannot write", path);
        x->failed = true;
    }
    return rc;
}

static bool has_any(const struct pp_shards *s, const struct pp_shard_file *f)
{
    for (size_t i = f->first; i < f->end; i++)
        if (written(s, f, i).n > 0)
            return true;
    return false;
}

int pp_shards_fill(const struct pp_shards *s, struct pp_exchange *x,
                   struct pp_exchange *turn, const char *checkpoint,
                   struct pp_err *err)
{
    struct pp_staging staging;
    int rc = 0;
    if (pp_staging_init(&staging, s->params, err))
        x->failed = true;
    for (int i = 0; rc == 0 && i < s->n_files; i++) {
        const struct pp_shard_file f = pp_shards_at(s, i);
        if (has_any(s, &f))
            rc = fill_file(s, &f, &staging, x, turn, checkpoint, err);
    }
    pp_staging_finish(&staging);
    return rc || x->failed ? -1 : 0;
}

int pp_shards_sync(const struct pp_shards *s, const char *checkpoint,
                   struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    for (int i = 0; i < s->n_files; i++) {
        const struct pp_shard_file f = pp_shards_at(s, i);
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
    int rc = pp_checksum_map(data, n, NULL, NULL, sum, err);
    pp_file_unmap(data, n);
    return rc;
}

int pp_shards_sum(const struct pp_shards *s, const char *checkpoint,
                  uint64_t *sums, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    for (int i = 0; i < s->n_files; i++) {
        const struct pp_shard_file f = pp_shards_at(s, i);
        if (is_mine(s, &f) &&
            (pp_path(path, err, "%s/%s", checkpoint, f.name) ||
             sum_file(path, &sums[i], err)))
            return -1;
    }
    return 0;
}
