/* SPDX-License-Identifier: MIT */
/* options - the options of pprun, and checks of their combinations. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "pprun.h"

/* Steps and seeds stay far from overflow when they are multiplied. */
#define LARGEST 0x1p52
/* A smaller epsilon is 0 in fp32, and the update of a weight whose gradients
 * were all 0 would be 0 / 0. */
#define LEAST_EPS 1e-37

static const char *const optimizers[] = {"adamw", "sgd", NULL};
static const char *const schedules[] = {"constant", "cosine", "linear",
                                        "1-sqrt", NULL};
static const char *const last_batches[] = {"wrap", "short", "drop", NULL};
static const char *const save_dtypes[] = {"run",  "model", "fp32",
                                          "fp64", "bf16",  NULL};
static const char *const references[] = {"data", "base", NULL};

static int parse_betas(struct tool *t, const struct tool_option *option,
                       const char *arg)
{
    struct runner *p = t->base;
    struct pp_optim *o = &p->job.optim;
    double rate[2] = {0};
    size_t n;
    (void)option;
    if (pp_parse_reals(arg, "--betas", -HUGE_VAL, HUGE_VAL, rate, 2, &n,
                       &t->err))
        return -1;
    for (size_t i = 0; n == 2 && i < 2; i++)
        if (!(rate[i] >= 0 && rate[i] < 1))
            n = 0;
    if (n != 2)
        return pp_fail(
            &t->err, PP_EXIT_INPUT,
            "--betas: '%s' must be two numbers, at least 0 and below "
            "1, such as 0.9,0.999",
            arg);
    o->beta1 = rate[0];
    o->beta2 = rate[1];
    return 0;
}

#define AT(member) TOOL_AT(struct pprun, member)
/* --print-memory accepts options of a run that it does not start. --verify uses
 * some of them, and excludes others by name. */
#define TRAINING "steps|?epochs|?print-memory|?verify"
#define DECAYING " lr-schedule=cosine|?lr-schedule=linear|?lr-schedule=1-sqrt"
#define STEPS "steps|?epochs|?print-memory"

