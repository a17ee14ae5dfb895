/* SPDX-License-Identifier: MIT */
/* image_places - the walks through the images and the placeholders of a group.
 */
#include "run/execute/image_places.h"

#include <string.h>

#include "model/vision.h"

struct pp_image_work pp_image_work_of(const struct pp_env *env, size_t encoder,
                                      const struct pp_packed *p, uint64_t at,
                                      uint64_t end)
{
    const struct pp_layout *l = &env->layout;
    const struct pp_mesh *x = &pp_layout_language(l)->mesh;
    const struct pp_place *here = &env->place;
    bool apart = pp_layout_encodes(l, (int)encoder);
    bool encodes = pp_env_encodes(env);
    bool own = encodes && (size_t)here->component == encoder;
    struct pp_image_work w = {
        .packed = p,
        .encoder = encoder,
        .modality = pp_vision_modality(&env->shard.model->encoders[encoder]),
        .first = at,
        .end = end,
        .tp = (size_t)x->tp,
        .cp = (size_t)x->cp,
        .makes = apart ? own : pp_env_has_tokens(env),
        .takes = pp_env_has_tokens(env)};
    w.n_makers = pp_layout_makers(l, encoder, &w.n_lanes);
    w.lane = encodes ? 0 : (size_t)here->dp % w.n_lanes;
    w.first -= w.lane;
    w.taker = (w.lane * w.cp + (size_t)here->cp) * w.tp + (size_t)here->tp;
    w.copies = pp_layout_encoder_tp(l, encoder);
    w.maker = w.taker / w.copies;
    if (encodes)
        w.maker = (size_t)(here->dp * pp_env_mesh(env)->cp + here->cp);
    w.copy = (encodes ? (size_t)here->tp : w.taker) % w.copies;
    return w;
}

size_t pp_image_bin(const struct pp_image_work *w, size_t lane)
{
    uint64_t at = w->first + lane;
    return at < w->end ? pp_packed_place(w->packed, at) : PP_NO_BIN;
}

void pp_image_walk_open(struct pp_image_walk *s, size_t lane)
{
    size_t bin = pp_image_bin(s->work, lane);
    s->next = 0;
    s->images = (struct pp_bin_items){0};
    if (bin != PP_NO_BIN)
        pp_packed_bin_items(s->work->packed, s->work->modality, bin,
                            &s->images);
}

void pp_image_walk_begin(struct pp_image_walk *s, const struct pp_image_work *w)
{
    *s = (struct pp_image_walk){.work = w};
    for (size_t lane = 0; lane < w->n_lanes; lane++) {
        pp_image_walk_open(s, lane);
        s->total += s->images.rows;
    }
}

/* An image belongs to the maker that its middle falls to. */
bool pp_image_walk_next(struct pp_image_walk *s)
{
    if (s->next == s->images.n)
        return false;
    const int32_t *cu = s->images.cu_rows + s->next;
    s->number = s->next++;
    s->patches = (size_t)(cu[1] - cu[0]);
    s->maker = (size_t)((2 * s->before + s->patches) * s->work->n_makers /
                        (2 * s->total));
    s->before += s->patches;
    return true;
}

struct pp_row_place pp_image_taker(const struct pp_image_work *w, size_t lane,
                                   const struct pp_bin *bin, size_t i,
                                   size_t place)
{
    const int32_t *padded = bin->cu_seqlens_padded + i;
    const struct pp_row_ranks ranks = {w->n_lanes, w->cp, w->tp};
    size_t first = (size_t)padded[0], n = (size_t)padded[1] - first;
    return pp_row_place(&ranks, lane, bin->tokens, first, n, place - first);
}

/* The placeholders of a lane and the images for them. */
struct visitor {
    struct pp_image_walk walk;
    const struct pp_model *model;
    struct pp_bin bin;
    size_t lane, left; /* features of the image that have no token so far */
    pp_visit_feature_fn *visit;
    void *ctx;
};

/* Visits the features of sequence i. Returns false if there are no more. */
static bool visit_sequence(struct visitor *v, size_t i)
{
    const struct pp_image_work *w = v->walk.work;
    const struct pp_vision *of = &v->model->encoders[w->encoder];
    const int32_t token = (int32_t)of->image_token;
    size_t first = (size_t)v->bin.cu_seqlens_padded[i];
    size_t n = (size_t)(v->bin.cu_seqlens[i + 1] - v->bin.cu_seqlens[i]);
    for (size_t at = first; at < first + n; at++) {
        if (v->bin.input_ids[at] != token)
            continue;
        while (v->left == 0) {
            if (!pp_image_walk_next(&v->walk))
                return false;
            v->left = pp_image_rows(of, v->walk.patches, PP_ROWS_FEATURES);
        }
        v->left--;
        const struct pp_feature f = {
            v->walk.maker, pp_image_taker(w, v->lane, &v->bin, i, at)};
        v->visit(v->ctx, &f);
    }
    return true;
}

void pp_image_visit(const struct pp_image_work *w, const struct pp_model *m,
                    pp_visit_feature_fn *visit, void *ctx)
{
    struct visitor v = {.model = m, .visit = visit, .ctx = ctx};
    pp_image_walk_begin(&v.walk, w);
    for (; v.lane < w->n_lanes; v.lane++) {
        size_t bin = pp_image_bin(w, v.lane);
        if (bin == PP_NO_BIN)
            continue;
        pp_image_walk_open(&v.walk, v.lane);
        pp_packed_bin(w->packed, bin, &v.bin);
        v.left = 0;
        for (size_t i = 0; v.walk.images.n && i < v.bin.n_sequences; i++)
            if ((!w->makes && v.lane != w->lane) || !visit_sequence(&v, i))
                break;
        while (pp_image_walk_next(&v.walk))
            ; /* images of other lanes count before the next one */
    }
}

struct counter {
    const struct pp_image_work *work;
    size_t *at; /* by the rank of the other side */
};

static void count_feature(void *ctx, const struct pp_feature *f)
{
    const struct counter *c = ctx;
    if (c->work->makes && f->maker == c->work->maker)
        c->at[f->taker.number]++;
    if (!c->work->makes && f->taker.number == c->work->taker)
        c->at[f->maker]++;
}

void pp_image_bounds(const struct pp_image_work *w, const struct pp_model *m,
                     size_t *bounds)
{
    struct counter c = {w, bounds + 1};
    size_t n = w->makes ? pp_image_takers(w) : w->n_makers;
    memset(bounds, 0, (n + 1) * sizeof *bounds);
    pp_image_visit(w, m, count_feature, &c);
    for (size_t k = 0; k < n; k++)
        bounds[k + 1] += bounds[k];
}

static void count_taken(void *ctx, const struct pp_feature *f)
{
    struct counter *c = ctx;
    *c->at += f->taker.number == c->work->taker;
}

size_t pp_image_rows_of_rank(const struct pp_image_work *w,
                             const struct pp_model *m, size_t rows)
{
    size_t n = 0;
    struct pp_image_walk s;
    if (!w->makes) {
        struct counter c = {w, &n};
        pp_image_visit(w, m, count_taken, &c);
        return n;
    }
    pp_image_walk_begin(&s, w);
    for (size_t lane = 0; lane < w->n_lanes; lane++) {
        pp_image_walk_open(&s, lane);
        while (pp_image_walk_next(&s))
            if (s.maker == w->maker)
                n += pp_image_rows(&m->encoders[w->encoder], s.patches, rows);
    }
    return n;
}
