/* SPDX-License-Identifier: MIT */
/* write - writes a packed directory. The columns are streamed bin by
 * bin; the index is written last. It is one file because the files, their
 * checksums and the exchange of directories make one atomic write. */
#include "data/packed/packed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/packed/format.h"

/* A directory that is written beside its place and then put there. Readers see
 * the old directory or the new one, never a mixture: one rename exchanges the
 * two, if the kernel and the file system can do that. */
struct output_place {
    char *dir;         /* the place, symbolic links followed */
    struct pp_tmp tmp; /* the directory to write */
};

static char *join3(const char *a, const char *between, const char *b)
{
    size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *s = pp_calloc(n, 1);
    snprintf(s, n, "%s%s%s", a, between, b);
    return s;
}

static bool is_packed_file(const char *name)
{
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if (!strcmp(name, pp_packed_name(i)))
            return true;
    return false;
}

/* Counts the directory's files in *n. Fails at the first that does not belong
 * to a packed directory. */
static int check_entries(const char *dir, size_t *n, struct pp_err *err)
{
    const struct dirent *e;
    int rc = 0;
    DIR *d = opendir(dir);
    if (!d)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %s", dir, strerror(errno));
    while (rc == 0 && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        ++*n;
        if (!is_packed_file(e->d_name))
            rc =
                pp_fail(err, PP_EXIT_INPUT,
                        "%s: has a file '%s', so it is not a packed directory; "
                        "it is left as it is",
                        dir, e->d_name);
    }
    closedir(d);
    return rc;
}

int pp_packed_may_write(const char *dir, struct pp_err *err)
{
    struct stat st;
    size_t n = 0;
    if (!*dir)
        return pp_fail(err, PP_EXIT_INPUT, "'' is not the name of a directory");
    if (lstat(dir, &st) != 0 && errno == ENOENT)
        return 0;
    if (!pp_file_is_dir(dir))
        return pp_fail(err, PP_EXIT_INPUT, "%s: exists and is not a directory",
                       dir);
    if (check_entries(dir, &n, err) != 0)
        return -1;
    if (n > 0 && !pp_packed_is(dir))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: exists and is not a packed directory", dir);
    return 0;
}

/* Removes the files of a packed directory, and the directory. Needs no memory,
 * since it may run after an allocation failed. */
static void remove_packed(const char *dir)
{
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        unlinkat(d, pp_packed_name(i), 0);
    if (d >= 0)
        close(d);
    rmdir(dir);
}

static void free_place(struct output_place *p)
{
    free(p->dir);
    pp_tmp_finish(&p->tmp);
    *p = (struct output_place){0};
}

/* Returns dir with links followed, or without trailing slashes if it does not
 * exist. */
static char *resolve_links(const char *dir)
{
    char *s = realpath(dir, NULL);
    if (s)
        return s;
    s = pp_strdup(dir);
    for (size_t n = strlen(s); n > 1 && s[n - 1] == '/'; n--)
        s[n - 1] = '\0';
    return s;
}

static int place_open(struct output_place *p, const char *dir,
                      struct pp_err *err)
{
    *p = (struct output_place){0};
    if (pp_packed_may_write(dir, err) != 0)
        return -1;
    p->dir = resolve_links(dir);
    if (pp_tmp_make(&p->tmp, p->dir, remove_packed, err) == 0)
        return 0;
    free_place(p);
    return -1;
}

/* Does without an exchanging rename: moves the old directory aside, and back if
 * the second rename fails. */
static int swap_by_steps(const struct output_place *p, struct pp_err *err)
{
    char *old = join3(p->dir, ".old", "");
    int rc = 0;
    if (rename(p->dir, old) != 0)
        rc = pp_fail_errno(err, "%s: cannot rename", p->dir);
    else if (rename(p->tmp.path, p->dir) != 0) {
        rc = pp_fail_errno(err, "%s: cannot rename", p->tmp.path);
        if (rename(old, p->dir) != 0)
            pp_fail_at(err, "%s is now %s: ", p->dir, old);
    } else
        remove_packed(old);
    free(old);
    return rc;
}

