/* SPDX-License-Identifier: MIT */
#include "split/torchtitan.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

void pp_torchtitan_fqn(struct pp_unit_id u, enum pp_torchtitan_names names,
                       char buf[PP_FQN_TEXT])
{
    const char *name = names == PP_TORCHTITAN_OUTPUT ? "output" : "lm_head";
    if (u.kind == PP_UNIT_LAYER) {
        snprintf(buf, PP_FQN_TEXT, "layers.%zu", u.layer);
        return;
    }
    if (u.kind == PP_UNIT_EMBED)
        name = "tok_embeddings";
    else if (u.kind == PP_UNIT_NORM)
        name = "norm";
    snprintf(buf, PP_FQN_TEXT, "%s", name);
}

bool pp_torchtitan_by_fqn(const struct pp_model *m, const char *fqn,
                          struct pp_unit_id *u)
{
    char name[PP_FQN_TEXT];
    size_t layer, n = pp_model_n_units(m), first = 0, last = n;
    if (m->table) /* a table has its own names */
        return false;
    if (sscanf(fqn, "layers.%zu", &layer) == 1) {
        first = n;
        if (layer < m->n_layers + m->n_mtp)
            first = pp_model_index(
                m, (struct pp_unit_id){PP_UNIT_LAYER, layer, PP_LANGUAGE});
        last = first < n ? first + 1 : n;
    }
    for (size_t i = first; i < last; i++) {
        *u = pp_model_unit(m, i);
        for (int names = 0; names < 2; names++) {
            pp_torchtitan_fqn(*u, (enum pp_torchtitan_names)names, name);
            if (!strcmp(name, fqn))
                return true;
        }
    }
    return false;
}

/* Returns true if n stages can be scheduled and split. */
static bool works(const struct pp_torchtitan *t, size_t effective, size_t n)
{
    size_t base = effective / n;
    if (n % t->n_ranks)
        return false;
    if (t->kind == PP_STAGES_SINGLE && n != t->n_ranks)
        return false;
    if (t->kind == PP_STAGES_MULTI && n < 2 * t->n_ranks)
        return false;
    return n == 1 || (t->input_weight <= base && t->output_weight <= base);
}

/* Writes the layers per stage that work: "1, 3-5, 34 or more", or "none". */
static void list_values(const struct pp_torchtitan *t, size_t effective,
                        size_t max_stages, char *buf, size_t bytes)
{
    size_t most = effective < max_stages ? effective : max_stages, n = 0;
    snprintf(buf, bytes, "none");
    for (size_t stages = most - most % t->n_ranks; stages > 0;
         stages -= t->n_ranks) {
        size_t from = pp_divide_up(effective, stages);
        size_t to = stages > 1 ? pp_divide_up(effective, stages - 1) - 1 : 0;
        if (!works(t, effective, stages) || (stages > 1 && to < from))
            continue;
        if (n + 80 > bytes) {
            snprintf(buf + n, bytes - n, ", ...");
            return;
        }
        n += (size_t)snprintf(buf + n, bytes - n, "%s%zu", n ? ", " : "", from);
        if (stages == 1)
            n += (size_t)snprintf(buf + n, bytes - n, " or more");
        else if (to > from)
            n += (size_t)snprintf(buf + n, bytes - n, "-%zu", to);
    }
}

int pp_torchtitan_stages(const struct pp_torchtitan *t, size_t max_stages,
                         size_t *n_stages, struct pp_err *err)
{
    char values[256];
    const char *wrong = NULL;
    if (t->n_layers == 0)
        return pp_fail(err, PP_EXIT_INPUT, "the model has no layers");
    *n_stages = t->kind == PP_STAGES_MULTI ? 2 * t->n_ranks : t->n_ranks;
    if (t->layers_per_stage == 0)
        return 0;
    size_t effective = t->n_layers + t->input_weight + t->output_weight;
    size_t n = pp_divide_up(effective, t->layers_per_stage);
    size_t exact = n;
    if (t->round == PP_ROUND_UP)
        n = pp_divide_up(n, t->n_ranks) * t->n_ranks;
    else if (t->round == PP_ROUND_DOWN)
        n -= n % t->n_ranks;
    *n_stages = n;
    if (n == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "layers per stage: %zu makes %zu stages, which rounds "
                       "down to none on %zu ranks",
                       t->layers_per_stage, exact, t->n_ranks);
    if (n % t->n_ranks)
        wrong = "which do not divide by";
    else if (t->kind == PP_STAGES_SINGLE && n != t->n_ranks)
        wrong = "which is more than one on each of";
    else if (t->kind == PP_STAGES_MULTI && n < 2 * t->n_ranks)
        wrong = "which is fewer than two on each of";
    else if (n > max_stages)
        wrong = "which is too many for";
    if (!wrong)
        return 0;
    list_values(t, effective, max_stages, values, sizeof values);
    return pp_fail(
        err, PP_EXIT_INPUT,
        "layers per stage: %zu makes %zu stages, %s %zu ranks; values "
        "that work: %s",
        t->layers_per_stage, n, wrong, t->n_ranks, values);
}
