/* SPDX-License-Identifier: MIT */
/* test_pack - compares packing rules with the bins of other systems and with
 * exhaustive search. */
#include "pack_fixture.h"

static void test_assignments(void)
{
    IS_PACKED("next-fit", small, "[[0,1,2,3],[4],[5],[6],[7],[8]]");
    IS_PACKED("next-fit", same, "[[0,1,2],[3,4]]");
    IS_PACKED("next-fit", mixed, "[[0,1],[2],[3,4],[5,6],[7,8],[9]]");
    IS_PACKED(
        "next-fit", large,
        "[[0,1,2],[3,4],[5,6],[7,8],[9],[10,11,12],[13,14,15],[16],[17,18],[19]"
        ",[20],[21],[22],[23],[24],[25],[26,27,28],[29],[30,31],[32,33],[34,35,"
        "36],[37,38],[39],[40],[41],[42,43],[44],[45],[46,47],[48,49],[50],[51]"
        ",[52],[53],[54],[55,56,57],[58,59],[60,61,62],[63],[64],[65],[66,67],["
        "68],[69,70],[71,72],[73],[74],[75],[76,77],[78],[79],[80],[81],[82,83]"
        ",[84,85,86],[87],[88],[89,90,91],[92],[93,94],[95],[96],[97,98],[99]"
        "]");
    IS_PACKED("ffd", medium,
              "[[16],[7],[15,8],[6],[14,9],[5,0],[13,10],[4,1],[12,11],[3,2]]");
    IS_PACKED("ffd", single, "[[0]]");
    IS_PACKED("ffd", full, "[[2],[1],[0]]");
    IS_PACKED("ffd", zero, "[[0,2,1]]");
    is_packed("ffd", small, 0, 100, "[]", "nothing");
    IS_PACKED("bfd", small, "[[8,0],[7,1],[6,2],[5,3],[4]]");
    IS_PACKED("bfd", same, "[[0,1,2],[3,4]]");
    IS_PACKED("bfd", mixed, "[[2],[9,0],[4,3],[6,5],[8,7],[1]]");
    IS_PACKED(
        "bfd", large,
        "[[51,27],[52],[17,1],[41,12],[73,18],[9,43],[25,57],[54,84],[92,56],["
        "19,72],[81,90],[49,48],[7,8],[21,13],[45,38],[75,62],[16,6],[95,5],["
        "78,74],[44,28],[65,67],[97,77],[24,32],[10,70],[29,20],[22,14],[88,15]"
        ",[96,58],[37,3],[47,76],[63,61],[79,85],[68,42],[53,71],[66,80],[39,2]"
        ",[69,26],[40,31],[30,50],[34,59],[83,64],[87,93],[89,99],[4,23,0],[82,"
        "33,46],[91,94,35],[55,98,36,11],[60,86]]");
    is_packed("bfd", small, 0, 100, "[]", "nothing");
    is_packed("none", small, 9, 4, "[[0,1,2,3],[4,5,6,7],[8]]", "four a bin");
    is_packed("next-fit", (const uint32_t[]){4, 1, 3, 2, 1, 3, 4, 5}, 8, 5,
              "[[0,1],[2,3],[4,5],[6],[7]]", "exact fits");
    is_packed("bfd", (const uint32_t[]){5, 1, 4, 3}, 4, 5, "[[0],[2,1],[3]]",
              "a capacity that is not a power of two");
    ok(!pp_packer_find("worst"), "an unknown rule is not found");
}

