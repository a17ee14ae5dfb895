/* SPDX-License-Identifier: MIT */
/* test_split_megatron - Megatron-LM's layouts and layer counts against tables,
 * also of input that it should refuse. */
#include "base/rng.h"
#include "split/megatron.h"
#include "tap.h"

#define LENGTH(a) (sizeof(a) / sizeof *(a))

enum { MAX_STAGES = 80 };

/* Writes the layers of each chunk of each rank: "[4 4][3 3]" or "4 3". */
static const char *per_rank(const size_t *of, size_t n_ranks, size_t n_chunks,
                            char buf[512])
{
    int n = 0;
    for (size_t r = 0; r < n_ranks; r++)
        for (size_t c = 0; c < n_chunks; c++)
            n += snprintf(buf + n, 512 - (size_t)n, "%s%zu%s",
                          c > 0          ? " "
                          : n_chunks > 1 ? "["
                          : r > 0        ? " "
                                         : "",
                          of[c * n_ranks + r],
                          n_chunks > 1 && c == n_chunks - 1 ? "]" : "");
    return buf;
}

/* Layout strings, and their expansion or the error in them. */
static const struct {
    const char *layout, *want;
} expansions[] = {
    {"Et|t*4|t|tL", "Et|tttt|t|tL"},
    {"E|t|t*2|t||(t|)*2,t*2,L", "E|t|tt|t||t|t|ttL"},
    {"E|t*3|(t|)*4tm|L", "E|ttt|t|t|t|t|tm|L"},
    {"Et*2|(tt|)*5t|tmL", "Ett|tt|tt|tt|tt|tt|t|tmL"},
    {"Et*3|(tt|)*6tmL", "Ettt|tt|tt|tt|tt|tt|tt|tmL"},
    {"Et*3|(tt|)*6L", "Ettt|tt|tt|tt|tt|tt|tt|L"},
    {"E|(tt|)*2,(t|)*4,mL", "E|tt|tt|t|t|t|t|mL"},
    {"E||t|L", "E||t|L"},
    {"(t*2|)*3,L", "tt|tt|tt|L"},
    {"E|*3tL", "E|||tL"},
    {"", ""},
    {"E,,t,*,1,2|L", "Etttttttttttt|L"},
    {"Et*0|t*01L", "E|tL"},
    {"E(t|)*0L", "EL"},
    {"(t*0)*999999999L", "L"},
    {"E t|L", "character 2, ' ': must be one of E t m L |"},
    {"E(tt)L", "character 6, 'L': a group needs a count (*N)"},
    {"Et*2*3L", "character 5, '*': only one count is allowed"},
    {"E(t)*2*3L", "character 7, '*': only one count is allowed"},
    {"EtX|L", "character 3, 'X': must be one of E t m L |"},
    {"etL", "character 1, 'e': must be one of E t m L |"},
    {"Et*|L", "character 4, '|': a '*' needs a number"},
    {"Et*", "at the end: a '*' needs a number"},
    {"Et*-1L", "character 4, '-': a '*' needs a number"},
    {"*3", "character 1, '*': must be one of E t m L |"},
    {"E2L", "character 2, '2': must be one of E t m L |"},
    {"E()*2L", "character 3, ')': the group is empty"},
    {"E((t)*2)*2L", "character 3, '(': groups cannot be nested"},
    {"E(t", "at the end: a ')' is missing"},
    {"Et)*2L", "character 3, ')': must be one of E t m L |"},
    {"E\xc3\xa9L", "character 2, 0xc3: must be one of E t m L |"},
    {"t*1048577", "at the end: too many symbols"},
    {"(t*1048576)*2", "at the end: too many symbols"},
    {"t*99999999999999999999999", "at the end: too many symbols"},
};

static void test_expand(void)
{
    struct pp_arena a = {0};
    char what[64];
    const char *symbols;
    struct pp_err err;
    for (size_t i = 0; i < LENGTH(expansions); i++) {
        memset(&err, 0, sizeof err);
        snprintf(what, sizeof what, "layout %zu", i);
        int rc = pp_layout_expand(expansions[i].layout, &a, &symbols, &err);
        is_str(rc ? err.text : symbols, expansions[i].want, what);
    }
    memset(&err, 0, sizeof err);
    ok(pp_layout_expand("Et*2|(tt|)*29,t|mL", &a, &symbols, &err) == 0 &&
           pp_layout_n_stages(symbols) == 32,
       "DeepSeek-V3's has 32 stages");
    ok(pp_layout_expand("t*1048576", &a, &symbols, &err) == 0 &&
           strlen(symbols) == PP_LAYOUT_SYMBOLS,
       "as many symbols as there may be");
    pp_arena_finish(&a);
}

