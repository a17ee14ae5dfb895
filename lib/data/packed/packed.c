/* SPDX-License-Identifier: MIT */
/* packed - reads packed directories, in the order of an epoch.
 *
 * pp_packed_open makes sure that every offset that pp_packed_bin follows is
 * inside the maps. sections.c has these checks, check.c has the
 * checks of the contents. */
#include "data/packed/packed.h"

#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/foreign.h"
#include "base/num.h"
#include "base/rng.h"
#include "data/packed/format.h"
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
    int f = openat(d, pp_packed_name(PP_PACKED_INDEX),
                   O_RDONLY | O_NONBLOCK | O_CLOEXEC);
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

static int open_column(struct pp_packed *p, const char *dir, int file,
                       struct pp_err *err)
{
    const struct pp_packed_array *c = pp_packed_column(p, file);
    size_t bytes;
    if (!c)
        return 0;
    if (pp_mul(c->n, c->width * sizeof(int32_t), &bytes, err) != 0 ||
        map_packed_file(p, dir, file, err) != 0)
        return -1;
    if (p->map_bytes[file] != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s/%s: has '%zu' bytes, but the index says %zu", dir,
                       pp_packed_name(file), p->map_bytes[file], bytes);
    return 0;
}

/* Maps the index, or fails with what a path is that has none. */
static int map_index(struct pp_packed *p, const char *dir, struct pp_err *err)
{
    struct pp_err missing = {0}, ignored = {0};
    const void **map = &p->map[PP_PACKED_INDEX];
    size_t *bytes = &p->map_bytes[PP_PACKED_INDEX];
    if (map_packed_file(p, dir, PP_PACKED_INDEX, &missing) == 0)
        return 0;
    if (missing.code != PP_EXIT_INPUT || !pp_file_exists(dir)) {
        *err = missing;
        return -1;
    }
    bool is_file = pp_file_map(dir, map, bytes, &ignored) == 0;
    const char *other =
        is_file ? pp_foreign_file(*map, *bytes) : pp_foreign_dir(dir);
    return other ? pp_fail(err, PP_EXIT_INPUT, "%s: %s%s", dir,
                           is_file ? "is " : "", other)
                 : pp_fail(err, PP_EXIT_INPUT,
                           "%s: is no packed directory; pppack makes one of "
                           "documents",
                           dir);
}

int pp_packed_open(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    memset(p, 0, sizeof *p);
    p->dir = strdup(dir);
    if (!p->dir) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto bad;
    }
    if (map_index(p, dir, err) != 0)
        goto bad;
    if (pp_packed_find_sections(p, err) != 0 ||
        pp_packed_check_sections(p, err) != 0) {
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
    const struct pp_packed_start *at =
        (const struct pp_packed_start *)p->sections[PP_SECTION_STARTS] + b;
    uint64_t cu = at->first_sequence + b;
    *out = (struct pp_bin){
        .n_sequences = r->n_sequences,
        .tokens = r->tokens,
        .scored = r->scored,
        .n_groups = r->n_groups,
        .max_seqlen = r->max_seqlen,
        .first_position = at->first_position,
        .cu_seqlens = element_at(p->sections[PP_SECTION_CU], cu),
        .cu_seqlens_padded = element_at(p->sections[PP_SECTION_CU_PADDED], cu),
        .source =
            element_at(p->sections[PP_SECTION_SOURCE], at->first_sequence),
        .start = element_at(p->sections[PP_SECTION_START], at->first_sequence),
        .input_ids =
            element_at(p->map[PP_PACKED_INPUT_IDS], at->first_position),
        .labels = element_at(p->map[PP_PACKED_LABELS], at->first_position),
        .top_k = p->top_k,
        .cu_groups =
            element_at(p->sections[PP_SECTION_CU_GROUPS], at->first_group + b),
        .ranks = element_at(p->sections[PP_SECTION_RANKS], at->first_sequence),
    };
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        const uint64_t first[] = {at->first_position, at->first_sequence,
                                  at->first_group};
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
    const struct pp_packed_array *ids =
        pp_packed_column(p, PP_PACKED_INPUT_IDS);
    static const int lists[] = {PP_SECTION_CU, PP_SECTION_CU_PADDED,
                                PP_SECTION_SOURCE, PP_SECTION_START};
    struct pp_checksum_sum sum = {0};
    if (pp_checksum_begin(&sum, err))
        return -1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        pp_checksum_add(&sum, p->sections[lists[i]],
                        pp_section_bytes(p, lists[i]));
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

/* Returns the bin's elements of one of the generator's columns. */
static const int32_t *column_of(const struct pp_bin *bin, enum pp_column c)
{
    return (const int32_t *)(const void *)bin->columns[c];
}

void pp_packed_generator_bin(const struct pp_packed *p, size_t b,
                             struct pp_bin *out)
{
    const uint32_t *scored = p->sections[PP_SECTION_GENERATOR];
    pp_packed_bin(p, b, out);
    out->input_ids = column_of(out, PP_COLUMN_GENERATOR_IDS);
    out->labels = column_of(out, PP_COLUMN_GENERATOR_LABELS);
    out->scored = scored[b];
    memset(out->columns, 0, sizeof out->columns);
}

uint64_t pp_packed_scored(const struct pp_packed *p, bool generator)
{
    uint64_t n = 0;
    bool none = generator && !pp_packed_has_generator(p);
    for (size_t i = 0; i < p->n_bins && !none; i++) {
        struct pp_bin b;
        (generator ? pp_packed_generator_bin : pp_packed_bin)(p, i, &b);
        n += b.scored;
    }
    return n;
}

/* --- the order of the bins over the epochs --- */

/* The permutation of an epoch is computed bin by bin and is not stored, so a
 * resumed run needs no state but its place. It is the swap-or-not shuffle of
 * Hoang, Morris and Rogaway, "An Enciphering Scheme Based on a Card Shuffle",
 * 2012: each round pairs x with key - x, and swaps the two at random. */
enum { ROUNDS = 96 };

/* Returns the place of x in a permutation of [0, n). */
static uint64_t permute(uint64_t key, uint64_t x, uint64_t n)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t pivot = pp_rng_bits(key, round) % n;
        uint64_t partner = pivot >= x ? pivot - x : pivot + n - x;
        uint64_t larger = x > partner ? x : partner;
        if (pp_rng_bits(key ^ larger, ROUNDS + round) & 1)
            x = partner;
    }
    return x;
}

size_t pp_packed_place(const struct pp_packed *p, uint64_t at)
{
    uint64_t length = pp_packed_epoch(p);
    uint64_t epoch = at / length, place = at % length;
    uint64_t n = p->epoch.block ? p->n_bins / p->epoch.block : 0;
    if (place >= p->n_bins)
        return PP_NO_BIN;
    uint64_t block = n ? place / p->epoch.block : 0;
    if (epoch == 0 || block >= n)
        return (size_t)place;
    uint64_t key = pp_rng_key(p->epoch.seed + epoch, "epoch");
    return (size_t)(permute(key, block, n) * p->epoch.block +
                    place % p->epoch.block);
}
