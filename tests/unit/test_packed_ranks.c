/* SPDX-License-Identifier: MIT */
/* test_packed_ranks - sequences with context-parallel ranks of their own: the
 * index, sets in memory, and the view of each rank. */
#include "packed_fixture.h"
#include "scratch.h"

#include "run/execute/batch.h"

enum { CP = 4, VOCAB = 200, N_IDS = 50, MOST = 64 };

/* Five sequences: on ranks 0-3, 2-3, 1 and 3; and in a second bin on 0-1. */
static const struct pp_rank_range ranges[] = {
    {0, 4}, {2, 2}, {1, 1}, {3, 1}, {0, 2}};

static int32_t ids[N_IDS];

static int make(const char *dir, const struct pp_rank_range *r,
                struct pp_err *err)
{
    static const uint32_t lengths[] = {13, 8, 7, 5, 16};
    struct pp_piece pieces[5];
    const size_t first[] = {0, 4, 5};
    const uint32_t items[] = {0, 1, 2, 3, 4};
    size_t at = 0;
    for (uint32_t i = 0; i < 5; at += lengths[i++])
        pieces[i] = (struct pp_piece){.at = at,
                                      .source = i,
                                      .length = lengths[i],
                                      .padded = (lengths[i] + 7) / 8 * 8};
    for (int32_t i = 0; i < N_IDS; i++)
        ids[i] = 100 + i;
    const struct pp_packed_content c = {.ids = ids,
                                        .pieces = pieces,
                                        .n_bins = 2,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = 5,
                                        .capacity = 64,
                                        .align = 8,
                                        .ranks = r,
                                        .cp = CP,
                                        .counts.tokens = at};
    return pp_packed_write(dir, &c, err);
}

static void test_contents(const struct pp_packed *p)
{
    static const uint32_t tokens[] = {4, 12, 8, 16};
    struct pp_bin b;
    pp_packed_bin(p, 0, &b);
    ok(p->cp == CP && p->max_rank_tokens == 16, "the largest rank");
    ok(!memcmp(b.ranks, ranges, 4 * sizeof *ranges), "ranks of the first bin");
    for (int k = 0; k < CP; k++)
        is_int(pp_bin_rank_tokens(&b, CP, k), tokens[k], "tokens of a rank");
    is_int(pp_bin_rank_tokens(&b, 1, 0), 40, "one rank has them all");
    is_int(pp_packed_room(p, CP), 64, "memory is planned for the largest rank");
    is_int(pp_packed_room(p, 1), 40, "and on one rank for the largest bin");
    pp_packed_bin(p, 1, &b);
    ok(b.ranks[0].first == 0 && b.ranks[0].n == 2, "ranks of the second bin");
}

static void test_mesh(const struct pp_packed *p)
{
    struct pp_err err = {0};
    ok(!pp_packed_check_mesh(p, CP, &err) && !pp_packed_check_mesh(p, 1, &err),
       "for a mesh of as many ranks, or of one");
    is_int(pp_packed_check_mesh(p, 2, &err), -1, "not for others");
    is_str(err.text,
           "the sequences are on '4' context-parallel ranks, but the plan has "
           "2; pack for as many",
           "by name");
}

static void test_lies(const char *dir, const char *path)
{
    size_t n;
    struct pp_err err;
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_rank_range *r = section_in(data, PP_SECTION_RANKS);
    LIE(h->cp = 1, PP_EXIT_INPUT, "'1' context-parallel ranks");
    LIE(h->cp = 8, PP_EXIT_INPUT, "'8' context-parallel ranks");
    LIE(h->max_rank_tokens = 12, PP_EXIT_INPUT, "'12' is not the most");
    LIE((h->cp = 0, h->max_rank_tokens = 0), PP_EXIT_INPUT, "sections need");
    LIE(r[0].n = 3, PP_EXIT_INPUT, "on '3' of 4");
    LIE(r[0].n = 0, PP_EXIT_INPUT, "on '0' of 4");
    LIE(r[0].first = 1, PP_EXIT_INPUT, "ranks from 1 on");
    LIE(r[3].first = 4, PP_EXIT_INPUT, "ranks from 4 on");
    LIE((r[2].n = 4, r[2].first = 0), PP_EXIT_INPUT, "must precede");
    LIE(r[3].first = 0, PP_EXIT_INPUT, "is not the most");
    write_file(path, data, n);
    free(data);
}

static void test_memory(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed t;
    struct pp_bin b;
    is_int(pp_packed_take(p, 3, &t, &err), 0, "bins are taken");
    pp_packed_bin(&t, 2, &b);
    ok(t.cp == CP && t.max_rank_tokens == 16 && t.capacity == 64 &&
           !memcmp(b.ranks, ranges, 4 * sizeof *ranges),
       "with the ranks of their sequences");
    pp_packed_finish(&t);
    const struct pp_synthetic_data like = {
        .tokens = 24, .max_sequences = 2, .vocab = VOCAB, .align = 8};
    is_int(pp_packed_synthetic(p, 1, &like, &t, &err), 0, "bins are imitated");
    pp_packed_bin(&t, 0, &b);
    ok(t.cp == CP && b.n_sequences == 2 &&
           !memcmp(b.ranks, ranges, 2 * sizeof *ranges),
       "with ranks");
    pp_packed_finish(&t);
    is_int(pp_packed_unpack(p, &t, &err), 0, "bins are unpacked");
    pp_packed_bin(&t, 0, &b);
    ok(t.cp == 0 && !b.ranks, "without ranks, as one rank has them");
    pp_packed_finish(&t);
}

