/* SPDX-License-Identifier: MIT */
/* rank - sets a rank up and takes it down; its work is in train.c and
 * evaluate.c. */
#include "run/train/rank.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/inventory.h"
#include "run/checkpoint/agree.h"
#include "run/checkpoint/save.h"
#include "run/execute/job.h"
#include "run/execute/sync.h"
#include "run/train/finite.h"

/* Allocates zeroed host memory. On the CPU it is in the plan of memory. */
static void *make(struct pp_rank *r, size_t n, size_t size, struct pp_err *err)
{
    bool is_host = r->env.device->ops->is_host;
    return pp_device_alloc(is_host ? r->env.device : NULL, n, size, "tables",
                           err);
}

/* Computes the RoPE tables of a model; a GPU's first on the host. */
static int make_rope(struct pp_rank *r, struct pp_env *env,
                     const struct pp_model *m, size_t positions,
                     struct pp_err *err)
{
    struct pp_device *d = r->env.device;
    size_t size = r->kernels.accumulator_bytes;
    size_t rotary = pp_model_rotary(m, false), one = positions * (rotary / 2);
    size_t n = positions * (pp_model_rope_width(m) / 2);
    bool is_host = d->ops->is_host;
    env->rope_cos = pp_device_alloc(d, n, size, "rotary tables", err);
    env->rope_sin = pp_device_alloc(d, n, size, "rotary tables", err);
    void *c = is_host ? env->rope_cos : make(r, n, size, err);
    void *s = is_host ? env->rope_sin : make(r, n, size, err);
    int rc = -1;
    if (c && s && env->rope_cos && env->rope_sin) {
        pp_rope_tables(&m->rope, rotary, positions, size, c, s);
        if (n > one) {
            bool scaled = m->query_beta > 0;
            char *more_c = (char *)c + one * size;
            char *more_s = (char *)s + one * size;
            pp_rope_tables(scaled ? &m->rope : &m->windowed_rope,
                           pp_model_rotary(m, !scaled), positions, size, more_c,
                           more_s);
            if (scaled)
                pp_rope_scale(m, positions, size, more_c, more_s);
            *(scaled ? &env->query_cos : &env->windowed_cos) =
                (char *)env->rope_cos + one * size;
            *(scaled ? &env->query_sin : &env->windowed_sin) =
                (char *)env->rope_sin + one * size;
        }
        rc = !is_host && (d->ops->put(d, env->rope_cos, c, n * size, err) ||
                          d->ops->put(d, env->rope_sin, s, n * size, err))
                 ? -1
                 : 0;
    }
    if (!is_host) {
        pp_device_free(NULL, c);
        pp_device_free(NULL, s);
    }
    return rc;
}

/* Opens the queue in which layers of experts read a GPU. */
static int open_reader(struct pp_env *env, struct pp_err *err)
{
    struct pp_device *d = env->device;
    env->reader = (struct pp_reader){0};
    if (!env->expert_counts)
        return 0;
    return d->ops->branch(d, &env->reader.device, err) ||
                   d->ops->streams->event_open(d, &env->reader.event, err)
               ? -1
               : 0;
}

static void close_reader(const struct pp_env *env)
{
    const struct pp_reader *r = &env->reader;
    if (!r->device)
        return;
    r->device->ops->streams->event_close(r->event);
    r->device->ops->close(r->device);
}

/* Opens the second engine, for the forward of overlap pairs. */
static int make_overlap(struct pp_rank *r, const struct pp_table_counts *c,
                        struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_env *env = &r->beside;
    if (!pp_job_overlaps(j, r->env.place.row))
        return 0;
    struct pp_device *d;
    if (r->env.device->ops->open(r->env.comm->local, &d, err))
        return -1;
    *env = r->env;
    env->device = d;
    env->stream = d->stream;
    if (open_reader(env, err))
        return -1;
    pp_rank_others_beside(r);
    return pp_engine_init(&r->worker.overlap, j, env, c, err);
}

