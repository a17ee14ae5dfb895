/* SPDX-License-Identifier: MIT */
/* model_section - "model" of a manifest, which has the path of the weights and
 * the units, and "recompute" of units and stages. */
#include "manifest/sections.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "model/cost.h"
#include "model/frozen.h"

static const char *const mode_keys[] = {"again_flops", "act_bytes",
                                        "passing_bytes", NULL};

static int read_mode(const struct pp_value *at, struct pp_manifest_mode *mode)
{
    struct pp_value flops, act;
    if (pp_value_object(at, mode_keys) ||
        pp_value_member(at, "again_flops", &flops) ||
        pp_value_member(at, "act_bytes", &act) ||
        pp_value_reals(&flops, 0, PP_MAX_COST, 2, mode->recompute_flops) ||
        pp_value_reals(&act, 0, PP_MAX_COST, PP_N_SAVED_BLOCKS,
                       mode->act_bytes) ||
        pp_value_get_real(at, "passing_bytes", 0, PP_MAX_COST,
                          &mode->workspace_bytes))
        return -1;
    mode->known = true;
    return 0;
}

static int read_modes(const struct pp_value *at, struct pp_manifest_unit *u)
{
    struct pp_value modes, mode;
    if (!pp_value_find(at, "recompute", &modes))
        return 0;
    if (pp_value_object(&modes, &pp_recompute_names[PP_RECOMPUTE_SELECTIVE]))
        return -1;
    for (int r = PP_RECOMPUTE_SELECTIVE; r < PP_N_RECOMPUTES; r++)
        if (pp_value_find(&modes, pp_recompute_names[r], &mode) &&
            read_mode(&mode, &u->modes[r]))
            return -1;
    return 0;
}

static bool is_known(const struct pp_manifest_model *model, enum pp_recompute r)
{
    for (size_t i = 0; i < model->n_units; i++)
        if (model->units[i].modes[r].known)
            return true;
    return false;
}

int pp_read_stage_mode(const struct pp_value *at, const struct pp_manifest *m,
                       struct pp_manifest_stage *s)
{
    struct pp_value mode;
    const char *name;
    if (!pp_value_find(at, "recompute", &mode))
        return 0;
    if (pp_value_text(&mode, &name))
        return -1;
    if (!pp_recompute_find(name, &s->recompute))
        return pp_value_fail(&mode,
                             "'%.*s' is not 'none', 'selective' or 'full'",
                             PP_VALUE_QUOTE, name);
    if (s->recompute && m->has_model && !is_known(&m->model, s->recompute))
        return pp_value_fail(&mode,
                             "no unit has costs for '%s'; split the model "
                             "again with this recomputation",
                             name);
    return 0;
}

static json_t *reals(size_t n, const double *x)
{
    json_t *list = json_array();
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= json_array_append_new(list, json_real(x[i]));
    if (!bad)
        return list;
    json_decref(list);
    return NULL;
}

static int put_modes(json_t *object, const struct pp_manifest_unit *u)
{
    json_t *modes = NULL;
    int bad = 0;
    for (int r = PP_RECOMPUTE_SELECTIVE; r < PP_N_RECOMPUTES; r++) {
        const struct pp_manifest_mode *m = &u->modes[r];
        if (!m->known)
            continue;
        json_t *o = json_object();
        bad |= pp_put(o, "again_flops", reals(2, m->recompute_flops));
        bad |= pp_put(o, "act_bytes", reals(PP_N_SAVED_BLOCKS, m->act_bytes));
        bad |= pp_put(o, "passing_bytes", json_real(m->workspace_bytes));
        if (!modes)
            modes = json_object();
        bad |= pp_put(modes, pp_recompute_names[r], o);
    }
    return modes ? bad | pp_put(object, "recompute", modes) : bad;
}

int pp_put_stage_mode(json_t *object, const struct pp_manifest_stage *s)
{
    if (s->recompute == PP_RECOMPUTE_NONE)
        return 0;
    int bad = pp_put(object, "recompute",
                     json_string(pp_recompute_names[s->recompute]));
    bad |= pp_put(object, "again_flops", reals(2, s->recompute_flops));
    bad |= pp_put(object, "passing_bytes", json_real(s->workspace_bytes));
    return bad;
}

