/* SPDX-License-Identifier: MIT */
#include "manifest/adapter_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json_writer.h"
#include "manifest/config_values.h"
#include "model/parts.h"

/* --- reading --- */

/* Keys that change the adapters if they are set: not null, false, empty or
 * "none". Files have other keys too, which change nothing for us. */
static const char *const unknown[] = {
    "alora_invocation_tokens",
    "arrow_config",
    "bias",
    "corda_config",
    "exclude_modules",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
};

/* First values for which PEFT changes the base. */
static const char *const changing[] = {"corda", "loftq", "lora_ga", "olora",
                                       "pissa"};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static bool is_set(const json_t *v)
{
    if (json_is_string(v))
        return strcmp(json_string_value(v), "none") != 0;
    return !json_is_null(v) && !json_is_false(v) &&
           !(json_is_object(v) && !json_object_size(v)) &&
           !(json_is_array(v) && !json_array_size(v));
}

static int check_known(const struct pp_value *root)
{
    struct pp_value at;
    for (size_t i = 0; i < LENGTH(unknown); i++)
        if (pp_value_find(root, unknown[i], &at) && is_set(at.value))
            return pp_value_fail(&at, "adapters of this kind are not known");
    if (!pp_config_find_set(root, "init_lora_weights", &at) ||
        !json_is_string(at.value))
        return 0;
    const char *how = json_string_value(at.value);
    for (size_t i = 0; i < LENGTH(changing); i++)
        if (!strncmp(how, changing[i], strlen(changing[i])))
            return pp_value_fail(&at,
                                 "'%.*s' changes the base; save the adapter "
                                 "with "
                                 "path_initial_model_for_weight_conversion",
                                 PP_VALUE_QUOTE, how);
    return 0;
}

/* Appends a word to a list. */
static void add_word(struct pp_arena *a, const char **list, const char *word)
{
    *list = pp_arena_printf(a, "%s%s%s", *list ? *list : "", *list ? "+" : "",
                            word);
}

