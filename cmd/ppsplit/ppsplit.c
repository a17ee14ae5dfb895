/* SPDX-License-Identifier: MIT */
/* ppsplit - decides which layers each stage of a pipeline holds: reads options
 * and the model, calls lib/split, and prints the plan. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ppsplit.h"
#include "run/objectives/objective.h"

enum {
    DEFAULT_SEQ_LEN = 4096,
    DEFAULT_ROUNDS = 4 /* microbatches for each rank */
};

/* --- the problem --- */

static void show_progress(void *ctx, double best, double bound)
{
    struct split_job *j = ctx;
    tool_progress(&j->t, "searching: %g, bound %g", best, bound);
}

/* Chooses the sequence length: the model's, and what the ranks can divide. */
static void choose_seq_len(struct split_job *j)
{
    int64_t most = (int64_t)j->model.max_position;
    j->undivided = most > 0 && most < DEFAULT_SEQ_LEN ? most : DEFAULT_SEQ_LEN;
    j->seq_len =
        (int64_t)pp_round_up((size_t)j->undivided, pp_mesh_align(&j->mesh));
}

static void note_seq_len(struct split_job *j)
{
    if (j->undivided && j->undivided != j->seq_len)
        tool_say(&j->t, TOOL_NOTE,
                 "the plan is for sequences of %" PRId64
                 " tokens, as the ranks cannot divide %" PRId64
                 ": it is not a multiple of %zu",
                 j->seq_len, j->undivided, pp_mesh_align(&j->mesh));
}

static int set_request(struct split_job *j)
{
    if (!j->precision)
        j->precision = j->model.dtype ? pp_precision_find(j->model.dtype)
                                      : &pp_precisions[0];
    if (split_choose_machine(j))
        return -1;
    if (j->seq_len == 0)
        choose_seq_len(j);
    if (j->tokens == 0)
        j->tokens = j->seq_len;
    if (j->trainer != pp_trainers)
        j->mesh.pp = (int)j->n_ranks;
    j->request = (struct pp_split_request){
        .shard = pp_shard_of(&j->model, &j->mesh),
        .precision = j->precision,
        .gpu = j->device ? j->device == 2
                         : j->precision->element_bytes <
                               j->precision->accumulator_bytes,
        .trainer = j->trainer,
        .encoders = j->n_meshes ? j->encoders : NULL,
        .profile = j->costs_file || j->has_profile ? &j->profile : NULL,
        .machine = j->has_machine ? &j->machine : NULL,
        .n_ranks = j->n_ranks,
        .n_microbatches = j->n_microbatches > 0 ? j->n_microbatches
                                                : DEFAULT_ROUNDS * j->n_ranks,
        .placement = j->placement,
        .kind = j->search_order ? NULL : j->kind,
        .search_order = j->search_order,
        .memory_bytes = j->memory_bytes,
        .shortest = true,
        .layout = j->export == SPLIT_EXPORT_MEGATRON || j->trainer->layout,
        .encoder_ranks = j->encoder_ranks,
        .recompute = j->recompute,
        .recompute_auto = j->recompute_auto,
        .scores_rows = j->objective != PP_OBJECTIVE_SFT,
        .plan_buffers = j->table || j->svg,
        .progress = show_progress,
        .ctx = j,
    };
    return 0;
}

/* Checks that the model is the one of the manifests that the split is from. */
static int check_given(struct split_job *j)
{
    uint64_t n = pp_model_n_params(&j->model);
    if (!j->given || n == j->given_params)
        return 0;
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "'%s' has %" PRIu64 " parameters, but its plan has %" PRIu64
                   "; if the plan was made with --moe-layer-freq, give it",
                   j->source, n, j->given_params);
}

