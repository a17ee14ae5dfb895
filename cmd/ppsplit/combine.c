/* SPDX-License-Identifier: MIT */
/* combine - joins plans of a model: the stages and the mesh of an encoder of
 * each, and the stages and the mesh of the language model of the last. Costs
 * depend on all meshes, so they are computed again. */
#include <inttypes.h>
#include <string.h>

#include "manifest/manifest.h"
#include "ppsplit.h"

int split_read_edge(struct tool *t, const struct tool_option *o,
                    const char *arg)
{
    struct split_job *j = t->base;
    (void)o;
    if (j->o.n_edges == PP_MAX_ENCODERS)
        return tool_usage(t, "--edge: '%s' is one more than there are encoders",
                          arg);
    j->o.edges[j->o.n_edges++] = arg;
    return 0;
}

/* The component that is taken of a plan. */
struct combined {
    const char *file;
    const struct pp_manifest *m;
    const struct pp_component *component;
};

/* A plan for each component of the model, in its order. The language model is
 * the last one. */
struct combination {
    /* As they are read, the last one perhaps in vain. Nothing copies them, as a
     * schedule points to the graph beside it. */
    struct pp_manifest plans[PP_MAX_ENCODERS + 2];
    size_t n_plans;
    struct combined parts[PP_MAX_ENCODERS + 1];
    size_t n; /* components of the model; 0: not known yet */
};

static int fail_name(struct split_job *j, const char *file, const char *name,
                     const struct pp_manifest *m)
{
    char names[200] = "";
    size_t n = 0;
    for (size_t i = 0; i < m->n_components && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s'%s'",
                              i ? " and " : "", m->components[i].name);
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "--combine: %s: has no component '%s'; it has %s", file,
                   name, n ? names : "none, as its model has no encoder");
}

/* Takes the component of that name of a plan. */
static int take_component(struct split_job *j, struct combination *x,
                          const char *name, const char *file,
                          const struct pp_manifest *m)
{
    size_t i = 0;
    while (i < m->n_components && strcmp(m->components[i].name, name))
        i++;
    if (i == m->n_components || i > PP_MAX_ENCODERS)
        return fail_name(j, file, name, m);
    if (x->n && x->n != m->n_components)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "--combine: %s: has '%zu' components, and another plan "
                       "%zu; make both plans of one model",
                       file, m->n_components, x->n);
    if (x->parts[i].file)
        return tool_usage(&j->p.t, "--combine: '%s' is a second plan for it",
                          name);
    x->n = m->n_components;
    x->parts[i] = (struct combined){file, m, &m->components[i]};
    return 0;
}

/* Reads "vision=plan.json" into the part of that component. */
static int read_part(struct split_job *j, char *item, struct combination *x)
{
    struct pp_manifest *m = &x->plans[x->n_plans];
    char *file = strchr(item, '=');
    if (!file || !file[1])
        return tool_usage(&j->p.t,
                          "--combine: '%s' is not a component and a plan, such "
                          "as vision=plan.json",
                          item);
    *file++ = '\0';
    if (split_read_manifest(j, file, "", m))
        return -1;
    x->n_plans++;
    return take_component(j, x, item, file, m);
}

/* Fails if a component has no plan. */
static int check_all(struct split_job *j, const struct combination *x)
{
    const struct combined *any = x->parts;
    while (x->n && !any->file)
        any++;
    for (size_t i = 0; i < x->n; i++)
        if (!x->parts[i].file)
            return tool_usage(&j->p.t, "--combine: needs a plan for '%s'",
                              any->m->components[i].name);
    return 0;
}

static int fail_models(struct split_job *j, const struct combined *p,
                       const struct combined *q, const char *what,
                       const char *a, const char *b)
{
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "--combine: %s is '%s' in %s and '%s' in %s; make both "
                   "plans of one model with the same options",
                   what, a, p->file, b, q->file);
}

/* Reports whether an edge goes from a component to another. */
static bool joins(const char *edge, const char *from, const char *to)
{
    size_t n = strlen(from);
    return !strncmp(edge, from, n) && edge[n] == ':' &&
           !strcmp(edge + n + 1, to);
}