const struct tool_option pprun_option_table[] = {
    {.group = "Model and data"},
    {0, "data", "DIR", "train on this packed directory",
     AT(runner.options.data)},
    {0, "weights", "PATH", "start from these safetensors",
     AT(runner.options.weights)},
    {0, "adapter", "DIR", "start from this adapter, for a plan with --lora",
     AT(runner.options.adapter), .excludes = "init"},
    {0, "init", "SEED", "start from random weights", AT(runner.options.seed), 0,
     LARGEST, .excludes = "weights"},
    {0, "objective", "NAME,K=X",
     "sft (default), dpo, grpo, ...; 'help' lists keys",
     .parse = runner_parse_settings, .words = pp_objective_names},
    {0, "reference", "NAME", "data (default), or base: without its adapters",
     AT(runner.job.reference), .words = references, .needs = TRAINING},
    {0, "temperature", "X", "divide logits by this (1)",
     AT(runner.job.temperature), 1e-3, 1e3, .excludes = "verify print-memory"},
    {0, "router", "K=X,...", "losses and biases of routers: see 'help'",
     .parse = runner_parse_settings, .list = runner_list_router,
     .needs = TRAINING},
    {0, "loss", "K=X,...", "factors of more losses: see 'help'",
     .parse = runner_parse_settings, .list = runner_list_loss,
     .needs = TRAINING},
    {0, "record-routing", "FILE", "write which experts each token got",
     AT(runner.options.record_routing), .needs = "steps|?epochs",
     .excludes = "verify print-memory"},
    {0, "replay-routing", "FILE", "give each token the experts of this file",
     AT(runner.options.replay_routing), .needs = "steps|?epochs",
     .excludes = "verify print-memory"},

    {.group = "Training"},
    {0, "steps", "N", "total number of optimizer steps",
     AT(runner.job.optim.steps), 1, LARGEST, .also = "max-steps train-iters"},
    {0, "epochs", "X", "the steps that go X times through the data",
     AT(options.epochs), 1e-6, 1e6, .excludes = "steps",
     .also = "num-train-epochs num-epochs"},
    {0, "last-batch", "NAME",
     "an epoch's last step: wrap (default), short, drop",
     AT(options.last_batch), .words = last_batches, .needs = TRAINING},
    {0, "grad-accum", "N", "passes of the schedule in each step (1)",
     AT(runner.job.accumulate), 1, 1 << 20, .needs = TRAINING,
     .also = "gradient-accumulation-steps"},
    {0, "lr", "X", "peak learning rate (1e-3; 1e-5 from weights)",
     AT(runner.job.optim.lr), 0, 1e6, .needs = TRAINING,
     .also = "learning-rate"},
    {0, "lr-schedule", "NAME", "constant (default), cosine, linear, 1-sqrt",
     AT(runner.job.optim.schedule), .words = schedules, .needs = TRAINING,
     .also = "lr-scheduler-type lr-decay-style"},
    {0, "min-lr", "X", "learning rate at which the schedule ends (0)",
     AT(runner.job.optim.min_lr), 0, 1e6, .needs = TRAINING DECAYING},
    {0, "decay-steps", "N", "last steps, in which the rate falls (all)",
     AT(runner.job.optim.decay), 1, LARGEST, .needs = TRAINING DECAYING,
     .also = "num-decay-steps lr-wsd-decay-iters"},
    {0, "warmup", "N", "steps of linear warm-up (0)",
     AT(runner.job.optim.warmup), 0, LARGEST, .needs = TRAINING,
     .also = "warmup-steps lr-warmup-iters"},
    {0, "optimizer", "NAME", "adamw (default) or sgd",
     AT(runner.job.optim.optimizer), .words = optimizers, .needs = TRAINING},
    {0, "betas", "B1,B2", "AdamW's decay rates (0.9,0.999)",
     .parse = parse_betas, .needs = TRAINING " optimizer=adamw"},
    {0, "eps", "X", "AdamW's epsilon (1e-8)", AT(runner.job.optim.eps),
     LEAST_EPS, 1e6, .needs = TRAINING " optimizer=adamw",
     .also = "adam-epsilon adam-eps"},
    {0, "weight-decay", "X", "decoupled decay of matrices (0)",
     AT(runner.job.optim.weight_decay), 0, 1e6, .needs = TRAINING},
    {0, "decay-all", NULL, "decay norms and biases too",
     AT(runner.job.optim.decay_all), .needs = TRAINING " weight-decay"},
    {0, "clip", "X", "largest gradient norm, 0 for none (1.0)",
     AT(runner.job.optim.clip), 0, 1e300, .needs = TRAINING,
     .also = "clip-grad max-grad-norm max-norm"},
    {0, "offload-dir", "DIR", "offloaded activations go to files there",
     AT(runner.job.offload_dir), .needs = TRAINING " device=cpu"},

    {.group = "Checkpoints"},
    {0, "save", "DIR", "write checkpoints to DIR", AT(runner.job.save),
     .needs = TRAINING},
    {0, "save-every", "N", "also every N steps, not only after the last",
     AT(runner.job.save_every), 1, LARGEST, .needs = "save",
     .also = "save-steps save-interval"},
    {0, "save-background", NULL, "save while the next steps train",
     AT(runner.job.save_background), .needs = "save-every",
     .also = "async-save"},
    {0, "keep", "N", "keep the N newest checkpoints (all)", AT(runner.job.keep),
     1, 1 << 20, .needs = "save", .also = "save-total-limit"},
    {0, "save-dtype", "NAME", "of weights: run (default), model, fp32, bf16",
     AT(options.save_dtype), .words = save_dtypes,
     .needs = "save|stream-weights"},
    {0, "shard-size", "SIZE", "most bytes of tensors in a file (5GB)",
     AT(runner.job.shard_size), .needs = "save|stream-weights",
     .also = "max-shard-size"},
    {0, "stream-weights", "PATH", "give weights to a directory, FIFO or socket",
     AT(runner.job.stream.path), .needs = TRAINING},
    {0, "stream-every", "N", "also every N steps, not only after the last",
     AT(runner.job.stream.every), 1, LARGEST, .needs = "stream-weights"},
    {0, "stream-timeout", "SECS",
     "longest wait for a FIFO's or socket's reader",
     AT(runner.job.stream.timeout), 0, 1e6, .needs = "stream-weights"},
    {0, "resume", "DIR", "continue from the newest checkpoint, if any",
     AT(runner.options.resume)},
    {0, "fall-back", NULL, "if that is damaged, take the one before it",
     AT(runner.options.fall_back), .needs = "resume"},
    {0, "new-data", NULL, "go on with other data, from its beginning",
     AT(runner.job.new_data), .needs = "resume " TRAINING,
     .excludes = "epochs"},
    {0, "dump-grads", "FILE", "write the gradients of the last step",
     AT(runner.job.dump_grads), .needs = TRAINING},

    {.group = "Evaluation"},
    {0, "eval", "DIR", "packed directory for val_loss", AT(runner.options.eval),
     .needs = TRAINING},
    {0, "eval-at-start", NULL, "also before the first step",
     AT(runner.job.eval_at_start), .needs = "eval", .also = "eval-on-start"},
    {0, "eval-every", "N", "also every N steps, not only after the last",
     AT(runner.job.eval_every), 1, LARGEST, .needs = "eval",
     .also = "eval-steps eval-interval"},
    {0, "objective-cases", "FILE", "compute objectives on given numbers",
     AT(options.cases),
     .excludes = "steps epochs eval verify print-memory data"},
    {0, "verify", NULL, "compare with one rank in fp64, and stop",
     AT(runner.options.verify),
     .excludes =
         "steps epochs save stream-weights dump-grads trace print-memory "
         "resume profile"},
    {0, "merge", "DIR", "write the model with its adapter to DIR, and stop",
     AT(options.merge), .needs = "adapter",
     .excludes = "steps epochs eval verify print-memory data resume"},
    {0, "shrink", NULL, "with --verify: a small model and data",
     AT(runner.options.shrink), .needs = "verify", .excludes = "weights"},
    {0, "json", NULL, "with --verify: JSON instead of a table",
     AT(options.json), .needs = "verify"},

    {.group = "Measurement"},
    {0, "profile", "FILE", "write the times of units and messages",
     AT(options.profile), .needs = TRAINING},
    {0, "trace", "FILE", "write a trace of the last step for Perfetto",
     AT(options.trace), .needs = TRAINING},
    {0, "trace-steps", "N", "with --trace: the last N steps (1)",
     AT(options.trace_steps), 1, 1 << 20, .needs = "trace"},
    {0, "print-metadata-hash", NULL, "print a hash of each rank's sequences",
     AT(runner.job.metadata), .needs = "steps|?epochs", .excludes = "verify"},
    {0, "svg", "FILE", "draw the curves of the run, again and again",
     AT(options.svg), .needs = TRAINING, .excludes = "verify"},
    {0, "time-products", NULL, "add the share of matrix products to each line",
     AT(runner.job.time_products), .needs = STEPS " device=cpu"},

    {.group = "Launching"},
    {0, "nccl-sums", NULL, "NCCL adds gradients: faster, bits may differ",
     AT(runner.job.nccl_sums), .needs = STEPS " transport=nccl"},
    {0, "print-launch", "HOW", "print the command that starts the ranks",
     AT(options.launch), .words = pprun_launchers},
    {0},
};