void pp_manifest_stage_add(struct pp_manifest_stage *s,
                           const struct pp_manifest_unit *u)
{
    const struct pp_manifest_mode *mode = &u->modes[s->recompute];
    const double *act = mode->known ? mode->act_bytes : u->act_bytes;
    s->params += u->params;
    s->trained_params += u->role == PP_ROLE_TRAINED ? u->params : 0;
    for (int k = 0; k < 2; k++) {
        s->fwd_flops[k] += u->fwd_flops[k];
        s->recompute_flops[k] += mode->recompute_flops[k];
    }
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        s->act_bytes[k] += act[k];
    if (mode->workspace_bytes > s->workspace_bytes)
        s->workspace_bytes = mode->workspace_bytes;
    s->out_bytes = u->out_bytes;
    s->state_bytes += u->state_bytes;
}

static const char *const model_keys[] = {
    "source",      "architecture",  "dtype",          "device",
    "tied",        "params",        "tensors",        "rotary_dim",
    "image_merge", "class_feature", "feature_layers", "units",
    NULL,
};
static const char *const unit_keys[] = {
    "fqn",       "params",      "fwd_flops",    "act_bytes",
    "out_bytes", "state_bytes", "weight_bytes", "workspace_bytes",
    "recompute", "frozen",      NULL,
};

static int reals_member(const struct pp_value *at, const char *key,
                        bool required, size_t n, double *out)
{
    struct pp_value member;
    if (!pp_value_find(at, key, &member) && !required)
        return 0;
    if (pp_value_member(at, key, &member))
        return -1;
    return pp_value_reals(&member, 0, PP_MAX_COST, n, out);
}

int pp_read_unit_costs(const struct pp_value *at, bool required,
                       const struct pp_unit_costs *c)
{
    struct pp_value member;
    if (required || pp_value_find(at, "params", &member)) {
        int64_t params;
        if (pp_value_get_int(at, "params", 0, PP_MAX_COUNT, &params))
            return -1;
        *c->params = (uint64_t)params;
    }
    if (reals_member(at, "fwd_flops", required, 2, c->fwd_flops) ||
        reals_member(at, "act_bytes", required, PP_N_SAVED_BLOCKS,
                     c->act_bytes))
        return -1;
    if (!required && !pp_value_find(at, "out_bytes", &member))
        return 0;
    return pp_value_get_real(at, "out_bytes", 0, PP_MAX_COST, c->out_bytes);
}

/* All units have state_bytes or none has. */
static int read_state(const struct pp_value *at, bool first,
                      struct pp_manifest_model *model,
                      struct pp_manifest_unit *u)
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
    /* Manifests of version 0.2 do not have it. Ranks may divide the weights of
     * a frozen unit, so that its state is less. */
    return pp_value_find(at, "weight_bytes", &member)
               ? pp_value_get_real(at, "weight_bytes", 0,
                                   u->role == PP_ROLE_TRAINED ? u->state_bytes
                                                              : PP_MAX_COST,
                                   &u->weight_bytes)
               : 0;
}

/* The whole numbers of workspace_bytes, in this order; the first one is
 * `token`.
 */
static void list_workspace(struct pp_workspace *w,
                           size_t *at[PP_WORKSPACE_NUMBERS - 1])
{
    size_t *const list[PP_WORKSPACE_NUMBERS - 1] = {&w->fixed, &w->row,
                                                    &w->rows, &w->keys};
    memcpy(at, list, sizeof list);
}

int pp_read_workspace(const struct pp_value *at, struct pp_workspace *w)
{
    double numbers[PP_WORKSPACE_NUMBERS] = {0};
    size_t *to[PP_WORKSPACE_NUMBERS - 1];
    if (reals_member(at, "workspace_bytes", false, PP_WORKSPACE_NUMBERS,
                     numbers))
        return -1;
    list_workspace(w, to);
    w->token = numbers[0];
    for (int i = 1; i < PP_WORKSPACE_NUMBERS; i++)
        *to[i - 1] = pp_size_of(numbers[i]);
    return 0;
}

static int read_unit(const struct pp_value *at, struct pp_manifest_unit *u)
{
    if (pp_value_object(at, unit_keys) || pp_value_get_text(at, "fqn", &u->fqn))
        return -1;
    const struct pp_unit_costs costs = {&u->params, u->fwd_flops, u->act_bytes,
                                        &u->out_bytes};
    bool is_frozen = false;
    if (pp_value_opt_bool(at, "frozen", &is_frozen))
        return -1;
    u->role = is_frozen ? PP_ROLE_PASSED : PP_ROLE_TRAINED;
    return pp_read_unit_costs(at, true, &costs) ||
                   pp_read_workspace(at, &u->workspace) || read_modes(at, u)
               ? -1
               : 0;
}

