/* SPDX-License-Identifier: MIT */
/* model_section - "model" of a manifest, which has the path of the weights and
 * the units, and "recompute" of units and stages. */
#include "manifest/sections.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "cost/trainer.h"
#include "model/cost.h"
#include "model/frozen.h"

/* The whole numbers of workspace_bytes, in this order, follow `token`. */
static void list_workspace(struct pp_workspace *w,
                           size_t *at[PP_WORKSPACE_NUMBERS - 1])
{
    size_t *const list[PP_WORKSPACE_NUMBERS - 1] = {&w->fixed, &w->row,
                                                    &w->rows, &w->keys};
    memcpy(at, list, sizeof list);
}

int pp_read_workspace(const struct pp_value *at, void *workspace)
{
    struct pp_workspace *w = workspace;
    double numbers[PP_WORKSPACE_NUMBERS];
    size_t *to[PP_WORKSPACE_NUMBERS - 1];
    if (pp_value_reals(at, 0, PP_MAX_COST, PP_WORKSPACE_NUMBERS, numbers))
        return -1;
    list_workspace(w, to);
    w->token = numbers[0];
    for (int i = 1; i < PP_WORKSPACE_NUMBERS; i++)
        *to[i - 1] = pp_size_of(numbers[i]);
    return 0;
}

static void put_workspace(json_t *o, const char *key, const void *workspace)
{
    struct pp_workspace w = *(const struct pp_workspace *)workspace;
    size_t *from[PP_WORKSPACE_NUMBERS - 1];
    if (!w.fixed)
        return;
    list_workspace(&w, from);
    json_t *numbers = json_array();
    json_array_append_new(numbers, json_real(w.token));
    for (int i = 1; i < PP_WORKSPACE_NUMBERS; i++)
        json_array_append_new(numbers, json_integer((json_int_t)*from[i - 1]));
    pp_put(o, key, numbers);
}

static int read_frozen(const struct pp_value *at, void *role)
{
    bool is_frozen = false;
    if (pp_value_bool(at, &is_frozen))
        return -1;
    *(enum pp_role *)role = is_frozen ? PP_ROLE_PASSED : PP_ROLE_TRAINED;
    return 0;
}

static void put_frozen(json_t *o, const char *key, const void *role)
{
    if (*(const enum pp_role *)role != PP_ROLE_TRAINED)
        pp_put(o, key, json_true());
}

#define AT(member) PP_AT(struct pp_plan_mode, member)
#define COST .most = PP_MAX_COST
static const struct pp_doc_field mode_fields[] = {
    {"again_flops", PP_REALS, PP_NEEDED, AT(recompute_flops), COST},
    {"act_bytes", PP_REALS, PP_NEEDED, AT(act_bytes), COST},
    {"passing_bytes", PP_REAL, PP_NEEDED, AT(workspace_bytes), COST},
    {NULL},
};
#undef AT

/* Reads an object whose keys are sets. */
static int read_modes(const struct pp_value *at, void *record)
{
    struct pp_plan_mode *modes = record;
    size_t n = 0;
    const char *key;
    json_t *value;
    if (pp_value_is_object(at))
        return -1;
    json_object_foreach(at->value, key, value)
    {
        struct pp_value member;
        enum pp_recompute r;
        if (!strncmp(key, "x-", 2))
            continue;
        if (!pp_recompute_find(key, &r) || !r)
            return pp_value_fail(at, "'%.*s' is not a known key",
                                 PP_VALUE_QUOTE, key);
        if (n == PP_MOST_MODES)
            return pp_value_fail(at, "it has more than %d sets", PP_MOST_MODES);
        (void)pp_value_find(at, key, &member);
        modes[n].recompute = r;
        if (pp_fields_read(&member, mode_fields, &modes[n++]))
            return -1;
    }
    return 0;
}

static void put_modes(json_t *o, const char *key, const void *record)
{
    const struct pp_plan_mode *modes = record;
    json_t *all = json_object();
    struct pp_err none = {0}; /* the fields are numbers */
    char text[PP_RECOMPUTE_TEXT];
    for (size_t k = 0; k < PP_MOST_MODES && modes[k].recompute; k++)
        pp_put(all, pp_recompute_text(modes[k].recompute, text),
               pp_fields_write(mode_fields, &modes[k], &none));
    if (json_object_size(all))
        pp_put(o, key, all);
    else
        json_decref(all);
}

