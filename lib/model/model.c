/* SPDX-License-Identifier: MIT */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "model/parts.h"
#include "model/vision.h"

const char *pp_architecture_name(enum pp_architecture a)
{
    return pp_family_of(a)->architecture;
}

const char *pp_model_architecture(const struct pp_model *m)
{
    if (m->table)
        return m->table->architecture;
    if (pp_model_has_encoder(m))
        return pp_vision_name(m->encoders[0].kind);
    return m->scores ? pp_family_of(m->architecture)->scoring
                     : pp_architecture_name(m->architecture);
}

size_t pp_component_n_units(const struct pp_model *m, size_t component)
{
    if (component == PP_GENERATOR)
        return m->generator ? pp_model_n_units(m->generator) : 0;
    if (component != PP_LANGUAGE)
        return pp_vision_n_units(&m->encoders[component]);
    return m->table ? m->table->n : m->n_layers + 3 + m->n_mtp + m->head_stages;
}

size_t pp_component_first(const struct pp_model *m, size_t component)
{
    size_t n = 0;
    for (size_t c = 0; c < component; c++)
        n += pp_component_n_units(m, c);
    return n;
}

size_t pp_model_n_units(const struct pp_model *m)
{
    return pp_component_first(m, PP_N_COMPONENTS);
}

size_t pp_model_n_first(const struct pp_model *m)
{
    return pp_component_first(m, PP_LANGUAGE) +
           (m->table ? m->table->n_first : 1);
}

size_t pp_model_index(const struct pp_model *m, struct pp_unit_id u)
{
    size_t first = pp_component_first(m, u.component);
    if (u.component == PP_GENERATOR) {
        const struct pp_model *g = pp_unit_model(m, &u);
        return first + pp_model_index(g, u);
    }
    if (pp_unit_is_vision(u))
        return first + pp_vision_index(pp_unit_encoder(m, u), u);
    if (m->table)
        return first + u.layer +
               (u.kind == PP_UNIT_LAYER ? m->table->n_first : 0);
    return first + (u.kind == PP_UNIT_EMBED ? 0
                    : u.kind == PP_UNIT_LAYER
                        ? 1 + u.layer + pp_unit_is_mtp(m, u)
                    : u.kind == PP_UNIT_NORM ? 1 + m->n_layers
                    : u.kind == PP_UNIT_HEAD
                        ? 2 + m->n_layers + m->n_mtp + u.layer
                        : 2 + m->n_layers + m->n_mtp + m->head_stages);
}

/* Returns the unit of the language model with a number among its own. */
static struct pp_unit_id language_unit(const struct pp_model *m, size_t index)
{
    if (m->table) {
        size_t at = pp_component_first(m, PP_LANGUAGE) + index;
        enum pp_unit_kind kind = m->table->rows[at].kind;
        size_t first = kind == PP_UNIT_LAYER ? m->table->n_first : 0;
        return (struct pp_unit_id){kind, index - first};
    }
    if (index == 0)
        return (struct pp_unit_id){PP_UNIT_EMBED, 0};
    if (index <= m->n_layers)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - 1};
    if (index == m->n_layers + 1)
        return (struct pp_unit_id){PP_UNIT_NORM, 0};
    if (index < m->n_layers + 2 + m->n_mtp)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - 2};
    size_t words = index - (m->n_layers + 2 + m->n_mtp);
    return words && words == m->head_stages
               ? (struct pp_unit_id){PP_UNIT_LOSS, 0}
               : (struct pp_unit_id){PP_UNIT_HEAD, words};
}

struct pp_unit_id pp_model_unit(const struct pp_model *m, size_t index)
{
    size_t c = 0;
    for (size_t n; index >= (n = pp_component_n_units(m, c)); c++)
        index -= n;
    struct pp_unit_id u = c == PP_GENERATOR ? pp_model_unit(m->generator, index)
                          : c == PP_LANGUAGE
                              ? language_unit(m, index)
                              : pp_vision_unit(&m->encoders[c], index);
    u.component = c;
    return u;
}

/* The names of heads. */
#define WORDS "lm_head"
#define REWARDS "score"

bool pp_fqn_is_head_part(const char *fqn)
{
    const size_t n = strlen(WORDS ".");
    return !strncmp(fqn, WORDS ".", n) && fqn[n] &&
           !fqn[n + strspn(fqn + n, "0123456789")];
}

bool pp_fqn_is_head(const char *fqn)
{
    if (!strncmp(fqn, PP_GENERATOR_PREFIX, strlen(PP_GENERATOR_PREFIX)))
        fqn += strlen(PP_GENERATOR_PREFIX);
    return pp_fqn_is_head_part(fqn) || !strcmp(fqn, WORDS) ||
           !strcmp(fqn, REWARDS);
}

