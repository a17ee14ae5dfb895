/* SPDX-License-Identifier: MIT */
/* ppmesh_export - --export: the settings of a plan for another system, as of
 * Megatron-LM, torchtitan and DeepSpeed of August 2026. What a system cannot
 * express is named: in comments, or on stderr for a form without any. */
#include <inttypes.h>
#include <string.h>

#include "ppmesh.h"

/* Prints a comment, or a note if the form has no comments. */
static void lose(struct mesh_job *j, FILE *f, const char *what)
{
    if (j->export == MESH_EXPORT_DEEPSPEED)
        tool_say(&j->split.t, TOOL_NOTE, "deepspeed cannot express %s", what);
    else
        fprintf(f, "# cannot be expressed: %s\n", what);
}

/* Returns the mode that all decoder layers have, or PP_N_RECOMPUTES. */
static int one_mode(const struct mesh_job *j)
{
    const struct split_job *s = &j->split;
    int mode = -1;
    for (size_t k = 0; k < s->n_stages; k++) {
        bool layers = false;
        for (size_t i = s->plan.bounds[k]; i < s->plan.bounds[k + 1]; i++)
            layers |= pp_model_unit(&s->model, i).kind == PP_UNIT_LAYER;
        int is = (int)pp_split_stage_mode(&s->plan, (int)k);
        if (layers && mode >= 0 && is != mode)
            return PP_N_RECOMPUTES;
        mode = layers ? is : mode;
    }
    return mode < 0 ? PP_RECOMPUTE_NONE : mode;
}

/* Names what no system but pprun does. */
static void lose_modes(struct mesh_job *j, FILE *f)
{
    char text[MESH_TEXT], what[2 * MESH_TEXT];
    const struct pp_mesh_row *row = &j->found.rows[j->row - 1];
    if (one_mode(j) < PP_N_RECOMPUTES)
        return;
    mesh_format_modes(row, text);
    snprintf(what, sizeof what, "recomputation %s; all layers recompute here",
             text);
    lose(j, f, what);
}

static void lose_limits(struct mesh_job *j, FILE *f)
{
    char what[MESH_TEXT];
    if (j->split.mesh.expert_limit == 0)
        return;
    snprintf(what, sizeof what, "a limit of %d rows of experts for a token",
             j->split.mesh.expert_limit);
    lose(j, f, what);
}

/* Names a schedule that a system does not have. */
static void lose_kind(struct mesh_job *j, FILE *f, const char *instead)
{
    char what[2 * MESH_TEXT];
    snprintf(what, sizeof what, "schedule %s: %s", j->split.kind, instead);
    lose(j, f, what);
}

/* --- Megatron-LM --- */

