/* SPDX-License-Identifier: MIT */
/* packed_write - fills the files of a packed directory.
 *
 * The columns are streamed bin by bin; the index is written last. */
#include "data/packed_write.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/packed.h"
#include "data/packed_format.h"
#include "data/packed_index.h"
#include "data/packed_place.h"

enum { BUFFER_BYTES = 1 << 20 };

/* A file being written. */
struct sink {
    FILE *f;
    char *path;
    uint64_t sum;
    bool unsummed; /* its checksum is known otherwise */
};

static int sink_open(struct sink *s, const struct pp_place *place,
                     const char *name, struct pp_err *err)
{
    s->sum = PP_FNV_START;
    s->path = pp_place_path(place, name);
    if (!s->path)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    s->f = fopen(s->path, "wbe");
    if (!s->f)
        return pp_fail_errno(err, "%s", s->path);
    setvbuf(s->f, NULL, _IOFBF, BUFFER_BYTES);
    return 0;
}

static int sink_put(struct sink *s, const void *data, size_t bytes,
                    struct pp_err *err)
{
    if (fwrite(data, 1, bytes, s->f) != bytes)
        return pp_fail_errno(err, "%s: cannot write", s->path);
    if (!s->unsummed)
        s->sum = pp_fnv(s->sum, data, bytes);
    return 0;
}

static int sink_sync(struct sink *s, struct pp_err *err)
{
    if (fflush(s->f) != 0 || fsync(fileno(s->f)) != 0)
        return pp_fail_errno(err, "%s: cannot write", s->path);
    return 0;
}

static void sink_close(struct sink *s)
{
    if (s->f)
        fclose(s->f);
    free(s->path);
    *s = (struct sink){0};
}

/* The elements of one sequence, then its padding. Elements of all columns have
 * the size of an int32. */
static int put_slot(struct sink *s, const void *values, const struct pp_part *p,
                    int32_t pad, struct pp_err *err)
{
    if (sink_put(s, values, p->length * sizeof pad, err) != 0)
        return -1;
    for (uint32_t i = p->length; i < p->slot; i++)
        if (sink_put(s, &pad, sizeof pad, err) != 0)
            return -1;
    return 0;
}

/* A sequence's elements of one of the float columns; the group's go with the
 * first of its sequences. */
static int put_values(struct sink *s, const struct pp_packed_content *c,
                      enum pp_column column, const struct pp_piece *q,
                      const struct pp_part *p, bool is_first,
                      struct pp_err *err)
{
    const float *values = c->docs->columns[column];
    switch (pp_columns[column].scope) {
    case PP_SCOPE_TOKEN:
        return put_slot(s, values + p->at, p, 0, err);
    case PP_SCOPE_SEQUENCE:
        return sink_put(s, values + p->sequence, sizeof *values, err);
    default:
        return is_first ? sink_put(s, values + c->first_document + q->source,
                                   sizeof *values, err)
                        : 0;
    }
}

static int put_part(struct sink files[PP_PACKED_N_FILES],
                    const struct pp_packed_content *c, const struct pp_piece *q,
                    uint32_t k, struct pp_err *err)
{
    struct pp_part p = pp_piece_part(c, q, k);
    const int32_t *labels = c->labels ? c->labels : c->ids;
    if (c->ids && (put_slot(&files[PP_PACKED_INPUT_IDS], c->ids + p.at, &p, 0,
                            err) != 0 ||
                   put_slot(&files[PP_PACKED_LABELS], labels + p.at, &p,
                            PP_LABEL_IGNORE, err) != 0))
        return -1;
    for (int i = 0; i < PP_N_COLUMNS; i++)
        if (pp_content_has(c, PP_PACKED_COLUMNS + i) &&
            put_values(&files[PP_PACKED_COLUMNS + i], c, (enum pp_column)i, q,
                       &p, k == 0, err) != 0)
            return -1;
    return 0;
}

static int put_columns(struct sink files[PP_PACKED_N_FILES],
                       const struct pp_packed_content *c, struct pp_err *err)
{
    for (size_t b = 0, said = 0; b < c->n_bins; b++) {
        for (size_t i = c->first[b]; i < c->first[b + 1]; i++) {
            const struct pp_piece *q = &c->pieces[c->items[i]];
            uint32_t n = pp_piece_n_parts(c, q);
            for (uint32_t k = 0; k < n; k++)
                if (put_part(files, c, q, k, err) != 0)
                    return -1;
        }
        if (c->progress && c->first[b + 1] - said >= PP_PROGRESS_PIECES) {
            said = c->first[b + 1];
            c->progress(c->ctx, b);
        }
    }
    return 0;
}

/* Whether labels and ids are the same bytes, so that one checksum will do:
 * without labels, where nothing is padded. */
static bool labels_are_ids(const struct pp_packed_content *c)
{
    bool same = !c->labels;
    for (size_t i = 0; same && i < c->first[c->n_bins]; i++) {
        const struct pp_piece *q = &c->pieces[c->items[i]];
        same = q->slot == q->length;
    }
    return same;
}

static int write_files(const struct pp_place *place,
                       const struct pp_packed_content *c,
                       struct sink files[PP_PACKED_N_FILES], struct pp_err *err)
{
    uint64_t sums[PP_PACKED_N_FILES];
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if ((i == PP_PACKED_INDEX || pp_content_has(c, i)) &&
            sink_open(&files[i], place, pp_packed_name(i), err) != 0)
            return -1;
    files[PP_PACKED_LABELS].unsummed = labels_are_ids(c);
    if (put_columns(files, c, err) != 0)
        return -1;
    if (files[PP_PACKED_LABELS].unsummed)
        files[PP_PACKED_LABELS].sum = files[PP_PACKED_INPUT_IDS].sum;
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        sums[i] = files[i].sum;
    struct pp_packed_header *h = pp_packed_make_index(c, sums, err);
    if (!h)
        return -1;
    int rc = sink_put(&files[PP_PACKED_INDEX], h, h->index_bytes, err);
    free(h);
    for (int i = 0; i < PP_PACKED_N_FILES && rc == 0; i++)
        if (files[i].f)
            rc = sink_sync(&files[i], err);
    return rc;
}

int pp_packed_write(const char *dir, const struct pp_packed_content *c,
                    struct pp_err *err)
{
    struct pp_place place;
    struct sink files[PP_PACKED_N_FILES] = {0};
    if (pp_place_open(&place, dir, err) != 0)
        return -1;
    int rc = write_files(&place, c, files, err);
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        sink_close(&files[i]);
    if (rc != 0)
        pp_place_abort(&place);
    else
        rc = pp_place_commit(&place, err);
    return rc;
}
