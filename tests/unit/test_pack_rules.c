/* SPDX-License-Identifier: MIT */
/* test_pack_rules - compares modified first-fit decreasing, worst-fit,
 * first-fit and the rules for a number of parts with the bins of other
 * systems. */
#include "pack_fixture.h"

#include "pack/rule.h"

static void test_bins(void)
{
    IS_PACKED("mffd", small, "[[8,0],[7,1],[6,2],[5,3],[4]]");
    IS_PACKED("mffd", same, "[[3,4],[0,1,2]]");
    IS_PACKED("mffd", mixed, "[[2],[9,0],[4,3],[6,5],[8,7],[1]]");
    IS_PACKED(
        "mffd", large,
        "[[51,27],[52],[17,1],[41,12],[73,18],[9,43],[25,57],[54,84],[92,56],["
        "19,72],[81,90],[49,48],[7,8],[21,13],[45,38],[75,62],[16,46],[95,5],["
        "78,74],[44,28],[65,67],[97,77],[24,32],[10,70],[29,20],[22,14],[88,15]"
        ",[96,58],[37,3],[47,76],[63,61],[79,85],[68,42],[53,71],[66,80],[39,2]"
        ",[69,26],[40,31],[30,50],[34,59],[83,64],[60,11,86],[55,98,0],[89,99],"
        "[91,94,6],[4,23,36],[82,33,35],[87,93]]");
    is_packed("mffd", (const uint32_t[]){19, 46, 23, 52, 53, 65, 12, 8, 19}, 9,
              100, "[[5,8,6],[4,1],[3,0,2],[7]]", "one more than ffd");
    is_packed("mffd", small, 0, 100, "[]", "nothing");
    IS_PACKED("wfd", medium,
              "[[7],[16],[6,8],[15],[5,0],[14,9],[4,1],[13,10],[3,2],[12,11]]");
    IS_PACKED("wfd", single, "[[0]]");
    IS_PACKED("wfd", full, "[[0],[1],[2]]");
    is_packed("wfd", (const uint32_t[]){3, 2, 4, 1}, 4, 5, "[[2,3],[0,1]]",
              "3 2 4 1");
    is_packed("wfd", small, 0, 100, "[]", "nothing");
    is_packed("first-fit", (const uint32_t[]){5, 3, 2, 7}, 4, 10,
              "[[0,1,2],[3]]", "5 3 2 7");
    is_packed("first-fit", (const uint32_t[]){5, 7, 5, 3}, 4, 10,
              "[[0,2],[1,3]]", "a sequence goes back to an earlier bin");
    is_packed("lpt", (const uint32_t[]){10, 10, 10, 10}, 4, 15,
              "[[0],[1],[2],[3]]", "no two fit");
    is_packed("lpt", (const uint32_t[]){4, 5, 6, 7, 8}, 5, 15,
              "[[4],[3,0],[2,1]]", "two parts would be 13 and 17");
    is_packed("lpt", small, 0, 100, "[]", "nothing");
    is_packed("karmarkar-karp", (const uint32_t[]){7, 7, 7, 7, 7, 7, 7, 7}, 8,
              8, "[[7],[6],[5],[4],[3],[2],[1],[0]]",
              "more parts than the sum needs");
}

static void is_divided(pp_parts_fn *divide, const uint32_t *lengths, size_t n,
                       size_t n_parts, const char *want)
{
    struct pp_bins b;
    char got[512];
    divide(lengths, n, n_parts, &b);
    print(&b, got, sizeof got);
    is_str(got, want, "divided");
    pp_bins_finish(&b);
}

static void test_parts(void)
{
    static const uint32_t six[] = {100, 200, 150, 50, 300, 250};
    static const uint32_t five[] = {4, 5, 6, 7, 8};
    static const uint32_t zeros[] = {5, 0, 0, 5, 5, 5, 0};
    is_divided(pp_parts_kk_equal, six, 6, 2, "[[0,2,4],[1,3,5]]");
    is_divided(pp_parts_kk, five, 5, 3, "[[1,2],[0,3],[4]]");
    is_divided(pp_parts_kk, zeros, 7, 4, "[[1,4],[2,3],[0,6],[5]]");
    is_divided(pp_parts_kk, five, 5, 5, "[[4],[3],[2],[1],[0]]");
    is_divided(pp_parts_kk, five, 5, 1, "[[0,1,2,3,4]]");
}

/* Hashes of the bins that a plain version of each system's loops makes. */
static void test_other_systems(void)
{
    static const struct {
        pp_pack_fn *pack;
        uint64_t hash;
    } cases[] = {
        {pp_pack_axolotl, UINT64_C(0xa46000299ec3237f)},
        {pp_pack_megatron_rl, UINT64_C(0x2d3b87d26cddaf07)},
    };
    uint32_t *lengths = draw_lengths(10000, 4096);
    struct pp_bins b = {0};
    for (size_t i = 0; i < 2; i++) {
        pack_by(cases[i].pack, lengths, 10000, 4096, &b);
        ok(hash_bins(&b) == cases[i].hash, "10000 sequences: %s",
           i ? "Megatron RL's" : "axolotl's");
        pp_bins_finish(&b);
    }
    free(lengths);
    uint32_t *ones = malloc(100200 * sizeof *ones);
    for (size_t i = 0; i < 100200; i++)
        ones[i] = 1;
    pack_by(pp_pack_axolotl, ones, 100200, 1000, &b);
    ok(b.n_bins == 501 && b.first[1] == 200 && is_valid(&b, ones, 100200, 1000),
       "axolotl: 200 sequences a bin");
    pp_bins_finish(&b);
    ones[99999] = 999;
    ones[100000] = 2;
    pack_by(pp_pack_axolotl, ones, 100200, 1000, &b);
    ok(b.items[b.first[501]] == 100000,
       "axolotl: a group begins with a new bin");
    pp_bins_finish(&b);
    free(ones);
}

