/* SPDX-License-Identifier: MIT */
/* image_batch - fills the arrays of the images of packed bins. */
#include "run/execute/image_batch.h"

#include <string.h>

#include "model/vision.h"
#include "run/execute/token_axes.h"
#include "run/execute/window_order.h"

int pp_image_batch_init(struct pp_image_batch *b, struct pp_device *d,
                        size_t max_tokens, const struct pp_image_counts *c,
                        struct pp_err *err)
{
    size_t n = max_tokens + 1, ranks = c->ranks, merge = c->merge;
    *b = (struct pp_image_batch){.states = c->states};
    b->memory = pp_device_alloc(pp_device_ops(d)->is_host ? d : NULL, 1,
                                pp_image_batch_bytes(max_tokens, c),
                                "arrays of images", err);
    if (!b->memory)
        return -1;
    b->pixels = b->memory;
    b->out = (size_t *)(b->pixels + n);
    b->in = b->out + ranks + 1;
    b->cu_seqlens = (int32_t *)(ranks > 1 ? b->in + ranks + 1 : b->out);
    b->token_rows = b->cu_seqlens + n;
    int32_t *rest = b->token_rows + n;
    if (merge) {
        /* Three rows of audio make a feature at least; each has a position and
         * a kind. A chunk may have one row alone, and tokens of audio have one
         * axis. */
        b->axes = b->positions = rest;
        b->n_frames = b->positions + 3 * n;
        b->feature_rows = b->axes + 2 * merge * n;
        b->cu_windows = b->feature_rows + n;
        b->token_axes = b->row_kinds = b->cu_windows + n;
        b->sources = b->token_axes + 3 * n;
        rest = b->sources + n;
    } else {
        b->positions = rest;
        b->input_ids = b->positions + 2 * n;
        b->feature_rows = b->input_ids + 2 * n;
        rest = b->feature_rows + c->states * n;
    }
    if (ranks > 1) {
        b->order = rest;
        b->takers = b->order + n;
    }
    return pp_sent_init(&b->arrays, d,
                        pp_image_batch_device_bytes(max_tokens, c), err);
}

void pp_image_batch_finish(struct pp_image_batch *b)
{
    pp_device_free(NULL, b->memory);
    pp_sent_finish(&b->arrays);
    *b = (struct pp_image_batch){0};
}

/* Returns the most frames of an image. */
static size_t most_frames(const struct pp_packed *p, enum pp_modality modality)
{
    struct pp_bin_items images;
    size_t most = 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_packed_bin_items(p, modality, b, &images);
        for (uint32_t k = 0; k < images.n; k++)
            if (images.grids[k].frames > most)
                most = images.grids[k].frames;
    }
    return most;
}

int pp_images_check(const struct pp_model *m, const struct pp_packed *p,
                    struct pp_err *err)
{
    for (int k = 0; k < PP_N_MODALITIES; k++) {
        const struct pp_packed_stream *s = &p->streams[k];
        if (!pp_stream_exists(s))
            continue;
        const struct pp_image_set set = {
            .modality = s->modality,
            .n = s->n,
            .n_patches = s->n_rows,
            .max_image = s->max_item,
            .max_frames = most_frames(p, s->modality),
            .token = s->token,
            .patch_inputs = s->width,
            .merge = pp_modality_rows(s->modality, s->merge),
            .class_out = s->class_out};
        if (pp_vision_check_images(m, &set, err) != 0)
            return -1;
    }
    return 0;
}

/* Lists the row of a feature in each hidden state that the projector reads. */
static void list_feature(struct pp_image_batch *b, const struct pp_vision *v,
                         size_t feature, int32_t row)
{
    size_t n = pp_vision_states(v);
    for (size_t k = 0; k < n; k++)
        b->feature_rows[feature * n + k] =
            (int32_t)(v->state[k] * b->view.of.tokens) + row;
}

/* Notes which rows of a clip begin a run, and which has half of its frames. */
static void list_kinds(struct pp_image_batch *b, const struct pp_vision *v,
                       size_t i)
{
    int32_t first = b->cu_seqlens[i], n = b->cu_seqlens[i + 1] - first;
    int32_t run = v->chunk ? (int32_t)v->chunk : n;
    for (int32_t t = 0; t < n; t++)
        b->row_kinds[first + t] = t % run == 0 ? PP_ROW_BEGINS : 0;
    if (v->chunk && b->n_frames[i] % 2)
        b->row_kinds[first + n - 1] |= PP_ROW_HALF;
}

