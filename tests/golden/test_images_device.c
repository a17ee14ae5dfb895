/* SPDX-License-Identifier: MIT */
/* test_images_device - trains models with images or audio on a GPU, or on the
 * emulated one, beside transformers: `test_images_device FOLDER...`, folders of
 * tests/golden. In fp32 every gradient, losses and norms are those of the
 * golden, and other ranks give the same bits; bf16 is near. */
#include "image_models.h"

#include "cuda_stream.h"
#include "device/device.h"

/* bf16 has a relative rounding error of 0.002, and terms of gradients cancel.
 */
#define HALF_LOSS 0.01
#define HALF_GRADIENT 0.1

static void near_in_bf16(const struct golden *g, const struct setting *of)
{
    struct setting x = *of;
    struct result r, again;
    x.kernels = &pp_kernels_cuda_bf16;
    bool good = run(g, &x, &r);
    double off = distance(g, "losses", r.loss, 1, 0);
    ok(good && off < HALF_LOSS && r.loss[STEPS - 1] < r.loss[0],
       "%s, %s: the loss: %.2g off, and it falls", x.kernels->name,
       x.split->name, off);
    ok(r.worst < HALF_GRADIENT, "  every gradient: %.2g off at %s", r.worst,
       r.at);
    ok(run(g, &x, &again) && !memcmp(r.loss, again.loss, sizeof r.loss) &&
           !memcmp(r.norm, again.norm, sizeof r.norm),
       "  the same bits twice");
}

/* The comparison sees a wrong pixel on the way to the device. */
static void control(const struct golden *g, const struct setting *x)
{
    struct pp_bin_items images;
    struct result r;
    pp_packed_bin_items(&g->data, pp_vision_modality(&g->m.encoders[0]), 0,
                        &images);
    float *pixel = (float *)(uintptr_t)images.values, kept = *pixel;
    *pixel += 0.1f;
    ok(run(g, x, &r) && r.worst > 1e-4, "another pixel gives other gradients");
    *pixel = kept;
}

/* The first split is one rank, the second has a rank for the encoder, and the
 * third cuts it. */
static void check(const struct model *m)
{
    struct golden g;
    open_golden(&g, m->folder, 1);
    struct setting x = {.split = &m->splits[0],
                        .kind = "1f1b",
                        .kernels = &pp_kernels_cuda_f32,
                        .device = &pp_device_cuda};
    beside_transformers(&g, &x, 1e-5, 1e-4, 1e-4);
    control(&g, &x);
    near_in_bf16(&g, &x);
    x.kind = "zb-h1";
    for (int i = 1; i < 3; i++) {
        x.split = &m->splits[i];
        same_bits(&g, &x);
    }
    close_golden(&g);
}

int main(int argc, char **argv)
{
    struct pp_err err = {0};
    if (pp_device_cuda.check(1, &err)) {
        printf("1..0 # skip %s\n", err.text);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        check(model_of(argv[i]));
    return done();
}