static int make_engines(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_worker *w = &r->worker;
    struct pp_table_counts c = pp_job_tables(j, r->env.place.row);
    if ((c.rotary && make_rope(r, &r->env, j->model, c.positions, err)) ||
        (c.generator_rotary &&
         make_rope(r, &r->others[0][PP_ROWS_GENERATED], j->model->generator,
                   c.positions, err)))
        return -1;
    return pp_engine_init(&w->engine, j, &r->env, &c, err) ||
                   make_overlap(r, &c, err)
               ? -1
               : 0;
}

/* Returns the gradients that this rank owns, NULL without gradients. The
 * embedding and the head have the same owners: one shape, and slot 0. */
static void *own_gradients(const struct pp_rank *r,
                           const struct pp_parameter *t)
{
    if (!t->g)
        return NULL;
    return (char *)t->g + t->own.first * r->params.accumulator_bytes;
}

/* Finds the other tensor with the values of the embedding in a copy of the
 * weights: the head, or that of the layer for multi-token prediction. */
static const struct pp_parameter *find_tied(const struct pp_rank *r, int copy)
{
    const struct pp_model *m = r->job->model;
    size_t head = pp_component_first(m, PP_GENERATOR) - 1;
    return m->tied ? pp_parameters_find(&r->params, copy, head, PP_P_WEIGHT)
                   : pp_parameters_find(&r->params, copy, head - 1,
                                        PP_P_NEXT_EMBED);
}

/* Finds the gradients of both in a copy of the weights, and the rank that holds
 * the other one. */
static void make_tied(struct pp_rank *r, int copy)
{
    const struct pp_graph *g = r->worker.graph;
    struct pp_tied *t = &r->worker.tied[copy];
    size_t embed = pp_model_n_first(r->job->model) - 1;
    const struct pp_parameter *e =
        pp_parameters_find(&r->params, copy, embed, 0);
    const struct pp_parameter *h = find_tied(r, copy);
    if (!e && !h)
        return;
    t->used = true;
    t->embed = e ? own_gradients(r, e) : NULL;
    t->head = h ? own_gradients(r, h) : NULL;
    t->n = e ? e->own.n : h->own.n;
    int other = g->tied[e ? 1 : 0] + copy * (g->n_stages / g->n_copies);
    t->peer = e && h ? -1 : pp_env_peer(&r->env, g->stages[other].row);
}

/* Prepares the sums of gradients over ranks. */
static int make_syncs(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_graph *g = r->worker.graph;
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies; k++)
        make_tied(r, k);
    bool has_replicas = pp_job_replicas(r->job, r->env.place.row) > 1;
    if (has_replicas &&
        pp_reducer_init(&r->worker.reducer, r->env.device, r->params.n, err))
        return -1;
    const struct pp_table_counts c = pp_job_tables(r->job, r->env.place.row);
    if (c.sums < 2)
        return 0;
    r->worker.sums_by_transport = r->job->nccl_sums;
    r->worker.room_values = pp_sum_values(&c, pp_env_is_host(&r->env));
    r->worker.room = pp_device_alloc(r->env.device, r->worker.room_values,
                                     r->kernels.accumulator_bytes,
                                     "gradients of other ranks", err);
    return r->worker.room ? 0 : -1;
}

/* Makes the recorder of the training exec, if the job asks for one. */
static int make_recorder(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    int n = j->schedule->graph->n_stages;
    if (j->record.n_steps == 0)
        return 0;
    const struct pp_recording kept = {j->record.n_steps, j->accumulate,
                                      j->record.layers,
                                      pp_env_mesh(&r->env)->tp};
    size_t *n_layers = calloc((size_t)n, sizeof *n_layers);
    if (!n_layers)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < n; s++) {
        n_layers[s] = r->worker.engine.stages[s].n_layers;
        r->worker.engine.stages[s].layer_times = &r->recorder.layer_times;
    }
    int rc = pp_recorder_init(&r->recorder, j->schedule, r->env.place.row,
                              n_layers, &kept, r->env.device, err);
    r->train.recorder = &r->recorder;
    free(n_layers);
    return rc;
}

