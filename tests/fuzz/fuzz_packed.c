/* SPDX-License-Identifier: MIT */
/* fuzz_packed - reads any bytes as the index of a packed directory. It is
 * refused with a reason, or its bins can be read without leaving the file. */
#include <stdlib.h>
#include <string.h>

#include "data/packed/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Sums the fields of the items that a bin has of a modality. */
static uint64_t walk_items(const struct pp_packed *p, enum pp_modality m,
                           size_t b)
{
    const struct pp_packed_stream *s = &p->streams[m];
    struct pp_bin_items at;
    struct pp_bin bin;
    uint64_t sum = 0;
    pp_packed_bin(p, b, &bin);
    pp_packed_bin_items(p, m, b, &at);
    if (at.n > s->max_items || at.rows > s->max_rows)
        abort();
    for (uint32_t i = 0; at.cu_items && i < bin.n_sequences; i++)
        sum += (uint32_t)(at.cu_items[i + 1] - at.cu_items[i]);
    if (sum != at.n)
        abort();
    for (uint32_t k = 0; k < at.n; k++) {
        uint32_t rows = pp_grid_size(&at.grids[k]);
        if (at.cu_rows[k] + (int32_t)rows != at.cu_rows[k + 1])
            abort();
        sum += pp_item_features(s, rows);
    }
    return sum;
}

/* Adds up what the ranks have of a bin: all of it, and nothing twice. */
static uint64_t walk_ranks(const struct pp_packed *p, size_t b)
{
    struct pp_bin bin;
    uint64_t sum = 0;
    pp_packed_bin(p, b, &bin);
    for (int k = 0; k < (int)p->cp; k++) {
        uint32_t tokens = pp_bin_rank_tokens(&bin, (int)p->cp, k);
        if (tokens > p->max_rank_tokens)
            abort();
        sum += tokens;
    }
    if (p->cp && sum != bin.tokens)
        abort();
    return sum;
}

/* Looks at the generator's tokens of a bin, whose columns are not there. */
static uint64_t walk_generator(const struct pp_packed *p, size_t b)
{
    struct pp_bin bin;
    if (!pp_packed_has_generator(p))
        return 0;
    pp_packed_generator_bin(p, b, &bin);
    if (bin.scored >= bin.tokens || bin.columns[PP_COLUMN_GENERATOR_IDS])
        abort();
    return bin.scored;
}

/* Sums all fields of every bin, so that everything is read. */
static uint64_t walk(const struct pp_packed *p)
{
    uint64_t sum = 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        if (bin.tokens > p->capacity || bin.n_sequences == 0)
            abort();
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            sum += bin.source[i] + (uint64_t)bin.start[i] +
                   (uint32_t)(bin.cu_seqlens[i + 1] - bin.cu_seqlens[i]) +
                   (uint32_t)bin.cu_seqlens_padded[i + 1];
        for (uint32_t g = 0; bin.cu_groups && g < bin.n_groups; g++)
            if (bin.cu_groups[g + 1] > bin.n_sequences)
                abort();
        for (int m = 0; m < PP_N_MODALITIES; m++)
            sum += walk_items(p, (enum pp_modality)m, b);
        sum += walk_ranks(p, b) + walk_generator(p, b);
    }
    for (int f = PP_PACKED_INPUT_IDS; f < PP_PACKED_N_FILES; f++) {
        const struct pp_packed_array *c = pp_packed_column(p, f);
        sum += c ? c->n : 0;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_packed p = {0};
    struct pp_err err = {0};
    /* Copies to an aligned buffer of the exact size. */
    void *copy = malloc(n ? n : 1);
    if (!copy)
        return 0;
    if (n)
        memcpy(copy, data, n);
    /* Inputs with a wrong checksum would never reach the other checks. */
    struct pp_packed_header *h = copy;
    if (n >= sizeof *h)
        h->checksum = pp_packed_sum(h, n);
    p.map[PP_PACKED_INDEX] = copy;
    p.map_bytes[PP_PACKED_INDEX] = n;
    if (pp_packed_find_sections(&p, &err) != 0 ||
        pp_packed_check_sections(&p, &err) != 0) {
        if (err.code != PP_EXIT_INPUT || !*err.text)
            abort();
    } else if (walk(&p) == UINT64_MAX) {
        abort();
    }
    free(copy);
    return 0;
}
