/* SPDX-License-Identifier: MIT */
#include "cost/trainer.h"

#include <string.h>

#include "cost/trainer_bytes.h"
#include "schedule/ir/action.h"

static const char *const megatron_kinds[] = {"1f1b", "interleaved", NULL};

static const char *const torchtitan_kinds[] = {
    "1f1b",           "gpipe", "interleaved", "looped-bfs",
    "zb-interleaved", "zbv",   "dualpipev",   NULL};
static const char *const deepspeed_kinds[] = {"1f1b", NULL};

enum { ZERO_0 = 1 << 0, ZERO_1 = 1 << 1, ZERO_3 = 1 << 3 };
enum { ALL_EXCHANGES = (1 << PP_N_CP_EXCHANGES) - 1 };
enum { TP_CP_DP_PP = 1 << 0, TP_CP_PP_DP = 1 << 1 };

const struct pp_trainer pp_trainers[] = {
    {.name = "pprun",
     .any_order = true,
     .zero = ZERO_0 | ZERO_1 | ZERO_3,
     .cp_exchanges = ALL_EXCHANGES,
     .experts = true,
     .modes = true,
     .parts = PP_RECOMPUTE_FULL,
     .exchanges = {.input = 2,
                   .weight = 2,
                   .once = 1,
                   .expert_weight = 1,
                   .a2a_input = 2},
     /* Gradients are read for their norm. */
     .passes = {.loss_forward = 1, .loss_input = 2, .updated = 1},
     .buckets = PP_BUCKETS_LAYERS,
     .keeps_messages = true,
     .rates = pp_unit_rates,
     .state = pp_own_state,
     .fixed = pp_own_fixed},
    /* With the distributed optimizer, sequence parallelism if tp > 1,
     * --overlap-grad-reduce and --overlap-param-gather; without
     * --tp-comm-overlap. The gather of inputs for W and the sum of I's
     * gradients are launched beside products, but in runs on B200 they take as
     * long as if they were not. */
    {.name = "megatron",
     .kinds = megatron_kinds,
     .zero = ZERO_0 | ZERO_1,
     .cp_exchanges = ALL_EXCHANGES,
     .orders = TP_CP_DP_PP | TP_CP_PP_DP,
     .experts = true,
     .selective = true,
     .parts = PP_AGAIN_NORMS | PP_AGAIN_ATTENTION | PP_AGAIN_QKV |
              PP_AGAIN_MLP | PP_AGAIN_MLP_ACT | PP_AGAIN_EXPERTS |
              PP_AGAIN_EXPERT_ACT,
     .usual_exchange = PP_CP_RING,
     .layout = true,
     .gpu = true,
     .narrow_state = true,
     .exchanges = {.input = 2, .weight = 1, .a2a_input = 1},
     /* Transformer Engine's cross entropy reads logits twice and writes their
      * gradient, which I scales. Gradients are read for their norm, and read
      * and written to clip them. Buffers of gradients are cleared and searched
      * for values that are not finite, and divided by the ranks that add them
      * up. */
     .passes = {.loss_forward = 3,
                .loss_input = 2,
                .updated = 3,
                .held = 2,
                .reduced = 2,
                .remade = true},
     .buckets = PP_BUCKETS_FIRST,
     .gathers = PP_GATHERS_BESIDE,
     .rates = pp_megatron_rates,
     .state = pp_megatron_state,
     .fixed = pp_megatron_fixed},
    /* With FSDP and sequence parallelism; rows that were gathered are kept for
     * W. Any order is a file of its schedules. */
    {.name = "torchtitan",
     .kinds = torchtitan_kinds,
     .any_order = true,
     .zero = ZERO_3,
     .cp_exchanges = 1 << PP_CP_GATHER,
     .orders = TP_CP_DP_PP,
     .experts = true,
     .selective = true,
     .gpu = true,
     .exchanges = {.input = 2},
     /* Logits in fp32 and their log-probabilities, of two values each, are made
      * in one operation each, and so are both gradients. */
     .passes = {.loss_forward = 7, .loss_input = 9, .updated = 3},
     .buckets = PP_BUCKETS_LAYERS,
     .gathers = PP_GATHERS_BESIDE,
     .rates = pp_torchtitan_rates,
     .state = pp_torchtitan_state,
     .fixed = pp_torch_fixed},
    /* Its pipeline, on modules whose tensors ranks divide without sequence
     * parallelism: two sums each way. */
    {.name = "deepspeed",
     .kinds = deepspeed_kinds,
     .zero = ZERO_0 | ZERO_1,
     .orders = TP_CP_DP_PP,
     .gpu = true,
     .exchanges = {.input = 2},
     .passes = {.loss_forward = 7,
                .loss_input = 9,
                .updated = 3,
                .held = 1,
                .remade = true},
     .gathers = PP_GATHERS_AFTER,
     .rates = pp_deepspeed_rates,
     .state = pp_own_state,
     .fixed = pp_torch_fixed},
    {.name = NULL},
};

