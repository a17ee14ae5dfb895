/* SPDX-License-Identifier: MIT */
/* config_language - the architecture of a language model by its config.json,
 * and what its family reads from there. */
#include <limits.h>
#include <string.h>

#include "manifest/config_values.h"
#include "model/parts.h"

/* Returns the model_type that a name stands for: a repository with code of its
 * own may give a class of transformers another name. */
static const char *known_type(const char *text)
{
    static const char *const aliases[][2] = {{"kimi_k2", "deepseek_v3"}};
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(text, aliases[i][0]))
            return aliases[i][1];
    return text;
}

/* Finds an architecture by its model_type or by its class. */
static int find_architecture(const struct pp_value *at, const char *text,
                             bool by_type, enum pp_architecture *out)
{
    for (int a = 0; a < PP_N_ARCHITECTURES; a++) {
        const struct pp_family *f = pp_family_of((enum pp_architecture)a);
        *out = (enum pp_architecture)a;
        if (!strcmp(text, by_type ? f->model_type : f->architecture))
            return 0;
    }
    return pp_value_fail(at, "'%.*s' is not a known model", PP_VALUE_QUOTE,
                         text);
}

/* Finds a reward model by its class. */
static bool find_scoring(const char *text, struct pp_model *m)
{
    for (int a = 0; a < PP_N_ARCHITECTURES; a++) {
        const char *name = pp_family_of((enum pp_architecture)a)->scoring;
        if (!name || strcmp(name, text) != 0)
            continue;
        m->architecture = (enum pp_architecture)a;
        m->scores = true;
    }
    return m->scores;
}

/* Checks that a reward model has one output. transformers counts the labels,
 * which are 2 unless the file says otherwise. */
static int check_labels(const struct pp_value *root, const char *class)
{
    struct pp_value at = *root;
    size_t n = 2;
    if (pp_config_find_set(root, "id2label", &at))
        n = json_object_size(at.value);
    else if (pp_config_find_set(root, "num_labels", &at) &&
             pp_config_get_size(root, "num_labels", INT_MAX, &n))
        return -1;
    return n == 1 ? 0
                  : pp_value_fail(&at,
                                  "'%zu' labels, but a reward is one number: "
                                  "load '%s' with num_labels=1 and save it",
                                  n, class);
}

static int read_architecture(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value list, name;
    size_t n;
    const char *text;
    if (!pp_config_find_set(root, "architectures", &list)) {
        if (!pp_config_find_set(root, "model_type", &name))
            return pp_value_fail(root, "'architectures' is missing");
        if (pp_value_text(&name, &text))
            return -1;
        return find_architecture(&name, known_type(text), true,
                                 &m->architecture);
    }
    if (pp_value_array(&list, &n))
        return -1;
    if (n != 1)
        return pp_value_fail(&list, "%zu names, but one is needed", n);
    name = pp_value_item(&list, 0);
    if (pp_value_text(&name, &text))
        return -1;
    if (find_scoring(text, m)
            ? check_labels(root, text)
            : find_architecture(&name, text, false, &m->architecture))
        return -1;
    const char *type = pp_family_of(m->architecture)->model_type;
    if (!pp_config_find_set(root, "model_type", &name))
        return 0;
    if (pp_value_text(&name, &text))
        return -1;
    return strcmp(known_type(text), type)
               ? pp_config_only_text(root, "model_type", type)
               : 0;
}

int pp_config_read_language(const struct pp_value *root, struct pp_model *m)
{
    m->init_range = 0.02;
    return read_architecture(root, m) ||
                   pp_config_check(root, m->architecture, PP_IN_MODEL)
               ? -1
               : pp_config_read_family(root, m);
}

int pp_config_read_details(const struct pp_value *root, struct pp_model *m)
{
    if (pp_config_opt_positive(root, "initializer_range", 1, &m->init_range) ||
        pp_config_read_dropout(root, m))
        return -1;
    return pp_family_of(m->architecture)->names->positions ? 0
           : m->windowed_rope.theta > 0 ? pp_config_read_two_ropes(root, m)
                                        : pp_config_read_rope(root, m);
}
