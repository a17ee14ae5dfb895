/* SPDX-License-Identifier: MIT */
/* test_packed_images - images, or audio, beside the tokens of a packed set. */
#include "data/packed_stream.h"

#include "packed_fixture.h"
#include "scratch.h"

enum { INPUTS = 6 };

/* Four bins, whose sequences have 8 tokens or more. */
static bool make_set(struct pp_packed *p)
{
    const struct pp_synthetic_data l = {
        .tokens = 64, .max_sequences = 4, .vocab = 50, .seed = 6};
    struct pp_err err = {0};
    return ok(pp_packed_synthetic(NULL, 4, &l, p, &err) == 0,
              "a set in memory %s", err.text);
}

/* Gives image k of the set the grid (1, 2, 2 + 2 (k % 2)); sequence i has
 * i % 3 images. Returns the pixels. */
static float *add_images(struct pp_packed *p, struct pp_err *err)
{
    uint32_t *n = calloc(p->n_sequences, sizeof *n);
    struct pp_grid *grids = calloc(2 * p->n_sequences, sizeof *grids);
    float *pixels = NULL;
    for (size_t i = 0; i < p->n_sequences; i++)
        n[i] = i % 3;
    for (uint32_t k = 0; k < 2 * p->n_sequences; k++)
        grids[k] = (struct pp_grid){1, 2, 2 + 2 * (k % 2)};
    const struct pp_item_content c = {
        .kind = {INPUTS, 9, 2}, .n = n, .grids = grids};
    if (pp_packed_set_items(p, &c, &pixels, err) != 0)
        pixels = NULL;
    free(n);
    free(grids);
    return pixels;
}

/* Compares every bin with the rule of add_images. */
static void check_images(const struct pp_packed *p)
{
    size_t sequence = 0, patch = 0;
    uint32_t image = 0, most = 0;
    bool images = true, grids = true, pixels = true;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin_items at;
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        pp_packed_bin_items(p, b, &at);
        images &= at.first == image && at.cu_items[0] == 0;
        for (uint32_t i = 0; i < bin.n_sequences; i++, sequence++)
            images &=
                at.cu_items[i + 1] - at.cu_items[i] == (int32_t)(sequence % 3);
        for (uint32_t k = 0; k < at.n; k++, image++)
            grids &= at.cu_rows[k + 1] - at.cu_rows[k] ==
                         (int32_t)(4 + 4 * (image % 2)) &&
                     at.grids[k].columns == 2 + 2 * (image % 2);
        for (size_t i = 0; i < (size_t)at.rows * INPUTS; i++)
            pixels &= at.values[i] == (float)(patch * INPUTS + i);
        patch += at.rows;
        most = at.rows > most ? at.rows : most;
    }
    ok(images, "each sequence has its images");
    ok(grids, "each image has its grid and its patches");
    ok(pixels, "each bin has its pixels");
    ok(image == p->images.n && patch == p->images.n_rows, "and all of them");
    is_int(p->images.max_rows, most, "patches of the largest bin");
    is_int(p->images.max_item, 8, "patches of the largest image");
    is_int(pp_item_features(&p->images, 8), 2, "merged by fours");
}

/* Parts of a bin follow each other, and none is far from its share. */
static void test_parts(void)
{
    int32_t cu[14] = {0};
    bool tile = true, balanced = true, equal = true;
    for (uint32_t n = 0; n < 14; n++)
        for (size_t size = 1; size <= 6; size++) {
            struct pp_bin_items b = {.n = n, .cu_rows = cu};
            for (uint32_t k = 0; k < n; k++)
                cu[k + 1] = cu[k] + 4 * (1 + (int32_t)(k * k % 5));
            b.rows = (uint32_t)cu[n];
            tile &= pp_items_part(&b, size, 0) == 0 &&
                    pp_items_part(&b, size, size) == n;
            for (size_t r = 0; r < size; r++) {
                uint32_t first = pp_items_part(&b, size, r);
                uint32_t end = pp_items_part(&b, size, r + 1);
                tile &= first <= end;
                /* At most half an image more at each end, of 20 patches. */
                balanced &=
                    end < first ||
                    (size_t)(cu[end] - cu[first]) * size <= b.rows + 20 * size;
            }
            for (uint32_t k = 0; k < n; k++)
                cu[k + 1] = cu[k] + 4;
            b.rows = (uint32_t)cu[n];
            for (size_t r = 0; r < size; r++)
                equal &= pp_items_part(&b, size, r + 1) -
                             pp_items_part(&b, size, r) <=
                         (n + size - 1) / size;
        }
    ok(tile, "the images of ranks follow each other");
    ok(balanced, "no rank has an image more than its share of patches");
    ok(equal, "images of one size are divided as equally as can be");
}

