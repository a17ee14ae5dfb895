/* SPDX-License-Identifier: MIT */
/* models - --models: the models that are known, and the table of values
 * of their configurations that are refused. */
#include <string.h>

#include "base/json_writer.h"
#include "manifest/config_rules.h"
#include "manifest/outline.h"
#include "model/parts.h"
#include "ppsplit.h"

enum { FAMILIES_TEXT = 1000 };

static void write_accepted(struct pp_json_writer *w,
                           const struct pp_config_rule *r)
{
    pp_json_array(w, "accepted", PP_JSON_INLINE);
    for (size_t i = 0; r->form == PP_WORD && r->words[i]; i++)
        pp_json_string(w, NULL, r->words[i]);
    if (r->form == PP_NUMBER)
        pp_json_real(w, NULL, r->number);
    else if (r->form == PP_NULL)
        pp_json_format(w, NULL, "null");
    else if (r->form != PP_WORD)
        pp_json_bool(w, NULL, r->form == PP_TRUE);
    pp_json_end(w);
}

/* Writes the members of a model but for "refused". */
static void write_model(struct pp_json_writer *w, const char *model_type,
                        const char *architecture, bool trains)
{
    pp_json_object(w, NULL, PP_JSON_BROKEN);
    pp_json_string(w, "model_type", model_type);
    pp_json_string(w, "architecture", architecture);
    pp_json_bool(w, "plans", true);
    pp_json_object(w, "trains", PP_JSON_INLINE);
    pp_json_bool(w, "cpu", trains);
    pp_json_bool(w, "cuda", trains);
    pp_json_end(w);
    pp_json_array(w, "refused", PP_JSON_BROKEN);
}

/* Reports whether a planned family is in the list of trained families. */
static bool is_trained(const struct pp_outline_family *family)
{
    struct pp_config_model m;
    for (size_t i = 0; family->architecture && pp_config_model(i, &m); i++)
        if (!strcmp(m.architecture, family->architecture))
            return true;
    return false;
}

/* Finds model i of the models that are planned only. */
static bool find_planned(size_t i, const char **model_type,
                         const char **architecture)
{
    const struct pp_outline_family *f = pp_outline_families;
    const struct pp_outline_tower *t = pp_outline_towers;
    for (; f->model_type; f++) {
        *model_type = f->model_type;
        *architecture = f->architecture;
        if (f->architecture && !is_trained(f) && i-- == 0)
            return true;
    }
    while (t->model_type && i-- > 0)
        t++;
    *model_type = t->model_type;
    *architecture = t->architecture;
    return t->model_type;
}

static void write_json(FILE *f)
{
    struct pp_json_writer w = {.f = f, .indent = 2};
    const char *model_type, *architecture;
    struct pp_config_model m;
    pp_json_array(&w, NULL, PP_JSON_BROKEN);
    for (size_t i = 0; pp_config_model(i, &m); i++) {
        write_model(&w, m.model_type, m.architecture, true);
        for (const struct pp_config_rule *r = pp_config_rules; r->key; r++) {
            char key[PP_RULE_KEY_TEXT];
            if (!(r->families & m.families))
                continue;
            pp_config_rule_key(r, key);
            pp_json_object(&w, NULL, PP_JSON_INLINE);
            pp_json_string(&w, "key", key);
            write_accepted(&w, r);
            pp_json_end(&w);
        }
        pp_json_end(&w);
        pp_json_end(&w);
    }
    for (size_t i = 0; find_planned(i, &model_type, &architecture); i++) {
        write_model(&w, model_type, architecture, false);
        pp_json_end(&w);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    fputc('\n', f);
}

/* Writes the model_types of families: of models with encoders or of language
 * models. Names the families that are left out if they are fewer. */
static void format_families(uint64_t families, char text[FAMILIES_TEXT])
{
    struct pp_config_model m;
    int in = 0, out = 0;
    const char *before = "";
    const uint64_t language = (UINT64_C(1) << PP_N_ARCHITECTURES) - 1;
    for (int k = 0; k < PP_N_ARCHITECTURES; k++)
        *(families >> k & 1 ? &in : &out) += 1;
    size_t n = (size_t)snprintf(text, FAMILIES_TEXT, "%s",
                                out >= in ? ""
                                : out     ? "all but "
                                          : "all");
    families = out < in ? ~families & language : families;
    for (size_t i = 0; pp_config_model(i, &m); i++) {
        /* A reward model has the model_type of its family. */
        bool again = i >= PP_N_ARCHITECTURES && m.families & language;
        if (again || !(families & m.families) || n >= FAMILIES_TEXT)
            continue;
        n += (size_t)snprintf(text + n, FAMILIES_TEXT - n, "%s%s",
                              *before ? ", " : "", m.model_type);
        before = m.model_type;
    }
}

static void print_table(FILE *f)
{
    struct pp_config_model m;
    const char *model_type, *architecture;
    fprintf(f, "%-21s %-46s %s\n", "model_type", "architecture", "trains");
    for (size_t i = 0; pp_config_model(i, &m); i++)
        fprintf(f, "%-21s %-46s cpu, cuda\n", m.model_type, m.architecture);
    for (size_t i = 0; find_planned(i, &model_type, &architecture); i++)
        fprintf(f, "%-21s %-46s no\n", model_type, architecture);
    fputs("\nValues that are accepted; others of these keys are refused:\n", f);
    for (const struct pp_config_rule *r = pp_config_rules; r->key; r++) {
        char key[PP_RULE_KEY_TEXT], accepted[PP_ACCEPTED_TEXT];
        char families[FAMILIES_TEXT],
            text[PP_ACCEPTED_TEXT + FAMILIES_TEXT + 4];
        pp_config_rule_key(r, key);
        pp_config_accepted(r, accepted);
        format_families(r->families, families);
        snprintf(text, sizeof text, "%s (%s)", accepted, families);
        fprintf(f, "%s\n", key);
        tool_entry(f, 4, "", text);
    }
}

int split_print_models(struct split_job *j)
{
    FILE *f = tool_output(&j->p.t);
    if (f)
        (j->p.json ? write_json : print_table)(f);
    return f ? 0 : -1;
}
