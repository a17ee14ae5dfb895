/* SPDX-License-Identifier: MIT */
/* test_jsonl_images - the images and the audio of JSON Lines: arrays in the
 * line and files beside it. */
#include <unistd.h>

#include "data/packed/packed.h"
#include "data/readers.h"
#include "scratch.h"
#include "tap.h"

/* Placeholders are 9; a patch is 2 x 2 pixels; every 4 patches are a feature,
 * or each of them. */
struct streams {
    const struct pp_jsonl_stream *of[PP_N_MODALITIES];
};
static const struct pp_jsonl_stream by_fours = {9, 2, 2, false},
                                    by_ones = {9, 1, 2, false},
                                    clips = {9, 2, 0, false},
                                    other_clips = {8, 2, 0, false};
static const struct streams merged = {{&by_fours}}, each = {{&by_ones}},
                            audio = {{NULL, &clips}},
                            both = {{&by_ones, &other_clips}};

/* Reads text as the file `name`. Returns 0, or -1 with the error in err. */
static int read_text(const char *name, const char *text,
                     const struct streams *o, size_t skip_bad,
                     struct pp_documents *d, struct pp_err *err)
{
    struct pp_jsonl j = {
        .name = name, .streams = {o->of[0], o->of[1]}, .skip_bad = skip_bad};
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int rc = pp_jsonl_read(&j, f, d, err);
    fclose(f);
    return rc;
}

static void refused(const char *text, const struct streams *o, const char *want)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    ok(read_text("in", text, o, 0, &d, &err) != 0 &&
           err.code == PP_EXIT_INPUT && strstr(err.text, want),
       "refused with \"%s\": %s", want, err.text);
    pp_documents_finish(&d);
}

static void same_pixels(const struct pp_items *s, size_t image,
                        const float *want, size_t n)
{
    const float *got = s->values + s->at[image].first_row * s->kind.width;
    ok(!memcmp(got, want, n * sizeof *got), "pixels of image %zu", image);
}

/* Two channels of 2 rows and 4 columns: two patches. */
#define CHANNELS "[[[0,1,2,3],[4,5,6,7]],[[10,11,12,13],[14,15,16,17]]]"

/* Two frequencies of five frames. */
#define FRAMES "[[0,1,2,3,4],[10,11,12,13,14]]"

static void test_channels(void)
{
    static const float want[] = {0, 1, 4, 5, 10, 11, 14, 15,
                                 2, 3, 6, 7, 12, 13, 16, 17};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    const struct pp_item *at;
    int rc = read_text("in",
                       "{\"input_ids\":[1,2]}\n"
                       "{\"input_ids\":[5,9,9,6],\"images\":[" CHANNELS "]}\n"
                       "{\"input_ids\":[3]}\n",
                       &each, 0, &d, &err);
    ok(rc == 0 && d.n == 3 && d.items[PP_MODALITY_IMAGES].n == 1,
       "a line has an image %s", err.text);
    ok(pp_items_of(&d.items[PP_MODALITY_IMAGES], 0, &at) == 0 &&
           pp_items_of(&d.items[PP_MODALITY_IMAGES], 1, &at) == 1 &&
           pp_items_of(&d.items[PP_MODALITY_IMAGES], 2, &at) == 0,
       "the others have none");
    pp_items_of(&d.items[PP_MODALITY_IMAGES], 1, &at);
    ok(at->rows == 2 && at->grid.rows == 1 && at->grid.columns == 2 &&
           d.items[PP_MODALITY_IMAGES].kind.width == 8,
       "of two patches");
    same_pixels(&d.items[PP_MODALITY_IMAGES], 0, want, 16);
    ok(d.labels && d.labels[2] == 5 && d.labels[3] == PP_LABEL_IGNORE &&
           d.labels[4] == PP_LABEL_IGNORE && d.labels[5] == 6 &&
           d.labels[0] == 1,
       "placeholders have no label");
    pp_documents_finish(&d);
}

/* Rows of patches with a grid, merged by fours; both sides of a pair have
 * them. */
static void test_patches(void)
{
    static const float want[] = {1, 2, 3, 4};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    const struct pp_item *a, *b;
    int rc = read_text(
        "in",
        "{\"prompt\":[1,9],\"chosen\":[2],\"rejected\":[3],\"images\":"
        "{\"pixels\":[[1],[2],[3],[4]],\"grid\":[1,2,2]}}",
        &merged, 0, &d, &err);
    ok(rc == 0 && d.n == 1 && d.n_sequences == 2, "a pair with an image %s",
       err.text);
    ok(pp_items_of(&d.items[PP_MODALITY_IMAGES], 0, &a) == 1 &&
           pp_items_of(&d.items[PP_MODALITY_IMAGES], 1, &b) == 1 &&
           a->first_row == b->first_row,
       "both sides share the pixels");
    same_pixels(&d.items[PP_MODALITY_IMAGES], 0, want, 4);
    pp_documents_finish(&d);
}