/* Checks of layouts in Megatron-LM's order, and their results. */
static const struct {
    const char *layout;
    size_t n_ranks, n_chunks, n_layers, n_mtp;
    const char *want;
} checks[] = {
    {"Et|t*4|t|tL", 2, 0, 7, 0, "2 chunks"},
    {"Et|t*4|t|tL", 2, 2, 7, 0, "2 chunks"},
    {"Et|t*4|t|tL", 2, 4, 7, 0, "4 stages are 2 chunks on each rank, not 4"},
    {"Et|t*4|t|tL", 3, 0, 7, 0, "4 stages do not divide by 3 ranks"},
    {"t|t*4|t|tL", 2, 0, 7, 0,
     "the first symbol is 't', but must be the embedding E"},
    {"", 1, 0, 7, 0, "the embedding E is missing"},
    {"|Et*7|t|tL", 2, 0, 9, 0, "2 chunks"},
    {"Et*7|", 2, 0, 7, 0, "the last symbol is 't', but must be the loss L"},
    {"Et*7L|", 2, 0, 7, 0, "1 chunks"},
    {"EEt|t|L", 3, 0, 2, 0, "'E' occurs 2 times, but must occur once"},
    {"Et|tL|L", 3, 0, 2, 0, "'L' occurs 2 times, but must occur once"},
    {"Et|t|L", 3, 0, 3, 0, "'t' occurs 2 times, but the model has 3 layers"},
    {"Et|t|mL", 3, 0, 2, 0,
     "'m' occurs 1 times, but the model has 0 layers for multi-token "
     "prediction"},
    {"Et|t|L", 3, 0, 2, 1,
     "'m' occurs 0 times, but the model has 1 layers for multi-token "
     "prediction"},
    {"Et|t|mmL", 3, 0, 2, 2, "1 chunks"},
    {"Et|m|tL", 3, 0, 2, 1, "a 't' comes after an 'm'"},
    {"Et|m|t|L", 2, 0, 2, 1, "a 't' comes after an 'm'"},
    {"Et|tm||L", 2, 0, 2, 1, "an 'm' is not in the last chunk of its rank"},
    {"Et|t|m|mL", 2, 0, 2, 2, "'m' is in more than one stage"},
    {"Et|t|m|L", 2, 0, 2, 1, "an 'm' is on the first rank"},
    {"EttmL", 1, 0, 2, 1, "1 chunks"},
    {"Et|t|m|L", 4, 0, 2, 1, "1 chunks"},
    {"Et*2|(tt|)*29,t|mL", 16, 0, 61, 1, "2 chunks"},
    {"Et*3|(tt|)*29,m|L", 16, 0, 61, 1, "2 chunks"},
    {"E|(tt|)*2,(t|)*4,mL", 4, 2, 8, 1, "2 chunks"},
    {"E|(tt|)*2,(t|)*4,mL", 2, 2, 8, 1,
     "8 stages are 4 chunks on each rank, not 2"},
    /* Cases of Megatron-LM's tests. */
    {"Et|tttt|t|tL", 2, 0, 7, 0, "2 chunks"},
    {"E|t*6|t|L", 2, 0, 7, 0, "2 chunks"},
};

static void test_check(void)
{
    for (size_t i = 0; i < LENGTH(checks); i++) {
        struct pp_arena a = {0};
        struct pp_err err = {0};
        struct pp_layout_check c = {
            .n_ranks = checks[i].n_ranks,
            .n_chunks = checks[i].n_chunks,
            .n_layers = checks[i].n_layers,
            .n_mtp = checks[i].n_mtp,
        };
        const char *symbols;
        char got[512], what[96];
        snprintf(what, sizeof what, "%s on %zu", checks[i].layout, c.n_ranks);
        if (pp_layout_expand(checks[i].layout, &a, &symbols, &err) ||
            pp_layout_check(symbols, &c, &err))
            snprintf(got, sizeof got, "%s", err.text);
        else
            snprintf(got, sizeof got, "%zu chunks", c.n_chunks);
        is_str(got, checks[i].want, what);
        pp_arena_finish(&a);
    }
}

