/* SPDX-License-Identifier: MIT */
/* test_tensor - the pieces of tensors that tensor-parallel ranks hold. */
#include "tap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_sizes.h"
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
        fits = fits && elements > 0;
        most = elements > most ? elements : most;
        for (size_t i = 0; i < elements; i++) {
            size_t left, at = pp_piece_place(&p, i, &left);
            fits = fits && at < n && left > 0 && pp_piece_behind(&p, at) == i;
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
    for (size_t s = 0; s < 3; s++)
        fused.segments[s] = 24;
    struct pp_tensor_info unlike = fused;
    unlike.segments[0] = 8;
    unlike.segments[1] = 16;
    unlike.segments[2] = 48;
    struct pp_tensor_info turned[] = {heads, output, fused, unlike};
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
        covers("segments that differ", &unlike, size, 0);
        for (size_t k = 0; k < 4; k++) {
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
    ok(p.rows == 5 && p.cols == 6 && p.offset[0] == 6 && p.count[0] == 6 &&
           p.stride == 24 && p.n == 5,
       "columns are a run for each row");
    p = pp_tensor_piece(&output, 1, 0);
    ok(pp_piece_is_run(&p) && p.count[0] == 120, "a whole matrix is one run");
    p = pp_tensor_piece(&keys, 4, 1);
    ok(p.replica && p.offset[0] == 0 && p.rows == 3,
       "rank 1 of 4 has the first of 2 key heads too");
    p = pp_tensor_piece(&keys, 4, 2);
    ok(!p.replica && p.offset[0] == 15 && pp_piece_is_run(&p),
       "rank 2 has the second");
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
        size_t left;
        for (size_t i = 0; i < pp_piece_elements(&p); i++)
            mine[i] = whole[pp_piece_place(&p, i, &left)];
        pp_transpose(turned, mine, p.rows, p.cols, sizeof *turned);
        same = same && f.rows == p.cols && f.cols == p.rows;
        for (size_t i = 0; i < pp_piece_elements(&f); i++)
            same = same && turned[i] == file[pp_piece_place(&f, i, &left)];
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
                                         .segments = {4, 8, 24},
                                         .transposed = true};
    for (size_t size = 1; size <= 4; size *= 2) {
        in_file("columns", &output, size);
        in_file("queries, keys and values", &fused, size);
    }
    /* Rank 1 of 2 holds the second half of each. */
    struct pp_tensor_piece p = pp_tensor_piece(&fused, 2, 1);
    ok(p.rows == 18 && p.n == 1 && p.offset[0] == 10 && p.count[0] == 10 &&
           p.offset[1] == 40 && p.count[1] == 20 && p.offset[2] == 120 &&
           p.count[2] == 60,
       "ranks divide queries, keys and values alike");
}

/* --- owners --- */

/* Reports whether each element of a piece has one owner, who has whole blocks.
 */
static bool is_owned_once(size_t n, size_t turn, size_t size)
{
    size_t sum = 0;
    for (size_t k = 0; k < size; k++) {
        struct pp_range r = pp_owned_range(n, turn, size, (turn + k) % size);
        if (r.first != sum || (r.n > 0 && r.first % PP_SQUARES_BLOCK))
            return false;
        sum += r.n;
    }
    return sum == n;
}

