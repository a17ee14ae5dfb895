/* SPDX-License-Identifier: MIT */
#include "cost/estimate.h"

#include <math.h>
#include <string.h>

#include "model/edge.h"
#include "model/precision.h"
#include "model/slots.h"
#include "model/tensor.h"

#define HALF_SIZE 200.0
#define PRODUCT_START 4e-6
#define HALF_ROWS 70e3
#define ATTENTION_BACKWARD 0.8
#define PRODUCT_WEIGHT 0.93

double pp_product_efficiency(double efficiency, double m, double n, double k)
{
    return efficiency * m / (m + HALF_SIZE) * n / (n + HALF_SIZE) * k /
           (k + HALF_SIZE);
}

static const struct pp_layout_component *language(const struct pp_estimate *x)
{
    return pp_layout_language(&x->layout);
}

static struct pp_group group_of(const struct pp_estimate *x,
                                enum pp_group_kind kind)
{
    const struct pp_layout_component *c = language(x);
    const struct pp_place p = {.component = (int)(c - x->layout.components),
                               .row = c->first_row};
    return pp_layout_group(&x->layout, &p, kind);
}

static bool is_free(const struct pp_estimate *x, enum pp_group_kind kind)
{
    return x->free & 1u << kind;
}

static double tokens_of(const struct pp_estimate *x)
{
    return (double)x->microbatch.tokens;
}

/* Returns the rows of a unit's products on one rank. An encoder's are rows of
 * its items. */
static double rows_of(const struct pp_estimate *x, struct pp_unit_id u)
{
    const struct pp_mesh *mesh = &language(x)->mesh;
    if (!pp_unit_is_vision(u))
        return tokens_of(x) / mesh->cp;
    return fmax(1, pp_rows_rate(x->shard, pp_unit_rows(u)) * tokens_of(x) /
                       pp_mesh_sharers(mesh));
}

/* --- products --- */

static const struct pp_trainer *trainer_of(const struct pp_estimate *x)
{
    return x->trainer ? x->trainer : pp_trainers;
}

/* The products of a unit on one rank, in a forward. */
struct products {
    double flops, seconds;
    int joins; /* whose inputs ranks divide: they add up the outputs */
};

static void add_product(struct products *p, const struct pp_estimate *x,
                        const struct pp_tensor_info *t, double rows,
                        double ranks)
{
    const struct pp_mesh *mesh = &language(x)->mesh;
    bool expert = t->n_equal > 0;
    bool divided = !expert || !pp_mesh_has_whole_experts(mesh);
    double tp = divided ? ranks : 1,
           peak = pp_machine_peak(x->machine, x->precision->name);
    double n = (double)t->rows / (t->split == PP_SPLIT_ROWS ? tp : 1);
    double k = (double)t->cols / (t->split == PP_SPLIT_COLUMNS ? tp : 1);
    double m = rows, times = 1;
    if (expert) {
        times = (double)t->n_equal / mesh->ep;
        m = tokens_of(x) / (double)pp_mesh_routers(mesh) *
            (double)x->shard->model->moe.top_k / times;
    }
    double flops = 2 * m * n * k * times;
    p->flops += flops;
    p->seconds += flops / (peak * pp_product_efficiency(x->machine->efficiency,
                                                        m, n, k)) +
                  PRODUCT_START;
}

static struct products products_of(const struct pp_estimate *x,
                                   struct pp_unit_id u)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    struct products p = {0, 0, 0};
    bool experts = false, vision = pp_unit_is_vision(u);
    size_t tp = vision ? x->shard->images[u.component].tp
                       : (size_t)language(x)->mesh.tp;
    size_t n =
        x->shard->model->table ? 0 : pp_unit_params(x->shard->model, u, table);
    for (size_t i = 0; i < n; i++) {
        if (!table[i].name[0] || table[i].cols < 2)
            continue;
        if (x->machine->efficiency > 0)
            add_product(&p, x, &table[i], rows_of(x, u), (double)tp);
        if (table[i].split == PP_SPLIT_COLUMNS)
            experts |= table[i].n_equal > 0;
        p.joins += table[i].split == PP_SPLIT_COLUMNS && !table[i].n_equal &&
                   (tp > 1 || !vision);
    }
    /* A table has attention and an MLP. */
    p.joins += x->shard->model->table && u.kind == PP_UNIT_LAYER ? 2 : 0;
    p.joins += experts && !pp_mesh_has_whole_experts(&language(x)->mesh);
    return p;
}