/* Expected layers, and layers before them, of each rank and chunk. */
static void layout_counts(const char *layout, size_t n_ranks,
                          const char *counts_want, const char *before_want)
{
    struct pp_arena a = {0};
    struct pp_err err = {0};
    const char *symbols;
    size_t counts[MAX_STAGES], before[MAX_STAGES], sum = 0;
    char buf[512];
    if (!ok(pp_layout_expand(layout, &a, &symbols, &err) == 0, "%s", layout))
        return;
    size_t n = pp_layout_n_stages(symbols);
    pp_layout_counts(symbols, counts);
    for (size_t s = 0; s < n; sum += counts[s++])
        before[s] = sum;
    is_str(per_rank(counts, n_ranks, n / n_ranks, buf), counts_want,
           "has these layers");
    is_str(per_rank(before, n_ranks, n / n_ranks, buf), before_want,
           "after these");
    pp_arena_finish(&a);
}

static const struct {
    struct pp_megatron m;
    const char *want, *before;
} megatron[] = {
    {{60, 5, 1, 0, 4, 0, 0}, "14 14 14 14 4", "0 14 28 42 56"},
    {{64, 4, 1, 0, 0, 0, 0}, "16 16 16 16", "0 16 32 48"},
    {{60, 6, 1, 5, 0, 0, 0}, "5 11 11 11 11 11", "0 5 16 27 38 49"},
    {{63, 4, 1, 0, 0, 0, 1}, "16 16 16 15", "0 16 32 48"},
    {{63, 4, 1, 0, 0, 1, 0}, "15 16 16 16", "0 15 31 47"},
    {{62, 4, 2, 0, 0, 1, 1},
     "[7 8][8 8][8 8][8 7]",
     "[0 31][7 39][15 47][23 55]"},
    {{26, 4, 2, 8, 0, 0, 0},
     "[4 4][3 3][3 3][3 3]",
     "[0 13][4 17][7 20][10 23]"},
    {{24, 4, 2, 0, 0, 0, 0},
     "[3 3][3 3][3 3][3 3]",
     "[0 12][3 15][6 18][9 21]"},
    {{14, 4, 2, 0, 0, 1, 1}, "[1 2][2 2][2 2][2 1]", "[0 7][1 9][3 11][5 13]"},
    {{12, 4, 2, 2, 2, 0, 0}, "[1 1][2 2][2 2][1 1]", "[0 6][1 7][3 9][5 11]"},
    {{8, 2, 2, 0, 0, 0, 0}, "[2 2][2 2]", "[0 4][2 6]"},
    {{5, 1, 1, 0, 0, 1, 1}, "5", "0"},
    {{5, 1, 1, 0, 0, 0, 0}, "5", "0"},
    {{6, 1, 2, 0, 0, 1, 1}, "[3 3]", "[0 3]"},
    {{1, 3, 1, 0, 0, 1, 1}, "0 1 0", "0 0 1"},
    /* Megatron-LM divides by zero here. */
    {{8, 2, 2, 2, 6, 0, 0}, "[1 1][3 3]", "[0 4][1 5]"},
    {{101, 8, 1, 13, 13, 0, 0},
     "the 75 layers that are left do not divide by the 6 other ranks",
     NULL},
    {{65, 4, 1, 0, 0, 1, 1},
     "67 layers with embedding and loss do not divide by 4 ranks",
     NULL},
    {{65, 4, 1, 0, 0, 1, 0},
     "66 layers with the embedding do not divide by 4 ranks",
     NULL},
    {{65, 4, 1, 0, 0, 0, 1},
     "66 layers with the loss do not divide by 4 ranks",
     NULL},
    {{2, 4, 1, 0, 0, 0, 0}, "2 layers do not divide by 4 ranks", NULL},
    {{30, 4, 1, 0, 0, 0, 0}, "30 layers do not divide by 4 ranks", NULL},
    {{50, 2, 7, 0, 0, 0, 0},
     "25 layers of a rank do not divide by its 7 chunks",
     NULL},
    {{7, 2, 1, 4, 4, 0, 0},
     "the first and last rank have 8 layers, but the model has only 7",
     NULL},
    {{9, 2, 1, 4, 4, 0, 0},
     "1 layers are left, but there is no rank between the first and the last",
     NULL},
    {{8, 4, 1, 4, 4, 0, 0}, "no layers are left for the 2 other ranks", NULL},
    {{12, 4, 2, 3, 0, 0, 0},
     "3 layers of the first rank do not divide by its 2 chunks",
     NULL},
    {{12, 4, 2, 2, 3, 0, 0},
     "3 layers of the last rank do not divide by its 2 chunks",
     NULL},
    {{10, 4, 2, 0, 1, 0, 0},
     "1 layers of the last rank do not divide by its 2 chunks",
     NULL},
    {{11, 4, 2, 2, 0, 0, 0},
     "3 layers of a rank do not divide by its 2 chunks",
     NULL},
    {{1, 2, 1, 0, 2, 0, 0},
     "the first and last rank have 2 layers, but the model has only 1",
     NULL},
    {{8, 1, 1, 3, 0, 0, 0},
     "layer counts for the first or last rank need at least 2 ranks",
     NULL},
    {{8, 4, 1, 2, 0, 1, 0},
     "accounting for embedding or loss excludes layer counts for the first and "
     "last "
     "rank",
     NULL},
    {{8, 0, 1, 0, 0, 0, 0}, "no stages to split into", NULL},
};

