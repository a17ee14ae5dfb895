/* SPDX-License-Identifier: MIT */
#include "tool_manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cost/workloads.h"
#include "model/parts.h"
#include "run/objectives/objective.h"
#include "version.h"

int tool_read_manifest(struct tool *t, const char **name, struct pp_manifest *m)
{
    FILE *f = tool_open_input(t, name);
    if (!f)
        return -1;
    int rc = pp_manifest_read(f, *name, m, &t->err);
    tool_close_input(f);
    return rc;
}

int tool_write_manifest(struct tool *t, struct pp_manifest *m, FILE *f)
{
    char *command = tool_command(t->argc, t->argv);
    int rc = pp_manifest_add_history(m, t->name, PP_VERSION, command, &t->err);
    free(command);
    if (rc == 0)
        pp_manifest_write(m, f);
    return rc;
}

/* --- plans that pprun cannot run --- */

/* Reports whether the unit after the first layer ahead is one, too. */
static bool has_several_ahead(const struct pp_manifest *m)
{
    static const char layers[] = "model.layers.";
    size_t i = 0;
    while (strcmp(m->model.units[i].fqn, m->model.ahead) != 0)
        i++;
    return i + 1 < m->model.n_units &&
           !strncmp(m->model.units[i + 1].fqn, layers, strlen(layers));
}

static const char *first_of_head(const struct pp_manifest *m)
{
    for (size_t i = 0; i < m->model.n_units; i++)
        if (pp_fqn_is_head_part(m->model.units[i].fqn))
            return m->model.units[i].fqn;
    return NULL;
}

static bool divides_head(const struct pp_manifest *m)
{
    return first_of_head(m) != NULL;
}

/* Reports whether each unit that divides a head is a stage, and the loss. */
static bool has_head_stages(const struct pp_manifest *m)
{
    int head = pp_graph_head(&m->graph);
    bool alone = head > 0;
    for (int s = head; alone && s < m->graph.n_stages; s++)
        alone = m->stages[s].n_units == 1;
    return alone && !strcmp(m->model.units[m->stages[head].first_unit].fqn,
                            first_of_head(m));
}

static bool has_tp(const struct pp_manifest *m)
{
    return m->mesh.tp > 1;
}

static bool has_lora(const struct pp_manifest *m)
{
    return m->model.lora.there;
}

static bool has_tied(const struct pp_manifest *m)
{
    return m->model.tied;
}

static bool has_frozen(const struct pp_manifest *m)
{
    return m->model.has_frozen;
}

static bool has_encoder(const struct pp_manifest *m)
{
    return pp_plan_encoders(pp_manifest_plan(m)) > 0;
}

static bool is_ahead(const struct pp_manifest *m)
{
    return m->model.ahead != NULL;
}

static bool has_slices(const struct pp_manifest *m)
{
    return m->graph.slices.n > 1;
}

static bool has_copies(const struct pp_manifest *m)
{
    return m->graph.n_copies > 1;
}

/* Reports whether values of the embedding are in more than two copies, or
 * copies share a rank. */
static bool ties_many_copies(const struct pp_manifest *m)
{
    bool many = m->graph.n_copies > 2;
    for (int s = 0; s < m->graph.n_stages; s++)
        many |= pp_home(&m->graph, s) != s;
    return many && (m->model.tied || m->model.ahead);
}

static bool is_uneven(const struct pp_manifest *m)
{
    struct pp_copy_rows rows;
    bool even = true;
    for (int s = 0; s < m->graph.n_stages / m->graph.n_copies; s++)
        even &= pp_copy_rows(&m->graph, s, &rows);
    return !even;
}

/* Reports whether the language model or its generator has cp_exact. */
static bool is_exact(const struct pp_manifest *m)
{
    return m->mesh.cp_exact || m->components[m->n_components - 1].mesh.cp_exact;
}

/* The last unit of a reward model has this name; units of a generator may
 * follow. */
static bool gives_rewards(const struct pp_manifest *m)
{
    for (size_t i = 0; i < m->model.n_units; i++)
        if (!strcmp(m->model.units[i].fqn, "score"))
            return true;
    return false;
}