/* Sets the seconds of products and attention. What the table of tensors does
 * not have is as fast as what it has. */
static void set_products(const struct pp_estimate *x, struct pp_unit_id u,
                         const struct products *p, struct pp_unit_seconds *s)
{
    const struct pp_mesh *mesh = &language(x)->mesh;
    const struct pp_machine *m = x->machine;
    const struct pp_flops f = pp_unit_fwd_flops(x->shard, u);
    double length = (double)x->microbatch.seq_len;
    double peak = pp_machine_peak(m, x->precision->name);
    double rate = x->flops > 0   ? x->flops
                  : p->flops > 0 ? p->flops / p->seconds
                                 : peak * m->efficiency;
    double rows = rows_of(x, u), attended = length;
    if (pp_unit_is_vision(u)) {
        const struct pp_image_load *l = &x->shard->images[u.component];
        const struct pp_vision *v = pp_unit_encoder(x->shard->model, u);
        rows *= (double)v->n_heads / (double)l->tp;
        attended = (double)pp_image_rows(v, l->patches, u.component);
    } else {
        rows *= (double)x->shard->model->n_heads / mesh->tp;
    }
    double attention = x->flops > 0
                           ? x->flops
                           : peak * m->efficiency * rows / (rows + HALF_ROWS) *
                                 attended / (attended + HALF_SIZE);
    double back = x->flops > 0 ? 1 : ATTENTION_BACKWARD;
    bool wide = x->precision->element_bytes < x->precision->accumulator_bytes;
    double add = wide && !(x->flops > 0) ? PRODUCT_WEIGHT : 1;
    double sharers = pp_mesh_sharers(mesh);
    const struct pp_cost a = pp_cost_lacking(
        pp_cost_of(f.per_token, 0,
                   u.kind == PP_UNIT_HEAD ? PP_LOGITS_AGAIN : PP_LOGITS_KEPT),
        f.frozen);
    const struct pp_cost b =
        pp_cost_of(0, pp_pair_flops(&f, length), PP_LOGITS_KEPT);
    double further = pp_unit_further_flops(x->shard, u);
    s->fwd[0] = a.forward / (rate * sharers);
    s->input[0] =
        (a.input_grad + PP_FURTHER_INPUT * further) / (rate * sharers);
    s->weight[0] =
        (a.weight_grad / add + PP_FURTHER_WEIGHT * further) / (rate * sharers);
    s->fwd[1] = b.forward / (attention * sharers);
    s->input[1] = b.input_grad / (attention * back * sharers);
    s->weight[1] = b.weight_grad / (attention * sharers);
}

/* --- elementwise work --- */

/* Sets the seconds per token of a decoder layer's elementwise work in F: it
 * reads and writes rows of hidden in two norms and, twice as many to read, in
 * two sums; queries and keys to rotate them; and the activation. Returns all of
 * them, of which I computes again what it does not find. */
static double set_elementwise(const struct pp_estimate *x, struct pp_unit_id u,
                              double second, double part[PP_N_RECOMPUTED])
{
    enum { NORMS, ATTENTION, QKV, LATENT, OUTPUTS, MLP_ACT, MLP, EXPERT_ACT };
    const struct pp_model *m = x->shard->model;
    const struct pp_moe *e = &m->moe;
    double h = (double)m->hidden, sum = 0;
    bool experts = pp_layer_set_has(&e->layers, u.layer);
    double rows = (double)e->top_k * pp_shard_skew(x->shard, u.layer);
    part[NORMS] = second * 4 * h;
    const struct pp_heads of = pp_unit_heads(m, u);
    part[QKV] = second * 2 * (double)((of.n + of.n_kv) * of.qk);
    part[OUTPUTS] = second * 3 * h;
    part[MLP_ACT] =
        second * 3 * (double)(experts ? e->shared : m->intermediate);
    part[EXPERT_ACT] =
        experts ? second * 3 * rows * (double)e->intermediate : 0;
    for (int k = 0; k < PP_N_RECOMPUTED; k++)
        sum += part[k];
    /* The second sum, and rows of experts in and out of their order. */
    return sum + second * (3 * h + (experts ? 4 * rows * h : 0));
}

