/* SPDX-License-Identifier: MIT */
/* image_batch - fills the arrays of the images of a packed bin. */
#include "run/execute/image_batch.h"

#include <string.h>

#include "model/vision.h"

int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, size_t ranks, size_t merge,
                        struct pp_err *err)
{
    size_t n = max_tokens + 1;
    *b = (struct pp_image_batch){.device = d};
    b->memory =
        pp_device_alloc(d, 1, pp_image_batch_bytes(max_tokens, ranks, merge),
                        "arrays of images", err);
    if (!b->memory)
        return -1;
    b->cu_seqlens = b->memory;
    if (ranks > 1) {
        b->out = b->memory;
        b->in = b->out + ranks + 1;
        b->cu_seqlens = (int32_t *)(b->in + ranks + 1);
    }
    b->token_rows = b->cu_seqlens + n;
    int32_t *rest = b->token_rows + n;
    if (merge > 1) {
        b->axes = rest;
        b->token_axes = b->axes + 2 * merge * n;
        rest = b->token_axes + 3 * n;
    } else {
        b->positions = rest;
        b->input_ids = b->positions + 2 * n;
        b->feature_rows = b->input_ids + 2 * n;
        rest = b->feature_rows + n;
    }
    if (ranks > 1) {
        b->order = rest;
        b->takers = b->order + n;
    }
    return 0;
}

void pp_image_batch_finish(struct pp_image_batch *b)
{
    pp_device_free(b->device, b->memory);
    *b = (struct pp_image_batch){0};
}

/* The frames of a video would be sequences of their own. */
static int check_frames(const struct pp_packed *p, struct pp_err *err)
{
    struct pp_bin_images images;
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_packed_bin_images(p, b, &images);
        for (uint32_t k = 0; k < images.n; k++)
            if (images.grids[k].frames > 1)
                return pp_fail(err, PP_EXIT_INPUT,
                               "bin %zu: a video of '%u' frames; pprun takes "
                               "images so far",
                               b, images.grids[k].frames);
    }
    return 0;
}

int pp_images_check(const struct pp_model *m, const struct pp_packed *p,
                    struct pp_err *err)
{
    const struct pp_packed_images *s = &p->images;
    const struct pp_vision *v = &m->vision;
    if (!pp_images_exist(s))
        return 0;
    if (v->kind == PP_VISION_NONE)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' has no encoder for the %llu images",
                       pp_model_architecture(m), (unsigned long long)s->n);
    if (s->token != v->image_token)
        return pp_fail(err, PP_EXIT_INPUT,
                       "token '%u' stands for images, but %zu in the model; "
                       "pack them with this one",
                       s->token, v->image_token);
    if (s->patch_inputs != v->patch_inputs || s->merge * s->merge != v->merge)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a patch has '%u' pixels and %u of them make a feature, "
                       "but the model takes %zu and %zu",
                       s->patch_inputs, s->merge * s->merge, v->patch_inputs,
                       v->merge);
    if (v->fixed_size &&
        (s->max_image > v->patches || s->n_patches != s->n * v->patches))
        return pp_fail(err, PP_EXIT_INPUT,
                       "images have up to '%u' patches, but the model takes "
                       "%zu of each",
                       s->max_image, v->patches);
    return v->fixed_size ? 0 : check_frames(p, err);
}

/* The images of a rank in a bin. */
struct image_span {
    size_t first, n;
};

static struct image_span span_of(const struct pp_env *env,
                                 const struct pp_bin_images *images)
{
    const struct pp_group *g = &env->sharers.group;
    size_t n = (size_t)g->n, k = (size_t)g->index;
    size_t first = pp_images_part(images, n, k);
    return (struct image_span){first, pp_images_part(images, n, k + 1) - first};
}

/* Returns the patches of some images. */
static size_t patches_of(const struct pp_bin_images *images,
                         struct image_span of)
{
    const int32_t *cu = images->cu_patches;
    return of.n ? (size_t)(cu[of.first + of.n] - cu[of.first]) : 0;
}

size_t pp_image_rows_of_rank(const struct pp_env *env,
                             const struct pp_packed *p, size_t bin,
                             enum pp_rows rows)
{
    struct pp_bin_images images = {0};
    if (bin != PP_NO_BIN)
        pp_packed_bin_images(p, bin, &images);
    struct image_span of = span_of(env, &images);
    return pp_image_rows(env->model, of.n, patches_of(&images, of), rows);
}

/* Lists the rows of images with a class token: their positions, and which are
 * features. */
static void list_rows(struct pp_image_batch *b, size_t n, size_t patches)
{
    size_t features = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t <= patches; t++, at++) {
            b->positions[at] = (int32_t)t;
            b->input_ids[at] = t ? -1 : 0;
            if (t)
                b->feature_rows[features++] = (int32_t)at;
        }
}

