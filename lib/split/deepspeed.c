/* SPDX-License-Identifier: MIT */
/* deepspeed - DeepSpeed's dynamic program. Its outer loop is over stages,
 * its inner loop over units. DeepSpeed has them the other way round; the
 * results are the same, and two columns are enough here. The last candidate
 * wins ties. */
#include "split/deepspeed.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/vision.h"
#include "split/split.h"

/* The largest and smallest stage of the partition of a prefix. */
struct extremes {
    double max, min;
};

/* Returns the first unit of the last stage of the first i units. Fills *cell.
 */
static size_t best_start(const double *before, size_t i,
                         const struct extremes *previous, struct extremes *cell)
{
    double best = INFINITY;
    size_t start = 0;
    *cell = (struct extremes){INFINITY, INFINITY};
    for (size_t k = 0; k < i; k++) {
        double sum = before[i] - before[k];
        double max = previous[k].max > sum ? previous[k].max : sum;
        double min = previous[k].min < sum ? previous[k].min : sum;
        if (max - min <= best) {
            best = max - min;
            *cell = (struct extremes){max, min};
            start = k;
        }
    }
    return start;
}

static void partition(const double *before, size_t n, size_t n_stages,
                      struct extremes *columns, uint32_t *starts,
                      size_t *bounds)
{
    struct extremes *previous = columns, *now = columns + n + 1;
    for (size_t i = 0; i <= n; i++)
        previous[i] = now[i] = (struct extremes){INFINITY, INFINITY};
    previous[0].max = 0;
    for (size_t j = 1; j <= n_stages; j++) {
        /* Here every stage has a unit. */
        for (size_t i = 0; i < j; i++)
            now[i] = (struct extremes){INFINITY, INFINITY};
        for (size_t i = j; i <= n; i++)
            starts[j * (n + 1) + i] =
                (uint32_t)best_start(before, i, previous, &now[i]);
        struct extremes *other = previous;
        previous = now;
        now = other;
    }
    bounds[n_stages] = n;
    for (size_t j = n_stages; j > 0; j--)
        bounds[j - 1] = starts[j * (n + 1) + bounds[j]];
}

int pp_split_deepspeed(const double *weights, size_t n, size_t n_stages,
                       size_t *bounds, struct pp_err *err)
{
    if (n <= n_stages)
        return pp_split_uniform(n, n_stages, bounds, err);
    if (n_stages == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    if (n >= UINT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "%zu units are too many", n);
    double *before = pp_calloc(n + 1, sizeof *before);
    struct extremes *columns = pp_calloc(2 * (n + 1), sizeof *columns);
    uint32_t *starts = pp_calloc(n_stages + 1, (n + 1) * sizeof *starts);
    for (size_t i = 0; i < n; i++)
        before[i + 1] = before[i] + weights[i];
    partition(before, n, n_stages, columns, starts, bounds);
    free(starts);
    free(columns);
    free(before);
    return 0;
}

void pp_unit_class(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT])
{
    if (m->table) {
        snprintf(buf, PP_FQN_TEXT, "%s", pp_unit_row(m, u)->class);
        return;
    }
    const char *name = pp_architecture_name(m->architecture);
    bool gpt2 = m->architecture == PP_GPT2;
    if (pp_unit_is_vision(u)) {
        pp_vision_class(m, u, buf);
        return;
    }
    int prefix = (int)(strstr(name, gpt2 ? "LM" : "For") - name);
    switch (u.kind) {
    case PP_UNIT_EMBED:
        snprintf(buf, PP_FQN_TEXT, "Embedding");
        break;
    case PP_UNIT_LAYER:
        snprintf(buf, PP_FQN_TEXT, "%.*s%s", prefix, name,
                 gpt2 ? "Block" : "DecoderLayer");
        break;
    case PP_UNIT_NORM:
        if (gpt2)
            snprintf(buf, PP_FQN_TEXT, "LayerNorm");
        else
            snprintf(buf, PP_FQN_TEXT, "%.*sRMSNorm", prefix, name);
        break;
    default:
        snprintf(buf, PP_FQN_TEXT, "Linear");
        break;
    }
}
