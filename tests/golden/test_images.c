/* SPDX-License-Identifier: MIT */
/* test_images - trains a model with images or audio beside transformers:
 * `test_images FOLDER`, a folder of tests/golden. The encoder is on ranks of
 * its own or not. All splits give the same bits. */
#include "image_golden.h"

enum { MOST_SPLITS = 6, MOST_LISTS = 4, MOST_KINDS = 3 };

/* The second has a rank for the encoder, the third cuts it. Units 0 to 6 are
 * the encoder's: patches, a norm, three layers of which two run, a norm that
 * does not run, and the projector. */
static const struct split llava_splits[MOST_SPLITS] = {
    {"one rank", 1, {0, 12}},
    {"a rank for the encoder", 3, {0, 7, 9, 12}},
    {"cuts in the encoder, and a projector beside the embedding",
     4,
     {0, 3, 6, 8, 12}},
    {"a stage without a layer that runs", 4, {0, 4, 6, 7, 12}},
};

/* The same units, of which all layers run. The hidden states that the first
 * ones make pass all stages up to the projector's. */
static const struct split layers_splits[MOST_SPLITS] = {
    {"one rank", 1, {0, 12}},
    {"a rank for the encoder", 3, {0, 7, 9, 12}},
    {"cuts in the encoder, and a projector beside the embedding",
     4,
     {0, 3, 6, 8, 12}},
    {"a stage without a layer that runs", 4, {0, 5, 6, 7, 12}},
    {"a cut behind each unit", 6, {0, 1, 2, 3, 4, 6, 12}},
};

/* The same. Units 0 to 3 are the encoder's: patches or frames of audio, two
 * layers, and the merger or the pool. */
static const struct split qwen_splits[MOST_SPLITS] = {
    {"one rank", 1, {0, 9}},
    {"a rank for the encoder", 3, {0, 4, 6, 9}},
    {"cuts in the encoder, and a merger beside the embedding",
     4,
     {0, 1, 3, 6, 9}},
};

/* Units 0 to 3 are those of images, 4 to 7 those of audio. */
static const struct split omni_splits[MOST_SPLITS] = {
    {"one rank", 1, {0, 13}, 0, 0},
    {"a rank for both encoders", 3, {0, 8, 10, 13}, 0, 0},
    {"two branches with cuts in each", 6, {0, 1, 4, 6, 8, 10, 13}, 2, 4},
    {"a rank for each encoder", 4, {0, 4, 8, 11, 13}, 1, 2},
    {"the second encoder beside the embedding", 3, {0, 4, 10, 13}, 0, 0},
    {"a cut in the first, and the rest beside the embedding",
     2,
     {0, 2, 13},
     0,
     0},
};

static const struct model {
    const char *folder;
    const struct split *splits;
    const char *kinds[MOST_KINDS];
    /* Units to freeze, and the gradients that are left. */
    struct {
        const char *list;
        size_t left;
    } frozen[MOST_LISTS];
} models[] = {
    {"llava",
     llava_splits,
     {"gpipe", "zb-h2"},
     {{"vision", 4 + 21},
      {"vision,language", 4},
      {"language", 37 + 4},
      {"projector", 37 + 21}}},
    /* The same, and the feature of the class token. */
    {"llava-full",
     llava_splits,
     {"gpipe"},
     {{"vision", 4 + 21}, {"vision,language", 4}}},
    /* Features of several hidden states. */
    {"llava-layers",
     layers_splits,
     {"gpipe", "zb-h2"},
     {{"vision", 4 + 21},
      {"vision,language", 4},
      {"language", 53 + 4},
      {"projector", 53 + 21}}},
    /* Images of several sizes, whose patches have two positions, and tokens
     * that have three. */
    {"qwen2-vl",
     qwen_splits,
     {"gpipe"},
     {{"vision", 27 + 6}, {"vision,language", 6}}},
    /* The same, and the first layer of the encoder has windows. */
    {"qwen2.5-vl",
     qwen_splits,
     {"gpipe"},
     {{"vision", 27 + 5}, {"vision,language", 5}}},
    /* Clips of audio of several lengths. */
    {"qwen2-audio",
     qwen_splits,
     {"gpipe"},
     {{"audio", 27 + 4}, {"audio,language", 4}}},
    /* The thinker of Qwen2.5-Omni with one of its encoders. */
    {"qwen2.5-omni/vision",
     qwen_splits,
     {"gpipe"},
     {{"vision", 27 + 5}, {"vision,language", 5}}},
    /* Clips of several chunks. */
    {"qwen2.5-omni/audio",
     qwen_splits,
     {"gpipe"},
     {{"audio", 27 + 4}, {"audio,language", 4}}},
    /* Both encoders. Sequences have images, clips, both or none. */
    {"qwen2.5-omni",
     omni_splits,
     {"gpipe"},
     {{"vision", 27 + 5 + 38},
      {"audio", 27 + 38 + 4},
      {"audio,projector", 27 + 38 - 5},
      {"vision,audio,language", 5 + 4}}},
};

static const struct model *model_of(const char *folder)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (folder && !strcmp(models[i].folder, folder))
            return &models[i];
    give_up("usage: test_images FOLDER");
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
    for (int k = 0; k < MOST_KINDS && m->kinds[k]; k++)
        same_bits(g, split, m->kinds[k], NULL);
    same_bits(g, split, "1f1b", pp_vision_part(&g->m.encoders[0]));
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
