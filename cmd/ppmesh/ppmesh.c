/* SPDX-License-Identifier: MIT */
/* ppmesh - chooses the mesh for a cluster: reads options, the model and the
 * machine, searches, and prints the plan or a table of plans. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/num.h"
#include "ppmesh.h"
#include "run/objectives/objective.h"
#include "split/describe.h"
#include "tool_manifest.h"

enum { DEFAULT_PLANS = 16, DEFAULT_TOP = 10, MOST_RANKS = 65536 };

const char *const mesh_export_names[] = {"megatron-args", "torchtitan",
                                         "deepspeed", "sbatch", NULL};

static int parse_export(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct mesh_job *j = t->base;
    int i = tool_word(t, "--export", arg, o->words);
    j->export = (enum mesh_export)(i + 1);
    return i < 0 ? -1 : 0;
}

#define AT(member) TOOL_AT(struct mesh_job, member)

static const struct tool_option mesh_options[] = {
    {.group = "Model"},
    {PLANNER_SEQ_LEN},
    {PLANNER_DTYPE},
    {PLANNER_MTP},
    {PLANNER_MOE_LAYER_FREQ},

    {.group = "Cluster"},
    {0, "gpus", "N", "ranks of the cluster", AT(gpus), 1, MOST_RANKS,
     .also = "world-size ranks"},
    {0, "gpu", "NAME", "the GPUs: their peaks, memory and links",
     PLANNER_AT(gpu), .list = pp_machine_names},
    {PLANNER_MACHINE},
    {PLANNER_NODE},
    {0, "link", "A,B", "bytes a second of a rank, in and between nodes",
     .parse = planner_parse_links, .needs = "gpu|machine"},

    {.group = "Batch"},
    {0, "global-batch", "N", "sequences of a step", AT(global_batch), 1,
     INT32_MAX, .also = "global-batch-size gbs"},
    {0, "micro-batch-size", "N", "sequences of a microbatch (any)",
     AT(fixed.micro_batch), 1, INT32_MAX, .also = "mbs"},

    {.group = "Memory"},
    {PLANNER_MEMORY},
    {PLANNER_OBJECTIVE},

    {.group = "Search"},
    {0, "trainer", "NAME", "the trainer of the plan: pprun, megatron, ...",
     PLANNER_AT(trainer_name), .list = pp_trainer_names},
    {0, "fix", "LIST", "settings to keep, such as tp=8,pp=4", AT(fix)},
    {PLANNER_CP_EXCHANGE},
    {PLANNER_EXPERT_LIMIT},
    {PLANNER_EXPERT_IMBALANCE},
    {0, "plans", "N", "plans that are made exactly (at most 16)", AT(plans), 1,
     INT32_MAX},

    {.group = "Output"},
    {'t', "table", NULL, "print a table of plans for people",
     PLANNER_AT(table)},
    {0, "json", NULL, "print the table as JSON", PLANNER_AT(json),
     .excludes = "export"},
    {0, "top", "N", "rows of the table (10)", AT(top), 1, 1000},
    {0, "row", "N", "print plan N of the table (1)", AT(row), 1, 1000},
    {0, "svg", "FILE", "also draw step against memory of all meshes", AT(svg)},
    {0, "export", "SYSTEM", "print settings: megatron-args, torchtitan, ...",
     .words = mesh_export_names, .parse = parse_export, .excludes = "table"},
    {0},
};

/* --- settings to keep --- */

/* Reads a whole number of --fix. */
static int read_number(struct mesh_job *j, const char *name, const char *text,
                       int *to)
{
    int64_t n;
    char what[64];
    snprintf(what, sizeof what, "--fix %s", name);
    if (pp_parse_int(text, what, 1, INT32_MAX, &n, &j->split.t.err))
        return -1;
    *to = (int)n;
    return 0;
}