/* The views of a bin on all ranks. */
struct views {
    struct pp_batch batch[CP];
    struct pp_host_microbatch mb[CP];
};

/* Checks that each token is on one rank, at its position, and that its row
 * predicts the next one, on whichever rank this is. */
static void check_tokens(const struct views *v, const struct pp_bin *bin)
{
    int seen[MOST] = {0}, predicted[MOST] = {0};
    size_t wrong = 0;
    for (int k = 0; k < CP; k++) {
        const struct pp_microbatch *mb = &v->mb[k].of;
        wrong += mb->tokens != pp_bin_rank_tokens(bin, CP, k);
        for (size_t i = 0; i < mb->n_sequences; i++) {
            int32_t of = mb->sequence[i], row = mb->cu_seqlens_padded[i];
            int32_t n = mb->cu_seqlens[i + 1] - mb->cu_seqlens[i];
            wrong += !pp_range_has(bin->ranks[of], k);
            for (int32_t t = row; t < row + n; t++) {
                int32_t at = bin->cu_seqlens_padded[of] + mb->positions[t];
                seen[at]++;
                wrong += mb->input_ids[t] != bin->input_ids[at];
            }
        }
        for (size_t i = 0, part = 0; i < mb->scored.n; i++) {
            size_t at = pp_batch_predicts(bin, &v->mb[k], i, &part);
            predicted[at]++;
            wrong += mb->scored.targets[i] != bin->input_ids[at];
        }
    }
    for (uint32_t i = 0; i < bin->n_sequences; i++)
        for (int32_t t = bin->cu_seqlens_padded[i];
             t < bin->cu_seqlens_padded[i + 1]; t++) {
            bool real = t < bin->cu_seqlens_padded[i] + bin->cu_seqlens[i + 1] -
                                bin->cu_seqlens[i];
            wrong += seen[t] != real;
            wrong += predicted[t] != (real && t > bin->cu_seqlens_padded[i]);
        }
    is_int((long long)wrong, 0, "each token is on one rank, and predicted");
}

/* Returns the span of a rank with rows on `ranks` ranks, or NULL. */
static const struct pp_cp_span *span_of(const struct pp_host_microbatch *host,
                                        int ranks)
{
    const struct pp_microbatch *mb = &host->of;
    for (size_t i = 0; i < mb->n_spans; i++)
        if (mb->spans[i].ranks == ranks)
            return &mb->spans[i];
    return NULL;
}

/* Checks that the rows of all ranks of a span, in its order, are its sequences
 * one after the other. */
static void check_span(const struct views *v, const struct pp_bin *bin,
                       uint32_t i)
{
    struct pp_rank_range r = bin->ranks[i];
    const struct pp_cp_span *s = span_of(&v->mb[r.first], r.n);
    int32_t at = bin->cu_seqlens_padded[i];
    size_t wrong = 0, n = (size_t)(bin->cu_seqlens_padded[i + 1] - at);
    if (!ok(s && s->keys.n_whole == 1 && s->tokens == n / r.n,
            "sequence %u is a span of its ranks", i))
        return;
    for (size_t t = 0; t < n; t++) {
        size_t row = s->keys.order ? (size_t)s->keys.order[t] : t;
        int rank = r.first + (int)(row / s->tokens);
        const struct pp_cp_span *there = span_of(&v->mb[rank], r.n);
        int32_t id =
            v->mb[rank].of.input_ids[there->first_row + row % s->tokens];
        bool real = (int32_t)t < bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
        wrong += id != (real ? bin->input_ids[at + (int32_t)t] : -1);
    }
    ok(!wrong, "the order of keys of sequence %u", i);
}

static void test_views(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct views v;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        for (int k = 0; k < CP; k++) {
            const struct pp_batch_part part = {
                .bin = b, .slices = {1}, .n_ranks = CP, .rank = k};
            ok(!pp_batch_init(&v.batch[k], NULL, pp_packed_room(p, CP), VOCAB,
                              false, &err) &&
                   !pp_batch_view(&v.batch[k], p, &part, &v.mb[k], &err),
               "rank %d views bin %zu", k, b);
        }
        check_tokens(&v, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            check_span(&v, &bin, i);
        for (int k = 0; k < CP; k++)
            pp_batch_finish(&v.batch[k]);
    }
}

int main(void)
{
    char base[SCRATCH_TEXT], dir[64], path[80], column[80];
    struct pp_packed p = {0};
    struct pp_err err = {0};
    scratch_make(base);
    snprintf(dir, sizeof dir, "%s/packed", base);
    snprintf(path, sizeof path, "%s/index", dir);
    snprintf(column, sizeof column, "%s/input_ids", dir);
    if (ok(!make(dir, ranges, &err) && !pp_packed_open(dir, &p, &err),
           "packed data %s", err.text)) {
        test_contents(&p);
        test_mesh(&p);
        test_memory(&p);
        test_views(&p);
    }
    pp_packed_finish(&p);
    test_damage(dir, path);
    test_column_damage(dir, column, "input_ids");
    test_lies(dir, path);
    test_words(dir);
    scratch_remove(base);
    return done();
}
