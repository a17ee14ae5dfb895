/* SPDX-License-Identifier: MIT */
/* test_trainer - the memory of other trainers against what runs allocated and
 * against what others have counted; and what each trainer takes. */
#include "cost/trainer.h"

#include <math.h>

#include "model/rank_bytes.h"
#include "tap.h"

#define MIB 1048576.0

static const struct pp_precision *bf16;

static struct pp_model llama_70b(size_t n_layers)
{
    return (struct pp_model){.architecture = PP_LLAMA,
                             .hidden = 8192,
                             .intermediate = 28672,
                             .n_layers = n_layers,
                             .n_heads = 64,
                             .n_kv_heads = 8,
                             .head_dim = 128,
                             .vocab = 128256,
                             .max_position = 8192};
}

/* Returns the bytes of a rank of Megatron-LM with units first to end - 1, which
 * has so many microbatches in flight at most. A stage has a received message
 * and one on its way, each way. */
static struct pp_rank_bytes stage_bytes(const struct pp_model *m,
                                        const struct pp_mesh *x, size_t first,
                                        size_t end, double live, int64_t tokens)
{
    const struct pp_trainer *t = pp_trainer_find("megatron");
    const struct pp_backend b = pp_backend_of(bf16, false);
    const struct pp_shard shard = pp_shard_of(m, x);
    size_t rows = pp_rank_rows(x, &b, (size_t)tokens);
    struct pp_rank_bytes sum = {{0}};
    double kept = 0, gradients = 0, workspace = 0, message = 0;
    for (size_t i = first; i < end; i++) {
        const struct pp_unit_id u = pp_model_unit(m, i);
        const struct pp_unit_rates rates =
            t->rates(&shard, u, PP_RECOMPUTE_NONE, &b);
        const struct pp_unit_bytes of = pp_unit_bytes(&rates, rows, 0);
        pp_rank_add_state(&sum, t->state(x, m, u, bf16));
        kept +=
            live * (double)(of.act[PP_SAVED_ACT_I] + of.act[PP_SAVED_ACT_W]);
        gradients = fmax(gradients, (double)of.act[PP_SAVED_GRAD_W]);
        workspace = fmax(workspace, (double)of.workspace);
        message = fmax(message, t->keeps_messages ? (double)of.output : 0);
    }
    sum.part[PP_MEMORY_ACTIVATIONS] = pp_size_of(kept + gradients);
    sum.part[PP_MEMORY_WORKSPACE] = pp_size_of(workspace);
    sum.part[PP_MEMORY_MESSAGES] = x->pp > 1 ? pp_size_of(4 * message) : 0;
    sum.part[PP_MEMORY_TABLES] = pp_size_of(t->fixed(x, m, first, end));
    return sum;
}

/* Llama 3 70B, cut to 12 layers, on 8 B200 with Megatron-LM 0.14: bf16, the
 * distributed optimizer, sequence parallelism, fused cross entropy, one
 * sequence of 4096 tokens a microbatch. The most MiB that PyTorch allocated on
 * the ranks of the first and of the last stage, whatever the microbatches (4, 8
 * and 32). Measured by SimuMax (github.com/MooreThreads/SimuMax, 1.2). */
static const struct measured {
    int tp, pp, dp;
    double first, last;
} rows[] = {{1, 2, 4, 68149.2, 64479.5},
            {2, 1, 4, 62136.4, 62136.4},
            {4, 1, 2, 40009.8, 40009.8},
            {8, 1, 1, 28965.4, 28965.4}};

static void allocated(void)
{
    const struct pp_model m = llama_70b(12);
    double sum = 0, most = 0;
    size_t units = pp_model_n_units(&m), n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct measured *r = &rows[i];
        const struct pp_mesh x = {
            .pp = r->pp, .dp = r->dp, .tp = r->tp, .cp = 1, .ep = 1};
        size_t half = r->pp > 1 ? 7 : 0;
        for (int s = 0; s < r->pp; s++) {
            size_t first = s ? half : 0, end = s + 1 < r->pp ? half : units;
            const struct pp_rank_bytes b =
                stage_bytes(&m, &x, first, end, r->pp - s, 4096);
            double got = (double)pp_rank_total(&b) / MIB;
            double want = s ? r->last : r->first;
            double error = fabs(got / want - 1);
            printf("# tp %d pp %d dp %d stage %d: %.1f of %.1f MiB, %+.2f %%\n",
                   r->tp, r->pp, r->dp, s, got, want, 100 * (got / want - 1));
            sum += error;
            most = error > most ? error : most;
            n++;
        }
    }
    ok(sum / (double)n <= 0.002,
       "allocated memory differs by %.2f %% at most "
       "in the mean",
       0.2);
    ok(most <= 0.005, "and by %.2f %% at most", 0.5);
}

static const struct pp_mesh one = {.pp = 1, .dp = 1, .tp = 1, .cp = 1, .ep = 1};

