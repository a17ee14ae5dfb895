/* SPDX-License-Identifier: MIT */
#include "model/mesh.h"

#include <math.h>
#include <stdio.h>

#include "base/num.h"
#include "model/inventory.h"
#include "model/parts.h"
#include "model/vision.h"

static bool has_experts(const struct pp_model *m)
{
    if (m->table)
        return m->moe.n_experts > 0;
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

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Key and value heads divide by the ranks, or the ranks by the heads if these
 * are not in one tensor with queries. */
static bool divides_kv_heads(const struct pp_model *m, bool windowed, size_t tp)
{
    size_t n = pp_model_heads(m, windowed).n_kv;
    return n % tp == 0 || (pp_model_trained(m) && tp % n == 0 &&
                           pp_family_of(m->architecture)->names->layer[PP_P_K]);
}

static bool divides_all_heads(const struct pp_model *m, size_t tp)
{
    return divides_kv_heads(m, false, tp) && divides_kv_heads(m, true, tp);
}

/* Returns the most tensor-parallel ranks, fewer than x has, that can divide the
 * model. */
static size_t fewer_ranks(const struct pp_mesh *x, const struct pp_model *m)
{
    const struct pp_moe *e = &m->moe;
    uint64_t all = m->n_heads;
    all =
        gcd(has_dense(m) ? gcd(all, m->intermediate) : all, m->delta.key_heads);
    if (has_experts(m))
        all =
            gcd(gcd(all, x->experts_over_tp ? 0 : e->intermediate), e->shared);
    size_t tp = (size_t)x->tp - 1;
    while (tp > 1 && (all % tp || !divides_all_heads(m, tp) || m->vocab < tp))
        tp--;
    return tp;
}

static int fail_tp(const struct pp_mesh *x, const struct pp_model *m, size_t n,
                   const char *what, struct pp_err *err)
{
    char value[32];
    snprintf(value, sizeof value, "%zu", fewer_ranks(x, m));
    return pp_fail_setting(err, PP_EXIT_INPUT, "tp", value,
                           "the model's %zu %s do not divide by %d "
                           "tensor-parallel ranks",
                           n, what, x->tp);
}

static int check_tp(const struct pp_mesh *x, const struct pp_model *m, size_t n,
                    const char *what, struct pp_err *err)
{
    return n % (size_t)x->tp ? fail_tp(x, m, n, what, err) : 0;
}

static int check_kv_heads(const struct pp_mesh *x, const struct pp_model *m,
                          struct pp_err *err)
{
    if (check_tp(x, m, m->delta.key_heads, "key heads of linear attention",
                 err))
        return -1;
    bool windowed = divides_kv_heads(m, false, (size_t)x->tp);
    return divides_all_heads(m, (size_t)x->tp)
               ? 0
               : fail_tp(x, m, pp_model_heads(m, windowed).n_kv,
                         "key and value heads", err);
}

static int check_words(const struct pp_mesh *x, const struct pp_model *m,
                       struct pp_err *err)
{
    return m->vocab >= (size_t)x->tp
               ? 0
               : pp_fail_setting(err, PP_EXIT_INPUT, "tp", NULL,
                                 "the model's vocabulary of %zu is too small "
                                 "for %d tensor-parallel ranks",
                                 m->vocab, x->tp);
}

size_t pp_mesh_all_expert_rows(const struct pp_mesh *x,
                               const struct pp_model *m)
{
    size_t ep = (size_t)x->ep, held = m->moe.n_experts / ep, k = m->moe.top_k;
    return ep * (k < held ? k : held);
}

/* Returns the most rows that experts keep. A microbatch is on cp ranks. All
 * rows that experts keep of it may be on the ranks of one group, or with
 * padding on each rank. A row more for each token is room for rounding up. */
static double most_kept(const struct pp_mesh *x, const struct pp_model *m)
{
    double most = (double)pp_mesh_all_expert_rows(x, m);
    double k = (double)m->moe.top_k, sharers = (double)pp_mesh_routers(x);
    double ranks = x->expert_padding ? sharers * x->ep : fmax(sharers, x->ep);
    if (x->expert_capacity <= 0)
        return most;
    if (x->expert_padding)
        most = (double)m->moe.n_experts;
    double kept = ceil(k * x->expert_capacity * ranks / x->ep) + 1;
    return fmin(most, fmax(k, kept));
}

static double most_rows(const struct pp_mesh *x, const struct pp_model *m)
{
    return (double)(x->expert_padding ? m->moe.n_experts
                                      : pp_mesh_all_expert_rows(x, m));
}

double pp_mesh_most_expert_limit(const struct pp_mesh *x,
                                 const struct pp_model *m)
{
    return most_rows(x, m) / (double)m->moe.top_k;
}

/* With padding all rows must fit in one round. */
double pp_mesh_expert_rows(const struct pp_mesh *x, const struct pp_model *m)
{
    double k = (double)m->moe.top_k, limit = x->expert_limit;
    if (x->ep == 1)
        return k;
    if (limit > 0)
        return limit < pp_mesh_most_expert_limit(x, m) ? k * limit
                                                       : most_rows(x, m);
    return x->expert_padding ? most_kept(x, m)
                             : fmin(most_kept(x, m), k * PP_EXPERT_LIMIT);
}

static int check_capacity(const struct pp_mesh *x, const struct pp_model *m,
                          struct pp_err *err)
{
    if (x->expert_capacity > 0 && !has_experts(m))
        return pp_fail_setting(err, PP_EXIT_INPUT, "expert-capacity", NULL,
                               "the model has no experts for a capacity of "
                               "'%g'",
                               x->expert_capacity);
    if (x->expert_padding && x->ep == 1)
        return pp_fail_setting(err, PP_EXIT_INPUT, "expert-padding", NULL,
                               "padded rows of experts have no effect without "
                               "expert-parallel ranks");
    return 0;
}

/* A rank gets as many rows as it sends, on average. */
static int check_expert_limit(const struct pp_mesh *x, const struct pp_model *m,
                              struct pp_err *err)
{
    double most = pp_mesh_most_expert_limit(x, m);
    if (x->expert_limit <= 0)
        return 0;
    if (x->ep == 1)
        return pp_fail_setting(err, PP_EXIT_INPUT, "expert-limit", NULL,
                               "a limit of '%g' for rows of experts has no "
                               "effect without expert-parallel ranks",
                               x->expert_limit);
    if (x->expert_limit > most)
        return pp_fail_setting(err, PP_EXIT_INPUT, "expert-limit", NULL,
                               "a limit of '%g' times an even share of the "
                               "rows of experts must be from 1 to %g, the most "
                               "that may come",
                               x->expert_limit, most);
    return 0;
}

static int check_experts(const struct pp_mesh *x, const struct pp_model *m,
                         struct pp_err *err)
{
    const struct pp_moe *e = &m->moe;
    if (!has_experts(m))
        return x->ep == 1 ? 0
                          : pp_fail_setting(err, PP_EXIT_INPUT, "ep", "1",
                                            "the model has no experts for %d "
                                            "expert-parallel ranks",
                                            x->ep);
    if (x->ep > PP_MOST_EXPERT_RANKS)
        return pp_fail_setting(err, PP_EXIT_INPUT, "ep", NULL,
                               "'%d' expert-parallel ranks are more than %d",
                               x->ep, (int)PP_MOST_EXPERT_RANKS);
    size_t sharing = pp_mesh_expert_ranks(x);
    if (sharing % (size_t)x->ep)
        return pp_fail_setting(err, PP_EXIT_INPUT, "ep", NULL,
                               "dp x cp%s is %zu ranks, which do not divide "
                               "by %d expert-parallel ranks",
                               x->experts_over_tp ? " x tp" : "", sharing,
                               x->ep);
    if (e->n_experts % (size_t)x->ep)
        return pp_fail_setting(err, PP_EXIT_INPUT, "ep", NULL,
                               "the model's %zu experts do not divide by %d "
                               "expert-parallel ranks",
                               e->n_experts, x->ep);
    if (check_expert_limit(x, m, err))
        return -1;
    if (x->expert_imbalance > 0 && x->ep == 1)
        return pp_fail_setting(err, PP_EXIT_INPUT, "expert-imbalance", NULL,
                               "an imbalance of '%g' has no effect without "
                               "expert-parallel ranks",
                               x->expert_imbalance);
    if (!x->experts_over_tp &&
        check_tp(x, m, e->intermediate, "columns of an expert", err))
        return -1;
    return check_tp(x, m, e->shared, "columns of the shared experts", err);
}

struct pp_mesh pp_mesh_of(const struct pp_mesh *x, bool is_encoder)
{
    /* A stage gathers weights of all its units or of none. */
    bool divided = pp_mesh_divides_weights(x);
    struct pp_mesh whole = *x;
    whole.tp = 1;
    if (!is_encoder || !x->encoder_tp)
        return is_encoder ? whole : *x;
    return (struct pp_mesh){.pp = x->pp,
                            .dp = x->dp * pp_mesh_sharers(x) / x->encoder_tp,
                            .tp = x->encoder_tp,
                            .cp = 1,
                            .ep = 1,
                            .order = x->order,
                            .whole_state = x->whole_state,
                            .divided_weights = divided,
                            .resident = divided ? x->resident : 0};
}

int pp_mesh_replicas(const struct pp_mesh *x)
{
    const struct pp_mesh own = pp_mesh_of(x, true);
    int n = x->dp * x->cp, of_encoder = own.dp * own.cp;
    n = n > of_encoder ? n : of_encoder;
    int of_experts = (int)pp_mesh_expert_ranks(x) / x->ep;
    return n > of_experts ? n : of_experts;
}

size_t pp_mesh_most_owners(const struct pp_mesh *x)
{
    size_t replicas = (size_t)pp_mesh_replicas(x);
    size_t of_experts = pp_mesh_expert_ranks(x);
    return x->whole_state ? 1 : of_experts > replicas ? of_experts : replicas;
}

size_t pp_mesh_most_sums(const struct pp_mesh *x, int rows)
{
    int n = pp_mesh_replicas(x);
    n = n > x->tp ? n : x->tp;
    return (size_t)(n > rows ? n : rows);
}

/* The bits of a product may depend on its rows, which are the images of a rank.
 */
static int check_vision(const struct pp_mesh *x, const struct pp_model *m,
                        struct pp_err *err)
{
    return !pp_model_has_encoder(m) || !pp_mesh_is_exact(x)
               ? 0
               : pp_fail_setting(err, PP_EXIT_INPUT, "cp", "1",
                                 "%d context-parallel ranks divide the images "
                                 "of an encoder, so a plan cannot be exact",
                                 x->cp);
}

size_t pp_mesh_align(const struct pp_mesh *x)
{
    return (size_t)x->tp * (x->cp > 1 ? 2 * (size_t)x->cp : 1);
}

static int check_seq_len(const struct pp_mesh *x, size_t seq_len,
                         struct pp_err *err)
{
    size_t align = pp_mesh_align(x);
    char value[32];
    if (seq_len % align == 0)
        return 0;
    snprintf(value, sizeof value, "%zu", (seq_len / align + 1) * align);
    return pp_fail_setting(err, PP_EXIT_INPUT, "seq-len", value,
                           "the sequence length %zu is not a multiple of %zu "
                           "(%s)",
                           seq_len, align,
                           x->cp == 1   ? "tp"
                           : x->tp == 1 ? "2 x cp"
                                        : "2 x cp x tp");
}

const char *const pp_cp_exchange_names[] = {[PP_CP_GATHER] = "gather",
                                            [PP_CP_A2A] = "a2a",
                                            [PP_CP_RING] = "ring",
                                            NULL};

const char *const pp_expert_drop_names[] = {
    [PP_DROP_POSITION] = "position", [PP_DROP_PROBS] = "probs", NULL};

/* Checks that the heads divide by the context-parallel ranks if these exchange
 * heads. An error carries the setting cp-exchange. */
static int check_exchange(const struct pp_mesh *x, const struct pp_model *m,
                          struct pp_err *err)
{
    size_t share = (size_t)x->cp * (size_t)x->tp;
    bool windowed = m->n_kv_heads % share == 0;
    const struct pp_heads h = pp_model_heads(m, windowed);
    if (x->cp > 1 && x->cp_exact && x->cp_exchange == PP_CP_RING)
        return pp_fail_setting(err, PP_EXIT_INPUT, "cp-exchange", "gather",
                               "a ring adds in another order than one rank, "
                               "and the plan is exact");
    if (x->cp > 1 && m->chunked && x->cp_exchange == PP_CP_RING)
        return pp_fail_setting(err, PP_EXIT_INPUT, "cp-exchange", "gather",
                               "a ring does not know where chunks of attention "
                               "begin, which the model has");
    if (x->cp == 1 || x->cp_exchange != PP_CP_A2A)
        return 0;
    if (x->cp > PP_MOST_A2A_RANKS)
        return pp_fail_setting(err, PP_EXIT_INPUT, "cp-exchange", "gather",
                               "%d ranks are more than the %d that can "
                               "exchange heads",
                               x->cp, (int)PP_MOST_A2A_RANKS);
    if (h.n % share == 0 && h.n_kv % share == 0)
        return 0;
    return pp_fail_setting(err, PP_EXIT_INPUT, "cp-exchange", "gather",
                           "the model's %zu heads and %zu key and value heads "
                           "do not divide by %zu ranks (cp%s)",
                           h.n, h.n_kv, share, x->tp > 1 ? " x tp" : "");
}

/* Returns whether tp ranks can divide an encoder's tensors. */
static bool divides_encoder(const struct pp_model *m, const struct pp_vision *v,
                            size_t tp)
{
    return v->n_heads % tp == 0 && v->intermediate % tp == 0 &&
           pp_vision_middle(m, v) % tp == 0;
}

/* Returns the most ranks below tp that can divide an encoder's tensors, and
 * divide `ranks` themselves. */
static size_t fewer_of_encoder(const struct pp_model *m,
                               const struct pp_vision *v, size_t tp,
                               size_t ranks)
{
    do
        tp--;
    while (!divides_encoder(m, v, tp) || ranks % tp);
    return tp;
}

static int fail_encoder(const struct pp_model *m, const struct pp_vision *v,
                        size_t tp, const char *value, struct pp_err *err)
{
    return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-mesh", value,
                           "the encoder's %zu heads, %zu columns of an MLP and "
                           "%zu of its projector do not all divide by '%zu' "
                           "tensor-parallel ranks",
                           v->n_heads, v->intermediate, pp_vision_middle(m, v),
                           tp);
}

