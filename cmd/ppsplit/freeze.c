/* SPDX-License-Identifier: MIT */
/* freeze - what is trained: adapters (--lora), or all but the units of
 * --freeze and the units that do not run. */
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "data/tensors/safetensors.h"
#include "manifest/adapter_config.h"
#include "model/frozen.h"
#include "ppsplit.h"
#include "run/parameters/stored.h"

static int set_lora(struct split_job *j, char *item)
{
    struct tool *t = &j->p.t;
    const char *value = item;
    int64_t rank;
    strsep((char **)&value, "=");
    if (!value && !strcmp(item, "rslora")) {
        j->o.lora.rslora = true;
        return 0;
    }
    const struct {
        const char *name, **at;
    } lists[] = {{"targets", &j->o.lora.targets},
                 {"ranks", &j->o.lora.ranks},
                 {"layers", &j->o.lora.layers},
                 {"saved", &j->o.lora.saved}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (value && *value && !strcmp(item, lists[i].name)) {
            *lists[i].at = value;
            return 0;
        }
    if (value && !strcmp(item, "alpha"))
        return pp_parse_real(value, "--lora alpha", 0, PP_MOST_ALPHA,
                             &j->o.lora.alpha, &t->err);
    if (!value || strcmp(item, "rank") != 0)
        return tool_usage(t,
                          "--lora: '%s' is none of rank=N, alpha=X, rslora, "
                          "targets=" PP_LORA_ALL ", targets=NAME+NAME+..., "
                          "ranks=NAME:RANK:ALPHA+..., layers=N+N+... and "
                          "saved=NAME+NAME+...",
                          item);
    int rc = pp_parse_int(value, "--lora rank", 1, INT32_MAX, &rank, &t->err);
    j->o.lora.rank = rc ? 0 : (size_t)rank;
    return rc;
}

/* Takes the settings of an adapter that there is. */
static int take_adapter(struct split_job *j, const char *dir)
{
    bool dropout = false;
    if (pp_adapter_config_read(dir, &j->p.arena, &j->o.lora, &dropout,
                               &j->p.t.err))
        return -1;
    if (dropout)
        tool_say(&j->p.t, TOOL_NOTE,
                 "'%s' asks for dropout by lora_dropout, which pprun does not "
                 "apply",
                 dir);
    return 0;
}

int split_read_lora(struct tool *t, const struct tool_option *o,
                    const char *arg)
{
    struct split_job *j = t->base;
    char *text = pp_arena_strdup(&j->p.arena, arg);
    (void)o;
    if (pp_file_is_dir(arg))
        return take_adapter(j, arg);
    j->o.lora = (struct pp_lora){
        .rank = PP_LORA_RANK, .alpha = PP_LORA_ALPHA, .targets = PP_LORA_ALL};
    for (char *item; (item = strsep(&text, ","));)
        if (set_lora(j, item))
            return -1;
    return 0;
}

/* Counts the base of adapters that pprun leaves in its files. */
static int map_base(struct split_job *j)
{
    struct pp_split_request *q = &j->p.request;
    struct pp_tensors *t;
    if (q->gpu || j->p.trainer != pp_trainers ||
        pp_mesh_divides_weights(&j->p.mesh) || !pp_file_is_dir(j->p.source) ||
        !pp_tensors_exist(j->p.source))
        return 0;
    if (pp_tensors_open(j->p.source, &t, &j->p.t.err))
        return -1;
    size_t *mapped = pp_arena_alloc(&j->p.arena, j->n_units, sizeof *mapped);
    j->p.model.maps = true;
    for (size_t i = 0; i < j->n_units; i++)
        mapped[i] =
            pp_stored_mapped(t, &j->p.model, pp_model_unit(&j->p.model, i),
                             (size_t)j->p.mesh.tp);
    q->mapped = mapped;
    pp_tensors_close(t);
    return 0;
}

int split_set_roles(struct split_job *j)
{
    struct pp_err *err = &j->p.t.err;
    bool *frozen = pp_arena_alloc(&j->p.arena, j->n_units, sizeof *frozen);
    enum pp_role *roles =
        pp_arena_alloc(&j->p.arena, j->n_units, sizeof *roles);
    bool idle = pp_freeze_idle(&j->p.model, frozen);
    if (!idle && !j->o.freeze && !j->o.lora.rank)
        return 0;
    if (j->o.freeze && pp_freeze_units(&j->p.model, j->o.freeze, frozen, err))
        return pp_fail_at(err, "--freeze: ");
    j->p.model.lora = j->o.lora.rank ? &j->o.lora : NULL;
    if (j->p.model.lora && pp_lora_freeze(&j->p.model, frozen, err))
        return pp_fail_at(err, "--lora: ");
    pp_model_roles(&j->p.model, frozen, roles);
    j->p.model.roles = roles;
    return j->p.model.lora ? map_base(j) : 0;
}
