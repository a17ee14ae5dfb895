/* SPDX-License-Identifier: MIT */
/* test_machine - messages, rings and all-to-alls against formulas that others
 * print, and products against published runs. */
#include "cost/estimate.h"
#include "tap.h"

#define GIB 1073741824.0
#define US 1e-6

/* A group of n ranks, each `stride` after the one before it. */
static struct pp_group ranks(int n, int stride)
{
    return (struct pp_group){
        .n = n, .step = 1, .size = {n, 1, 1}, .stride = {stride, 1, 1}};
}

/* Nodes of 8 with links of near and cards of far bytes a second. */
static struct pp_machine nodes(double near, double far, bool latency)
{
    return (struct pp_machine){.levels = {{8, near, latency ? 3.4e-6 : 0},
                                          {0, far, latency ? 14e-6 : 0}},
                               .n_levels = 2};
}

/* Returns the time without the start and the hops. */
static double moving(struct pp_link l, double bytes)
{
    return l.per_byte * bytes;
}

static void rings(void)
{
    const struct pp_machine one = nodes(478.87e9, 48e9, false);
    const struct pp_group g = ranks(8, 1);
    is_near(2 * moving(pp_machine_ring(&one, &g), GIB * 7 / 8), 3.9239e-3, 1e-7,
            "an all-reduce of 1 GiB has the bus bandwidth of nccl-tests");
    const struct pp_machine h100 = nodes(365e9, 48e9, true);
    is_near(pp_machine_ring(&h100, &g).seconds, 32.2 * US, 1e-9,
            "the latency of an all-gather is NCCL's");
    const struct pp_group two = ranks(16, 1);
    is_near(pp_machine_ring(&h100, &two).seconds, 8.4e-6 + 14 * 3.4e-6 + 14e-6,
            1e-9, "a ring of two nodes enters the network once more");
    /* 16 nodes: eight cards of a node carry a ring, if it visits eight ranks.
     */
    const struct pp_machine wide = nodes(450e9, 48e9, false);
    const struct pp_group all = ranks(128, 1), alone = ranks(16, 8),
                          half = ranks(64, 2);
    is_near(2 * moving(pp_machine_ring(&wide, &all), GIB * 127 / 128),
            5.5487e-3, 1e-7, "a ring of whole nodes has all of their cards");
    is_near(moving(pp_machine_ring(&wide, &half), 48e9), 0.25, 1e-12,
            "a ring of four ranks a node has four cards");
    is_near(moving(pp_machine_ring(&wide, &alone), 4 * 8.03e9 * 15 / 16),
            0.62734, 1e-5, "one of a rank a node has one");
    ok(pp_machine_ring(&wide, &(struct pp_group){.n = 1}).per_byte <= 0,
       "one rank moves nothing");
    const struct pp_machine llama = nodes(360e9, 48e9, false);
    is_near(4 * moving(pp_machine_ring(&llama, &g), 117440512), 1.3049e-3, 1e-7,
            "a forward of a Llama-3-70B layer under tp 8");
    /* The same ranks in another order. */
    struct pp_group swapped = {
        .n = 16, .step = 1, .size = {2, 8, 1}, .stride = {8, 1, 1}};
    const struct pp_link x = pp_machine_ring(&h100, &two),
                         y = pp_machine_ring(&h100, &swapped);
    ok(x.seconds >= y.seconds && x.seconds <= y.seconds &&
           x.per_byte >= y.per_byte && x.per_byte <= y.per_byte,
       "the order of axes does not change a ring");
}

static void all_to_alls(void)
{
    const struct pp_machine m = nodes(360e9, 48e9, true);
    const struct pp_group in = ranks(8, 1), out = ranks(64, 1);
    double bytes = 4096.0 * 8 * 7168 * 2;
    is_near(moving(pp_machine_all_to_all(&m, &out), bytes), 8.563e-3, 1e-5,
            "dispatch of DeepSeek-V3 over 8 nodes fills the cards");
    is_near(moving(pp_machine_all_to_all(&m, &in), bytes),
            bytes * 7 / 8 / 360e9, 1e-9, "and in a node its links");
    is_near(pp_machine_all_to_all(&m, &out).seconds, 22.4 * US, 1e-9,
            "all messages are on their way at once");
}

static void messages(void)
{
    const struct pp_machine m = nodes(365e9, 48e9, true);
    is_near(pp_link_time(pp_machine_message(&m, 7, 8), 48e6), 1e-3 + 22.4 * US,
            1e-9, "neighbours in rank may be in two nodes");
    is_near(pp_link_time(pp_machine_message(&m, 6, 7), 365e6), 1e-3 + 11.8 * US,
            1e-9, "or in one");
    ok(pp_link_time(pp_machine_message(&m, 6, 7), 0) <= 0,
       "no bytes take no time");
    /* Rows of two ranks: rows 3 and 4 are in two nodes. */
    const struct pp_layout l = {.components = {{.mesh = {8, 1, 2, 1, 1}}},
                                .n_components = 1};
    is_near(1 / pp_machine_rows(&m, &l, 3, 4).per_byte, 48e9, 1,
            "rows in two nodes use cards");
    is_near(1 / pp_machine_rows(&m, &l, 2, 3).per_byte, 365e9, 1,
            "rows in one node do not");
}

/* Checks products of n x n matrices that reach these shares of the peak. */
static void products(double peak, double efficiency, const double share[5],
                     double within, const char *name)
{
    bool all = true;
    for (int i = 0; i < 5; i++) {
        double n = 1024 << i, flops = 2 * n * n * n;
        double e = pp_product_efficiency(efficiency, n, n, n);
        double got = flops / (flops / (peak * e) + 4e-6) / peak;
        printf("# %s %g: %.3f, measured %.3f\n", name, n, got, share[i]);
        all &= got > share[i] * (1 - within) && got < share[i] * (1 + within);
    }
    ok(all, "%s", name);
}

int main(void)
{
    static const double a100[] = {.383, .711, .731, .813, .822};
    static const double h100[] = {.14, .51, .615, .652, .696};
    rings();
    all_to_alls();
    messages();
    products(312e12, .869, a100, .15, "products of an A100 in bf16");
    products(1979e12, .709, h100, .2, "products of an H100 in fp8");
    return done();
}