static int make_output_host(struct pp_rank *r,
                            const struct pp_stage_bytes *sizes,
                            struct pp_err *err)
{
    size_t most = 0;
    if (!r->job->output || r->env.device->ops->is_host)
        return 0;
    const struct pp_graph *g = r->job->schedule->graph;
    for (int i = 0; i < g->n_stages * g->slices.n; i++)
        most = sizes[i].output > most ? sizes[i].output : most;
    r->output_host = r->train.output_host = make(r, most, 1, err);
    return r->output_host ? 0 : -1;
}

/* Makes the exec of a pass. */
static int make_exec(struct pp_rank *r, enum pp_job_pass pass,
                     struct pp_err *err)
{
    const struct pp_job *j = r->job;
    bool trains = pass == PP_PASS_TRAIN;
    struct pp_exec *e = trains ? &r->train : &r->forward;
    struct pp_stage_bytes *sizes = pp_job_sizes(j, pass, err);
    if (!sizes)
        return -1;
    int rc = pp_exec_init(e, &r->worker, trains ? j->schedule : j->forward,
                          sizes, pp_job_room(j, pass), err);
    e->shapes = j->shapes;
    e->generated_room = pp_job_row_room(j, pass, r->env.place.row);
    if (!rc && trains)
        rc = make_recorder(r, err) || make_output_host(r, sizes, err) ? -1 : 0;
    free(sizes);
    return rc;
}

/* Makes the execs and their arena. They run one after the other, and none
 * leaves anything in the arena for the next. */
static int make_execs(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if ((pp_job_trains(j) && make_exec(r, PP_PASS_TRAIN, err)) ||
        (pp_job_forwards(j) && make_exec(r, PP_PASS_FORWARD, err)))
        return -1;
    r->train.slot_limit = j->slot_limit;
    r->arena = pp_device_alloc(r->env.device, pp_rank_arena(&r->memory.bytes),
                               1, "activations and messages", err);
    r->train.arena = r->forward.arena = r->arena;
    if (!r->arena || (r->memory.host &&
                      pp_host_arena_open(&r->host, r->env.device,
                                         r->memory.host, j->offload_dir, err)))
        return -1;
    r->train.host = r->forward.host = r->host.at;
    return 0;
}

/* Makes room for an objective. */
static int make_scoring(struct pp_rank *r, const struct pp_table_counts *c,
                        struct pp_err *err)
{
    r->metrics = make(r, c->n_losses * c->n_metrics, sizeof *r->metrics, err);
    struct pp_scoring *s = &r->scoring;
    s->n_rows = c->tokens + 1;
    s->room = make(r, pp_scoring_bytes(c->tokens), 1, err);
    s->env = &r->env;
    r->train.scoring = r->forward.scoring = s;
    if (!r->metrics || !s->room)
        return -1;
    if (r->env.device->ops->is_host || !c->divided)
        return 0;
    s->shared =
        pp_device_alloc(r->env.device, 1, pp_scoring_shared_bytes(c->tokens),
                        "sums of sequences", err);
    return s->shared ? 0 : -1;
}

/* Makes room for the packed sequences of a step. It is not in the plan of
 * memory, as only a check needs it. */
static int make_metadata(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if (!j->metadata)
        return 0;
    r->train.metadata = &r->metadata;
    r->hashes =
        pp_try_calloc((size_t)r->env.comm->size, sizeof *r->hashes, err);
    return r->hashes
               ? pp_metadata_init(&r->metadata,
                                  (size_t)j->schedule->n_microbatches *
                                      (size_t)j->schedule->graph->slices.n *
                                      (size_t)j->accumulate,
                                  err)
               : -1;
}

/* The same for the digests of activations. */
static int make_digests(struct pp_rank *r, struct pp_err *err)
{
    size_t ranks = (size_t)r->env.comm->size;
    size_t stages = (size_t)r->worker.graph->n_stages;
    if (!r->job->digests)
        return 0;
    r->digests = pp_try_calloc((1 + ranks) * stages,
                               PP_DIGEST_N * sizeof *r->digests, err);
    r->train.digests = r->digests;
    return r->digests ? 0 : -1;
}

