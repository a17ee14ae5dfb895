/* SPDX-License-Identifier: MIT */
/* job - makes a job from the options and a manifest. Opens every file and
 * checks every reference before a rank starts. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/foreign.h"
#include "cost/workloads.h"
#include "manifest/adapter_config.h"
#include "manifest/config_json.h"
#include "model/vision.h"
#include "runner/runner.h"
#include "run/checkpoint/files.h"
#include "run/parameters/weights.h"
#include "schedule/check/check.h"
#include "tool_manifest.h"

/* Reads the manifest, unless rank 0 has: then its text is there. */
static int load_manifest(struct runner *p, const char **name)
{
    if (p->text)
        return pp_manifest_parse(p->text, p->text_bytes, *name, &p->manifest,
                                 &p->tool->err);
    return tool_read_manifest(p->tool, name, &p->manifest);
}

int runner_read_manifest(struct runner *p, const char **at)
{
    struct pp_err *err = &p->tool->err;
    if (load_manifest(p, at))
        return -1;
    const char *name = *at;
    const struct pp_manifest *m = &p->manifest;
    if (!m->has_model || !m->has_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: no %s; make one with ppsplit -p RANKS MODEL", name,
                       m->has_model ? "stages" : "model");
    if (!m->has_schedule)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: no schedule; add one with ppsched -s KIND -m N",
                       name);
    if (p->rank == 0 && pp_check(&m->schedule, err))
        return pp_fail_at(err, "%s: ", name);
    int stage = m->graph.replicas ? pp_unreduced_stage(&m->schedule) : -1;
    return stage < 0 ? 0
                     : pp_fail(err, PP_EXIT_NO,
                               "%s: rank %d: '%dREDUCE_GRAD' is missing; make "
                               "the schedule with ppsched",
                               name, m->graph.stages[stage].row, stage);
}

/* Refuses plans that cannot run, or not with these options. */
static int check_supported(struct runner *p)
{
    struct pp_manifest *m = &p->manifest;
    if (p->job.generate.n) { /* a token that is drawn is not dropped */
        m->mesh.expert_capacity = 0;
        m->mesh.expert_padding = false;
    }
    return tool_runs(m, &p->tool->err) ||
                   tool_objective_runs(m, p->job.settings.objective.number,
                                       &p->tool->err)
               ? -1
               : 0;
}

/* Refuses settings of routers that would have no effect or be wrong. */
static int check_router(const struct runner *p)
{
    const struct runner_options *o = &p->options;
    bool has_losses = pp_router_has_losses(&p->job.settings.router);
    const char *loss =
        p->job.settings.router.balance > 0 ? "--router aux" : "--router z";
    const char *name = has_losses          ? loss
                       : o->record_routing ? "--record-routing"
                       : o->replay_routing ? "--replay-routing"
                                           : NULL;
    if (p->job.settings.router.bias_rate > 0 && !p->model.moe.score_bias)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' has no biases of routers, so "
                       "--router bias-rate has no effect",
                       p->manifest.model.architecture);
    if (name && !p->model.moe.n_experts)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' has no experts, so %s has no "
                       "effect",
                       p->manifest.model.architecture, name);
    return has_losses && p->manifest.graph.slices.n > 1
               ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "/schedule/slices: '%d', but %s counts the tokens of "
                         "whole microbatches; take a schedule without slices",
                         p->manifest.graph.slices.n, loss)
               : 0;
}

/* A plan that is exact takes products of single rows. */
static int choose_exact(struct runner *p)
{
    struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    if (!p->manifest.mesh.cp_exact)
        return 0;
    if (o->device != RUNNER_CPU || o->blas_threads > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/mesh/cp_exact: 'true' implies --row-invariant, which "
                       "excludes %s; plan without --cp-exact",
                       o->device != RUNNER_CPU ? "--device cuda"
                                               : "--blas-threads");
    if (pp_router_has_losses(&p->job.settings.router))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/mesh/cp_exact: 'true', but losses of routers add sums "
                       "of each context-parallel rank; plan without "
                       "--cp-exact");
    o->row_invariant = true;
    p->job.kernels = runner_cpu_kernels(p, o->dtype == RUNNER_FP64);
    return 0;
}

/* Refuses a reward model for what needs words, and the other way round; and a
 * divided head for what needs all words of a row at once. */