static void is_raised(const char *rule, const uint32_t *lengths, size_t n,
                      size_t least, size_t multiple, const char *want)
{
    struct pp_bins b;
    struct pp_err err = {0};
    char got[512];
    pack_by(pp_packer_find(rule)->pack, lengths, n, 100, &b);
    if (pp_bins_multiple_by_popping(&b, least, multiple, &err) != 0) {
        ok(false, "%s: %s", want, err.text);
        return;
    }
    print(&b, got, sizeof got);
    is_str(got, want, "bins raised in NeMo-RL's way");
    pp_bins_finish(&b);
}

static void test_popping(void)
{
    is_raised("ffd", small, 9, 7, 1, "[[8,0],[7,1],[6],[5],[4],[3],[2]]");
    is_raised("next-fit", small, 9, 8, 1,
              "[[0,1],[4],[5],[6],[7],[8],[3],[2]]");
    is_raised("ffd", medium, 17, 0, 4,
              "[[16],[7],[15,8],[6],[14,9],[5,0],[13,10],[4,1],[12],[3],[2],["
              "11]]");
    is_raised("next-fit", small, 9, 7, 3,
              "[[0],[4],[5],[6],[7],[8],[3],[2],[1]]");
    is_raised("mffd", small, 9, 6, 3, "[[8,0],[7,1],[6,2],[5],[4],[3]]");
    struct pp_bins b;
    struct pp_err err = {0};
    static const uint32_t two[] = {50, 50};
    pack_by(pp_packer_find("ffd")->pack, two, 2, 100, &b);
    ok(pp_bins_multiple_by_popping(&b, 0, 4, &err) != 0 &&
           err.code == PP_EXIT_INPUT,
       "four bins of two sequences: %s", err.text);
    pp_bins_finish(&b);
}

static void test_hashes(void)
{
    static const struct pinned cases[] = {
        {"mffd", 10000, 4096, UINT64_C(0xffad93b949b1e76a), 1578},
        {"mffd", 100000, 8192, UINT64_C(0xcc00383123fd2aa6), 8062},
        {"wfd", 10000, 4096, UINT64_C(0x06c192f5a87ce57b), 1578},
        {"wfd", 100000, 8192, UINT64_C(0x7e3f6af8d8a5e0c6), 8063},
        {"mffd", 1000000, 4096, UINT64_C(0x774ab0b39a41bbfc), 157485},
        {"wfd", 1000000, 4096, UINT64_C(0x927a35a8dd9a9b05), 157485},
        {"bfd", 1000000, 4096, UINT64_C(0xcfe24679ec411088), 157485},
        {"next-fit", 1000000, 4096, UINT64_C(0x2b52c94c30e9e3aa), 186739},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        is_pinned(&cases[i]);
}

/* Hashes of the parts that verl's own karmarkar_karp makes. */
static void test_parts_hashes(void)
{
    static const struct {
        pp_parts_fn *divide;
        size_t n, n_parts;
        uint64_t hash;
    } cases[] = {
        {pp_parts_kk, 512, 8, UINT64_C(0x186f79e7fe9a7bf0)},
        {pp_parts_kk_equal, 512, 8, UINT64_C(0x511b9b85007df1b5)},
        {pp_parts_kk, 2000, 64, UINT64_C(0x36c3d92d94631993)},
        {pp_parts_kk, 2000, 500, UINT64_C(0x36a6e8c7a5f8d2d4)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t *lengths = draw_lengths(cases[i].n, 4096);
        struct pp_bins b = {0};
        cases[i].divide(lengths, cases[i].n, cases[i].n_parts, &b);
        ok(hash_bins(&b) == cases[i].hash, "%zu sequences in %zu parts: verl's",
           cases[i].n, cases[i].n_parts);
        pp_bins_finish(&b);
        free(lengths);
    }
}

/* Rules for a number of parts must need few more bins than rules that know the
 * capacity, with loads closer together. */
static void test_fewest(void)
{
    uint32_t *lengths = draw_lengths(5000, 4096);
    static const char *const rules[] = {"lpt", "karmarkar-karp"};
    for (int r = 0; r < 2; r++) {
        struct pp_bins b = {0};
        size_t bound = 0;
        pack_by(pp_packer_find(rules[r])->pack, lengths, 5000, 4096, &b);
        pp_pack_lower_bound(lengths, 5000, 4096, &bound);
        ok(is_valid(&b, lengths, 5000, 4096) && b.n_bins <= bound + 8,
           "%s: %zu bins, bound %zu", rules[r], b.n_bins, bound);
        pp_bins_finish(&b);
    }
    free(lengths);
}

int main(void)
{
    test_bins();
    test_parts();
    test_hashes();
    test_parts_hashes();
    test_fewest();
    test_other_systems();
    test_popping();
    return done();
}