void pp_unit_fqn(struct pp_unit_id u, char buf[PP_FQN_TEXT])
{
    switch (u.kind) {
    case PP_UNIT_EMBED:
        strcpy(buf, "model.embed_tokens");
        break;
    case PP_UNIT_LAYER:
        snprintf(buf, PP_FQN_TEXT, "model.layers.%zu", u.layer);
        break;
    case PP_UNIT_NORM:
        strcpy(buf, "model.norm");
        break;
    case PP_UNIT_LOSS:
        strcpy(buf, "loss");
        break;
    default:
        strcpy(buf, WORDS);
        break;
    }
}

void pp_model_fqn(const struct pp_model *m, struct pp_unit_id u,
                  char buf[PP_FQN_TEXT])
{
    if (u.component == PP_GENERATOR) {
        const size_t n = strlen(PP_GENERATOR_PREFIX);
        char name[PP_FQN_TEXT];
        m = pp_unit_model(m, &u);
        pp_model_fqn(m, u, name);
        snprintf(buf, PP_FQN_TEXT, "%s%.*s", PP_GENERATOR_PREFIX,
                 (int)(PP_FQN_TEXT - 1 - n), name);
        return;
    }
    if (m->table)
        snprintf(buf, PP_FQN_TEXT, "%s", pp_unit_row(m, u)->fqn);
    else if (pp_unit_is_vision(u))
        pp_vision_fqn(m, u, buf);
    else if (m->scores && u.kind == PP_UNIT_HEAD)
        strcpy(buf, REWARDS);
    else if (m->head_stages && u.kind == PP_UNIT_HEAD)
        snprintf(buf, PP_FQN_TEXT, WORDS ".%zu", u.layer);
    else
        pp_unit_fqn(u, buf);
}

bool pp_unit_by_fqn(const struct pp_model *m, const char *fqn,
                    struct pp_unit_id *u)
{
    char name[PP_FQN_TEXT];
    size_t n = pp_model_n_units(m), first = 0, last = n;
    size_t layer;
    /* A layer is found by its number, without a search. */
    if (!m->table && sscanf(fqn, "model.layers.%zu", &layer) == 1) {
        first = n;
        if (layer < m->n_layers + m->n_mtp)
            first = pp_model_index(
                m, (struct pp_unit_id){PP_UNIT_LAYER, layer, PP_LANGUAGE});
        last = first < n ? first + 1 : n;
    }
    for (size_t i = first; i < last; i++) {
        *u = pp_model_unit(m, i);
        pp_model_fqn(m, *u, name);
        if (!strcmp(name, fqn))
            return true;
    }
    return false;
}

size_t pp_model_rotary(const struct pp_model *m, bool windowed)
{
    if (m->table || pp_family_of(m->architecture)->names->positions)
        return 0;
    return m->mla.kv_rank  ? m->mla.rope_dim
           : m->rotary_dim ? m->rotary_dim
                           : pp_model_heads(m, windowed).qk;
}

size_t pp_model_rope_width(const struct pp_model *m)
{
    bool windowed = m->windowed_rope.theta > 0;
    bool more = windowed || m->query_beta > 0;
    return pp_model_rotary(m, false) +
           (more ? pp_model_rotary(m, windowed) : 0);
}

size_t pp_model_longest(const struct pp_model *m)
{
    bool dynamic = m->rope.type == PP_ROPE_DYNAMIC ||
                   m->windowed_rope.type == PP_ROPE_DYNAMIC;
    if (m->rope.type == PP_ROPE_LONGROPE)
        return (size_t)m->rope.original_max_position;
    return pp_model_rotary(m, false) && !dynamic ? SIZE_MAX : m->max_position;
}

bool pp_unit_rotates(const struct pp_model *m, struct pp_unit_id u)
{
    return pp_model_rotary(m, false) &&
           !pp_layer_set_has(&m->unrotated, u.layer);
}

enum pp_role pp_unit_role(const struct pp_model *m, struct pp_unit_id u)
{
    m = pp_unit_model(m, &u);
    enum pp_role role =
        m->roles ? m->roles[pp_model_index(m, u)] : PP_ROLE_TRAINED;
    return role == PP_ROLE_TRAINED && !pp_unit_runs(m, u) ? PP_ROLE_PASSED
                                                          : role;
}