static int check_head(const struct runner *p)
{
    const struct runner_options *o = &p->options;
    const char *name = p->manifest.model.architecture;
    struct pp_err *err = &p->tool->err;
    bool rewards = p->job.settings.objective.number == PP_OBJECTIVE_REWARD;
    const char *all = p->job.generate.n ? "--generate"
                      : p->job.top_k    ? "--top-k"
                      : p->job.entropy  ? "--entropy"
                                        : NULL;
    const char *words = all || p->job.temperature <= 0 ? all : "--temperature";
    if (p->model.head_stages && all)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: several units divide the head of '%s'; "
                       "plan without --head-stages for %s",
                       name, all);
    if (!p->model.scores)
        return 0;
    if (words)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' gives rewards and no words; "
                       "run it without %s",
                       name, words);
    return rewards || p->job.score || o->plan
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "/model/architecture: '%s' gives rewards; run it with "
                         "--objective reward or ppscore --logprobs",
                         name);
}

/* Refuses a reference without adapters that the objective has no use for, or
 * that is not built. */
static int check_reference(const struct runner *p)
{
    const struct pp_objective_options *o = &p->job.settings.objective;
    struct pp_err *err = &p->tool->err;
    if (p->job.reference == PP_REFERENCE_DATA)
        return 0;
    if (!p->model.lora)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--reference: 'base' is a model without its adapters, "
                       "and the plan has none; make it with ppsplit --lora");
    if (p->model.lora->saved && *p->model.lora->saved)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--reference: 'base', but the plan trains '%s' of the "
                       "base, too; give pppack --add-column the scores of "
                       "ppscore --logprobs",
                       p->model.lora->saved);
    return pp_objective_reads(o) & pp_column_bit(PP_COLUMN_REF_LOGPROBS)
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "--reference: 'base', but the objective '%s' with its "
                         "settings has no reference",
                         pp_objective_names[o->number]);
}

/* Finds whether the plan has layers for multi-token prediction, and refuses
 * what pprun does not do with one. */
static int check_mtp(struct runner *p)
{
    const struct pp_plan_model *m = &p->manifest.model;
    struct pp_err *err = &p->tool->err;
    if (m->ahead)
        p->model.n_mtp = p->model.n_nextn;
    if (!p->model.n_mtp &&
        pp_setting_given(&p->job.settings, PP_OWNER_LOSS, "mtp"))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/units: no layer for multi-token prediction, so "
                       "--loss mtp has no effect; plan with ppsplit --mtp");
    return 0;
}

/* Finds whether several units divide the head in the plan. */
static void count_head_stages(struct runner *p)
{
    const struct pp_plan_model *m = &p->manifest.model;
    for (size_t i = 0; i < m->n_units; i++)
        p->model.head_stages += pp_fqn_is_head_part(m->units[i].fqn);
}

/* Lists the stages, adapters and the roles of units, as the job takes them. */
static int list_stages(struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    size_t n_stages = (size_t)m->graph.n_stages;
    p->roles = calloc(m->model.n_units, sizeof *p->roles);
    p->stages = calloc(n_stages, sizeof *p->stages);
    p->recompute = calloc(n_stages, sizeof *p->recompute);
    if (!p->roles || !p->stages || !p->recompute)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < m->model.n_units; i++)
        p->roles[i] = m->model.units[i].role;
    if (m->model.lora.there)
        p->model.lora = &m->model.lora.of;
    if (p->model.lora && pp_lora_check(p->model.lora, &p->tool->err))
        return pp_fail_at(&p->tool->err, "/model/lora: ");
    if (m->model.has_frozen) {
        p->model.roles = p->roles;
        p->generator.roles =
            p->roles + pp_component_first(&p->model, PP_GENERATOR);
    }
    for (int s = 0; s < m->graph.n_stages; s++) {
        p->recompute[s] = m->stages[s].recompute;
        p->stages[s] = (struct pp_unit_range){
            s, m->stages[s].first_unit, m->stages[s].n_units,
            pp_copy_number(&m->graph, pp_home(&m->graph, s))};
    }
    return 0;
}

/* Refuses two encoders that have no names. */
static int check_branches(const struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    return pp_model_n_encoders(&p->model) > 1 &&
                   m->n_components <= PP_MAX_ENCODERS
               ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "/components: must name both encoders of '%s' and its "
                         "language model",
                         m->model.architecture)
               : 0;
}

/* Refuses what pprun does not do with a model that has an encoder. */
static int check_images(const struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    const struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    const char *name = m->model.architecture;
    if (!pp_model_has_encoder(&p->model))
        return 0;
    if (check_branches(p))
        return -1;
    if (m->components[0].apart && o->shapes == PP_MESSAGE_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/components: messages to ranks of another mesh have "
                       "their own sizes; run without --message-size max");
    for (size_t k = 0; k < pp_model_n_encoders(&p->model); k++) {
        bool apart =
            k < pp_plan_language(pp_manifest_plan(m)) && m->components[k].apart;
        if (pp_mesh_check_encoder(apart ? &m->components[k].mesh : NULL,
                                  &m->mesh, &p->model, k, err))
            return -1;
    }
    if (p->job.generate.n || o->shrink)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' has an encoder, "
                       "for which --%s makes no data",
                       name, p->job.generate.n ? "generate" : "shrink");
    return 0;
}