static int print_megatron(struct mesh_job *j, FILE *f)
{
    static const char *const exchanges[PP_N_CP_EXCHANGES] = {
        [PP_CP_GATHER] = "all_gather",
        [PP_CP_A2A] = "a2a",
        [PP_CP_RING] = "p2p"};
    struct split_job *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const struct pp_mesh_row *row = &j->found.rows[j->row - 1];
    char order[PP_MESH_ORDER_TEXT], what[MESH_TEXT];
    int mode = one_mode(j);
    fprintf(f, "--tensor-model-parallel-size %d\n", m->tp);
    if (m->tp > 1)
        fprintf(f, "--sequence-parallel\n");
    fprintf(f, "--context-parallel-size %d\n", m->cp);
    if (m->cp > 1)
        fprintf(f, "--cp-comm-type %s\n", exchanges[m->cp_exchange]);
    if (s->model.moe.n_experts)
        fprintf(f,
                "--expert-model-parallel-size %d\n"
                "--expert-tensor-parallel-size %d\n"
                "--moe-token-dispatcher-type alltoall\n",
                m->ep, m->experts_over_tp ? 1 : m->tp);
    fprintf(f, "--pipeline-model-parallel-size %d\n", m->pp);
    if (m->pp > 1) {
        fprintf(f, "--pipeline-model-parallel-layout ");
        if (split_print_layout(s, f, &s->t.err))
            return -1;
        putc('\n', f);
    }
    fprintf(f,
            "--micro-batch-size %" PRId64 "\n--global-batch-size %" PRId64
            "\n--seq-length %" PRId64 "\n",
            row->micro_batch, j->global_batch, s->seq_len);
    if (!strcmp(s->precision->name, "bf16"))
        fprintf(f, "--bf16\n");
    if (m->divided_weights)
        fprintf(f, "--use-megatron-fsdp\n"
                   "--data-parallel-sharding-strategy optim_grads_params\n");
    else if (!m->whole_state)
        fprintf(f, "--use-distributed-optimizer\n");
    if (mode == PP_RECOMPUTE_FULL || mode == PP_N_RECOMPUTES)
        fprintf(f, "--recompute-granularity full\n--recompute-method uniform\n"
                   "--recompute-num-layers 1\n");
    if (mode == PP_RECOMPUTE_SELECTIVE)
        fprintf(f,
                "--recompute-granularity selective\n"
                "--recompute-modules core_attn layernorm%s\n",
                s->model.moe.n_experts ? " moe_act" : "");
    pp_mesh_write_order(m, order);
    if (!strcmp(order, "tp-cp-pp-dp"))
        fprintf(f, "--use-tp-pp-dp-mapping\n");
    else if (strcmp(order, "tp-cp-dp-pp") != 0) {
        snprintf(what, sizeof what, "mesh order %s", order);
        lose(j, f, what);
    }
    if (strcmp(s->kind, "1f1b") != 0 && strcmp(s->kind, "interleaved") != 0)
        lose_kind(j, f, s->n_chunks > 1 ? "it interleaves" : "it runs 1f1b");
    if (mode == PP_RECOMPUTE_SELECTIVE && !s->model.moe.n_experts)
        lose(j, f, "recomputing the activation of an MLP alone");
    lose_modes(j, f);
    lose_limits(j, f);
    return 0;
}

/* --- torchtitan --- */

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
    struct split_job *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const char *kind = NULL;
    char order[PP_MESH_ORDER_TEXT], what[MESH_TEXT];
    int mode = one_mode(j);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].ours, s->kind))
            kind = kinds[k].theirs;
    fprintf(f,
            "--parallelism.tensor_parallel_degree %d\n"
            "--parallelism.context_parallel_degree %d\n"
            "--parallelism.expert_parallel_degree %d\n"
            "--parallelism.pipeline_parallel_degree %d\n"
            "--parallelism.data_parallel_replicate_degree 1\n"
            "--parallelism.data_parallel_shard_degree %d\n"
            "--parallelism.fsdp_reshard_after_forward %s\n",
            m->tp, m->cp, m->ep, m->pp, m->dp,
            m->divided_weights ? "always" : "never");
    if (m->pp > 1) {
        fprintf(f,
                "--parallelism.pipeline_parallel_schedule %s\n"
                "--parallelism.num_pp_microbatches %" PRId64 "\n"
                "--parallelism.module_fqns_per_model_part '",
                kind              ? kind
                : s->n_chunks > 1 ? "Interleaved1F1B"
                                  : "1F1B",
                s->n_microbatches);
        split_print_names(s, f);
        fprintf(f, "'\n");
    }
    fprintf(f,
            "--training.num_tokens_per_microbatch_per_dp_rank %" PRId64
            "\n--training.num_tokens_per_train_step %" PRId64
            "\n--training.max_context_length %" PRId64 "\n",
            s->tokens, j->global_batch * s->seq_len, s->seq_len);
    fprintf(f, "# activation_checkpoint = %s\n",
            mode == PP_RECOMPUTE_NONE        ? "None"
            : mode == PP_RECOMPUTE_SELECTIVE ? "SelectiveAC.Config()"
                                             : "FullAC.Config()");
    if (!kind)
        lose_kind(j, f, s->n_chunks > 1 ? "it interleaves" : "it runs 1F1B");
    if (mode == PP_RECOMPUTE_SELECTIVE)
        lose(j, f, "what selective recomputes: torchtitan chooses otherwise");
    if (!m->divided_weights)
        lose(j, f, "ZeRO-1: weights are divided too, whole during a step");
    pp_mesh_write_order(m, order);
    if (m->order != 0) {
        snprintf(what, sizeof what, "mesh order %s", order);
        lose(j, f, what);
    }
    lose_modes(j, f);
    lose_limits(j, f);
    return 0;
}

