/* SPDX-License-Identifier: MIT */
/* ppsplit - decides which layers each stage of a pipeline holds: reads options
 * and the model, calls lib/split, and prints the plan. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "manifest/config_json.h"
#include "manifest/units_json.h"
#include "ppsplit.h"
#include "run/objectives/objective.h"
#include "tool_manifest.h"

enum {
    DEFAULT_SEQ_LEN = 4096,
    DEFAULT_ROUNDS = 4 /* microbatches for each rank */
};

/* --- the problem --- */

/* Divides the head into units for --head-stages. */
static int divide_head(struct split_job *j)
{
    struct pp_model *m = &j->p.model;
    int64_t n = j->o.head_stages;
    const char *unfit = m->table                  ? "is a table of units"
                        : m->tied                 ? "has a tied head"
                        : m->scores               ? "gives rewards"
                        : pp_model_has_encoder(m) ? "has an encoder"
                        : m->vocab < (size_t)n    ? "has fewer words"
                                                  : NULL;
    if (n && unfit)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "--head-stages: '%" PRId64 "', but '%s' %s", n,
                       j->p.source, unfit);
    m->head_stages = (size_t)n;
    return 0;
}

static int read_model(struct split_job *j)
{
    struct planner *p = &j->p;
    struct pp_err none = {0}; /* the model of a manifest may be a table */
    if (!j->given)
        p->text_only = split_needs_text(j);
    if (j->given && !pp_units_read(p->source, &p->arena, &p->model, &none))
        return 0;
    if (j->o.units)
        return pp_units_read(p->source, &p->arena, &p->model, &p->t.err);
    return planner_read_model(p) || divide_head(j) ? -1 : 0;
}

static void show_progress(void *ctx, double best, double bound)
{
    struct split_job *j = ctx;
    tool_progress(&j->p.t, "searching: %g, bound %g", best, bound);
}

/* Chooses the sequence length: the model's, and what the ranks can divide. */
static void choose_seq_len(struct split_job *j)
{
    int64_t most = (int64_t)j->p.model.max_position;
    j->undivided = most > 0 && most < DEFAULT_SEQ_LEN ? most : DEFAULT_SEQ_LEN;
    j->p.seq_len =
        (int64_t)pp_round_up((size_t)j->undivided, pp_mesh_align(&j->p.mesh));
}

static void note_seq_len(struct split_job *j)
{
    if (j->undivided && j->undivided != j->p.seq_len)
        tool_say(&j->p.t, TOOL_NOTE,
                 "the plan is for sequences of %" PRId64
                 " tokens, as the ranks cannot divide %" PRId64
                 ": it is not a multiple of %zu",
                 j->p.seq_len, j->undivided, pp_mesh_align(&j->p.mesh));
}

/* Sets the tokens of a microbatch and the microbatches of a step from numbers
 * of sequences. */
static int set_batch(struct split_job *j)
{
    int64_t length = j->p.seq_len, all = j->o.global_batch, dp = j->p.mesh.dp;
    if (j->o.sequences > INT32_MAX / length)
        return tool_usage(&j->p.t,
                          "--micro-batch-size: '%" PRId64 "' sequences of "
                          "%" PRId64 " tokens are too many",
                          j->o.sequences, length);
    if (j->o.sequences || j->o.tokens == 0)
        j->o.tokens = length * (j->o.sequences ? j->o.sequences : 1);
    else if (j->o.tokens < length && !j->given)
        tool_say(&j->p.t, TOOL_NOTE,
                 "--micro-batch-tokens: '%" PRId64 "' tokens are less than a "
                 "sequence of %" PRId64 " (--seq-len); --micro-batch-size "
                 "counts sequences",
                 j->o.tokens, length);
    if (all == 0)
        return 0;
    int64_t each = dp * (j->o.tokens / length);
    if (j->o.tokens % length || all % each)
        return tool_usage(&j->p.t,
                          "--global-batch: '%" PRId64 "' sequences do not go "
                          "into microbatches of %" PRId64 " tokens on %" PRId64
                          " data-parallel ranks",
                          all, j->o.tokens, dp);
    j->o.n_microbatches = all / each;
    return 0;
}

