/* SPDX-License-Identifier: MIT */
/* test_positions - compares the positions of tokens on three axes with those of
 * transformers (scripts/gen-omni): sequences of text, images and audio in
 * several orders, on ranks that divide tokens and on one. */
#include "data/tensors/safetensors.h"
#include "manifest/config_json.h"
#include "model/vision.h"
#include "run/execute/token_axes.h"
#include "scratch.h"
#include "small_run.h"

enum { SEQUENCES = 11, BINS = 4, ALIGN = 4, MOST = 256, MOST_ITEMS = 16 };

/* The sequences of each bin. Those of the first have no images. */
static const uint32_t order[SEQUENCES] = {0, 1, 5, 2, 3, 4, 6, 7, 8, 10, 9};
static const size_t first[BINS + 1] = {0, 3, 6, 9, 11};

struct golden {
    struct pp_model m;
    struct pp_tensors *want;
    struct pp_packed data;
    size_t from[SEQUENCES + 1]; /* tokens before each sequence */
    double ids[MOST], positions[3 * MOST];
    double lengths[SEQUENCES];
};

static size_t read_values(const struct golden *g, const char *name, double *to,
                          size_t most)
{
    const struct pp_tensor *x = pp_tensors_find(g->want, name);
    struct pp_err err = {0};
    if (!x || x->n > most || pp_tensor_read_f64(x, 0, x->n, to, &err))
        give_up("%s: %s", name, x ? err.text : "is missing");
    return (size_t)x->n;
}

/* Gives the sequences, in their order of bins, images or clips. */
static int add_items(struct golden *g, const struct pp_vision *v,
                     struct pp_err *err)
{
    bool clips = pp_vision_hears(v);
    double n[SEQUENCES], of[3 * MOST_ITEMS];
    uint32_t counts[SEQUENCES], before[SEQUENCES + 1] = {0};
    struct pp_grid grids[MOST_ITEMS];
    float *values;
    read_values(g, clips ? "clips" : "images", n, SEQUENCES);
    read_values(g, clips ? "frames" : "grids", of, 3 * MOST_ITEMS);
    for (size_t i = 0; i < SEQUENCES; i++)
        before[i + 1] = before[i] + (uint32_t)n[i];
    for (size_t i = 0, to = 0; i < SEQUENCES; i++) {
        counts[i] = (uint32_t)n[order[i]];
        for (size_t k = before[order[i]]; k < before[order[i] + 1]; k++)
            grids[to++] = clips ? pp_clip_grid((uint32_t)of[k])
                                : (struct pp_grid){1, (uint32_t)of[3 * k + 1],
                                                   (uint32_t)of[3 * k + 2]};
    }
    const struct pp_item_content c = {
        .kind = image_kind(v), .n = counts, .grids = grids};
    return pp_packed_set_items(&g->data, &c, &values, err);
}

static int pack(struct golden *g, const char *dir, struct pp_err *err)
{
    int32_t ids[MOST];
    struct pp_piece pieces[SEQUENCES] = {0};
    struct pp_packed mapped = {0};
    size_t n = read_values(g, "ids", g->ids, MOST);
    read_values(g, "lengths", g->lengths, SEQUENCES);
    read_values(g, "positions", g->positions, 3 * MOST);
    for (size_t t = 0; t < n; t++)
        ids[t] = (int32_t)g->ids[t];
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t length = (uint32_t)g->lengths[i];
        g->from[i + 1] = g->from[i] + length;
        pieces[i] =
            (struct pp_piece){.source = i,
                              .at = g->from[i],
                              .length = length,
                              .padded = (length + ALIGN - 1) / ALIGN * ALIGN};
    }
    const struct pp_packed_content c = {.ids = ids,
                                        .pieces = pieces,
                                        .n_bins = BINS,
                                        .first = first,
                                        .items = order,
                                        .n_inputs = SEQUENCES,
                                        .capacity = MOST,
                                        .align = ALIGN,
                                        .counts.tokens = n};
    int rc = pp_packed_write(dir, &c, err) ||
             pp_packed_open(dir, &mapped, err) ||
             pp_packed_take(&mapped, BINS, &g->data, err) ||
             add_items(g, &g->m.encoders[0], err) ||
             add_items(g, &g->m.encoders[1], err);
    pp_packed_finish(&mapped);
    return rc ? -1 : 0;
}

static void open_golden(struct golden *g)
{
    const char *source = getenv("SRCDIR");
    char dir[4096], path[4200], scratch[SCRATCH_TEXT], packed[64];
    struct pp_err err = {0};
    snprintf(dir, sizeof dir, "%.4000s/tests/golden/qwen2.5-omni",
             source ? source : ".");
    snprintf(path, sizeof path, "%s/positions.safetensors", dir);
    *g = (struct golden){0};
    scratch_make(scratch);
    snprintf(packed, sizeof packed, "%s/packed", scratch);
    if (pp_model_read(dir, &g->m, &err) ||
        pp_tensors_open(path, &g->want, &err) || pack(g, packed, &err))
        give_up("%s", err.text);
    scratch_remove(scratch);
}