static void test_owners(void)
{
    const size_t block = PP_SQUARES_BLOCK;
    const size_t lengths[] = {1, block - 1, block, block + 1, 7 * block + 3};
    bool once = true;
    for (size_t i = 0; i < 5; i++)
        for (size_t size = 1; size <= 5; size++)
            for (size_t turn = 0; turn < 12; turn++)
                once = once && is_owned_once(lengths[i], turn, size);
    ok(once, "each element has one owner");
    size_t least = SIZE_MAX, most = 0;
    for (size_t rank = 0; rank < 4; rank++) {
        size_t n = pp_owned_range(10 * block, 3, 4, rank).n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    ok(least == 2 * block && most == 3 * block, "large tensors are divided");
    size_t by_rank[4] = {0};
    for (size_t rank = 0; rank < 4; rank++)
        for (size_t slot = 0; slot < 8; slot++)
            by_rank[rank] += pp_owned_range(5, slot, 4, rank).n;
    ok(by_rank[0] == 10 && by_rank[1] == 10 && by_rank[2] == 10 &&
           by_rank[3] == 10,
       "small tensors go round");
}

/* The most elements of an owner are those of the largest, on any piece. */
static void test_most(void)
{
    const struct pp_tensor_info unit[] = {
        {.name = "norm", .rows = 7, .cols = 1, .n_parts = 1},
        {.name = "", .rows = 900, .cols = 1, .n_parts = 1},
        {.name = "rows",
         .rows = 4100,
         .cols = 64,
         .split = PP_SPLIT_ROWS,
         .n_parts = 4100},
        {.name = "columns",
         .rows = 300,
         .cols = 900,
         .split = PP_SPLIT_COLUMNS,
         .n_parts = 9},
    };
    static const size_t counts[] = {1, 2, 3, 4, 61, 5000};
    for (size_t tp = 1; tp <= 4; tp++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            size_t owners = counts[i], most = 0, all = 0;
            for (size_t t = 0; t < tp; t++)
                for (size_t o = 0; o < owners; o++) {
                    size_t sum = 0;
                    for (size_t slot = 0; slot < 4; slot += slot ? 1 : 2) {
                        struct pp_tensor_piece p =
                            pp_tensor_piece(&unit[slot], tp, t);
                        sum += pp_owned_range(pp_piece_elements(&p), slot,
                                              owners, o)
                                   .n;
                    }
                    most = sum > most ? sum : most;
                    all += sum;
                }
            const struct pp_holders h = {.n = owners};
            ok(pp_owned_most(unit, 4, tp, &h) == most &&
                   most * tp * owners >= all,
               "%zu owners of %zu pieces", owners, tp);
        }
}

/* The same for experts, whose owners are those that hold them. */
static void test_most_of_experts(size_t owners, size_t ep)
{
    const struct pp_tensor_info table[] = {
        {.name = "a", .rows = 70000, .cols = 9, .n_parts = 1},
        {.name = "experts.%.up", .rows = 700, .cols = 999, .n_equal = 12},
        {.name = "experts.%.down", .rows = 99, .cols = 70, .n_equal = 12},
    };
    struct pp_holders h = {.n = owners, .ep = ep};
    size_t most = 0;
    for (h.index = 0; h.index < owners; h.index++) {
        size_t sum = 0;
        for (size_t slot = 0; slot < pp_table_slots(table, 3); slot++) {
            const struct pp_tensor_info *t = &table[slot ? 2 - slot % 2 : 0];
            if (pp_table_holds(table, 3, slot, &h))
                sum += pp_table_owned(table, 3, slot, t->rows * t->cols, &h).n;
        }
        most = sum > most ? sum : most;
    }
    ok(pp_owned_most(table, 3, 1, &h) == most,
       "%zu owners, experts of %zu ranks", owners, ep);
}

/* The same for whole experts of tp ranks, which are divided over all of them.
 */
static void test_most_of_whole(size_t owners, size_t tp, size_t ep)
{
    const struct pp_tensor_info table[] = {
        {.name = "a",
         .rows = 70000,
         .cols = 9,
         .split = PP_SPLIT_ROWS,
         .n_parts = 70000},
        {.name = "experts.%.up", .rows = 700, .cols = 999, .n_equal = 12},
        {.name = "experts.%.down", .rows = 99, .cols = 70, .n_equal = 12},
    };
    const struct pp_holders h = {.n = owners, .ep = ep, .over_tp = true};
    struct pp_holders all = {.n = owners * tp, .ep = ep};
    size_t most = 0;
    for (all.index = 0; all.index < all.n; all.index++) {
        const struct pp_tensor_piece p =
            pp_tensor_piece(&table[0], tp, all.index % tp);
        const struct pp_holders dense = {.n = owners, .index = all.index / tp};
        size_t sum =
            pp_table_owned(table, 3, 0, pp_piece_elements(&p), &dense).n;
        for (size_t slot = 1; slot < pp_table_slots(table, 3); slot++) {
            const struct pp_tensor_info *t = &table[2 - slot % 2];
            if (pp_table_holds(table, 3, slot, &all))
                sum +=
                    pp_table_owned(table, 3, slot, t->rows * t->cols, &all).n;
        }
        most = sum > most ? sum : most;
    }
    ok(pp_owned_most(table, 3, tp, &h) == most,
       "%zu owners of %zu pieces, whole experts of %zu ranks", owners, tp, ep);
}

/* Rows of several tensors: two kinds for each of three experts. */
static void test_table(void)
{
    const struct pp_tensor_info table[] = {
        {.name = "a", .rows = 5000, .cols = 1},
        {.name = ""},
        {.name = "experts.%.up", .rows = 300, .cols = 20, .n_equal = 3},
        {.name = "experts.%.down", .rows = 20, .cols = 300, .n_equal = 3},
    };
    static const char *const names[] = {"a",
                                        NULL,
                                        "experts.0.up",
                                        "experts.0.down",
                                        "experts.1.up",
                                        "experts.1.down",
                                        "experts.2.up",
                                        "experts.2.down"};
    struct pp_tensor_info t[8];
    bool same = pp_table_slots(table, 4) == 8;
    for (size_t i = 0; same && i < 8; i++) {
        bool has = pp_table_at(table, 4, i, &t[i]);
        same = has == (names[i] != NULL) &&
               (!has || (!strcmp(t[i].name, names[i]) && !t[i].n_equal &&
                         t[i].rows == table[i < 2 ? i : 2 + i % 2].rows));
    }
    ok(same, "the tensors of an expert are adjacent");
    ok(pp_table_tensors(table, 4) == 7 && pp_table_slots(table, 2) == 2,
       "slots and tensors");
    for (size_t owners = 2; owners <= 4; owners++) {
        const struct pp_holders h = {.n = owners};
        ok(pp_owned_most(table, 4, 1, &h) == pp_owned_most(t, 8, 1, &h),
           "%zu owners have them in turn", owners);
    }
    const struct pp_holders h = {.n = 6, .index = 4, .ep = 3};
    ok(pp_table_holds(table, 4, 0, &h) && !pp_table_holds(table, 4, 2, &h) &&
           pp_table_holds(table, 4, 4, &h) && pp_table_holds(table, 4, 5, &h) &&
           !pp_table_holds(table, 4, 6, &h),
       "rank 4 of 6 has the second of three experts");
}

/* The runs of a range are the elements of the piece. */
static void test_runs(void)
{
    const struct pp_tensor_info t = {
        .rows = 5, .cols = 24, .split = PP_SPLIT_COLUMNS, .n_parts = 8};
    bool same = true;
    for (size_t rank = 0; rank < 3; rank++) {
        struct pp_tensor_piece p = pp_tensor_piece(&t, 3, rank);
        size_t n = pp_piece_elements(&p);
        for (size_t first = 0; first < n; first++) {
            const struct pp_range range = {first, (n - first + 1) / 2};
            struct pp_run r;
            size_t at = 0;
            for (; pp_piece_run(&p, range, at, &r); at += r.n)
                for (size_t i = 0; i < r.n; i++) {
                    size_t element = first + at + i;
                    same = same && r.at == at &&
                           r.whole + i == p.offset[0] +
                                              element / p.count[0] * p.stride +
                                              element % p.count[0];
                }
            same = same && at == range.n;
        }
    }
    ok(same, "ranges of pieces have their runs");
}

int main(void)
{
    test_in_file();
    test_cover();
    test_shapes();
    test_owners();
    test_most();
    for (size_t ep = 1; ep <= 4; ep++) {
        test_most_of_experts(ep, ep);
        test_most_of_experts(5 * ep, ep);
        test_most_of_experts(500 * ep, ep);
    }
    test_most_of_whole(1, 2, 1);
    test_most_of_whole(1, 4, 2);
    test_most_of_whole(3, 2, 6);
    test_most_of_whole(5, 4, 4);
    test_most_of_whole(3000, 2, 12);
    test_table();
    test_runs();
    return done();
}