static int set_request(struct split_job *j)
{
    if (planner_choose_machine(&j->p))
        return -1;
    if (j->o.recompute_auto && j->p.memory_bytes == 0)
        return tool_usage(&j->p.t, "--recompute auto needs --memory or --gpu");
    if (j->p.seq_len == 0)
        choose_seq_len(j);
    if (set_batch(j))
        return -1;
    if (j->p.trainer != pp_trainers)
        j->p.mesh.pp = (int)j->o.n_ranks;
    j->p.request = (struct pp_split_request){
        .shard = pp_shard_of(&j->p.model, &j->p.mesh),
        .precision = j->p.precision,
        .gpu = j->o.device ? j->o.device == 2
                           : j->p.precision->element_bytes <
                                 j->p.precision->accumulator_bytes,
        .trainer = j->p.trainer,
        .encoders = j->o.n_meshes ? j->encoders : NULL,
        .profile = j->o.costs_file || j->profile.n_units ? &j->profile : NULL,
        .machine = j->p.has_machine ? &j->p.machine : NULL,
        .n_ranks = j->o.n_ranks,
        .n_microbatches = j->o.n_microbatches > 0
                              ? j->o.n_microbatches
                              : DEFAULT_ROUNDS * j->o.n_ranks,
        .placement = j->o.placement,
        .kind = j->o.search_order ? NULL : j->o.kind,
        .search_order = j->o.search_order,
        .memory_bytes = j->p.memory_bytes,
        .shortest = true,
        .layout = j->o.export == SPLIT_EXPORT_MEGATRON || j->p.trainer->layout,
        .encoder_ranks = j->o.encoder_ranks,
        .recompute = j->o.recompute,
        .recompute_auto = j->o.recompute_auto,
        .scores_rows = j->p.objective != PP_OBJECTIVE_SFT,
        .plan_buffers = j->p.table || j->o.svg,
        .progress = show_progress,
        .ctx = j,
    };
    j->p.request.shard.one_round = j->p.trainer != pp_trainers;
    return 0;
}

/* Checks that the model is the one of the manifests that the split is from. */
static int check_given(struct split_job *j)
{
    uint64_t n = pp_model_n_params(&j->p.model);
    if (!j->given || n == j->given_params)
        return 0;
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "'%s' has %" PRIu64 " parameters, but its plan has %" PRIu64
                   "; if the plan was made with --moe-layer-freq, give it",
                   j->p.source, n, j->given_params);
}

/* Reads the files and lists of options, and sets the rest of the request. */
static int complete_request(struct split_job *j)
{
    struct pp_split_request *q = &j->p.request;
    const struct pp_image_load *of = q->shard.images;
    if (set_request(j) || split_set_images(j) || split_set_chunks(j))
        return -1;
    j->n_units = pp_model_n_units(&j->p.model);
    if (split_set_roles(j) || check_given(j))
        return -1;
    split_take_loads(j);
    j->n_stages = (size_t)(j->o.encoder_ranks +
                           (j->o.n_ranks - j->o.encoder_ranks) * j->o.n_chunks +
                           (j->o.head_stages ? j->o.head_stages + 1 : 0));
    if (split_read_costs(j) || split_set_seconds(j) || split_read_speeds(j) ||
        split_read_modes(j) || split_set_bounds(j))
        return -1;
    q->n_chunks = j->o.n_chunks;
    q->speeds = j->speeds;
    q->stage_modes = j->stage_modes;
    q->bounds = j->bounds;
    q->microbatch = (struct pp_default_microbatch){.tokens = j->o.tokens,
                                                   .seq_len = j->p.seq_len};
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++)
        if (of[e].n_images)
            q->microbatch.items[e] = (struct pp_item_counts){
                (int64_t)of[e].n_images, (int64_t)of[e].patches};
    return 0;
}

