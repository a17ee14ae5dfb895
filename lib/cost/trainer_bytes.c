/* SPDX-License-Identifier: MIT */
/* trainer_bytes - the memory of a unit with other trainers, from the tensors
 * that their modules save: Megatron-LM core 0.14 with Transformer Engine 2;
 * torchtitan of August 2026; DeepSpeed's pipeline with modules of PyTorch.
 * Widths are as in pprun's saved tensors where both save the same. */
#include "cost/trainer_bytes.h"

#include <math.h>

#include "base/num.h"
#include "model/slots.h"
#include "model/tensor.h"

#define MIB 1048576.0

/* Words are padded to a multiple for each tensor-parallel rank. */
enum { PADDED_WORDS = 128 };

/* A workspace of cuBLAS on GPUs since Hopper, and the streams of products of
 * experts, each of which has one. */
#define CUBLAS (32 * MIB)
enum { EXPERT_STREAMS = 4 };

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* --- pprun --- */

struct pp_state_bytes pp_own_state(const struct pp_mesh *x,
                                   const struct pp_model *m,
                                   struct pp_unit_id u,
                                   const struct pp_precision *p)
{
    return pp_state_bytes(x, pp_mesh_held(x, m, u), p);
}

double pp_own_fixed(const struct pp_mesh *x, const struct pp_model *m,
                    size_t first, size_t end)
{
    (void)x, (void)m, (void)first, (void)end;
    return 0;
}

/* --- what a layer saves --- */

/* The elements of a layer's tensors for each row of a rank: a width of a slot
 * of pprun, and the rows of experts that arrive. Values have `bytes` each. */
struct saved {
    const struct pp_shard *of;
    struct pp_unit_id u;
    struct pp_saved at[PP_MAX_SAVED];
    size_t n;
    bool experts, latent;
    double tp, hidden, arrivals;
    double element, wide;
};

/* Returns a model with as many words as ranks pad them to. */
static struct pp_model padded(const struct pp_model *m, const struct pp_mesh *x)
{
    struct pp_model with = *m;
    with.vocab = pp_round_up(m->vocab, PADDED_WORDS * (size_t)x->tp);
    return with;
}

static void find_saved(struct saved *s, const struct pp_shard *of,
                       struct pp_unit_id u, const struct pp_backend *b)
{
    const struct pp_model *m = of->model;
    const struct pp_moe *e = &m->moe;
    *s = (struct saved){.of = of,
                        .u = u,
                        .tp = (double)pp_shard_row_ranks(of),
                        .hidden = (double)m->hidden,
                        .element = (double)b->element_bytes,
                        .wide = (double)b->accumulator_bytes};
    s->n = pp_unit_saved(of, u, PP_RECOMPUTE_NONE, PP_IN_FORWARD, s->at);
    s->experts =
        u.kind == PP_UNIT_LAYER && pp_layer_set_has(&e->layers, u.layer);
    s->latent = u.kind == PP_UNIT_LAYER && m->mla.kv_rank > 0;
    if (s->experts)
        s->arrivals = (double)pp_shard_routed_ranks(of) *
                      pp_mesh_expert_rows(&of->mesh, m) * s->hidden;
}

/* Returns the bytes of a slot if it is kept from F on. Low-rank queries, keys
 * and values are of the rank's own rows. */
static double bytes_of(const struct saved *s, size_t slot)
{
    const struct pp_saved *x = &s->at[slot];
    bool low = s->latent && (slot == PP_S_LATENT_RAW || slot == PP_S_LATENT ||
                             slot == PP_S_LATENT_RSTD);
    if (slot >= s->n ||
        (x->block != PP_SAVED_ACT_I && x->block != PP_SAVED_ACT_W))
        return 0;
    return (double)x->width / (low ? s->tp : 1) *
           (x->is_statistic ? s->wide : s->element);
}

/* Reports whether a layer that recomputes keeps a tensor, with
 * --recompute-modules layernorm for norms, mla_up_proj for qkv, mlp and
 * shared_experts for mlp, moe_act for expert_act and moe for experts. A norm in
 * one module with a product is not recomputed, nor is an activation without the
 * product before it, and attention keeps its output for the next product.
 * Selective has what needs no product of an MLP: mla_up_proj, too. */