/* Adds elementwise work: I of a layer has half as much more as F. */
static void add_elementwise(const struct pp_estimate *x, struct pp_unit_id u,
                            struct pp_unit_seconds *s)
{
    const struct pp_trainer_passes *passes = &trainer_of(x)->passes;
    double bandwidth = x->machine->memory_bandwidth;
    if (x->flops > 0 || !(bandwidth > 0))
        return;
    double value = (double)x->precision->element_bytes /
                   (bandwidth * pp_mesh_sharers(&language(x)->mesh));
    const struct pp_model *m = x->shard->model;
    double n = m->head_stages ? (double)m->head_stages : 1;
    double words = value * (double)m->vocab / n;
    /* The gradients of all units of a divided head are added up. */
    if (u.kind == PP_UNIT_NORM && m->head_stages)
        s->input[0] += value * (double)m->hidden * (n + 1);
    if (u.kind == PP_UNIT_HEAD) {
        s->fwd[0] += passes->loss_forward * words;
        s->input[0] += passes->loss_input * words;
    }
    if (u.kind == PP_UNIT_LAYER) {
        double all = set_elementwise(x, u, value, s->elementwise);
        s->fwd[0] += all;
        s->input[0] += 1.5 * all;
    }
}

/* --- exchanges --- */

/* Returns the blocks of a layer whose B gathers the rows of the gradient once:
 * attention and MLP, but not experts. */
static int blocks_joined(const struct pp_model *m, struct pp_unit_id u,
                         int joins)
{
    bool experts = pp_layer_set_has(&m->moe.layers, u.layer);
    if (u.kind != PP_UNIT_LAYER || u.layer >= m->n_layers || m->lora)
        return 0;
    return experts && joins > 1 ? 1 : joins;
}

/* Adds the gathers and sums of tensor-parallel ranks. A product whose outputs
 * are divided gathers its rows before, one whose inputs are adds up its rows
 * after it. I and W of pprun gather both kinds of gradients and rows again; B
 * gathers gradients once, but those of experts. */
static void add_tensor(const struct pp_estimate *x, struct pp_unit_id u,
                       int joins, struct pp_unit_seconds *s)
{
    const struct pp_trainer_exchanges *e = &trainer_of(x)->exchanges;
    const struct pp_mesh *mesh = &language(x)->mesh;
    const struct pp_group g = group_of(x, PP_GROUP_TP);
    double row =
        (double)(x->shard->model->hidden * x->precision->element_bytes);
    double moved = tokens_of(x) / mesh->cp * row * (g.n - 1) / g.n;
    double each =
        pp_link_time(pp_machine_ring(x->machine, &g), moved) / tokens_of(x);
    bool head = u.kind == PP_UNIT_HEAD, embed = u.kind == PP_UNIT_EMBED;
    s->fwd[0] += each * (head || embed ? 1 : 2 * joins);
    s->input[0] += each * (head ? 2 : embed ? 0 : e->input * joins);
    s->weight[0] += each * (head || embed ? 1 : e->weight * joins);
    s->once += each * e->once * blocks_joined(x->shard->model, u, joins);
}

/* Adds the exchange of keys and values by context-parallel ranks; I moves twice
 * as much. The steps of a ring hide behind the attention of a step. */
static void add_context(const struct pp_estimate *x, struct pp_unit_id u,
                        struct pp_unit_seconds *s)
{
    const struct pp_model *m = x->shard->model;
    const struct pp_mesh *mesh = &language(x)->mesh;
    const struct pp_group g = group_of(x, PP_GROUP_CP);
    const struct pp_heads h = pp_unit_heads(m, u);
    double heads = (double)(m->mla.kv_rank ? h.n : h.n_kv);
    double width = (double)(h.qk + h.v);
    double t = tokens_of(x), element = (double)x->precision->element_bytes;
    double kv = t * heads * width * element / mesh->tp;
    double q = t * (double)(h.n * h.qk) * element / mesh->tp;
    if (g.n < 2 || !(s->fwd[1] > 0))
        return;
    if (mesh->cp_exchange == PP_CP_A2A) {
        const struct pp_link l = pp_machine_all_to_all(x->machine, &g);
        double fwd = pp_link_time(l, (2 * q + kv) / g.n);
        s->fwd[0] += fwd / t;
        s->input[0] += trainer_of(x)->exchanges.a2a_input * fwd / t;
        return;
    }
    const struct pp_link l = pp_machine_ring(x->machine, &g);
    double all = pp_link_time(l, kv * (g.n - 1) / g.n);
    double fwd = all, back = 2 * all;
    if (mesh->cp_exchange == PP_CP_RING) {
        double hidden =
            (g.n - 1.0) / g.n * t * ((double)x->microbatch.seq_len + 1) / 2;
        fwd = fmax(0, fwd - hidden * s->fwd[1]);
        back = fmax(0, back - hidden * s->input[1]);
    }
    s->fwd[0] += fwd / t;
    s->input[0] += back / t;
}

