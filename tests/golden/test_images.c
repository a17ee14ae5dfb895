/* SPDX-License-Identifier: MIT */
/* test_images - trains a model with images or audio beside transformers:
 * `test_images FOLDER`, a folder of tests/golden. The encoder is on ranks of
 * its own or not. All splits give the same bits. */
#include "image_models.h"

/* Ranks that divide tokens divide the images too, in other places: a feature
 * and its token may be on two ranks. A bin has fewer images than ranks. */
static void meshes(const char *name, const struct split *split)
{
    static const struct setting of[] = {{.tp = 2},
                                        {.cp = 2},
                                        {.tp = 2, .cp = 2},
                                        {.dp = 2, .cp = 2},
                                        {.dp = 2, .tp = 2}};
    struct golden g;
    open_golden(&g, name, 8);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct setting x = of[i];
        x.split = split;
        x.kind = "1f1b";
        x.kernels = &pp_kernels_f64;
        struct result r;
        bool good = run(&g, &x, &r);
        double off = worse(distance(&g, "losses", r.loss, STEPS, 0),
                           distance(&g, "norms", r.norm, STEPS, 0));
        ok(good && r.worst < 1e-9 && off < 1e-9,
           "dp %d, tp %d, cp %d, %s: every gradient: %.2g off at %s; losses "
           "and norms: %.2g off",
           x.dp, x.tp, x.cp, x.split->name, r.worst, r.at, off);
        ok(r.n_compared >= n_gradients(&g), "  no gradient is missing");
    }
    close_golden(&g);
}

/* Returns whether a run has another loss and other gradients than the golden.
 */
static bool differs(const struct golden *g, const struct split *split)
{
    const struct setting x = {
        .split = split, .kind = "1f1b", .kernels = &pp_kernels_f64};
    struct result r;
    return run(g, &x, &r) && r.worst > 1e-9 &&
           distance(g, "losses", r.loss, 1, 0) > 1e-9;
}

/* Frozen units change no gradient of others. */
static void frozen(const struct golden *g, const struct split *split,
                   const char *list, size_t n)
{
    const struct setting x = {.split = split,
                              .kind = "1f1b",
                              .kernels = &pp_kernels_f64,
                              .freeze = list};
    struct result r;
    bool good = run(g, &x, &r);
    ok(good && r.worst < 1e-9 && r.n_compared == n,
       "%s without %s: %zu gradients, %.2g off", split->name, list,
       r.n_compared, r.worst);
    ok(r.loss[STEPS - 1] < r.loss[0], "  and the rest learns");
}

static void check_split(const struct golden *g, const struct model *m,
                        const struct split *split)
{
    struct setting x = {
        .split = split, .kind = "1f1b", .kernels = &pp_kernels_f64};
    beside_transformers(g, &x, 1e-9, 1e-9, 1e-9);
    x.kernels = &pp_kernels_f32;
    x.kind = "zb-h1";
    beside_transformers(g, &x, 1e-5, 1e-4, 1e-4);
    for (int k = 0; k < MOST_KINDS && m->kinds[k]; k++) {
        x.kind = m->kinds[k];
        same_bits(g, &x);
    }
    x.kind = "1f1b";
    x.freeze = pp_vision_part(&g->m.encoders[0]);
    same_bits(g, &x);
    for (int i = 0; i < MOST_LISTS && m->frozen[i].list; i++)
        frozen(g, split, m->frozen[i].list, m->frozen[i].left);
}

/* Images follow their microbatch to its data-parallel rank. One of two
 * microbatches of the second rank has none. */
static void data_parallel(const struct golden *g, const struct split *split)
{
    for (int zero = 0; zero < 2; zero++) {
        const struct setting x = {.split = split,
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

/* The comparison sees chunks of another size. Nothing reads what is behind a
 * clip of an odd number of frames, whose last value is *behind. */
static void control_chunks(const struct golden *g, const struct split *split,
                           struct pp_vision *v, float *behind)
{
    const struct setting x = {
        .split = split, .kind = "1f1b", .kernels = &pp_kernels_f64};
    struct result r;
    for (size_t i = 0; i < v->patch_inputs; i += PP_AUDIO_FRAMES) {
        behind[-(ptrdiff_t)i] += 1;
        behind[-(ptrdiff_t)i - 1] += 1;
    }
    ok(run(g, &x, &r) && r.worst < 1e-9, "nothing reads frames behind a clip");
    v->chunk++;
    ok(differs(g, split), "larger chunks give other losses and gradients");
    v->chunk--;
}

/* The comparison sees wrong pixels, and windows of another size. */
static void controls(struct golden *g, const struct split *split,
                     size_t encoder)
{
    struct pp_vision *v = &g->m.encoders[encoder];
    struct pp_bin_items images;
    pp_packed_bin_items(&g->data, pp_vision_modality(v), 0, &images);
    float *pixel = (float *)(uintptr_t)images.values, kept = *pixel;
    *pixel += 0.01f;
    ok(differs(g, split), "another pixel gives other losses and gradients");
    *pixel = kept;
    /* The second of the frames behind an odd number of them. */
    pixel += (size_t)images.cu_rows[1] * v->patch_inputs - 1;
    if (v->chunk)
        control_chunks(g, split, v, pixel);
    else if (pp_vision_hears(v)) {
        *pixel += 0.01f;
        ok(differs(g, split), "and so does another frame behind a clip");
        *pixel -= 0.01f;
    }
    size_t window = v->window;
    for (size_t other = window - 1; window && other <= window + 1; other += 2) {
        v->window = other;
        ok(differs(g, split),
           "windows of %zu x %zu features, not %zu x %zu, give others, too",
           other, other, window, window);
    }
    v->window = window;
}

int main(int argc, char **argv)
{
    const struct model *m = model_of(argc == 2 ? argv[1] : NULL);
    struct golden g;
    open_golden(&g, m->folder, 1);
    for (int i = 0; i < MOST_SPLITS && m->splits[i].n; i++)
        check_split(&g, m, &m->splits[i]);
    data_parallel(&g, &m->splits[1]);
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (g.m.encoders[k].kind != PP_VISION_NONE)
            controls(&g, &m->splits[1], k);
    bool both = g.m.encoders[1].kind != PP_VISION_NONE;
    close_golden(&g);
    for (int i = 0; i < MOST_SPLITS && m->splits[i].n; i++)
        if (both || i == 0 || i == 2)
            meshes(m->folder, &m->splits[i]);
    return done();
}