/* Checks an encoder with a mesh of its own on the ranks of x. */
static int check_division(const struct pp_mesh *x, const struct pp_model *m,
                          const struct pp_vision *v, struct pp_err *err)
{
    size_t tp = (size_t)x->encoder_tp;
    size_t ranks = (size_t)x->dp * (size_t)pp_mesh_sharers(x);
    char value[32];
    snprintf(value, sizeof value, "shared,tp=%zu",
             tp > 1 ? fewer_of_encoder(m, v, tp, ranks) : 1);
    if (ranks % tp)
        return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-mesh", value,
                               "the %zu ranks of a pipeline rank (dp %d x tp "
                               "%d x cp %d) do not divide by '%zu' "
                               "tensor-parallel ranks of the encoder",
                               ranks, x->dp, x->tp, x->cp, tp);
    if (!divides_encoder(m, v, tp))
        return fail_encoder(m, v, tp, value, err);
    if (ranks == tp && pp_mesh_divides_weights(x))
        return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-mesh", value,
                               "all %zu ranks of a pipeline rank divide the "
                               "encoder's tensors, so that none hold the same "
                               "weights and could divide them (zero 3)",
                               ranks);
    return 0;
}

int pp_mesh_check_encoder(const struct pp_mesh *own, const struct pp_mesh *x,
                          const struct pp_model *m, size_t encoder,
                          struct pp_err *err)
{
    const struct pp_vision *v = &m->encoders[encoder];
    char value[64];
    if (!own)
        return x->encoder_tp ? check_division(x, m, v, err) : 0;
    size_t tp = (size_t)own->tp;
    if (divides_encoder(m, v, tp))
        return 0;
    bool both = pp_model_n_encoders(m) > 1; /* they need names */
    snprintf(value, sizeof value, "%s%spp=%d,tp=%zu,cp=%d,dp=%d",
             both ? pp_vision_part(v) : "", both ? ":" : "", own->pp,
             fewer_of_encoder(m, v, tp, 0), own->cp, own->dp);
    return fail_encoder(m, v, tp, value, err);
}