/* Features go one way, from each encoder, which --edge may name. */
static int check_edges(struct split_job *j, const struct combination *x)
{
    const char *to = x->parts[x->n - 1].component->name;
    for (size_t k = 0; k < j->o.n_edges; k++) {
        const char *edge = j->o.edges[k];
        bool known = false;
        for (size_t i = 0; i + 1 < x->n; i++)
            known |= joins(edge, x->parts[i].component->name, to);
        if (known)
            continue;
        if (x->n == 2)
            return tool_usage(
                &j->p.t, "--edge: '%s', but the edge of this model is %s:%s",
                edge, x->parts[0].component->name, to);
        return tool_usage(&j->p.t,
                          "--edge: '%s', but the edges of this model are "
                          "%s:%s and %s:%s",
                          edge, x->parts[0].component->name, to,
                          x->parts[1].component->name, to);
    }
    return 0;
}

/* Checks that both plans have the same units, and train the same. */
static int check_models(struct split_job *j, const struct combined *p,
                        const struct combined *q)
{
    const struct pp_plan_model *a = &p->m->model, *b = &q->m->model;
    for (size_t i = 0; i < a->n_units || i < b->n_units; i++) {
        char what[64];
        const struct pp_plan_unit none = {.fqn = "absent"};
        const struct pp_plan_unit *x = i < a->n_units ? &a->units[i] : &none,
                                  *y = i < b->n_units ? &b->units[i] : &none;
        snprintf(what, sizeof what, "unit %zu", i);
        if (strcmp(x->fqn, y->fqn))
            return fail_models(j, p, q, what, x->fqn, y->fqn);
        bool trains = x->role == PP_ROLE_TRAINED;
        if (x->costs.params != y->costs.params)
            return pp_fail(
                &j->p.t.err, PP_EXIT_INPUT,
                "--combine: '%s' has %" PRIu64 " parameters in %s and '%" PRIu64
                "' in %s; make both plans of one model",
                x->fqn, x->costs.params, p->file, y->costs.params, q->file);
        if (trains != (y->role == PP_ROLE_TRAINED))
            return fail_models(j, p, q, x->fqn, trains ? "trained" : "frozen",
                               trains ? "frozen" : "trained");
    }
    return 0;
}

/* Checks that both were planned for the same data and types, and divide weights
 * and state in the same way. */
static int check_settings(struct split_job *j, const struct combined *p,
                          const struct combined *q)
{
    const struct pp_manifest *a = p->m, *b = q->m;
    const struct pp_default_microbatch *x = &a->microbatch, *y = &b->microbatch;
    char order[2][PP_MESH_ORDER_TEXT];
    const struct {
        const char *name;
        int64_t a, b;
    } numbers[] = {
        {"seq_len", x->seq_len, y->seq_len},
        {"tokens", x->tokens, y->tokens},
        {"images", x->items[0].n, y->items[0].n},
        {"image_patches", x->items[0].rows, y->items[0].rows},
        {"clips", x->items[1].n, y->items[1].n},
        {"clip_rows", x->items[1].rows, y->items[1].rows},
        {"zero", pp_mesh_zero(&a->mesh), pp_mesh_zero(&b->mesh)},
        {"resident", a->mesh.resident, b->mesh.resident},
    };
    const char *types[] = {a->model.dtype ? a->model.dtype : "",
                           b->model.dtype ? b->model.dtype : ""};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[2][24];
        snprintf(text[0], sizeof *text, "%" PRId64, numbers[i].a);
        snprintf(text[1], sizeof *text, "%" PRId64, numbers[i].b);
        if (numbers[i].a != numbers[i].b)
            return fail_models(j, p, q, numbers[i].name, text[0], text[1]);
    }
    pp_mesh_write_order(&a->mesh, order[0]);
    pp_mesh_write_order(&b->mesh, order[1]);
    if (a->mesh.order != b->mesh.order)
        return fail_models(j, p, q, "order", order[0], order[1]);
    if (strcmp(types[0], types[1]))
        return fail_models(j, p, q, "dtype", types[0], types[1]);
    if (a->model.gpu != b->model.gpu)
        return fail_models(j, p, q, "device", a->model.gpu ? "cuda" : "cpu",
                           b->model.gpu ? "cuda" : "cpu");
    return 0;
}

/* Checks that the n stages of a component are one on each rank. The language
 * model may have several, if no encoder has a part of them; sets n_chunks. */