static bool is_kept(const struct saved *s, size_t slot, enum pp_recompute r)
{
    bool mlp = r & PP_AGAIN_MLP, experts = r & PP_AGAIN_EXPERTS;
    if (s->u.kind != PP_UNIT_LAYER || r == PP_RECOMPUTE_NONE)
        return true;
    if (r == PP_RECOMPUTE_FULL)
        return slot == PP_S_X;
    switch (slot) {
    case PP_S_NORM1:
        return !s->latent || !(r & PP_AGAIN_NORMS);
    case PP_S_NORM2:
        return s->experts ? !(r & PP_AGAIN_NORMS) : !mlp;
    case PP_S_QKV:
        return !s->latent || !(r & PP_AGAIN_QKV || r == PP_RECOMPUTE_SELECTIVE);
    case PP_S_GATE_UP:
    case PP_S_ACT:
        return !mlp && !(s->experts && experts);
    case PP_S_EXPERT_ACT:
        return !experts && !(r & PP_AGAIN_EXPERT_ACT);
    case PP_S_EXPERT_GATE_UP:
    case PP_S_PROBS:
    case PP_S_ROUTING:
    case PP_S_WEIGHT:
    case PP_S_SHARED_WEIGHT:
        return !experts;
    default:
        return true;
    }
}

/* Returns the bytes that a unit keeps for each row. Rows of experts are kept as
 * they arrive, with a map of them. Attention of context-parallel ranks keeps
 * its output as computed and as exchanged, but in a ring. */
static double kept_bytes(const struct saved *s, enum pp_recompute r)
{
    const struct pp_mesh *x = &s->of->mesh;
    bool layer = s->u.kind == PP_UNIT_LAYER;
    double sum = 0;
    for (size_t slot = 0; slot < s->n; slot++)
        sum += is_kept(s, slot, r) ? bytes_of(s, slot) : 0;
    if (layer && r != PP_RECOMPUTE_FULL) {
        if (!(r & PP_AGAIN_EXPERTS))
            sum += s->arrivals * s->element + bytes_of(s, PP_S_PROBS);
        if (x->cp > 1 && x->cp_exchange != PP_CP_RING)
            sum += bytes_of(s, PP_S_ATTN);
    }
    return sum;
}

/* Returns the shard of a unit's rank, with room for the rows that experts of
 * the fullest rank get. */
static struct pp_shard full_shard(const struct pp_shard *shard,
                                  struct pp_unit_id *u)
{
    struct pp_shard of = pp_unit_shard(shard, u);
    of.mesh.expert_limit = pp_shard_skew(shard, u->layer);
    return of;
}

/* Rates of units without a list of tensors. */
static struct pp_unit_rates listed_rates(const struct pp_shard *of,
                                         struct pp_unit_id u,
                                         enum pp_recompute r,
                                         const struct pp_backend *b)
{
    struct pp_unit_rates own = pp_unit_rates(of, u, r, b);
    own.workspace.token += own.act[PP_SAVED_GRAD_W];
    own.act[PP_SAVED_GRAD_W] = 0;
    return own;
}

static bool is_listed(const struct pp_model *m, struct pp_unit_id u)
{
    return m->table || pp_unit_is_vision(u);
}

/* --- Megatron-LM --- */

/* Returns the most bytes that a layer's backward has for each row beside what
 * is kept: the gradient of the output, then that of the last product's inputs
 * with the gradient gathered from tensor-parallel ranks, or that of the first
 * product's outputs, for which the last product's inputs made room. */
static double backward_bytes(const struct saved *s)
{
    double up = bytes_of(s, s->experts ? PP_S_EXPERT_GATE_UP : PP_S_GATE_UP);
    double act = bytes_of(s, s->experts ? PP_S_EXPERT_ACT : PP_S_ACT);
    double dy = s->hidden * s->element, arrivals = s->arrivals * s->element;
    double gathered = s->experts ? arrivals : s->tp > 1 ? s->tp * dy : 0;
    return dy + larger(larger(gathered + act, up), 2 * arrivals);
}

