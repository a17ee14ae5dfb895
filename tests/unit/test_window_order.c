/* SPDX-License-Identifier: MIT */
/* test_window_order - the order of features by windows, beside
 * get_vision_window_index of transformers 5.23. */
#include "run/execute/window_order.h"

#include <string.h>

#include "tap.h"

enum { MOST = 64 };

struct image {
    struct pp_grid grid;
    struct pp_window_sides sides;
    size_t n, n_windows;
    int32_t places[MOST], ends[MOST];
};

static const struct image images[] = {
    {{1, 10, 14},
     {2, 2},
     35,
     12,
     {0,  1,  4,  5,  8,  9,  12, 2,  3,  6,  7,  10, 11, 13, 14, 15, 18, 19,
      22, 23, 26, 16, 17, 20, 21, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34},
     {16, 32, 48, 56, 72, 88, 104, 112, 120, 128, 136, 140}},
    {{1, 6, 6}, {2, 3}, 9, 1, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {36}},
    {{1, 4, 2}, {2, 5}, 2, 1, {0, 1}, {8}},
    {{1, 9, 3}, {3, 2}, 3, 2, {0, 1, 2}, {18, 27}},
};

/* Two images as one list. */
static const int32_t both_places[] = {0, 1, 4, 2, 3, 5, 6, 7, 8, 9, 10};
static const int32_t both_ends[] = {16, 24, 32, 36, 44};

static void test_one(const struct image *x)
{
    int32_t places[MOST], ends[MOST];
    size_t n = pp_window_order(&x->grid, &x->sides, 0, places, ends);
    ok(n == x->n_windows && !memcmp(places, x->places, x->n * sizeof *places),
       "%u x %u patches: places of features", x->grid.rows, x->grid.columns);
    ok(!memcmp(ends, x->ends, x->n_windows * sizeof *ends),
       "  the ends of %zu windows", n);
}

static void test_two(void)
{
    static const struct pp_grid grids[] = {{1, 6, 6}, {1, 2, 4}};
    static const struct pp_window_sides sides = {2, 2};
    int32_t places[MOST], ends[MOST];
    size_t n = pp_window_order(&grids[0], &sides, 0, places, ends);
    n += pp_window_order(&grids[1], &sides, 9, places + 9, ends + n);
    ok(n == 5 && !memcmp(places, both_places, sizeof both_places) &&
           !memcmp(ends, both_ends, sizeof both_ends),
       "the second of two images goes on where the first ends");
}

int main(void)
{
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        test_one(&images[i]);
    test_two();
    return done();
}
