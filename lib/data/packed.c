/* SPDX-License-Identifier: MIT */
/* packed - reads packed directories.
 *
 * pp_packed_open makes sure that every offset that pp_packed_bin follows is
 * inside the maps. packed_sections.c has these checks, packed_check.c those of
 * the contents. */
#include "data/packed.h"

#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "data/packed_format.h"
#include "data/documents.h"

const char *pp_packed_name(int file)
{
    static const char *const first[] = {"index", "input_ids", "labels"};
    static const char *const rows[PP_N_MODALITIES] = {"pixels", "audio"};
    if (file >= PP_PACKED_ROWS)
        return rows[file - PP_PACKED_ROWS];
    return file < PP_PACKED_COLUMNS ? first[file]
                                    : pp_columns[file - PP_PACKED_COLUMNS].name;
}

bool pp_packed_is(const char *dir)
{
    char magic[8];
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int f = openat(d, pp_packed_name(PP_PACKED_INDEX), O_RDONLY | O_CLOEXEC);
    bool good =
        f >= 0 && read(f, magic, 8) == 8 && !memcmp(magic, PP_PACKED_MAGIC, 8);
    if (f >= 0)
        close(f);
    if (d >= 0)
        close(d);
    return good;
}

static int map_packed_file(struct pp_packed *p, const char *dir, int file,
                           struct pp_err *err)
{
    size_t n = strlen(dir) + strlen(pp_packed_name(file)) + 2;
    char *path = malloc(n);
    if (!path)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    snprintf(path, n, "%s/%s", dir, pp_packed_name(file));
    int rc = pp_file_map(path, &p->map[file], &p->map_bytes[file], err);
    free(path);
    return rc;
}

/* Returns the entry of that name in the table of columns, or NULL. */
static const struct pp_packed_column *find_entry(const struct pp_packed *p,
                                                 const char *name)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_column *c = p->sections[PP_SECTION_COLUMNS];
    for (uint32_t i = 0; i < h->n_columns; i++)
        if (!strncmp(c[i].name, name, sizeof c[i].name))
            return &c[i];
    return NULL;
}

const struct pp_packed_column *pp_packed_column(const struct pp_packed *p,
                                                int file)
{
    return find_entry(p, pp_packed_name(file));
}

/* Returns the stream whose rows the file has, or NULL. */
static const struct pp_packed_stream *stream_of(const struct pp_packed *p,
                                                int file)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_stream_exists(&p->streams[m]) && p->streams[m].file == file)
            return &p->streams[m];
    return NULL;
}

/* Returns how many elements a column has, with lists of one. */
static uint64_t n_column_elements(const struct pp_packed *p, int file)
{
    const struct pp_packed_stream *s = stream_of(p, file);
    switch (pp_packed_scope(file)) {
    case PP_SCOPE_TOKEN:
        return p->n_positions;
    case PP_SCOPE_SEQUENCE:
        return p->n_sequences;
    case PP_SCOPE_ROW:
        return s ? s->n_rows * s->width : 0;
    default:
        return p->n_groups;
    }
}

static const char *const scope_names[] = {"token", "sequence", "group",
                                          "value of a row"};

/* Checks the size of a column of lists, and that all of them are as long. */
static int check_list(struct pp_packed *p, const struct pp_packed_column *c,
                      struct pp_err *err)
{
    if (c->width < 1 || c->width > PP_LONGEST_LIST ||
        c->n != p->n_positions * c->width)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: column '%.32s' must have a list per token, of 1 "
                       "to %d elements",
                       c->name, PP_LONGEST_LIST);
    if (p->top_k && c->width != p->top_k)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: lists of column '%.32s' have '%" PRIu32
                       "' elements, and those of another column %" PRIu32,
                       c->name, c->width, p->top_k);
    p->top_k = c->width;
    return 0;
}

/* Returns whether the set may do without the column of a file. */
static bool is_optional(const struct pp_packed *p, int file)
{
    if (pp_packed_is_generator(file))
        return !pp_packed_has_generator(p);
    return file >= PP_PACKED_COLUMNS && file < PP_PACKED_ROWS;
}

/* Checks the type and size of a column. Ids and labels are int32 and required;
 * the others are floats. */
static int check_column(struct pp_packed *p, int file, struct pp_err *err)
{
    const struct pp_packed_column *c = pp_packed_column(p, file);
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_column *all = p->sections[PP_SECTION_COLUMNS];
    bool is_float = !pp_packed_is_int(file);
    bool is_stream = file >= PP_PACKED_ROWS;
    unsigned scope = pp_packed_scope(file);
    bool is_list = pp_packed_is_list(file);
    if (is_stream && !stream_of(p, file))
        return 0;
    if (!c && is_optional(p, file))
        return 0;
    if (c && is_float && !is_stream && pp_packed_has_generator(p))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: has a generator, so it cannot have '%s'",
                       pp_packed_name(file));
    if (!c)
        return pp_fail(err, PP_EXIT_INPUT, "index: has no column '%s'",
                       pp_packed_name(file));
    if (c->scope != scope ||
        c->dtype != (is_float ? PP_COLUMN_FLOAT32 : PP_COLUMN_INT32) ||
        (!is_list && c->n != n_column_elements(p, file)))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: column '%s' must have one %s per %s",
                       pp_packed_name(file), is_float ? "float32" : "int32",
                       scope_names[scope]);
    if (is_list && check_list(p, c, err))
        return -1;
    for (const struct pp_packed_column *o = c + 1; o < all + h->n_columns; o++)
        if (!strncmp(o->name, c->name, sizeof c->name))
            return pp_fail(err, PP_EXIT_INPUT, "index: has two columns '%s'",
                           pp_packed_name(file));
    return 0;
}