/* The head makes logits of all words, whose gradients replace them. It gathers
 * its input and the gradient of it. */
static double logits_bytes(const struct saved *s)
{
    double row = s->hidden * s->element, tp = s->tp;
    double words = (double)pp_shard_words(s->of) * tp * s->element;
    return (double)(1 + s->of->model->n_mtp) * words +
           (tp > 1 ? (2 * tp + 1) * row : row);
}

struct pp_unit_rates pp_megatron_rates(const struct pp_shard *shard,
                                       struct pp_unit_id u, enum pp_recompute r,
                                       const struct pp_backend *b)
{
    const double out = pp_unit_rates(shard, u, r, b).out;
    struct pp_shard of = full_shard(shard, &u);
    const struct pp_model *m = of.model;
    const struct pp_mesh *x = &of.mesh;
    struct saved s;
    if (is_listed(m, u))
        return listed_rates(&of, u, r, b);
    const struct pp_model words_padded = padded(m, x);
    of.model = &words_padded;
    find_saved(&s, &of, u, b);
    double words = s.hidden * (double)pp_shard_words(&of) * s.element;
    struct pp_unit_rates rates = {.act[PP_SAVED_ACT_W] = kept_bytes(&s, r),
                                  .out = out};
    struct pp_workspace *w = &rates.workspace;
    w->fixed = PP_LINE_BYTES;
    if (u.kind == PP_UNIT_LAYER)
        w->token = backward_bytes(&s) + kept_bytes(&s, PP_RECOMPUTE_NONE) -
                   rates.act[PP_SAVED_ACT_W];
    if (u.kind == PP_UNIT_HEAD)
        w->token = logits_bytes(&s);
    /* The gradient of a whole weight that is added up elsewhere. That of the
     * embedding comes when the layers have given back what they kept. */
    if (u.kind == PP_UNIT_HEAD ||
        (u.kind == PP_UNIT_EMBED && r == PP_RECOMPUTE_FULL))
        w->fixed += (size_t)words;
    return rates;
}

struct pp_state_bytes pp_megatron_state(const struct pp_mesh *x,
                                        const struct pp_model *m,
                                        struct pp_unit_id u,
                                        const struct pp_precision *p)
{
    const struct pp_model with = padded(m, x);
    return pp_state_bytes(x, pp_mesh_held_evenly(x, &with, u), p);
}

/* The shapes of a rank's products. */
struct shapes {
    size_t rows[PP_N_LAYER_PARAMS], cols[PP_N_LAYER_PARAMS], n;
    double elements;
};

static void add_shape(struct shapes *s, size_t rows, size_t cols)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i] == rows && s->cols[i] == cols)
            return;
    if (!rows || s->n == PP_N_LAYER_PARAMS)
        return;
    s->rows[s->n] = rows;
    s->cols[s->n++] = cols;
    s->elements += (double)rows * (double)cols;
}

/* Adds the products of a layer; adjacent tensors are one product. */
static void add_shapes(struct shapes *s, const struct pp_mesh *x,
                       const struct pp_model *m, struct pp_unit_id u)
{
    static const size_t products[][3] = {{PP_P_Q, PP_P_K, PP_P_V},
                                         {PP_P_O},
                                         {PP_P_GATE, PP_P_UP},
                                         {PP_P_DOWN},
                                         {PP_P_Q_A},
                                         {PP_P_Q_B},
                                         {PP_P_KV_A},
                                         {PP_P_KV_B},
                                         {PP_P_SHARED_GATE, PP_P_SHARED_UP},
                                         {PP_P_SHARED_DOWN},
                                         {PP_P_EXPERT_GATE, PP_P_EXPERT_UP},
                                         {PP_P_EXPERT_DOWN},
                                         {PP_P_JOIN}};
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    if (m->table || !pp_unit_is_decoder(u))
        return;
    pp_unit_params(m, u, table);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        size_t rows = 0, cols = 0;
        for (size_t k = 0; k < 3 && (k == 0 || products[i][k]); k++) {
            const struct pp_tensor_info *t = &table[products[i][k]];
            bool whole = t->n_equal && pp_mesh_has_whole_experts(x);
            size_t tp = whole ? 1 : (size_t)x->tp;
            if (!t->name[0])
                continue;
            rows += t->rows / (t->split == PP_SPLIT_ROWS ? tp : 1);
            cols = t->cols / (t->split == PP_SPLIT_COLUMNS ? tp : 1);
        }
        add_shape(s, rows, cols);
    }
}

