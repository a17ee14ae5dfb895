/* SPDX-License-Identifier: MIT */
/* test_pack_best - the rule best must have no more bins than any other rule or
 * system, and no fewer than the bound. */
#include "pack_fixture.h"

#include "pack/rule.h"

enum { CAPACITY = 2048 };

enum shape {
    LOGNORMAL,
    NARROW,
    UNIFORM,
    MIDDLE,
    BIMODAL,
    THIRDS,
    TRIPLES,
    ALIGNED,
    EQUAL,
    CHAT,
    N_SHAPES
};

static const char *const shape_names[N_SHAPES] = {"lognormal",
                                                  "narrow lognormal",
                                                  "uniform",
                                                  "0.05 to 0.7 of a bin",
                                                  "bimodal",
                                                  "about a third",
                                                  "triples that fill bins",
                                                  "multiples of 64",
                                                  "equal",
                                                  "chats"};

struct source {
    uint64_t key, at;
};

static double uniform(struct source *s)
{
    return pp_rng_uniform(s->key, s->at++);
}

static uint32_t between(struct source *s, double low, double high)
{
    return (uint32_t)(low + uniform(s) * (high - low + 1));
}

static uint32_t lognormal(struct source *s, double mean, double deviation)
{
    double v = exp(mean + deviation * pp_rng_normal(s->key, s->at++)) + 0.5;
    return v < 1 ? 1 : v > CAPACITY ? CAPACITY : (uint32_t)v;
}

static uint32_t draw(struct source *s, enum shape shape, size_t i,
                     const uint32_t *before)
{
    double c = CAPACITY;
    switch (shape) {
    case LOGNORMAL:
        return lognormal(s, 5.3, 1);
    case NARROW:
        return lognormal(s, 6.3, 0.6);
    case UNIFORM:
        return between(s, 1, c - 1);
    case MIDDLE:
        return between(s, 0.05 * c, 0.7 * c);
    case BIMODAL:
        return uniform(s) < 0.5 ? between(s, 0.3 * c, 0.38 * c)
                                : between(s, 0.51 * c, 0.7 * c);
    case THIRDS:
        return between(s, CAPACITY / 3 - 2, CAPACITY / 3 + 3);
    case TRIPLES:
        return i % 3 < 2 ? between(s, 0.2 * c, 0.45 * c)
                         : CAPACITY - before[i - 1] - before[i - 2];
    case CHAT:
        return uniform(s) < 0.7 ? lognormal(s, 4.3, 0.7) : lognormal(s, 6, 0.9);
    case ALIGNED:
        return (lognormal(s, 5.3, 1) + 63) / 64 * 64;
    default:
        return i ? before[0] : between(s, 1, c - 1);
    }
}

/* The rules of other systems that keep to the capacity. */
static pp_pack_fn *const rules[] = {
    pp_pack_bfd,        pp_pack_ffd,      pp_pack_mffd,
    pp_pack_wfd,        pp_pack_fill,     pp_pack_first_fit,
    pp_pack_axolotl,    pp_pack_next_fit, pp_pack_first_fit_shuffle,
    pp_pack_megatron_rl};

/* Returns an error text or NULL. Adds up bins and bounds. */
static const char *look(const uint32_t *lengths, size_t n, size_t *bins,
                        size_t *bound)
{
    struct pp_bins b;
    size_t certified, least;
    pack_by(pp_pack_best, lengths, n, CAPACITY, &b);
    pp_pack_certify(lengths, n, CAPACITY, b.n_bins, &certified);
    least = b.n_bins;
    bool valid = is_valid(&b, lengths, n, CAPACITY);
    pp_bins_finish(&b);
    if (!valid || certified > least)
        return "no packing, or fewer bins than the bound";
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        pack_by(rules[r], lengths, n, CAPACITY, &b);
        size_t n_bins = b.n_bins;
        pp_bins_finish(&b);
        if (n_bins < least)
            return "another rule makes fewer";
    }
    *bins += least;
    *bound += certified;
    return NULL;
}

static void test_shape(enum shape shape, size_t n, int rounds)
{
    uint32_t *lengths = malloc(n * sizeof *lengths);
    size_t bins = 0, bound = 0;
    const char *wrong = NULL;
    for (int r = 0; r < rounds && !wrong; r++) {
        struct source s = {pp_rng_key((uint64_t)r, shape_names[shape]), 0};
        for (size_t i = 0; i < n; i++)
            lengths[i] = draw(&s, shape, i, lengths);
        wrong = look(lengths, n, &bins, &bound);
    }
    ok(!wrong, "%s, %zu sequences: best is best, %zu bins of at least %zu%s%s",
       shape_names[shape], n, bins, bound, wrong ? ": " : "",
       wrong ? wrong : "");
    free(lengths);
}