static int make_gather(struct pp_rank *r, struct pp_err *err)
{
    struct pp_table_counts c = pp_job_tables(r->job, r->env.place.row);
    r->n_tensors = c.n_tensors;
    r->n_numbers = pp_step_numbers(&c);
    r->n_of_model = r->n_numbers - PP_SHARED_NUMBERS - c.n_ranks;
    r->n_eval = c.n_eval;
    if (c.n_metrics && make_scoring(r, &c, err))
        return -1;
    r->eval_losses = make(r, c.n_eval, sizeof *r->eval_losses, err);
    r->mine = make(r, r->n_numbers, sizeof *r->mine, err);
    r->sums = make(r, r->n_numbers, sizeof *r->sums, err);
    r->entries = make(r, r->n_numbers, sizeof *r->entries, err);
    r->peak_slots = make(r, c.n_ranks, sizeof *r->peak_slots, err);
    if (c.n_owners > 1) {
        r->owned_at = make(r, 2 * c.n_owners + 1, sizeof *r->owned_at, err);
        if (!r->owned_at)
            return -1;
    }
    size_t n = pp_table_sums(&c);
    bool is_host = r->env.device->ops->is_host;
    r->losses = pp_device_alloc(r->env.device, n, sizeof *r->losses,
                                "losses and norms", err);
    r->host_sums = is_host ? r->losses
                           : r->env.device->ops->alloc_host(
                                 r->env.device, n * sizeof *r->losses);
    r->scored.at = make(r, c.n_scores, sizeof *r->scored.at, err);
    r->scored.width = c.score_width;
    r->scored.values =
        make(r, c.n_scores * c.score_width, sizeof *r->scored.values, err);
    if (c.n_references &&
        !(r->reference = make(r, c.n_references, sizeof(float), err)))
        return -1;
    if (!r->losses)
        return -1;
    if (!r->host_sums)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    r->other_loss = r->losses + c.n_losses;
    r->squares = r->other_loss + 1;
    return r->scored.at && r->scored.values && r->mine && r->sums &&
                   r->entries && r->peak_slots && r->eval_losses
               ? 0
               : -1;
}

/* Checks that the rank has allocated what its plan says. */
static int check_memory(const struct pp_rank *r, struct pp_err *err)
{
    size_t bytes = r->env.device->allocated + r->host.bytes;
    size_t planned = pp_rank_total(&r->memory.bytes) + r->memory.host;
    if (r->beside.device)
        bytes += r->beside.device->allocated;
    if (bytes == planned)
        return 0;
    return pp_fail(err, PP_EXIT_SYSTEM,
                   "rank %d allocated %zu bytes, not the %zu of its plan: this "
                   "is a defect of the program",
                   r->env.comm->rank, bytes, planned);
}

static int open_device(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_device_ops *ops =
        r->job->device ? r->job->device : &pp_device_cpu;
    if (ops->open(r->env.comm->local, &r->env.device, err))
        return -1;
    if (ops->streams &&
        r->env.comm->ops->attach(r->env.comm, r->env.device, ops->streams, err))
        return -1;
    r->env.stream = r->env.device->stream;
    return 0;
}

struct pp_collective pp_rank_collective(const struct pp_env *env,
                                        enum pp_group_kind kind)
{
    return (struct pp_collective){
        .comm = env->comm,
        .group = pp_layout_group(&env->layout, &env->place, kind),
        .direction = PP_DIRECTION_DATA,
        .value_bytes = env->kernels->element_bytes,
        .sum = env->kernels->add,
        .stream = env->stream};
}

void pp_rank_find_words(struct pp_env *env, const struct pp_model *whole)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    pp_unit_params(whole, (struct pp_unit_id){PP_UNIT_EMBED, 0, PP_LANGUAGE},
                   table);
    const struct pp_tensor_piece p = pp_tensor_piece(
        &table[PP_P_WEIGHT], pp_env_tp(env), (size_t)env->tensor.group.index);
    env->first_word = (int32_t)(p.offset[0] / p.cols);
    env->n_words = (int32_t)p.rows;
}