static void test_hashes(void)
{
    static const struct pinned cases[] = {
        {"bfd", 10000, 4096, UINT64_C(0xa892d4e849e69f7d), 1578},
        {"bfd", 100000, 8192, UINT64_C(0x96d200827bc5498d), 8062},
        {"ffd", 10000, 4096, UINT64_C(0x0cb0503142344f7a), 1578},
        {"ffd", 100000, 8192, UINT64_C(0x3ca64d813db84c1a), 8062},
        {"next-fit", 10000, 4096, UINT64_C(0x0ec32f1ef0e29f2c), 1864},
        {"next-fit", 100000, 8192, UINT64_C(0xd4a98c503e2e9a77), 8940},
        {"first-fit-shuffle", 10000, 4096, UINT64_C(0x656c0fc188eebc3d), 1583},
        {"first-fit-shuffle", 100000, 8192, UINT64_C(0xd5c91640ad755465), 8071},
        {"best", 100000, 8192, UINT64_C(0x96d200827bc5498d), 8062},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        is_pinned(&cases[i]);
}

static void test_random(void)
{
    uint64_t key = pp_rng_key(7, "test");
    size_t invalid = 0, above = 0, met = 0, not_least = 0, uncertified = 0,
           below = 0;
    for (uint64_t r = 0; r < 400; r++) {
        uint32_t lengths[9], load[10];
        size_t n = 1 + pp_rng_bits(key, 100 * r) % 9, bound = 0;
        uint32_t capacity = 10 + (uint32_t)(pp_rng_bits(key, 100 * r + 1) % 30);
        for (size_t i = 0; i < n; i++)
            lengths[i] =
                1 + (uint32_t)(pp_rng_bits(key, 100 * r + 2 + i) % capacity);
        size_t least = fewest_bins(lengths, n, 0, capacity, load, 0, n + 1);
        pp_pack_lower_bound(lengths, n, capacity, &bound);
        above += bound > least;
        met += bound == least;
        pp_pack_certify(lengths, n, capacity, least, &bound);
        uncertified += bound != least;
        for (const struct pp_packer *p = pp_packers; p->name; p++) {
            struct pp_bins b;
            if (!strcmp(p->name, "none"))
                continue;
            pack_by(p->pack, lengths, n, capacity, &b);
            if (!is_valid(&b, lengths, n, capacity))
                invalid++;
            below += b.n_bins < least;
            not_least += !strcmp(p->name, "best") && b.n_bins != least;
            pp_bins_finish(&b);
        }
    }
    is_int((long long)invalid, 0, "all rules: each item once, no overfull bin");
    is_int((long long)below, 0, "no rule beats exhaustive search");
    is_int((long long)above, 0, "the lower bound is never above the optimum");
    ok(met > 350, "the lower bound meets the optimum nearly always (%zu/400)",
       met);
    is_int((long long)not_least, 0, "best is as good as exhaustive search");
    is_int((long long)uncertified, 0, "and is certified");
}

static void test_bound(void)
{
    size_t bound = 99;
    uint32_t *lengths = draw_lengths(100000, 8192);
    pp_pack_lower_bound(lengths, 100000, 8192, &bound);
    ok(bound == 8062, "lower bound of the benchmark");
    free(lengths);
    static const uint32_t above_half[] = {51, 51, 51, 51};
    pp_pack_lower_bound(above_half, 4, 100, &bound);
    ok(bound == 4, "items above half cannot share");
    /* Each 60 leaves 40, too little for a 50: 4 bins, and 1 bin of two 50s. */
    static const uint32_t pairs[] = {60, 60, 60, 60, 50, 50};
    pp_pack_lower_bound(pairs, 6, 100, &bound);
    ok(bound == 5, "the bound is above total / capacity where thresholds tell");
    pp_pack_lower_bound(pairs, 0, 100, &bound);
    ok(bound == 0, "no items need no bin");
}

static void test_multiple(void)
{
    uint64_t key = pp_rng_key(8, "test");
    size_t wrong = 0;
    for (uint64_t r = 0; r < 300; r++) {
        uint32_t lengths[40];
        size_t n = 1 + pp_rng_bits(key, 100 * r) % 40;
        size_t multiple = 1 + pp_rng_bits(key, 100 * r + 1) % 9;
        for (size_t i = 0; i < n; i++)
            lengths[i] = 1 + (uint32_t)(pp_rng_bits(key, 100 * r + 2 + i) % 60);
        struct pp_bins b;
        struct pp_err err = {0};
        pack_by(pp_packer_find("bfd")->pack, lengths, n, 100, &b);
        size_t target = (b.n_bins + multiple - 1) / multiple * multiple;
        int rc = pp_bins_multiple(&b, lengths, 100, 0, multiple, &err);
        if (target > n)
            wrong += rc == 0 || err.code != PP_EXIT_INPUT;
        else
            wrong +=
                rc != 0 || b.n_bins != target || !is_valid(&b, lengths, n, 100);
        pp_bins_finish(&b);
    }
    is_int((long long)wrong, 0,
           "a multiple of bins, none empty, or an error without enough items");
    struct pp_bins b;
    struct pp_err err = {0};
    pack_by(pp_packer_find("bfd")->pack, small, 9, 100, &b);
    if (pp_bins_multiple(&b, small, 100, 0, 7, &err) == 0)
        is_int((long long)pp_bins_largest(&b, small), 90,
               "loads are balanced if there is room");
    pp_bins_finish(&b);
    /* 40 full bins, 60 + 40 and 50 + 25 + 25. Spread over 41 bins, longest
     * first, one would have 105, so a full bin must be split. */
    uint32_t tight[100];
    for (size_t i = 0; i < 20; i++) {
        static const uint32_t pattern[] = {60, 40, 50, 25, 25};
        memcpy(tight + 5 * i, pattern, sizeof pattern);
    }
    pack_by(pp_packer_find("bfd")->pack, tight, 100, 100, &b);
    ok(b.n_bins == 40 && pp_bins_multiple(&b, tight, 100, 0, 41, &err) == 0 &&
           b.n_bins == 41 && is_valid(&b, tight, 100, 100),
       "a full bin is split if spreading exceeds the capacity");
    ok(pp_bins_multiple(&b, tight, 100, 0, 97, &err) == 0 && b.n_bins == 97 &&
           is_valid(&b, tight, 100, 100) && pp_bins_largest(&b, tight) == 60,
       "nearly as many bins as items");
    pp_bins_finish(&b);
}

/* Splits bins down to single items. */
static void test_split(void)
{
    uint64_t key = pp_rng_key(9, "test");
    size_t wrong = 0, kept = 0;
    for (uint64_t r = 0; r < 100; r++) {
        /* Full bins are cut at random, so that every bin can be full. */
        uint32_t lengths[400];
        size_t n = 0, n_full = 30;
        for (size_t k = 0; k < n_full; k++)
            for (uint32_t left = 100; left > 0; n++) {
                uint32_t part =
                    20 + (uint32_t)(pp_rng_bits(key, 1000 * r + n) % 50);
                lengths[n] = part + 20 > left ? left : part;
                left -= lengths[n];
            }
        struct pp_bins b;
        struct pp_err err = {0};
        pack_by(pp_packer_find("next-fit")->pack, lengths, n, 100, &b);
        if (b.n_bins != n_full ||
            pp_bins_multiple(&b, lengths, 100, 0, n_full + 1, &err) != 0) {
            wrong++;
            continue;
        }
        wrong += b.n_bins != n_full + 1 || !is_valid(&b, lengths, n, 100);
        kept += pp_bins_largest(&b, lengths) == 100;
        pp_bins_finish(&b);
    }
    is_int((long long)wrong, 0, "full bins and one more");
    ok(kept > 10, "some of them by splitting (%zu)", kept);
}

static void test_shuffle(void)
{
    struct pp_bins a, b, c;
    const struct pp_packer *bfd = pp_packer_find("bfd");
    char text[3][4096];
    pack_by(bfd->pack, large, 100, 100, &a);
    pack_by(bfd->pack, large, 100, 100, &b);
    pack_by(bfd->pack, large, 100, 100, &c);
    pp_bins_shuffle(&b, 1);
    pp_bins_shuffle(&c, 1);
    print(&a, text[0], sizeof text[0]);
    print(&b, text[1], sizeof text[1]);
    print(&c, text[2], sizeof text[2]);
    is_str(text[2], text[1], "the same seed gives the same order");
    ok(strcmp(text[0], text[1]) != 0 && is_valid(&b, large, 100, 100),
       "shuffled bins are the same bins in another order");
    ok(strstr(text[1], "[55,98,36,11]"), "the order inside a bin stays");
    pp_bins_shuffle(&c, 2);
    print(&c, text[2], sizeof text[2]);
    ok(strcmp(text[1], text[2]) != 0, "another seed gives another order");
    pp_bins_finish(&a);
    pp_bins_finish(&b);
    pp_bins_finish(&c);
}

int main(void)
{
    test_assignments();
    test_hashes();
    test_random();
    test_bound();
    test_multiple();
    test_split();
    test_shuffle();
    return done();
}