#define AT(member) PP_AT(struct pp_plan_unit, member)
static const struct pp_doc_field unit_fields[] = {
    {"fqn", PP_STRING, PP_NEEDED, AT(fqn)},
    {"params", PP_INTEGER, PP_NEEDED, AT(costs.params), 0, PP_MAX_COUNT},
    {"fwd_flops", PP_REALS, PP_NEEDED, AT(costs.fwd_flops), COST},
    {"act_bytes", PP_REALS, PP_NEEDED, AT(costs.act_bytes), COST},
    {"out_bytes", PP_REAL, PP_NEEDED, AT(costs.out_bytes), COST},
    {"state_bytes"}, /* read_state reads both */
    {"weight_bytes"},
    {"mapped_bytes", PP_REAL, PP_OPTIONAL, AT(mapped_bytes), COST},
    {"recompute", PP_OWN, PP_OPTIONAL, AT(modes), .read = read_modes,
     .put = put_modes},
    {"workspace_bytes", PP_OWN, PP_OPTIONAL, AT(workspace),
     .read = pp_read_workspace, .put = put_workspace},
    {"slice_bytes", PP_INTEGER, PP_OPTIONAL, AT(workspace.states), 0,
     PP_MAX_COUNT},
    {"host_bytes", PP_INTEGER, PP_OPTIONAL, AT(workspace.told), 0,
     PP_MAX_COUNT},
    {"frozen_flops", PP_REAL, PP_OPTIONAL, AT(frozen_flops), COST},
    {"frozen", PP_OWN, PP_OPTIONAL, AT(role), .read = read_frozen,
     .put = put_frozen},
    {NULL},
};
#undef AT

/* A trainer that is absent is pprun. */
static int read_trainer(const struct pp_value *at, void *trainer)
{
    const char **name = trainer;
    if (pp_value_text(at, name))
        return -1;
    return pp_trainer_find(*name)
               ? 0
               : pp_value_fail(at, "'%.*s' is not a known trainer",
                               PP_VALUE_QUOTE, *name);
}

static void put_trainer(json_t *o, const char *key, const void *trainer)
{
    const char *const *name = trainer;
    if (*name)
        pp_put(o, key, json_string(*name));
}

#define AT(member) PP_AT(struct pp_plan_lora, member)
static const struct pp_doc_field lora_fields[] = {
    {"rank", PP_INTEGER, PP_NEEDED, AT(of.rank), 1, INT32_MAX},
    {"alpha", PP_REAL, PP_NEEDED, AT(of.alpha), .most = PP_MOST_ALPHA},
    {"rslora", PP_FLAG, PP_OPTIONAL, AT(of.rslora)},
    {"targets", PP_STRING, PP_NEEDED, AT(of.targets)},
    {"ranks", PP_STRING, PP_OPTIONAL, AT(of.ranks)},
    {"layers", PP_STRING, PP_OPTIONAL, AT(of.layers)},
    {"saved", PP_STRING, PP_OPTIONAL, AT(of.saved)},
    {NULL},
};
#undef AT

#define AT(member) PP_AT(struct pp_plan_model, member)
static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const estimates[] = {"nothing", "memory", "costs", NULL};
const struct pp_doc_field pp_model_fields[] = {
    {"source", PP_STRING, PP_NEEDED, AT(source)},
    {"architecture", PP_STRING, PP_NEEDED, AT(architecture)},
    {"dtype", PP_STRING, PP_NEEDED, AT(dtype)},
    {"tied", PP_FLAG, PP_ALWAYS, AT(tied)},
    {"params", PP_INTEGER, PP_ALWAYS, AT(params), 0, PP_MAX_COUNT},
    {"units", .fields = unit_fields},
    {"device", PP_CHOICE, PP_OPTIONAL, AT(gpu), .words = devices,
     .list = "'cpu' or 'cuda'"},
    {"trainer", PP_OWN, PP_OPTIONAL, AT(trainer), .read = read_trainer,
     .put = put_trainer},
    {"estimated", PP_CHOICE, PP_OPTIONAL, AT(estimated), .words = estimates,
     .list = "'nothing', 'memory' or 'costs'"},
    {"tensors", PP_INTEGER, PP_OPTIONAL, AT(n_tensors), 0, INT32_MAX},
    {"rotary_dim", PP_INTEGER, PP_OPTIONAL, AT(rotary), 0, INT32_MAX},
    {"widened", PP_INTEGER, PP_OPTIONAL, AT(widened), 0, INT32_MAX},
    {"image_merge", PP_INTEGER, PP_OPTIONAL, AT(image_merge), 1, INT32_MAX},
    {"class_feature", PP_FLAG, PP_OPTIONAL, AT(class_feature)},
    {"feature_layers", PP_INTEGER, PP_OPTIONAL, AT(feature_layers), 2,
     PP_MOST_STATES},
    {"lora", PP_OBJECT, PP_OPTIONAL, AT(lora), .flagged = true,
     .fields = lora_fields},
    {NULL},
};
#undef AT

