/* SPDX-License-Identifier: MIT */
/* test_packed_images - images, audio or both beside the tokens of a packed set.
 */
#include "data/packed/stream.h"

#include "packed_fixture.h"
#include "scratch.h"

enum { INPUTS = 6 };

/* Documents of 6, 4 and 7 tokens, of which 9 is the placeholder: the first has
 * images of 2 and 1 features, the last has one of 3. */
static int32_t ids[] = {1, 9, 9, 2, 9, 3, 4, 5, 6, 7, 9, 9, 9, 1, 2, 3, 4};
static size_t starts[] = {0, 6, 10, 17};
static const struct pp_piece pieces[] = {
    {0, 0, 0, 6, 6}, {6, 1, 0, 4, 4}, {10, 2, 0, 7, 8}};
static const size_t first[] = {0, 1, 3};
static const uint32_t items[] = {2, 1, 0};
static const struct pp_grid document_grids[] = {
    {1, 2, 4}, {1, 2, 2}, {3, 2, 2}};
/* The same for clips of audio, some of an odd number of rows; the last one has
 * an odd number of frames. */
static const struct pp_grid clip_grids[] = {{1, 1, 5}, {1, 1, 2}, {1, 7, 1}};
static const size_t document_of[] = {0, 0, 2};
/* The documents with images and clips, whose placeholders are 9 and 8. */
static const int32_t both_ids[] = {8, 8, 9, 9, 8, 9, 4, 5, 6,
                                   7, 9, 9, 9, 8, 8, 8, 1};

/* Loads and attaches the items. Value i of item k is 100 k + i. */
static void load_items(struct pp_documents *d, enum pp_modality modality,
                       uint32_t token)
{
    const struct pp_item_kind kind = {INPUTS, token, 2, modality, false};
    struct pp_items *to = &d->items[modality];
    const struct pp_grid *grids =
        modality == PP_MODALITY_AUDIO ? clip_grids : document_grids;
    struct pp_err err = {0};
    for (size_t k = 0, n = 0; k < 3; k++) {
        if (k == 0 || document_of[k] != document_of[k - 1])
            pp_items_begin(to);
        float *values = pp_items_load(to, &kind, &grids[k], NULL, 0, &err);
        for (size_t i = 0; i < pp_grid_size(&grids[k]) * INPUTS; i++)
            values[i] = (float)(100 * k + i);
        n++;
        if ((k == 2 || document_of[k + 1] != document_of[k]) &&
            pp_items_attach(to, document_of[k], &err) == 0)
            n = 0;
    }
    ok(to->n == 3, "three %s %s", pp_modality_words(modality).items, err.text);
}

static struct pp_packed_content content_of(const struct pp_documents *d)
{
    return (struct pp_packed_content){.ids = ids,
                                      .pieces = pieces,
                                      .n_bins = 2,
                                      .first = first,
                                      .items = items,
                                      .n_inputs = 3,
                                      .capacity = 10,
                                      .align = 2,
                                      .row_capacity = {14, 14},
                                      .docs = d,
                                      .counts = {.sequences = 3, .tokens = 17}};
}

/* Checks the two bins: document 2; documents 1 and 0. */
static void check_bins(const struct pp_packed *p)
{
    struct pp_bin_items at;
    pp_packed_bin_items(p, PP_MODALITY_IMAGES, 0, &at);
    ok(at.n == 1 && at.rows == 12 && at.cu_items[1] == 1 &&
           at.grids[0].frames == 3 && at.values[0] == 200 &&
           at.values[71] == 271,
       "bin 0 has the image of the last document");
    pp_packed_bin_items(p, PP_MODALITY_IMAGES, 1, &at);
    ok(at.n == 2 && at.rows == 12 && at.first == 1 && at.cu_items[1] == 0 &&
           at.cu_items[2] == 2 && at.cu_rows[1] == 8 && at.cu_rows[2] == 12,
       "bin 1 has those of the first");
    ok(at.values[0] == 0 && at.values[47] == 47 && at.values[48] == 100 &&
           at.values[71] == 123,
       "with their pixels");
}

static void test_directory(const char *dir, const struct pp_documents *d)
{
    struct pp_packed_content c = content_of(d);
    struct pp_packed p;
    struct pp_err err = {0};
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "written and opened %s", err.text))
        return;
    const struct pp_packed_stream *s = &p.streams[PP_MODALITY_IMAGES];
    ok(s->width == INPUTS && s->token == 9 && s->merge == 2 &&
           s->capacity == 14 && s->n == 3 && s->n_rows == 24 &&
           s->max_items == 2 && s->max_rows == 12 && s->max_item == 12,
       "counts and sizes");
    check_bins(&p);
    ok(pp_packed_check(&p, &err) == 0, "consistent %s", err.text);
    pp_packed_finish(&p);
}