/* Lists the rows of images with one axis: their positions, and the first row of
 * each feature. A class token is in none, or is the first feature. */
static void list_rows(struct pp_image_batch *b, const struct pp_vision *v)
{
    const int32_t merge = (int32_t)v->merge;
    const int32_t class = v->class_token && !v->class_out;
    size_t features = 0;
    for (size_t i = 0; i < b->view.of.n_sequences; i++) {
        int32_t first = b->cu_seqlens[i], n = b->cu_seqlens[i + 1] - first;
        if (pp_vision_hears(v))
            list_kinds(b, v, i);
        for (int32_t t = 0; t < n; t++) {
            b->positions[first + t] = v->chunk ? t % (int32_t)v->chunk : t;
            if (b->input_ids)
                b->input_ids[first + t] = t ? -1 : 0;
            if (t >= class && (t - class) % merge == 0 && t + merge <= n)
                list_feature(b, v, features++, first + t);
        }
    }
}

/* Writes rows and columns of an image whose patches come in squares of `side`
 * each way, of which each makes a feature. places are the places of its
 * features among all, or NULL: they follow number `first`. */
static void list_axes(int32_t *axes, const struct pp_grid *g, uint32_t side,
                      const int32_t *places, size_t first)
{
    size_t columns = g->columns / side, n = g->rows / side * columns;
    for (size_t i = 0; i < n; i++) {
        size_t place = places ? (size_t)places[i] : first + i;
        int32_t *to = axes + 2 * side * side * place;
        for (uint32_t k = 0; k < side * side; k++) {
            *to++ = (int32_t)(i / columns * side + k / side);
            *to++ = (int32_t)(i % columns * side + k % side);
        }
    }
}

/* Lists the windows of an image, and the positions of its patches. Its first
 * feature has the number `first` among all. */
static void list_patches(struct pp_image_batch *b, const struct pp_vision *v,
                         const struct pp_grid *g, uint32_t side, size_t first)
{
    int32_t *places = v->window ? b->feature_rows + first : NULL;
    const struct pp_window_sides s = {side, v->window};
    if (places)
        b->view.of.encoder.n_windows +=
            pp_window_order(g, &s, (int32_t)first, places,
                            b->cu_windows + b->view.of.encoder.n_windows + 1);
    list_axes(b->axes, g, side, places, first);
    for (size_t i = 0; places && i < pp_grid_size(g) / v->merge; i++)
        b->sources[places[i]] = (int32_t)(first + i);
}

/* Bounds the chunks of a clip, whose rows follow `at` others, and notes its
 * number of frames. */
static void list_chunks(struct pp_image_batch *b, const struct pp_vision *v,
                        const struct pp_grid *g, int32_t at)
{
    size_t rows = pp_grid_size(g);
    for (size_t end = v->chunk; end < rows; end += v->chunk)
        b->cu_windows[++b->view.of.encoder.n_windows] = at + (int32_t)end;
    b->cu_windows[++b->view.of.encoder.n_windows] = at + (int32_t)rows;
    b->n_frames[b->view.of.n_sequences - 1] = (int32_t)pp_clip_frames(g);
}

/* Adds the current image of a walk to the view of the encoder. */
static void view_image(struct pp_image_batch *b, const struct pp_vision *v,
                       const struct pp_image_walk *s)
{
    const struct pp_bin_items *images = &s->images;
    size_t i = b->view.of.n_sequences++;
    int32_t at = b->cu_seqlens[i];
    if (pp_vision_merges(v))
        list_patches(b, v, &images->grids[s->number],
                     s->work->packed->streams[s->work->modality].merge,
                     (size_t)at / v->merge);
    if (v->chunk)
        list_chunks(b, v, &images->grids[s->number], at);
    b->pixels[i] = images->values;
    if (images->values)
        b->pixels[i] += (size_t)images->cu_rows[s->number] * v->patch_inputs;
    b->cu_seqlens[i + 1] = at + (int32_t)s->patches + v->class_token;
    b->view.of.encoder.n_features +=
        pp_image_rows(v, s->patches, PP_ROWS_FEATURES);
}