/* Sets the roles of all units from those that are frozen. A tied embedding and
 * head are one tensor. */
static int set_roles(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_manifest_model *model = &m->model;
    const struct pp_manifest_unit *tied[2] = {NULL, NULL};
    enum pp_role *roles =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *roles);
    bool *frozen = pp_arena_alloc(&m->arena, model->n_units, sizeof *frozen);
    size_t n = 0;
    if (!roles || !frozen)
        return pp_value_no_memory(at);
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
    const struct pp_manifest_unit *x =
        *(const struct pp_manifest_unit *const *)a;
    const struct pp_manifest_unit *y =
        *(const struct pp_manifest_unit *const *)b;
    int c = strcmp(x->fqn, y->fqn);
    return c ? c : (x > y) - (x < y);
}

/* Sorts the names, so that equal ones are neighbours, and names the later
 * one. */
static int check_unique(const struct pp_value *units, struct pp_manifest *m)
{
    const struct pp_manifest_model *model = &m->model;
    const struct pp_manifest_unit **sorted =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *sorted);
    if (!sorted)
        return pp_value_no_memory(units);
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
static const char *find_ahead(const struct pp_manifest_model *model)
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
    struct pp_manifest_model *model = &m->model;
    if (pp_value_array(at, &model->n_units))
        return -1;
    if (!model->n_units)
        return pp_value_fail(at, "there are no units");
    model->units =
        pp_arena_alloc(&m->arena, model->n_units, sizeof *model->units);
    if (!model->units)
        return pp_value_no_memory(at);
    for (size_t i = 0; i < model->n_units; i++) {
        struct pp_value unit = pp_value_item(at, i);
        if (read_unit(&unit, &model->units[i]) ||
            read_state(&unit, i == 0, model, &model->units[i]))
            return -1;
    }
    model->ahead = find_ahead(model);
    return check_unique(at, m) || set_roles(at, m) ? -1 : 0;
}

/* A tied head has no parameters of its own: its unit's params are the
 * embedding's, which count once. */
static int sum_params(const struct pp_value *at,
                      struct pp_manifest_model *model)
{
    uint64_t sum = 0, head = 0;
    bool has_embedding = false;
    for (size_t i = 0; i < model->n_units; i++) {
        const struct pp_manifest_unit *u = &model->units[i];
        if (__builtin_add_overflow(sum, u->params, &sum) || sum > PP_MAX_COUNT)
            return pp_value_fail(at, "the sum of params is too large");
        if (!strcmp(u->fqn, "lm_head"))
            head = u->params;
        has_embedding |= !strcmp(u->fqn, "model.embed_tokens");
    }
    model->params = sum - (model->tied && has_embedding ? head : 0);
    return 0;
}

/* Reads the keys that sizes besides the units depend on. */
static int read_table_keys(const struct pp_value *at,
                           struct pp_manifest_model *model)
{
    struct pp_value member;
    const char *device = "cpu";
    int64_t tensors = 0, rotary = 0, merge = 0, states = 0;
    if (pp_value_find(at, "device", &member) && pp_value_text(&member, &device))
        return -1;
    model->gpu = !strcmp(device, "cuda");
    if (!model->gpu && strcmp(device, "cpu"))
        return pp_value_fail(&member, "'%.*s' is not 'cpu' or 'cuda'",
                             PP_VALUE_QUOTE, device);
    if (pp_value_opt_int(at, "tensors", 0, INT32_MAX, &tensors) ||
        pp_value_opt_int(at, "rotary_dim", 0, INT32_MAX, &rotary) ||
        pp_value_opt_int(at, "image_merge", 1, INT32_MAX, &merge) ||
        pp_value_opt_bool(at, "class_feature", &model->class_feature) ||
        pp_value_opt_int(at, "feature_layers", 2, PP_MOST_STATES, &states))
        return -1;
    model->n_tensors = (size_t)tensors;
    model->rotary = (size_t)rotary;
    model->image_merge = (size_t)merge;
    model->feature_layers = (size_t)states;
    return 0;
}

