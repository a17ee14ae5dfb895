/* SPDX-License-Identifier: MIT */
/* export - --export: the settings of a plan for another system, as of
 * Megatron-LM of August 2026, torchtitan 0.3.0 and DeepSpeed 0.19.8, whose
 * parsers take them (scripts/gen-exports). The search is among plans that the
 * system can run (cost/trainer.h). What its settings do not hold is named: in
 * comments, or on stderr for a form without any. */
#include <inttypes.h>
#include <string.h>

#include "ppmesh.h"

/* Returns the mode that all decoder layers have. */
static enum pp_recompute mode_of(const struct pp_split_plan *plan)
{
    enum pp_recompute mode = PP_RECOMPUTE_NONE;
    for (size_t k = 0; k < plan->run.n_stages && mode == PP_RECOMPUTE_NONE; k++)
        mode = pp_split_stage_mode(plan, (int)k);
    return mode;
}

/* --- Megatron-LM --- */

/* Prints the layers with experts as a list of Python, by runs: [0]*3+[1]*58. */
static void print_layer_freq(const struct pp_model *m, FILE *f)
{
    fprintf(f, "--moe-layer-freq ");
    for (size_t i = 0, end; i < m->n_layers; i = end) {
        bool experts = pp_layer_set_has(&m->moe.layers, i);
        for (end = i; end < m->n_layers &&
                      pp_layer_set_has(&m->moe.layers, end) == experts;)
            end++;
        fprintf(f, "%s[%d]*%zu", i ? "+" : "", experts, end - i);
    }
    putc('\n', f);
}

/* Prints the sizes of the model. */
static void print_sizes(const struct pp_model *m, FILE *f)
{
    const struct pp_moe *e = &m->moe;
    const struct pp_mla *a = &m->mla;
    fprintf(f,
            "--num-layers %zu\n--hidden-size %zu\n--ffn-hidden-size %zu\n"
            "--num-attention-heads %zu\n",
            m->n_layers, m->hidden, m->intermediate, m->n_heads);
    if (a->kv_rank)
        fprintf(f,
                "--multi-latent-attention\n--kv-lora-rank %zu\n"
                "--qk-head-dim %zu\n--qk-pos-emb-head-dim %zu\n"
                "--v-head-dim %zu\n",
                a->kv_rank, a->nope_dim, a->rope_dim, a->v_dim);
    else
        fprintf(f, "--kv-channels %zu\n", m->head_dim);
    if (a->q_rank)
        fprintf(f, "--q-lora-rank %zu\n", a->q_rank);
    if (!a->kv_rank && m->n_kv_heads < m->n_heads)
        fprintf(f, "--group-query-attention\n--num-query-groups %zu\n",
                m->n_kv_heads);
    fprintf(f, "--max-position-embeddings %zu\n", m->max_position);
    if (!m->tied)
        fprintf(f, "--untie-embeddings-and-output-weights\n");
    if (m->n_mtp)
        fprintf(f, "--mtp-num-layers %zu\n", m->n_mtp);
    if (e->n_experts) {
        fprintf(f,
                "--num-experts %zu\n--moe-router-topk %zu\n"
                "--moe-ffn-hidden-size %zu\n",
                e->n_experts, e->top_k, e->intermediate);
        print_layer_freq(m, f);
    }
    if (e->shared)
        fprintf(f, "--moe-shared-expert-intermediate-size %zu\n", e->shared);
    fprintf(f,
            "# sizes alone; norms, activation, biases, positions, router and "
            "tokenizer are the model's\n");
}

