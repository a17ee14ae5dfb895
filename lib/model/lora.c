/* SPDX-License-Identifier: MIT */
#include "model/lora.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/part_shapes.h"
#include "model/parts.h"

const int pp_lora_slots[PP_N_ADAPTED] = {
    PP_P_Q,       PP_P_K,       PP_P_V,       PP_P_O,
    PP_P_GATE,    PP_P_UP,      PP_P_DOWN,    PP_P_Q_A,
    PP_P_Q_B,     PP_P_KV_A,    PP_P_KV_B,    PP_P_DELTA_QKV,
    PP_P_DELTA_Z, PP_P_DELTA_B, PP_P_DELTA_A, PP_P_DELTA_O,
};

bool pp_lora_may_adapt(size_t slot)
{
    for (size_t i = 0; i < PP_N_ADAPTED; i++)
        if (pp_lora_slots[i] == (int)slot)
            return true;
    return false;
}

/* Returns the length of a tensor's name without ".weight". */
static size_t module_length(const char *tensor)
{
    static const char weight[] = ".weight";
    size_t n = strlen(tensor), end = sizeof weight - 1;
    return n > end && !strcmp(tensor + n - end, weight) ? n - end : n;
}

/* Returns whether the name of a tensor's module ends with a word of n
 * characters. */
static bool ends_with(const char *word, size_t n, const char *tensor)
{
    size_t length = module_length(tensor);
    return n > 0 && n <= length && !strncmp(tensor + length - n, word, n);
}

/* Returns whether a word of n characters names the module of a tensor. */
static bool word_names(const char *word, size_t n, const char *tensor)
{
    size_t length = module_length(tensor);
    return ends_with(word, n, tensor) &&
           (n == length || tensor[length - n - 1] == '.');
}

/* Returns the next word of a list, after a word of *n characters, and sets *n;
 * NULL at the end. */
static const char *next_word(const char *word, size_t *n)
{
    word += *n;
    word += *n > 0 && *word == '+';
    *n = strcspn(word, "+");
    return *n > 0 ? word : NULL;
}

#define FOR_WORDS(word, n, list)                           \
    for (const char *word = (n = 0, (list) ? (list) : ""); \
         (word = next_word(word, &(n)));)

/* Returns the number of the layer in a name: the last of its parts that are
 * numbers, or SIZE_MAX. */
static size_t layer_of(const char *name)
{
    size_t layer = SIZE_MAX;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = strspn(dot + 1, "0123456789");
        if (n > 0 && dot[1 + n] == '.')
            layer = strtoul(dot + 1, NULL, 10);
    }
    return layer;
}

static bool is_target(const struct pp_lora *l, const char *tensor)
{
    size_t n, layer = layer_of(tensor);
    bool found = !strcmp(l->targets, PP_LORA_ALL);
    bool here = !l->layers || !*l->layers;
    FOR_WORDS(word, n, l->layers)
    here |= strtoul(word, NULL, 10) == layer;
    FOR_WORDS(word, n, l->targets)
    found |= word_names(word, n, tensor);
    return found && here;
}

/* As in PEFT, the end of a module's name need not be behind a dot. */
static bool is_saved(const struct pp_lora *l, const char *tensor)
{
    size_t n;
    FOR_WORDS(word, n, l->saved)
    if (ends_with(word, n, tensor))
        return true;
    return false;
}

bool pp_lora_word(const char *word, size_t n, struct pp_lora_word *out)
{
    size_t length = strcspn(word, ":");
    const char *at = word + length;
    char *end;
    *out = (struct pp_lora_word){word, length, 0, -1};
    if (length == 0 || length >= n)
        return false;
    if (at[1] >= '1' && at[1] <= '9') {
        out->rank = strtoul(at + 1, &end, 10);
        at = end;
    } else {
        at++;
    }
    if (*at == ':' && at[1] >= '0' && at[1] <= '9') {
        out->alpha = strtod(at + 1, &end);
        at = end;
    }
    return at == word + n && out->rank <= INT32_MAX &&
           out->alpha <= PP_MOST_ALPHA;
}