/* Rules are not checked that follow from how pprun divides a layer. */
static int check_table(const struct pp_mesh *x, const struct pp_model *m,
                       size_t seq_len, struct pp_err *err)
{
    const char *setting = m->table->estimated ? NULL
                          : x->tp > 1         ? "tp"
                          : x->cp > 1         ? "cp"
                          : x->ep > 1         ? "ep"
                                              : NULL;
    if (m->table->estimated)
        return check_tp(x, m, m->n_heads, "heads", err) ||
                       check_words(x, m, err) || check_experts(x, m, err) ||
                       check_seq_len(x, seq_len, err)
                   ? -1
                   : 0;
    if (!setting)
        return 0;
    return pp_fail_setting(err, PP_EXIT_INPUT, setting, "1",
                           "a table of units does not say how %s ranks would "
                           "share a unit",
                           setting);
}

/* Context-parallel ranks exchange heads of linear attention, however they
 * exchange keys and values. */
static int check_linear(const struct pp_mesh *x, const struct pp_model *m,
                        struct pp_err *err)
{
    size_t heads = m->delta.key_heads / (size_t)x->tp, cp = (size_t)x->cp;
    char value[32];
    if (cp == 1 || !heads || (heads % cp == 0 && cp <= PP_MOST_A2A_RANKS))
        return 0;
    snprintf(value, sizeof value, "%zu",
             heads % cp ? gcd(heads, cp) : (size_t)1);
    return pp_fail_setting(err, PP_EXIT_INPUT, "cp", value,
                           "the model's %zu key heads of linear attention do "
                           "not divide by %zu ranks (cp%s)",
                           m->delta.key_heads, cp * (size_t)x->tp,
                           x->tp > 1 ? " x tp" : "");
}