static int print_megatron(struct mesh_job *j, FILE *f)
{
    static const char *const exchanges[PP_N_CP_EXCHANGES] = {
        [PP_CP_GATHER] = "all_gather",
        [PP_CP_A2A] = "a2a",
        [PP_CP_RING] = "p2p"};
    struct planner *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const struct pp_split_row *row = &j->found.rows[j->row - 1];
    enum pp_recompute mode = mode_of(&s->plan);
    bool experts = s->model.moe.n_experts;
    char modules[PLANNER_MODULES];
    fprintf(f, "--tensor-model-parallel-size %d\n", m->tp);
    if (m->tp > 1)
        fprintf(f, "--sequence-parallel\n");
    fprintf(f, "--context-parallel-size %d\n", m->cp);
    if (m->cp > 1)
        fprintf(f, "--cp-comm-type %s\n", exchanges[m->cp_exchange]);
    if (experts)
        fprintf(f,
                "--expert-model-parallel-size %d\n"
                "--expert-tensor-parallel-size %d\n"
                "--moe-token-dispatcher-type alltoall\n",
                m->ep, m->experts_over_tp ? 1 : m->tp);
    fprintf(f, "--pipeline-model-parallel-size %d\n", m->pp);
    if (m->pp > 1) {
        fprintf(f, "--pipeline-model-parallel-layout ");
        if (planner_print_layout(&s->plan, f, &s->t.err))
            return -1;
        putc('\n', f);
    }
    fprintf(f,
            "--micro-batch-size %" PRId64 "\n--global-batch-size %" PRId64
            "\n--seq-length %" PRId64 "\n",
            pp_split_sequences(&row->request), j->global_batch, s->seq_len);
    if (s->precision->element_bytes == 2)
        fprintf(f, "--bf16\n");
    if (s->precision->narrow_gradients)
        fprintf(f, "--grad-reduce-in-bf16\n");
    if (s->precision->narrow_moments)
        fprintf(f, "--use-precision-aware-optimizer\n--exp-avg-dtype bf16\n"
                   "--exp-avg-sq-dtype bf16\n");
    if (s->precision->narrow_gradients && s->precision->narrow_moments)
        fprintf(f, "--main-grads-dtype bf16\n");
    if (!m->whole_state)
        fprintf(f, "--use-distributed-optimizer\n");
    fprintf(f, "--overlap-grad-reduce\n");
    if (!m->whole_state)
        fprintf(f, "--overlap-param-gather\n");
    if (mode == PP_RECOMPUTE_FULL)
        fprintf(f, "--recompute-granularity full\n--recompute-method uniform\n"
                   "--recompute-num-layers 1\n");
    planner_modules(&s->model, mode, modules);
    if (*modules && mode != PP_RECOMPUTE_FULL)
        fprintf(f,
                "--recompute-granularity selective\n"
                "--recompute-modules%s\n",
                modules);
    if (m->order != 0)
        fprintf(f, "--use-tp-pp-dp-mapping\n");
    fprintf(f, "--cross-entropy-loss-fusion\n");
    print_sizes(&s->model, f);
    return 0;
}

/* --- torchtitan --- */

/* Prints the names of each stage's units, as a list of lists of the command
 * line. */
static void print_parts(const struct pp_split_plan *plan, FILE *f)
{
    char name[PP_FQN_TEXT];
    fprintf(f, "--parallelism.module_fqns_per_model_part");
    for (size_t s = 0; s < plan->run.n_stages; s++)
        for (size_t i = plan->bounds[s]; i < plan->bounds[s + 1]; i++) {
            pp_torchtitan_fqn(pp_model_unit(plan->run.request->shard.model, i),
                              PP_TORCHTITAN_LM_HEAD, name);
            fprintf(f, "%c%s", i == plan->bounds[s] ? ' ' : ',', name);
        }
    putc('\n', f);
}

static int print_torchtitan(struct mesh_job *j, FILE *f)
{
    static const struct {
        const char *ours, *theirs;
    } kinds[] = {{"1f1b", "1F1B"},
                 {"gpipe", "GPipe"},
                 {"interleaved", "Interleaved1F1B"},
                 {"looped-bfs", "LoopedBFS"},
                 {"zb-interleaved", "InterleavedZeroBubble"},
                 {"zbv", "ZBVZeroBubble"},
                 {"dualpipev", "DualPipeV"}};
    char set[PP_RECOMPUTE_TEXT];
    struct planner *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const char *kind = NULL;
    int64_t sequences = pp_split_sequences(&s->request);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].ours, s->request.kind))
            kind = kinds[k].theirs;
    fprintf(f,
            "--parallelism.tensor_parallel_degree %d\n"
            "--parallelism.context_parallel_degree %d\n"
            "--parallelism.expert_parallel_degree %d\n"
            "--parallelism.pipeline_parallel_degree %d\n"
            "--parallelism.data_parallel_replicate_degree 1\n"
            "--parallelism.data_parallel_shard_degree %d\n"
            "--parallelism.fsdp_reshard_after_forward %s\n",
            m->tp, m->cp, m->ep, m->pp, m->dp, m->pp > 1 ? "never" : "always");
    if (m->pp > 1) {
        if (kind)
            fprintf(f, "--parallelism.pipeline_parallel_schedule %s\n", kind);
        else
            fprintf(
                f, "--parallelism.pipeline_parallel_schedule_csv schedule.csv\n"
                   "# schedule.csv: the plan without --export, through "
                   "ppsched --export csv\n");
        fprintf(f,
                "--parallelism.pipeline_parallel_microbatch_size %" PRId64
                "\n--training.disable_cuda_graphs\n",
                sequences);
        print_parts(&s->plan, f);
    }
    /* A pipeline takes all microbatches of a step at once. */
    fprintf(f,
            "--training.local_batch_size %" PRId64
            "\n--training.global_batch_size %" PRId64
            "\n--training.seq_len %" PRId64 "\n",
            m->pp > 1 ? sequences * s->request.n_microbatches : sequences,
            j->global_batch, s->seq_len);
    fprintf(f, "activation-checkpoint:%s\n",
            pp_recompute_text(mode_of(&s->plan), set));
    return 0;
}