/* Returns what a layer keeps for each token of a rank's own rows. */
static double kept_by(const char *trainer, const struct pp_model *m,
                      const struct pp_mesh *x, size_t layer,
                      enum pp_recompute r)
{
    const struct pp_backend b = pp_backend_of(bf16, false);
    const struct pp_unit_id u = {PP_UNIT_LAYER, layer, PP_LANGUAGE};
    const struct pp_shard s = pp_shard_of(m, x);
    return pp_trainer_find(trainer)->rates(&s, u, r, &b).act[PP_SAVED_ACT_W];
}

static double kept(const struct pp_model *m, const struct pp_mesh *x,
                   size_t layer, enum pp_recompute r)
{
    return kept_by("megatron", m, x, layer, r);
}

static const struct pp_model v3 = {.architecture = PP_DEEPSEEK_V3,
                                   .hidden = 7168,
                                   .intermediate = 18432,
                                   .n_layers = 4,
                                   .n_heads = 128,
                                   .n_kv_heads = 128,
                                   .head_dim = 192,
                                   .vocab = 129280,
                                   .mla = {.q_rank = 1536,
                                           .kv_rank = 512,
                                           .nope_dim = 128,
                                           .rope_dim = 64,
                                           .v_dim = 128},
                                   .moe = {.layers = {{0xe}},
                                           .n_experts = 256,
                                           .top_k = 8,
                                           .intermediate = 2048,
                                           .shared = 2048}};

/* Against the widths of tensors: two norms with their inputs and outputs, q, k,
 * v, attention and its log-sum-exp, both products of the MLP and the
 * activation; of experts, the rows that arrive and their two products. Rest:
 * statistics of norms and numbers of the router. */
static void counted(void)
{
    struct pp_model m = llama_70b(1);
    struct pp_mesh x = one;
    is_near(kept(&m, &x, 0, PP_RECOMPUTE_NONE),
            8 * 8192 + 4 * 8192 + 4 * 1024 + 6 * 28672 + 4 * 64 + 8, 1e-12,
            "a layer of Llama 3 70B keeps 274,688 bytes a token");
    x.tp = 8;
    is_near(kept(&m, &x, 0, PP_RECOMPUTE_NONE), 274688 + 8, 1e-12,
            "and a rank of tp as many for its own rows");
    is_near(kept(&m, &x, 0, PP_RECOMPUTE_FULL), 2 * 8192, 1e-12,
            "with full recomputation its input alone");
    is_near(kept(&m, &x, 0, PP_AGAIN_MLP | PP_AGAIN_NORMS),
            274688 + 8 - 2 * 8192 - 6 * 28672, 1e-12,
            "with module mlp the sum before its norm, which is part of it");
    x = one;
    double experts = 8 * (2 * 7168 + 6 * 2048) + 6 * 2048 + 4 * 2 * 7168;
    double latent =
        4 * 1536 + 4 * 512 + 2 * 64 + 2 * 128 * (2 * 192 + 2 * 128) + 4 * 128;
    double numbers = 8 * 256 + 16 * 8 + 4 * 4;
    is_near(kept(&v3, &x, 1, PP_RECOMPUTE_NONE), experts + latent + numbers,
            1e-12, "a layer of DeepSeek-V3 keeps 457 thousand");
    is_near(kept(&v3, &x, 1, PP_RECOMPUTE_SELECTIVE),
            experts + latent + numbers - 4 * 7168 - 8 * 2 * 2048 -
                2 * 128 * (2 * 192 + 128),
            1e-12, "selective recomputes norms, activation and q, k, v");
    is_near(kept(&v3, &x, 1, PP_AGAIN_QKV),
            experts + latent + numbers - 2 * 128 * (2 * 192 + 128), 1e-12,
            "module mla_up_proj recomputes q, k, v");
    is_near(kept(&v3, &x, 1, PP_AGAIN_EXPERTS),
            experts + latent + numbers - 8 * (2 * 7168 + 6 * 2048) - 6 * 2048 -
                8 * 256 - 16 * 8,
            1e-12, "module moe keeps its input alone");
    is_near(kept(&v3, &x, 1, PP_AGAIN_MLP),
            experts + latent + numbers - 6 * 2048, 1e-12,
            "module shared_experts, too");
    x.ep = x.dp = 8;
    is_near(kept(&v3, &x, 1, PP_RECOMPUTE_NONE), experts + latent + numbers,
            1e-12, "ep divides none of it");
    x = one;
    x.tp = x.dp = 2;
    x.experts_over_tp = true;
    is_near(kept(&v3, &x, 1, PP_RECOMPUTE_NONE), experts + latent + numbers,
            1e-12, "a rank of tp has the low ranks of its own rows alone");
    x = one;
    x.cp = 2;
    x.cp_exchange = PP_CP_A2A;
    is_near(kept(&m, &x, 0, PP_RECOMPUTE_NONE), 274688 + 8 + 2 * 8192, 1e-12,
            "attention behind an all-to-all keeps its output twice");
}