/* Bounds that are better than the sum of lengths. */
static void test_bounds(void)
{
    static const struct {
        uint32_t lengths[8];
        size_t n, want;
        const char *what;
    } cases[] = {
        {{35, 35, 35, 35, 35, 35, 35, 35}, 8, 4, "two of more than a third"},
        {{26, 26, 26, 26, 26, 26, 26}, 7, 3, "three of more than a quarter"},
        {{70, 70, 35, 35, 35, 35},
         6,
         4,
         "35 goes neither with 70 nor by three"},
        {{0, 0, 0}, 3, 1, "nothing takes a bin, too"},
        {{50, 50, 50, 50}, 4, 2, "halves"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bound = 0;
        pp_pack_lower_bound(cases[i].lengths, cases[i].n, 100, &bound);
        ok(bound == cases[i].want, "%s: at least %zu bins", cases[i].what,
           bound);
    }
}

/* Greedy rules waste more than a bin here; the short search wastes none. */
static void test_fill(void)
{
    uint32_t *lengths = draw_lengths(100000, 4096);
    struct pp_bins b = {0};
    pack_by(pp_pack_fill, lengths, 100000, 4096, &b);
    ok(is_valid(&b, lengths, 100000, 4096) && b.n_bins == 15724,
       "fill meets the bound, 15724 bins");
    pp_bins_finish(&b);
    free(lengths);
}

/* A rule with a limit on its bins must give up only if it would exceed the
 * limit. */
static const char *race(pp_pack_fn *rule, const uint32_t *lengths, size_t n,
                        size_t *n_given_up)
{
    struct pp_bins b;
    uint64_t total = 0;
    uint32_t shortest = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        total += lengths[i];
        shortest = lengths[i] < shortest ? lengths[i] : shortest;
    }
    pack_by(rule, lengths, n, CAPACITY, &b);
    size_t n_bins = b.n_bins, least = (total + CAPACITY - 1) / CAPACITY;
    pp_bins_finish(&b);
    for (size_t most = n_bins; most >= least && most + 40 > n_bins; most--) {
        struct pp_waste_budget limit = {(uint64_t)most * CAPACITY - total,
                                        shortest};
        const struct pp_pack_input in = {lengths, n, CAPACITY,
                                         .budget = &limit};
        rule(&in, &b);
        bool gives_up = !b.first;
        bool as_before = !gives_up && b.n_bins == n_bins &&
                         is_valid(&b, lengths, n, CAPACITY);
        pp_bins_finish(&b);
        if (!gives_up && !as_before)
            return "other bins";
        if (gives_up && most == n_bins)
            return "gave up bins that are few enough";
        *n_given_up += gives_up;
    }
    return NULL;
}

static void test_limit(void)
{
    static const struct {
        const char *name;
        pp_pack_fn *rule;
    } racing[] = {
        {"ffd", pp_pack_ffd},
        {"mffd", pp_pack_mffd},
        {"wfd", pp_pack_wfd},
        {"first-fit", pp_pack_first_fit},
        {"next-fit", pp_pack_next_fit},
        {"axolotl", pp_pack_axolotl},
        {"megatron-rl", pp_pack_megatron_rl},
    };
    enum { N = 3000 };
    uint32_t lengths[N];
    for (size_t r = 0; r < sizeof racing / sizeof *racing; r++) {
        size_t n_given_up = 0;
        const char *wrong = NULL;
        for (enum shape shape = 0; shape < N_SHAPES && !wrong; shape++) {
            struct source s = {pp_rng_key(shape, "limit"), 0};
            for (size_t i = 0; i < N; i++)
                lengths[i] = draw(&s, shape, i, lengths);
            wrong = race(racing[r].rule, lengths, N, &n_given_up);
        }
        ok(!wrong && n_given_up > 0, "%s gives up where it must: %zu times%s%s",
           racing[r].name, n_given_up, wrong ? ": " : "", wrong ? wrong : "");
    }
}

/* Long lengths are sorted and short ones counted. Scaled lengths must have the
 * same bins. */
static void test_scale(void)
{
    enum { N = 5000, TIMES = 1000 };
    static const char *const names[] = {"bfd", "fill"};
    uint32_t *lengths = draw_lengths(N, 4096);
    uint32_t *longer = malloc(N * sizeof *longer);
    for (size_t i = 0; i < N; i++)
        longer[i] = lengths[i] * TIMES;
    for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
        struct pp_bins a = {0}, b = {0};
        pp_pack_fn *pack = pp_packer_find(names[r])->pack;
        pack_by(pack, lengths, N, 4096, &a);
        pack_by(pack, longer, N, 4096 * TIMES, &b);
        bool equal =
            a.n_bins == b.n_bins &&
            !memcmp(a.first, b.first, (a.n_bins + 1) * sizeof *a.first) &&
            !memcmp(a.items, b.items, N * sizeof *a.items);
        ok(equal, "%s of lengths a thousand times as long", names[r]);
        pp_bins_finish(&a);
        pp_bins_finish(&b);
    }
    free(lengths);
    free(longer);
}

int main(void)
{
    for (enum shape s = 0; s < N_SHAPES; s++) {
        test_shape(s, 120, 6);
        test_shape(s, 5000, 1);
    }
    test_bounds();
    test_fill();
    test_limit();
    test_scale();
    return done();
}
