/* SPDX-License-Identifier: MIT */
/* packed_write - fills the files of a packed directory.
 *
 * The columns are streamed bin by bin; the index, a few bytes per sequence, is
 * built in memory and written last. */
#include "data/packed_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"
#include "data/packed_place.h"

enum { BUFFER_BYTES = 1 << 20, N_COLUMNS = PP_PACKED_N_FILES - 1 };

/* A file being written. */
struct sink {
    FILE *f;
    char *path;
    uint64_t sum;
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

/* A sequence's values, then its padding. */
static int put_slot(struct sink *s, const int32_t *values,
                    const struct pp_piece *q, int32_t pad, struct pp_err *err)
{
    if (sink_put(s, values, q->length * sizeof *values, err) != 0)
        return -1;
    for (uint32_t i = q->length; i < q->slot; i++)
        if (sink_put(s, &pad, sizeof pad, err) != 0)
            return -1;
    return 0;
}

static int put_columns(struct sink columns[N_COLUMNS],
                       const struct pp_packed_content *c, struct pp_err *err)
{
    const int32_t *labels = c->labels ? c->labels : c->ids;
    for (size_t b = 0; b < c->n_bins; b++) {
        for (size_t i = c->first[b]; i < c->first[b + 1]; i++) {
            const struct pp_piece *q = &c->pieces[c->items[i]];
            if (put_slot(&columns[PP_PACKED_INPUT_IDS - 1], c->ids + q->at, q,
                         0, err) != 0 ||
                put_slot(&columns[PP_PACKED_LABELS - 1], labels + q->at, q,
                         PP_LABEL_IGNORE, err) != 0)
                return -1;
        }
        if (c->progress && b % 64 == 0)
            c->progress(c->ctx, b);
    }
    return 0;
}

/* Offsets of all sections after the header, each at a multiple of 8. */
static void lay_out(struct pp_packed_header *h)
{
    uint64_t at = sizeof *h, cu = (h->n_sequences + h->n_bins) * 4;
    h->columns = at;
    at += h->n_columns * sizeof(struct pp_packed_column);
    h->bins = at;
    at += h->n_bins * sizeof(struct pp_packed_record);
    h->cu_seqlens = at = pp_round_up(at, 8);
    at += cu;
    h->cu_seqlens_padded = at = pp_round_up(at, 8);
    at += cu;
    h->source = at = pp_round_up(at, 8);
    at += h->n_sequences * 4;
    h->start = at = pp_round_up(at, 8);
    at += h->n_sequences * 4;
    h->index_bytes = pp_round_up(at, 8);
}

/* Scored labels of one piece; raises *vocab to cover its ids. */
static uint32_t scan(const struct pp_packed_content *c,
                     const struct pp_piece *q, uint32_t *vocab)
{
    const int32_t *ids = c->ids + q->at;
    const int32_t *labels = c->labels ? c->labels + q->at : ids;
    uint32_t scored = 0;
    int32_t largest = -1;
    for (uint32_t i = 0; i < q->length; i++) {
        largest = ids[i] > largest ? ids[i] : largest;
        largest = labels[i] > largest ? labels[i] : largest;
        scored += i > 0 && labels[i] != PP_LABEL_IGNORE;
    }
    if (largest >= 0 && (uint32_t)largest >= *vocab)
        *vocab = (uint32_t)largest + 1;
    return scored;
}

/* Fills the record and arrays of bin b, whose first_sequence and first_slot
 * are set. */
static void fill_bin(struct pp_packed_header *h, size_t b,
                     const struct pp_packed_content *c)
{
    char *base = (char *)h;
    struct pp_packed_record *r =
        (struct pp_packed_record *)(void *)(base + h->bins) + b;
    size_t at = r->first_sequence;
    int32_t *cu = (int32_t *)(void *)(base + h->cu_seqlens) + at + b;
    int32_t *padded = (int32_t *)(void *)(base + h->cu_seqlens_padded) + at + b;
    uint32_t *source = (uint32_t *)(void *)(base + h->source) + at;
    uint32_t *start = (uint32_t *)(void *)(base + h->start) + at;
    for (size_t i = c->first[b]; i < c->first[b + 1]; i++) {
        const struct pp_piece *q = &c->pieces[c->items[i]];
        *source++ = q->source;
        *start++ = q->start;
        cu[1] = cu[0] + (int32_t)q->length;
        padded[1] = padded[0] + (int32_t)q->slot;
        cu++;
        padded++;
        r->scored += scan(c, q, &h->vocab);
        r->max_seqlen = q->slot > r->max_seqlen ? q->slot : r->max_seqlen;
    }
    r->n_sequences = r->n_groups = (uint32_t)(c->first[b + 1] - c->first[b]);
    r->real = (uint32_t)*cu;
    r->tokens = (uint32_t)*padded;
}

static void fill_bins(struct pp_packed_header *h,
                      const struct pp_packed_content *c)
{
    struct pp_packed_record *r =
        (struct pp_packed_record *)(void *)((char *)h + h->bins);
    for (size_t b = 0; b < c->n_bins; b++, r++) {
        r->first_sequence = c->first[b];
        r->first_slot = h->n_slots;
        fill_bin(h, b, c);
        h->n_slots += r->tokens;
        h->n_tokens += r->real;
        h->max_tokens = r->tokens > h->max_tokens ? r->tokens : h->max_tokens;
        h->max_seqlen =
            r->max_seqlen > h->max_seqlen ? r->max_seqlen : h->max_seqlen;
    }
}

static void fill_columns(struct pp_packed_header *h,
                         const struct sink columns[N_COLUMNS])
{
    struct pp_packed_column *t =
        (struct pp_packed_column *)(void *)((char *)h + h->columns);
    for (int i = 0; i < N_COLUMNS; i++) {
        memcpy(t[i].name, pp_packed_files[i + 1],
               strlen(pp_packed_files[i + 1]));
        t[i].scope = PP_SCOPE_TOKEN;
        t[i].dtype = PP_COLUMN_INT32;
        t[i].n = h->n_slots;
        t[i].checksum = columns[i].sum;
    }
}

/* The whole index in memory, to be freed. */
static struct pp_packed_header *make_index(const struct pp_packed_content *c,
                                           const struct sink columns[N_COLUMNS],
                                           struct pp_err *err)
{
    struct pp_packed_header head = {
        .magic = PP_PACKED_MAGIC,
        .version = PP_PACKED_VERSION,
        .header_bytes = sizeof head,
        .n_bins = c->n_bins,
        .n_sequences = c->first[c->n_bins],
        .n_inputs = c->n_inputs,
        .capacity = c->capacity,
        .align = c->align,
        .n_columns = N_COLUMNS,
    };
    lay_out(&head);
    struct pp_packed_header *h = calloc(1, head.index_bytes);
    if (!h) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        return NULL;
    }
    *h = head;
    fill_bins(h, c);
    fill_columns(h, columns);
    h->checksum = pp_packed_sum(h, h->index_bytes);
    return h;
}

static int write_files(const struct pp_place *place,
                       const struct pp_packed_content *c,
                       struct sink files[PP_PACKED_N_FILES], struct pp_err *err)
{
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if (sink_open(&files[i], place, pp_packed_files[i], err) != 0)
            return -1;
    if (put_columns(files + 1, c, err) != 0)
        return -1;
    struct pp_packed_header *h = make_index(c, files + 1, err);
    if (!h)
        return -1;
    int rc = sink_put(&files[PP_PACKED_INDEX], h, h->index_bytes, err);
    free(h);
    for (int i = 0; i < PP_PACKED_N_FILES && rc == 0; i++)
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