void pp_trainer_names(const char *names[PP_MAX_TRAINERS])
{
    size_t n = 0;
    for (; pp_trainers[n].name; n++)
        names[n] = pp_trainers[n].name;
    names[n] = NULL;
}

const struct pp_trainer *pp_trainer_find(const char *name)
{
    const struct pp_trainer *t = pp_trainers;
    while (name && t->name && strcmp(t->name, name))
        t++;
    return t->name ? t : NULL;
}

/* AdamW reads the gradient, and reads and writes the weight and its state; it
 * writes a narrow weight alone. */
double pp_trainer_update_bytes(const struct pp_trainer *t,
                               const struct pp_precision *p)
{
    bool narrow = p->element_bytes < p->accumulator_bytes;
    bool again = t->passes.remade && narrow && !p->narrow_moments;
    return (double)((1 + (size_t)t->passes.updated) * pp_gradient_bytes(p) +
                    2 * pp_optimizer_bytes(p) +
                    (narrow ? 1 : 2) * p->element_bytes +
                    (again ? p->accumulator_bytes : 0));
}

double pp_trainer_held_bytes(const struct pp_trainer *t,
                             const struct pp_precision *p, bool reduces)
{
    int n = t->passes.held + (reduces ? t->passes.reduced : 0);
    return (double)n * (double)pp_gradient_bytes(p);
}

unsigned pp_trainer_beside(const struct pp_trainer *t, bool gpu)
{
    return (gpu && t->buckets ? 1u << PP_REDUCE_GRAD : 0) |
           (t->gathers == PP_GATHERS_BESIDE ? 1u << PP_UNSHARD : 0);
}

/* --- what a trainer takes --- */

bool pp_trainer_recomputes(const struct pp_trainer *t, enum pp_recompute r)
{
    return !r || r == PP_RECOMPUTE_FULL ||
           (r == PP_RECOMPUTE_SELECTIVE && t->selective) || !(r & ~t->parts);
}

static bool lists(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name))
        names++;
    return *names;
}

int pp_trainer_check_order(const struct pp_trainer *t,
                           const struct pp_trainer_order *o, struct pp_err *err)
{
    bool listed = !t->kinds || !o->kind || lists(t->kinds, o->kind);
    bool any = t->any_order && !o->copies && o->slices < 2;
    if (!listed && !any)
        return pp_fail_setting(err, PP_EXIT_INPUT, "schedule", t->kinds[0],
                               "%s has no schedule '%s'", t->name, o->kind);
    if (t->kinds && !t->any_order && (o->v || o->copies))
        return pp_fail_setting(err, PP_EXIT_INPUT, "placement", "loop",
                               "%s places stages in a loop", t->name);
    return 0;
}

static int check_mesh(const struct pp_trainer *t, const struct pp_mesh *x,
                      struct pp_err *err)
{
    int zero = pp_mesh_zero(x);
    char value[2] = "0";
    if (x->cp > 1 && !t->cp_exchanges)
        return pp_fail_setting(err, PP_EXIT_INPUT, "cp", "1",
                               "%s has no context-parallel ranks", t->name);
    if (x->cp > 1 && !(t->cp_exchanges >> x->cp_exchange & 1))
        return pp_fail_setting(
            err, PP_EXIT_INPUT, "cp-exchange", "gather",
            "context-parallel ranks of %s do not exchange keys by '%s'",
            t->name, pp_cp_exchange_names[x->cp_exchange]);
    if (t->orders && !(t->orders >> x->order & 1))
        return pp_fail_setting(err, PP_EXIT_INPUT, "mesh-order", "tp-cp-dp-pp",
                               "%s does not place ranks in this order of axes",
                               t->name);
    if (x->ep > 1 && !t->experts)
        return pp_fail_setting(err, PP_EXIT_INPUT, "ep", "1",
                               "%s has no expert-parallel ranks in a pipeline",
                               t->name);
    if (pp_mesh_replicas(x) < 2 || t->zero >> zero & 1)
        return 0;
    while (!(t->zero >> (value[0] - '0') & 1))
        value[0]++;
    if (t->zero & ZERO_1)
        value[0] = '1';
    return pp_fail_setting(err, PP_EXIT_INPUT, "zero", value,
                           "%s does not divide state as ZeRO-%d does", t->name,
                           zero);
}

int pp_trainer_check(const struct pp_trainer *t, const struct pp_mesh *x,
                     const struct pp_backend *b,
                     const struct pp_trainer_order *o, struct pp_err *err)
{
    if (t->gpu && b->element_bytes != 2)
        return pp_fail_setting(err, PP_EXIT_INPUT, "dtype", "bf16",
                               "the memory of %s is known for bf16 alone",
                               t->name);
    if (t->gpu && b->is_host)
        return pp_fail_setting(err, PP_EXIT_INPUT, "device", "cuda",
                               "the memory of %s is known for GPUs alone",
                               t->name);
    return check_mesh(t, x, err) || pp_trainer_check_order(t, o, err) ? -1 : 0;
}