/* --- DeepSpeed --- */

static int print_deepspeed(struct mesh_job *j, FILE *f)
{
    struct split_job *s = &j->split;
    const struct pp_mesh *m = &s->mesh;
    const struct pp_mesh_row *row = &j->found.rows[j->row - 1];
    struct pp_json_writer w = {.f = f, .indent = 2};
    char text[MESH_TEXT], order[PP_MESH_ORDER_TEXT];
    int mode = one_mode(j);
    bool pipeline = m->pp > 1;
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_int(&w, "train_batch_size", j->global_batch);
    pp_json_int(&w, "train_micro_batch_size_per_gpu", row->micro_batch);
    pp_json_int(&w, "gradient_accumulation_steps", s->n_microbatches);
    pp_json_object(&w, "bf16", PP_JSON_INLINE);
    pp_json_bool(&w, "enabled", !strcmp(s->precision->name, "bf16"));
    pp_json_end(&w);
    pp_json_object(&w, "zero_optimization", PP_JSON_INLINE);
    pp_json_int(&w, "stage",
                m->whole_state                    ? 0
                : m->divided_weights && !pipeline ? 3
                                                  : 1);
    pp_json_end(&w);
    if (m->tp > 1) {
        pp_json_object(&w, "tensor_parallel", PP_JSON_INLINE);
        pp_json_int(&w, "autotp_size", m->tp);
        pp_json_end(&w);
    }
    if (m->ep > 1) {
        pp_json_object(&w, "expert_parallel", PP_JSON_INLINE);
        pp_json_bool(&w, "enabled", true);
        pp_json_int(&w, "autoep_size", m->ep);
        pp_json_end(&w);
    }
    if (pipeline) {
        pp_json_object(&w, "pipeline", PP_JSON_INLINE);
        pp_json_int(&w, "stages", m->pp);
        pp_json_int(&w, "activation_checkpoint_interval",
                    mode == PP_RECOMPUTE_NONE ? 0 : 1);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    putc('\n', f);
    if (pipeline)
        lose(j, f,
             "the split in this file: give PipelineModule num_stages and the "
             "parts of ppsplit --export deepspeed");
    if (m->cp > 1) {
        snprintf(text, sizeof text, "context parallelism (cp %d)", m->cp);
        lose(j, f, text);
    }
    if (strcmp(s->kind, "1f1b") != 0)
        lose_kind(j, f, "its pipeline runs 1f1b");
    if (pipeline && m->divided_weights)
        lose(j, f, "ZeRO-3 with a pipeline: the stage is 1");
    if (mode == PP_RECOMPUTE_SELECTIVE)
        lose(j, f, "selective recomputation: it recomputes in full");
    pp_mesh_write_order(m, order);
    if (m->order != 0) {
        snprintf(text, sizeof text, "mesh order %s", order);
        lose(j, f, text);
    }
    if (m->experts_over_tp)
        lose(j, f, "expert groups over tensor-parallel ranks");
    lose_modes(j, f);
    lose_limits(j, f);
    return 0;
}

/* --- Slurm --- */

static int print_sbatch(struct mesh_job *j, FILE *f)
{
    struct split_job *s = &j->split;
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