static bool is_known(const struct pp_plan_model *model, enum pp_recompute r)
{
    for (size_t i = 0; i < model->n_units; i++)
        if (pp_plan_mode(&model->units[i], r))
            return true;
    return false;
}

int pp_check_stage_mode(const struct pp_value *at, const struct pp_manifest *m,
                        enum pp_recompute mode)
{
    struct pp_value member;
    char text[PP_RECOMPUTE_TEXT];
    if (mode == PP_RECOMPUTE_NONE || !m->has_model || is_known(&m->model, mode))
        return 0;
    pp_value_find(at, "recompute", &member);
    return pp_value_fail(&member,
                         "no unit has costs for '%s'; split the model "
                         "again with this recomputation",
                         pp_recompute_text(mode, text));
}

/* All units have state_bytes or none has. */
static int read_state(const struct pp_value *at, bool first,
                      struct pp_plan_model *model, struct pp_plan_unit *u)
{
    struct pp_value member;
    bool there = pp_value_find(at, "state_bytes", &member);
    if (first)
        model->has_state = there;
    if (there && !model->has_state)
        return pp_value_fail(&member, "all units need it, or none");
    if (!model->has_state)
        return 0;
    if (pp_value_get_real(at, "state_bytes", 0, PP_MAX_COST, &u->state_bytes))
        return -1;
    /* Manifests of version 0.2 do not have it. Ranks may divide weights without
     * a gradient, so that the state is less. */
    return pp_value_find(at, "weight_bytes", &member)
               ? pp_value_get_real(at, "weight_bytes", 0, PP_MAX_COST,
                                   &u->weight_bytes)
               : 0;
}

/* Sets the roles of all units from the frozen units. A tied embedding and
 * head are one tensor. */
static int set_roles(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_plan_model *model = &m->model;
    const struct pp_plan_unit *tied[2] = {NULL, NULL};
    enum pp_role *roles =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *roles);
    bool *frozen = pp_arena_alloc(&m->arena, model->n_units, sizeof *frozen);
    size_t n = 0;
    for (size_t i = 0; i < model->n_units; i++) {
        frozen[i] = model->units[i].role != PP_ROLE_TRAINED;
        n += frozen[i];
        if (!strcmp(model->units[i].fqn, "model.embed_tokens"))
            tied[0] = &model->units[i];
        if (!strcmp(model->units[i].fqn, "lm_head"))
            tied[1] = &model->units[i];
    }
    if (n == model->n_units)
        return pp_value_fail(at, "all units are frozen");
    if (model->tied && tied[0] && tied[1] && tied[0]->role != tied[1]->role)
        return pp_value_fail(at,
                             "'%s' and '%s' are tied: both are frozen, or none",
                             tied[0]->fqn, tied[1]->fqn);
    model->has_frozen = n > 0;
    pp_roles_of(frozen, model->n_units, 0, 0, roles);
    for (size_t i = 0; i < model->n_units; i++)
        model->units[i].role = roles[i];
    return 0;
}

static int compare_fqns(const void *a, const void *b)
{
    const struct pp_plan_unit *x = *(const struct pp_plan_unit *const *)a;
    const struct pp_plan_unit *y = *(const struct pp_plan_unit *const *)b;
    int c = strcmp(x->fqn, y->fqn);
    return c ? c : (x > y) - (x < y);
}