static void test_memory(void)
{
    struct pp_packed p;
    struct pp_bin_items at;
    struct pp_err err = {0};
    if (!make_set(&p))
        return;
    pp_packed_bin_items(&p, 0, &at);
    ok(!pp_stream_exists(&p.images) && at.n == 0 && !at.cu_items,
       "a set has no images at first");
    float *pixels = add_images(&p, &err);
    if (ok(pixels != NULL, "images are added %s", err.text)) {
        size_t n = (size_t)p.images.n_rows * INPUTS;
        for (size_t i = 0; i < n; i++)
            pixels[i] = (float)i;
        check_images(&p);
    }
    pp_packed_finish(&p);
}

/* Every sequence has one image of that grid. */
static void refuse_grid(struct pp_grid grid, const char *word)
{
    struct pp_packed p;
    struct pp_err err = {0};
    float *pixels;
    if (!make_set(&p))
        return;
    uint32_t *n = calloc(p.n_sequences, sizeof *n);
    struct pp_grid *grids = calloc(p.n_sequences, sizeof *grids);
    for (size_t i = 0; i < p.n_sequences; i++) {
        n[i] = 1;
        grids[i] = grid;
    }
    const struct pp_item_content c = {
        .kind = {INPUTS, 9, 2}, .n = n, .grids = grids};
    ok(pp_packed_set_items(&p, &c, &pixels, &err) != 0 &&
           err.code == PP_EXIT_INPUT && strstr(err.text, word),
       "refused with '%s': %s", word, err.text);
    free(n);
    free(grids);
    pp_packed_finish(&p);
}

static void test_grids(void)
{
    const struct pp_grid large = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    ok(pp_grid_size(&large) == 0, "a grid cannot be too large");
    refuse_grid((struct pp_grid){1, 3, 2}, "'1 x 3 x 2'");
    refuse_grid((struct pp_grid){0, 2, 2}, "'0 x 2 x 2'");
    refuse_grid((struct pp_grid){1, 64, 64}, "1024 features");
}

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
/* The same for clips of audio, some of an odd number of rows. */
static const struct pp_grid clip_grids[] = {{1, 1, 5}, {1, 1, 2}, {1, 1, 7}};
static const size_t document_of[] = {0, 0, 2};

/* Loads and attaches the images. Pixel i of image k is 100 k + i. */
static void load_images(struct pp_documents *d, enum pp_modality modality)
{
    const struct pp_item_kind kind = {INPUTS, 9, 2, modality};
    const struct pp_grid *grids =
        modality == PP_MODALITY_AUDIO ? clip_grids : document_grids;
    struct pp_err err = {0};
    for (size_t k = 0, n = 0; k < 3; k++) {
        if (k == 0 || document_of[k] != document_of[k - 1])
            pp_items_begin(&d->images);
        float *pixels =
            pp_items_load(&d->images, &kind, &grids[k], NULL, 0, &err);
        for (size_t i = 0; i < pp_grid_size(&grids[k]) * INPUTS; i++)
            pixels[i] = (float)(100 * k + i);
        n++;
        if ((k == 2 || document_of[k + 1] != document_of[k]) &&
            pp_items_attach(&d->images, document_of[k], &err) == 0)
            n = 0;
    }
    ok(d->images.n == 3, "three images %s", err.text);
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
                                      .row_capacity = 14,
                                      .docs = d,
                                      .counts = {.sequences = 3, .tokens = 17}};
}

/* Checks the two bins: document 2; documents 1 and 0. */
static void check_bins(const struct pp_packed *p)
{
    struct pp_bin_items at;
    pp_packed_bin_items(p, 0, &at);
    ok(at.n == 1 && at.rows == 12 && at.cu_items[1] == 1 &&
           at.grids[0].frames == 3 && at.values[0] == 200 &&
           at.values[71] == 271,
       "bin 0 has the image of the last document");
    pp_packed_bin_items(p, 1, &at);
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
    const struct pp_packed_stream *s = &p.images;
    ok(p.version == 4 && s->width == INPUTS && s->token == 9 && s->merge == 2 &&
           s->capacity == 14 && s->n == 3 && s->n_rows == 24 &&
           s->max_items == 2 && s->max_rows == 12 && s->max_item == 12,
       "counts and sizes");
    check_bins(&p);
    ok(pp_packed_check(&p, &err) == 0, "consistent %s", err.text);
    pp_packed_finish(&p);
}

