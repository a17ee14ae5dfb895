/* SPDX-License-Identifier: MIT */
/* config_family - reads a config.json by the definitions of its family
 * (model/parts.h) and of all families: each member of a model is the value of a
 * definition. ppsplit plans families that pprun does not train by the same ones
 * (outline.h). */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "manifest/config_values.h"
#include "manifest/formula.h"
#include "model/parts.h"

/* Sizes: H hidden, V vocabulary, L layers, nh heads, nkv key heads, hd, qk and
 * vd widths of a head, of its queries and of its values, rot what rotates of a
 * head, I width of an MLP, E experts, K experts of a token, Ie width of an
 * expert, S width of shared experts. For the layer l: it has a window
 * (sliding), rotary positions (rotates), experts (sparse). */
const char pp_config_definitions[] =
    "H=hidden_size|n_embd|d_model V=vocab_size "
    "L=num_hidden_layers|num_layers|n_layer|count(layers_block_type) "
    "nh=num_attention_heads|n_head "
    "nkv=null(num_key_value_heads)?nh:num_key_value_heads|"
    "num_attention_groups|kv kv=nh "
    "hd=null(head_dim)?H/nh:head_dim|head head=H/nh "
    "latent=has(kv_lora_rank) "
    "qk=latent?qk_nope_head_dim+qk_rope_head_dim:hd vd=v_head_dim|hd "
    "pair=2*nh*(qk+vd) longest=max_position_embeddings|n_positions "
    "I=intermediate_size "
    "E=n_routed_experts|num_experts|num_local_experts|moe_num_experts "
    "K=num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|"
    "moe_top_k|top_k_experts "
    "used=K/E Ie=moe_intermediate_size|intermediate_size "
    "n_shared=n_shared_experts|num_shared_experts|"
    "moe_num_shared_experts|0 S=n_shared*Ie "
    "sparse=has(mlp_layer_types)?mlp(sparse):l>=(first_k_dense_replace|0) "
    "steps=!in(mlp_only_layers)&&(l+1)%(decoder_sparse_step|1)==0 "
    /* Windows: the layers that have one, if no list says so (pattern), whether
     * the list counts (typed), the usual width (span; -1: the key does not
     * count), the width (wide; 0: none), and that of a trained family (reach).
     */
    "typed=has(layer_types)||has(layers_block_type) pattern=0 span=-1 "
    "sliding=typed?type(sliding_attention):pattern "
    "chunked=type(chunked_attention) "
    "wide=null(sliding_window)?0:sliding_window|(span>0?span:0) "
    "reach=span<0?0:wide "
    "window=sliding?wide:chunked?attention_chunk_size:index_topk|0 "
    "index=index_n_heads*(2*index_head_dim+2) "
    "qkv_bias=attention_bias o_bias=attention_bias tied=tie_word_embeddings "
    "eps=rms_norm_eps|0.000001 theta=10000 rotates=1 rot=hd "
    "part=rope_scaling.partial_rotary_factor|"
    "rope_parameters.partial_rotary_factor|partial_rotary_factor "
    "topk_norm=norm_topk_prob groups=1 kept=1 scale=1 "
    "adjacent=0 gates=0 query_scalar=0 query_beta=0 query_period=1 "
    "apart=0 chunks=0 weighs=0 value_scale=0 "
    /* Heads of layers with a window. */
    "values=hd wkv=nkv whd=hd wvd=values "
    "embed_scale=0 "
    "logits_by=0 logit_cap=0 score_cap=0 sinks=0 erf=0 "
    "shared_gate=0 shared_scale=0 biases=0 limit=0 gain=0 "
    "q_rank=null(q_lora_rank)?0:q_lora_rank|1536 "
    "qk_norm=0 norms_all_heads=0 sigmoid=0 score_bias=0 two_best=0 "
    "local_theta=0 ahead=0 "
    /* Linear attention: heads and widths of keys and values. Its chunks have 64
     * tokens. */
    "recurs=type(linear_attention)||type(mamba) linear=recurs "
    "lk=linear_num_key_heads lv=linear_num_value_heads "
    "dk=linear_key_head_dim dv=linear_value_head_dim "
    "delta=lv*(6*dk*dv+64*(4*dk+2*dv)) "
    /* Mamba-2: heads, their width, states, groups, taps, chunks. */
    "mh=mamba_n_heads|mamba_num_heads|num_heads "
    "mp=mamba_d_head|mamba_head_dim|(mamba_expand*H/mh)|head_dim "
    "mn=mamba_d_state|ssm_state_size|state_size "
    "mg=mamba_n_groups|n_groups taps=mamba_d_conv|conv_kernel "
    "mc=mamba_chunk_size|chunk_size mi=mh*mp mw=mi+2*mg*mn "
    "tap_bias=mamba_conv_bias|use_conv_bias "
    "proj_bias=mamba_proj_bias|use_bias gated_norm=mamba_rms_norm|1 "
    "Is=shared_expert_intermediate_size pw=hidden_size_per_layer_input "
    "scan=mh*(4*mn*mp+2*mc*(mn+mp)) state=delta|scan ";

