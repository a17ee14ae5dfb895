/* SPDX-License-Identifier: MIT */
/* ppsplit_loads - --routing: how uneven the work of expert-parallel ranks is,
 * by the experts that tokens got in a run.
 *
 * All ranks of a group wait for the one with most rows in every microbatch. So
 * the time of experts is the sum of the most rows over microbatches, over the
 * sum of the means. If a group has ranks of several data-parallel lanes, these
 * have microbatches that follow each other. */
#include <string.h>

#include "data/packed.h"
#include "data/routes.h"
#include "ppsplit.h"

/* Returns the microbatches that the ranks of a group have at a time. */
static size_t bins_of_group(const struct pp_mesh *x)
{
    size_t sharers = (size_t)x->cp * (x->experts_over_tp ? (size_t)x->tp : 1);
    return (size_t)x->ep > sharers ? (size_t)x->ep / sharers : 1;
}

/* Adds the rows that a bin has for each rank of a group. */
static void add_bin(const struct pp_routes *r, const struct pp_bin *b,
                    size_t layer, size_t held, uint64_t *rows)
{
    size_t at =
        pp_routes_place(&r->shape, b->first_position, b->tokens, layer, 0);
    for (size_t i = 0; i < (size_t)b->tokens * r->shape.top_k; i++)
        if (r->experts[at + i] != PP_NO_EXPERT)
            rows[r->experts[at + i] / held]++;
}

/* Returns the work of the fullest ranks in a layer over the mean; 0 without
 * recorded experts. */
static double skew_of(const struct split_job *j, const struct pp_packed *p,
                      const struct pp_routes *r, size_t layer)
{
    size_t ep = (size_t)j->mesh.ep, group = bins_of_group(&j->mesh);
    uint64_t rows[PP_MOST_EXPERT_RANKS], fullest = 0, all = 0;
    for (size_t first = 0; first < p->n_bins; first += group) {
        uint64_t most = 0;
        memset(rows, 0, ep * sizeof *rows);
        for (size_t i = first; i < first + group && i < p->n_bins; i++) {
            struct pp_bin b;
            pp_packed_bin(p, i, &b);
            add_bin(r, &b, layer, r->shape.n_experts / ep, rows);
        }
        for (size_t k = 0; k < ep; k++) {
            most = rows[k] > most ? rows[k] : most;
            all += rows[k];
        }
        fullest += most;
    }
    return all ? (double)fullest * (double)ep / (double)all : 0;
}

static int set_skew(struct split_job *j, const struct pp_packed *p,
                    const struct pp_routes *r)
{
    struct pp_moe *m = &j->model.moe;
    double *skew =
        pp_arena_alloc(&j->arena, j->model.n_layers + 1, sizeof *skew);
    if (!skew)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t l = 0, at = 0; l < j->model.n_layers; l++) {
        skew[l] = 1;
        if (!pp_layer_set_has(&m->layers, l))
            continue;
        skew[l] = skew_of(j, p, r, at++);
        if (!(skew[l] > 0))
            return pp_fail(&j->t.err, PP_EXIT_INPUT,
                           "%s: no token has an expert in layer '%zu'; record "
                           "a run that reaches the data",
                           j->routing, l);
    }
    m->skew = skew;
    return 0;
}

int split_read_loads(struct split_job *j)
{
    const struct pp_moe *m = &j->model.moe;
    struct pp_err *err = &j->t.err;
    struct pp_packed p = {0};
    struct pp_routes r = {0};
    struct pp_routes_shape want = {0};
    if (!j->routing)
        return 0;
    /* The request checks the mesh later, and says more. */
    if (!m->n_experts || m->n_experts % (size_t)j->mesh.ep ||
        j->mesh.ep > PP_MOST_EXPERT_RANKS)
        return 0;
    int rc = pp_packed_open(j->routed_data, &p, err);
    if (rc == 0)
        rc = pp_routes_of(&p, &want, err);
    want.n_experts = (uint32_t)m->n_experts;
    want.top_k = (uint32_t)m->top_k;
    want.n_layers =
        (uint32_t)pp_layer_set_before(&m->layers, j->model.n_layers);
    if (rc == 0)
        rc = pp_routes_open(j->routing, &want, &r, err);
    if (rc == 0)
        rc = set_skew(j, &p, &r);
    pp_routes_close(&r);
    pp_packed_finish(&p);
    return rc;
}
