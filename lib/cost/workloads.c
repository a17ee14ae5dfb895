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
