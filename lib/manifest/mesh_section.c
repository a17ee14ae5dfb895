/* SPDX-License-Identifier: MIT */
/* mesh_section - "mesh" of a manifest, and that of each of its components. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "manifest/sections.h"

static const char *const size_keys[] = {"pp", "dp", "tp", "cp", "ep", NULL};
static const char *const mesh_keys[] = {"pp",
                                        "dp",
                                        "tp",
                                        "cp",
                                        "ep",
                                        "order",
                                        "zero",
                                        "experts_over_tp",
                                        "cp_exchange",
                                        "cp_exact",
                                        "resident",
                                        "expert_limit",
                                        "expert_capacity",
                                        "expert_drop",
                                        "expert_padding",
                                        "encoder_tp",
                                        NULL};

/* Reads one of the words, which the text lists. *which is 0 without the key. */
static int read_word(const struct pp_value *at, const char *key,
                     const char *const *words, const char *list, int *which)
{
    struct pp_value member;
    const char *text;
    *which = 0;
    if (!pp_value_find(at, key, &member))
        return 0;
    if (pp_value_text(&member, &text))
        return -1;
    while (words[*which] && strcmp(words[*which], text))
        ++*which;
    return words[*which] ? 0
                         : pp_value_fail(&member, "'%.*s' is not %s",
                                         PP_VALUE_QUOTE, text, list);
}

/* Reads what ranks that hold the same weights divide. */
static int read_zero(const struct pp_value *at, struct pp_mesh *x)
{
    struct pp_value member;
    int64_t zero = 1, resident = 0;
    if (pp_value_opt_int(at, "zero", 0, 3, &zero))
        return -1;
    pp_value_find(at, "zero", &member);
    if (zero == 2)
        return pp_value_fail(&member, "'2' is not 0, 1 or 3");
    x->whole_state = zero == 0;
    x->divided_weights = zero == 3;
    if (!pp_value_find(at, "resident", &member))
        return 0;
    if (zero != 3)
        return pp_value_fail(&member, "needs 'zero' 3");
    if (pp_value_int(&member, 1, INT_MAX, &resident))
        return -1;
    x->resident = (int)resident;
    return 0;
}

static int read_order(const struct pp_value *at, struct pp_mesh *x)
{
    struct pp_value member;
    const char *text;
    if (!pp_value_find(at, "order", &member))
        return 0;
    if (pp_value_text(&member, &text))
        return -1;
    return pp_mesh_read_order(x, text)
               ? 0
               : pp_value_fail(&member,
                               "'%.*s' is not an order of tp, cp, dp and pp, "
                               "such as 'tp-cp-dp-pp'",
                               PP_VALUE_QUOTE, text);
}

/* Reads how context-parallel ranks exchange keys and values. */
static int read_exchange(const struct pp_value *at, struct pp_mesh *x)
{
    int word;
    if (read_word(at, "cp_exchange", pp_cp_exchange_names,
                  "gather, a2a or ring", &word))
        return -1;
    x->cp_exchange = (enum pp_cp_exchange)word;
    return pp_value_opt_bool(at, "cp_exact", &x->cp_exact);
}

/* Reads how many rows an expert takes, and which ones it drops. */
static int read_expert_rows(const struct pp_value *at, struct pp_mesh *x)
{
    int64_t limit = 0;
    int word;
    if (pp_value_opt_int(at, "expert_limit", 1, INT_MAX, &limit) ||
        pp_value_opt_real(at, "expert_capacity", PP_LEAST_CAPACITY,
                          PP_MOST_CAPACITY, &x->expert_capacity) ||
        read_word(at, "expert_drop", pp_expert_drop_names, "position or probs",
                  &word) ||
        pp_value_opt_bool(at, "expert_padding", &x->expert_padding))
        return -1;
    x->expert_limit = (int)limit;
    x->expert_drop = (enum pp_expert_drop)word;
    if (x->expert_capacity <= 0 && (x->expert_drop || x->expert_padding))
        return pp_value_fail(at, "'%s' needs 'expert_capacity'",
                             x->expert_drop ? "expert_drop" : "expert_padding");
    return 0;
}