/* Reports whether layers may have linear attention. */
static bool has_linear(const struct pp_manifest *m)
{
    const char *name = m->model.architecture;
    for (int a = 0; name && a < PP_N_ARCHITECTURES; a++) {
        const struct pp_family *f = pp_family_of((enum pp_architecture)a);
        if (f->names->layer[PP_P_DELTA_QKV] && !strcmp(f->architecture, name))
            return true;
    }
    return false;
}

static bool has_cp(const struct pp_manifest *m)
{
    return m->mesh.cp > 1;
}

static bool divides_linear(const struct pp_manifest *m)
{
    return has_cp(m) && has_linear(m);
}

/* Reports whether context-parallel ranks do not gather keys. */
static bool passes_keys(const struct pp_manifest *m)
{
    return has_cp(m) && m->mesh.cp_exchange != PP_CP_GATHER;
}

static bool divides_exactly(const struct pp_manifest *m)
{
    return has_cp(m) && m->mesh.cp_exact;
}

static bool has_capacity(const struct pp_manifest *m)
{
    return m->mesh.expert_capacity > 0;
}

static bool divides_capacity(const struct pp_manifest *m)
{
    return has_cp(m) && has_capacity(m);
}

static bool drops_by_probs(const struct pp_manifest *m)
{
    return has_capacity(m) && m->mesh.expert_drop == PP_DROP_PROBS;
}

static bool pads_experts(const struct pp_manifest *m)
{
    return has_capacity(m) && m->mesh.expert_padding;
}

static bool has_whole_experts(const struct pp_manifest *m)
{
    return has_capacity(m) && pp_mesh_has_whole_experts(&m->mesh);
}

/* Reports whether the model is known by its shapes alone. */
static bool is_planned(const struct pp_manifest *m)
{
    return m->model.estimated != PP_ESTIMATED_NOTHING;
}

/* Each feature excludes others; its message is made in fail. */
enum feature { SLICES, AHEAD, GENERATOR, MODEL, COPIES, HEAD };

/* clang-format off */
static const struct clash {
    enum feature feature;
    enum tool_planner planner; /* that decides about it */
    bool (*holds)(const struct pp_manifest *m);
    const char *with;   /* the other feature, or the reason */
    const char *remedy; /* NULL: the usual one of the feature */
} clashes[] = {
    {SLICES, TOOL_PLANNER_SCHEDULE, passes_keys,
     "context-parallel ranks pass on the keys of whole microbatches",
     "take a schedule without slices or ppsplit --cp-exchange gather"},
    {SLICES, TOOL_PLANNER_SCHEDULE, divides_exactly,
     "exact context-parallel ranks add up whole microbatches",
     "take a schedule without slices or ppsplit without --cp-exact"},
    {SLICES, TOOL_PLANNER_SCHEDULE, divides_linear,
     "context-parallel ranks exchange heads of linear attention of whole "
     "microbatches",
     NULL},
    {SLICES, TOOL_PLANNER_SCHEDULE, divides_capacity,
     "--expert-capacity counts the tokens of whole microbatches on "
     "context-parallel ranks",
     NULL},
    {SLICES, TOOL_PLANNER_SCHEDULE, has_encoder,
     "images and audio belong to whole microbatches", NULL},
    {SLICES, TOOL_PLANNER_SCHEDULE, drops_by_probs,
     "--expert-drop probs counts the tokens of whole microbatches", NULL},
    {SLICES, TOOL_PLANNER_SCHEDULE, pads_experts,
     "--expert-padding counts the tokens of whole microbatches", NULL},
    {SLICES, TOOL_PLANNER_SCHEDULE, has_whole_experts,
     "the capacity of whole experts on tensor-parallel ranks counts the tokens "
     "of whole microbatches", NULL},
    {AHEAD, TOOL_PLANNER_SPLIT, has_several_ahead, "a second such layer", NULL},
    {AHEAD, TOOL_PLANNER_SPLIT, has_tied, "a tied head", NULL},
    {AHEAD, TOOL_PLANNER_SPLIT, has_frozen, "frozen units", NULL},
    {GENERATOR, TOOL_PLANNER_SPLIT, is_ahead, "multi-token prediction", NULL},
    {GENERATOR, TOOL_PLANNER_SPLIT, has_copies, "two copies of the weights",
     NULL},
    {GENERATOR, TOOL_PLANNER_SPLIT, is_exact, "ppsplit --cp-exact", NULL},
    {GENERATOR, TOOL_PLANNER_SPLIT, gives_rewards,
     "a language model that gives rewards", NULL},
    {GENERATOR, TOOL_PLANNER_SCHEDULE, has_slices, "slices", NULL},
    {MODEL, TOOL_PLANNER_SPLIT, is_planned, NULL, NULL},
    {HEAD, TOOL_PLANNER_SPLIT, has_tp, "tensor-parallel ranks", NULL},
    {HEAD, TOOL_PLANNER_SPLIT, has_tied, "a tied head", NULL},
    {HEAD, TOOL_PLANNER_SPLIT, is_ahead, "multi-token prediction", NULL},
    {HEAD, TOOL_PLANNER_SPLIT, has_frozen, "frozen units", NULL},
    {HEAD, TOOL_PLANNER_SPLIT, has_lora, "adapters", NULL},
    {HEAD, TOOL_PLANNER_SPLIT, has_encoder, "an encoder", NULL},
    {COPIES, TOOL_PLANNER_SCHEDULE, ties_many_copies, "a tied embedding", NULL},
    {COPIES, TOOL_PLANNER_SCHEDULE, is_uneven,
     "a stage on ranks that are not evenly spaced", NULL},
};
/* clang-format on */