/* Makes the view of the encoder: the images of this rank. */
static void view_images(struct pp_image_batch *b, const struct pp_vision *v,
                        const struct pp_image_work *w)
{
    struct pp_image_walk s;
    b->view.of = (struct pp_microbatch){.cu_seqlens = b->cu_seqlens,
                                        .cu_seqlens_padded = b->cu_seqlens,
                                        .input_ids = b->input_ids,
                                        .encoder.pixels = b->pixels};
    bool axes = pp_vision_merges(v);
    if (axes)
        b->view.of.axes = b->axes;
    else
        b->view.of.positions = b->positions;
    if (!axes || v->window)
        b->view.of.encoder.feature_rows = b->feature_rows;
    if (v->window)
        b->view.of.encoder.sources = b->sources;
    b->cu_seqlens[0] = 0;
    if (v->window || v->chunk) {
        b->view.of.encoder.cu_windows = b->cu_windows;
        b->cu_windows[0] = 0;
    }
    if (v->chunk)
        b->view.of.encoder.n_frames = b->n_frames;
    if (pp_vision_hears(v))
        b->view.of.encoder.kinds = b->row_kinds;
    pp_image_walk_begin(&s, w);
    for (size_t lane = 0; lane < w->n_lanes; lane++) {
        pp_image_walk_open(&s, lane);
        while (pp_image_walk_next(&s))
            if (s.maker == w->maker)
                view_image(b, v, &s);
    }
    b->view.of.tokens = (size_t)b->cu_seqlens[b->view.of.n_sequences];
    if (!axes)
        list_rows(b, v);
}

/* --- the places of features --- */

struct placer {
    const struct pp_image_work *work;
    struct pp_image_batch *b;
    int32_t *ids; /* of the tokens of this rank; or NULL */
    size_t taken, made;
    size_t rows; /* of a tensor-parallel rank */
    bool sorts;
};

/* Notes where a feature goes and comes from. */
static void place_feature(void *ctx, const struct pp_feature *f)
{
    struct placer *p = ctx;
    const struct pp_image_work *w = p->work;
    struct pp_image_batch *b = p->b;
    if (w->takes && f->taker.number / w->tp == w->taker / w->tp)
        p->ids[f->taker.row] = -1;
    if (w->takes && f->taker.number == w->taker) {
        b->token_rows[p->taken++] =
            (int32_t)(f->taker.row - w->taker % w->tp * p->rows);
        if (p->sorts)
            b->in[f->maker * w->copies + f->taker.number % w->copies + 1]++;
    }
    if (p->sorts && f->maker == w->maker) {
        bool sends = !w->takes || pp_image_passes(w, f->taker.number);
        b->takers[p->made++] = sends ? (int32_t)f->taker.number : -1;
        b->out[f->taker.number + 1] += sends;
    }
}

/* Completes the routes: adds up the numbers of features by rank, and sorts the
 * features of this rank by the rank that takes them. */
static void sort_features(struct pp_image_batch *b, size_t ranks)
{
    for (size_t k = 0; k < ranks; k++) {
        b->out[k + 1] += b->out[k];
        b->in[k + 1] += b->in[k];
    }
    for (size_t i = 0; i < b->view.of.encoder.n_features; i++)
        if (b->takers[i] >= 0)
            b->order[b->out[b->takers[i]]++] = (int32_t)i;
    /* Each bound is where the next rank begins now. */
    memmove(b->out + 1, b->out, ranks * sizeof *b->out);
    b->out[0] = 0;
    b->routes = (struct pp_feature_routes){b->order, b->out, b->in};
}

/* Fills the places of features, and the routes if a maker sorts them. Returns
 * how many this rank takes. */
static size_t place_features(struct pp_image_batch *b, struct pp_batch *tokens,
                             const struct pp_env *env,
                             const struct pp_image_work *w)
{
    struct placer p = {.work = w,
                       .b = b,
                       .ids = tokens->input_ids,
                       .sorts = pp_image_sorts(w)};
    size_t bin = pp_image_bin(w, w->lane), ranks = pp_image_takers(w);
    struct pp_bin of = {0};
    if (bin != PP_NO_BIN)
        pp_packed_bin(w->packed, bin, &of);
    p.rows = of.tokens / w->cp / w->tp;
    if (p.sorts)
        memset(b->out, 0, 2 * (ranks + 1) * sizeof *b->out);
    if (w->takes || p.sorts)
        pp_image_visit(w, env->shard.model, place_feature, &p);
    if (p.sorts)
        sort_features(b, ranks);
    return p.taken;
}