static int plan(struct split_job *j)
{
    struct pp_split_request *q = &j->p.request;
    struct pp_split_plan *plan = &j->p.plan;
    struct tool *t = &j->p.t;
    const struct pp_recompute_found *chosen = &plan->run.chosen;
    int rc = j->rule.method == SPLIT_JOINT
                 ? split_plan_joint(j)
                 : pp_split_plan_modes(q, plan, &t->err);
    tool_erase(t);
    if (rc)
        return -1;
    if (j->bounds && j->o.recompute_auto && chosen->fits)
        tool_say(t, TOOL_DETAIL,
                 "recomputation: a step of %g %s, at least %g for this split",
                 chosen->makespan, q->profile ? "s" : "flop", chosen->bound);
    note_seq_len(j);
    return 0;
}

/* --- memory --- */

/* Returns the stage of a rank that needs most. */
static int heaviest_stage(const struct pp_split_plan *p, int rank)
{
    int most = -1;
    double bytes = -1;
    for (int s = 0; s < p->graph.n_stages; s++) {
        double b = p->stages[s].state_bytes + p->stages[s].activations_bytes;
        if (p->graph.stages[s].row == rank && b > bytes) {
            most = s;
            bytes = b;
        }
    }
    return most;
}

/* Writes the changes with which the plan fits, as the end of the message. */
static void format_changes(const struct pp_split_plan *p, char *buf,
                           size_t bytes)
{
    char ranks[40] = "", recompute[40 + PP_RECOMPUTE_TEXT] = "",
         replicas[80] = "", limit[40] = "", set[PP_RECOMPUTE_TEXT];
    const struct pp_split_changes c = pp_split_plan_changes(p);
    if (c.even_experts)
        snprintf(limit, sizeof limit, ", or --expert-limit 1");
    if (c.recompute)
        snprintf(recompute, sizeof recompute, ", or --recompute %s",
                 pp_recompute_text(c.recompute, set));
    if (c.n_replicas > 1)
        snprintf(replicas, sizeof replicas, ", or --dp %" PRId64 " (ZeRO-%d)",
                 c.n_replicas,
                 p->run.request->shard.mesh.divided_weights ? 3 : 1);
    if (c.n_ranks > 0)
        snprintf(ranks, sizeof ranks, ", or -p %" PRId64, c.n_ranks);
    char all[sizeof limit + sizeof recompute + sizeof replicas + sizeof ranks];
    snprintf(all, sizeof all, "%s%s%s%s", limit, recompute, replicas, ranks);
    if (!*all)
        snprintf(buf, bytes,
                 "; recomputation, replicas or more ranks alone are "
                 "not enough");
    else
        snprintf(buf, bytes, ": it would fit with%s", all + strlen(", or"));
}

/* Returns true if splits were searched, but not all of them. */
static bool is_undecided(const struct pp_split_run *run)
{
    return !run->request->bounds && run->simulated && !run->found.proved;
}

/* Refuses with PP_EXIT_NO if a rank needs more than --memory. */
static int check_memory(struct split_job *j)
{
    const struct pp_split_plan *p = &j->p.plan;
    char text[4][32], advice[400];
    if (j->p.memory_bytes == 0 || pp_split_plan_fits(p))
        return 0;
    if (is_undecided(&p->run))
        tool_say(&j->p.t, TOOL_NOTE,
                 "the search stopped early; another split may fit");
    int rank = pp_split_plan_fullest(p), part = 0;
    const size_t *parts = p->ranks[rank].bytes.part;
    double most = pp_split_plan_need(p, rank);
    double over = most - (double)j->p.memory_bytes;
    for (int k = 1; k < PP_N_MEMORY_PARTS; k++)
        part = parts[k] > parts[part] ? k : part;
    pp_format_size(pp_size_of(most), text[0]);
    pp_format_size(pp_size_of(over), text[1]);
    pp_format_size(j->p.memory_bytes, text[2]);
    pp_format_size(parts[part], text[3]);
    format_changes(p, advice, sizeof advice);
    return pp_fail(
        &j->p.t.err, PP_EXIT_NO,
        "rank %d needs %s (%s %s), %s more than the limit of %s (%s "
        "%d; %.0f bytes)%s",
        rank, text[0], pp_memory_part_names[part], text[3], text[1], text[2],
        p->graph.n_stages == p->graph.n_rows ? "stage" : "most in stage",
        heaviest_stage(p, rank), ceil(over), advice);
}