/* Transformer Engine keeps a gradient in bf16 for every shape of a product, as
 * it adds up weight gradients elsewhere, and workspaces of cuBLAS; PyTorch has
 * one for the head. */
double pp_megatron_fixed(const struct pp_mesh *x, const struct pp_model *m,
                         size_t first, size_t end)
{
    struct shapes s = {.n = 0};
    double workspaces = CUBLAS;
    bool experts = false;
    for (size_t i = first; i < end; i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        const struct pp_model *of = pp_unit_model(m, &u);
        add_shapes(&s, x, of, u);
        experts |=
            pp_unit_is_decoder(u) && pp_layer_set_has(&of->moe.layers, u.layer);
        workspaces += u.kind == PP_UNIT_HEAD ? CUBLAS : 0;
    }
    return 2 * s.elements + workspaces +
           (experts ? EXPERT_STREAMS * CUBLAS : 0);
}

/* --- modules of PyTorch --- */

/* Returns the bytes that a unit keeps without recomputation: also the output of
 * SiLU before its product with the other half of a gated MLP. Norms are whole
 * in `whole` ranks, their outputs in `gathered`. */
static double eager_bytes(const struct saved *s, double whole, double gathered)
{
    bool layer = s->u.kind == PP_UNIT_LAYER;
    double sum = kept_bytes(s, PP_RECOMPUTE_NONE);
    if (!layer)
        return sum;
    bool gated = s->at[PP_S_GATE_UP].width > s->at[PP_S_ACT].width;
    return sum + (whole - 1) * (bytes_of(s, PP_S_X) + bytes_of(s, PP_S_MID)) +
           (gathered - 1) *
               (bytes_of(s, PP_S_NORM1) + bytes_of(s, PP_S_NORM2)) +
           (gated ? bytes_of(s, PP_S_ACT) : 0) + bytes_of(s, PP_S_EXPERT_ACT);
}

/* Returns the rates of a unit that keeps `none` bytes without recomputation and
 * `kept` with it. Loss: bytes of the head for each word of a row. */
static struct pp_unit_rates eager_rates(const struct saved *s, double none,
                                        double kept, double loss, double out)
{
    struct pp_unit_rates rates = {.act[PP_SAVED_ACT_W] = kept, .out = out};
    struct pp_workspace *w = &rates.workspace;
    w->fixed = PP_LINE_BYTES;
    if (s->u.kind == PP_UNIT_LAYER)
        w->token = backward_bytes(s) + none - kept;
    if (s->u.kind == PP_UNIT_HEAD)
        w->token = loss * (double)pp_shard_words(s->of) * s->tp +
                   3 * s->tp * s->hidden * s->element;
    return rates;
}

/* Selective activation checkpointing of torchtitan keeps its input, every
 * second product, attention, and the results of sums and all-to-alls. */
static double torchtitan_selective(const struct saved *s)
{
    double row = s->hidden * s->element;
    double mlp =
        bytes_of(s, PP_S_GATE_UP) / 2 + s->tp * row + (s->tp > 1 ? 2 * row : 0);
    double experts =
        2 * s->arrivals * s->element + bytes_of(s, PP_S_EXPERT_GATE_UP) / 2;
    return row + bytes_of(s, PP_S_QKV) + bytes_of(s, PP_S_LSE) +
           bytes_of(s, PP_S_ATTN) + mlp + (s->experts ? experts : 0);
}

