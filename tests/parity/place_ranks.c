/* SPDX-License-Identifier: MIT */
/* place_ranks - gives the sequences of a packed directory with ranks of their
 * own other ranks: at random, which pppack would not do, or all to one rank.
 *
 * usage: place_ranks DIR SEED | place_ranks DIR only RANK */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"

/* Returns a random divisor of cp. */
static uint16_t draw_size(uint64_t bits, uint32_t cp)
{
    uint32_t n = cp >> bits % 3;
    while (n < 1 || cp % n)
        n++;
    return (uint16_t)n;
}

/* Sorts by descending number of ranks, then by the first. */
static int more_first(const void *a, const void *b)
{
    const struct pp_rank_range *x = a, *y = b;
    return x->n != y->n ? y->n - x->n : x->first - y->first;
}

static void place_bin(struct pp_rank_range *r, uint32_t n, uint32_t cp,
                      uint64_t key, size_t bin, int only)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits = pp_rng_bits(key, bin << 20 | i);
        uint16_t size = only < 0 ? draw_size(bits, cp) : 1;
        uint32_t at = (uint32_t)(bits >> 32) % (cp / size) * size;
        r[i] = (struct pp_rank_range){
            (uint16_t)(only < 0 ? at : (uint32_t)only), size};
    }
    qsort(r, n, sizeof *r, more_first);
}

/* Returns the bytes of the index, which the caller frees. */
static char *read_index(const char *path, size_t *n)
{
    char *data = NULL;
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        return NULL;
    *n = (size_t)ftell(f);
    rewind(f);
    data = malloc(*n);
    if (data && fread(data, 1, *n, f) != *n) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

int main(int argc, char **argv)
{
    char path[4096];
    size_t n;
    struct pp_err err = {0};
    int only = argc == 4 ? atoi(argv[3]) : -1;
    if (argc < 3)
        return 2;
    snprintf(path, sizeof path, "%s/index", argv[1]);
    char *data = read_index(path, &n);
    struct pp_packed_header *h = (void *)data;
    if (!data || !h->cp)
        return 2;
    struct pp_packed p = {.map = {data}, .map_bytes = {n}};
    if (pp_packed_find_sections(&p, &err) != 0)
        return 2;
    uint64_t key = pp_rng_key(strtoull(argv[2], NULL, 10), "ranks");
    for (size_t b = 0; b < p.n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(&p, b, &bin);
        place_bin((struct pp_rank_range *)(uintptr_t)bin.ranks, bin.n_sequences,
                  h->cp, key, b, only);
    }
    h->max_rank_tokens = pp_packed_most_rank_tokens(&p);
    if (h->capacity < h->cp * h->max_rank_tokens)
        h->capacity = h->cp * h->max_rank_tokens;
    h->checksum = pp_packed_sum(h, n);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    ok = f && fclose(f) == 0 && ok;
    free(data);
    return ok ? 0 : 3;
}