/* Reports whether a word of a list gives a product what one before it does. */
static bool is_repeated(const char *list, const struct pp_lora_word *w)
{
    struct pp_lora_word x;
    size_t n;
    FOR_WORDS(word, n, list)
    if (word == w->name)
        return false;
    else if (pp_lora_word(word, n, &x) && x.length == w->length &&
             !strncmp(x.name, w->name, x.length) &&
             ((x.rank && w->rank) || (x.alpha >= 0 && w->alpha >= 0)))
        return true;
    return false;
}

int pp_lora_check(const struct pp_lora *l, struct pp_err *err)
{
    struct pp_lora_word w;
    size_t n;
    FOR_WORDS(word, n, l->ranks)
    if (!pp_lora_word(word, n, &w))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' is none of NAME:RANK, NAME:RANK:ALPHA and "
                       "NAME::ALPHA",
                       (int)n, word);
    else if (is_repeated(l->ranks, &w))
        return pp_fail(err, PP_EXIT_INPUT, "'%.*s' is there twice",
                       (int)w.length, word);
    FOR_WORDS(word, n, l->layers)
    if (strspn(word, "0123456789") != n || n > 9)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' is not the number of a layer", (int)n, word);
    return 0;
}

/* Returns the rank and alpha of a product. */
static struct pp_lora_word settings_of(const struct pp_lora *l,
                                       const char *name)
{
    struct pp_lora_word found = {.alpha = -1}, w;
    size_t n;
    FOR_WORDS(word, n, l->ranks)
    if (pp_lora_word(word, n, &w) && word_names(word, w.length, name)) {
        found.rank = found.rank ? found.rank : w.rank;
        found.alpha = found.alpha >= 0 ? found.alpha : w.alpha;
    }
    found.rank = found.rank ? found.rank : l->rank;
    found.alpha = found.alpha >= 0 ? found.alpha : l->alpha;
    return found;
}

size_t pp_lora_rank(const struct pp_lora *l, const char *name)
{
    return settings_of(l, name).rank;
}

double pp_lora_scale(const struct pp_lora *l, const char *name)
{
    const struct pp_lora_word s = settings_of(l, name);
    double rank = (double)s.rank;
    return s.alpha / (l->rslora ? sqrt(rank) : rank);
}

size_t pp_lora_most(const struct pp_lora *l)
{
    struct pp_lora_word w;
    size_t n, most = l->rank;
    FOR_WORDS(word, n, l->ranks)
    if (pp_lora_word(word, n, &w))
        most = w.rank > most ? w.rank : most;
    return most;
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

static void name_saved(struct pp_tensor_info *t)
{
    char name[sizeof t->name];
    snprintf(name, sizeof name, PP_LORA_PREFIX "%.78s", t->name);
    memcpy(t->name, name, sizeof name);
}

bool pp_lora_has(const char *name)
{
    return !strncmp(name, PP_LORA_PREFIX, strlen(PP_LORA_PREFIX));
}

const char *pp_lora_base_name(const char *name)
{
    return pp_lora_has(name) && !strstr(name, PP_LORA_MARK)
               ? name + strlen(PP_LORA_PREFIX)
               : NULL;
}

static void add_adapter(const struct pp_lora *l,
                        const struct pp_tensor_info *of,
                        struct pp_tensor_info ab[2])
{
    bool rows = of->split == PP_SPLIT_ROWS,
         cols = of->split == PP_SPLIT_COLUMNS;
    size_t rank = pp_lora_rank(l, of->name);
    set_matrix(&ab[0], rank, of->cols, cols ? PP_SPLIT_COLUMNS : PP_SPLIT_NONE,
               cols ? of->n_parts : 1);
    set_matrix(&ab[1], of->rows, rank, rows ? PP_SPLIT_ROWS : PP_SPLIT_NONE,
               rows ? of->n_parts : 1);
    ab[0].init = PP_INIT_BY_INPUTS;
    ab[1].init = PP_INIT_ZEROS;
    if (rows)
        memcpy(ab[1].segments, of->segments, sizeof of->segments);
    name_factor(&ab[0], of, 'A');
    name_factor(&ab[1], of, 'B');
}

void pp_lora_tensors(const struct pp_lora *l, struct pp_unit_id u, size_t n,
                     struct pp_tensor_info *table)
{
    bool layer = u.kind == PP_UNIT_LAYER;
    for (size_t slot = 0; slot < n; slot++) {
        struct pp_tensor_info *t = &table[slot];
        bool saved = !layer && t->rows && is_saved(l, t->name);
        t->frozen |= !saved;
        t->by_load = false;
        if (saved)
            name_saved(t);
    }
    for (size_t i = 0; layer && i < PP_N_ADAPTED; i++) {
        const struct pp_tensor_info *of = &table[pp_lora_slots[i]];
        if (of->name[0] && is_target(l, of->name))
            add_adapter(l, of, &table[PP_P_ADAPTERS + 2 * i]);
    }
}

/* --- which units have adapters --- */

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
        bool adapts = u.kind == PP_UNIT_LAYER && pp_lora_may_adapt(slot);
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
    size_t n;
    if (all && m->moe.n_experts)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'" PP_LORA_ALL "' names experts and routers, which "
                       "cannot have adapters; name products of attention");
    FOR_WORDS(word, n, all ? NULL : m->lora->targets)
    if (check_word(m, word, n, err))
        return -1;
    FOR_WORDS(word, n, m->lora->layers)
    if (strtoul(word, NULL, 10) >= m->n_layers)
        return pp_fail(err, PP_EXIT_INPUT, "layer '%.*s' is none of %zu",
                       (int)n, word, m->n_layers);
    return 0;
}

