/* SPDX-License-Identifier: MIT */
#include "model/mesh.h"

#include <math.h>

#include "model/inventory.h"

static int check(const char *what, size_t n, const char *option, int by,
                 struct pp_err *err)
{
    if (n % (size_t)by == 0)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: '%d' does not divide the model's %zu %s", option, by, n,
                   what);
}

static bool has_experts(const struct pp_model *m)
{
    for (size_t i = 0; i < m->n_layers; i++)
        if (pp_layer_set_has(&m->moe.layers, i))
            return true;
    return false;
}

static bool has_dense(const struct pp_model *m)
{
    for (size_t i = 0; i < m->n_layers; i++)
        if (!pp_layer_set_has(&m->moe.layers, i))
            return true;
    return false;
}

static int check_experts(const struct pp_mesh *x, const struct pp_model *m,
                         struct pp_err *err)
{
    const struct pp_moe *e = &m->moe;
    if (!has_experts(m))
        return x->ep == 1
                   ? 0
                   : pp_fail(err, PP_EXIT_INPUT,
                             "--ep: '%d', but the model has no experts", x->ep);
    if ((int64_t)x->dp * x->cp % x->ep)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--ep: '%d' does not divide dp x cp, %lld", x->ep,
                       (long long)x->dp * x->cp);
    if (check("experts", e->n_experts, "--ep", x->ep, err) ||
        check("columns of an expert", e->intermediate, "--tp", x->tp, err))
        return -1;
    return check("columns of the shared experts", e->shared, "--tp", x->tp,
                 err);
}

/* Images are no sequences that context-parallel ranks could divide. */
static int check_vision(const struct pp_mesh *x, const struct pp_model *m,
                        struct pp_err *err)
{
    const struct pp_vision *v = &m->vision;
    if (v->kind == PP_VISION_NONE)
        return 0;
    if (x->cp > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--cp: '%d', but the encoder's images are not divided",
                       x->cp);
    if (check("heads of the encoder", v->n_heads, "--tp", x->tp, err))
        return -1;
    return check("columns of the encoder's MLP", v->intermediate, "--tp", x->tp,
                 err);
}

int pp_mesh_check(const struct pp_mesh *x, const struct pp_model *m,
                  size_t seq_len, struct pp_err *err)
{
    /* Two parts of a sequence for each context-parallel rank, so that all have
     * as many pairs; then one of each for every tensor-parallel rank. */
    size_t align = (size_t)x->tp * (x->cp > 1 ? 2 * (size_t)x->cp : 1);
    if (m->table && (x->tp > 1 || x->cp > 1 || x->ep > 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "--%s: a table of units says what one rank has; how "
                       "ranks would share it is not known",
                       x->tp > 1   ? "tp"
                       : x->cp > 1 ? "cp"
                                   : "ep");
    if (m->table)
        return 0;
    if (check("heads", m->n_heads, "--tp", x->tp, err) ||
        check("key and value heads", m->n_kv_heads, "--tp", x->tp, err))
        return -1;
    if (has_dense(m) &&
        check("columns of an MLP", m->intermediate, "--tp", x->tp, err))
        return -1;
    if (check_experts(x, m, err) || check_vision(x, m, err))
        return -1;
    if (seq_len % align)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--seq-len: '%zu' is not a multiple of %zu, which %s "
                       "needs",
                       seq_len, align,
                       x->cp == 1   ? "tp"
                       : x->tp == 1 ? "2 x cp"
                                    : "2 x cp x tp");
    return 0;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b > 0);
}

struct pp_held pp_mesh_held(const struct pp_mesh *x, const struct pp_model *m,
                            struct pp_unit_id u)
{
    struct pp_weight_group w[PP_MAX_WEIGHT_GROUPS];
    struct pp_held held = {0, 0};
    if (m->table)
        return (struct pp_held){pp_unit_n_params(m, u), 0};
    size_t n = pp_unit_inventory(m, u, w);
    uint64_t tp = (uint64_t)x->tp, ep = (uint64_t)x->ep;
    for (size_t i = 0; i < n; i++) {
        uint64_t row = (uint64_t)w[i].cols * w[i].count;
        switch (w[i].share) {
        case PP_SHARE_NONE:
            held.dense += w[i].rows * row;
            break;
        case PP_SHARE_TENSOR:
            /* A vocabulary is divided by rows, which may not divide. */
            held.dense += u.kind == PP_UNIT_LAYER
                              ? w[i].rows * row / tp
                              : divide_up(w[i].rows, tp) * row;
            break;
        case PP_SHARE_EXPERTS:
            held.experts += w[i].rows * row / (ep * tp);
            break;
        case PP_SHARE_EXPERT_SUMS:
            held.experts += w[i].rows * row / ep;
            break;
        case PP_N_SHARES:
            break;
        }
    }
    /* Its embeddings are a copy of the first stage's. */
    if (pp_unit_is_mtp(m, u))
        held.dense += divide_up(m->vocab, tp) * m->hidden;
    return held;
}

double pp_mesh_state_bytes(const struct pp_mesh *x, struct pp_held held,
                           const struct pp_precision *p)
{
    double whole = (double)(p->element_bytes + p->accumulator_bytes);
    double parted = (double)pp_precision_trained_bytes(p) - whole;
    double alike = (double)x->dp * (double)x->cp;
    double dense = ceil((double)held.dense / alike);
    double experts = ceil((double)held.experts / (alike / (double)x->ep));
    return whole * (double)(held.dense + held.experts) +
           parted * (dense + experts);
}