/* Reads the files and lists of options, and sets the rest of the request. */
static int complete_request(struct split_job *j)
{
    struct pp_split_request *q = &j->request;
    const struct pp_image_load *of = q->shard.images;
    if (set_request(j) || split_set_images(j) || split_set_chunks(j))
        return -1;
    j->n_units = pp_model_n_units(&j->model);
    if (split_set_roles(j) || check_given(j))
        return -1;
    j->n_stages = (size_t)(j->n_ranks * j->n_chunks);
    if (split_read_costs(j) || split_set_seconds(j) || split_read_speeds(j) ||
        split_read_modes(j) || split_set_bounds(j))
        return -1;
    q->n_chunks = j->n_chunks;
    q->speeds = j->speeds;
    q->stage_modes = j->stage_modes;
    q->bounds = j->bounds;
    q->microbatch = (struct pp_default_microbatch){
        .tokens = j->tokens,
        .seq_len = j->seq_len,
        .n_images = (int64_t)of->n_images,
        .image_patches = of->n_images ? (int64_t)of->patches : 0,
        .n_clips = (int64_t)of[1].n_images,
        .clip_rows = of[1].n_images ? (int64_t)of[1].patches : 0};
    return 0;
}

/* Plans with the least recomputation of all stages that fits. */
static int plan_modes(struct split_job *j)
{
    struct pp_split_request *q = &j->request;
    bool fits = false;
    q->recompute_auto = false;
    for (int r = 0; r < PP_N_RECOMPUTES && !fits; r++) {
        if (r == PP_RECOMPUTE_SELECTIVE && !j->trainer->selective)
            continue;
        pp_split_plan_finish(&j->plan);
        q->recompute = (enum pp_recompute)r;
        if (pp_split_plan(q, &j->plan, &j->t.err))
            return -1;
        fits = pp_split_plan_fits(&j->plan);
    }
    return 0;
}

