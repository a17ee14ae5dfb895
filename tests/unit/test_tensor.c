/* SPDX-License-Identifier: MIT */
/* test_tensor - the pieces of tensors that tensor-parallel ranks hold. */
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#include "model/tensor.h"

/* Counts how many pieces hold each element, replicas apart. Returns false if a
 * piece leaves the tensor or its shape is not that of its runs. */
static bool count(const struct pp_tensor_info *t, size_t size, int *held,
                  int *replicas)
{
    size_t n = pp_tensor_elements(t), most = 0;
    bool fits = true;
    for (size_t rank = 0; rank < size; rank++) {
        struct pp_tensor_piece whole = pp_tensor_piece(t, size, rank);
        struct pp_tensor_piece p = pp_tensor_in_file(t, &whole);
        size_t elements = pp_piece_elements(&p);
        fits = fits && p.n > 0 && p.n * p.count == elements && elements > 0;
        most = elements > most ? elements : most;
        for (size_t run = 0; run < p.n; run++)
            for (size_t i = 0; i < p.count; i++) {
                size_t at = p.offset + run * p.stride + i;
                fits = fits && at < n;
                if (at < n)
                    ++*(p.replica ? &replicas[at] : &held[at]);
            }
    }
    return fits && most == pp_tensor_most(t, size);
}

/* Every element has one holder that is not a replica, and as many replicas as
 * every other. */
static void covers(const char *what, const struct pp_tensor_info *t,
                   size_t size, int replicas)
{
    size_t n = pp_tensor_elements(t);
    int *held = calloc(n, sizeof *held), *more = calloc(n, sizeof *more);
    if (!held || !more)
        exit(1);
    bool once = count(t, size, held, more);
    for (size_t i = 0; i < n; i++)
        once = once && held[i] == 1 && (replicas < 0 || more[i] == replicas);
    ok(once, "%s on %zu ranks", what, size);
    free(held);
    free(more);
}

static void test_cover(void)
{
    const struct pp_tensor_info norm = {.rows = 7, .cols = 1, .n_parts = 1};
    const struct pp_tensor_info bias = {
        .rows = 24, .cols = 1, .split = PP_SPLIT_ROWS, .n_parts = 8};
    const struct pp_tensor_info heads = {
        .rows = 24, .cols = 5, .split = PP_SPLIT_ROWS, .n_parts = 8};
    const struct pp_tensor_info keys = {
        .rows = 6, .cols = 5, .split = PP_SPLIT_ROWS, .n_parts = 2};
    const struct pp_tensor_info output = {
        .rows = 5, .cols = 24, .split = PP_SPLIT_COLUMNS, .n_parts = 8};
    const struct pp_tensor_info vocabulary = {
        .rows = 61, .cols = 3, .split = PP_SPLIT_ROWS, .n_parts = 61};
    struct pp_tensor_info fused = {
        .rows = 72, .cols = 5, .split = PP_SPLIT_ROWS, .n_parts = 8};
    fused.n_segments = 3;
    struct pp_tensor_info turned[] = {heads, output, fused};
    static const size_t sizes[] = {1, 2, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        covers("a norm", &norm, size, (int)size - 1);
        covers("a bias", &bias, size, 0);
        covers("heads", &heads, size, 0);
        covers("key heads", &keys, size, size > 2 ? (int)size / 2 - 1 : 0);
        covers("columns", &output, size, 0);
        covers("a vocabulary", &vocabulary, size, 0);
        covers("queries, keys and values", &fused, size, 0);
        for (size_t k = 0; k < 3; k++) {
            turned[k].transposed = true;
            covers("a transpose", &turned[k], size, 0);
        }
    }
}

static void test_shapes(void)
{
    const struct pp_tensor_info output = {
        .rows = 5, .cols = 24, .split = PP_SPLIT_COLUMNS, .n_parts = 8};
    const struct pp_tensor_info keys = {
        .rows = 6, .cols = 5, .split = PP_SPLIT_ROWS, .n_parts = 2};
    struct pp_tensor_piece p = pp_tensor_piece(&output, 4, 1);
    ok(p.rows == 5 && p.cols == 6 && p.offset == 6 && p.count == 6 &&
           p.stride == 24 && p.n == 5,
       "columns are a run for each row");
    p = pp_tensor_piece(&output, 1, 0);
    ok(p.n == 1 && p.count == 120, "a whole matrix is one run");
    p = pp_tensor_piece(&keys, 4, 1);
    ok(p.replica && p.offset == 0 && p.rows == 3,
       "rank 1 of 4 has the first of 2 key heads too");
    p = pp_tensor_piece(&keys, 4, 2);
    ok(!p.replica && p.offset == 15 && p.n == 1, "rank 2 has the second");
}

/* Cuts the transpose of a tensor as files have it, and compares its runs with
 * the transpose of what the rank holds. */
static void in_file(const char *what, const struct pp_tensor_info *t,
                    size_t size)
{
    size_t n = pp_tensor_elements(t);
    int *whole = calloc(n, sizeof *whole), *file = calloc(n, sizeof *file);
    int *mine = calloc(n, sizeof *mine), *turned = calloc(n, sizeof *turned);
    if (!whole || !file || !mine || !turned)
        exit(1);
    for (size_t i = 0; i < n; i++)
        whole[i] = (int)i;
    pp_transpose(file, whole, t->rows, t->cols, sizeof *file);
    bool same = file[1] == (int)t->cols;
    for (size_t rank = 0; rank < size; rank++) {
        struct pp_tensor_piece p = pp_tensor_piece(t, size, rank);
        struct pp_tensor_piece f = pp_tensor_in_file(t, &p);
        for (size_t i = 0; i < p.n; i++)
            memcpy(mine + i * p.count, whole + p.offset + i * p.stride,
                   p.count * sizeof *mine);
        pp_transpose(turned, mine, p.rows, p.cols, sizeof *turned);
        same = same && f.rows == p.cols && f.cols == p.rows;
        for (size_t i = 0; i < f.n; i++)
            same = same &&
                   !memcmp(turned + i * f.count, file + f.offset + i * f.stride,
                           f.count * sizeof *turned);
    }
    ok(same, "%s of a file on %zu ranks", what, size);
    free(whole);
    free(file);
    free(mine);
    free(turned);
}

static void test_in_file(void)
{
    const struct pp_tensor_info output = {.rows = 5,
                                          .cols = 24,
                                          .split = PP_SPLIT_COLUMNS,
                                          .n_parts = 8,
                                          .transposed = true};
    const struct pp_tensor_info fused = {.rows = 36,
                                         .cols = 5,
                                         .split = PP_SPLIT_ROWS,
                                         .n_parts = 4,
                                         .n_segments = 3,
                                         .transposed = true};
    for (size_t size = 1; size <= 4; size *= 2) {
        in_file("columns", &output, size);
        in_file("queries, keys and values", &fused, size);
    }
    /* Rank 1 of 2 holds the second half of each. */
    struct pp_tensor_piece p = pp_tensor_piece(&fused, 2, 1);
    ok(p.rows == 18 && p.n == 3 && p.offset == 30 && p.count == 30 &&
           p.stride == 60,
       "ranks divide queries, keys and values alike");
}

int main(void)
{
    test_in_file();
    test_cover();
    test_shapes();
    return done();
}