/* Refuses two outputs in one place: the first would be lost. */
static int check_outputs(struct runner *p)
{
    const struct pprun_options *o = &pprun_of(p)->options;
    const struct {
        const char *option, *path;
    } outputs[] = {
        {"save", p->job.save},
        {"stream-weights", p->job.stream.path},
        {"trace", o->trace},
        {"profile", o->profile},
        {"dump-grads", p->job.dump_grads},
        {"svg", o->svg},
        {"record-routing", p->options.record_routing},
        {"output", p->tool->output},
    };
    const size_t n = sizeof outputs / sizeof *outputs;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            const char *path = outputs[i].path;
            if (path && outputs[j].path && !strcmp(path, outputs[j].path) &&
                strcmp(path, "-") && strncmp(path, "/dev/", 5))
                return tool_usage(p->tool,
                                  "--%s and --%s: both write to '%s'; give two "
                                  "places",
                                  outputs[i].option, outputs[j].option, path);
        }
    return 0;
}

static int check_purpose(struct runner *p)
{
    const struct runner_options *o = &p->options;
    if (o->verify && o->dtype == RUNNER_BF16)
        return tool_usage(p->tool, "--verify needs --dtype fp32 or fp64: the "
                                   "rounding of bf16 would hide errors");
    const struct pp_router_options *r = &p->job.settings.router;
    if (o->verify && pp_router_has_losses(r) && r->rule != PP_ROUTER_DOCUMENTS)
        return tool_usage(p->tool,
                          "--verify needs --router rule=documents: other "
                          "losses depend on what shares a microbatch");
    const struct pprun_options *own = &pprun_of(p)->options;
    if (!p->job.optim.steps && !own->epochs && !o->plan && !o->verify &&
        !own->cases && !own->merge && own->launch < 0)
        return tool_usage(p->tool,
                          "nothing to do: give --steps, --epochs, "
                          "--print-memory or --verify; ppscore evaluates and "
                          "scores");
    return 0;
}

int pprun_read_options(struct runner *p, int argc, char **argv)
{
    struct tool *t = p->tool;
    t->base = pprun_of(p);
    return tool_read_options(t, argc, argv) || runner_check_transport(p) ||
                   tool_check_options(t) || check_outputs(p) ||
                   runner_take_settings(p) || check_purpose(p)
               ? -1
               : 0;
}