/* Writes rows and columns of an image whose patches come in squares of `side`
 * each way. */
static void list_axes(int32_t *axes, const struct pp_grid *g, uint32_t side)
{
    for (uint32_t row = 0; row < g->rows; row += side)
        for (uint32_t column = 0; column < g->columns; column += side)
            for (uint32_t k = 0; k < side * side; k++) {
                *axes++ = (int32_t)(row + k / side);
                *axes++ = (int32_t)(column + k % side);
            }
}

/* Makes the view of the encoder: the images of this rank. */
static void view_images(struct pp_image_batch *b, const struct pp_vision *v,
                        const struct pp_bin_images *images, uint32_t side,
                        struct image_span of)
{
    const int32_t *cu = images->cu_patches;
    const float *pixels = images->pixels;
    size_t first = of.n ? (size_t)cu[of.first] : 0;
    b->cu_seqlens[0] = 0;
    for (size_t i = 0; i < of.n; i++) {
        int32_t patches = cu[of.first + i + 1] - cu[of.first + i];
        b->cu_seqlens[i + 1] = b->cu_seqlens[i] + patches + v->class_token;
        if (b->axes)
            list_axes(b->axes + 2 * b->cu_seqlens[i],
                      &images->grids[of.first + i], side);
    }
    if (!b->axes)
        list_rows(b, of.n, v->patches);
    b->view = (struct pp_microbatch){
        .tokens = (size_t)b->cu_seqlens[of.n],
        .n_sequences = of.n,
        .cu_seqlens = b->cu_seqlens,
        .cu_seqlens_padded = b->cu_seqlens,
        .positions = b->positions,
        .input_ids = b->input_ids,
        .axes = b->axes,
        .n_features = patches_of(images, of) / v->merge,
        .feature_rows = b->feature_rows,
        .pixels = pixels ? pixels + first * v->patch_inputs : NULL};
}

/* Finds the placeholders of a bin, and notes which ranks they concern. */
struct finder {
    struct pp_image_batch *b;
    struct pp_batch *tokens;
    const struct pp_env *env;
    const struct pp_bin_images *images;
    uint32_t side; /* patches of a feature each way */
    struct image_span own;
    size_t tokens_of_rank; /* of a context-parallel rank */
    size_t found;          /* placeholders */
    size_t image;          /* of the next one */
    size_t maker;          /* rank that makes its feature */
};

/* Returns the number among the sharers of the rank that has the token at a
 * place of its bin, and sets the row among all of a context-parallel rank. */
static size_t taker_of(const struct finder *f, size_t place, size_t *row)
{
    size_t tp = pp_env_tp(f->env), cp_rank = 0;
    *row = place;
    if (pp_env_cp(f->env) > 1) {
        size_t at = (size_t)f->tokens->order[place];
        cp_rank = at / f->tokens_of_rank;
        *row = at % f->tokens_of_rank;
    }
    return cp_rank * tp + *row / (f->tokens_of_rank / tp);
}

/* Returns the features of the images before image k. */
static size_t features_before(const struct finder *f, size_t k)
{
    return (size_t)f->images->cu_patches[k] / f->env->model->vision.merge;
}

/* Notes where the next feature of the bin goes and comes from. */
static void note_feature(struct finder *f, size_t place,
                         struct pp_microbatch *mb)
{
    struct pp_image_batch *b = f->b;
    const struct pp_group *g = &f->env->sharers.group;
    size_t me = (size_t)g->index, tp = pp_env_tp(f->env), row;
    size_t taker = taker_of(f, place, &row);
    if (taker / tp == me / tp)
        f->tokens->input_ids[row] = -1;
    if (taker == me)
        b->token_rows[mb->n_features++] =
            (int32_t)(row - me % tp * (f->tokens_of_rank / tp));
    if (g->n == 1)
        return;
    while (f->image >= pp_images_part(f->images, (size_t)g->n, f->maker + 1))
        f->maker++;
    if (taker == me)
        b->in[f->maker + 1]++;
    if (f->maker == me) {
        size_t before = features_before(f, f->own.first);
        b->takers[f->found - before] = (int32_t)taker;
        b->out[taker + 1]++;
    }
}

/* Writes the positions of a token on three axes, if this rank has its row. */
static void put_axes(const struct finder *f, size_t place, int32_t t,
                     int32_t row, int32_t column)
{
    const struct pp_group *g = &f->env->sharers.group;
    size_t at, tp = pp_env_tp(f->env);
    if (!f->b->token_axes || !f->images->n ||
        taker_of(f, place, &at) / tp != (size_t)g->index / tp)
        return;
    int32_t *to = f->b->token_axes + 3 * at;
    to[0] = t;
    to[1] = row;
    to[2] = column;
}

