/* SPDX-License-Identifier: MIT */
#include "manifest/workloads.h"

#include <stdlib.h>

#include "base/num.h"
#include "model/layout.h"
#include "model/vision.h"

struct pp_workload pp_workload_of(double tokens, double pairs)
{
    struct pp_workload one = {.tokens = tokens, .pairs = pairs};
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++) {
        one.items[e].tokens = tokens;
        one.items[e].pairs = pairs;
    }
    return one;
}

struct pp_workload pp_workloads_at(const struct pp_workloads *l, size_t i)
{
    struct pp_workload one = pp_workload_of(l->tokens[i], l->pairs[i]);
    for (size_t e = 0; e < PP_MAX_ENCODERS && l->items[e].tokens; e++) {
        one.items[e].tokens = l->items[e].tokens[i];
        one.items[e].pairs = l->items[e].pairs[i];
    }
    return one;
}

int pp_workloads_init(struct pp_workloads *l, size_t n, size_t n_encoders,
                      struct pp_err *err)
{
    size_t each = 2 + 2 * n_encoders;
    *l = (struct pp_workloads){0};
    if (pp_mul(n, each, &each, err))
        return -1;
    l->tokens = calloc(each + 1, sizeof *l->tokens);
    if (!l->tokens)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    l->pairs = l->tokens + n;
    for (size_t e = 0; e < n_encoders; e++) {
        l->items[e].tokens = l->tokens + (2 + 2 * e) * n;
        l->items[e].pairs = l->items[e].tokens + n;
    }
    return 0;
}

void pp_workloads_finish(struct pp_workloads *l)
{
    free(l->tokens);
    *l = (struct pp_workloads){0};
}

bool pp_plan_generates(const struct pp_manifest *m)
{
    return m->n_components && m->components[m->n_components - 1].source;
}

size_t pp_plan_language(const struct pp_manifest *m)
{
    size_t n = m->n_components ? m->n_components - 1 : 0;
    return n - (n > 0 && pp_plan_generates(m));
}

size_t pp_plan_encoders(const struct pp_manifest *m)
{
    size_t n = pp_plan_language(m);
    return n < PP_MAX_ENCODERS ? n : PP_MAX_ENCODERS;
}

size_t pp_plan_encoder_of(const struct pp_manifest *m, size_t unit)
{
    for (size_t e = 0; e < pp_plan_encoders(m); e++)
        if (unit < m->components[e].first_unit + m->components[e].n_units)
            return e;
    return PP_MAX_ENCODERS;
}

size_t pp_plan_counted(const struct pp_manifest *m)
{
    const struct pp_default_microbatch *mb = &m->microbatch;
    return mb->n_images || mb->n_clips ? pp_plan_encoders(m) : 0;
}

enum pp_modality pp_plan_modality(const struct pp_manifest *m, size_t encoder,
                                  enum pp_modality of_data)
{
    if (pp_plan_encoders(m) < 2)
        return of_data;
    return encoder == 0 ? PP_MODALITY_IMAGES : PP_MODALITY_AUDIO;
}

struct pp_plan_items pp_plan_items(const struct pp_manifest *m, size_t encoder)
{
    const struct pp_default_microbatch *mb = &m->microbatch;
    return encoder == 0
               ? (struct pp_plan_items){mb->n_images, mb->image_patches}
               : (struct pp_plan_items){mb->n_clips, mb->clip_rows};
}

size_t pp_plan_merge_any(const struct pp_manifest *m, size_t encoder)
{
    return encoder > 0 ? PP_AUDIO_MERGE : m->model.image_merge;
}

size_t pp_plan_merge(const struct pp_manifest *m, size_t encoder)
{
    size_t merge = pp_plan_merge_any(m, encoder);
    return merge ? merge : 1;
}

size_t pp_plan_states(const struct pp_manifest *m, size_t encoder)
{
    size_t n = encoder == 0 ? m->model.feature_layers : 0;
    return n ? n : 1;
}

struct pp_vision pp_plan_vision(const struct pp_manifest *m, size_t encoder)
{
    const struct pp_layout l = pp_manifest_layout(m);
    struct pp_vision v = {.n_images = (size_t)pp_plan_items(m, encoder).n,
                          .seq_len = (size_t)m->microbatch.seq_len};
    pp_layout_divide_images(&l, encoder, &v);
    return v;
}

size_t pp_plan_item_ranks(const struct pp_manifest *m, size_t encoder,
                          double *bins)
{
    const struct pp_layout l = pp_manifest_layout(m);
    size_t lanes, makers = pp_layout_makers(&l, encoder, &lanes);
    *bins = makers < lanes ? (double)lanes / (double)makers : 1;
    return makers > lanes ? makers / lanes : 1;
}

void pp_workloads_set_items(struct pp_workloads *l, size_t i,
                            const struct pp_manifest *m, size_t encoder,
                            double rows, double squares)
{
    const struct pp_vision plan = pp_plan_vision(m, encoder);
    double items = (double)pp_vision_rank_images(&plan);
    double each = (double)pp_plan_items(m, encoder).rows;
    double length = (double)m->microbatch.seq_len;
    l->items[encoder].tokens[i] = l->tokens[i];
    l->items[encoder].pairs[i] = l->pairs[i];
    if (items > 0 && each > 0) {
        l->items[encoder].tokens[i] = length * rows / (items * each);
        l->items[encoder].pairs[i] =
            length * (length + 1) / 2 * squares / (items * each * each);
    }
}