/* --- the view --- */

/* Checks that every sequence of a bin has the placeholders of its items.
 * copied: the ids of an index alone. */
static int check_places(const struct pp_vision *v, const struct pp_packed *p,
                        size_t bin, const int32_t *copied, struct pp_err *err)
{
    const struct pp_stream_places places = {
        pp_vision_modality(v), (uint32_t)v->image_token, PP_EXIT_INPUT};
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return 0;
    pp_packed_bin(p, bin, &b);
    return pp_packed_check_places(p, &places, bin,
                                  b.input_ids ? b.input_ids : copied, err)
               ? pp_fail_at(err, "packed data: ")
               : 0;
}

int pp_image_batch_view(struct pp_image_batch *b, struct pp_batch *tokens,
                        const struct pp_env *env, const struct pp_image_work *w,
                        struct pp_host_microbatch *host, struct pp_err *err)
{
    const struct pp_vision *v = &env->shard.model->encoders[w->encoder];
    struct pp_taken_features *taken = &host->of.taken[w->encoder];
    bool sorts = pp_image_sorts(w);
    for (size_t lane = 0; lane < w->n_lanes; lane++)
        if ((sorts || (w->takes && lane == w->lane)) &&
            check_places(v, w->packed, pp_image_bin(w, lane), tokens->ids, err))
            return -1;
    b->view = (struct pp_host_microbatch){0};
    if (w->makes)
        view_images(b, v, w);
    *taken = (struct pp_taken_features){
        .n = place_features(b, tokens, env, w),
        .rows = b->token_rows,
        .routes = w->makes && w->takes && sorts ? &b->routes : NULL};
    host->of.views[w->encoder] = &b->sent;
    if (w->takes && pp_token_axes(w, v, b->token_axes))
        host->of.axes = b->token_axes;
    if (w->makes && !w->takes)
        b->view.of.encoder.routes = sorts ? &b->routes : NULL;
    else if (!w->makes) /* the bridge keeps the order of the tokens */
        b->view.of.encoder.n_features = taken->n;
    b->sent = b->view.of;
    b->sent.host = &b->view;
    return 0;
}

/* Sends the arrays of an encoder, and points *mb to the copies. */
static int send_arrays(struct pp_image_batch *b,
                       struct pp_taken_features *taken,
                       struct pp_microbatch *mb, struct pp_err *err)
{
    struct pp_microbatch *v = &b->sent;
    struct pp_encoder_rows *e = &v->encoder;
    b->sent_routes = b->routes;
    const struct pp_sent_array arrays[] = {
        {&v->cu_seqlens, v->cu_seqlens ? v->n_sequences + 1 : 0},
        {&v->positions, v->positions ? v->tokens : 0},
        {&v->input_ids, v->input_ids ? v->tokens : 0},
        {&e->feature_rows, e->feature_rows ? e->n_features * b->states : 0},
        {&e->cu_windows, e->cu_windows ? e->n_windows + 1 : 0},
        {&v->axes, v->axes ? 2 * v->tokens : 0},
        {&e->kinds, e->kinds ? v->tokens : 0},
        {&taken->rows, taken->n},
        {&mb->axes, mb->axes && mb->axes == b->token_axes ? 3 * mb->tokens : 0},
        {&b->sent_routes.order, taken->routes || e->routes ? e->n_features : 0},
    };
    pp_sent_add(&b->arrays, arrays, sizeof arrays / sizeof *arrays);
    v->cu_seqlens_padded = v->cu_seqlens;
    if (taken->routes)
        taken->routes = &b->sent_routes;
    if (e->routes)
        e->routes = &b->sent_routes;
    return pp_sent_put(&b->arrays, err);
}

int pp_image_batches_send(struct pp_image_batch b[PP_MAX_ENCODERS],
                          struct pp_microbatch *mb, struct pp_err *err)
{
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (b[k].arrays.there && send_arrays(&b[k], &mb->taken[k], mb, err))
            return -1;
    return 0;
}