/* --- output --- */

/* Notes that --moe-layer-freq made another model of it. */
static int say_matches(struct split_job *j, const struct pp_manifest *m,
                       struct pp_err *err)
{
    struct pp_model model;
    struct pp_err why = {0};
    if (!j->p.moe_layer_freq)
        return 0;
    if (pp_model_read(j->p.source, &model, err))
        return -1;
    model.n_mtp = j->p.model.n_mtp;
    if (tool_plan_matches(m, &model, &why))
        tool_say_refused(&j->p.t, &why);
    return 0;
}

static int print_manifest(struct split_job *j, FILE *f)
{
    struct pp_err *err = &j->p.t.err;
    struct pp_arena a = {0};
    struct pp_manifest m;
    pp_manifest_init(&m);
    int rc =
        planner_fill_manifest(&j->p.plan, j->p.source, &a, &m, err) ||
                (j->rule.method == SPLIT_JOINT && split_set_order(j, &a, &m)) ||
                tool_write_manifest(&j->p.t, &m, f)
            ? -1
            : 0;
    if (rc == 0) {
        m.graph.slices.n = j->p.plan.run.graph.slices.n;
        planner_say_runs(&j->p, &m);
        rc = say_matches(j, &m, err);
    }
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}

static int print(struct split_job *j)
{
    FILE *f = tool_output(&j->p.t);
    if (!f)
        return -1;
    if (j->p.table)
        return split_print_table(j, f, &j->p.t.err);
    if (j->o.export)
        return split_print_export(j, f, &j->p.t.err);
    return print_manifest(j, f);
}

/* Says with -v how good the split is. */
static void say(struct split_job *j)
{
    const struct pp_split_run *run = &j->p.plan.run;
    const struct pp_split_found *x = &run->found;
    tool_say(&j->p.t, TOOL_DETAIL, "%d stages, %zu units",
             j->p.plan.graph.n_stages, j->n_units);
    if (run->shortest)
        tool_say(&j->p.t, TOOL_DETAIL,
                 "%s, %" PRId64 " microbatches: a step of %g %s, at least %g "
                 "for any split (gap %.2f %%), %zu simulated",
                 run->name, run->n_microbatches, x->makespan,
                 j->p.request.profile ? "s" : "flop", x->bound,
                 100 * (1 - x->bound / x->makespan), x->n_simulated);
}

static int run(struct split_job *j, int argc, char **argv)
{
    if (split_read_options(j, argc, argv))
        return -1;
    if (j->o.models)
        return split_print_models(j);
    if (split_generates(j))
        return split_add_generator(j);
    if (read_model(j) || complete_request(j))
        return -1;
    if (j->o.compare)
        return split_compare(j);
    if (plan(j) || check_memory(j) || (j->o.svg && split_draw(j)) || print(j))
        return -1;
    say(j);
    return 0;
}

int main(int argc, char **argv)
{
    struct split_job j = {
        .p.t = {.name = "ppsplit",
                .synopsis = "-p RANKS [-c CHUNKS] [options] MODEL\n"
                            "       ppsplit -t | --export FORM | --svg FILE "
                            "[options] [MANIFEST]\n"
                            "       ppsplit --combine PLANS [options]\n"
                            "       ppsplit --models [--json]",
                .summary =
                    "Decide which layers each stage of a pipeline holds; "
                    "print a manifest.",
                .options = split_options,
                .everyday = "units seq-len ranks chunks placement dp tp cp ep "
                            "zero schedule microbatches costs gpu link memory "
                            "recompute method layers models table compare svg "
                            "export output verbose help"},
        .p.mesh = {1, 1, 1, 1, 1},
        .rule = {.input_weight = -1, .output_weight = -1, .encoder_layers = -1},
    };
    (void)run(&j, argc, argv); /* tool_finish prints the error */
    pp_split_plan_finish(&j.p.plan);
    pp_mesh_kinds_finish(&j.kinds);
    pp_arena_finish(&j.p.arena);
    return tool_finish(&j.p.t);
}