/* A size is at least 1; an option, too, or 0 by a formula. A flag or a number
 * that is not set is 0, and a number that a key has is positive. */
enum form { SIZE, OPTION, COUNT, FLAG, REAL };

/* A member of a model, and the definition that has its value. */
struct member {
    const char *name;
    enum form form;
    size_t at;
    double most; /* 0: that of the form */
};

#define AT(member) offsetof(struct pp_model, member)
/* The time of planning grows with the layers, and no model has so many. */
enum { MOST_LAYERS = 65536 };
static const struct member of_all[] = {
    {"V", SIZE, AT(vocab)},
    {"H", SIZE, AT(hidden)},
    {"I", SIZE, AT(intermediate)},
    {"L", SIZE, AT(n_layers), MOST_LAYERS},
    {"nh", SIZE, AT(n_heads)},
    {"nkv", SIZE, AT(n_kv_heads)},
    {"longest", SIZE, AT(max_position)},
    {"reach", OPTION, AT(window)},
    {"eps", REAL, AT(norm_eps), 1},
    {"theta", REAL, AT(rope.theta), 1e30},
    {"local_theta", REAL, AT(windowed_rope.theta), 1e30},
    {"query_scalar", REAL, AT(query_scalar)},
    {"value_scale", REAL, AT(value_scale)},
    {"query_beta", REAL, AT(query_beta)},
    {"query_period", SIZE, AT(query_period)},
    {"apart", FLAG, AT(unrotated_queries)},
    {"chunks", FLAG, AT(chunked)},
    {"gates", FLAG, AT(gates)},
    {"embed_scale", REAL, AT(embed_scale)},
    {"logits_by", REAL, AT(logit_scale)},
    {"logit_cap", REAL, AT(logit_cap)},
    {"score_cap", REAL, AT(score_cap)},
    {"adjacent", FLAG, AT(adjacent)},
    {"tied", FLAG, AT(tied)},
    {"qkv_bias", FLAG, AT(qkv_bias)},
    {"o_bias", FLAG, AT(o_bias)},
    {"mlp_bias", FLAG, AT(mlp_bias)},
    {"qk_norm", FLAG, AT(qk_norm)},
    {"norms_all_heads", FLAG, AT(norms_all_heads)},
    {"ahead", COUNT, AT(n_nextn)},
    {NULL, SIZE, 0},
};
static const struct member of_heads[] = {
    {"hd", SIZE, AT(head_dim)},
    {"rot", SIZE, AT(rotary_dim)},
    {"values", SIZE, AT(v_dim)},
    {"wkv", SIZE, AT(windowed_heads.n_kv)},
    {"whd", SIZE, AT(windowed_heads.qk)},
    {"wvd", SIZE, AT(windowed_heads.v)},
    {NULL, SIZE, 0},
};
static const struct member of_latents[] = {
    {"q_rank", OPTION, AT(mla.q_rank)},
    {"kv_lora_rank", SIZE, AT(mla.kv_rank)},
    {"qk_nope_head_dim", SIZE, AT(mla.nope_dim)},
    {"qk_rope_head_dim", SIZE, AT(mla.rope_dim)},
    {"v_head_dim", SIZE, AT(mla.v_dim)},
    {NULL, SIZE, 0},
};
static const struct member of_delta[] = {
    {"lk", SIZE, AT(delta.key_heads)},   {"lv", SIZE, AT(delta.value_heads)},
    {"dk", SIZE, AT(delta.key_dim)},     {"dv", SIZE, AT(delta.value_dim)},
    {"ltaps", SIZE, AT(delta.taps), 64}, {NULL, SIZE, 0},
};
static const struct member of_experts[] = {
    {"E", SIZE, AT(moe.n_experts)},
    {"K", SIZE, AT(moe.top_k)},
    {"Ie", SIZE, AT(moe.intermediate)},
    {"S", OPTION, AT(moe.shared)},
    {"shared_gate", FLAG, AT(moe.shared_gate)},
    {"shared_scale", REAL, AT(moe.shared_scale)},
    {"biases", FLAG, AT(moe.biases)},
    {"limit", REAL, AT(moe.limit)},
    {"gain", REAL, AT(moe.gain)},
    {"score_bias", FLAG, AT(moe.score_bias)},
    {"sigmoid", FLAG, AT(moe.router.sigmoid)},
    {"weighs", FLAG, AT(moe.router.weighs_input)},
    {"topk_norm", FLAG, AT(moe.router.norm)},
    {"two_best", FLAG, AT(moe.router.two_best)},
    {"groups", SIZE, AT(moe.router.n_groups)},
    {"kept", SIZE, AT(moe.router.kept_groups)},
    {"scale", REAL, AT(moe.router.scale)},
    {NULL, SIZE, 0},
};
#undef AT

