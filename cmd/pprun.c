/* SPDX-License-Identifier: MIT */
/* pprun - trains: the options and the course of a run. */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/num.h"
#include "blas_threads.h"
#include "pprun.h"
#include "version.h"

enum {
    OPT_DATA = TOOL_LONG,
    OPT_WEIGHTS,
    OPT_INIT,
    OPT_STEPS,
    OPT_LR,
    OPT_OPTIMIZER,
    OPT_BETAS,
    OPT_EPS,
    OPT_DECAY,
    OPT_CLIP,
    OPT_WARMUP,
    OPT_LR_SCHEDULE,
    OPT_MIN_LR,
    OPT_ACCUMULATE,
    OPT_OBJECTIVE,
    OPT_DEVICE,
    OPT_DTYPE,
    OPT_TRANSPORT,
    OPT_SAVE,
    OPT_SAVE_EVERY,
    OPT_KEEP,
    OPT_RESUME,
    OPT_EVAL,
    OPT_EVAL_EVERY,
    OPT_LOGPROBS,
    OPT_DUMP_GRADS,
    OPT_MEMORY,
    OPT_PLAN,
    OPT_TIME_PRODUCTS
};

static const struct tool_option options[] = {
    {OPT_DATA, "data", "DIR", "packed directory to train on"},
    {OPT_WEIGHTS, "weights", "PATH", "start from these safetensors"},
    {OPT_INIT, "init", "SEED", "start from random weights"},
    {OPT_STEPS, "steps", "N", "total number of optimizer steps"},
    {OPT_LR, "lr", "X", "peak learning rate (1e-3)"},
    {OPT_OPTIMIZER, "optimizer", "NAME", "adamw (default) or sgd"},
    {OPT_BETAS, "betas", "B1,B2", "AdamW's decay rates (0.9,0.999)"},
    {OPT_EPS, "eps", "X", "AdamW's epsilon (1e-8)"},
    {OPT_DECAY, "weight-decay", "X", "decoupled, of every parameter (0)"},
    {OPT_CLIP, "clip", "X", "largest gradient norm, 0 for none (1.0)"},
    {OPT_WARMUP, "warmup", "N", "steps of linear warm-up (0)"},
    {OPT_LR_SCHEDULE, "lr-schedule", "NAME", "constant (default) or cosine"},
    {OPT_MIN_LR, "min-lr", "X", "what cosine ends at (0)"},
    {OPT_ACCUMULATE, "accumulate", "N", "passes of the schedule a step (1)"},
    {OPT_OBJECTIVE, "objective", "NAME", "sft"},
    {OPT_DEVICE, "device", "NAME", "cpu"},
    {OPT_DTYPE, "dtype", "NAME", "fp32 (default) or fp64"},
    {OPT_TRANSPORT, "transport", "NAME", "threads"},
    {OPT_SAVE, "save", "DIR", "write checkpoints into DIR"},
    {OPT_SAVE_EVERY, "save-every", "N", "and every N steps, not only the last"},
    {OPT_KEEP, "keep", "N", "keep the N newest checkpoints (all)"},
    {OPT_RESUME, "resume", "DIR", "go on from DIR's newest checkpoint, if any"},
    {OPT_EVAL, "eval", "DIR", "packed directory for val_loss"},
    {OPT_EVAL_EVERY, "eval-every", "N", "and every N steps, not only the last"},
    {OPT_LOGPROBS, "logprobs", "FILE", "score the data instead of training"},
    {OPT_DUMP_GRADS, "dump-grads", "FILE", "gradients of the last step"},
    {OPT_MEMORY, "memory", "N|SIZE", "refuse a plan above N slots or SIZE"},
    {OPT_PLAN, "plan", NULL, "print what every rank would allocate, and stop"},
    {OPT_TIME_PRODUCTS, "time-products", NULL,
     "add the share of matrix products to each line"},
    {0},
};

/* Looks s up in a list of words; their index, or a usage error. */
static int word(struct tool *t, const char *option, const char *s,
                const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(s, words[i]))
            return i;
    return tool_usage(t, "--%s: '%s' is not one of the names in pprun(1)",
                      option, s);
}

