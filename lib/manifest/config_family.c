/* SPDX-License-Identifier: MIT */
/* config_family - reads a config.json by the definitions of its family
 * (model/parts.h) and of all families: each member of a model is the value of a
 * definition. ppsplit plans families that pprun does not train by the same ones
 * (outline.h). */
#include <limits.h>
#include <math.h>
#include <stddef.h>

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
    "nkv=num_key_value_heads|num_attention_groups|nh hd=head_dim|H/nh "
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
    "sliding=type(sliding_attention) "
    "chunked=type(chunked_attention) "
    "wide=sliding_window "
    "window=sliding?wide:chunked?attention_chunk_size:index_topk|0 "
    "index=index_n_heads*(2*index_head_dim+2) "
    "qkv_bias=attention_bias o_bias=attention_bias tied=tie_word_embeddings "
    "eps=rms_norm_eps|0.000001 theta=10000 rotates=1 rot=hd "
    "part=rope_scaling.partial_rotary_factor|"
    "rope_parameters.partial_rotary_factor|partial_rotary_factor "
    "topk_norm=norm_topk_prob groups=n_group|1 kept=topk_group|1 "
    "adjacent=0 gates=0 query_scalar=0 query_beta=0 query_period=1 "
    "embed_scale=0 "
    "logits_by=0 "
    "qk_norm=0 norms_all_heads=0 sigmoid=0 score_bias=0 two_best=0 "
    "scale=routed_scaling_factor local_theta=0 ahead=0 "
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

enum form { SIZE, COUNT, FLAG, REAL };

/* A member of a model, and the definition that has its value. */
struct member {
    const char *name;
    enum form form;
    size_t at;
};