/* A key of a configuration, or of an object within it, and its parent. */
struct key_place {
    struct pp_value parent, at;
    char key[64], inner[64];
};

static const struct pp_value *find_place(const struct pp_formulas *f,
                                         const char *key, struct key_place *p)
{
    p->at = *f->config;
    if (!key)
        return &p->at;
    size_t n = strspn(key, PP_NAME_CHARACTERS), outer = strcspn(key, ".");
    outer = outer < n ? outer : n;
    snprintf(p->key, sizeof p->key, "%.*s", (int)outer, key);
    pp_value_find(f->config, p->key, &p->at);
    if (outer < n) {
        p->parent = p->at;
        snprintf(p->inner, sizeof p->inner, "%.*s", (int)(n - outer - 1),
                 key + outer + 1);
        pp_value_find(&p->parent, p->inner, &p->at);
    }
    return &p->at;
}

/* Finds the key that a definition takes its value from. */
static const struct pp_value *place_of(struct pp_formulas *f, const char *name,
                                       struct key_place *p)
{
    f->from = NULL;
    (void)pp_formula_of(f, name);
    return find_place(f, f->from, p);
}

/* Fails if a key that formulas read is no number, divides by 0, or has a list
 * of another length. */
static int check_read(struct pp_formulas *f, enum form form)
{
    struct key_place p;
    bool is;
    double x;
    int64_t n;
    size_t entries;
    if (!f->bad)
        return 0;
    const struct pp_value *at = find_place(f, f->bad, &p);
    if (!json_is_array(at->value) || !f->n_layers)
        return form == FLAG || f->bad_flag ? pp_value_bool(at, &is)
               : form == REAL              ? pp_value_real(at, 0, 1e30, &x)
                                           : pp_value_int(at, 1, INT_MAX, &n);
    if (pp_value_array(at, &entries))
        return -1;
    for (size_t i = 0; entries == f->n_layers && i < entries; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (!json_is_boolean(item.value) && pp_value_int(&item, 0, INT_MAX, &n))
            return -1;
    }
    return pp_value_fail(
        at, "%zu %s for %zu layers", entries,
        json_is_integer(json_array_get(at->value, 0)) ? "numbers" : "types",
        f->n_layers);
}

int pp_config_check_divisors(const struct pp_formulas *f)
{
    struct key_place p;
    int64_t n;
    if (!f->bad || f->bad_flag)
        return 0;
    const struct pp_value *at = find_place(f, f->bad, &p);
    return json_is_integer(at->value) && !json_integer_value(at->value)
               ? pp_value_int(at, 1, INT_MAX, &n)
               : 0;
}

/* Checks a value as a key has it. */
static int check_key(const struct pp_value *at, const struct member *k)
{
    int64_t n;
    bool is;
    double x;
    if (k->form == FLAG)
        return pp_value_bool(at, &is);
    if (k->form == REAL)
        return pp_value_real(at, 0, k->most > 0 ? k->most : 1e9, &x) ? -1
               : x > 0                                               ? 0
                       : pp_value_fail(at, "'0' is not positive");
    return pp_value_int(at, k->form != COUNT,
                        k->most > 0 ? (int64_t)k->most : INT_MAX, &n);
}