static void test_megatron(void)
{
    for (size_t i = 0; i < LENGTH(megatron); i++) {
        const struct pp_megatron *m = &megatron[i].m;
        size_t counts[MAX_STAGES], before[MAX_STAGES], sum = 0;
        size_t n = m->n_ranks * m->n_chunks;
        struct pp_err err = {0};
        char what[96], buf[512];
        snprintf(what, sizeof what, "Megatron %zu on %zu x %zu, %zu and %zu",
                 m->n_layers, m->n_ranks, m->n_chunks, m->first, m->last);
        if (pp_split_megatron(m, counts, &err)) {
            is_str(err.text, megatron[i].want, what);
            continue;
        }
        is_str(per_rank(counts, m->n_ranks, m->n_chunks, buf), megatron[i].want,
               what);
        for (size_t s = 0; s < n; sum += counts[s++])
            before[s] = sum;
        is_int((long long)sum, (long long)m->n_layers,
               "every layer is in a stage");
        is_str(per_rank(before, m->n_ranks, m->n_chunks, buf),
               megatron[i].before ? megatron[i].before : "an error",
               "and they follow these");
    }
}

static void test_format(void)
{
    static const struct {
        size_t n, counts[8];
        const char *want;
    } rows[] = {
        {1, {7}, "Et*7L"},
        {1, {0}, "EL"},
        {2, {1, 2}, "Et|ttL"},
        {4, {0, 0, 8, 0}, "E||t*8|L"},
        {5, {2, 2, 2, 2, 2}, "Ett|(tt|)*3,ttL"},
        {4, {2, 2, 2, 2}, "Ett|tt|tt|ttL"},
        {6, {1, 0, 0, 0, 3, 0}, "Et|(|)*3,t*3|L"},
        {8, {3, 4, 4, 4, 4, 4, 4, 1}, "Et*3|(t*4|)*6,tL"},
    };
    struct pp_arena a = {0};
    for (size_t i = 0; i < LENGTH(rows); i++)
        is_str(pp_layout_format(&a, rows[i].counts, rows[i].n), rows[i].want,
               "layout string");
    int wrong = 0;
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t key = pp_rng_key(i, "layout");
        size_t n = 1 + pp_rng_bits(key, 0) % 20, counts[20], again[20];
        for (size_t s = 0; s < n; s++)
            counts[s] = pp_rng_bits(key, 1 + s / (1 + i % 5)) % 5;
        const char *symbols;
        struct pp_err err = {0};
        struct pp_arena scratch = {0};
        const char *text = pp_layout_format(&scratch, counts, n);
        if (pp_layout_expand(text, &scratch, &symbols, &err) ||
            pp_layout_n_stages(symbols) != n) {
            wrong++;
        } else {
            pp_layout_counts(symbols, again);
            wrong += memcmp(counts, again, n * sizeof *counts) != 0 ||
                     symbols[0] != 'E' || symbols[strlen(symbols) - 1] != 'L';
        }
        pp_arena_finish(&scratch);
    }
    is_int(wrong, 0, "500 random layouts are read as they were written");
    pp_arena_finish(&a);
}

int main(void)
{
    test_expand();
    test_check();
    layout_counts("E|t|t*2|t||(t|)*2,t*2,L", 4, "[0 0][1 1][2 1][1 2]",
                  "[0 4][0 4][1 5][3 6]");
    layout_counts("Et*3|(tt|)*29,m|L", 16,
                  "[3 2][2 2][2 2][2 2][2 2][2 2][2 2][2 2][2 2][2 2][2 2]"
                  "[2 2][2 2][2 2][2 0][2 0]",
                  "[0 33][3 35][5 37][7 39][9 41][11 43][13 45][15 47][17 49]"
                  "[19 51][21 53][23 55][25 57][27 59][29 61][31 61]");
    test_megatron();
    test_format();
    return done();
}