static int plan(struct split_job *j)
{
    const struct pp_recompute_found *chosen = &j->plan.run.chosen;
    bool alike = j->recompute_auto && !j->trainer->modes;
    int rc = j->method == SPLIT_JOINT ? split_plan_jointly(j)
             : alike                  ? plan_modes(j)
                     : pp_split_plan(&j->request, &j->plan, &j->t.err);
    tool_erase(&j->t);
    if (rc == 0 && j->bounds && j->recompute_auto && chosen->fits)
        tool_say(&j->t, TOOL_DETAIL,
                 "recomputation: a step of %g %s, at least %g for this split",
                 chosen->makespan, split_has_seconds(j) ? "s" : "flop",
                 chosen->bound);
    if (rc == 0)
        note_seq_len(j);
    return rc;
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
static void format_changes(const struct split_job *j, char *buf, size_t bytes)
{
    char ranks[40] = "", recompute[40] = "", replicas[80] = "", limit[40] = "";
    const struct pp_split_changes c = pp_split_plan_changes(&j->plan);
    if (c.expert_limit)
        snprintf(limit, sizeof limit, ", or --expert-limit %d", c.expert_limit);
    if (c.recompute)
        snprintf(recompute, sizeof recompute, ", or --recompute %s",
                 c.recompute);
    if (c.n_replicas > 1)
        snprintf(replicas, sizeof replicas, ", or --dp %" PRId64 " (ZeRO-%d)",
                 c.n_replicas, j->mesh.divided_weights ? 3 : 1);
    if (c.n_ranks > 0)
        snprintf(ranks, sizeof ranks, ", or -p %" PRId64, c.n_ranks);
    char all[200];
    snprintf(all, sizeof all, "%s%s%s%s", limit, recompute, replicas, ranks);
    if (!*all)
        snprintf(buf, bytes,
                 "; recomputation, replicas or more ranks alone are "
                 "not enough");
    else
        snprintf(buf, bytes, ": it would fit with%s", all + strlen(", or"));
}

/* Returns true if splits were searched, but not all of them. */
static bool is_undecided(const struct split_job *j)
{
    return !j->bounds && j->plan.run.simulated && !j->plan.run.found.proved;
}

/* Refuses with PP_EXIT_NO if a rank needs more than --memory. */
static int check_memory(struct split_job *j)
{
    const struct pp_split_plan *p = &j->plan;
    char text[4][32], advice[240];
    if (j->memory_bytes == 0 || pp_split_plan_fits(p))
        return 0;
    if (is_undecided(j))
        tool_say(&j->t, TOOL_NOTE,
                 "the search stopped early; another split may fit");
    int rank = pp_split_plan_fullest(p), part = 0;
    const size_t *parts = p->ranks[rank].bytes.part;
    double most = pp_split_plan_need(p, rank);
    double over = most - (double)j->memory_bytes;
    for (int k = 1; k < PP_N_MEMORY_PARTS; k++)
        part = parts[k] > parts[part] ? k : part;
    pp_format_size(pp_size_of(most), text[0]);
    pp_format_size(pp_size_of(over), text[1]);
    pp_format_size(j->memory_bytes, text[2]);
    pp_format_size(parts[part], text[3]);
    format_changes(j, advice, sizeof advice);
    return pp_fail(
        &j->t.err, PP_EXIT_NO,
        "rank %d needs %s (%s %s), %s more than the limit of %s (%s "
        "%d; %.0f bytes)%s",
        rank, text[0], pp_memory_part_names[part], text[3], text[1], text[2],
        p->graph.n_stages == p->graph.n_rows ? "stage" : "most in stage",
        heaviest_stage(p, rank), ceil(over), advice);
}

/* --- output --- */

static int print(struct split_job *j, int argc, char **argv)
{
    FILE *f = tool_output(&j->t);
    if (!f)
        return -1;
    if (j->table)
        return split_print_table(j, f, &j->t.err);
    if (j->export)
        return split_print_export(j, f, &j->t.err);
    char *command = tool_command(argc, argv);
    int rc = split_print_manifest(j, command, f, &j->t.err);
    free(command);
    return rc;
}

/* Says with -v how good the split is. */
static void say(struct split_job *j)
{
    const struct pp_split_run *run = &j->plan.run;
    const struct pp_split_found *x = &run->found;
    tool_say(&j->t, TOOL_DETAIL, "%d stages, %zu units", j->plan.graph.n_stages,
             j->n_units);
    if (run->shortest)
        tool_say(&j->t, TOOL_DETAIL,
                 "%s, %" PRId64 " microbatches: a step of %g %s, at least %g "
                 "for any split (gap %.2f %%), %zu simulated",
                 run->name, run->n_microbatches, x->makespan,
                 split_has_seconds(j) ? "s" : "flop", x->bound,
                 100 * (1 - x->bound / x->makespan), x->n_simulated);
}

static int run(struct split_job *j, int argc, char **argv)
{
    if (split_read_options(j, argc, argv))
        return -1;
    if (j->models)
        return split_print_models(j);
    if (split_generates(j))
        return split_add_generator(j, argc, argv);
    if (split_read_model(j) || complete_request(j))
        return -1;
    if (j->compare)
        return split_compare(j);
    if (plan(j) || check_memory(j) || (j->svg && split_draw(j)) ||
        print(j, argc, argv))
        return -1;
    say(j);
    return 0;
}

int main(int argc, char **argv)
{
    struct split_job j = {
        .t = {.name = "ppsplit",
              .synopsis = "-p RANKS [-c CHUNKS] [options] MODEL\n"
                          "       ppsplit -t | --export FORM | --svg FILE "
                          "[options] [MANIFEST]\n"
                          "       ppsplit --combine PLANS [options]\n"
                          "       ppsplit --models [--json]",
              .summary = "Decide which layers each stage of a pipeline holds; "
                         "print a manifest.",
              .options = split_options,
              .everyday = "units seq-len ranks chunks placement dp tp cp ep "
                          "zero schedule microbatches costs gpu link memory "
                          "recompute method layers models table compare svg "
                          "export output verbose help"},
        .input_weight = -1,
        .output_weight = -1,
        .encoder_layers = -1,
        .mesh = {1, 1, 1, 1, 1},
    };
    (void)run(&j, argc, argv); /* tool_finish prints the error */
    pp_split_plan_finish(&j.plan);
    pp_split_joint_finish(&j.joint);
    pp_arena_finish(&j.arena);
    return tool_finish(&j.t);
}