static int read_setting(struct mesh_job *j, const char *name, const char *text)
{
    static const char *const zeros[] = {"0", "1", "3", NULL};
    static const char *const modes[] = {
        "none", "norms+mlp_act+expert_act", "selective", "full", "auto", NULL};
    static const char *const yes_no[] = {"no", "yes", NULL};
    const char *kinds[PP_MAX_KINDS];
    struct tool *t = &j->split.t;
    struct pp_mesh_fixed *f = &j->fixed;
    const struct {
        const char *name;
        int *to;
    } numbers[] = {{"tp", &f->tp}, {"cp", &f->cp}, {"ep", &f->ep},
                   {"pp", &f->pp}, {"dp", &f->dp}, {"chunks", &f->chunks}};
    int i;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (!strcmp(name, numbers[k].name))
            return read_number(j, name, text, numbers[k].to);
    if (!strcmp(name, "zero")) {
        i = tool_word(t, "--fix zero", text, zeros);
        f->zero = i == 2 ? 3 : i;
        return i < 0 ? -1 : 0;
    }
    if (!strcmp(name, "recompute"))
        return (f->recompute = tool_word(t, "--fix recompute", text, modes)) < 0
                   ? -1
                   : 0;
    if (!strcmp(name, "experts-over-tp"))
        return (f->experts_over_tp =
                    tool_word(t, "--fix experts-over-tp", text, yes_no)) < 0
                   ? -1
                   : 0;
    if (!strcmp(name, "order")) {
        struct pp_mesh m = {.tp = 1};
        if (!pp_mesh_read_order(&m, text))
            return tool_usage(t,
                              "--fix order: '%s' is not an order of tp, cp, dp "
                              "and pp, such as tp-cp-dp-pp",
                              text);
        f->order = m.order;
        return 0;
    }
    if (!strcmp(name, "schedule")) {
        pp_kind_names(kinds);
        i = tool_word(t, "--fix schedule", text, kinds);
        const struct pp_kind *k = i < 0 ? NULL : pp_kind_find(kinds[i]);
        if (i < 0)
            return -1;
        if (!k)
            return tool_usage(t, "--fix schedule: give a kind; the search "
                                 "compares them all");
        if (k->slices > 1 || k->copies)
            return tool_usage(t,
                              "--fix schedule: %s has %s, which this search "
                              "does not bound; plan it with --compare of "
                              "ppsplit on a mesh",
                              k->name,
                              k->slices > 1 ? "slices of sequences"
                                            : "two copies of the weights");
        if (f->n_kinds < PP_MAX_KINDS)
            f->kinds[f->n_kinds++] = k;
        return 0;
    }
    return tool_usage(
        t,
        "--fix: '%s' is none of tp, cp, ep, pp, dp, chunks, zero, "
        "order, experts-over-tp, schedule and recompute",
        name);
}

int mesh_read_fixed(struct mesh_job *j)
{
    char *text = j->fix ? pp_arena_strdup(&j->split.arena, j->fix) : NULL;
    for (char *item; text && (item = strsep(&text, ","));) {
        char *value = strchr(item, '=');
        if (!value)
            return tool_usage(&j->split.t,
                              "--fix: '%s' is not a setting, such as tp=8",
                              item);
        *value++ = '\0';
        if (read_setting(j, item, value))
            return -1;
    }
    return 0;
}

/* --- the search --- */

static bool progress(void *ctx, size_t n_meshes, size_t n_plans, double best)
{
    struct mesh_job *j = ctx;
    sigset_t waiting;
    if (isfinite(best))
        tool_progress(&j->split.t, "%zu meshes, %zu plans, best step %.4g s",
                      n_meshes, n_plans, best);
    else
        tool_progress(&j->split.t, "%zu meshes, %zu plans", n_meshes, n_plans);
    if (sigpending(&waiting))
        return false;
    j->stopped |= sigismember(&waiting, SIGINT) == 1 ||
                  sigismember(&waiting, SIGTERM) == 1 ||
                  sigismember(&waiting, SIGUSR1) == 1;
    return j->stopped;
}

/* Holds back the signals that end the search with the best plan so far. */
static void hold_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGUSR1);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

/* Sets the trainer, which an export implies, and what it does unless an option
 * says otherwise. */
static int set_trainer(struct mesh_job *j)
{
    static const char *const systems[] = {[MESH_EXPORT_MEGATRON] = "megatron",
                                          [MESH_EXPORT_TORCHTITAN] =
                                              "torchtitan",
                                          [MESH_EXPORT_DEEPSPEED] = "deepspeed",
                                          [MESH_EXPORT_SBATCH] = "pprun"};
    struct planner *s = &j->split;
    const char *system = j->export ? systems[j->export] : s->trainer_name;
    if (s->trainer_name && strcmp(system, s->trainer_name) != 0)
        return tool_usage(&s->t, "--export %s: has settings of %s, not of %s",
                          mesh_export_names[j->export - 1], system,
                          s->trainer_name);
    planner_set_trainer(s, system);
    return 0;
}