/* Takes the placeholder at a place. Its image begins at position `start`, and
 * what follows the image begins at the one that is returned. */
static int32_t take_feature(struct finder *f, size_t place, int32_t start,
                            struct pp_microbatch *mb)
{
    while (f->found >= features_before(f, f->image + 1))
        f->image++;
    const struct pp_grid *g = &f->images->grids[f->image];
    size_t number = f->found - features_before(f, f->image);
    uint32_t rows = g->rows / f->side, columns = g->columns / f->side;
    put_axes(f, place, start, start + (int32_t)(number / columns),
             start + (int32_t)(number % columns));
    note_feature(f, place, mb);
    f->found++;
    bool last = f->found == features_before(f, f->image + 1);
    return last ? start + (int32_t)(rows > columns ? rows : columns) : start;
}

/* Looks for the placeholders of sequence i, and numbers its tokens. Returns how
 * many there are. */
static size_t find_places(struct finder *f, const struct pp_bin *bin,
                          uint32_t i, struct pp_microbatch *mb)
{
    /* The tokens of an index alone have been copied. */
    const int32_t *ids = bin->input_ids ? bin->input_ids : f->tokens->ids;
    const struct pp_vision *v = &f->env->model->vision;
    size_t first = (size_t)bin->cu_seqlens_padded[i], n = 0;
    size_t end = first + (size_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
    size_t all = (size_t)f->images->patches / v->merge;
    int32_t position = 0;
    for (size_t t = first; t < end; t++)
        if (ids[t] != (int32_t)v->image_token) {
            put_axes(f, t, position, position, position);
            position++;
        } else {
            if (f->found < all)
                position = take_feature(f, t, position, mb);
            n++;
        }
    for (; end < (size_t)bin->cu_seqlens_padded[i + 1]; end++)
        put_axes(f, end, 0, 0, 0);
    return n;
}

/* Completes the routes: adds up the numbers of features by rank, and sorts
 * those of this rank by the rank that takes them. */
static void sort_features(struct pp_image_batch *b, size_t ranks)
{
    for (size_t k = 0; k < ranks; k++) {
        b->out[k + 1] += b->out[k];
        b->in[k + 1] += b->in[k];
    }
    for (size_t i = 0; i < b->view.n_features; i++)
        b->order[b->out[b->takers[i]]++] = (int32_t)i;
    /* Each bound is where the next rank begins now. */
    memmove(b->out + 1, b->out, ranks * sizeof *b->out);
    b->out[0] = 0;
    b->routes = (struct pp_feature_routes){b->order, b->out, b->in};
}

/* Returns the features that the images of sequence i have. */
static size_t features_of(const struct finder *f, uint32_t i)
{
    const int32_t *cu = f->images->cu_images;
    return cu ? features_before(f, (size_t)cu[i + 1]) -
                    features_before(f, (size_t)cu[i])
              : 0;
}

int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_env *env, const struct pp_packed *p,
                        size_t bin, struct pp_microbatch *mb,
                        struct pp_err *err)
{
    size_t ranks = (size_t)env->sharers.group.n;
    struct pp_bin_images images = {0};
    struct pp_bin of = {0};
    if (bin != PP_NO_BIN) {
        pp_packed_bin(p, bin, &of);
        pp_packed_bin_images(p, bin, &images);
    }
    struct finder f = {.b = b,
                       .tokens = tokens,
                       .env = env,
                       .images = &images,
                       .side = p->images.merge,
                       .own = span_of(env, &images),
                       .tokens_of_rank = of.tokens / pp_env_cp(env)};
    view_images(b, &env->model->vision, &images, f.side, f.own);
    mb->n_features = 0;
    if (ranks > 1)
        memset(b->out, 0, 2 * (ranks + 1) * sizeof *b->out);
    for (uint32_t i = 0; i < of.n_sequences; i++) {
        size_t places = find_places(&f, &of, i, mb), want = features_of(&f, i);
        if (places != want)
            return pp_fail(err, PP_EXIT_INPUT,
                           "packed data: bin %zu: sequence %u has '%zu' tokens "
                           "for images, which have %zu features",
                           bin, i, places, want);
    }
    if (ranks > 1)
        sort_features(b, ranks);
    /* Without images all positions are alike, and sequences may have ranks of
     * their own. */
    mb->axes = images.n ? b->token_axes : NULL;
    mb->routes = ranks > 1 ? &b->routes : NULL;
    mb->feature_rows = b->token_rows;
    mb->images = &b->view;
    return 0;
}
