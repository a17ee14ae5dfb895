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
        struct pp_tensor_piece p = pp_tensor_piece(t, size, rank);
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
    static const size_t sizes[] = {1, 2, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        covers("a norm", &norm, size, (int)size - 1);
        covers("a bias", &bias, size, 0);
        covers("heads", &heads, size, 0);
        covers("key heads", &keys, size, size > 2 ? (int)size / 2 - 1 : 0);
        covers("columns", &output, size, 0);
        covers("a vocabulary", &vocabulary, size, 0);
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

int main(void)
{
    test_cover();
    test_shapes();
    return done();
}