/* Returns whether two bins have the same images. */
static bool same_images(const struct pp_packed *p, size_t b,
                        const struct pp_packed *q, size_t c)
{
    struct pp_bin_items x, y;
    pp_packed_bin_items(p, b, &x);
    pp_packed_bin_items(q, c, &y);
    return x.n == y.n && x.rows == y.rows &&
           !memcmp(x.grids, y.grids, x.n * sizeof *x.grids) &&
           !memcmp(x.cu_rows, y.cu_rows, (x.n + 1) * sizeof(int32_t)) &&
           !memcmp(x.values, y.values, (size_t)x.rows * INPUTS * sizeof(float));
}

/* Sets in memory have the images of the set that they come from. */
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
    ok(same_images(&p, 0, &three, 0) && same_images(&p, 1, &three, 1) &&
           same_images(&p, 0, &three, 2) && three.images.n == 4,
       "bins are taken with their images");
    ok(single.n_bins == 4 && same_images(&p, 0, &single, 0) &&
           same_images(&p, 0, &single, 3),
       "a sequence in a bin of its own has its images");
    pp_packed_bin_items(&single, 1, &at);
    ok(at.n == 0 && at.cu_items && at.cu_items[1] == 0, "or none");
    pp_packed_bin_items(&single, 2, &at);
    ok(at.n == 2 && at.values[48] == 100, "or two");
    ok(longer.images.n == 4 && same_images(&single, 2, &longer, 2),
       "and longer sequences keep them");
    pp_packed_finish(&longer);
    pp_packed_finish(&single);
    pp_packed_finish(&three);
    pp_packed_finish(&p);
}

/* Documents read from the directory have the same images as those that were
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
    bool same = again.images.n == d->images.n;
    for (size_t s = 0; same && s < 3; s++) {
        const struct pp_item *a, *b;
        size_t n = pp_items_of(&d->images, s, &a);
        same &= pp_items_of(&again.images, s, &b) == n;
        for (size_t k = 0; same && k < n; k++)
            same &= !memcmp(&a[k].grid, &b[k].grid, sizeof a->grid) &&
                    !memcmp(d->images.values + a[k].first_row * INPUTS,
                            again.images.values + b[k].first_row * INPUTS,
                            a[k].rows * INPUTS * sizeof(float));
    }
    ok(same, "each document has its images");
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
    o.rows = 11;
    err = (struct pp_err){0};
    ok(pp_pieces_make(d, &o, &made, &err) == 0 && made.n == 1 &&
           made.piece[0].source == 1 && made.rows[0] == 0 &&
           made.counts.n_dropped == 2 && made.counts.dropped_tokens == 13,
       "documents with 12 patches are dropped %s", err.text);
    pp_pieces_finish(&made);
}

/* Without images the index is of version 3, and the file of pixels is gone. */
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
    plain.images = (struct pp_items){0};
    c.pieces = &only;
    c.items = (const uint32_t[]){0};
    c.docs = &plain;
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "text replaces images %s", err.text))
        return;
    snprintf(path, sizeof path, "%s/pixels", dir);
    ok(p.version == 3 && !pp_stream_exists(&p.images) &&
           access(path, F_OK) != 0,
       "as version 3, without pixels");
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
           strstr(err.text, "sequence 2: '4' placeholders for 3 features"),
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
    struct pp_packed_item_record *r = (void *)(data + h->item_bins);
    int32_t *cu_items = (void *)(data + h->cu_items);
    int32_t *cu_rows = (void *)(data + h->cu_rows);
    struct pp_grid *grids = (void *)(data + h->grids);
    LIE(h->version = 7, PP_EXIT_INPUT, "this one reads 6");
    LIE(h->version = 6, PP_EXIT_INPUT, "the header must not have '368' bytes");
    LIE(h->modality = 1, PP_EXIT_INPUT, "images are impossible");
    LIE(h->version = 3, PP_EXIT_INPUT, "the header must not have '368' bytes");
    LIE(h->width = 5, PP_EXIT_INPUT, "one float32 per pixel");
    LIE(h->token = 40, PP_EXIT_INPUT, "images are impossible");
    LIE(h->token = 1, PP_EXIT_NO, "placeholders for 3 features");
    LIE(h->merge = 0, PP_EXIT_INPUT, "images are impossible");
    LIE(h->merge = 1, PP_EXIT_INPUT, "cannot have 12 features");
    LIE(h->row_capacity = 11, PP_EXIT_INPUT, "header's counts");
    LIE(h->max_rows = 13, PP_EXIT_INPUT, "header's counts");
    LIE(h->max_items = 3, PP_EXIT_INPUT, "header's counts");
    LIE(h->max_item = 8, PP_EXIT_INPUT, "'3 x 2 x 2' patches");
    LIE(h->max_item = 13, PP_EXIT_INPUT, "header's counts");
    LIE(h->n_items = 2, PP_EXIT_INPUT, "more images than there are");
    LIE(h->grids = h->cu_rows, PP_EXIT_INPUT, "overlap");
    LIE(r[1].first_item = 0, PP_EXIT_INPUT, "do not follow");
    LIE(r[1].first_row = 11, PP_EXIT_INPUT, "do not follow");
    LIE(cu_items[1] = 2, PP_EXIT_INPUT, "bin");
    LIE(cu_items[3] = 3, PP_EXIT_INPUT, "must not decrease");
    LIE(cu_rows[1] = 11, PP_EXIT_INPUT, "do not match the grids");
    LIE(grids[1].rows = 4, PP_EXIT_INPUT, "'1 x 4 x 4' patches");
    LIE(grids[1].frames = 0, PP_EXIT_INPUT, "'0 x 2 x 4' patches");
    write_file(path, data, n);
    free(data);
}

