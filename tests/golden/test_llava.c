/* SPDX-License-Identifier: MIT */
/* test_llava - trains LLaVA beside transformers, with the encoder on ranks of
 * its own or not. All splits give the same bits. */
#include "image_golden.h"

/* Units 0 to 6 are the encoder's: patches, a norm, three layers of which two
 * run, a norm that does not run, and the projector. */
static const struct split splits[] = {
    {"one rank", 1, {0, 12}},
    {"a rank for the encoder", 3, {0, 7, 9, 12}},
    {"cuts in the encoder, and a projector beside the embedding",
     4,
     {0, 3, 6, 8, 12}},
    {"a stage without a layer that runs", 4, {0, 4, 6, 7, 12}},
};

/* Frozen units change no gradient of others. */
static void frozen(const struct golden *g, const char *list, size_t n)
{
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const struct setting x = {.split = &splits[i],
                                  .kind = "1f1b",
                                  .kernels = &pp_kernels_f64,
                                  .freeze = list};
        struct result r;
        bool good = run(g, &x, &r);
        ok(good && r.worst < 1e-9 && r.n_compared == n,
           "%s without %s: %zu gradients, %.2g off", splits[i].name, list,
           r.n_compared, r.worst);
        ok(r.loss[STEPS - 1] < r.loss[0], "  and the rest learns");
    }
}

/* Images follow their microbatch to its data-parallel rank. One of two
 * microbatches of the second rank has none. */
static void data_parallel(const struct golden *g)
{
    for (int zero = 0; zero < 2; zero++) {
        const struct setting x = {.split = &splits[1],
                                  .kind = "1f1b",
                                  .kernels = &pp_kernels_f64,
                                  .dp = 2,
                                  .whole_state = zero == 0};
        struct result r;
        bool good = run(g, &x, &r);
        double off = worse(distance(g, "losses", r.loss, STEPS, 0),
                           distance(g, "norms", r.norm, STEPS, 0));
        ok(good && off < 1e-9,
           "dp 2, zero %d: losses and norms of %d steps: %.2g off", zero, STEPS,
           off);
    }
}

int main(void)
{
    static const char *const lists[] = {"vision", "vision,language", "language",
                                        "projector"};
    static const size_t left[] = {4 + 21, 4, 37 + 4, 37 + 21};
    struct golden g;
    open_golden(&g, "llava", 1);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct setting x = {
            .split = &splits[i], .kind = "1f1b", .kernels = &pp_kernels_f64};
        beside_transformers(&g, &x, 1e-9, 1e-9, 1e-9);
        x.kernels = &pp_kernels_f32;
        x.kind = "zb-h1";
        beside_transformers(&g, &x, 1e-5, 1e-4, 1e-4);
        same_bits(&g, &splits[i], "gpipe", NULL);
        same_bits(&g, &splits[i], "zb-h2", NULL);
        same_bits(&g, &splits[i], "1f1b", "vision");
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        frozen(&g, lists[i], left[i]);
    data_parallel(&g);
    control(&g, &splits[1]);
    close_golden(&g);
    meshes("llava", &splits[0]);
    meshes("llava", &splits[2]);
    return done();
}