static int read_encoder_tp(const struct pp_value *at, struct pp_mesh *x)
{
    struct pp_value member;
    int64_t ranks = (int64_t)x->dp * pp_mesh_sharers(x), encoder_tp = 0;
    if (!pp_value_find(at, "encoder_tp", &member))
        return 0;
    if (pp_value_int(&member, 1, INT_MAX, &encoder_tp))
        return -1;
    if (ranks % encoder_tp)
        return pp_value_fail(&member,
                             "'%d' does not divide the %" PRId64
                             " ranks of dp x tp x cp",
                             (int)encoder_tp, ranks);
    x->encoder_tp = (int)encoder_tp;
    return 0;
}

int pp_read_mesh_section(const struct pp_value *at, struct pp_manifest *m)
{
    int *const sizes[] = {&m->mesh.pp, &m->mesh.dp, &m->mesh.tp, &m->mesh.cp,
                          &m->mesh.ep};
    if (pp_value_object(at, mesh_keys))
        return -1;
    int64_t n_ranks = 1;
    for (size_t i = 0; size_keys[i]; i++) {
        int64_t v = 1;
        if (pp_value_opt_int(at, size_keys[i], 1, PP_MAX_RANKS, &v))
            return -1;
        *sizes[i] = (int)v;
        /* ep divides the ranks of the others and adds none. */
        n_ranks *= strcmp(size_keys[i], "ep") ? v : 1;
        if (n_ranks > INT_MAX)
            return pp_value_fail(at, "pp x dp x tp x cp is too large");
    }
    struct pp_mesh *x = &m->mesh;
    return read_zero(at, x) || read_order(at, x) || read_exchange(at, x) ||
                   read_expert_rows(at, x) || read_encoder_tp(at, x)
               ? -1
               : pp_value_opt_bool(at, "experts_over_tp", &x->experts_over_tp);
}

bool pp_same_settings(const struct pp_mesh *x, const struct pp_mesh *all)
{
    return x->order == all->order && x->whole_state == all->whole_state &&
           x->divided_weights == all->divided_weights &&
           x->resident == all->resident;
}

bool pp_same_mesh(const struct pp_mesh *x, const struct pp_mesh *all)
{
    return pp_same_settings(x, all) && x->dp == all->dp && x->tp == all->tp &&
           x->cp == all->cp && x->ep == all->ep &&
           x->experts_over_tp == all->experts_over_tp &&
           x->expert_limit == all->expert_limit &&
           x->expert_capacity == all->expert_capacity &&
           x->expert_drop == all->expert_drop &&
           x->expert_padding == all->expert_padding &&
           x->encoder_tp == all->encoder_tp &&
           x->cp_exchange == all->cp_exchange && x->cp_exact == all->cp_exact;
}

json_t *pp_write_mesh_section(const struct pp_mesh *mesh, struct pp_err *err)
{
    json_t *o = json_object();
    int bad = pp_put(o, "pp", json_integer(mesh->pp));
    bad |= pp_put(o, "dp", json_integer(mesh->dp));
    bad |= pp_put(o, "tp", json_integer(mesh->tp));
    bad |= pp_put(o, "cp", json_integer(mesh->cp));
    bad |= pp_put(o, "ep", json_integer(mesh->ep));
    if (mesh->order) {
        char order[PP_MESH_ORDER_TEXT];
        pp_mesh_write_order(mesh, order);
        bad |= pp_put(o, "order", json_string(order));
    }
    if (mesh->whole_state || mesh->divided_weights)
        bad |= pp_put(o, "zero", json_integer(mesh->whole_state ? 0 : 3));
    if (mesh->resident)
        bad |= pp_put(o, "resident", json_integer(mesh->resident));
    if (mesh->experts_over_tp)
        bad |= pp_put(o, "experts_over_tp", json_true());
    if (mesh->cp_exchange)
        bad |= pp_put(o, "cp_exchange",
                      json_string(pp_cp_exchange_names[mesh->cp_exchange]));
    if (mesh->cp_exact)
        bad |= pp_put(o, "cp_exact", json_true());
    if (mesh->encoder_tp)
        bad |= pp_put(o, "encoder_tp", json_integer(mesh->encoder_tp));
    if (mesh->expert_limit)
        bad |= pp_put(o, "expert_limit", json_integer(mesh->expert_limit));
    if (mesh->expert_capacity > 0)
        bad |= pp_put(o, "expert_capacity", json_real(mesh->expert_capacity));
    if (mesh->expert_drop)
        bad |= pp_put(o, "expert_drop",
                      json_string(pp_expert_drop_names[mesh->expert_drop]));
    if (mesh->expert_padding)
        bad |= pp_put(o, "expert_padding", json_true());
    return pp_written(o, bad, err);
}