/* Clips of audio make an index of version 6, whose last rows may be odd. */
static void test_audio(const char *base)
{
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64], path[80];
    struct pp_packed p;
    struct pp_err err = {0};
    size_t n;
    load_images(&d, PP_MODALITY_AUDIO);
    snprintf(dir, sizeof dir, "%s/audio", base);
    snprintf(path, sizeof path, "%s/index", dir);
    const struct pp_packed_content c = content_of(&d);
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "audio is written and opened %s", err.text))
        return;
    const struct pp_packed_stream *s = &p.images;
    ok(p.version == 6 && s->modality == PP_MODALITY_AUDIO && s->n == 3 &&
           s->n_rows == 14 && s->max_rows == 7 && s->max_item == 7,
       "as version 6");
    ok(pp_item_features(s, 7) == 3 && pp_packed_check(&p, &err) == 0,
       "two rows are a feature, one is none %s", err.text);
    pp_packed_finish(&p);
    test_documents(dir, &d);
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_grid *grids = (void *)(data + h->grids);
    LIE(h->version = 5, PP_EXIT_INPUT, "context-parallel ranks");
    LIE(h->modality = 0, PP_EXIT_INPUT, "images are impossible");
    LIE(h->cp = 2, PP_EXIT_INPUT, "images are impossible");
    LIE(grids[1].rows = 2, PP_EXIT_INPUT, "'1 x 2 x 5' rows");
    LIE(grids[1].columns = 1, PP_EXIT_INPUT, "clips of audio cannot have");
    LIE(h->merge = 1, PP_EXIT_INPUT, "7 features of clips of audio");
    free(data);
    pp_items_finish(&d.images);
}

static void test_files(const char *base)
{
    struct pp_documents d = {.n = 3, .n_sequences = 3, .first = starts};
    char dir[64], path[2][80];
    load_images(&d, PP_MODALITY_IMAGES);
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
    pp_items_finish(&d.images);
}

/* The rank that has most patches, here the first or the last one. */
static void test_largest(void)
{
    static const int32_t falling[] = {0, 8, 10, 13}, rising[] = {0, 4, 12, 15};
    const struct pp_bin_items before = {.n = 3, .rows = 13, .cu_rows = falling};
    const struct pp_bin_items last = {.n = 3, .rows = 15, .cu_rows = rising};
    const struct pp_bin_items none = {.cu_rows = falling};
    struct pp_item_share a = pp_items_largest(&before, 2),
                         b = pp_items_largest(&last, 2),
                         all = pp_items_largest(&before, 1),
                         nothing = pp_items_largest(&none, 2);
    is_near(a.rows, 8, 0, "the first rank has most patches");
    is_near(a.squares, 64, 0, "  their pairs");
    is_near(b.rows, 11, 0, "the last rank has most patches");
    is_near(b.squares, 64 + 9, 0, "  their pairs");
    is_near(all.rows, 13, 0, "one rank has all");
    is_near(all.squares, 64 + 4 + 9, 0, "  their pairs");
    is_near(nothing.rows + nothing.squares, 0, 0, "no images");
}

int main(void)
{
    test_largest();
    char base[SCRATCH_TEXT];
    scratch_make(base);
    test_memory();
    test_parts();
    test_grids();
    test_files(base);
    test_audio(base);
    scratch_remove(base);
    return done();
}
