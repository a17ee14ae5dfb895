/* SPDX-License-Identifier: MIT */
#include "cost/workloads.h"

#include "model/vision.h"

struct pp_workload pp_workload_of(double tokens, double pairs)
{
    struct pp_workload one;
    for (size_t k = 0; k <= PP_LANGUAGE; k++) {
        one.of[k].tokens = tokens;
        one.of[k].pairs = pairs;
    }
    return one;
}

double pp_plan_passed(struct pp_plan p, int stage, struct pp_workload l)
{
    const struct pp_plan_stage *s = &p.stages[stage];
    size_t end = s->first_unit + s->n_units;
    size_t last = end > 0 ? pp_plan_encoder_of(p, end - 1) : PP_LANGUAGE;
    double bytes = s->costs.out_bytes * l.of[last].tokens;
    for (size_t e = 0; last < PP_LANGUAGE && e < last; e++) {
        size_t behind = p.components[e].first_unit + p.components[e].n_units;
        if (behind > s->first_unit)
            bytes +=
                p.model->units[behind - 1].costs.out_bytes * l.of[e].tokens;
    }
    return bytes;
}

void pp_workload_set_items(struct pp_workload *l, struct pp_plan p,
                           size_t encoder, double rows, double squares)
{
    const struct pp_image_load plan = pp_plan_images(p, encoder);
    double items = (double)pp_vision_rank_images(&plan);
    double each = (double)p.microbatch->items[encoder].rows;
    double length = (double)p.microbatch->seq_len;
    if (items > 0 && each > 0) {
        l->of[encoder].tokens = length * rows / (items * each);
        l->of[encoder].pairs =
            length * (length + 1) / 2 * squares / (items * each * each);
    }
}