/* Writes a .npy file of n numbers of 4 or 8 bytes. */
static void write_npy(const char *path, const char *descr, const char *shape,
                      const void *data, size_t bytes)
{
    char header[128];
    FILE *f = fopen(path, "wb");
    int n = snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                     descr, shape);
    fwrite("\x93NUMPY\1\0", 1, 8, f);
    fputc(n, f);
    fputc(0, f);
    fwrite(header, 1, (size_t)n, f);
    fwrite(data, 1, bytes, f);
    fclose(f);
}

static void test_files(const char *base)
{
    static const float patches[] = {1, 2, 3, 4};
    static const double channels[] = {.5, 1, 1.5, 2};
    static const float want[] = {.5F, 1, 1.5F, 2};
    char path[64], name[64];
    struct pp_documents d = {0};
    struct pp_err err = {0};
    snprintf(path, sizeof path, "%s/a.npy", base);
    write_npy(path, "<f4", "(1, 4)", patches, sizeof patches);
    snprintf(path, sizeof path, "%s/b.npy", base);
    write_npy(path, "<f8", "(1, 2, 2)", channels, sizeof channels);
    snprintf(name, sizeof name, "%s/data.jsonl", base);
    int rc = read_text(name,
                       "{\"input_ids\":[9,1,9],\"images\":[{\"pixels\":"
                       "\"a.npy\",\"grid\":[1,1,1]},\"b.npy\"]}",
                       &each, 0, &d, &err);
    ok(rc == 0 && d.items[PP_MODALITY_IMAGES].n == 2,
       "two files beside the lines %s", err.text);
    same_pixels(&d.items[PP_MODALITY_IMAGES], 0, patches, 4);
    same_pixels(&d.items[PP_MODALITY_IMAGES], 1, want, 4);
    pp_documents_finish(&d);
    write_npy(path, "<i4", "(1, 2, 2)", patches, sizeof patches);
    err = (struct pp_err){0};
    ok(read_text(name, "{\"input_ids\":[9],\"images\":[\"b.npy\"]}", &each, 0,
                 &d, &err) != 0 &&
           strstr(err.text, "numbers must be float32 or float64"),
       "integers are refused: %s", err.text);
    pp_documents_finish(&d);
}

/* A line that is skipped leaves no image behind. */
static void test_skipped(void)
{
    static const float want[] = {0, 1, 4, 5};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    int rc = read_text("in",
                       "{\"input_ids\":[9,9],\"images\":[" CHANNELS "]}\n"
                       "{\"input_ids\":[9],\"images\":[" CHANNELS "]}\n"
                       "{\"input_ids\":[9,9,4],\"images\":[" CHANNELS "]}\n",
                       &each, 1, &d, &err);
    ok(rc == 0 && d.n == 2 && d.items[PP_MODALITY_IMAGES].n == 2 &&
           d.n_skipped == 1,
       "one of three lines is skipped %s", err.text);
    ok(d.items[PP_MODALITY_IMAGES].at[1].first_row == 2,
       "its patches are gone");
    same_pixels(&d.items[PP_MODALITY_IMAGES], 1, want, 4);
    pp_documents_finish(&d);
}

/* A pair is skipped because of its second side: the first has items then. */
static void test_skipped_pair(void)
{
    static const float pixel[] = {5}, rows[] = {4, 5, 6, 6, 0, 0};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    const struct pp_item *at;
    int rc = read_text(
        "in",
        "{\"prompt\":[1,9,8],\"chosen\":[2],\"rejected\":[9],\"images\":"
        "{\"pixels\":[[4]],\"grid\":[1,1,1]},\"audio\":[[[1,2,3]]]}\n"
        "{\"prompt\":[1],\"chosen\":[2],\"rejected\":[3]}\n"
        "{\"prompt\":[1,9,8],\"chosen\":[2],\"rejected\":[3],\"images\":"
        "{\"pixels\":[[5]],\"grid\":[1,1,1]},\"audio\":[[[4,5,6]]]}\n",
        &both, 1, &d, &err);
    ok(rc == 0 && d.n == 2 && d.n_skipped == 1,
       "one of three pairs is skipped %s", err.text);
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        const struct pp_items *s = &d.items[m];
        ok(s->n == 2 && pp_items_of(s, 0, &at) == 0 &&
               pp_items_of(s, 1, &at) == 0 && pp_items_of(s, 2, &at) == 1 &&
               at->first_row == 0,
           "the second has no item %d, and the third has its own", m);
    }
    same_pixels(&d.items[PP_MODALITY_IMAGES], 0, pixel, 1);
    same_pixels(&d.items[PP_MODALITY_AUDIO], 0, rows, 6);
    pp_documents_finish(&d);
}