/* Checks that the manifest was made from this model, and reads its stages. */
static int match_model(struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    struct pp_err *err = &p->tool->err;
    if (pp_model_read(m->model.source, &p->model, err))
        return -1;
    const char *name = pp_model_architecture(&p->model);
    if (strcmp(m->model.architecture, name))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s', but '%s' is '%s'",
                       m->model.architecture, m->model.source, name);
    count_head_stages(p);
    if (check_mtp(p) || runner_read_generator(p) ||
        pp_mesh_check(&m->mesh, &p->model, 0, err) || check_images(p))
        return -1;
    if (m->model.tied != p->model.tied)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/tied: '%s', but '%s' says otherwise",
                       m->model.tied ? "true" : "false", m->model.source);
    return list_stages(p) || tool_plan_matches(m, &p->model, err) ? -1 : 0;
}

/* Rank 0 checks the weights as a whole; each rank checks its own. */
static int check_weights(struct runner *p, const char *path)
{
    const char *first;
    if (p->rank != 0)
        return 0;
    if (pp_weights_check(&p->model, p->weights, &p->tool->err) ||
        pp_weights_check_tied(&p->model, p->weights, &p->tool->err))
        return pp_fail_at(&p->tool->err, "%s: ", path);
    size_t n = pp_weights_unused(&p->model, p->weights, &first);
    if (n > 0 && pp_lora_has(first))
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "'%s' is not among the targets of the plan", first);
    if (n > 0)
        tool_say(p->tool, TOOL_WARNING,
                 "%s: %zu tensor%s no place in the model: '%s'%s", path, n,
                 n == 1 ? " has" : "s have", first, n == 1 ? "" : ", ...");
    return 0;
}

/* Names what a directory has instead of weights that can be read. */
static int fail_weights(const struct runner *p, const char *source)
{
    struct pp_err *err = &p->tool->err;
    const char *instead = pp_foreign_dir(source);
    if (instead)
        return pp_fail(err, PP_EXIT_INPUT, "'%s' %s", source, instead);
    return pp_fail(err, PP_EXIT_INPUT,
                   "'%s' has no weights; give --weights PATH or --init SEED",
                   source);
}

/* Compares the adapters of a unit with the adapters of the option. */
static int match_adapters(struct runner *p, struct pp_unit_id u,
                          const struct pp_lora *l)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    const struct pp_lora *want = p->model.lora;
    const char *dir = p->options.adapter;
    pp_unit_params(&p->model, u, table);
    for (size_t i = 0; u.kind == PP_UNIT_LAYER && i < PP_N_ADAPTED; i++) {
        const char *name = table[pp_lora_slots[i]].name;
        size_t rank = pp_lora_rank(l, name), planned = pp_lora_rank(want, name);
        double scale = pp_lora_scale(l, name),
               wanted = pp_lora_scale(want, name);
        if (table[PP_P_ADAPTERS + 2 * i].name[0] &&
            (rank != planned || scale != wanted))
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "--adapter: '%s' has rank %zu and scale %g, but the "
                           "plan has rank %zu and scale %g for '%s'; make it "
                           "with ppsplit --lora '%s'",
                           dir, rank, scale, planned, wanted, name, dir);
    }
    return 0;
}

/* Adds the adapter that training starts from. It must have the tensors of the
 * plan, and their factor. */
static int open_adapter(struct runner *p)
{
    const char *dir = p->options.adapter;
    const struct pp_lora *want = p->model.lora;
    struct pp_err *err = &p->tool->err;
    struct pp_lora l;
    bool dropout;
    if (!dir)
        return 0;
    if (!want)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--adapter: the plan has no adapters; make it with "
                       "ppsplit --lora '%s'",
                       dir);
    const char *path = pp_arena_printf(&p->manifest.arena,
                                       "%s/adapter_model.safetensors", dir);
    if (pp_adapter_config_read(dir, &p->manifest.arena, &l, &dropout, err) ||
        pp_tensors_add(p->weights, path, "", err))
        return -1;
    for (size_t i = 0; i < pp_model_n_units(&p->model); i++)
        if (match_adapters(p, pp_model_unit(&p->model, i), &l))
            return -1;
    return 0;
}

/* Leaves the base of adapters in its files, if a CPU reads it there: not if
 * ranks divide it, or a check compares weights. */