/* Checks that the trainer takes the settings that are kept. */
static int check_fixed(struct mesh_job *j, const struct pp_backend *b)
{
    struct planner *s = &j->split;
    const struct pp_trainer *t = s->trainer;
    struct pp_mesh_fixed *f = &j->fixed;
    const struct pp_mesh m = {
        .tp = 1,
        .pp = 1,
        .cp = f->cp ? f->cp : 1,
        .ep = f->ep ? f->ep : 1,
        .dp = f->dp ? f->dp : 2,
        .order = f->order < 0 ? 0 : f->order,
        .whole_state = f->zero == 0,
        .divided_weights = f->zero < 0 ? !(t->zero >> 1 & 1) : f->zero == 3,
        .cp_exchange = s->mesh.cp_exchange};
    if (f->recompute >= 0 && f->recompute < PP_N_RECOMPUTES &&
        !pp_trainer_recomputes(t, pp_recompute_levels[f->recompute]))
        return tool_usage(&s->t, "--fix recompute: %s has 'none' and 'full'",
                          t->name);
    if (f->recompute == PP_N_RECOMPUTES && !t->modes)
        f->recompute = -1; /* one mode for all stages */
    for (size_t i = 0; i == 0 || i < f->n_kinds; i++) {
        const struct pp_kind *k = f->kinds[i]; /* NULL if any */
        const struct pp_trainer_order o = {.kind = k ? k->name : NULL,
                                           .v = k && k->v};
        if (pp_trainer_check(t, &m, b, &o, &s->t.err))
            return -1;
    }
    return 0;
}

static int set_request(struct mesh_job *j)
{
    struct planner *s = &j->split;
    if (pp_model_has_encoder(&s->model))
        return pp_fail(&s->t.err, PP_EXIT_INPUT,
                       "%s: has an encoder, whose mesh is chosen by hand: see "
                       "--encoder-mesh in ppsplit(1)",
                       s->source);
    if (planner_choose_machine(s))
        return -1;
    if (!(pp_machine_peak(&s->machine, s->precision->name) > 0 &&
          s->machine.efficiency > 0))
        return pp_fail(
            &s->t.err, PP_EXIT_INPUT, "%s: has no peak and efficiency for %s",
            s->machine_file ? s->machine_file : "--gpu", s->precision->name);
    if (s->memory_bytes == 0)
        return tool_usage(&s->t, "give the memory of a GPU (--memory)");
    if (s->seq_len == 0)
        s->seq_len = s->model.max_position && s->model.max_position < 4096
                         ? (int64_t)s->model.max_position
                         : 4096;
    s->request = (struct pp_split_request){
        .shard = pp_shard_of(&s->model, &s->mesh),
        .precision = s->precision,
        .gpu = s->precision->element_bytes < s->precision->accumulator_bytes,
        .trainer = s->trainer,
        .microbatch = pp_default_microbatch_of(s->seq_len),
        .machine = &s->machine,
        .memory_bytes = s->memory_bytes,
        .layout = s->trainer->layout,
        .scores_rows = s->objective != PP_OBJECTIVE_SFT};
    s->request.shard.one_round = s->trainer != pp_trainers;
    const struct pp_backend b = pp_backend_of(s->precision, !s->request.gpu);
    return check_fixed(j, &b);
}

static void search(struct mesh_job *j)
{
    struct planner *s = &j->split;
    const struct pp_mesh_problem p = {
        .request = &s->request,
        .n_ranks = (int)j->gpus,
        .global_batch = j->global_batch,
        .node = s->machine.n_levels && s->machine.levels[0].size
                    ? (int)s->machine.levels[0].size
                    : (int)j->gpus,
        .fixed = j->fixed,
        .n_rows = (size_t)(j->top > j->row ? j->top : j->row),
        .n_plans = (size_t)(j->plans ? j->plans : DEFAULT_PLANS),
        .points = j->svg,
        .promising = !j->plans,
        .progress = progress,
        .ctx = j};
    hold_signals();
    pp_mesh_search(&p, &j->found);
    tool_erase(&s->t);
}

/* Says that nothing fits, and what the nearest plan lacks. */
static int refuse(struct mesh_job *j)
{
    const struct pp_mesh_found *f = &j->found;
    struct pp_err *err = &j->split.t.err;
    char need[32], limit[32], text[MESH_TEXT], why[240] = "";
    size_t n = 0;
    pp_format_size(j->split.memory_bytes, limit);
    for (int k = 0; k < PP_N_MESH_REFUSALS; k++)
        if (f->n_refused[k])
            n += (size_t)snprintf(why + n, sizeof why - n, "%s%s %zu",
                                  n ? ", " : "", pp_mesh_refusal_names[k],
                                  f->n_refused[k]);
    if (f->nearest.step > 0) {
        mesh_format(&f->nearest, text);
        pp_format_size(pp_size_of(f->nearest.need), need);
        return pp_fail(
            err, PP_EXIT_NO,
            "no mesh of %zu fits in %s; the nearest planned, %s, needs %s",
            f->n_meshes, limit, text, need);
    }
    return pp_fail(err, PP_EXIT_NO,
                   "none of %zu meshes fits in %s; refused for: %s",
                   f->n_meshes, limit, why);
}

/* --- the plan --- */