/* Makes the room for what layers of experts read of a GPU. */
static int make_counts(struct pp_rank *r, struct pp_err *err)
{
    struct pp_env *env = &r->env;
    const struct pp_job *j = r->job;
    size_t E = env->shard.model->moe.n_experts, K = env->shard.model->moe.top_k;
    if (!E || pp_env_is_host(env))
        return 0;
    env->expert_counts =
        make(r, (pp_env_ep(env) + 1) * E, sizeof *env->expert_counts, err);
    if (!env->expert_counts || open_reader(env, err))
        return -1;
    if (!j->given && !j->taken)
        return 0;
    struct pp_table_counts c = pp_job_tables(j, env->place.row);
    env->expert_routes =
        make(r, c.tokens * K, 2 * sizeof *env->expert_routes, err);
    return env->expert_routes ? 0 : -1;
}

/* Makes the room for rows of mapped weights. */
static int make_widened(struct pp_rank *r, struct pp_err *err)
{
    size_t n = pp_model_widened(r->job->model);
    if (n)
        r->env.widened = make(r, n, r->kernels.element_bytes, err);
    return !n || r->env.widened ? 0 : -1;
}

/* Fills the env, except the tables of RoPE. */
static int make_env(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_env *env = &r->env;
    if (open_device(r, err))
        return -1;
    r->kernels = *j->kernels;
    if (j->time_products) {
        r->timed.inner = j->kernels;
        r->timed.stream = env->stream;
        r->kernels = pp_timed_kernels(j->kernels);
        env->stream = &r->timed;
    }
    env->kernels = &r->kernels;
    env->params = &r->params;
    env->layout = pp_job_layout(j);
    if (!pp_layout_find(&env->layout, env->comm->rank, &env->place))
        return pp_fail(err, PP_EXIT_SYSTEM, "rank %d is not in the mesh",
                       env->comm->rank);
    env->shard = pp_env_encodes(env) ? pp_shard_whole(j->model)
                                     : pp_shard_of(j->model, pp_env_mesh(env));
    for (size_t k = 0; k < pp_model_n_encoders(j->model); k++)
        pp_layout_divide_images(&env->layout, k, &env->shard.images[k]);
    env->context = pp_rank_collective(env, PP_GROUP_CP);
    env->tensor = pp_rank_collective(env, PP_GROUP_TP);
    env->experts = pp_rank_collective(env, PP_GROUP_EP);
    env->routers = pp_rank_collective(
        env, pp_mesh_has_whole_experts(&env->shard.mesh) ? PP_GROUP_SHARERS
                                                         : PP_GROUP_CP);
    env->features = pp_rank_collective(env, PP_GROUP_FEATURES);
    env->exchange =
        pp_attention_exchange(j->schedule->graph->slices.n, pp_env_mesh(env));
    pp_rank_find_words(env, j->model);
    return make_widened(r, err) || pp_rank_make_others(r, err) ||
                   make_counts(r, err)
               ? -1
               : 0;
}

static int rank_init(struct pp_rank *r, const struct pp_job *j,
                     struct pp_comm *comm, struct pp_err *err)
{
    *r = (struct pp_rank){.job = j, .env.comm = comm};
    if (j->shapes == PP_MESSAGE_EXCHANGE && !comm->ops->probe)
        return pp_fail_setting(err, PP_EXIT_INPUT, "shapes", "planned",
                               "messages of transport '%s' do not carry their "
                               "size",
                               comm->ops->name);
    if (make_env(r, err))
        return -1;
    r->worker.env = &r->env;
    r->worker.graph = j->schedule->graph;
    r->worker.progress = j->progress;
    if (pp_job_memory(j, r->env.place.row, &r->memory, err) ||
        pp_rank_make_params(r, err) || make_engines(r, err) ||
        make_syncs(r, err) || make_execs(r, err) || make_gather(r, err) ||
        make_metadata(r, err) || make_digests(r, err) ||
        pp_rank_make_loads(r, err))
        return -1;
    return check_memory(r, err);
}