static int read_member(struct pp_formulas *f, const struct member *k,
                       struct pp_model *m)
{
    struct key_place p;
    char *to = (char *)m + k->at;
    bool whole = k->form <= COUNT;
    f->missing[0] = '\0';
    f->from = f->bad = NULL;
    f->bad_flag = false;
    double x = pp_formula_of(f, k->name);
    if (check_read(f, k->form) ||
        (f->from && !isnan(x) && check_key(find_place(f, f->from, &p), k)))
        return -1;
    if (whole && isnan(x)) {
        const struct pp_value *at = find_place(f, f->missing, &p);
        return json_is_null(at->value)
                   ? check_key(at, k)
                   : pp_value_fail(f->config, "'%s' is missing", f->missing);
    }
    x = isnan(x) ? 0 : x;
    if (x < (k->form == SIZE) || x > (whole ? INT_MAX : 1e30) ||
        (whole && fabs(x - floor(x)) > 0))
        return pp_value_fail(f->config, "'%.9g' is no %s (%s)", x,
                             whole ? "size" : "positive number", k->name);
    if (whole)
        *(size_t *)to = (size_t)x;
    else if (k->form == FLAG)
        *(bool *)to = x > 0;
    else
        *(double *)to = x;
    return 0;
}

static int read_members(struct pp_formulas *f, const struct member *k,
                        struct pp_model *m)
{
    for (; k->name; k++)
        if (read_member(f, k, m))
            return -1;
    return 0;
}

/* Sets the heads of layers with a window, unless they are the heads of the
 * other layers. */
static int set_windowed_heads(struct pp_formulas *f, struct pp_model *m)
{
    struct pp_heads *w = &m->windowed_heads, all = pp_model_heads(m, false);
    struct key_place p;
    if (m->n_heads % w->n_kv)
        return pp_value_fail(place_of(f, "nh", &p),
                             "'%zu' is not a multiple of %zu, the key and "
                             "value heads of layers with a window",
                             m->n_heads, w->n_kv);
    m->v_dim = all.v == all.qk ? 0 : all.v;
    bool same = w->n_kv == all.n_kv && w->qk == all.qk && w->v == all.v;
    w->n = same || !m->window ? 0 : m->n_heads;
    return 0;
}

/* Reads the width of a head, which is a share of the hidden size unless a key
 * has it. */
static int read_heads(struct pp_formulas *f, struct pp_model *m)
{
    struct key_place p, other;
    const struct pp_value *at = place_of(f, "nh", &p);
    if (m->n_heads % m->n_kv_heads)
        return pp_value_fail(at,
                             "'%zu' is not a multiple of num_key_value_heads, "
                             "%zu",
                             m->n_heads, m->n_kv_heads);
    double width = pp_formula_of(f, "hd");
    if (width > floor(width))
        return pp_value_fail(place_of(f, "H", &other),
                             "'%zu' is not a multiple of %s, %zu", m->hidden,
                             at->key, m->n_heads);
    if (read_members(f, of_heads, m) || set_windowed_heads(f, m))
        return -1;
    if (pp_family_of(m->architecture)->names->positions) {
        m->rotary_dim = 0;
        return 0;
    }
    bool whole = m->rotary_dim == m->head_dim;
    at = place_of(f, whole ? "hd" : "part", &p);
    if (whole && m->head_dim % 2)
        return pp_value_fail(at, "'%zu', the size of a head, is odd",
                             m->head_dim);
    /* transformers rotates another element with an odd number of them. */
    m->rope.odd = m->rotary_dim % 2;
    m->rotary_dim += m->rotary_dim % 2;
    if (m->rotary_dim > m->head_dim)
        return pp_value_fail(at,
                             "'%zu' elements of a head of %zu are not pairs",
                             m->rotary_dim, m->head_dim);
    m->rotary_dim = m->rotary_dim < m->head_dim ? m->rotary_dim : 0;
    return 0;
}

static int read_latents(struct pp_formulas *f, struct pp_model *m)
{
    struct key_place p;
    if (read_members(f, of_latents, m))
        return -1;
    m->head_dim = m->mla.nope_dim + m->mla.rope_dim;
    return m->mla.rope_dim % 2
               ? pp_value_fail(find_place(f, "qk_rope_head_dim", &p),
                               "'%zu', the size of the rotary part of a "
                               "head, is odd",
                               m->mla.rope_dim)
               : 0;
}

/* Checks that the groups of a router suit its experts. */
static int check_groups(struct pp_formulas *f, const struct pp_moe *e)
{
    const struct pp_router *r = &e->router;
    struct key_place p;
    const struct pp_value *at = place_of(f, "groups", &p);
    size_t each = e->n_experts / r->n_groups;
    if (r->n_groups > PP_MOST_EXPERT_GROUPS || e->n_experts % r->n_groups)
        return pp_value_fail(at,
                             "'%zu' groups: they must be at most %d and divide "
                             "%zu experts",
                             r->n_groups, PP_MOST_EXPERT_GROUPS, e->n_experts);
    if (r->two_best && each < 2)
        return pp_value_fail(at, "'%zu' groups of a single expert",
                             r->n_groups);
    if (r->kept_groups > r->n_groups || r->kept_groups * each < e->top_k)
        return pp_value_fail(place_of(f, "kept", &p),
                             "'%zu' of %zu groups of %zu experts, of which a "
                             "token needs %zu",
                             r->kept_groups, r->n_groups, each, e->top_k);
    return 0;
}