/* Joins a list of names of modules. Sets *out to NULL if it is empty. */
static int read_names(const struct pp_value *at, struct pp_arena *a,
                      const char **out)
{
    const char *name;
    size_t n;
    *out = NULL;
    if (pp_value_array(at, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (pp_value_text(&item, &name))
            return -1;
        if (strpbrk(name, "+,"))
            return pp_value_fail(&item, "'%.*s' is not the name of a module",
                                 PP_VALUE_QUOTE, name);
        add_word(a, out, name);
    }
    return 0;
}

static int read_targets(const struct pp_value *root, struct pp_arena *a,
                        struct pp_lora *l)
{
    struct pp_value at;
    if (pp_value_member(root, "target_modules", &at))
        return -1;
    if (json_is_string(at.value) &&
        strcmp(json_string_value(at.value), PP_LORA_ALL) != 0)
        return pp_value_fail(&at, "regular expressions are not known; list "
                                  "the names");
    if (json_is_string(at.value)) {
        l->targets = PP_LORA_ALL;
        return 0;
    }
    if (read_names(&at, a, &l->targets))
        return -1;
    return l->targets ? 0 : pp_value_fail(&at, "there are no targets");
}

/* Appends the ranks, or the alphas, that a pattern gives to names. */
static int read_pattern(const struct pp_value *root, const char *key,
                        bool are_ranks, struct pp_arena *a, struct pp_lora *l)
{
    struct pp_value at, item;
    const char *name;
    json_t *value;
    double x;
    if (!pp_config_find_set(root, key, &at))
        return 0;
    if (pp_value_is_object(&at))
        return -1;
    json_object_foreach(at.value, name, value)
    {
        if (pp_value_member(&at, name, &item) ||
            pp_value_real(&item, are_ranks,
                          are_ranks ? INT32_MAX : PP_MOST_ALPHA, &x))
            return -1;
        if (strpbrk(name, "\\^$*+?()[]{}|,:") || (are_ranks && x != floor(x)))
            return pp_value_fail(&item, are_ranks && x != floor(x)
                                            ? "is not a whole number"
                                            : "regular expressions are not "
                                              "known; list the names");
        add_word(a, &l->ranks,
                 are_ranks ? pp_arena_printf(a, "%s:%.0f", name, x)
                           : pp_arena_printf(a, "%s::%.12g", name, x));
    }
    return 0;
}

/* Reads the layers that have adapters: a number or a list. */
static int read_layers(const struct pp_value *root, struct pp_arena *a,
                       struct pp_lora *l)
{
    struct pp_value at, item;
    const char *pattern;
    size_t n = 1;
    int64_t layer;
    if (!pp_config_find_set(root, "layers_to_transform", &at))
        return 0;
    bool is_list = json_is_array(at.value);
    if (is_list && pp_value_array(&at, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        item = is_list ? pp_value_item(&at, i) : at;
        if (pp_value_int(&item, 0, 99999999, &layer))
            return -1;
        add_word(a, &l->layers, pp_arena_printf(a, "%" PRId64, layer));
    }
    if (!pp_config_find_set(root, "layers_pattern", &at))
        return 0;
    if (json_is_array(at.value) && json_array_size(at.value) == 1)
        at = pp_value_item(&at, 0);
    if (pp_value_text(&at, &pattern))
        return -1;
    return !strcmp(pattern, "layers") || !strcmp(pattern, "h")
               ? 0
               : pp_value_fail(&at, "'%.*s' is not the list of layers",
                               PP_VALUE_QUOTE, pattern);
}

static int read_adapter(const struct pp_value *root, struct pp_arena *a,
                        struct pp_lora *l, bool *dropout)
{
    struct pp_value at;
    double share = 0;
    *l = (struct pp_lora){.rank = PP_LORA_RANK, .alpha = PP_LORA_ALPHA};
    if (pp_config_only_text(root, "peft_type", "LORA") || check_known(root) ||
        read_targets(root, a, l) || pp_config_opt_size(root, "r", &l->rank) ||
        pp_config_opt_bool(root, "use_rslora", &l->rslora) ||
        read_pattern(root, "rank_pattern", true, a, l) ||
        read_pattern(root, "alpha_pattern", false, a, l) ||
        read_layers(root, a, l))
        return -1;
    if (pp_config_find_set(root, "modules_to_save", &at) &&
        read_names(&at, a, &l->saved))
        return -1;
    if (pp_config_find_set(root, "lora_alpha", &at) &&
        pp_value_real(&at, 0, PP_MOST_ALPHA, &l->alpha))
        return -1;
    if (pp_config_find_set(root, "lora_dropout", &at) &&
        pp_value_real(&at, 0, 1, &share))
        return -1;
    *dropout = share > 0;
    return 0;
}

int pp_adapter_config_read(const char *dir, struct pp_arena *a,
                           struct pp_lora *l, bool *dropout, struct pp_err *err)
{
    const char *path = pp_arena_printf(a, "%s/" PP_ADAPTER_CONFIG, dir);
    const struct pp_value_source source = {path, err};
    json_t *root;
    if (pp_value_read_python(path, &root, err))
        return -1;
    const struct pp_value at = {.source = &source, .value = root};
    int rc =
        pp_value_is_object(&at) || read_adapter(&at, a, l, dropout) ? -1 : 0;
    json_decref(root);
    return rc;
}

/* --- writing --- */

/* Calls visit for each product of layers that may have an adapter, with its
 * name, "model.layers.0.self_attn.q_proj", and whether it has one, until visit
 * returns false. */
typedef bool visit_fn(void *ctx, const char *module, bool adapts);
static void visit_products(const struct pp_model *m, visit_fn *visit, void *ctx)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    bool goes_on = true;
    for (size_t u = 0; u < pp_model_n_units(m) && goes_on; u++) {
        struct pp_unit_id id = pp_model_unit(m, u);
        if (id.kind != PP_UNIT_LAYER)
            continue;
        pp_unit_params(m, id, table);
        for (size_t i = 0; i < PP_N_ADAPTED && goes_on; i++) {
            char *name = table[pp_lora_slots[i]].name;
            if (!name[0])
                continue;
            *strrchr(name, '.') = '\0'; /* ".weight" */
            goes_on =
                visit(ctx, name, table[PP_P_ADAPTERS + 2 * i].name[0] != '\0');
        }
    }
}

struct names {
    const char *end; /* how names must end, or NULL */
    bool all;        /* all products that end like this have adapters */
    struct pp_arena *a;
    const char *list[PP_N_ADAPTED];
    size_t n;
    struct pp_json_writer *w;
};

static const char *end_of(const char *module)
{
    return strrchr(module, '.') + 1;
}

static bool note_end(void *ctx, const char *module, bool adapts)
{
    struct names *x = ctx;
    bool known = !adapts;
    for (size_t i = 0; i < x->n; i++)
        known |= !strcmp(x->list[i], end_of(module));
    if (!known)
        x->list[x->n++] = pp_arena_strdup(x->a, end_of(module));
    return true;
}

static bool check_end(void *ctx, const char *module, bool adapts)
{
    struct names *x = ctx;
    x->all &= adapts || strcmp(end_of(module), x->end) != 0;
    return x->all;
}

static bool write_name(void *ctx, const char *module, bool adapts)
{
    struct names *x = ctx;
    if (adapts)
        pp_json_string(x->w, NULL, module);
    return true;
}

/* Writes how the names of modules end, or whole names if other modules end like
 * that. */
static void write_targets(const struct pp_model *m, struct pp_json_writer *w)
{
    struct pp_arena a = {0};
    struct names x = {.all = true, .a = &a, .w = w};
    visit_products(m, note_end, &x);
    for (size_t i = 0; i < x.n && x.all; i++) {
        x.end = x.list[i];
        visit_products(m, check_end, &x);
    }
    pp_json_array(w, "target_modules", PP_JSON_BROKEN);
    for (size_t i = 0; i < x.n && x.all; i++)
        pp_json_string(w, NULL, x.list[i]);
    if (!x.all)
        visit_products(m, write_name, &x);
    pp_json_end(w);
    pp_arena_finish(&a);
}

static void write_saved(const struct pp_lora *l, struct pp_json_writer *w)
{
    const char *at = l->saved ? l->saved : "";
    char name[PP_FQN_TEXT];
    pp_json_array(w, "modules_to_save", PP_JSON_BROKEN);
    for (size_t n; *at; at += n + (at[n] == '+')) {
        n = strcspn(at, "+");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        pp_json_string(w, NULL, name);
    }
    pp_json_end(w);
}

/* Writes the ranks, or the alphas, of products that have their own. */
static void write_pattern(const struct pp_lora *l, const char *key,
                          bool are_ranks, struct pp_json_writer *w)
{
    struct pp_lora_word x;
    const char *at = l->ranks ? l->ranks : "";
    char name[PP_FQN_TEXT];
    pp_json_object(w, key, PP_JSON_BROKEN);
    for (size_t n; *at; at += n + (at[n] == '+')) {
        n = strcspn(at, "+");
        if (!pp_lora_word(at, n, &x) || x.length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)x.length, x.name);
        if (are_ranks && x.rank)
            pp_json_uint(w, name, x.rank);
        if (!are_ranks && x.alpha >= 0)
            pp_json_real(w, name, x.alpha);
    }
    pp_json_end(w);
}

