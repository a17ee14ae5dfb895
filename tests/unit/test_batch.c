/* SPDX-License-Identifier: MIT */
/* test_batch - labels shifted inside sequences, padding, slices, bad ids. */
#include "scratch.h"
#include "tap.h"

#include <unistd.h>

#include "data/packed/packed.h"
#include "run/execute/batch.h"

/* Makes two sequences padded to 4: 5 6 7 | 8 9, and a second bin with one
 * token. */
static const int32_t ids[] = {5, 6, 7, 8, 9, 3};
static const int32_t labels[] = {5, -100, 7, 8, 9, 3};

static int make(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    const struct pp_piece pieces[] = {
        {.at = 0, .source = 0, .length = 3, .padded = 4},
        {.at = 3, .source = 1, .length = 2, .padded = 4},
        {.at = 5, .source = 2, .length = 1, .padded = 4},
    };
    const size_t first[] = {0, 2, 3};
    const uint32_t items[] = {0, 1, 2};
    const struct pp_packed_content c = {.ids = ids,
                                        .labels = labels,
                                        .pieces = pieces,
                                        .n_bins = 2,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = 3,
                                        .capacity = 8,
                                        .align = 4,
                                        .counts.tokens = 6};
    return pp_packed_write(dir, &c, err) || pp_packed_open(dir, p, err) ? -1
                                                                        : 0;
}

static void is_ints(const int32_t *got, const int32_t *want, size_t n,
                    const char *what)
{
    if (!ok(!memcmp(got, want, n * sizeof *got), "%s", what))
        for (size_t i = 0; i < n; i++)
            printf("# [%zu] got %d, expected %d\n", i, got[i], want[i]);
}

/* Tests the rows of two context-parallel ranks of the first bin. Each sequence
 * has four chunks of one row. */
static void test_ranks(const struct pp_packed *p)
{
    struct pp_batch b;
    struct pp_host_microbatch host;
    struct pp_err err = {0};
    ok(!pp_batch_init(&b, NULL, 8, 10, false, &err) &&
           !pp_batch_view(&b, p, &(struct pp_batch_part){0, 0, {1}, true, 2, 0},
                          &host, &err),
       "views the rows of the first rank");
    is_int((long long)host.of.tokens, 4, "a rank has half of the rows");
    is_ints(host.of.positions, (int32_t[]){0, 0, 0, 0}, 4, "padding is at 0");
    is_ints(host.of.input_ids, (int32_t[]){5, -1, 8, -1}, 4, "their ids");
    is_ints(host.of.cu_seqlens, (int32_t[]){0, 1, 1, 2, 2}, 5, "real rows");
    is_ints(host.of.scored.targets, (int32_t[]){9, 6}, 2,
            "the token of another rank is the target");
    is_ints(host.of.keys.order, (int32_t[]){0, 4, 5, 1, 2, 6, 7, 3}, 8,
            "the rows of both ranks by sequence");
    is_ints((const int32_t *)host.of.keys.of,
            (int32_t[]){0, 1, 0, 0, 0, 0, 4, 1, 0, 4, 0, 0}, 12, "keys");
    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){0, 0, {1}, true, 2, 1},
                      &host, &err),
       "views the rows of the second rank");
    is_ints(host.of.input_ids, (int32_t[]){6, 7, 9, -1}, 4,
            "ids of the middle");
    is_ints(host.of.positions, (int32_t[]){1, 2, 1, 0}, 4, "middle chunks");
    is_ints(host.of.scored.targets, (int32_t[]){7}, 1,
            "the last token predicts nothing");
    is_ints((const int32_t *)host.of.keys.of,
            (int32_t[]){0, 2, 1, 0, 3, 2, 4, 2, 1, 4, 0, 0}, 12,
            "a chunk attends to the earlier ones");
    pp_batch_finish(&b);
}

/* Tests the rows that one of two context-parallel ranks has of the second slice
 * of a bin: a sequence of eleven tokens continues, and one of three follows.
 */
static void test_slice_of_ranks(void)
{
    static const int32_t cu[] = {0, 11, 14}, padded[] = {0, 12, 16};
    static const int32_t words[16] = {1, 2, 3, 4, 5, 6, 7, 8,
                                      1, 2, 3, 0, 4, 5, 6};
    const struct pp_bin bin = {.tokens = 16,
                               .n_sequences = 2,
                               .cu_seqlens = cu,
                               .cu_seqlens_padded = padded,
                               .input_ids = words,
                               .labels = words};
    const struct pp_batch_part part = {
        .slice = 1, .slices = {2}, .n_ranks = 2, .rank = 0, .grain = 4};
    struct pp_batch b;
    struct pp_host_microbatch host;
    struct pp_err err = {0};
    ok(!pp_batch_init(&b, NULL, 16, 10, false, &err) &&
           !pp_batch_view_bin(&b, &bin, false, &part, &host, &err),
       "views a slice of a rank");
    ok(host.of.tokens == 4 && host.of.slice.context == 8 &&
           host.of.keys.n == 16,
       "it has keys of the earlier slice");
    is_ints(host.of.input_ids, (int32_t[]){1, -1, 4, -1}, 4,
            "the outer chunks of the part of each sequence");
    is_ints(host.of.positions, (int32_t[]){8, 0, 0, 0}, 4, "positions");
    is_ints(host.of.keys.order,
            (int32_t[]){0, 1, 8, 9, 10, 11, 2, 3, 4, 12, 13, 5, 6, 14, 15, 7},
            16, "each rank has rows of the earlier slice before its own");
    is_ints((const int32_t *)host.of.keys.of,
            (int32_t[]){0, 9, 8, 0, 0, 0, 12, 1, 0, 12, 0, 0}, 12, "keys");
    ok(host.of.keys.n_whole == 2, "two sequences have a part in the slice");
    is_ints(host.of.keys.whole_cu, (int32_t[]){0, 3, 6}, 3, "  real rows");
    is_ints(host.of.keys.whole_cu_padded, (int32_t[]){0, 4, 8}, 3,
            "  all rows");
    pp_batch_finish(&b);
}

