/* SPDX-License-Identifier: MIT */
/* exact - judges a plan whose context-parallel ranks are exact: the loss
 * and the activations of the first step have the bits of one rank. */
#include "run/verify/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t n_stages(const struct pp_verify *v)
{
    return (size_t)(v->graph->n_stages / v->graph->n_copies);
}

int pp_verify_keep_digests(struct pp_verify *v, enum pp_verify_run run,
                           const uint64_t *digests, struct pp_err *err)
{
    uint64_t **at = &v->digests[run == PP_VERIFY_PIPELINE];
    size_t n = n_stages(v) * PP_DIGEST_N;
    if (!digests)
        return 0;
    free(*at);
    *at = calloc(n, sizeof **at);
    if (!*at)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(*at, digests, n * sizeof **at);
    return 0;
}

/* Finds the first stage with other bits, from the last one on if `down`. */
static int find(const struct pp_verify *v, enum pp_digest_of of, bool down)
{
    size_t n = n_stages(v);
    for (size_t i = 0; i < n; i++) {
        size_t stage = down ? n - 1 - i : i;
        size_t at = stage * PP_DIGEST_N + (size_t)of;
        if (v->digests[0][at] != v->digests[1][at])
            return (int)stage;
    }
    return -1;
}

int pp_verify_inexact(const struct pp_verify *v, enum pp_digest_of *of)
{
    if (!v->exact)
        return -1;
    int stage = find(v, *of = PP_DIGEST_OUTPUT, false);
    if (stage < 0)
        stage = find(v, *of = PP_DIGEST_LOSS, false);
    if (stage < 0 && v->exact_gradients)
        stage = find(v, *of = PP_DIGEST_GRADIENT, true);
    return stage;
}

void pp_verify_judge_exact(struct pp_verify *v)
{
    enum pp_digest_of of;
    double loss = v->loss[PP_VERIFY_PIPELINE][0];
    double one = v->loss[PP_VERIFY_EXACT][0];
    if (!v->exact)
        return;
    int differs = pp_verify_inexact(v, &of) >= 0;
    v->scalars[v->n_scalars++] = (struct pp_verify_scalar){
        "loss of step 1, its bits", loss, one, {fabs(loss - one), 0}};
    v->scalars[v->n_scalars++] = (struct pp_verify_scalar){
        "other bits of step 1", differs, 0, {differs, 0}};
}