/* Modules of PyTorch keep SiLU's output, too. torchtitan gathers rows for the
 * whole layer; DeepSpeed's ranks never divide them. */
static void eager(void)
{
    const struct pp_model m = llama_70b(1);
    const double h = 8192, heads = 4 * 8192 + 4 * 1024 + 4 * 64, f = 28672;
    struct pp_mesh x = one;
    is_near(kept_by("torchtitan", &m, &x, 0, PP_RECOMPUTE_NONE),
            8 * h + heads + 8 * f + 8, 1e-12, "torchtitan keeps 8f of an MLP");
    is_near(kept_by("torchtitan", &m, &x, 0, PP_RECOMPUTE_SELECTIVE),
            2 * h + heads + 2 * f + 2 * h, 1e-12,
            "selective keeps every second product, and attention");
    x.tp = 8;
    is_near(kept_by("torchtitan", &m, &x, 0, PP_RECOMPUTE_NONE),
            4 * h + 8 * 4 * h + heads + 8 * f + 8, 1e-12,
            "with tp it keeps what it gathered");
    is_near(kept_by("deepspeed", &m, &x, 0, PP_RECOMPUTE_NONE),
            8 * 8 * h + heads + 8 * f + 8, 1e-12,
            "and DeepSpeed whole rows of all norms");
    is_near(kept_by("deepspeed", &m, &x, 0, PP_RECOMPUTE_FULL), 8 * 2 * h,
            1e-12, "or of its input");
}

static struct pp_state_bytes layer_state(const char *trainer,
                                         const struct pp_mesh *x)
{
    const struct pp_model m = llama_70b(1);
    const struct pp_unit_id u = {PP_UNIT_LAYER, 0, PP_LANGUAGE};
    return pp_trainer_find(trainer)->state(x, &m, u, bf16);
}

/* FSDP divides 16 bytes of each of 855,654,400 parameters by 8. */
static void divided(void)
{
    struct pp_mesh x = {.pp = 1, .dp = 8, .tp = 1, .cp = 1, .ep = 1};
    x.divided_weights = true;
    is_int((long long)pp_state_sum(layer_state("torchtitan", &x)),
           16 * 855654400LL / 8, "FSDP divides all state");
    x.pp = 2;
    is_int((long long)pp_state_sum(layer_state("torchtitan", &x)),
           16 * 855654400LL / 8 + 6 * 855654400LL,
           "in a pipeline weights and gradients are whole, too");
}

/* 4,015,132,672 parameters on a rank of four: Megatron-LM prints 34,462 MiB. */
static void state(void)
{
    const struct pp_held held = pp_held_whole(4015132672, true);
    const struct pp_mesh x = {.pp = 1, .dp = 4, .tp = 1, .cp = 1, .ep = 1};
    is_near((double)pp_state_sum(pp_state_bytes(&x, held, bf16)) / MIB, 34462,
            1, "state has 6 + 12 / dp bytes a parameter");
}

static bool takes(const char *name, const struct pp_mesh *x, const char *kind,
                  const char *setting)
{
    const struct pp_backend b = pp_backend_of(bf16, false);
    const struct pp_trainer_order o = {.kind = kind};
    struct pp_err err = {0};
    int rc = pp_trainer_check(pp_trainer_find(name), x, &b, &o, &err);
    return setting ? rc && err.setting && !strcmp(err.setting, setting) : !rc;
}

static void taken(void)
{
    struct pp_mesh x = one;
    ok(takes("megatron", &x, NULL, NULL) &&
           takes("megatron", &x, "interleaved", NULL),
       "megatron takes its two schedules");
    ok(takes("megatron", &x, "zbv", "schedule") &&
           takes("pprun", &x, "zbv", NULL),
       "and no other");
    x.dp = 2;
    x.divided_weights = true;
    ok(takes("megatron", &x, NULL, "zero") && takes("pprun", &x, NULL, NULL),
       "it divides no weights");
    ok(takes("torchtitan", &x, "v-half", NULL) &&
           takes("deepspeed", &x, NULL, "zero"),
       "torchtitan takes any order, and divides them");
    x.divided_weights = false;
    ok(takes("torchtitan", &x, NULL, "zero") &&
           takes("deepspeed", &x, "interleaved", "schedule"),
       "DeepSpeed has one schedule");
    x.cp = 2;
    ok(takes("deepspeed", &x, NULL, "cp") && takes("megatron", &x, NULL, NULL),
       "and no context-parallel ranks");
    ok(!pp_trainer_find("nemo") &&
           !strcmp(pp_trainer_find(NULL)->name, "pprun"),
       "trainers have names, and pprun is the usual one");
}

int main(void)
{
    bf16 = pp_precision_find("bf16");
    allocated();
    counted();
    eager();
    state();
    divided();
    taken();
    return done();
}