int pp_mesh_check(const struct pp_mesh *x, const struct pp_model *m,
                  size_t seq_len, struct pp_err *err)
{
    if (m->table)
        return check_table(x, m, seq_len, err);
    if (check_tp(x, m, m->n_heads, "heads", err) || check_kv_heads(x, m, err) ||
        check_words(x, m, err))
        return -1;
    if (has_dense(m) &&
        check_tp(x, m, m->intermediate, "columns of an MLP", err))
        return -1;
    if (check_capacity(x, m, err) || check_experts(x, m, err) ||
        check_vision(x, m, err) || check_exchange(x, m, err) ||
        check_linear(x, m, err))
        return -1;
    if (x->encoder_tp && !pp_model_has_encoder(m))
        return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-mesh", NULL,
                               "the model has no encoder");
    return check_seq_len(x, seq_len, err);
}

/* Only the tensors of models that pprun trains are all known. */
static void set_owned(struct pp_held *held, const struct pp_mesh *x,
                      const struct pp_model *m, struct pp_unit_id u)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t tp = (size_t)x->tp;
    const struct pp_holders h = {.n = pp_mesh_owners(x),
                                 .ep = (size_t)x->ep,
                                 .over_tp = pp_mesh_has_whole_experts(x)};
    if (x->whole_state || pp_mesh_most_owners(x) == 1 || !pp_model_trained(m))
        return;
    size_t n = pp_unit_params(m, u, table);
    held->all.owned = pp_owned_most(table, n, tp, &h);
    bool same = !m->maps && held->all.dense == held->trained.dense &&
                held->all.experts == held->trained.experts;
    pp_table_keep_changing(table, n);
    held->trained.owned =
        same ? held->all.owned : pp_owned_most(table, n, tp, &h);
}