/* Returns whether two bins have the same items. */
static bool same_items(const struct pp_packed *p, size_t b,
                       const struct pp_packed *q, size_t c)
{
    bool same = true;
    for (int k = 0; k < PP_N_MODALITIES; k++) {
        enum pp_modality m = (enum pp_modality)k;
        struct pp_bin_items x, y;
        pp_packed_bin_items(p, m, b, &x);
        pp_packed_bin_items(q, m, c, &y);
        same &= x.n == y.n && x.rows == y.rows && !x.cu_rows == !y.cu_rows;
        if (same && x.n)
            same = !memcmp(x.grids, y.grids, x.n * sizeof *x.grids) &&
                   !memcmp(x.cu_rows, y.cu_rows, (x.n + 1) * sizeof(int32_t)) &&
                   !memcmp(x.values, y.values,
                           (size_t)x.rows * INPUTS * sizeof(float));
    }
    return same;
}

/* Sets in memory have the items of the set that they come from. */
static void test_copies(const char *dir)
{
    struct pp_packed p, three, single, longer;
    struct pp_bin_items at;
    struct pp_err err = {0};
    if (!ok(pp_packed_open(dir, &p, &err) == 0 &&
                pp_packed_take(&p, 3, &three, &err) == 0 &&
                pp_packed_unpack(&three, &single, &err) == 0 &&
                pp_packed_extend(&three, 2, 4, &longer, &err) == 0,
            "copied %s", err.text))
        return;
    ok(same_items(&p, 0, &three, 0) && same_items(&p, 1, &three, 1) &&
           same_items(&p, 0, &three, 2) &&
           three.streams[PP_MODALITY_IMAGES].n == 4,
       "bins are taken with their images");
    ok(single.n_bins == 4 && same_items(&p, 0, &single, 0) &&
           same_items(&p, 0, &single, 3),
       "a sequence in a bin of its own has its images");
    pp_packed_bin_items(&single, PP_MODALITY_IMAGES, 1, &at);
    ok(at.n == 0 && at.cu_items && at.cu_items[1] == 0, "or none");
    pp_packed_bin_items(&single, PP_MODALITY_IMAGES, 2, &at);
    ok(at.n == 2 && at.values[48] == 100, "or two");
    ok(longer.streams[PP_MODALITY_IMAGES].n == 4 &&
           same_items(&single, 2, &longer, 2),
       "and longer sequences keep them");
    pp_packed_finish(&longer);
    pp_packed_finish(&single);
    pp_packed_finish(&three);
    pp_packed_finish(&p);
}

/* Documents read from the directory have the same items as those that were
 * written. */
static void test_documents(const char *dir, const struct pp_documents *d)
{
    struct pp_packed p;
    struct pp_documents again = {0};
    struct pp_err err = {0};
    if (!ok(pp_packed_open(dir, &p, &err) == 0 &&
                pp_packed_documents(&p, &again, &err) == 0,
            "read as documents %s", err.text))
        return;
    bool same = true;
    for (int m = 0; same && m < PP_N_MODALITIES; m++) {
        const struct pp_items *from = &d->items[m], *to = &again.items[m];
        same &= to->n == from->n;
        for (size_t i = 0; same && i < 3; i++) {
            const struct pp_item *a, *b;
            size_t n = pp_items_of(from, i, &a);
            same &= pp_items_of(to, i, &b) == n;
            for (size_t k = 0; same && k < n; k++)
                same &= !memcmp(&a[k].grid, &b[k].grid, sizeof a->grid) &&
                        !memcmp(from->values + a[k].first_row * INPUTS,
                                to->values + b[k].first_row * INPUTS,
                                a[k].rows * INPUTS * sizeof(float));
        }
    }
    ok(same, "each document has its items");
    pp_documents_finish(&again);
    pp_packed_finish(&p);
}

/* Documents with images are not cut, and each fits by its patches too. */
static void test_pieces(const struct pp_documents *d)
{
    struct pp_piece_options o = {
        .capacity = 6, .align = 1, .oversize = PP_OVERSIZE_SPLIT};
    struct pp_pieces made = {0};
    struct pp_err err = {0};
    ok(pp_pieces_make(d, &o, &made, &err) != 0 &&
           strstr(err.text, "sequence 2 has '7' tokens, more than a bin, and "
                            "images cannot be cut"),
       "refused: %s", err.text);
    pp_pieces_finish(&made);
    o.oversize = PP_OVERSIZE_DROP;
    o.capacity = 8;
    o.rows[PP_MODALITY_IMAGES] = 11;
    err = (struct pp_err){0};
    ok(pp_pieces_make(d, &o, &made, &err) == 0 && made.n == 1 &&
           made.piece[0].source == 1 && made.rows[PP_MODALITY_IMAGES][0] == 0 &&
           made.counts.n_dropped == 2 && made.counts.dropped_tokens == 13,
       "documents with 12 patches are dropped %s", err.text);
    pp_pieces_finish(&made);
}