int mesh_take_row(struct mesh_job *j, const struct pp_split_row *row)
{
    struct planner *s = &j->split;
    s->request = row->request;
    s->mesh = row->request.shard.mesh;
    return pp_split_plan(&s->request, &s->plan, &s->t.err);
}

static int print_manifest(struct mesh_job *j, FILE *f)
{
    struct planner *s = &j->split;
    struct pp_arena a = {0};
    struct pp_split_description d;
    struct pp_schedule schedule = {0};
    struct pp_manifest m;
    pp_manifest_init(&m);
    pp_split_describe(&s->plan, &a, &d);
    int rc = planner_fill_manifest(&s->plan, s->source, &a, &m, &s->t.err) ||
                     pp_split_schedule(&s->plan, &d, &schedule, &s->t.err) ||
                     pp_manifest_set_schedule(&m, &schedule, &s->t.err) ||
                     tool_write_manifest(&s->t, &m, f)
                 ? -1
                 : 0;
    if (rc == 0)
        planner_say_runs(s, &m);
    pp_schedule_finish(&schedule);
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}

/* Says what was chosen, and how good it is. */
static void say(struct mesh_job *j, const struct pp_split_row *row)
{
    const struct pp_mesh_found *f = &j->found;
    char mesh[MESH_TEXT], modes[MESH_TEXT];
    mesh_format(row, mesh);
    mesh_format_modes(row, modes);
    if (j->stopped)
        tool_say(&j->split.t, TOOL_NOTE,
                 "stopped: the best plan so far, of a search that was not "
                 "complete");
    tool_say(&j->split.t, TOOL_NOTE,
             "%s, %s, recomputation %s: a step of %.4g s; no plan takes less "
             "than %.4g s (gap %.1f %%)",
             mesh, row->request.kind, modes, row->step, f->bound,
             100 * (1 - f->bound / row->step));
}

static int print(struct mesh_job *j)
{
    struct planner *s = &j->split;
    FILE *f = tool_output(&s->t);
    if (!f)
        return -1;
    if (s->json)
        return mesh_print_json(j, f);
    if (s->table)
        return mesh_print_table(j, f);
    if ((size_t)j->row > j->found.n_rows)
        return tool_usage(&s->t, "--row: there are '%zu' plans",
                          j->found.n_rows);
    const struct pp_split_row *row = &j->found.rows[j->row - 1];
    if (mesh_take_row(j, row))
        return -1;
    say(j, row);
    if (j->export)
        return mesh_print_export(j, f);
    return print_manifest(j, f);
}

static int read_options(struct mesh_job *j, int argc, char **argv)
{
    struct tool *t = &j->split.t;
    t->base = j;
    if (tool_read_options(t, argc, argv) || tool_check_options(t))
        return -1;
    if (optind + 1 != argc)
        return optind < argc
                   ? tool_usage(t, "unexpected operand '%s'", argv[optind + 1])
                   : tool_usage(t, "give a model: its directory or "
                                   "config.json");
    if (j->svg && !strcmp(j->svg, "-") && !t->output)
        return tool_usage(t, "only one of --svg and the result can go to "
                             "standard output");
    j->split.source = argv[optind];
    if (!j->gpus)
        return tool_usage(t, "give the number of GPUs (--gpus)");
    if (!j->global_batch)
        return tool_usage(t, "give the sequences of a step (--global-batch)");
    if (!j->split.gpu && !j->split.machine_file)
        return tool_usage(t, "give the GPU (--gpu or --machine)");
    return mesh_read_fixed(j);
}

static int run(struct mesh_job *j, int argc, char **argv)
{
    if (read_options(j, argc, argv) || set_trainer(j) ||
        planner_read_model(&j->split) || set_request(j))
        return -1;
    search(j);
    if (j->svg && mesh_draw(j))
        return -1;
    if (j->found.n_rows == 0)
        return refuse(j);
    return print(j);
}

int main(int argc, char **argv)
{
    struct mesh_job j = {
        .split = {.text_only = true,
                  .t = {.name = "ppmesh",
                        .synopsis = "--gpus N --gpu NAME --global-batch N "
                                    "[options] MODEL",
                        .summary = "Choose how a cluster divides the training "
                                   "of a model; print a manifest.",
                        .options = mesh_options,
                        .everyday =
                            "seq-len gpus gpu machine node link memory "
                            "global-batch micro-batch-size trainer fix table "
                            "json top row export output verbose help"}},
        .top = DEFAULT_TOP,
        .row = 1,
        .fixed = {
            .zero = -1, .order = -1, .experts_over_tp = -1, .recompute = -1}};
    (void)run(&j, argc, argv); /* tool_finish prints the error */
    pp_split_plan_finish(&j.split.plan);
    pp_mesh_found_finish(&j.found);
    pp_arena_finish(&j.split.arena);
    return tool_finish(&j.split.t);
}