static int parse_betas(struct tool *t, const char *s, struct pp_optim *o)
{
    char first[64];
    const char *comma = strchr(s, ',');
    if (!comma || (size_t)(comma - s) >= sizeof first)
        return tool_usage(t, "--betas: '%s' is not two numbers, as 0.9,0.999",
                          s);
    memcpy(first, s, (size_t)(comma - s));
    first[comma - s] = '\0';
    return pp_parse_real(first, "--betas", 0, 1 - 1e-12, &o->beta1, &t->err) ||
                   pp_parse_real(comma + 1, "--betas", 0, 1 - 1e-12, &o->beta2,
                                 &t->err)
               ? -1
               : 0;
}

static int parse_memory(struct tool *t, struct pprun_options *o)
{
    o->memory_is_slots = strspn(optarg, "0123456789") == strlen(optarg);
    if (pp_parse_size(optarg, "--memory", &o->memory, &t->err))
        return -1;
    return o->memory ? 0 : tool_usage(t, "--memory: 0 is no memory");
}

/* Options whose value is one of few words. */
static int set_word(struct pprun *p, int id)
{
    static const char *const optimizers[] = {"adamw", "sgd", NULL};
    static const char *const schedules[] = {"constant", "cosine", NULL};
    static const char *const dtypes[] = {"fp32", "fp64", NULL};
    static const char *const devices[] = {"cpu", NULL};
    static const char *const transports[] = {"threads", NULL};
    static const char *const objectives[] = {"sft", NULL};
    struct tool *t = p->tool;
    int i = 0;
    switch (id) {
    case OPT_OPTIMIZER:
        i = word(t, "optimizer", optarg, optimizers);
        p->job.optim.optimizer = (enum pp_optimizer)i;
        break;
    case OPT_LR_SCHEDULE:
        i = word(t, "lr-schedule", optarg, schedules);
        p->job.optim.schedule = (enum pp_lr_schedule)i;
        break;
    case OPT_DTYPE:
        i = word(t, "dtype", optarg, dtypes);
        p->options.dtype = optarg;
        break;
    case OPT_DEVICE:
        i = word(t, "device", optarg, devices);
        break;
    case OPT_TRANSPORT:
        i = word(t, "transport", optarg, transports);
        break;
    case OPT_OBJECTIVE:
        i = word(t, "objective", optarg, objectives);
        break;
    }
    return i < 0 ? -1 : 0;
}

static int set_integer(struct pprun *p, int id)
{
    struct pp_job *j = &p->job;
    struct pp_err *err = &p->tool->err;
    int64_t n = 0;
    int rc = 0;
    switch (id) {
    case OPT_INIT:
        rc = pp_parse_int(optarg, "--init", 0, INT64_MAX, &n, err);
        j->seed = (uint64_t)n;
        p->options.has_seed = true;
        break;
    case OPT_STEPS:
        rc = pp_parse_int(optarg, "--steps", 1, INT64_MAX / 2, &j->optim.steps,
                          err);
        p->options.has_steps = true;
        break;
    case OPT_WARMUP:
        rc = pp_parse_int(optarg, "--warmup", 0, INT64_MAX / 2,
                          &j->optim.warmup, err);
        break;
    case OPT_ACCUMULATE:
        rc = pp_parse_int(optarg, "--accumulate", 1, 1 << 20, &n, err);
        j->accumulate = (int)n;
        break;
    case OPT_SAVE_EVERY:
        rc = pp_parse_int(optarg, "--save-every", 1, INT64_MAX / 2,
                          &j->save_every, err);
        break;
    case OPT_EVAL_EVERY:
        rc = pp_parse_int(optarg, "--eval-every", 1, INT64_MAX / 2,
                          &j->eval_every, err);
        break;
    case OPT_KEEP:
        rc = pp_parse_int(optarg, "--keep", 1, 1 << 20, &n, err);
        j->keep = (int)n;
        break;
    }
    return rc;
}

static int set_real(struct pprun *p, int id)
{
    struct pp_optim *o = &p->job.optim;
    struct pp_err *err = &p->tool->err;
    switch (id) {
    case OPT_LR:
        return pp_parse_real(optarg, "--lr", 0, 1e6, &o->lr, err);
    case OPT_MIN_LR:
        return pp_parse_real(optarg, "--min-lr", 0, 1e6, &o->min_lr, err);
    case OPT_EPS:
        return pp_parse_real(optarg, "--eps", 0, 1e6, &o->eps, err);
    case OPT_DECAY:
        return pp_parse_real(optarg, "--weight-decay", 0, 1e6, &o->weight_decay,
                             err);
    default:
        return pp_parse_real(optarg, "--clip", 0, 1e300, &o->clip, err);
    }
}

