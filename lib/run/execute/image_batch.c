/* SPDX-License-Identifier: MIT */
/* image_batch - fills the arrays of the images of a packed bin. */
#include "run/execute/image_batch.h"

#include <string.h>

#include "model/vision.h"

int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, size_t ranks, struct pp_err *err)
{
    size_t n = max_tokens + 1;
    *b = (struct pp_image_batch){.device = d};
    b->memory = pp_device_alloc(d, 1, pp_image_batch_bytes(max_tokens, ranks),
                                "arrays of images", err);
    if (!b->memory)
        return -1;
    b->positions = b->memory;
    if (ranks > 1) {
        b->out = b->memory;
        b->in = b->out + ranks + 1;
        b->positions = (int32_t *)(b->in + ranks + 1);
    }
    b->input_ids = b->positions + 2 * n;
    b->cu_seqlens = b->input_ids + 2 * n;
    b->feature_rows = b->cu_seqlens + n;
    b->token_rows = b->feature_rows + n;
    if (ranks > 1) {
        b->order = b->token_rows + n;
        b->takers = b->order + n;
    }
    return 0;
}

void pp_image_batch_finish(struct pp_image_batch *b)
{
    pp_device_free(b->device, b->memory);
    *b = (struct pp_image_batch){0};
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
    if (s->patch_inputs != v->patch_inputs || s->merge != 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a patch has '%u' pixels and %u of them make a feature, "
                       "but the model takes %zu and 1",
                       s->patch_inputs, s->merge * s->merge, v->patch_inputs);
    if (s->max_image > v->patches || s->n_patches != s->n * v->patches)
        return pp_fail(err, PP_EXIT_INPUT,
                       "images have up to '%u' patches, but the model takes "
                       "%zu of each",
                       s->max_image, v->patches);
    return 0;
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

size_t pp_images_of_rank(const struct pp_env *env, const struct pp_packed *p,
                         size_t bin)
{
    struct pp_bin_images images = {0};
    if (bin != PP_NO_BIN)
        pp_packed_bin_images(p, bin, &images);
    return span_of(env, &images).n;
}

/* Lists the rows of the encoder. */
static void view_images(struct pp_image_batch *b, const struct pp_vision *v,
                        const struct pp_bin_images *images,
                        struct image_span of)
{
    size_t rows = v->patches + 1, features = 0;
    for (size_t i = 0; i < of.n; i++) {
        b->cu_seqlens[i] = (int32_t)(i * rows);
        for (size_t t = 0; t < rows; t++) {
            size_t at = i * rows + t;
            b->positions[at] = (int32_t)t;
            b->input_ids[at] = t ? -1 : 0;
            if (t)
                b->feature_rows[features++] = (int32_t)at;
        }
    }
    b->cu_seqlens[of.n] = (int32_t)(of.n * rows);
    const float *pixels = images->pixels;
    b->view = (struct pp_microbatch){
        .tokens = of.n * rows,
        .n_sequences = of.n,
        .cu_seqlens = b->cu_seqlens,
        .cu_seqlens_padded = b->cu_seqlens,
        .positions = b->positions,
        .input_ids = b->input_ids,
        .n_features = features,
        .feature_rows = b->feature_rows,
        .pixels =
            pixels ? pixels + of.first * v->patches * v->patch_inputs : NULL};
}

/* Finds the placeholders of a bin, and notes which ranks they concern. */
struct finder {
    struct pp_image_batch *b;
    struct pp_batch *tokens;
    const struct pp_env *env;
    const struct pp_bin_images *images;
    struct image_span own;
    size_t tokens_of_rank; /* of a context-parallel rank */
    size_t maker;          /* rank that makes the next feature */
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

/* Notes where feature number `feature` of the bin goes and comes from. */
static void note_feature(struct finder *f, size_t feature, size_t place,
                         struct pp_microbatch *mb)
{
    struct pp_image_batch *b = f->b;
    const struct pp_group *g = &f->env->sharers.group;
    size_t me = (size_t)g->index, tp = pp_env_tp(f->env), row;
    size_t each = f->env->model->vision.patches, image = feature / each;
    size_t taker = taker_of(f, place, &row);
    if (taker / tp == me / tp)
        f->tokens->input_ids[row] = -1;
    if (taker == me)
        b->token_rows[mb->n_features++] =
            (int32_t)(row - me % tp * (f->tokens_of_rank / tp));
    if (g->n == 1)
        return;
    while (image >= pp_images_part(f->images, (size_t)g->n, f->maker + 1))
        f->maker++;
    if (taker == me)
        b->in[f->maker + 1]++;
    if (f->maker == me) {
        b->takers[feature - f->own.first * each] = (int32_t)taker;
        b->out[taker + 1]++;
    }
}

/* Looks for the placeholders of sequence i. Returns their number; `found` are
 * in the sequences before it. */
static size_t find_places(struct finder *f, const struct pp_bin *bin,
                          uint32_t i, size_t found, struct pp_microbatch *mb)
{
    /* The tokens of an index alone have been copied. */
    const int32_t *ids = bin->input_ids ? bin->input_ids : f->tokens->ids;
    size_t first = (size_t)bin->cu_seqlens_padded[i], n = 0;
    size_t end = first + (size_t)(bin->cu_seqlens[i + 1] - bin->cu_seqlens[i]);
    size_t most = (size_t)f->images->n * f->env->model->vision.patches;
    for (size_t t = first; t < end; t++)
        if (ids[t] == (int32_t)f->env->model->vision.image_token) {
            if (found + n < most)
                note_feature(f, found + n, t, mb);
            n++;
        }
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

int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_env *env, const struct pp_packed *p,
                        size_t bin, struct pp_microbatch *mb,
                        struct pp_err *err)
{
    const struct pp_vision *v = &env->model->vision;
    size_t ranks = (size_t)env->sharers.group.n, found = 0;
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
                       .own = span_of(env, &images),
                       .tokens_of_rank = of.tokens / pp_env_cp(env)};
    view_images(b, v, &images, f.own);
    mb->n_features = 0;
    if (ranks > 1)
        memset(b->out, 0, 2 * (ranks + 1) * sizeof *b->out);
    for (uint32_t i = 0; i < of.n_sequences; i++) {
        size_t n = images.cu_images
                       ? (size_t)(images.cu_images[i + 1] - images.cu_images[i])
                       : 0;
        size_t places = find_places(&f, &of, i, found, mb);
        if (places != n * v->patches)
            return pp_fail(err, PP_EXIT_INPUT,
                           "packed data: bin %zu: sequence %u has '%zu' tokens "
                           "for images, but its %zu images have %zu features",
                           bin, i, places, n, n * v->patches);
        found += places;
    }
    if (ranks > 1)
        sort_features(b, ranks);
    mb->routes = ranks > 1 ? &b->routes : NULL;
    mb->feature_rows = b->token_rows;
    mb->images = &b->view;
    return 0;
}