/* --- DeepSpeed --- */

static int print_deepspeed(struct mesh_job *j, FILE *f)
{
    struct planner *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const struct pp_split_row *row = &j->found.rows[j->row - 1];
    struct pp_json_writer w = {.f = f, .indent = 2};
    bool pipeline = m->pp > 1;
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_int(&w, "train_batch_size", j->global_batch);
    pp_json_int(&w, "train_micro_batch_size_per_gpu",
                pp_split_sequences(&row->request));
    pp_json_int(&w, "gradient_accumulation_steps", s->request.n_microbatches);
    pp_json_object(&w, "bf16", PP_JSON_INLINE);
    pp_json_bool(&w, "enabled", true);
    pp_json_end(&w);
    pp_json_object(&w, "zero_optimization", PP_JSON_INLINE);
    pp_json_int(&w, "stage", m->whole_state ? 0 : 1);
    pp_json_end(&w);
    if (pipeline) {
        pp_json_object(&w, "pipeline", PP_JSON_INLINE);
        pp_json_int(&w, "stages", m->pp);
        pp_json_int(&w, "activation_checkpoint_interval",
                    mode_of(&s->plan) == PP_RECOMPUTE_NONE ? 0 : 1);
        pp_json_end(&w);
    } else if (m->tp > 1) {
        pp_json_object(&w, "tensor_parallel", PP_JSON_INLINE);
        pp_json_int(&w, "autotp_size", m->tp);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    putc('\n', f);
    if (pipeline)
        tool_say(&s->t, TOOL_NOTE,
                 "the split is not in this file: give PipelineModule the "
                 "topology pipe %d, data %d, model %d and the parts of ppsplit "
                 "--export deepspeed",
                 m->pp, m->dp, m->tp);
    return 0;
}

/* --- Slurm --- */

static int print_sbatch(struct mesh_job *j, FILE *f)
{
    struct planner *s = &j->split;
    int64_t node = s->machine.n_levels ? s->machine.levels[0].size : 0;
    node = node > 0 && node < j->gpus ? node : j->gpus;
    fprintf(
        f,
        "#!/bin/bash\n"
        "# Trains a plan of ppmesh, the first argument, on data of pppack, "
        "the second.\n"
        "#SBATCH --job-name=pprun\n"
        "#SBATCH --nodes=%" PRId64 "\n"
        "#SBATCH --ntasks-per-node=%" PRId64 "\n"
        "#SBATCH --gpus-per-node=%" PRId64 "\n"
        "#SBATCH --time=24:00:00\n"
        "#SBATCH --signal=TERM@300\n"
        "#SBATCH --requeue\n"
        "#SBATCH --open-mode=append\n"
        "set -u\n\n"
        "PPRUN_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')\n"
        "export PPRUN_SECRET\n"
        "status=0\n"
        "srun pprun --device cuda --dtype %s --transport nccl \\\n"
        "    --data \"${2:-packed}\" --save checkpoints --save-every 500 \\\n"
        "    --resume checkpoints -o steps.jsonl \"${1:-plan.json}\" || "
        "status=$?\n"
        "if [ \"$status\" -eq 75 ]; then\n"
        "    scontrol requeue \"$SLURM_JOB_ID\"\n"
        "fi\n"
        "exit \"$status\"\n",
        (j->gpus + node - 1) / node, node, node, s->precision->name);
    return 0;
}

int mesh_print_export(struct mesh_job *j, FILE *f)
{
    int rc = j->export == MESH_EXPORT_MEGATRON     ? print_megatron(j, f)
             : j->export == MESH_EXPORT_TORCHTITAN ? print_torchtitan(j, f)
             : j->export == MESH_EXPORT_DEEPSPEED  ? print_deepspeed(j, f)
                                                   : print_sbatch(j, f);
    return rc == 0 && ferror(f)
               ? pp_fail_errno(&j->split.t.err, "cannot write the settings")
               : rc;
}