static void test_refused(void)
{
    refused("{\"input_ids\":[9],\"images\":[" CHANNELS "]}", &each,
            "in: line 1: '1' placeholders (id 9) for 2 features of images");
    refused("{\"input_ids\":[1,9]}", &each,
            "'1' placeholders (id 9) for 0 features");
    refused("{\"input_ids\":[1,9,5,9],\"images\":[" CHANNELS "]}", &each,
            "in: line 1: token '5' is between placeholders (id 9) of one "
            "image, which must follow each other");
    refused("{\"input_ids\":[9],\"images\":[" CHANNELS "]}", &merged,
            "'1 x 1 x 2' patches cannot be merged by 2 x 2");
    refused("{\"input_ids\":[9],\"images\":[[[[1,2,3]]]]}", &each,
            "pixels cannot be cut into patches of 2 x 2");
    refused("{\"input_ids\":[9],\"images\":[[[1,2],[3]]]}", &each,
            "'1' elements, but others have 2");
    refused("{\"input_ids\":[9],\"images\":[[[1,[2]]]]}", &each,
            "an array of two or three dimensions");
    refused("{\"input_ids\":[9],\"images\":[[[[[1]]]]]}", &each,
            "an array of two or three dimensions");
    refused("{\"input_ids\":[9],\"images\":[[[]]]}", &each,
            "must not be empty");
    refused("{\"input_ids\":[9],\"images\":[[[1,2]]]}", &each, "needs a grid");
    refused("{\"input_ids\":[9],\"images\":[{\"grid\":[1,1,1]}]}", &each,
            "an image needs 'pixels'");
    refused(
        "{\"input_ids\":[9],\"images\":[{\"pixels\":[[1]],\"grid\":[1,1]}]}",
        &each, "a grid is frames, rows and columns");
    refused(
        "{\"input_ids\":[9],\"images\":[{\"pixels\":[[1]],\"grid\":[1,1,2]}]}",
        &each, "'1' rows of 2 dimensions do not fit the grid 1 x 1 x 2");
    refused("{\"input_ids\":[9],\"images\":[\"none.npy\"]}", &each,
            "in: line 1: none.npy: No such file");
    refused("{\"input_ids\":[9,9],\"seq_lengths\":[1,1],\"images\":[" CHANNELS
            "]}",
            &each, "give each a line");
    refused(
        "{\"input_ids\":[9,9],\"images\":[" CHANNELS "]}\n"
        "{\"input_ids\":[9],\"images\":[{\"pixels\":[[1]],\"grid\":[1,1,1]}]}",
        &each, "patches of '1' values cannot be mixed with earlier ones");
}

/* A clip of two frequencies: rows of two frames and the next one. Rows end with
 * the frames that the line counts, but what is behind them is kept. */
static void test_audio(void)
{
    static const float padded[] = {0, 1, 2, 10, 11, 12, 2, 3, 4, 12, 13, 14};
    static const float whole[] = {0,  1,  2,  10, 11, 12, 2,  3, 4,
                                  12, 13, 14, 4,  0,  0,  14, 0, 0};
    struct pp_documents d = {0};
    const struct pp_items *s = &d.items[PP_MODALITY_AUDIO];
    struct pp_err err = {0};
    int rc = read_text(
        "in",
        "{\"input_ids\":[1,9,2,9],\"audio\":[{\"features\":" FRAMES
        ",\"frames\":3}," FRAMES "]}\n{\"input_ids\":[7],\"audio\":[]}\n",
        &audio, 0, &d, &err);
    ok(rc == 0 && d.n == 2 && s->n == 2, "a line has two clips %s", err.text);
    ok(s->kind.width == 6 && s->at[0].rows == 2 && s->at[1].rows == 3,
       "of two and three rows");
    ok(pp_clip_frames(&s->at[0].grid) == 3 &&
           pp_clip_frames(&s->at[1].grid) == 5,
       "whose grids tell that their frames are odd");
    same_pixels(s, 0, padded, 12);
    same_pixels(s, 1, whole, 18);
    ok(d.labels[1] == PP_LABEL_IGNORE && d.labels[2] == 2,
       "placeholders have no label");
    pp_documents_finish(&d);
}

