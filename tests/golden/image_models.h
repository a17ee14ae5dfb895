/* SPDX-License-Identifier: MIT */
/* image_models - the models of tests/golden with images or audio, and how
 * their units are divided into stages. */
#ifndef PP_TESTS_IMAGE_MODELS_H
#define PP_TESTS_IMAGE_MODELS_H

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
    give_up("usage: FOLDER, one of tests/golden with images or audio");
}

#endif