int pp_read_model_section(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_manifest_model *model = &m->model;
    struct pp_value member;
    if (pp_value_object(at, model_keys) ||
        pp_value_get_text(at, "source", &model->source) ||
        pp_value_get_text(at, "architecture", &model->architecture) ||
        pp_value_get_text(at, "dtype", &model->dtype) ||
        read_table_keys(at, model) ||
        pp_value_opt_bool(at, "tied", &model->tied) ||
        pp_value_member(at, "units", &member) || read_units(&member, m) ||
        sum_params(&member, model))
        return -1;
    if (pp_value_find(at, "params", &member)) {
        int64_t given;
        if (pp_value_int(&member, 0, PP_MAX_COUNT, &given))
            return -1;
        if ((uint64_t)given != model->params)
            return pp_value_fail(
                &member, "'%" PRId64 "' is not the units' sum, %" PRIu64, given,
                model->params);
    }
    m->has_model = true;
    return 0;
}

int pp_put_costs(json_t *object, uint64_t params, const double fwd_flops[2],
                 const double act_bytes[PP_N_SAVED_BLOCKS], double out_bytes)
{
    json_t *flops = json_array(), *act = json_array();
    int bad = pp_put(object, "params", json_integer((json_int_t)params));
    for (int i = 0; i < 2; i++)
        bad |= json_array_append_new(flops, json_real(fwd_flops[i]));
    for (int i = 0; i < PP_N_SAVED_BLOCKS; i++)
        bad |= json_array_append_new(act, json_real(act_bytes[i]));
    bad |= pp_put(object, "fwd_flops", flops);
    bad |= pp_put(object, "act_bytes", act);
    bad |= pp_put(object, "out_bytes", json_real(out_bytes));
    return bad;
}

static json_t *write_unit(const struct pp_manifest_unit *u, bool has_state,
                          struct pp_err *err)
{
    json_t *o = json_object();
    int bad = pp_put_text(o, "fqn", u->fqn, err);
    bad |= pp_put_costs(o, u->params, u->fwd_flops, u->act_bytes, u->out_bytes);
    if (has_state)
        bad |= pp_put(o, "state_bytes", json_real(u->state_bytes));
    if (has_state && u->weight_bytes > 0)
        bad |= pp_put(o, "weight_bytes", json_real(u->weight_bytes));
    struct pp_workspace w = u->workspace;
    size_t *from[PP_WORKSPACE_NUMBERS - 1];
    json_t *numbers = w.fixed ? json_array() : NULL;
    list_workspace(&w, from);
    if (numbers)
        bad |= json_array_append_new(numbers, json_real(w.token));
    for (int i = 1; numbers && i < PP_WORKSPACE_NUMBERS; i++)
        bad |= json_array_append_new(numbers,
                                     json_integer((json_int_t)*from[i - 1]));
    if (numbers)
        bad |= pp_put(o, "workspace_bytes", numbers);
    bad |= put_modes(o, u);
    if (u->role != PP_ROLE_TRAINED)
        bad |= pp_put(o, "frozen", json_boolean(true));
    return pp_written(o, bad, err);
}

json_t *pp_write_model_section(const struct pp_manifest_model *model,
                               struct pp_err *err)
{
    json_t *o = json_object(), *units = json_array();
    int bad = pp_put_text(o, "source", model->source, err);
    bad |= pp_put_text(o, "architecture", model->architecture, err);
    bad |= pp_put_text(o, "dtype", model->dtype, err);
    if (model->gpu)
        bad |= pp_put(o, "device", json_string("cuda"));
    bad |= pp_put(o, "tied", json_boolean(model->tied));
    bad |= pp_put(o, "params", json_integer((json_int_t)model->params));
    if (model->n_tensors)
        bad |= pp_put(o, "tensors", json_integer((json_int_t)model->n_tensors));
    if (model->rotary)
        bad |= pp_put(o, "rotary_dim", json_integer((json_int_t)model->rotary));
    if (model->image_merge)
        bad |= pp_put(o, "image_merge",
                      json_integer((json_int_t)model->image_merge));
    if (model->class_feature)
        bad |= pp_put(o, "class_feature", json_true());
    if (model->feature_layers > 1)
        bad |= pp_put(o, "feature_layers",
                      json_integer((json_int_t)model->feature_layers));
    for (size_t i = 0; i < model->n_units && !bad; i++)
        bad |= json_array_append_new(
            units, write_unit(&model->units[i], model->has_state, err));
    bad |= pp_put(o, "units", units);
    return pp_written(o, bad, err);
}