/* Appends the positions that the golden has for tokens begin to end of a
 * sequence; those behind it are padding. */
static int32_t *expect(const struct golden *g, uint32_t sequence, size_t begin,
                       size_t end, int32_t *to)
{
    size_t from = g->from[sequence], n = (size_t)g->lengths[sequence];
    for (size_t t = begin; t < end; t++)
        for (size_t axis = 0; axis < 3; axis++)
            *to++ = t < n ? (int32_t)g->positions[3 * (from + t) + axis] : 0;
    return to;
}

/* Returns how many positions of a bin differ on a context-parallel rank, which
 * has chunks `rank` and 2 cp - 1 - rank of each sequence; all if there are
 * none. */
static size_t n_wrong(const struct golden *g, const struct pp_vision *v,
                      size_t bin, size_t cp, size_t tp, size_t taker)
{
    int32_t want[3 * MOST], got[3 * MOST], *end = want;
    size_t rank = taker / tp, wrong = 0;
    for (size_t i = first[bin]; i < first[bin + 1]; i++) {
        size_t padded =
            ((size_t)g->lengths[order[i]] + ALIGN - 1) / ALIGN * ALIGN;
        size_t chunk = padded / (2 * cp), other = 2 * cp - 1 - rank;
        end = expect(g, order[i], rank * chunk, (rank + 1) * chunk, end);
        end = expect(g, order[i], other * chunk, (other + 1) * chunk, end);
    }
    const struct pp_image_work w = {.packed = &g->data,
                                    .modality = PP_MODALITY_IMAGES,
                                    .first = bin,
                                    .end = BINS,
                                    .n_lanes = 1,
                                    .n_makers = 1,
                                    .tp = tp,
                                    .cp = cp,
                                    .takes = true,
                                    .taker = taker,
                                    .copies = 1};
    memset(got, 0x55, sizeof got);
    if (!pp_token_axes(&w, v, got))
        return SIZE_MAX;
    for (size_t i = 0; i < (size_t)(end - want); i++)
        wrong += got[i] != want[i];
    for (size_t i = (size_t)(end - want); i < 3 * MOST; i++)
        wrong += got[i] != 0x55555555;
    return wrong;
}

static void check_bins(const struct golden *g, size_t cp, size_t tp)
{
    size_t wrong = 0;
    for (size_t bin = 1; bin < BINS; bin++)
        for (size_t taker = 0; taker < cp * tp; taker++)
            wrong += n_wrong(g, &g->m.encoders[0], bin, cp, tp, taker);
    ok(wrong == 0, "cp %zu, tp %zu: tokens have the positions of transformers",
       cp, tp);
}

/* A bin of text and audio needs one axis. */
static void check_one_axis(const struct golden *g)
{
    bool alike = true;
    for (size_t i = first[0]; i < first[1]; i++)
        for (size_t t = 0; t < (size_t)g->lengths[order[i]]; t++)
            for (size_t axis = 0; axis < 3; axis++)
                alike &=
                    (size_t)g->positions[3 * (g->from[order[i]] + t) + axis] ==
                    t;
    ok(alike && n_wrong(g, &g->m.encoders[0], 0, 1, 1, 0) == SIZE_MAX,
       "text and audio have one axis, whose positions are their places");
}

/* The comparison sees features of audio that count as images, and images of
 * other sides. */
static void controls(struct golden *g)
{
    struct pp_vision wrong = g->m.encoders[0];
    wrong.image_token = g->m.encoders[1].image_token;
    struct pp_bin_items images;
    for (size_t bin = 1; bin < BINS; bin++) {
        size_t off = n_wrong(g, &wrong, bin, 1, 1, 0);
        pp_packed_bin_items(&g->data, PP_MODALITY_IMAGES, bin, &images);
        struct pp_grid *grid = (struct pp_grid *)(uintptr_t)images.grids;
        const struct pp_grid kept = *grid;
        *grid = (struct pp_grid){1, kept.columns, kept.rows};
        size_t turned = n_wrong(g, &g->m.encoders[0], bin, 1, 1, 0);
        *grid = kept;
        ok(off > 0 && off < SIZE_MAX &&
               (turned > 0) == (kept.rows != kept.columns),
           "bin %zu: placeholders of audio, or an image on its side, give "
           "others",
           bin);
    }
}

int main(void)
{
    struct golden g;
    open_golden(&g);
    for (size_t cp = 1; cp <= 2; cp++)
        for (size_t tp = 1; tp <= 2; tp++)
            check_bins(&g, cp, tp);
    check_one_axis(&g);
    controls(&g);
    pp_packed_finish(&g.data);
    pp_tensors_close(g.want);
    return done();
}
