/* SPDX-License-Identifier: MIT */
/* ppsplit_combine - joins two plans of a model: the stages and the mesh of the
 * encoder of one, and those of the language model of the other. Costs depend on
 * both meshes, so they are computed again. */
#include <inttypes.h>
#include <string.h>

#include "manifest/manifest.h"
#include "ppsplit.h"

/* The component that is taken of a plan. */
struct combined {
    const char *file;
    struct pp_manifest m;
    const struct pp_component *component;
};

enum { ENCODER, LANGUAGE, N_PARTS };

static int fail_name(struct split_job *j, const char *file, const char *name,
                     const struct pp_manifest *m)
{
    char names[200] = "";
    size_t n = 0;
    for (size_t i = 0; i < m->n_components && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s'%s'",
                              i ? " and " : "", m->components[i].name);
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "--combine: %s: has no component '%s'; it has %s", file,
                   name, n ? names : "none, as its model has no encoder");
}

/* Reads "vision=plan.json" into the part of that component. */
static int read_part(struct split_job *j, char *item, struct combined parts[])
{
    struct tool *t = &j->t;
    struct pp_manifest m;
    char *file = strchr(item, '=');
    size_t i = 0;
    if (!file || !file[1])
        return tool_usage(t,
                          "--combine: '%s' is not a component and a plan, such "
                          "as vision=plan.json",
                          item);
    *file++ = '\0';
    if (split_read_manifest(j, file, "", &m))
        return -1;
    if (m.n_components > 2) {
        pp_manifest_finish(&m);
        return pp_fail(&t->err, PP_EXIT_INPUT,
                       "--combine: %s: its model has two encoders; give "
                       "--encoder-mesh for each instead",
                       file);
    }
    while (i < m.n_components && strcmp(m.components[i].name, item))
        i++;
    struct combined *p = &parts[i + 1 < m.n_components ? ENCODER : LANGUAGE];
    int rc = 0;
    if (i == m.n_components)
        rc = fail_name(j, file, item, &m);
    else if (p->file)
        rc = tool_usage(t, "--combine: '%s' is a second plan for it", item);
    if (rc) {
        pp_manifest_finish(&m);
        return -1;
    }
    *p = (struct combined){file, m, &m.components[i]};
    return 0;
}

static int fail_models(struct split_job *j, const struct combined parts[],
                       const char *what, const char *a, const char *b)
{
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "--combine: %s is '%s' in %s and '%s' in %s; make both "
                   "plans of one model with the same options",
                   what, a, parts[0].file, b, parts[1].file);
}

/* Features go one way, which --edge may name. */
static int check_edge(struct split_job *j, const struct combined parts[])
{
    const char *from = parts[ENCODER].component->name;
    const char *to = parts[LANGUAGE].component->name;
    size_t n = strlen(from);
    if (!j->edge || (!strncmp(j->edge, from, n) && j->edge[n] == ':' &&
                     !strcmp(j->edge + n + 1, to)))
        return 0;
    return tool_usage(&j->t,
                      "--edge: '%s', but the edge of this model is %s:%s",
                      j->edge, from, to);
}

/* Checks that both plans have the same units, and train the same. */
static int check_models(struct split_job *j, const struct combined parts[])
{
    const struct pp_manifest_model *a = &parts[0].m.model,
                                   *b = &parts[1].m.model;
    for (size_t i = 0; i < a->n_units || i < b->n_units; i++) {
        char what[64];
        const struct pp_manifest_unit none = {.fqn = "absent"};
        const struct pp_manifest_unit *x =
                                          i < a->n_units ? &a->units[i] : &none,
                                      *y =
                                          i < b->n_units ? &b->units[i] : &none;
        snprintf(what, sizeof what, "unit %zu", i);
        if (strcmp(x->fqn, y->fqn))
            return fail_models(j, parts, what, x->fqn, y->fqn);
        bool trains = x->role == PP_ROLE_TRAINED;
        if (x->params != y->params)
            return pp_fail(
                &j->t.err, PP_EXIT_INPUT,
                "--combine: '%s' has %" PRIu64 " parameters in %s and '%" PRIu64
                "' in %s; make both plans of one model",
                x->fqn, x->params, parts[0].file, y->params, parts[1].file);
        if (trains != (y->role == PP_ROLE_TRAINED))
            return fail_models(j, parts, x->fqn, trains ? "trained" : "frozen",
                               trains ? "frozen" : "trained");
    }
    return 0;
}

/* Checks that both were planned for the same data and types, and divide weights
 * and state in the same way. */
