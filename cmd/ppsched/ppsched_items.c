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

/* Returns what an encoder takes. */
static enum pp_modality modality_of(const struct ppsched *p, size_t encoder)
{
    return pp_plan_modality(pp_manifest_plan(&p->manifest), encoder,
                            pp_packed_modality(&p->packed));
}

/* The items of the largest microbatch of the data. Those of a plan without an
 * encoder are recorded, too. */
static struct ppsched_items items_of_data(const struct ppsched *p,
                                          size_t encoder)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    enum pp_modality modality = modality_of(p, encoder);
    size_t lanes, makers = pp_layout_makers(&l, encoder, &lanes);
    bool sized = pp_plan_merge_any(pp_manifest_plan(&p->manifest), encoder);
    return (struct ppsched_items){
        p->packed.streams[modality].max_items,
        sized ? pp_items_most(&p->packed, modality, makers, lanes) : 0};
}

void ppsched_count_items(struct ppsched *p)
{
    const struct pp_manifest_data *d = &p->manifest.data;
    struct ppsched_items *most = p->costs.items;
    size_t n = pp_plan_encoders(pp_manifest_plan(&p->manifest));
    if (!p->data) {
        most[0] = (struct ppsched_items){d->max_images, d->max_patches};
        most[1] = (struct ppsched_items){d->max_clips, d->max_clip_rows};
        return;
    }
    for (size_t e = 0; e < (n ? n : 1); e++)
        most[e] = items_of_data(p, e);
}

/* Returns whether the items of the data are known, not only those that the plan
 * assumes. */
static bool knows_data(const struct ppsched *p)
{
    return (p->data || p->manifest.has_data) && p->costs.max_tokens > 0;
}

/* Returns the items of the largest microbatch of the data. */
static struct pp_image_load images_of_data(const struct ppsched *p,
                                           size_t encoder)
{
    const struct ppsched_items *most = &p->costs.items[encoder];
    struct pp_image_load v =
        pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    v.n_images = most->n;
    v.seq_len = p->costs.max_tokens;
    if (most->rows) { /* one of all rows on each rank */
        v.n_images = v.makers;
        v.lanes = 1;
    }
    return v;
}

/* Returns the rows of an item, as they are or as the plan assumes. */
static size_t rows_of(const struct ppsched *p, size_t encoder)
{
    size_t most = p->costs.items[encoder].rows;
    return most ? most
                : (size_t)pp_plan_items(pp_manifest_plan(&p->manifest), encoder)
                      .rows;
}

size_t ppsched_most_features(const struct ppsched *p, size_t encoder)
{
    bool known = knows_data(p);
    const struct pp_image_load v =
        known ? images_of_data(p, encoder)
              : pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    size_t rows =
        known ? rows_of(p, encoder)
              : (size_t)pp_plan_items(pp_manifest_plan(&p->manifest), encoder)
                    .rows;
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
    const struct pp_plan_items items =
        pp_plan_items(pp_manifest_plan(&p->manifest), e);
    if (!items.n)
        return 1;
    const struct pp_image_load plan = pp_plan_images(
                                   pp_manifest_plan(&p->manifest), e),
                               data = images_of_data(p, e);
    return pp_vision_rate(&data, rows_of(p, e)) /
           pp_vision_rate(&plan, (size_t)items.rows);
}