static void map_base(struct runner *p)
{
    p->model.maps = p->model.lora && p->job.device && p->job.device->is_host &&
                    !p->options.verify &&
                    !pp_mesh_divides_weights(&p->manifest.mesh);
}

static int find_weights(struct runner *p)
{
    const struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    const char *source = p->manifest.model.source;
    if ((p->resume && !p->model.lora) || o->seed >= 0 || o->shrink) {
        p->job.seed = (uint64_t)(o->shrink && o->seed < 0 ? 1 : o->seed);
        return 0;
    }
    const char *path = o->weights ? o->weights : source;
    if (!o->weights && !(pp_file_is_dir(source) && pp_tensors_exist(source)))
        return fail_weights(p, source);
    if (runner_check_weights(p, path) ||
        pp_tensors_open(path, &p->weights, err))
        return -1;
    if (runner_open_generator(p, path) || open_adapter(p) ||
        check_weights(p, path) ||
        (p->model.lora &&
         pp_weights_base(p->weights, &p->job.base_checksum, err)))
        return -1;
    p->job.weights = p->weights;
    p->job.weights_path = path;
    map_base(p);
    return 0;
}

/* Opens the weights of a plan of memory that counts weights in files. */
static int plan_weights(struct runner *p)
{
    const char *source = p->manifest.model.source;
    return p->model.lora && (p->options.weights || (pp_file_is_dir(source) &&
                                                    pp_tensors_exist(source)))
               ? find_weights(p)
               : 0;
}

int runner_open_weights(struct runner *p, const char *manifest)
{
    return runner_read_manifest(p, &manifest) || match_model(p) ||
                   find_weights(p)
               ? -1
               : 0;
}

/* Gives the job the model, the schedule and the components of the manifest. */
static void take_plan(struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    struct pp_job *j = &p->job;
    j->model = &p->model;
    j->schedule = &m->schedule;
    j->forward = &p->forward;
    j->stages = p->stages;
    j->recompute = p->recompute;
    j->mesh = m->mesh;
    if (m->n_components && m->components[0].apart)
        j->components = pp_manifest_layout(m);
    runner_join_generator(&j->components);
    if (j->components.n_components == 1) /* it has all rows */
        j->components.n_components = 0;
    j->n_named = m->n_components <= PP_MAX_COMPONENTS ? m->n_components : 0;
    for (size_t i = 0; i < j->n_named; i++)
        j->named_units[i] = m->components[i].n_units;
}

static void say_dropout(const struct runner *p, const char *source,
                        const struct pp_model *m)
{
    if (m->dropout && !p->job.score)
        tool_say(p->tool, TOOL_NOTE,
                 "'%s' asks for dropout by %s, which pprun does not apply",
                 source, m->dropout);
}

int runner_prepare(struct runner *p, const char *manifest)
{
    struct pp_job *j = &p->job;
    struct pp_err *err = &p->tool->err;
    if (runner_read_manifest(p, &manifest))
        return -1;
    if (check_supported(p) || match_model(p) || choose_exact(p) ||
        check_router(p) || check_head(p) || check_reference(p))
        return pp_fail_at(err, "%s: ", manifest);
    runner_choose_dtype(p);
    say_dropout(p, p->manifest.model.source, &p->model);
    if (p->rank == 0)
        runner_say_settings(p);
    if (p->model.generator)
        say_dropout(p,
                    p->manifest.components[p->manifest.n_components - 1].source,
                    &p->generator);
    if (runner_check_sizes(p, &p->model) ||
        runner_check_sizes(p, &p->generator))
        return -1;
    pp_schedule_forward_only(&p->manifest.schedule, &p->forward);
    take_plan(p);
    j->shapes = (enum pp_message_size)p->options.shapes;
    if (j->top_k > p->model.vocab)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--top-k: '%zu' is more than the vocabulary of %zu",
                       j->top_k, p->model.vocab);
    if (p->options.plan)
        return runner_open_data(p) || plan_weights(p) ? -1 : 0;
    return runner_open_data(p) || runner_routing_open(p) ||
                   p->hooks->prepare(p) || find_weights(p)
               ? -1
               : 0;
}

void runner_finish(struct runner *p)
{
    free(p->text);
    free(p->resume);
    free(p->stages);
    free(p->recompute);
    free(p->roles);
    pp_tensors_close(p->weights);
    pp_background_check_destroy(p->check);
    pp_routes_close(&p->given);
    pp_routes_abort(&p->taken);
    pp_packed_finish(&p->data);
    pp_packed_finish(&p->eval);
    pp_schedule_finish(&p->forward);
    pp_manifest_finish(&p->manifest);
}
