/* SPDX-License-Identifier: MIT */
/* recompute_section - "recompute" of a manifest's units, which say what each
 * mode would mean, and of its stages, which name one. */
#include "manifest/sections.h"
#include "plan/recompute.h"

static const char *const mode_keys[] = {"again_flops", "act_bytes",
                                        "passing_bytes", NULL};

static int read_mode(const struct pp_value *at, struct pp_manifest_mode *mode)
{
    struct pp_value flops, act;
    if (pp_value_object(at, mode_keys) ||
        pp_value_member(at, "again_flops", &flops) ||
        pp_value_member(at, "act_bytes", &act) ||
        pp_value_reals(&flops, 0, PP_MAX_COST, 2, mode->again_flops) ||
        pp_value_reals(&act, 0, PP_MAX_COST, PP_N_SAVED_BLOCKS,
                       mode->act_bytes) ||
        pp_value_get_real(at, "passing_bytes", 0, PP_MAX_COST,
                          &mode->passing_bytes))
        return -1;
    mode->known = true;
    return 0;
}

int pp_read_unit_modes(const struct pp_value *at, struct pp_manifest_unit *u)
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
                             "no unit says what '%s' means for it; make the "
                             "stages with ppsplit --recompute %s",
                             name, name);
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

int pp_put_unit_modes(json_t *object, const struct pp_manifest_unit *u)
{
    json_t *modes = NULL;
    int bad = 0;
    for (int r = PP_RECOMPUTE_SELECTIVE; r < PP_N_RECOMPUTES; r++) {
        const struct pp_manifest_mode *m = &u->modes[r];
        if (!m->known)
            continue;
        json_t *o = json_object();
        bad |= pp_put(o, "again_flops", reals(2, m->again_flops));
        bad |= pp_put(o, "act_bytes", reals(PP_N_SAVED_BLOCKS, m->act_bytes));
        bad |= pp_put(o, "passing_bytes", json_real(m->passing_bytes));
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
    bad |= pp_put(object, "again_flops", reals(2, s->again_flops));
    bad |= pp_put(object, "passing_bytes", json_real(s->passing_bytes));
    return bad;
}

void pp_manifest_stage_add(struct pp_manifest_stage *s,
                           const struct pp_manifest_unit *u)
{
    const struct pp_manifest_mode *mode = &u->modes[s->recompute];
    const double *act = mode->known ? mode->act_bytes : u->act_bytes;
    s->params += u->params;
    for (int k = 0; k < 2; k++) {
        s->fwd_flops[k] += u->fwd_flops[k];
        s->again_flops[k] += mode->again_flops[k];
    }
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        s->act_bytes[k] += act[k];
    if (mode->passing_bytes > s->passing_bytes)
        s->passing_bytes = mode->passing_bytes;
    s->out_bytes = u->out_bytes;
    s->state_bytes += u->state_bytes;
}