static int set_option(struct pprun *p, int id)
{
    switch (id) {
    case OPT_DATA:
        p->options.data = optarg;
        return 0;
    case OPT_WEIGHTS:
        p->options.weights = optarg;
        return 0;
    case OPT_RESUME:
        p->options.resume = optarg;
        return 0;
    case OPT_EVAL:
        p->options.eval = optarg;
        return 0;
    case OPT_LOGPROBS:
        p->options.logprobs = optarg;
        return 0;
    case OPT_SAVE:
        p->job.save = optarg;
        return 0;
    case OPT_DUMP_GRADS:
        p->job.dump_grads = optarg;
        return 0;
    case OPT_PLAN:
        p->options.plan = true;
        return 0;
    case OPT_TIME_PRODUCTS:
        p->job.time_products = true;
        return 0;
    case OPT_BETAS:
        return parse_betas(p->tool, optarg, &p->job.optim);
    case OPT_MEMORY:
        return parse_memory(p->tool, &p->options);
    case OPT_LR:
    case OPT_MIN_LR:
    case OPT_EPS:
    case OPT_DECAY:
    case OPT_CLIP:
        return set_real(p, id);
    case OPT_OPTIMIZER:
    case OPT_LR_SCHEDULE:
    case OPT_DTYPE:
    case OPT_DEVICE:
    case OPT_TRANSPORT:
    case OPT_OBJECTIVE:
        return set_word(p, id);
    default:
        return set_integer(p, id);
    }
}

static int check_options(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    struct tool *t = p->tool;
    if (!o->has_steps && !o->eval && !o->logprobs)
        return tool_usage(t, "nothing to do: give --steps, --eval or "
                             "--logprobs");
    if (o->logprobs && (o->has_steps || o->eval))
        return tool_usage(t, "--logprobs scores the data and does not go with "
                             "--steps or --eval");
    if (o->weights && o->has_seed)
        return tool_usage(t, "--weights and --init exclude each other");
    if ((p->job.save || p->job.dump_grads) && !o->has_steps)
        return tool_usage(t, "--save and --dump-grads need --steps");
    return 0;
}

/* Set by the first SIGTERM or SIGUSR1. The only variable of its kind: blocking
 * the signals and looking for pending ones would need none, but BLAS starts
 * threads of its own before main, which block nothing. */
static atomic_int stop_signal;

static void take_signal(int signal)
{
    stop_signal = signal;
}

static bool stop_requested(void *ctx)
{
    (void)ctx;
    return stop_signal != 0;
}

static void handle_signals(void)
{
    struct sigaction action = {.sa_handler = take_signal,
                               .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static int run(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    pp_cpu_blas_threads(1);
    if (!tool_output(p->tool) || pprun_prepare(p, manifest) ||
        pprun_check_memory(p))
        return -1;
    if (p->options.plan)
        return 0;
    /* Without --save a signal ends the run as usual: there is nothing to
     * come back to. */
    if (p->job.save)
        handle_signals();
    if (p->options.logprobs && pprun_logprobs_init(p))
        return -1;
    tool_progress(p->tool, p->options.has_steps ? "the first step ..."
                                                : "going through the data ...");
    if (pprun_threads(p, &status))
        return -1;
    if (p->options.logprobs && pprun_logprobs_write(p))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pprun",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Trains the model of a stage manifest over its pipeline.",
        .options = options,
        .facts = PP_RUN_FACTS,
    };
    struct pprun p = {
        .tool = &t,
        .options = {.dtype = "fp32"},
        .job = {.accumulate = 1,
                .optim = {.lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .clip = 1},
                .report = pprun_report,
                .evaluated = pprun_evaluated,
                .stop = stop_requested},
    };
    const char *manifest;
    p.job.ctx = &p;
    for (int id; (id = tool_option(&t, argc, argv)) != TOOL_END;)
        if (id == TOOL_STOP || set_option(&p, id))
            return tool_finish(&t);
    if (check_options(&p) == 0 && tool_input(&t, argc, argv, &manifest) == 0)
        (void)run(&p, manifest);
    pprun_finish(&p);
    return tool_finish(&t);
}