/* A line has an image and a clip, whose placeholders are mixed. */
static void test_both(void)
{
    static const float rows[] = {0, 1, 2, 10, 11, 12, 2, 3, 4, 12, 13, 14};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    const struct pp_item *at;
    int rc =
        read_text("in",
                  "{\"input_ids\":[9,9,8,5],\"audio\":{\"features\":" FRAMES
                  ",\"frames\":4},\"images\":[" CHANNELS "]}\n"
                  "{\"input_ids\":[8],\"audio\":{\"features\":" FRAMES
                  ",\"frames\":3}}\n",
                  &both, 0, &d, &err);
    const struct pp_items *images = &d.items[PP_MODALITY_IMAGES],
                          *sounds = &d.items[PP_MODALITY_AUDIO];
    ok(rc == 0 && images->n == 1 && sounds->n == 2,
       "a line has an image and a clip %s", err.text);
    ok(pp_items_of(images, 0, &at) == 1 && pp_items_of(images, 1, &at) == 0 &&
           pp_items_of(sounds, 0, &at) == 1 && pp_items_of(sounds, 1, &at) == 1,
       "the next one has a clip only");
    ok(images->kind.token == 9 && sounds->kind.token == 8, "of two tokens");
    same_pixels(sounds, 0, rows, 12);
    ok(d.labels[0] == PP_LABEL_IGNORE && d.labels[1] == PP_LABEL_IGNORE &&
           d.labels[2] == PP_LABEL_IGNORE && d.labels[3] == 5,
       "no placeholder has a label");
    pp_documents_finish(&d);
    refused("{\"input_ids\":[9,9,8],\"images\":[" CHANNELS "]}", &both,
            "'1' placeholders (id 8) for 0 features of clips of audio");
    refused("{\"input_ids\":[9,8],\"audio\":[" FRAMES "],\"images\":[" CHANNELS
            "]}",
            &both, "'1' placeholders (id 9) for 2 features of images");
    refused("{\"input_ids\":[9,9],\"audio\":[" FRAMES "],\"images\":[" CHANNELS
            "]}",
            &both, "'0' placeholders (id 8) for 1 features of clips of audio");
    refused("{\"input_ids\":[9,8,9],\"audio\":[" FRAMES
            "],\"images\":[" CHANNELS "]}",
            &both, "token '8' is between placeholders (id 9) of one image");
}

static void test_refused_audio(void)
{
    refused("{\"input_ids\":[9,9],\"audio\":[" FRAMES "]}", &audio,
            "'2' placeholders (id 9) for 1 features of clips of audio");
    refused("{\"input_ids\":[9],\"audio\":{\"features\":[[1,2]]}}", &audio,
            "a clip of '1' rows is too short: a feature has 2");
    refused("{\"input_ids\":[9],\"audio\":{\"features\":" FRAMES
            ",\"frames\":6}}",
            &audio, "audio has '5' frames, not 6");
    refused("{\"input_ids\":[9],\"audio\":{\"features\":" FRAMES
            ",\"frames\":0}}",
            &audio, "a number of frames");
    refused("{\"input_ids\":[9],\"audio\":{\"frames\":3}}", &audio,
            "audio needs 'features'");
    refused("{\"input_ids\":[9],\"audio\":[[1,2,3]]}", &audio,
            "audio of '1' dimensions; it needs two: frequencies and frames");
    refused("{\"input_ids\":[9],\"audio\":[{\"features\":" FRAMES
            ",\"frames\":3}]}\n"
            "{\"input_ids\":[9],\"audio\":{\"features\":[[1,2,3]]}}",
            &audio, "rows of '3' values cannot be mixed with earlier ones");
    refused("{\"input_ids\":[9],\"audio\":" FRAMES "}", &each,
            "the line has clips of audio, but the id of their placeholders");
    refused("{\"input_ids\":[9],\"images\":[" CHANNELS "]}", &audio,
            "the line has images, but the id of their placeholders");
    refused("{\"messages\":[{\"role\":\"assistant\",\"input_ids\":[9],"
            "\"audio\":" FRAMES "}]}",
            &audio, "'audio' must be a field of the line");
}

int main(void)
{
    char base[SCRATCH_TEXT];
    scratch_make(base);
    test_channels();
    test_patches();
    test_files(base);
    test_skipped();
    test_skipped_pair();
    test_refused();
    test_audio();
    test_refused_audio();
    test_both();
    scratch_remove(base);
    return done();
}
