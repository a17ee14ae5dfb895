/* SPDX-License-Identifier: MIT */
/* The items of encoders, images or clips of audio: what the data have of them,
 * and what units of an encoder need for as many. */
#include "model/vision.h"
#include "ppsched.h"

int ppsched_check_streams(struct ppsched *p)
{
    const struct pp_packed_stream *s = p->packed.streams;
    if (!pp_stream_exists(&s[PP_MODALITY_IMAGES]) ||
        !pp_stream_exists(&s[PP_MODALITY_AUDIO]) ||
        pp_plan_encoders(pp_manifest_plan(&p->manifest)) == PP_MAX_ENCODERS)
        return 0;
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "%s: has images and audio, but the plan does not have an "
                   "encoder for each",
                   p->data);
}

void ppsched_count_items(struct ppsched *p)
{
    p->costs.data = p->data ? pp_plan_data_of(pp_manifest_plan(&p->manifest),
                                              &p->packed, p->data)
                            : p->manifest.data;
}

/* Returns whether the items of the data are known, not only the items that the
 * plan assumes. */
static bool knows_data(const struct ppsched *p)
{
    return (p->data || p->manifest.has_data) && p->costs.max_tokens > 0;
}

/* Returns the items of the largest microbatch of the data. */
static struct pp_image_load images_of_data(const struct ppsched *p,
                                           size_t encoder)
{
    struct pp_image_load v =
        pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    v.n_images = p->costs.data.items[encoder].n;
    v.seq_len = p->costs.max_tokens;
    if (p->costs.data.items[encoder].rows) { /* one of all rows on each rank */
        v.n_images = v.makers;
        v.lanes = 1;
    }
    return v;
}

/* Returns the rows of an item, as they are or as the plan assumes. */
static size_t rows_of(const struct ppsched *p, size_t encoder)
{
    size_t most = p->costs.data.items[encoder].rows;
    return most ? most : (size_t)p->manifest.microbatch.items[encoder].rows;
}

size_t ppsched_most_features(const struct ppsched *p, size_t encoder)
{
    bool known = knows_data(p);
    const struct pp_image_load v =
        known ? images_of_data(p, encoder)
              : pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    size_t rows = known ? rows_of(p, encoder)
                        : (size_t)p->manifest.microbatch.items[encoder].rows;
    bool more = encoder == 0 && p->manifest.model.class_feature;
    return pp_vision_rank_images(&v) *
           (rows / pp_plan_merge(pp_manifest_plan(&p->manifest), encoder) +
            more);
}

double ppsched_items_scale(const struct ppsched *p, size_t unit)
{
    size_t e = pp_plan_encoder_of(pp_manifest_plan(&p->manifest), unit);
    if (e == PP_MAX_ENCODERS || !knows_data(p))
        return 1;
    const struct pp_item_counts items = p->manifest.microbatch.items[e];
    if (!items.n)
        return 1;
    const struct pp_image_load plan = pp_plan_images(
                                   pp_manifest_plan(&p->manifest), e),
                               data = images_of_data(p, e);
    return pp_vision_rate(&data, rows_of(p, e)) /
           pp_vision_rate(&plan, (size_t)items.rows);
}