int pp_adapter_config_text(const struct pp_model *m, const char *base,
                           char **text, struct pp_err *err)
{
    size_t n = 0;
    FILE *f = open_memstream(text, &n);
    if (!f)
        return pp_fail_errno(err, PP_ADAPTER_CONFIG);
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    write_pattern(m->lora, "alpha_pattern", false, &w);
    pp_json_string(&w, "base_model_name_or_path", base);
    pp_json_string(&w, "bias", "none");
    pp_json_bool(&w, "fan_in_fan_out",
                 pp_family_of(m->architecture)->names->transposed);
    pp_json_bool(&w, "inference_mode", true);
    pp_json_real(&w, "lora_alpha", m->lora->alpha);
    pp_json_real(&w, "lora_dropout", 0);
    if (m->lora->saved && *m->lora->saved)
        write_saved(m->lora, &w);
    pp_json_string(&w, "peft_type", "LORA");
    pp_json_uint(&w, "r", m->lora->rank);
    write_pattern(m->lora, "rank_pattern", true, &w);
    write_targets(m, &w);
    pp_json_string(&w, "task_type", m->scores ? "SEQ_CLS" : "CAUSAL_LM");
    pp_json_bool(&w, "use_rslora", m->lora->rslora);
    pp_json_end(&w);
    putc('\n', f);
    return fclose(f) ? pp_fail_errno(err, PP_ADAPTER_CONFIG) : 0;
}