static struct pp_held table_held(const struct pp_mesh *x,
                                 const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_unit_row *row = pp_unit_row(m, u);
    uint64_t divided = row->costs.params - row->whole - row->experts;
    uint64_t tp = (uint64_t)x->tp, expert_tp = x->experts_over_tp ? 1 : tp;
    struct pp_held held = {
        .all = {.dense = row->whole + pp_divide_up(divided, tp),
                .experts =
                    pp_divide_up(row->experts, (uint64_t)x->ep * expert_tp)}};
    if (pp_unit_role(m, u) == PP_ROLE_TRAINED)
        held.trained = held.all;
    return held;
}

/* Adds a group of tensors of one shape. */
static void add_group(struct pp_elements *held, const struct pp_mesh *x,
                      const struct pp_weight_group *w, bool in_layer)
{
    uint64_t tp = (uint64_t)x->tp, ep = (uint64_t)x->ep;
    uint64_t expert_tp = x->experts_over_tp ? 1 : tp;
    uint64_t row = (uint64_t)w->cols * w->count;
    switch (w->share) {
    case PP_SHARE_NONE:
        held->dense += w->rows * row;
        break;
    case PP_SHARE_TENSOR:
        /* Only the rows of a vocabulary may not divide. */
        held->dense += w->n_parts && w->n_parts < tp
                           ? w->rows * row / w->n_parts
                       : in_layer ? w->rows * row / tp
                                  : pp_divide_up(w->rows, tp) * row;
        break;
    case PP_SHARE_EXPERTS:
        held->experts += w->rows * row / (ep * expert_tp);
        break;
    case PP_SHARE_EXPERT_SUMS:
        held->experts += w->rows * row / ep;
        break;
    case PP_N_SHARES:
        break;
    }
}