/* Elements of a unit on a rank, whole and as FSDP divides them. */
static void count_elements(const struct pp_mesh *x, const struct pp_model *m,
                           struct pp_unit_id u, double *whole, double *part)
{
    struct pp_mesh even = *x;
    even.whole_state = false;
    const struct pp_elements held = pp_mesh_held(&even, m, u).all;
    *whole = (double)held.dense + (double)held.experts;
    *part = pp_mesh_own(&even, held);
}

/* The loss goes over an eighth of the tokens at a time: logits in bf16 and
 * fp32, log-probabilities and their gradient. Without a pipeline two units are
 * whole in bf16, and the gradient of one in bf16 and fp32. */
struct pp_unit_rates pp_torchtitan_rates(const struct pp_shard *shard,
                                         struct pp_unit_id u,
                                         enum pp_recompute r,
                                         const struct pp_backend *b)
{
    enum { LOSS_CHUNKS = 8, LOSS_BYTES = 2 + 4 + 4 + 4 };
    struct saved s;
    double whole, part;
    const double out = pp_unit_rates(shard, u, r, b).out;
    count_elements(&shard->mesh, shard->model, u, &whole, &part);
    const struct pp_shard of = full_shard(shard, &u);
    if (is_listed(of.model, u))
        return listed_rates(&of, u, r, b);
    find_saved(&s, &of, u, b);
    double none = eager_bytes(&s, 1, s.tp);
    bool layer = u.kind == PP_UNIT_LAYER;
    double kept = !layer || r == PP_RECOMPUTE_NONE ? none
                  : r == PP_RECOMPUTE_FULL         ? bytes_of(&s, PP_S_X)
                                                   : torchtitan_selective(&s);
    struct pp_unit_rates rates =
        eager_rates(&s, none, kept, (double)LOSS_BYTES / LOSS_CHUNKS, out);
    if (of.mesh.pp < 2)
        rates.workspace.fixed += (size_t)((2 * 2 + 2 + 4) * whole);
    return rates;
}

/* FSDP divides weights in fp32, gradients and moments. With a pipeline a stage
 * is whole in bf16 and adds up whole gradients until its last backward. */
struct pp_state_bytes pp_torchtitan_state(const struct pp_mesh *x,
                                          const struct pp_model *m,
                                          struct pp_unit_id u,
                                          const struct pp_precision *p)
{
    double whole, part, element = (double)p->element_bytes,
                        wide = (double)p->accumulator_bytes;
    bool frozen = pp_unit_role(m, u) != PP_ROLE_TRAINED, stays = x->pp > 1;
    count_elements(x, m, u, &whole, &part);
    return (struct pp_state_bytes){
        .weights = pp_size_of(wide * part + (stays ? element * whole : 0)),
        .gradients =
            frozen ? 0 : pp_size_of(wide * part + (stays ? wide * whole : 0)),
        .optimizer = frozen ? 0 : pp_size_of(2 * wide * part)};
}

/* A workspace of cuBLAS. */
double pp_torch_fixed(const struct pp_mesh *x, const struct pp_model *m,
                      size_t first, size_t end)
{
    (void)x, (void)m;
    return first < end ? CUBLAS : 0;
}

/* Without sequence parallelism tensor-parallel ranks have whole rows. The loss
 * has logits in bf16, log-probabilities and their gradient in fp32. */
struct pp_unit_rates pp_deepspeed_rates(const struct pp_shard *shard,
                                        struct pp_unit_id u,
                                        enum pp_recompute r,
                                        const struct pp_backend *b)
{
    enum { LOSS_BYTES = 2 + 4 + 4 };
    struct saved s;
    const double out = pp_unit_rates(shard, u, r, b).out;
    const struct pp_shard of = full_shard(shard, &u);
    if (is_listed(of.model, u))
        return listed_rates(&of, u, r, b);
    find_saved(&s, &of, u, b);
    double none = eager_bytes(&s, s.tp, s.tp);
    bool full = u.kind == PP_UNIT_LAYER && r != PP_RECOMPUTE_NONE;
    double kept = full ? s.tp * bytes_of(&s, PP_S_X) : none;
    return eager_rates(&s, none, kept, LOSS_BYTES, out);
}