/* Adds the exchange of heads of linear attention by context-parallel ranks:
 * inputs and outputs in F, gradients of both in I. pprun sends inputs again in
 * I, and inputs and their gradients in W, unless that trains adapters alone. */
static void add_linear(const struct pp_estimate *x, struct pp_unit_seconds *s)
{
    const struct pp_delta d = pp_shard_delta(x->shard);
    const struct pp_group g = group_of(x, PP_GROUP_CP);
    const struct pp_link l = pp_machine_all_to_all(x->machine, &g);
    double t = tokens_of(x), e = (double)x->precision->element_bytes;
    double in = t * e * (double)pp_delta_outputs(&d) / g.n;
    double out = t * e * (double)(d.value_heads * d.value_dim) / g.n;
    int again = trainer_of(x)->exchanges.a2a_input > 1;
    int trained = !x->shard->model->lora;
    if (g.n < 2)
        return;
    s->fwd[0] += (pp_link_time(l, in) + pp_link_time(l, out)) / t;
    s->input[0] +=
        ((1 + again) * pp_link_time(l, in) + pp_link_time(l, out)) / t;
    s->weight[0] += again * trained * 2 * pp_link_time(l, in) / t;
}

/* Adds the exchange of rows between expert-parallel ranks, for the rank that
 * has most: F takes inputs to the experts and outputs back, I gradients and the
 * weights of rows, W inputs of both products. I and W send the inputs of
 * further rounds once more. */
static void add_experts(const struct pp_estimate *x, struct pp_unit_id u,
                        struct pp_unit_seconds *s)
{
    const struct pp_moe *e = &x->shard->model->moe;
    const struct pp_mesh *mesh = &language(x)->mesh;
    const struct pp_group g = group_of(x, PP_GROUP_EP);
    if (g.n < 2 || u.kind != PP_UNIT_LAYER ||
        !pp_layer_set_has(&e->layers, u.layer))
        return;
    double t = tokens_of(x);
    double even = t / (double)pp_mesh_routers(mesh) * (double)e->top_k;
    double rows = even * pp_shard_skew(x->shard, u.layer);
    double further = even * pp_shard_further_rows(x->shard, u.layer);
    double starts = pp_shard_rounds(x->shard, u.layer) - 1;
    double row =
        (double)(x->shard->model->hidden * x->precision->element_bytes);
    double weight = (double)x->precision->accumulator_bytes;
    const struct pp_link l = pp_machine_all_to_all(x->machine, &g);
    double both = 2 * (pp_link_time(l, rows * row) + starts * l.seconds) / t;
    double again = (starts * l.seconds + l.per_byte * further * row) / t;
    s->fwd[0] += both;
    s->input[0] += both + again + 2 * l.per_byte * rows * weight / t;
    s->weight[0] += both * trainer_of(x)->exchanges.expert_weight + again;
}

void pp_estimate_unit(const struct pp_estimate *x, size_t i,
                      struct pp_unit_seconds *s)
{
    const struct pp_unit_id u = pp_model_unit(x->shard->model, i);
    const struct products p = products_of(x, u);
    memset(s->elementwise, 0, sizeof s->elementwise);
    s->once = 0;
    set_products(x, u, &p, s);
    if (pp_unit_is_vision(u))
        return;
    add_elementwise(x, u, s);
    if (!is_free(x, PP_GROUP_TP))
        add_tensor(x, u, p.joins, s);
    if (!is_free(x, PP_GROUP_CP)) {
        bool linear = u.kind == PP_UNIT_LAYER &&
                      pp_layer_set_has(&x->shard->model->delta.layers, u.layer);
        if (linear)
            add_linear(x, s);
        else
            add_context(x, u, s);
    }
    if (!is_free(x, PP_GROUP_EP))
        add_experts(x, u, s);
}

double pp_estimate_update(const struct pp_estimate *x)
{
    double bytes = pp_trainer_update_bytes(trainer_of(x), x->precision);
    double bandwidth = x->machine->memory_bandwidth;
    return bandwidth > 0 ? bytes / bandwidth : 0;
}
