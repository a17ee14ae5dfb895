/* SPDX-License-Identifier: MIT */
/* planner - reads options, the model and the machine. */
#include "planner/planner.h"

#include <string.h>

#include "base/num.h"
#include "data/tensors/safetensors.h"
#include "manifest/config_json.h"
#include "manifest/machine_json.h"
#include "manifest/outline.h"
#include "run/parameters/weights.h"

/* --- options --- */

const char *const planner_dtype_words[] = {
    "fp32", "fp64", "bf16", "bf16-grads", "bf16-moments", "bf16-state", NULL};

int planner_parse_dtype(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct planner *p = t->base;
    int i = tool_word(t, "--dtype", arg, o->words);
    if (i >= 0)
        p->precision = pp_precision_find(o->words[i]);
    return i < 0 ? -1 : 0;
}

/* Reads one rate, or two with a comma. */
int planner_parse_links(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct planner *p = t->base;
    char *text = pp_arena_strdup(&p->arena, arg);
    char *second = strchr(text, ',');
    if (second)
        *second++ = '\0';
    p->link[1] = 0;
    return pp_parse_rate(text, tool_spell(o).text, &p->link[0], &t->err) ||
                   (second && pp_parse_rate(second, tool_spell(o).text,
                                            &p->link[1], &t->err))
               ? -1
               : 0;
}

/* --- the model --- */

const char *planner_estimates(const struct pp_model *m)
{
    static const char *const what[] = {
        [PP_ESTIMATED_NOTHING] = NULL,
        [PP_ESTIMATED_MEMORY] = "activations, from the sizes of products",
        [PP_ESTIMATED_COSTS] = "operations and activations, from names and "
                               "shapes of tensors"};
    return m->table ? what[m->table->estimated] : NULL;
}

/* Compares weights beside the config with it: without this check, a plan for
 * tensors that do not exist fails later, on every rank. */
static int check_weights(struct planner *p)
{
    struct pp_tensors *tensors;
    if (p->model.table || !pp_file_is_dir(p->source) ||
        !pp_tensors_exist(p->source))
        return 0;
    if (pp_tensors_open(p->source, &tensors, &p->t.err))
        return -1;
    int rc = pp_weights_check(&p->model, tensors, &p->t.err);
    if (rc)
        pp_fail_at(&p->t.err, "%s: ", p->source);
    pp_tensors_close(tensors);
    return rc;
}

/* Reads a model that pprun does not train, for the reason `why`, with the
 * tensors beside it if there are any. */
static int read_outline(struct planner *p, const struct pp_err *why)
{
    struct pp_tensors *tensors = NULL;
    size_t n = 0;
    bool weights = pp_file_is_dir(p->source) && pp_tensors_exist(p->source);
    if (weights && pp_tensors_open(p->source, &tensors, &p->t.err))
        return -1;
    n = tensors ? pp_tensors_n(tensors) : 0;
    struct pp_shape *shapes = pp_arena_alloc(&p->arena, n, sizeof *shapes);
    for (size_t i = 0; i < n; i++) {
        const struct pp_tensor *t = pp_tensors_at(tensors, i);
        shapes[i] = (struct pp_shape){t->name, t->n_dims, t->dims,
                                      t->dtype == PP_DTYPE_I64 ||
                                          t->dtype == PP_DTYPE_I32};
    }
    int rc = pp_outline_read(p->source, shapes, n, !p->text_only, why,
                             &p->arena, &p->model, &p->t.err);
    pp_tensors_close(tensors);
    if (rc)
        return rc;
    if (p->mtp)
        return pp_fail(&p->t.err, PP_EXIT_INPUT,
                       "--mtp: '%s' is a model that pprun does not train, of "
                       "which these layers are left out",
                       p->source);
    tool_say(&p->t, TOOL_NOTE, "estimated: %s", planner_estimates(&p->model));
    if (p->model.table->left_out)
        tool_say(&p->t, TOOL_NOTE, "left out: %s", p->model.table->left_out);
    return 0;
}

int planner_read_model(struct planner *p)
{
    struct pp_err why = {0};
    if (pp_model_read(p->source, &p->model, &why))
        return read_outline(p, &why);
    if (p->mtp && p->model.n_nextn == 0)
        return pp_fail(&p->t.err, PP_EXIT_INPUT,
                       "--mtp: '%s' has no layers for multi-token prediction",
                       p->source);
    p->model.n_mtp = p->mtp ? p->model.n_nextn : 0;
    return check_weights(p);
}

/* --- the trainer and the machine --- */

/* Sets the levels of --link. A single bandwidth is for all ranks. */
static int set_links(struct planner *p)
{
    struct pp_machine *m = &p->machine;
    if (p->link[0] > 0 && !(p->link[1] > 0)) {
        if (p->node)
            return tool_usage(&p->t, "--node needs a --link with two rates, in "
                                     "a node and between nodes");
        m->n_levels = 1;
        m->levels[0] = (struct pp_machine_level){0, p->link[0], 0};
    } else if (p->link[0] > 0) {
        const struct pp_machine *known = pp_machines;
        for (int k = 0; k < 2; k++)
            m->levels[k] = m->n_levels > 1 ? m->levels[k] : known->levels[k];
        m->n_levels = 2;
        m->levels[0].bandwidth = p->link[0];
        m->levels[1].bandwidth = p->link[1];
    }
    if (p->node)
        m->levels[0].size = p->node;
    return 0;
}

void planner_set_trainer(struct planner *p, const char *name)
{
    p->trainer = pp_trainer_find(name);
    if (!tool_given(&p->t, "cp-exchange"))
        p->mesh.cp_exchange = p->trainer->usual_exchange;
}

int planner_choose_machine(struct planner *p)
{
    struct pp_machine *m = &p->machine;
    if (!p->precision)
        p->precision = p->model.dtype ? pp_precision_find(p->model.dtype)
                                      : &pp_precisions[0];
    if ((p->precision->narrow_gradients || p->precision->narrow_moments) &&
        !p->trainer->narrow_state)
        return pp_fail(&p->t.err, PP_EXIT_INPUT,
                       "--dtype %s: %s has gradients and moments in fp32; "
                       "give --trainer megatron",
                       p->precision->name, p->trainer->name);
    p->has_machine |= p->gpu || p->machine_file || p->link[0] > 0;
    if (p->gpu)
        *m = *pp_machine_find(p->gpu);
    if (p->machine_file &&
        pp_machine_read(p->machine_file, &p->arena, m, &p->t.err))
        return -1;
    if (set_links(p))
        return -1;
    if (p->memory_bytes == 0 && (p->gpu || p->machine_file))
        p->memory_bytes = (size_t)m->memory_bytes;
    return 0;
}