static int check_settings(struct split_job *j, const struct combined parts[])
{
    const struct pp_manifest *a = &parts[0].m, *b = &parts[1].m;
    const struct pp_default_microbatch *x = &a->microbatch, *y = &b->microbatch;
    char order[2][PP_MESH_ORDER_TEXT];
    const struct {
        const char *name;
        int64_t a, b;
    } numbers[] = {
        {"seq_len", x->seq_len, y->seq_len},
        {"tokens", x->tokens, y->tokens},
        {"images", x->n_images, y->n_images},
        {"image_patches", x->image_patches, y->image_patches},
        {"zero",
         a->mesh.whole_state       ? 0
         : a->mesh.divided_weights ? 3
                                   : 1,
         b->mesh.whole_state       ? 0
         : b->mesh.divided_weights ? 3
                                   : 1},
        {"resident", a->mesh.resident, b->mesh.resident},
    };
    const char *types[] = {a->model.dtype ? a->model.dtype : "",
                           b->model.dtype ? b->model.dtype : ""};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[2][24];
        snprintf(text[0], sizeof *text, "%" PRId64, numbers[i].a);
        snprintf(text[1], sizeof *text, "%" PRId64, numbers[i].b);
        if (numbers[i].a != numbers[i].b)
            return fail_models(j, parts, numbers[i].name, text[0], text[1]);
    }
    pp_mesh_write_order(&a->mesh, order[0]);
    pp_mesh_write_order(&b->mesh, order[1]);
    if (a->mesh.order != b->mesh.order)
        return fail_models(j, parts, "order", order[0], order[1]);
    if (strcmp(types[0], types[1]))
        return fail_models(j, parts, "dtype", types[0], types[1]);
    if (a->model.gpu != b->model.gpu)
        return fail_models(j, parts, "device", a->model.gpu ? "cuda" : "cpu",
                           b->model.gpu ? "cuda" : "cpu");
    return 0;
}

/* Adds the stages that have units of the component, or the part of them that
 * does. Returns their number, or -1. */
static int64_t add_component(struct split_job *j, const struct combined *p,
                             size_t at)
{
    const struct pp_graph *g = &p->m.graph;
    size_t first = p->component->first_unit;
    size_t end = first + p->component->n_units, n = 0;
    if (g->n_stages != g->n_rows || g->n_copies > 1)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--combine: %s: has '%d' stages on %d pipeline ranks; "
                       "it needs one stage on each",
                       p->file, g->n_stages, g->n_rows);
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_manifest_stage *x = &p->m.stages[s];
        if (!x->n_units || x->first_unit >= end ||
            x->first_unit + x->n_units <= first)
            continue;
        j->bounds[at + n] = x->first_unit > first ? x->first_unit : first;
        j->stage_modes[at + n++] = x->recompute;
    }
    return (int64_t)n;
}

/* Returns the mesh of an encoder as one of ranks of its own. On those of the
 * language model each of tp and cp divides images. */
static struct pp_mesh encoder_mesh(const struct combined *p)
{
    struct pp_mesh x = p->m.mesh;
    if (p->component->apart)
        return p->component->mesh;
    if (x.encoder_tp)
        return pp_mesh_of(&x, true);
    return (struct pp_mesh){
        .dp = x.dp, .tp = 1, .cp = x.tp * x.cp, .ep = 1, .order = x.order};
}

static int take_parts(struct split_job *j, const struct combined parts[])
{
    const struct combined *e = &parts[ENCODER], *l = &parts[LANGUAGE];
    size_t most = (size_t)e->m.graph.n_stages + (size_t)l->m.graph.n_stages;
    j->bounds = pp_arena_alloc(&j->arena, most + 1, sizeof *j->bounds);
    j->stage_modes = pp_arena_alloc(&j->arena, most, sizeof *j->stage_modes);
    j->source = pp_arena_strdup(&j->arena, l->m.model.source);
    if (!j->bounds || !j->stage_modes || !j->source)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int64_t first = add_component(j, e, 0), others;
    if (first < 0 || (others = add_component(j, l, (size_t)first)) < 0)
        return -1;
    j->n_ranks = first + others;
    j->bounds[j->n_ranks] = l->m.model.n_units;
    split_join_modes(j, (size_t)j->n_ranks);
    j->n_chunks = 1;
    j->meshes[0].mesh = encoder_mesh(e);
    j->meshes[0].mesh.pp = (int)first;
    j->n_meshes = 1;
    j->encoder_ranks = first;
    j->mesh = l->m.mesh;
    j->mesh.encoder_tp = 0;
    j->method = SPLIT_FQNS;
    j->given = true;
    return split_take_assumptions(j, &l->m);
}

int split_combine(struct split_job *j)
{
    struct combined parts[N_PARTS] = {{.file = NULL}};
    char *text = pp_arena_strdup(&j->arena, j->combine);
    int rc = text ? 0 : pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (char *item; rc == 0 && (item = strsep(&text, ","));)
        rc = read_part(j, item, parts);
    if (rc == 0 && !(parts[ENCODER].file && parts[LANGUAGE].file))
        rc = tool_usage(&j->t, "--combine: needs a plan for the %s",
                        parts[ENCODER].file ? "language model" : "encoder");
    if (rc == 0 && (check_edge(j, parts) || check_models(j, parts) ||
                    check_settings(j, parts) || take_parts(j, parts)))
        rc = -1;
    for (int k = 0; k < N_PARTS; k++)
        pp_manifest_finish(&parts[k].m);
    return rc;
}