/* Without images the file of pixels is gone. */
static void test_no_images(const char *dir, const struct pp_documents *d)
{
    struct pp_packed_content c = content_of(d);
    struct pp_packed p;
    struct pp_err err = {0};
    char path[300];
    const size_t one[] = {0, 1};
    c.n_bins = 1;
    c.first = one;
    c.n_inputs = 1;
    c.counts = (struct pp_input_counts){.sequences = 1, .tokens = 4};
    struct pp_piece only = {6, 0, 0, 4, 4};
    struct pp_documents plain = *d;
    plain.items[PP_MODALITY_IMAGES] = (struct pp_items){0};
    c.pieces = &only;
    c.items = (const uint32_t[]){0};
    c.docs = &plain;
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "text replaces images %s", err.text))
        return;
    snprintf(path, sizeof path, "%s/pixels", dir);
    ok(!pp_stream_exists(&p.streams[PP_MODALITY_IMAGES]) &&
           access(path, F_OK) != 0,
       "without pixels");
    pp_packed_finish(&p);
}

/* A placeholder more than there are features. */
static void test_mismatch(const char *dir, const struct pp_documents *d)
{
    struct pp_packed_content c = content_of(d);
    struct pp_err err = {0};
    int32_t more[17];
    memcpy(more, ids, sizeof ids);
    more[16] = 9;
    c.ids = more;
    ok(pp_packed_write(dir, &c, &err) != 0 && err.code == PP_EXIT_INPUT &&
           strstr(err.text,
                  "sequence 2: '4' placeholders (id 9) for 3 features"),
       "refused: %s", err.text);
    ok(access(dir, F_OK) != 0, "and nothing is left");
}

/* False statements of the index, with a right checksum. */
static void test_image_lies(const char *dir, const char *path)
{
    size_t n;
    struct pp_err err;
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_packed_stream *s = &h->images;
    struct pp_item_start *r = section_in(data, PP_SECTION_ITEM_STARTS);
    int32_t *cu_items = section_in(data, PP_SECTION_CU_ITEMS);
    int32_t *cu_rows = section_in(data, PP_SECTION_CU_ROWS);
    struct pp_grid *grids = section_in(data, PP_SECTION_GRIDS);
    LIE(s->class_out = 1, PP_EXIT_NO, "(id 9) for 4 features");
    LIE(s->class_out = 2, PP_EXIT_INPUT, "images are impossible");
    LIE(memset(s, 0, sizeof *s), PP_EXIT_INPUT, "but its sections need");
    LIE((h->cp = 2, h->max_rank_tokens = 4), PP_EXIT_INPUT,
        "ranks of their own cannot have images");
    LIE(s->modality = 1, PP_EXIT_INPUT, "images are impossible");
    LIE(s->width = 5, PP_EXIT_INPUT, "times 5 f32, for each row");
    LIE(s->token = 40, PP_EXIT_INPUT, "images are impossible");
    LIE(s->token = 1, PP_EXIT_NO, "(id 1) for 3 features");
    const struct pp_grid larger = grids[1];
    LIE((grids[1] = grids[2], grids[2] = larger, cu_rows[3] = 4), PP_EXIT_NO,
        "token '2' is between placeholders (id 9) of one image");
    LIE(s->merge = 0, PP_EXIT_INPUT, "images are impossible");
    LIE(s->merge = 1, PP_EXIT_INPUT, "cannot have 12 features");
    LIE(s->capacity = 11, PP_EXIT_INPUT, "header's counts");
    LIE(s->max_rows = 13, PP_EXIT_INPUT, "header's counts");
    LIE(s->max_items = 3, PP_EXIT_INPUT, "header's counts");
    LIE(s->max_item = 8, PP_EXIT_INPUT, "'3 x 2 x 2' patches");
    LIE(s->max_item = 13, PP_EXIT_INPUT, "header's counts");
    LIE(s->n = 2, PP_EXIT_INPUT, "but its sections need");
    LIE(r[1].first_item = 0, PP_EXIT_INPUT, "do not follow");
    LIE(r[1].first_row = 11, PP_EXIT_INPUT, "do not follow");
    LIE(cu_items[1] = 2, PP_EXIT_INPUT, "bin");
    LIE(cu_items[3] = 3, PP_EXIT_INPUT, "cu_items that decrease");
    LIE(cu_rows[1] = 11, PP_EXIT_INPUT, "do not match the grids");
    LIE(grids[1].rows = 4, PP_EXIT_INPUT, "'1 x 4 x 4' patches");
    LIE(grids[1].frames = 0, PP_EXIT_INPUT, "'0 x 2 x 4' patches");
    write_file(path, data, n);
    free(data);
}