static int put_in_place(const struct output_place *p, struct pp_err *err)
{
    /* A plain rename replaces nothing, or an empty directory. */
    if (rename(p->tmp.path, p->dir) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return pp_fail_errno(err, "%s: cannot rename", p->tmp.path);
    if (renameat2(AT_FDCWD, p->tmp.path, AT_FDCWD, p->dir, RENAME_EXCHANGE) ==
        0) {
        remove_packed(p->tmp.path);
        return 0;
    }
    return swap_by_steps(p, err);
}

static int sync_parent(const char *dir, struct pp_err *err)
{
    char *parent = pp_strdup(dir);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    int rc = pp_file_sync(slash ? parent : ".", err);
    free(parent);
    return rc;
}

static void place_abort(struct output_place *p)
{
    if (p->tmp.path)
        remove_packed(p->tmp.path);
    free_place(p);
}

static int place_commit(struct output_place *p, struct pp_err *err)
{
    if (pp_file_sync(p->tmp.path, err) != 0 ||
        pp_packed_may_write(p->dir, err) != 0 || put_in_place(p, err) != 0) {
        place_abort(p);
        return -1;
    }
    int rc = sync_parent(p->dir, err);
    free_place(p);
    return rc;
}

/* PROGRESS_ROWS: bytes of rows between two reports. */
enum { BUFFER_BYTES = 1 << 20, PROGRESS_ROWS = 64 << 20 };

/* A file being written. */
struct summed_file {
    FILE *f;
    char *path; /* for messages: the place of the file */
    struct pp_checksum_sum sum;
};

static int summed_open(struct summed_file *s, const struct output_place *place,
                       const char *name, struct pp_err *err)
{
    s->path = join3(place->dir, "/", name);
    if (pp_checksum_begin(&s->sum, err))
        return -1;
    int fd = openat(place->tmp.lock, name,
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    s->f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!s->f) {
        pp_fail_errno(err, "%s", s->path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setvbuf(s->f, NULL, _IOFBF, BUFFER_BYTES);
    return 0;
}

static int summed_put(struct summed_file *s, const void *data, size_t bytes,
                      struct pp_err *err)
{
    if (fwrite(data, 1, bytes, s->f) != bytes)
        return pp_fail_errno(err, "%s: cannot write", s->path);
    pp_checksum_add(&s->sum, data, bytes);
    return 0;
}

static int summed_sync(struct summed_file *s, struct pp_err *err)
{
    if (fflush(s->f) != 0 || fsync(fileno(s->f)) != 0)
        return pp_fail_errno(err, "%s: cannot write", s->path);
    return 0;
}

static void summed_close(struct summed_file *s)
{
    if (s->f)
        fclose(s->f);
    free(s->path);
    pp_checksum_finish(&s->sum);
    *s = (struct summed_file){0};
}

/* Writes the elements of one sequence, `width` for each token, then its
 * padding. Elements of all columns have the size of an int32. */
static int put_padded(struct summed_file *s, const void *values,
                      const struct pp_part *p, size_t width, int32_t pad,
                      struct pp_err *err)
{
    if (summed_put(s, values, p->length * width * sizeof pad, err) != 0)
        return -1;
    for (size_t i = p->length * width; i < p->padded * width; i++)
        if (summed_put(s, &pad, sizeof pad, err) != 0)
            return -1;
    return 0;
}

/* Writes a sequence's elements of a column. The element of a group is
 * written with its first sequence. */
static int put_values(struct summed_file *s, const struct pp_packed_content *c,
                      enum pp_column column, const struct pp_piece *q,
                      const struct pp_part *p, bool is_first,
                      struct pp_err *err)
{
    const float *values = c->docs->columns[column];
    size_t width = pp_column_width(column, c->docs->top_k);
    switch (pp_columns[column].scope) {
    case PP_SCOPE_TOKEN:
        return put_padded(s, values + p->at * width, p, width,
                          pp_columns[column].pad, err);
    case PP_SCOPE_SEQUENCE:
        return summed_put(s, values + p->sequence, sizeof *values, err);
    default:
        return is_first ? summed_put(s, values + c->first_document + q->source,
                                     sizeof *values, err)
                        : 0;
    }
}

/* Writes the rows of a sequence's items. */
static int put_rows(struct summed_file *s, const struct pp_items *items,
                    size_t sequence, struct pp_err *err)
{
    const struct pp_item *at;
    size_t n = pp_items_of(items, sequence, &at);
    size_t width = items->kind.width;
    for (size_t k = 0; k < n; k++)
        if (summed_put(s, items->values + at[k].first_row * width,
                       at[k].rows * width * sizeof(float), err) != 0)
            return -1;
    return 0;
}

static int put_part(struct summed_file files[PP_PACKED_N_FILES],
                    const struct pp_packed_content *c, const struct pp_piece *q,
                    uint32_t k, struct pp_err *err)
{
    struct pp_part p = pp_piece_part(c, q, k);
    const int32_t *labels = c->labels ? c->labels : c->ids;
    if (put_padded(&files[PP_PACKED_INPUT_IDS], c->ids + p.at, &p, 1, 0, err) !=
            0 ||
        put_padded(&files[PP_PACKED_LABELS], labels + p.at, &p, 1,
                   PP_LABEL_IGNORE, err) != 0)
        return -1;
    for (int i = 0; i < PP_N_COLUMNS; i++)
        if (files[PP_PACKED_COLUMNS + i].f &&
            put_values(&files[PP_PACKED_COLUMNS + i], c, (enum pp_column)i, q,
                       &p, k == 0, err) != 0)
            return -1;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (files[PP_PACKED_ROWS + m].f &&
            put_rows(&files[PP_PACKED_ROWS + m], &c->docs->items[m], p.sequence,
                     err) != 0)
            return -1;
    return 0;
}

/* Returns the bytes of rows so far. */
static uint64_t row_bytes(const struct summed_file files[PP_PACKED_N_FILES])
{
    uint64_t n = 0;
    for (int i = PP_PACKED_ROWS; i < PP_PACKED_N_FILES; i++)
        n += files[i].f ? (uint64_t)ftello(files[i].f) : 0;
    return n;
}

static int write_columns(struct summed_file files[PP_PACKED_N_FILES],
                         const struct pp_packed_content *c, struct pp_err *err)
{
    uint64_t reported_bytes = 0;
    for (size_t b = 0, reported = 0; b < c->n_bins; b++) {
        for (size_t i = c->first[b]; i < c->first[b + 1]; i++) {
            const struct pp_piece *q = &c->pieces[c->items[i]];
            uint32_t n = pp_piece_n_parts(c, q);
            for (uint32_t k = 0; k < n; k++)
                if (put_part(files, c, q, k, err) != 0)
                    return -1;
        }
        if (c->progress &&
            (c->first[b + 1] - reported >= PP_PROGRESS_PIECES ||
             row_bytes(files) - reported_bytes >= PROGRESS_ROWS)) {
            reported = c->first[b + 1];
            reported_bytes = row_bytes(files);
            c->progress(c->ctx, b);
        }
    }
    return 0;
}

static int write_files(const struct output_place *place,
                       const struct pp_packed_content *c,
                       struct summed_file files[PP_PACKED_N_FILES],
                       struct pp_err *err)
{
    uint64_t sums[PP_PACKED_N_FILES] = {0};
    bool has[PP_PACKED_N_FILES];
    pp_packed_content_files(c, has);
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if (has[i] &&
            summed_open(&files[i], place, pp_packed_name(i), err) != 0)
            return -1;
    if (write_columns(files, c, err) != 0)
        return -1;
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if (files[i].f)
            sums[i] = pp_checksum_value(&files[i].sum);
    struct pp_packed_header *h = pp_packed_make_index(c, has, sums, err);
    if (!h)
        return -1;
    int rc = summed_put(&files[PP_PACKED_INDEX], h, h->index_bytes, err);
    free(h);
    for (int i = 0; i < PP_PACKED_N_FILES && rc == 0; i++)
        if (files[i].f)
            rc = summed_sync(&files[i], err);
    return rc;
}

int pp_packed_write(const char *dir, const struct pp_packed_content *c,
                    struct pp_err *err)
{
    struct output_place place;
    struct summed_file files[PP_PACKED_N_FILES] = {0};
    if (place_open(&place, dir, err) != 0)
        return -1;
    int rc = write_files(&place, c, files, err);
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        summed_close(&files[i]);
    if (rc != 0)
        place_abort(&place);
    else
        rc = place_commit(&place, err);
    return rc;
}
