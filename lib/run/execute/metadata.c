/* SPDX-License-Identifier: MIT */
#include "run/execute/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

int pp_metadata_init(struct pp_metadata *m, size_t n_views, struct pp_err *err)
{
    *m = (struct pp_metadata){.n_views = n_views};
    m->at = pp_try_calloc(n_views, sizeof *m->at, err);
    return m->at ? 0 : -1;
}

void pp_metadata_clear(struct pp_metadata *m)
{
    for (size_t i = 0; i < m->n_views; i++) {
        free(m->at[i].words);
        m->at[i].words = NULL;
    }
}

void pp_metadata_finish(struct pp_metadata *m)
{
    if (m->at)
        pp_metadata_clear(m);
    free(m->at);
    *m = (struct pp_metadata){0};
}

/* Writes the sequences as words, which have room for 2 n + 4. */
static void list(uint32_t *words, size_t n, const int32_t *cu,
                 const int32_t *padded)
{
    int32_t longest = 0;
    words[0] = (uint32_t)n;
    for (size_t i = 0; i <= n; i++) {
        words[1 + i] = n > 0 ? (uint32_t)cu[i] : 0;
        words[2 + n + i] = n > 0 ? (uint32_t)padded[i] : 0;
        if (i > 0 && padded[i] - padded[i - 1] > longest)
            longest = padded[i] - padded[i - 1];
    }
    words[2 * n + 3] = (uint32_t)longest;
}

int pp_metadata_take(struct pp_metadata *m, size_t view, int stage,
                     const struct pp_host_microbatch *host, struct pp_err *err)
{
    const struct pp_microbatch *mb = &host->of;
    bool divided = mb->keys.n_whole > 0;
    bool sliced = mb->slice.n_before || mb->slice.continues;
    size_t n = divided ? mb->keys.n_whole : mb->n_sequences;
    size_t n_words = 2 * n + 4 + sliced;
    struct pp_metadata_of *of = &m->at[view];
    if (n == 0 && mb->tokens > 0)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "stage %d has %zu tokens without sequences", stage,
                       mb->tokens);
    uint32_t *words = pp_try_calloc(n_words, sizeof *words, err);
    if (!words)
        return -1;
    list(words, n, divided ? mb->keys.whole_cu : mb->cu_seqlens,
         divided ? mb->keys.whole_cu_padded : mb->cu_seqlens_padded);
    if (sliced)
        words[n_words - 1] = (uint32_t)mb->slice.context;
    if (!of->words) {
        *of = (struct pp_metadata_of){words, n_words, stage};
        return 0;
    }
    bool same = of->n == n_words &&
                memcmp(of->words, words, of->n * sizeof *words) == 0;
    free(words);
    return same ? 0
                : pp_fail(err, PP_EXIT_NO,
                          "stage %d is given other sequences than stage %d",
                          stage, of->stage);
}

uint64_t pp_metadata_hash(const struct pp_metadata *m)
{
    uint64_t h = PP_FNV_START;
    for (size_t i = 0; i < m->n_views; i++)
        for (size_t k = 0; m->at[i].words && k < m->at[i].n; k++) {
            uint32_t w = m->at[i].words[k];
            const unsigned char bytes[] = {w & 0xff, w >> 8 & 0xff,
                                           w >> 16 & 0xff, w >> 24};
            h = pp_fnv(h, bytes, sizeof bytes);
        }
    return h;
}