/* Clips of audio, whose last rows may be odd. */
static void test_audio(const char *base)
{
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64], path[80];
    struct pp_packed p;
    struct pp_err err = {0};
    size_t n;
    load_items(&d, PP_MODALITY_AUDIO, 9);
    snprintf(dir, sizeof dir, "%s/audio", base);
    snprintf(path, sizeof path, "%s/index", dir);
    const struct pp_packed_content c = content_of(&d);
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "audio is written and opened %s", err.text))
        return;
    const struct pp_packed_stream *s = &p.streams[PP_MODALITY_AUDIO];
    ok(s->modality == PP_MODALITY_AUDIO && s->n == 3 && s->n_rows == 14 &&
           s->max_rows == 7 && s->max_item == 7,
       "with the sizes of clips");
    ok(pp_item_features(s, 7) == 3 && pp_packed_check(&p, &err) == 0,
       "two rows are a feature, one is none %s", err.text);
    struct pp_bin_items of;
    pp_packed_bin_items(&p, PP_MODALITY_AUDIO, 0, &of);
    ok(pp_clip_frames(&of.grids[0]) == 13, "a clip has 13 frames");
    pp_packed_bin_items(&p, PP_MODALITY_AUDIO, 1, &of);
    ok(pp_clip_frames(&of.grids[0]) == 10 && pp_clip_frames(&of.grids[1]) == 4,
       "others have an even number");
    pp_packed_finish(&p);
    test_documents(dir, &d);
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_grid *grids =
        section_in(data, pp_section_of(PP_MODALITY_AUDIO, PP_SECTION_GRIDS));
    LIE(h->audio.modality = 0, PP_EXIT_INPUT, "clips of audio are impossible");
    LIE(h->audio.class_out = 1, PP_EXIT_INPUT, "audio are impossible");
    LIE(grids[1].rows = 2, PP_EXIT_INPUT, "'1 x 2 x 5' rows");
    LIE(grids[1].columns = 1, PP_EXIT_INPUT, "clips of audio cannot have");
    LIE(h->audio.merge = 1, PP_EXIT_INPUT, "7 features of clips of audio");
    free(data);
    pp_items_finish(&d.items[PP_MODALITY_AUDIO]);
}

/* False statements of an index with two streams. */
static void test_both_lies(const char *dir, const char *path)
{
    size_t n;
    struct pp_err err;
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    const enum pp_modality m = PP_MODALITY_AUDIO;
    struct pp_item_start *r =
        section_in(data, pp_section_of(m, PP_SECTION_ITEM_STARTS));
    int32_t *cu_items = section_in(data, pp_section_of(m, PP_SECTION_CU_ITEMS));
    struct pp_grid *grids =
        section_in(data, pp_section_of(m, PP_SECTION_GRIDS));
    LIE(h->images.modality = 1, PP_EXIT_INPUT, "images are impossible");
    LIE(h->audio.modality = 0, PP_EXIT_INPUT, "clips of audio are impossible");
    LIE(h->audio.token = 9, PP_EXIT_INPUT, "both images and audio");
    LIE(h->audio.token = 7, PP_EXIT_NO, "features of clips of audio");
    LIE(h->images.token = 7, PP_EXIT_NO, "features of images");
    LIE(h->audio.width = 5, PP_EXIT_INPUT,
        "'audio' must have '14' times 5 f32");
    LIE(h->audio.n = 2, PP_EXIT_INPUT, "but its sections need");
    LIE(h->audio.capacity = 6, PP_EXIT_INPUT, "of audio do not match");
    LIE(h->audio.max_item = 6, PP_EXIT_INPUT, "clips of audio cannot have");
    LIE(r[1].first_row = 6, PP_EXIT_INPUT, "its clips of audio do not follow");
    LIE(cu_items[3] = 3, PP_EXIT_INPUT, "of audio have cu_items that decrease");
    LIE(grids[0].rows = 4, PP_EXIT_INPUT, "cu_rows of clips of audio");
    write_file(path, data, n);
    free(data);
}