static int check_chunks(struct split_job *j, const struct combined *p, int n)
{
    const struct pp_graph *g = &p->m->graph;
    bool language = p->component == &p->m->components[p->m->n_components - 1];
    int apart = 0;
    j->o.n_chunks = 1;
    if (g->n_stages == g->n_rows && g->n_copies == 1)
        return 0;
    if (g->n_copies == 1 && split_find_placement(j, p->m, &apart))
        return -1;
    if (g->n_copies == 1 && (language ? n == g->n_stages - apart : n <= apart))
        return 0;
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "--combine: %s: has '%d' stages on %d pipeline ranks; "
                   "it needs one stage on each%s",
                   p->file, g->n_stages, g->n_rows,
                   language ? ", or none with units of an encoder" : "");
}

/* Adds the stages that have units of the component, or the part of them that
 * does. Returns their number, or -1. */
static int64_t add_component(struct split_job *j, const struct combined *p,
                             size_t at)
{
    const struct pp_graph *g = &p->m->graph;
    size_t first = p->component->first_unit;
    size_t end = first + p->component->n_units, n = 0;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_plan_stage *x = &p->m->stages[s];
        if (!x->n_units || x->first_unit >= end ||
            x->first_unit + x->n_units <= first)
            continue;
        j->bounds[at + n] = x->first_unit > first ? x->first_unit : first;
        j->stage_modes[at + n++] = x->recompute;
    }
    return check_chunks(j, p, (int)n) ? -1 : (int64_t)n;
}

/* Returns the mesh of an encoder as one of ranks of its own. On the ranks of
 * the language model each of tp and cp divides images. */
static struct pp_mesh encoder_mesh(const struct combined *p)
{
    struct pp_mesh x = p->m->mesh;
    if (p->component->apart)
        return p->component->mesh;
    if (x.encoder_tp)
        return pp_mesh_of(&x, true);
    return (struct pp_mesh){
        .dp = x.dp, .tp = 1, .cp = x.tp * x.cp, .ep = 1, .order = x.order};
}

/* Takes the mesh of encoder i, which has n stages. */
static void take_mesh(struct split_job *j, const struct combination *x,
                      size_t i, int64_t n)
{
    const struct combined *p = &x->parts[i];
    bool only = x->n == 2; /* it needs no name */
    j->o.meshes[i] = (struct split_encoder_mesh){
        only ? NULL : pp_arena_strdup(&j->p.arena, p->component->name),
        encoder_mesh(p), false};
    j->o.meshes[i].mesh.pp = (int)n;
    j->o.n_meshes = i + 1;
    j->o.encoder_ranks += n;
}

static int take_parts(struct split_job *j, const struct combination *x)
{
    const struct combined *last = &x->parts[x->n - 1];
    size_t most = 0, at = 0;
    for (size_t i = 0; i < x->n; i++)
        most += (size_t)x->parts[i].m->graph.n_stages;
    j->bounds = pp_arena_alloc(&j->p.arena, most + 1, sizeof *j->bounds);
    j->stage_modes = pp_arena_alloc(&j->p.arena, most, sizeof *j->stage_modes);
    j->p.source = pp_arena_strdup(&j->p.arena, last->m->model.source);
    for (size_t i = 0; i < x->n; i++) {
        const struct combined *p = &x->parts[i];
        int64_t n = add_component(j, p, at);
        if (n < 0)
            return -1;
        if (p < last)
            take_mesh(j, x, i, n);
        at += (size_t)n;
        j->o.n_ranks += p < last ? n : n / j->o.n_chunks;
    }
    j->bounds[at] = last->m->model.n_units;
    split_join_modes(j, at);
    j->p.mesh = last->m->mesh;
    j->p.mesh.encoder_tp = 0;
    j->rule.method = SPLIT_FQNS;
    j->given = true;
    split_take_assumptions(j, last->m);
    return 0;
}

int split_combine(struct split_job *j)
{
    struct combination x = {.n = 0};
    char *text = pp_arena_strdup(&j->p.arena, j->o.combine);
    int rc = 0;
    for (char *item; rc == 0 && (item = strsep(&text, ","));)
        rc = read_part(j, item, &x);
    if (rc == 0 && (check_all(j, &x) || check_edges(j, &x)))
        rc = -1;
    for (size_t i = 1; rc == 0 && i < x.n; i++)
        if (check_models(j, &x.parts[0], &x.parts[i]) ||
            check_settings(j, &x.parts[0], &x.parts[i]))
            rc = -1;
    if (rc == 0)
        rc = take_parts(j, &x);
    for (size_t i = 0; i < x.n_plans; i++)
        pp_manifest_finish(&x.plans[i]);
    return rc;
}
