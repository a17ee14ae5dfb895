/* SPDX-License-Identifier: MIT */
/* generator - --combine with a generator: joins the whole plan of a
 * language model, with its encoders if it has any, and that of a generator
 * behind it, which is a model of its own. Only costs of the connector between
 * them are new. */
#include <string.h>

#include "manifest/config_json.h"
#include "manifest/manifest.h"
#include "ppsplit.h"
#include "tool_manifest.h"

enum { LANGUAGE, GENERATOR, N_PARTS };
static const char *const names[] = {"language", "generator", NULL};

bool split_generates(const struct split_job *j)
{
    size_t n = strlen(names[GENERATOR]);
    for (const char *at = j->o.combine; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, names[GENERATOR], n) && at[n] == '=')
            return true;
    }
    return false;
}

/* Fails if an option was given that has no effect. */
static int check_options(struct split_job *j)
{
    static const char *const allowed[] = {"combine", "edge",    "output",
                                          "quiet",   "verbose", NULL};
    for (const struct tool_option *o = j->p.t.options; o->name || o->group;
         o++) {
        size_t i = 0;
        while (o->name && allowed[i] && strcmp(o->name, allowed[i]))
            i++;
        if (o->name && !allowed[i] && tool_given(&j->p.t, o->name))
            return tool_usage(&j->p.t,
                              "--combine with a generator prints a manifest "
                              "and excludes --%s",
                              o->name);
    }
    for (size_t k = 0; k < j->o.n_edges; k++)
        if (strcmp(j->o.edges[k], "language:generator"))
            return tool_usage(&j->p.t,
                              "--edge: '%s', but the edge is "
                              "language:generator",
                              j->o.edges[k]);
    return 0;
}

/* Finds the files that --combine names. */
static int find_files(struct split_job *j, const char *files[N_PARTS])
{
    char *text = pp_arena_strdup(&j->p.arena, j->o.combine);
    for (char *item; (item = strsep(&text, ","));) {
        char *file = strchr(item, '=');
        if (!file || !file[1])
            return tool_usage(&j->p.t,
                              "--combine: '%s' is not a component and a plan, "
                              "such as language=plan.json",
                              item);
        *file++ = '\0';
        int i = tool_word(&j->p.t, "--combine", item, names);
        if (i < 0)
            return -1;
        if (files[i])
            return tool_usage(&j->p.t,
                              "--combine: '%s' is a second plan for it", item);
        files[i] = file;
    }
    return files[LANGUAGE] ? 0
                           : tool_usage(&j->p.t, "--combine: needs a plan for "
                                                 "'language'");
}

/* Notes what pprun cannot run of the joined plan. A table of units has no
 * tensors, and no model that can be read. */
static int say_runs(struct split_job *j, struct pp_manifest *m, bool is_table)
{
    const size_t at = m->n_components - 1;
    struct pp_model model;
    struct pp_err why = {0};
    if (!is_table &&
        pp_model_read(m->components[at].source, &model, &j->p.t.err))
        return -1;
    if (!is_table &&
        tool_generator_runs(&model, at, m->components[at].source, &why))
        tool_say_refused(&j->p.t, &why);
    planner_say_runs(&j->p, m);
    return 0;
}

static int print_joined(struct split_job *j, struct pp_manifest *m)
{
    FILE *f = tool_output(&j->p.t);
    return f ? tool_write_manifest(&j->p.t, m, f) : -1;
}

int split_add_generator(struct split_job *j)
{
    const char *files[N_PARTS] = {NULL};
    struct pp_manifest plan = {0}, generator = {0};
    int rc = check_options(j) || find_files(j, files) ||
                     split_read_manifest(j, files[LANGUAGE], "", &plan) ||
                     split_read_manifest(j, files[GENERATOR], "", &generator)
                 ? -1
                 : 0;
    if (rc == 0 && (split_connect(j, &plan, &generator) ||
                    pp_manifest_add_generator(&plan, &generator, &j->p.t.err)))
        rc = pp_fail_at(&j->p.t.err, "--combine: %s: ", files[GENERATOR]);
    bool is_table = rc == 0 && generator.model.n_tensors == 0;
    if (rc == 0 && (print_joined(j, &plan) || say_runs(j, &plan, is_table)))
        rc = -1;
    pp_manifest_finish(&generator);
    pp_manifest_finish(&plan);
    return rc;
}