#define AT(member) offsetof(struct pp_model, member)
static const struct member of_all[] = {
    {"V", SIZE, AT(vocab)},
    {"H", SIZE, AT(hidden)},
    {"I", SIZE, AT(intermediate)},
    {"L", SIZE, AT(n_layers)},
    {"nh", SIZE, AT(n_heads)},
    {"nkv", SIZE, AT(n_kv_heads)},
    {"hd", SIZE, AT(head_dim)},
    {"rot", SIZE, AT(rotary_dim)},
    {"longest", SIZE, AT(max_position)},
    {"wide", COUNT, AT(window)},
    {"eps", REAL, AT(norm_eps)},
    {"theta", REAL, AT(rope.theta)},
    {"query_scalar", REAL, AT(query_scalar)},
    {"query_beta", REAL, AT(query_beta)},
    {"query_period", SIZE, AT(query_period)},
    {"gates", FLAG, AT(gates)},
    {"embed_scale", REAL, AT(embed_scale)},
    {"logits_by", REAL, AT(logit_scale)},
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
static const struct member of_experts[] = {
    {"E", SIZE, AT(moe.n_experts)},
    {"K", SIZE, AT(moe.top_k)},
    {"Ie", SIZE, AT(moe.intermediate)},
    {"S", COUNT, AT(moe.shared)},
    {"score_bias", FLAG, AT(moe.score_bias)},
    {"sigmoid", FLAG, AT(moe.router.sigmoid)},
    {"topk_norm", FLAG, AT(moe.router.norm)},
    {"two_best", FLAG, AT(moe.router.two_best)},
    {"groups", SIZE, AT(moe.router.n_groups)},
    {"kept", SIZE, AT(moe.router.kept_groups)},
    {"scale", REAL, AT(moe.router.scale)},
    {NULL, SIZE, 0},
};
#undef AT

/* Finds the key that a definition takes its value from. */
static struct pp_value place_of(struct pp_formulas *f, const char *name)
{
    char key[64];
    struct pp_value at = *f->config;
    if (pp_formula_key(f, name, key))
        pp_value_find(f->config, key, &at);
    return at;
}

/* Reads a member; flags, counts and reals that are not set are 0. */
static int read_member(struct pp_formulas *f, const struct member *k,
                       struct pp_model *m)
{
    char *to = (char *)m + k->at;
    f->missing[0] = '\0';
    double x = pp_formula_of(f, k->name);
    if (k->form == SIZE && isnan(x))
        return pp_value_fail(f->config, "'%s' is missing", f->missing);
    x = isnan(x) ? 0 : x;
    bool whole = k->form <= COUNT;
    if (x < (k->form == SIZE) || x > (whole ? INT_MAX : 1e30) ||
        (whole && fabs(x - floor(x)) > 0)) {
        struct pp_value at = place_of(f, k->name);
        return pp_value_fail(&at, "'%.9g' is no %s", x,
                             whole ? "size" : "positive number");
    }
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

static int check_heads(struct pp_formulas *f, struct pp_model *m)
{
    struct pp_value at = place_of(f, "nh");
    if (m->n_heads % m->n_kv_heads)
        return pp_value_fail(&at,
                             "'%zu' is not a multiple of num_key_value_heads, "
                             "%zu",
                             m->n_heads, m->n_kv_heads);
    at = place_of(f, m->rotary_dim == m->head_dim ? "hd" : "part");
    /* transformers rotates another element with an odd number of them. */
    m->rope.odd = m->rotary_dim % 2;
    m->rotary_dim += m->rotary_dim % 2;
    if (m->rotary_dim > m->head_dim)
        return pp_value_fail(&at,
                             "'%zu' elements of a head of %zu are not pairs",
                             m->rotary_dim, m->head_dim);
    m->rotary_dim = m->rotary_dim < m->head_dim ? m->rotary_dim : 0;
    at = place_of(f, "L");
    return m->n_layers + m->n_nextn > PP_SET_LAYERS
               ? pp_value_fail(&at, "'%zu' layers are too many", m->n_layers)
               : 0;
}

static int check_experts(struct pp_formulas *f, const struct pp_moe *e)
{
    struct pp_value at = place_of(f, "K");
    return e->top_k > e->n_experts
               ? pp_value_fail(&at, "'%zu' is more than there are experts, %zu",
                               e->top_k, e->n_experts)
               : pp_config_check_groups(f->config, e);
}

/* Checks a list with an entry for each layer. */
static int check_list(struct pp_formulas *f, const char *key, size_t layers)
{
    struct pp_value list;
    size_t n = layers;
    if (pp_config_find_set(f->config, key, &list) && pp_value_array(&list, &n))
        return -1;
    return n == layers
               ? 0
               : pp_value_fail(&list, "%zu types for %zu layers", n, layers);
}

static int read_layers(struct pp_formulas *f, struct pp_model *m)
{
    bool experts = pp_family_of(m->architecture)->mlp == PP_PART_EXPERTS;
    if (check_list(f, "layer_types", m->n_layers) ||
        check_list(f, "mlp_layer_types", m->n_layers))
        return -1;
    for (size_t i = 0; i < m->n_layers + m->n_nextn; i++) {
        f->layer = i;
        if (m->window && pp_formula_holds(f, "sliding"))
            pp_layer_set_add(&m->windowed, i);
        if (!pp_formula_holds(f, "rotates"))
            pp_layer_set_add(&m->unrotated, i);
        if (experts && pp_formula_holds(f, "sparse"))
            pp_layer_set_add(&m->moe.layers, i);
    }
    return 0;
}

int pp_config_read_family(const struct pp_value *root, struct pp_model *m)
{
    const struct pp_family *family = pp_family_of(m->architecture);
    struct pp_formulas f = {
        .config = root, .own = family->config, .common = pp_config_definitions};
    bool experts = family->mlp == PP_PART_EXPERTS;
    m->gelu = family->gelu;
    if (read_members(&f, of_all, m) || check_heads(&f, m) ||
        (experts &&
         (read_members(&f, of_experts, m) || check_experts(&f, &m->moe))) ||
        read_layers(&f, m))
        return -1;
    double local = pp_formula_of(&f, "local_theta");
    m->windowed_rope.theta = local > 0 ? local : 0;
    return 0;
}