/* Returns whether a module of a unit ends with a word. */
static bool ends_in_unit(const struct pp_model *m, struct pp_unit_id u,
                         const char *word, size_t length)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, table);
    for (size_t slot = 0; slot < n; slot++)
        if (table[slot].rows && ends_with(word, length, table[slot].name))
            return true;
    return false;
}

static int check_saved_word(const struct pp_model *m, const char *word,
                            size_t n, struct pp_err *err)
{
    bool found = false;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        if (!ends_in_unit(m, u, word, n))
            continue;
        if (u.kind == PP_UNIT_LAYER)
            return pp_fail(err, PP_EXIT_INPUT,
                           "modules of layers end with '%.*s'; give the whole "
                           "names of modules outside of layers, such as "
                           "model.norm",
                           (int)n, word);
        if (m->tied && u.kind != PP_UNIT_NORM)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%.*s' cannot be trained beside adapters: the "
                           "embedding and the head are one tensor",
                           (int)n, word);
        found = true;
    }
    return found ? 0
                 : pp_fail(err, PP_EXIT_INPUT,
                           "no module outside of layers ends with '%.*s', as "
                           "embed_tokens or lm_head do",
                           (int)n, word);
}

static int check_saved(const struct pp_model *m, struct pp_err *err)
{
    size_t n;
    FOR_WORDS(word, n, m->lora->saved)
    if (check_saved_word(m, word, n, err))
        return -1;
    return 0;
}

static bool has_trained(const struct pp_model *m, struct pp_unit_id u)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, table);
    bool any = false;
    for (size_t slot = 0; slot < n; slot++)
        any |= table[slot].rows && !table[slot].frozen;
    return any;
}

int pp_lora_freeze(const struct pp_model *m, bool *frozen, struct pp_err *err)
{
    const char *part = m->table                  ? "a table of units"
                       : pp_model_has_encoder(m) ? "a model with an encoder"
                       : m->generator            ? "a model with a generator"
                       : m->n_mtp ? "a layer for multi-token prediction"
                                  : NULL;
    bool any = false;
    if (part)
        return pp_fail(err, PP_EXIT_INPUT, "%s cannot have adapters", part);
    if (pp_lora_check(m->lora, err) || check_targets(m, err) ||
        check_saved(m, err))
        return -1;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        frozen[i] |= !has_trained(m, pp_model_unit(m, i));
        any |= !frozen[i];
    }
    return any ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "no product has an adapter: all are in units that "
                         "are frozen");
}