/* Images and clips of the same documents. */
static void test_both(const char *base)
{
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64], path[2][80];
    struct pp_packed p;
    struct pp_err err = {0};
    load_items(&d, PP_MODALITY_IMAGES, 9);
    load_items(&d, PP_MODALITY_AUDIO, 8);
    snprintf(dir, sizeof dir, "%s/both", base);
    snprintf(path[0], sizeof path[0], "%s/index", dir);
    snprintf(path[1], sizeof path[1], "%s/audio", dir);
    struct pp_packed_content c = content_of(&d);
    ok(pp_packed_write(dir, &c, &err) != 0 &&
           strstr(err.text, "'0' placeholders (id 8) for 3 features of clips"),
       "placeholders of both are counted: %s", err.text);
    err = (struct pp_err){0};
    c.ids = both_ids;
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "both are written and opened %s", err.text))
        return;
    const struct pp_packed_stream *a = &p.streams[PP_MODALITY_AUDIO],
                                  *s = &p.streams[PP_MODALITY_IMAGES];
    ok(s->n == 3 && s->n_rows == 24 && s->token == 9 && a->n == 3 &&
           a->n_rows == 14 && a->token == 8 && a->max_rows == 7,
       "with the counts of both");
    check_bins(&p);
    struct pp_bin_items at;
    pp_packed_bin_items(&p, PP_MODALITY_AUDIO, 1, &at);
    ok(at.n == 2 && at.rows == 7 && at.first == 1 && at.cu_items[1] == 0 &&
           at.cu_rows[1] == 5 && at.values[0] == 0 && at.values[30] == 100,
       "and its clips");
    ok(pp_packed_check(&p, &err) == 0, "consistent %s", err.text);
    pp_packed_finish(&p);
    test_copies(dir);
    test_documents(dir, &d);
    test_damage(dir, path[0]);
    test_column_damage(dir, path[1], "audio");
    test_both_lies(dir, path[0]);
    pp_items_finish(&d.items[PP_MODALITY_IMAGES]);
    pp_items_finish(&d.items[PP_MODALITY_AUDIO]);
}

/* A class token's feature. */
static void test_class(const char *base)
{
    static const int32_t class_ids[] = {9, 9, 9, 9, 9, 8, 4, 5, 6,
                                        7, 9, 9, 9, 9, 8, 8, 1};
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64];
    struct pp_packed p, q;
    struct pp_err err = {0};
    load_items(&d, PP_MODALITY_IMAGES, 9);
    d.items[PP_MODALITY_IMAGES].kind.class_out = true;
    snprintf(dir, sizeof dir, "%s/class", base);
    struct pp_packed_content c = content_of(&d);
    ok(pp_packed_write(dir, &c, &err) != 0 &&
           strstr(err.text, "(id 9) for 4 features"),
       "a feature more wants a placeholder more: %s", err.text);
    err = (struct pp_err){0};
    c.ids = class_ids;
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0 &&
                pp_packed_check(&p, &err) == 0,
            "written and opened %s", err.text))
        return;
    const struct pp_packed_stream *s = &p.streams[PP_MODALITY_IMAGES];
    ok(s->class_out && s->merge == 2 && s->n_rows == 24 &&
           pp_item_features(s, 8) == 3,
       "with a feature more");
    ok(pp_packed_take(&p, 2, &q, &err) == 0 &&
           q.streams[PP_MODALITY_IMAGES].class_out,
       "and copied with it");
    pp_packed_finish(&q);
    pp_packed_finish(&p);
    test_documents(dir, &d);
    pp_items_finish(&d.items[PP_MODALITY_IMAGES]);
}

static void test_files(const char *base)
{
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64], path[2][80];
    load_items(&d, PP_MODALITY_IMAGES, 9);
    snprintf(dir, sizeof dir, "%s/packed", base);
    snprintf(path[0], sizeof path[0], "%s/index", dir);
    snprintf(path[1], sizeof path[1], "%s/pixels", dir);
    test_mismatch(dir, &d);
    test_directory(dir, &d);
    test_copies(dir);
    test_documents(dir, &d);
    test_pieces(&d);
    test_damage(dir, path[0]);
    test_column_damage(dir, path[1], "pixels");
    test_image_lies(dir, path[0]);
    test_words(dir);
    test_no_images(dir, &d);
    pp_items_finish(&d.items[PP_MODALITY_IMAGES]);
}

int main(void)
{
    char base[SCRATCH_TEXT];
    scratch_make(base);
    test_files(base);
    test_audio(base);
    test_both(base);
    test_class(base);
    scratch_remove(base);
    return done();
}
