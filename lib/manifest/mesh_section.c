/* SPDX-License-Identifier: MIT */
/* mesh_section - "mesh" of a manifest, and that of each of its components. */
#include <inttypes.h>
#include <limits.h>

#include "manifest/sections.h"

/* Reads what ranks that hold the same weights divide. */
static int read_zero(const struct pp_value *at, void *mesh)
{
    struct pp_mesh *x = mesh;
    int64_t zero;
    if (pp_value_int(at, 0, 3, &zero))
        return -1;
    if (zero == 2)
        return pp_value_fail(at, "'2' is not 0, 1 or 3");
    x->whole_state = zero == 0;
    x->divided_weights = zero == 3;
    return 0;
}

static void put_zero(json_t *o, const char *key, const void *mesh)
{
    const struct pp_mesh *x = mesh;
    if (x->whole_state || x->divided_weights)
        pp_put(o, key, json_integer(x->whole_state ? 0 : 3));
}

static int read_order(const struct pp_value *at, void *mesh)
{
    const char *text;
    if (pp_value_text(at, &text))
        return -1;
    return pp_mesh_read_order(mesh, text)
               ? 0
               : pp_value_fail(at,
                               "'%.*s' is not an order of tp, cp, dp and pp, "
                               "such as 'tp-cp-dp-pp'",
                               PP_VALUE_QUOTE, text);
}

static void put_order(json_t *o, const char *key, const void *mesh)
{
    const struct pp_mesh *x = mesh;
    char order[PP_MESH_ORDER_TEXT];
    pp_mesh_write_order(x, order);
    if (x->order)
        pp_put(o, key, json_string(order));
}

#define AT(member) PP_AT(struct pp_mesh, member)
#define SIZE 1, PP_MAX_RANKS, .absent = 1
const struct pp_doc_field pp_mesh_fields[] = {
    {"pp", PP_INTEGER, PP_ALWAYS, AT(pp), SIZE},
    {"dp", PP_INTEGER, PP_ALWAYS, AT(dp), SIZE},
    {"tp", PP_INTEGER, PP_ALWAYS, AT(tp), SIZE},
    {"cp", PP_INTEGER, PP_ALWAYS, AT(cp), SIZE},
    {"ep", PP_INTEGER, PP_ALWAYS, AT(ep), SIZE},
    {"order", PP_OWN, PP_OPTIONAL, .read = read_order, .put = put_order},
    {"zero", PP_OWN, PP_OPTIONAL, .read = read_zero, .put = put_zero},
    {"resident", PP_INTEGER, PP_OPTIONAL, AT(resident), 1, INT_MAX},
    {"experts_over_tp", PP_FLAG, PP_OPTIONAL, AT(experts_over_tp)},
    {"cp_exchange", PP_CHOICE, PP_OPTIONAL, AT(cp_exchange),
     .words = pp_cp_exchange_names, .list = "gather, a2a or ring"},
    {"cp_exact", PP_FLAG, PP_OPTIONAL, AT(cp_exact)},
    {"encoder_tp", PP_INTEGER, PP_OPTIONAL, AT(encoder_tp), 1, INT_MAX},
    {"expert_limit", PP_REAL, PP_OPTIONAL, AT(expert_limit), .least = 1,
     .most = PP_MOST_EXPERT_LIMIT},
    {"expert_imbalance", PP_REAL, PP_OPTIONAL, AT(expert_imbalance), .least = 1,
     .most = PP_MOST_EXPERT_LIMIT},
    {"expert_capacity", PP_REAL, PP_OPTIONAL, AT(expert_capacity),
     .least = PP_LEAST_CAPACITY, .most = PP_MOST_CAPACITY},
    {"expert_drop", PP_CHOICE, PP_OPTIONAL, AT(expert_drop),
     .words = pp_expert_drop_names, .list = "position or probs"},
    {"expert_padding", PP_FLAG, PP_OPTIONAL, AT(expert_padding)},
    {NULL},
};
#undef AT

/* Checks what one key demands of another. */
static int check_keys(const struct pp_value *at, const struct pp_mesh *x)
{
    struct pp_value member;
    int64_t sharers = (int64_t)x->dp * pp_mesh_sharers(x);
    if (pp_value_find(at, "resident", &member) && !x->divided_weights)
        return pp_value_fail(&member, "needs 'zero' 3");
    if (x->expert_capacity <= 0 && (x->expert_drop || x->expert_padding))
        return pp_value_fail(at, "'%s' needs 'expert_capacity'",
                             x->expert_drop ? "expert_drop" : "expert_padding");
    if (pp_value_find(at, "encoder_tp", &member) && sharers % x->encoder_tp)
        return pp_value_fail(&member,
                             "'%d' does not divide the %" PRId64
                             " ranks of dp x tp x cp",
                             x->encoder_tp, sharers);
    return 0;
}

int pp_read_mesh_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    const struct pp_mesh *x = &m->mesh;
    if (pp_fields_read(at, pp_mesh_fields, &m->mesh))
        return -1;
    /* ep divides the ranks of the others and adds none. */
    int64_t n_ranks = (int64_t)x->pp * x->dp;
    if (n_ranks <= INT_MAX)
        n_ranks *= x->tp;
    if (n_ranks <= INT_MAX)
        n_ranks *= x->cp;
    if (n_ranks > INT_MAX)
        return pp_value_fail(at, "pp x dp x tp x cp is too large");
    return check_keys(at, x);
}

bool pp_same_settings(const struct pp_mesh *x, const struct pp_mesh *all)
{
    return x->order == all->order && x->whole_state == all->whole_state &&
           x->divided_weights == all->divided_weights &&
           x->resident == all->resident;
}

bool pp_same_mesh(const struct pp_mesh *x, const struct pp_mesh *all)
{
    struct pp_mesh same = *x;
    same.pp = all->pp;
    return pp_same_settings(x, all) &&
           pp_fields_same(pp_mesh_fields, &same, all);
}
