/* SPDX-License-Identifier: MIT */
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/part_shapes.h"
#include "model/parts.h"

const int pp_lora_slots[PP_N_ADAPTED] = {
    PP_P_Q,    PP_P_K,   PP_P_V,   PP_P_O,    PP_P_GATE, PP_P_UP,
    PP_P_DOWN, PP_P_Q_A, PP_P_Q_B, PP_P_KV_A, PP_P_KV_B,
};

double pp_lora_scale(const struct pp_lora *l)
{
    double rank = (double)l->rank;
    return l->alpha / (l->rslora ? sqrt(rank) : rank);
}

/* Returns the length of a tensor's name without ".weight". */
static size_t module_length(const char *tensor)
{
    static const char weight[] = ".weight";
    size_t n = strlen(tensor), end = sizeof weight - 1;
    return n > end && !strcmp(tensor + n - end, weight) ? n - end : n;
}

/* Returns whether a word of n characters names the module of a tensor. */
static bool word_names(const char *word, size_t n, const char *tensor)
{
    size_t length = module_length(tensor);
    if (n == 0 || n > length || strncmp(tensor + length - n, word, n) != 0)
        return false;
    return n == length || tensor[length - n - 1] == '.';
}

static bool is_target(const struct pp_lora *l, const char *tensor)
{
    bool found = !strcmp(l->targets, PP_LORA_ALL);
    for (const char *at = l->targets; *at && !found; at += *at == '+') {
        size_t n = strcspn(at, "+");
        found = word_names(at, n, tensor);
        at += n;
    }
    return found;
}

bool pp_lora_adapts(const struct pp_model *m, struct pp_unit_id u, size_t slot)
{
    const struct pp_names *names = pp_family_of(m->architecture)->names;
    char name[PP_FQN_TEXT];
    if (!names->layer[slot])
        return false;
    snprintf(name, sizeof name, "%.40s.%u.%.43s", names->layers,
             (unsigned)u.layer, names->layer[slot]);
    return is_target(m->lora, name);
}

/* Names A or B. All names are shorter; the bounds are for the compiler's
 * checks. */
static void name_factor(struct pp_tensor_info *t,
                        const struct pp_tensor_info *of, char factor)
{
    int n = (int)module_length(of->name), most = 60;
    snprintf(t->name, sizeof t->name,
             PP_LORA_PREFIX "%.*s" PP_LORA_MARK "%c.weight",
             n < most ? n : most, of->name, factor);
}

static void add_adapter(const struct pp_lora *l,
                        const struct pp_tensor_info *of,
                        struct pp_tensor_info ab[2])
{
    bool rows = of->split == PP_SPLIT_ROWS,
         cols = of->split == PP_SPLIT_COLUMNS;
    set_matrix(&ab[0], l->rank, of->cols,
               cols ? PP_SPLIT_COLUMNS : PP_SPLIT_NONE, cols ? of->n_parts : 1);
    set_matrix(&ab[1], of->rows, l->rank, rows ? PP_SPLIT_ROWS : PP_SPLIT_NONE,
               rows ? of->n_parts : 1);
    ab[0].init = PP_INIT_BY_INPUTS;
    ab[1].init = PP_INIT_ZEROS;
    ab[1].n_segments = rows ? of->n_segments : 0;
    name_factor(&ab[0], of, 'A');
    name_factor(&ab[1], of, 'B');
}

void pp_lora_tensors(const struct pp_lora *l, struct pp_tensor_info *table)
{
    for (size_t slot = 0; slot < PP_N_LAYER_PARAMS; slot++) {
        table[slot].frozen = true;
        table[slot].by_load = false;
    }
    for (size_t i = 0; i < PP_N_ADAPTED; i++) {
        const struct pp_tensor_info *of = &table[pp_lora_slots[i]];
        if (of->name[0] && is_target(l, of->name))
            add_adapter(l, of, &table[PP_P_ADAPTERS + 2 * i]);
    }
}

/* --- which units have adapters --- */

static bool may_adapt(size_t slot)
{
    for (size_t i = 0; i < PP_N_ADAPTED; i++)
        if (pp_lora_slots[i] == (int)slot)
            return true;
    return false;
}

/* Returns 1 if a word names a product of the unit, 0 if it names none, or -1 if
 * it names a tensor that cannot have an adapter. */
static int word_in_unit(const struct pp_model *m, struct pp_unit_id u,
                        const char *word, size_t length)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, table);
    int found = 0;
    for (size_t slot = 0; slot < n; slot++) {
        const struct pp_tensor_info *t = &table[slot];
        bool adapts = u.kind == PP_UNIT_LAYER && may_adapt(slot);
        if (!t->name[0] || t->n_dims != 2 || !word_names(word, length, t->name))
            continue;
        if (!adapts)
            return -1;
        found = 1;
    }
    return found;
}

static int check_word(const struct pp_model *m, const char *word, size_t length,
                      struct pp_err *err)
{
    int found = 0;
    for (size_t i = 0; i < pp_model_n_units(m) && found >= 0; i++) {
        int here = word_in_unit(m, pp_model_unit(m, i), word, length);
        found = here ? here : found;
        /* The name of one product is in one unit. */
        if (here && memchr(word, '.', length))
            break;
    }
    if (found < 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' names experts, a router, the embedding or the "
                       "head, which cannot have adapters",
                       (int)length, word);
    return found ? 0
                 : pp_fail(err, PP_EXIT_INPUT,
                           "'%.*s' names no product of a layer", (int)length,
                           word);
}

static int check_targets(const struct pp_model *m, struct pp_err *err)
{
    bool all = !strcmp(m->lora->targets, PP_LORA_ALL);
    if (all && m->moe.n_experts)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'" PP_LORA_ALL "' names experts and routers, which "
                       "cannot have adapters; name products of attention");
    for (const char *at = m->lora->targets; !all && *at; at += *at == '+') {
        size_t n = strcspn(at, "+");
        if (check_word(m, at, n, err))
            return -1;
        at += n;
    }
    return 0;
}

static bool has_adapter(const struct pp_model *m, struct pp_unit_id u)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    bool any = false;
    if (u.kind != PP_UNIT_LAYER)
        return false;
    pp_unit_params(m, u, table);
    for (size_t i = 0; i < PP_N_ADAPTED; i++)
        any |= table[PP_P_ADAPTERS + 2 * i].name[0] != '\0';
    return any;
}

int pp_lora_freeze(const struct pp_model *m, bool *frozen, struct pp_err *err)
{
    const char *part = m->table                  ? "a table of units"
                       : pp_model_has_encoder(m) ? "a model with an encoder"
                       : m->generator            ? "a model with a generator"
                       : m->delta.key_heads ? "a model with linear attention"
                       : m->n_mtp ? "a layer for multi-token prediction"
                                  : NULL;
    bool any = false;
    if (part)
        return pp_fail(err, PP_EXIT_INPUT, "%s cannot have adapters", part);
    if (check_targets(m, err))
        return -1;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        frozen[i] |= !has_adapter(m, pp_model_unit(m, i));
        any |= !frozen[i];
    }
    return any ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "no product has an adapter: all are in units that "
                         "are frozen");
}