static void rank_finish(struct pp_rank *r)
{
    pp_saving_end(r->saving);
    pp_device_free(r->env.device, r->worker.room);
    pp_exec_finish(&r->train);
    pp_exec_finish(&r->forward);
    pp_engine_finish(&r->worker.overlap);
    pp_engine_finish(&r->worker.engine);
    pp_recorder_finish(&r->recorder);
    pp_metadata_finish(&r->metadata);
    free(r->hashes);
    free(r->digests);
    free(r->loads);
    free(r->load_values);
    pp_parameters_finish(&r->params);
    pp_device_free(r->env.device, r->env.rope_cos);
    pp_device_free(r->env.device, r->env.rope_sin);
    const struct pp_env *generator = &r->others[0][PP_ROWS_GENERATED];
    pp_device_free(r->env.device, generator->rope_cos);
    pp_device_free(r->env.device, generator->rope_sin);
    if (r->host_sums && r->host_sums != r->losses)
        r->env.device->ops->free_host(r->env.device, r->host_sums);
    pp_device_free(r->env.device, r->losses);
    pp_device_free(r->env.device, r->scoring.shared);
    pp_device_free(r->env.device, r->arena);
    pp_host_arena_close(&r->host);
    void *made[] = {r->metrics,
                    r->scoring.room,
                    r->eval_losses,
                    r->mine,
                    r->sums,
                    r->entries,
                    r->peak_slots,
                    r->output_host,
                    r->scored.at,
                    r->scored.values,
                    r->reference,
                    r->env.widened,
                    r->owned_at,
                    r->env.expert_counts,
                    r->env.expert_routes,
                    r->env.pixel_room};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        pp_device_free(NULL, made[i]);
    r->env.comm->ops->detach(r->env.comm);
    pp_reducer_finish(&r->worker.reducer);
    close_reader(&r->beside);
    close_reader(&r->env);
    if (r->beside.device)
        r->beside.device->ops->close(r->beside.device);
    if (r->env.device)
        r->env.device->ops->close(r->env.device);
}

int pp_rank_check_files(struct pp_rank *r, bool end, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if (!j->check_files)
        return 0;
    return pp_agree(r->env.comm, j->check_files(j->ctx, end, err), err);
}

static int rank_work(struct pp_rank *r, enum pp_exit *status,
                     struct pp_err *err)
{
    const struct pp_job *j = r->job;
    if (j->reference == PP_REFERENCE_BASE && pp_rank_refer(r, err))
        return -1;
    if (!j->score && j->optim.steps > 0) {
        if (pp_rank_train(r, status, err))
            return -1;
        /* A stopped run has no time, and is continued by another. */
        return *status == PP_EXIT_OK ? pp_rank_check_files(r, true, err) : 0;
    }
    if (j->generate.n)
        return pp_rank_generate(r, err);
    if (j->score)
        return pp_rank_score(r, err) || pp_rank_check_files(r, true, err) ? -1
                                                                          : 0;
    return pp_rank_evaluate_alone(r, err);
}

int pp_rank_run(const struct pp_job *j, struct pp_comm *comm,
                enum pp_exit *status, struct pp_err *err)
{
    struct pp_rank r;
    *status = PP_EXIT_OK;
    /* All ranks are ready, or all fail alike, before the first message. */
    int rc = pp_agree(comm, rank_init(&r, j, comm, err), err);
    if (rc == 0)
        rc = rank_work(&r, status, err) || check_memory(&r, err) ? -1 : 0;
    pp_progress_phase(j->progress, PP_PHASE_END, r.step);
    /* An abort would overtake the verdict on its way to other ranks. */
    if (rc && !(err->origin.known & PP_ORIGIN_AGREED))
        comm->ops->abort(comm, err->text);
    rank_finish(&r);
    return rc;
}