/* Sorts the names, so that equal ones are neighbours, and names the later
 * one. */
static int check_unique(const struct pp_value *units, struct pp_manifest *m)
{
    const struct pp_plan_model *model = &m->model;
    const struct pp_plan_unit **sorted =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *sorted);
    for (size_t i = 0; i < model->n_units; i++)
        sorted[i] = &model->units[i];
    qsort(sorted, model->n_units, sizeof *sorted, compare_fqns);
    for (size_t i = 1; i < model->n_units; i++) {
        if (strcmp(sorted[i - 1]->fqn, sorted[i]->fqn))
            continue;
        struct pp_value unit =
            pp_value_item(units, (size_t)(sorted[i] - model->units));
        struct pp_value fqn;
        pp_value_find(&unit, "fqn", &fqn);
        return pp_value_fail(&fqn, "'%.*s' is a duplicate name", PP_VALUE_QUOTE,
                             sorted[i]->fqn);
    }
    return 0;
}

/* Finds the layer for multi-token prediction: it comes after the norm. */
static const char *find_ahead(const struct pp_plan_model *model)
{
    bool after = false;
    for (size_t i = 0; i < model->n_units; i++) {
        const char *fqn = model->units[i].fqn;
        if (after && !strncmp(fqn, "model.layers.", strlen("model.layers.")))
            return fqn;
        after |= !strcmp(fqn, "model.norm");
    }
    return NULL;
}

static int read_units(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_plan_model *model = &m->model;
    if (pp_value_array(at, &model->n_units))
        return -1;
    if (!model->n_units)
        return pp_value_fail(at, "there are no units");
    model->units =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *model->units);
    for (size_t i = 0; i < model->n_units; i++) {
        struct pp_value unit = pp_value_item(at, i);
        if (pp_fields_read(&unit, unit_fields, &model->units[i]) ||
            read_state(&unit, i == 0, model, &model->units[i]))
            return -1;
    }
    model->ahead = find_ahead(model);
    return check_unique(at, m) || set_roles(at, m) ? -1 : 0;
}

/* A tied head has no parameters of its own: its unit's params are the
 * embedding's, which count once. */
static int sum_params(const struct pp_value *at, struct pp_plan_model *model)
{
    uint64_t sum = 0, head = 0;
    bool has_embedding = false;
    for (size_t i = 0; i < model->n_units; i++) {
        const struct pp_plan_unit *u = &model->units[i];
        if (__builtin_add_overflow(sum, u->costs.params, &sum) ||
            sum > PP_MAX_COUNT)
            return pp_value_fail(at, "the sum of params is too large");
        if (!strcmp(u->fqn, "lm_head"))
            head = u->costs.params;
        has_embedding |= !strcmp(u->fqn, "model.embed_tokens");
    }
    model->params = sum - (model->tied && has_embedding ? head : 0);
    return 0;
}

int pp_read_model_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    struct pp_plan_model *model = &m->model;
    struct pp_value member;
    if (pp_fields_read(at, pp_model_fields, model))
        return -1;
    uint64_t given = model->params;
    if (pp_value_member(at, "units", &member) || read_units(&member, m) ||
        sum_params(&member, model))
        return -1;
    if (pp_value_find(at, "params", &member) && given != model->params)
        return pp_value_fail(&member,
                             "'%" PRIu64 "' is not the units' sum, %" PRIu64,
                             given, model->params);
    m->has_model = true;
    return 0;
}

static json_t *write_unit(const struct pp_plan_unit *u, bool has_state,
                          struct pp_err *err)
{
    json_t *o = pp_fields_write(unit_fields, u, err);
    if (has_state)
        pp_put(o, "state_bytes", json_real(u->state_bytes));
    if (has_state && u->weight_bytes > 0)
        pp_put(o, "weight_bytes", json_real(u->weight_bytes));
    return o;
}

json_t *pp_write_model_section(const struct pp_plan_model *model,
                               struct pp_err *err)
{
    json_t *o = pp_fields_write(pp_model_fields, model, err);
    json_t *units = json_array();
    for (size_t i = 0; i < model->n_units; i++)
        json_array_append_new(
            units, write_unit(&model->units[i], model->has_state, err));
    pp_put(o, "units", units);
    return o;
}
