/* SPDX-License-Identifier: MIT */
#include "cost/workloads.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
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

void pp_workloads_init(struct pp_workloads *l, size_t n, size_t n_encoders)
{
    *l = (struct pp_workloads){0};
    l->tokens = pp_calloc(n, (2 + 2 * n_encoders) * sizeof *l->tokens);
    l->pairs = l->tokens + n;
    for (size_t e = 0; e < n_encoders; e++) {
        l->items[e].tokens = l->tokens + (2 + 2 * e) * n;
        l->items[e].pairs = l->items[e].tokens + n;
    }
}

void pp_workloads_finish(struct pp_workloads *l)
{
    free(l->tokens);
    *l = (struct pp_workloads){0};
}

void pp_workloads_set_items(struct pp_workloads *l, size_t i, struct pp_plan p,
                            size_t encoder, double rows, double squares)
{
    const struct pp_image_load plan = pp_plan_images(p, encoder);
    double items = (double)pp_vision_rank_images(&plan);
    double each = (double)p.microbatch->items[encoder].rows;
    double length = (double)p.microbatch->seq_len;
    l->items[encoder].tokens[i] = l->tokens[i];
    l->items[encoder].pairs[i] = l->pairs[i];
    if (items > 0 && each > 0) {
        l->items[encoder].tokens[i] = length * rows / (items * each);
        l->items[encoder].pairs[i] =
            length * (length + 1) / 2 * squares / (items * each * each);
    }
}