static bool has(const struct pp_manifest *m, enum feature f)
{
    return f == SLICES   ? has_slices(m)
           : f == AHEAD  ? is_ahead(m)
           : f == MODEL  ? true
           : f == HEAD   ? divides_head(m)
           : f == COPIES ? has_copies(m)
                         : pp_plan_generates(pp_manifest_plan(m));
}

static int fail(const struct pp_manifest *m, const struct clash *c,
                struct pp_err *err)
{
    size_t last = m->n_components - 1;
    if (c->feature == MODEL)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' is planned only: pprun does "
                       "not train it",
                       m->model.architecture);
    if (c->feature == HEAD)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: '%s' divides a head with other units, "
                       "which pprun does not run with %s; plan without "
                       "--head-stages",
                       first_of_head(m), c->with);
    if (c->feature == COPIES)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/stages: %d copies of the weights, which pprun does "
                       "not run with %s",
                       m->graph.n_copies, c->with);
    if (c->feature == SLICES)
        return pp_fail(err, PP_EXIT_INPUT, "/schedule/slices: '%d', but %s; %s",
                       m->graph.slices.n, c->with,
                       c->remedy ? c->remedy
                                 : "take a schedule without slices");
    if (c->feature == AHEAD)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: '%s' is for multi-token prediction, "
                       "which pprun does not train with %s; plan without --mtp",
                       m->model.ahead, c->with);
    return pp_fail(err, PP_EXIT_INPUT,
                   "/components/%zu: '%s' is a generator, which pprun does not "
                   "train with %s",
                   last, m->components[last].name, c->with);
}

/* Fails if a stage without units would pass on the features of two encoders, or
 * if stages are no chain and the model has not two encoders, which may be
 * branches. */
static int check_stages(const struct pp_manifest *m, struct pp_err *err)
{
    bool branches = pp_plan_encoders(pp_manifest_plan(m)) > 1;
    if (divides_head(m))
        return has_head_stages(m)
                   ? 0
                   : pp_fail(err, PP_EXIT_INPUT,
                             "/stages: '%s' divides a head: it must be a stage "
                             "behind a chain, and so must each of the others "
                             "and the loss",
                             first_of_head(m));
    int broken = branches ? -1 : pp_graph_break(&m->graph);
    if (broken >= 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/stages/%d/inputs: must be the previous stage alone; "
                       "pprun supports only chains of stages so far",
                       broken);
    for (int s = 0; branches && s < m->graph.n_stages; s++) {
        size_t first = m->stages[s].first_unit;
        if (m->stages[s].n_units == 0 &&
            (first == m->components[1].first_unit ||
             first == m->components[2].first_unit))
            return pp_fail(err, PP_EXIT_INPUT,
                           "/stages/%d/units: none, but the features of two "
                           "encoders go to the embedding's stage alone",
                           s);
    }
    return 0;
}