struct pp_held pp_mesh_held_evenly(const struct pp_mesh *x,
                                   const struct pp_model *m,
                                   struct pp_unit_id u)
{
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    struct pp_held held = {0};
    m = pp_unit_model(m, &u);
    if (m->table)
        return table_held(x, m, u);
    bool in_layer = u.kind == PP_UNIT_LAYER || pp_unit_is_vision(u);
    size_t n = pp_unit_inventory(m, u, w);
    for (size_t i = 0; i < n; i++) {
        if (!w[i].mapped)
            add_group(&held.all, x, &w[i], in_layer);
        if (w[i].trained)
            add_group(&held.trained, x, &w[i], in_layer);
    }
    /* A layer for multi-token prediction has a copy of the embedding. */
    if (pp_unit_is_mtp(m, u)) {
        uint64_t copy = pp_divide_up(m->vocab, (uint64_t)x->tp) * m->hidden;
        held.all.dense += copy;
        held.trained.dense += pp_unit_role(m, u) == PP_ROLE_TRAINED ? copy : 0;
    }
    return held;
}

struct pp_held pp_mesh_held(const struct pp_mesh *x, const struct pp_model *m,
                            struct pp_unit_id u)
{
    struct pp_held held = pp_mesh_held_evenly(x, m, u);
    m = pp_unit_model(m, &u);
    if (!m->table)
        set_owned(&held, x, m, u);
    return held;
}
