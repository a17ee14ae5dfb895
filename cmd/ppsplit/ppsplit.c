/* SPDX-License-Identifier: MIT */
/* ppsplit - decides which layers each stage of a pipeline holds: from options
 * to a plan, and to its output. Options are read in ppsplit_options.c, methods
 * are in ppsplit_units.c, output is beside them. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/file.h"
#include "manifest/config_json.h"
#include "manifest/units_json.h"
#include "ppsplit.h"
#include "run/parameters/weights.h"

enum {
    DEFAULT_SEQ_LEN = 4096,
    DEFAULT_ROUNDS = 4 /* microbatches for each rank */
};

/* Weights beside the config are compared with it: a plan for tensors that are
 * not there would only fail later, on every rank. */
static int check_weights(struct split_job *j)
{
    struct pp_tensors *tensors;
    if (!pp_model_trained(&j->model) || !pp_file_is_dir(j->source) ||
        !pp_tensors_exist(j->source))
        return 0;
    if (pp_tensors_open(j->source, &tensors, &j->t.err))
        return -1;
    int rc = pp_weights_check(&j->model, tensors, &j->t.err);
    if (rc)
        pp_fail_at(&j->t.err, "%s: ", j->source);
    pp_tensors_close(tensors);
    return rc;
}

static void set_defaults(struct split_job *j)
{
    int64_t most = (int64_t)j->model.max_position;
    if (j->seq_len == 0)
        j->seq_len =
            most > 0 && most < DEFAULT_SEQ_LEN ? most : DEFAULT_SEQ_LEN;
    if (j->tokens == 0)
        j->tokens = j->seq_len;
    j->shorten = j->method == SPLIT_BALANCED &&
                 (j->n_microbatches > 0 || j->kind || j->costs_file ||
                  j->rank_speed || j->recompute_auto);
    if (j->n_microbatches == 0)
        j->n_microbatches = DEFAULT_ROUNDS * j->n_ranks;
}

/* The model is split for one copy of the weights, then the other is placed. */
static int place(struct split_job *j, bool all)
{
    enum pp_placement placement = j->placement;
    if (placement == PP_PLACEMENT_BOTH_WAYS && !all)
        placement = PP_PLACEMENT_LOOP;
    return pp_graph_chain(&j->arena, (int)j->n_ranks, (int)j->n_chunks,
                          placement, &j->graph, &j->t.err);
}

int split_plan(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    set_defaults(j);
    if (split_set_images(j))
        return -1;
    j->n_units = pp_model_n_units(&j->model);
    if (split_chunks(j) ||
        pp_mesh_check(&j->mesh, &j->model, (size_t)j->seq_len, err) ||
        split_schedule(j) || place(j, false) || split_read_costs(j) ||
        split_read_speeds(j))
        return -1;
    j->costs = pp_arena_alloc(&j->arena, j->n_units, sizeof *j->costs);
    j->bounds = pp_arena_alloc(&j->arena, (size_t)j->graph.n_stages + 1,
                               sizeof *j->bounds);
    if (!j->costs || !j->bounds)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++)
        j->costs[i] = split_token_cost(j, i);
    if (split_run_init(j) || split_recompute_stages(j) ||
        (j->automatic && split_auto(j)) || place(j, true))
        return -1;
    return split_sums(j);
}

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
    if (!command)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc = split_print_manifest(j, command, f, &j->t.err);
    free(command);
    return rc;
}

static int read_model(struct split_job *j)
{
    if (j->units)
        return pp_units_read(j->units, &j->arena, &j->model, &j->t.err);
    if (pp_model_read(j->source, &j->model, &j->t.err))
        return -1;
    if (j->mtp && j->model.n_nextn == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--mtp: '%s' has no layers for multi-token prediction",
                       j->source);
    j->model.n_mtp = j->mtp ? j->model.n_nextn : 0;
    return check_weights(j);
}

static int run(struct split_job *j, int argc, char **argv)
{
    if (read_model(j) || split_plan(j) || split_check_memory(j))
        return -1;
    return print(j, argc, argv);
}

/* With -v: what was split, and how good that is. */
static void say(struct split_job *j)
{
    const struct pp_split_found *x = &j->run.found;
    tool_say(&j->t, PP_LOG_DETAIL, "%d stages, %zu units", j->graph.n_stages,
             j->n_units);
    if (j->shorten)
        tool_say(&j->t, PP_LOG_DETAIL,
                 "%s, %" PRId64 " microbatches: a step of %g %s, at least %g "
                 "for any split (gap %.2f %%), %zu simulated",
                 j->run.name, j->n_microbatches, x->makespan,
                 j->measured ? "s" : "flop", x->bound,
                 100 * (1 - x->bound / x->makespan), x->n_simulated);
}

int main(int argc, char **argv)
{
    struct split_job j = {
        .t = {.name = "ppsplit",
              .synopsis = "-p RANKS [-c CHUNKS] [options] MODEL",
              .summary = "Decide which layers each stage of a pipeline holds; "
                         "print a manifest.",
              .options = split_options},
        .input_weight = -1,
        .output_weight = -1,
        .encoder_layers = -1,
        .precision = &pp_precisions[0],
        .mesh = {1, 1, 1, 1, 1},
    };
    if (split_read_options(&j, argc, argv) == 0 && run(&j, argc, argv) == 0)
        say(&j);
    split_run_finish(&j.run);
    pp_arena_finish(&j.arena);
    return tool_finish(&j.t);
}