static void test_views(const struct pp_packed *p)
{
    struct pp_batch b;
    struct pp_host_microbatch host;
    struct pp_err err = {0};
    ok(!pp_batch_init(&b, NULL, 8, 10, false, &err) &&
           !pp_batch_view(&b, p, &(struct pp_batch_part){0, 0, {1}, false},
                          &host, &err),
       "views a bin");
    is_int((long long)host.of.tokens, 8, "tokens include the padding");
    is_ints(host.of.positions, (int32_t[]){0, 1, 2, 0, 0, 1, 0, 0}, 8,
            "positions");
    is_ints(host.of.input_ids, (int32_t[]){5, 6, 7, -1, 8, 9, -1, -1}, 8,
            "ids");
    is_int((long long)host.of.scored.n, 2, "two rows are scored");
    is_ints(host.of.scored.rows, (int32_t[]){1, 4}, 2,
            "no row predicts across sequences");
    is_ints(host.of.scored.targets, (int32_t[]){7, 9}, 2,
            "a target is the next label");

    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){0, 0, {1}, true}, &host,
                      &err),
       "views a bin with score_all");
    is_int((long long)host.of.scored.n, 3, "three rows predict a token");
    is_int((long long)host.of.scored.n_labelled, 2, "two of them have a label");
    is_ints(host.of.scored.rows, (int32_t[]){1, 4, 0}, 3, "they come first");
    is_ints(host.of.scored.targets, (int32_t[]){7, 9, 6}, 3,
            "a target is the next id");

    const struct pp_batch_part ends = {
        .slices = {1}, .score_all = true, .score_ends = true};
    ok(!pp_batch_view(&b, p, &ends, &host, &err),
       "views a bin with score_ends");
    is_ints(host.of.scored.rows, (int32_t[]){2, 5}, 2, "the last real rows");
    is_ints(host.of.scored.targets, (int32_t[]){-1, -1}, 2,
            "they predict nothing");
    ok(host.of.scored.n_labelled == 2 && host.of.scored.predicts == 0,
       "and stand for themselves");

    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){1, 0, {1}, false}, &host,
                      &err) &&
           host.of.scored.n == 0 && host.of.tokens == 4,
       "one token predicts nothing");
    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){PP_NO_BIN, 0, {1}, false},
                      &host, &err) &&
           host.of.tokens == 0 && host.of.n_sequences == 0 &&
           host.of.cu_seqlens[0] == 0,
       "PP_NO_BIN gives an empty microbatch");
    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){0, 1, {3}, false}, &host,
                      &err) &&
           host.of.tokens == 3 && host.of.n_sequences == 2 &&
           host.of.slice.first_row == 2,
       "the middle one of three slices");
    ok(host.of.slice.context == 2 && host.of.slice.n_before == 1 &&
           host.of.slice.continues,
       "the slice has a context");
    is_ints(host.of.positions, (int32_t[]){2, 0, 0}, 3, "positions continue");
    is_ints(host.of.input_ids, (int32_t[]){7, -1, 8}, 3, "ids");
    is_ints(host.of.cu_seqlens, (int32_t[]){0, 1, 2}, 3, "real rows");
    is_ints(host.of.cu_seqlens_padded, (int32_t[]){0, 2, 3}, 3, "all rows");
    ok(host.of.scored.n == 1 && host.of.scored.rows[0] == 2 &&
           host.of.scored.targets[0] == 9,
       "a target may be in the next slice");
    ok(!pp_batch_view(&b, p, &(struct pp_batch_part){0, 3, {8}, false}, &host,
                      &err) &&
           host.of.n_sequences == 1 && host.of.cu_seqlens[1] == 0 &&
           host.of.slice.context == 0,
       "a slice of padding has no context");
    pp_batch_finish(&b);

    ok(!pp_batch_init(&b, NULL, 8, 9, false, &err),
       "takes a smaller vocabulary");
    ok(pp_batch_view(&b, p, &(struct pp_batch_part){0, 0, {1}, false}, &host,
                     &err),
       "id 9 is not in it");
    is_str(err.text, "packed data: bin 0: id '9' is not in the vocabulary of 9",
           "names the id");
    is_int(err.code, PP_EXIT_INPUT, "the input is wrong");
    pp_batch_finish(&b);
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[64];
    struct pp_packed p = {0};
    struct pp_err err = {0};
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/packed", dir);
    if (ok(!make(path, &p, &err), "packed data %s", err.text)) {
        test_views(&p);
        test_slice_of_ranks();
        test_ranks(&p);
    }
    pp_packed_finish(&p);
    scratch_remove(dir);
    return done();
}