static int read_experts(struct pp_formulas *f, struct pp_model *m)
{
    struct key_place p;
    if (read_members(f, of_experts, m))
        return -1;
    return m->moe.top_k > m->moe.n_experts
               ? pp_value_fail(place_of(f, "K", &p),
                               "'%zu' is more than there are experts, %zu",
                               m->moe.top_k, m->moe.n_experts)
               : check_groups(f, &m->moe);
}

static int read_delta(struct pp_formulas *f, struct pp_model *m)
{
    struct key_place p;
    const struct pp_delta *d = &m->delta;
    if (read_members(f, of_delta, m))
        return -1;
    return d->value_heads % d->key_heads
               ? pp_value_fail(place_of(f, "lv", &p),
                               "'%zu' is not a multiple of "
                               "linear_num_key_heads, %zu",
                               d->value_heads, d->key_heads)
               : 0;
}

/* Reports whether layers of the model may have linear attention. */
static bool may_recur(const struct pp_model *m)
{
    return pp_family_of(m->architecture)->names->layer[PP_P_DELTA_QKV];
}

/* Fails if a layer has a window, but the model has none. */
static int check_types(struct pp_formulas *f)
{
    struct pp_value list;
    const char *key =
        strstr(f->own, "use_sliding_window")     ? "use_sliding_window"
        : strstr(f->own, "attention_chunk_size") ? "attention_chunk_size"
                                                 : "sliding_window";
    if (!pp_formula_holds(f, "typed") || pp_formula_of(f, "span") < 0 ||
        !pp_config_find_set(f->config, "layer_types", &list))
        return 0;
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        struct pp_value item = pp_value_item(&list, i);
        f->layer = i;
        if (pp_formula_holds(f, "sliding"))
            return pp_value_fail(&item, "'%s' without %s",
                                 json_string_value(item.value), key);
    }
    return 0;
}

static int read_layers(struct pp_formulas *f, struct pp_model *m)
{
    bool experts = pp_family_of(m->architecture)->mlp == PP_PART_EXPERTS;
    struct key_place p;
    if (!m->window && check_types(f))
        return -1;
    f->n_layers = m->n_layers;
    f->bad = NULL;
    for (size_t i = 0; i < m->n_layers + m->n_nextn; i++) {
        f->layer = i;
        bool sliding = m->window && pp_formula_holds(f, "sliding");
        bool rotates = pp_formula_holds(f, "rotates");
        bool sparse = experts && pp_formula_holds(f, "sparse");
        bool recurs = may_recur(m) && pp_formula_holds(f, "recurs");
        bool sinks = pp_formula_holds(f, "sinks");
        if (i >= PP_SET_LAYERS &&
            (sliding || !rotates || sparse || recurs || sinks))
            return pp_value_fail(
                place_of(f, i < m->n_layers ? "L" : "ahead", &p),
                "'%zu' layers are too many", m->n_layers + m->n_nextn);
        if (sliding)
            pp_layer_set_add(&m->windowed, i);
        if (!rotates)
            pp_layer_set_add(&m->unrotated, i);
        if (sparse)
            pp_layer_set_add(&m->moe.layers, i);
        if (sinks)
            pp_layer_set_add(&m->sinks, i);
        if (recurs)
            pp_layer_set_add(&m->delta.layers, i);
    }
    return check_read(f, COUNT);
}

int pp_config_read_family(const struct pp_value *root, struct pp_model *m)
{
    const struct pp_family *family = pp_family_of(m->architecture);
    struct pp_formulas f = {
        .config = root, .own = family->config, .common = pp_config_definitions};
    bool latent = family->attention == PP_PART_LATENT_ATTENTION;
    if (read_members(&f, of_all, m) ||
        (latent ? read_latents : read_heads)(&f, m) ||
        (family->mlp == PP_PART_EXPERTS && read_experts(&f, m)) ||
        (may_recur(m) && read_delta(&f, m)) || read_layers(&f, m))
        return -1;
    m->tied &= !m->scores;
    m->gelu = pp_formula_holds(&f, "erf") ? PP_GELU_ERF : family->gelu;
    return 0;
}