static int check_packed_index(struct pp_packed *p, struct pp_err *err)
{
    if (pp_packed_find_sections(p, err) != 0 ||
        pp_packed_check_sections(p, err) != 0)
        return -1;
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (check_column(p, f, err) != 0)
            return -1;
    const struct pp_packed_column *origin = find_entry(p, PP_PACKED_ORIGIN);
    p->origin = origin ? origin->checksum : p->checksum.value;
    return 0;
}

static int open_column(struct pp_packed *p, const char *dir, int file,
                       struct pp_err *err)
{
    const struct pp_packed_column *c = pp_packed_column(p, file);
    size_t bytes;
    if (!c || (pp_packed_is_generator(file) && !pp_packed_has_generator(p)) ||
        (file >= PP_PACKED_ROWS && !stream_of(p, file)))
        return 0;
    if (pp_mul(c->n, sizeof(int32_t), &bytes, err) != 0 ||
        map_packed_file(p, dir, file, err) != 0)
        return -1;
    if (p->map_bytes[file] != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s/%s: has '%zu' bytes, but the index says %zu", dir,
                       pp_packed_name(file), p->map_bytes[file], bytes);
    return 0;
}

int pp_packed_open(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    memset(p, 0, sizeof *p);
    p->dir = strdup(dir);
    if (!p->dir) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto bad;
    }
    if (map_packed_file(p, dir, PP_PACKED_INDEX, err) != 0)
        goto bad;
    if (check_packed_index(p, err) != 0) {
        pp_fail_at(err, "%s/", dir);
        goto bad;
    }
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (open_column(p, dir, f, err) != 0)
            goto bad;
    return 0;
bad:
    pp_packed_finish(p);
    return -1;
}

/* Returns element i of a section or map of 4-byte elements, or NULL if it is
 * absent. */
static const void *element_at(const void *base, uint64_t i)
{
    return base ? (const uint32_t *)base + i : NULL;
}

void pp_packed_bin(const struct pp_packed *p, size_t b, struct pp_bin *out)
{
    const struct pp_packed_record *r =
        (const struct pp_packed_record *)p->sections[PP_SECTION_BINS] + b;
    const uint64_t *first_group = p->sections[PP_SECTION_FIRST_GROUP];
    uint64_t cu = r->first_sequence + b;
    uint64_t group = first_group ? first_group[b] : r->first_sequence;
    *out = (struct pp_bin){
        .n_sequences = r->n_sequences,
        .tokens = r->tokens,
        .scored = r->scored,
        .n_groups = r->n_groups,
        .max_seqlen = r->max_seqlen,
        .first_position = r->first_position,
        .cu_seqlens = element_at(p->sections[PP_SECTION_CU], cu),
        .cu_seqlens_padded = element_at(p->sections[PP_SECTION_CU_PADDED], cu),
        .source = element_at(p->sections[PP_SECTION_SOURCE], r->first_sequence),
        .start = element_at(p->sections[PP_SECTION_START], r->first_sequence),
        .input_ids = element_at(p->map[PP_PACKED_INPUT_IDS], r->first_position),
        .labels = element_at(p->map[PP_PACKED_LABELS], r->first_position),
        .top_k = p->top_k,
        .cu_groups = element_at(p->sections[PP_SECTION_CU_GROUPS], group + b),
        .ranks = element_at(p->sections[PP_SECTION_RANKS], r->first_sequence),
    };
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        const uint64_t first[] = {r->first_position, r->first_sequence, group};
        out->columns[c] = element_at(p->map[PP_PACKED_COLUMNS + c],
                                     first[pp_columns[c].scope] *
                                         pp_column_width(c, p->top_k));
    }
}

/* The sum of the sections that place the sequences, then of the checksums of
 * their ids. */
int pp_packed_sequences(const struct pp_packed *p, uint64_t *hash,
                        struct pp_err *err)
{
    const struct pp_packed_column *ids =
        pp_packed_column(p, PP_PACKED_INPUT_IDS);
    static const int lists[] = {PP_SECTION_CU, PP_SECTION_CU_PADDED,
                                PP_SECTION_SOURCE, PP_SECTION_START};
    struct pp_checksum_sum sum = {0};
    if (pp_checksum_begin(&sum, err))
        return -1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t n = p->n_sequences + (i < 2 ? p->n_bins : 0);
        pp_checksum_add(&sum, p->sections[lists[i]], n * sizeof(int32_t));
    }
    if (ids) /* absent from a set in memory */
        pp_checksum_add(&sum, &ids->checksum, sizeof ids->checksum);
    *hash = pp_checksum_value(&sum);
    *hash += *hash == 0;
    pp_checksum_finish(&sum);
    return 0;
}

void pp_packed_finish(struct pp_packed *p)
{
    free(p->dir);
    free(p->owned);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        free(p->owned_items[m]);
    for (int i = 0; i < PP_PACKED_N_FILES && !p->owned; i++)
        pp_file_unmap(p->map[i], p->map_bytes[i]);
    memset(p, 0, sizeof *p);
}

static void release_pages(const void *data, size_t bytes)
{
    if (bytes) /* madvise(2) changes nothing in a file */
        (void)madvise((void *)(uintptr_t)data, bytes, MADV_DONTNEED);
}

void pp_packed_release(const struct pp_packed *p)
{
    /* Memory of the program itself would be lost. */
    for (int i = 0; i < PP_PACKED_N_FILES && !p->owned; i++)
        release_pages(p->map[i], p->map_bytes[i]);
}