size_t pp_model_n_tensors(const struct pp_model *m)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = 0;
    for (size_t u = 0; !m->table && u < pp_model_n_units(m); u++) {
        size_t n_rows = pp_unit_params(m, pp_model_unit(m, u), table);
        n += pp_table_tensors(table, n_rows);
    }
    return n;
}

const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u)
{
    return &m->table->rows[pp_model_index(m, u)];
}

bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u)
{
    return m->table ? pp_fqn_is_head(pp_unit_row(m, u)->fqn)
                    : u.kind == PP_UNIT_HEAD;
}

/* All widths differ, so that a test finds a buffer of the wrong width. */
enum { HIDDEN = 20, INTERMEDIATE = 28, HEAD_DIM = 6, VOCAB = 61, WINDOW = 4 };
enum { ROTARY_DIM = 4 };
enum { EXPERTS = 5, TOP_K = 3, EXPERT_WIDTH = 12, SHARED_WIDTH = 16 };

enum { Q_RANK = 9, KV_RANK = 7, NOPE_DIM = 3, ROPE_DIM = 4, V_DIM = 5 };
enum { GROUPS = 3, GROUP = 2 }; /* of two experts each */

/* Reports whether tensor-parallel ranks can divide so many key heads. */
static bool divides_heads(size_t tp, size_t n_kv_heads, size_t ratio)
{
    return n_kv_heads * ratio % tp == 0 &&
           (n_kv_heads % tp == 0 || tp % n_kv_heads == 0);
}

static void make_latent(struct pp_model *m)
{
    struct pp_mla *a = &m->mla;
    a->q_rank = pp_least(a->q_rank, Q_RANK);
    a->kv_rank = pp_least(a->kv_rank, KV_RANK);
    a->nope_dim = pp_least(a->nope_dim, NOPE_DIM);
    a->rope_dim = pp_least(a->rope_dim, ROPE_DIM);
    a->v_dim = pp_least(a->v_dim, V_DIM);
    m->head_dim = a->kv_rank ? a->nope_dim + a->rope_dim : m->head_dim;
}

/* Keeps the query heads per key head of layers with a window, if there are so
 * many heads. Their widths are the widths of the other layers. */
static void make_windowed(struct pp_model *m)
{
    struct pp_heads *w = &m->windowed_heads, all = pp_model_heads(m, false);
    if (!w->n)
        return;
    size_t ratio = w->n / w->n_kv;
    w->n = all.n;
    w->n_kv = all.n % ratio ? all.n_kv : all.n / ratio;
    w->qk = all.qk;
    w->v = all.v;
}

static void make_few_experts(struct pp_moe *e)
{
    struct pp_router *r = &e->router;
    bool grouped = r->n_groups > 1 && e->n_experts >= GROUPS * GROUP;
    if (grouped) {
        r->n_groups = GROUPS;
        r->kept_groups = pp_least(r->kept_groups, GROUPS - 1);
    }
    if (grouped || r->n_groups <= 1) {
        e->n_experts =
            grouped ? GROUPS * GROUP : pp_least(e->n_experts, EXPERTS);
        e->top_k = pp_least(e->top_k, grouped ? GROUP * r->kept_groups : TOP_K);
    }
}

void pp_model_synthetic(struct pp_model *m, size_t tp, size_t share)
{
    size_t ratio = m->n_heads / m->n_kv_heads;
    size_t n = ratio > 8 ? 1 : pp_least(m->n_kv_heads, 2);
    n = n < share ? share : n;
    m->n_kv_heads =
        divides_heads(tp, n, ratio) ? n : pp_least(m->n_kv_heads, tp);
    m->n_heads = m->n_kv_heads * ratio;
    m->head_dim = pp_least(m->head_dim, HEAD_DIM);
    m->v_dim = pp_least(m->v_dim, V_DIM);
    m->rotary_dim = pp_least(m->rotary_dim, ROTARY_DIM);
    make_latent(m);
    make_windowed(m);
    m->hidden = pp_least(m->hidden, HIDDEN);
    m->intermediate = pp_round_up(pp_least(m->intermediate, INTERMEDIATE), tp);
    m->moe.intermediate =
        pp_round_up(pp_least(m->moe.intermediate, EXPERT_WIDTH), tp);
    m->moe.shared = pp_round_up(pp_least(m->moe.shared, SHARED_WIDTH), tp);
    make_few_experts(&m->moe);
    m->vocab = pp_least(m->vocab, tp < VOCAB ? VOCAB : tp);
    m->window = pp_least(m->window, WINDOW);
    m->query_scalar = m->query_scalar > 0 ? (double)m->head_dim : 0;
    m->init_range = 1 / sqrt((double)m->hidden);
}
