/* SPDX-License-Identifier: MIT */
/* test_qwen2_vl - trains Qwen2-VL beside transformers: images of several sizes,
 * whose patches have two positions, and tokens that have three. All splits give
 * the same bits. */
#include "image_golden.h"

/* Units 0 to 3 are the encoder's: patches, two layers, and the merger. */
static const struct split splits[] = {
    {"one rank", 1, {0, 9}},
    {"a rank for the encoder", 3, {0, 4, 6, 9}},
    {"cuts in the encoder, and a merger beside the embedding",
     4,
     {0, 1, 3, 6, 9}},
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
    }
}

int main(void)
{
    struct golden g;
    open_golden(&g, "qwen2-vl", 1);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct setting x = {
            .split = &splits[i], .kind = "1f1b", .kernels = &pp_kernels_f64};
        beside_transformers(&g, &x, 1e-9, 1e-9, 1e-9);
        x.kernels = &pp_kernels_f32;
        x.kind = "zb-h1";
        beside_transformers(&g, &x, 1e-5, 1e-4, 1e-4);
        same_bits(&g, &splits[i], "gpipe", NULL);
        same_bits(&g, &splits[i], "1f1b", "vision");
    }
    frozen(&g, "vision", 27 + 6);
    frozen(&g, "vision,language", 6);
    control(&g, &splits[1]);
    close_golden(&g);
    meshes("qwen2-vl", &splits[0]);
    meshes("qwen2-vl", &splits[2]);
    return done();
}