void tool_say_refused(struct tool *t, const struct pp_err *why)
{
    tool_say(t, TOOL_NOTE, "pprun cannot run this plan: %s", why->text);
}

int tool_runs_of(const struct pp_manifest *m, enum tool_planner planner,
                 struct pp_err *err)
{
    if (planner == TOOL_PLANNER_SPLIT && m->model.trainer)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/trainer: the plan is for '%s'; plan without "
                       "ppsplit --trainer",
                       m->model.trainer);
    for (size_t i = 0; i < sizeof clashes / sizeof *clashes; i++) {
        const struct clash *c = &clashes[i];
        if (c->planner == planner && has(m, c->feature) && c->holds(m))
            return fail(m, c, err);
    }
    return planner == TOOL_PLANNER_SPLIT ? check_stages(m, err) : 0;
}

int tool_runs(const struct pp_manifest *m, struct pp_err *err)
{
    return tool_runs_of(m, TOOL_PLANNER_SPLIT, err) ||
                   tool_runs_of(m, TOOL_PLANNER_SCHEDULE, err)
               ? -1
               : 0;
}

int tool_objective_runs(const struct pp_manifest *m, int objective,
                        struct pp_err *err)
{
    bool rewards = objective == PP_OBJECTIVE_REWARD;
    if (rewards && !gives_rewards(m))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' gives no rewards; "
                       "--objective reward needs a model like "
                       "LlamaForSequenceClassification",
                       m->model.architecture);
    if (objective == PP_OBJECTIVE_SFT || rewards)
        return 0;
    if (objective == PP_OBJECTIVE_DISTILL && divides_head(m))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: '%s' divides a head with other units, "
                       "which --objective distill does not train; plan "
                       "without --head-stages",
                       first_of_head(m));
    if (gives_rewards(m))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' gives rewards; only "
                       "--objective reward trains it",
                       m->model.architecture);
    return m->model.ahead
               ? pp_fail(err, PP_EXIT_INPUT,
                         "/model/units: '%s' is for multi-token prediction, "
                         "which pprun does not train with --objective; plan "
                         "without --mtp",
                         m->model.ahead)
               : 0;
}

int tool_plan_matches(const struct pp_manifest *m, const struct pp_model *model,
                      struct pp_err *err)
{
    const struct pp_plan_model *x = &m->model;
    size_t n = pp_model_n_units(model);
    if (x->n_units != n)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: %zu units, but '%s' has %zu", x->n_units,
                       x->source, n);
    for (size_t i = 0; i < n; i++) {
        struct pp_unit_id u = pp_model_unit(model, i);
        uint64_t params = pp_unit_n_params(model, u);
        char fqn[PP_FQN_TEXT];
        pp_model_fqn(model, u, fqn);
        if (strcmp(fqn, x->units[i].fqn) != 0)
            return pp_fail(err, PP_EXIT_INPUT,
                           "/model/units/%zu: '%s' is '%s' in '%s'", i,
                           x->units[i].fqn, fqn, x->source);
        if (x->units[i].costs.params != params)
            return pp_fail(err, PP_EXIT_INPUT,
                           "/model/units/%zu: '%s' has %" PRIu64
                           " parameters, but %" PRIu64 " in '%s'",
                           i, fqn, x->units[i].costs.params, params, x->source);
    }
    return 0;
}

int tool_generator_runs(const struct pp_model *g, size_t component,
                        const char *source, struct pp_err *err)
{
    const char *unfit = pp_model_has_encoder(g) ? "has an encoder"
                        : g->tied               ? "has a tied head"
                        : g->moe.n_experts      ? "has experts"
                        : g->scores             ? "gives rewards"
                                                : NULL;
    return unfit ? pp_fail(err, PP_EXIT_INPUT,
                           "/components/%zu: '%s' %s, which pprun does not "
                           "train as a generator",
                           component, source, unfit)
                 : 0;
}
