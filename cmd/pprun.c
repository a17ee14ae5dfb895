/* SPDX-License-Identifier: MIT */
/* pprun - trains: the options and the course of a run. */
#include <getopt.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

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
    OPT_JOIN_TIMEOUT,
    OPT_SHAPES,
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
    OPT_TIME_PRODUCTS,
    OPT_PROFILE,
    OPT_TRACE,
    OPT_TRACE_STEPS,
    OPT_BLAS_THREADS,
    OPT_VERIFY,
    OPT_SHRINK,
    OPT_JSON
};

/* Steps and seeds; far from overflow when they are multiplied. */
#define LARGEST 0x1p52
/* The largest decay rate of a moment. */
#define BELOW_1 (1 - 1e-12)

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
    {OPT_DEVICE, "device", "NAME", "cpu (default) or cuda"},
    {OPT_DTYPE, "dtype", "NAME", "fp32 (default), fp64 or bf16"},
    {OPT_TRANSPORT, "transport", "NAME", "threads (default), mpi or nccl"},
    {OPT_JOIN_TIMEOUT, "join-timeout", "SECONDS",
     "with mpi, nccl: how long ranks wait for each other (300)"},
    {OPT_SHAPES, "shapes", "HOW", "of messages: planned, exchange or max"},
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
    {OPT_PROFILE, "profile", "FILE", "write what units and messages take"},
    {OPT_TRACE, "trace", "FILE", "write when everything happened, as a trace"},
    {OPT_TRACE_STEPS, "trace-steps", "N", "with --trace: the last N steps (1)"},
    {OPT_BLAS_THREADS, "blas-threads", "N", "of each matrix product (1)"},
    {OPT_VERIFY, "verify", NULL, "compare with one rank in fp64, and stop"},
    {OPT_SHRINK, "shrink", NULL, "with --verify: a small model and data"},
    {OPT_JSON, "json", NULL, "with --verify: JSON instead of a table"},
    {0},
};

static const char *const optimizers[] = {"adamw", "sgd", NULL};
static const char *const schedules[] = {"constant", "cosine", NULL};
static const char *const dtypes[] = {"fp32", "fp64", "bf16", NULL};
static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const transports[] = {"threads", "mpi", "nccl", NULL};
static const char *const objectives[] = {"sft", NULL};
static const char *const shapes[] = {
    [PP_SHAPES_PLANNED] = "planned",
    [PP_SHAPES_EXCHANGE] = "exchange",
    [PP_SHAPES_MAX] = "max",
    NULL,
};

/* What an option's argument becomes, and where in struct pprun it goes. */
enum value { TEXT, FLAG, INT, INT64, REAL, WORD };

static const struct setting {
    int id;
    const char *name;
    enum value value;
    size_t at;
    double min, max;          /* INT, INT64, REAL */
    const char *const *words; /* WORD: stored as an int, their index */
} settings[] = {
#define AT(member) offsetof(struct pprun, member)
    {OPT_DATA, "--data", TEXT, AT(options.data)},
    {OPT_EVAL, "--eval", TEXT, AT(options.eval)},
    {OPT_WEIGHTS, "--weights", TEXT, AT(options.weights)},
    {OPT_RESUME, "--resume", TEXT, AT(options.resume)},
    {OPT_LOGPROBS, "--logprobs", TEXT, AT(options.logprobs)},
    {OPT_PROFILE, "--profile", TEXT, AT(options.profile)},
    {OPT_TRACE, "--trace", TEXT, AT(options.trace)},
    {OPT_SAVE, "--save", TEXT, AT(job.save)},
    {OPT_DUMP_GRADS, "--dump-grads", TEXT, AT(job.dump_grads)},
    {OPT_PLAN, "--plan", FLAG, AT(options.plan)},
    {OPT_TIME_PRODUCTS, "--time-products", FLAG, AT(job.time_products)},
    {OPT_VERIFY, "--verify", FLAG, AT(options.verify)},
    {OPT_SHRINK, "--shrink", FLAG, AT(options.shrink)},
    {OPT_JSON, "--json", FLAG, AT(options.json)},
    {OPT_ACCUMULATE, "--accumulate", INT, AT(job.accumulate), 1, 1 << 20},
    {OPT_TRACE_STEPS, "--trace-steps", INT, AT(options.trace_steps), 1,
     1 << 20},
    {OPT_BLAS_THREADS, "--blas-threads", INT, AT(options.blas_threads), 1, 64},
    {OPT_KEEP, "--keep", INT, AT(job.keep), 1, 1 << 20},
    {OPT_INIT, "--init", INT64, AT(options.seed), 0, LARGEST},
    {OPT_STEPS, "--steps", INT64, AT(job.optim.steps), 1, LARGEST},
    {OPT_WARMUP, "--warmup", INT64, AT(job.optim.warmup), 0, LARGEST},
    {OPT_SAVE_EVERY, "--save-every", INT64, AT(job.save_every), 1, LARGEST},
    {OPT_EVAL_EVERY, "--eval-every", INT64, AT(job.eval_every), 1, LARGEST},
    {OPT_JOIN_TIMEOUT, "--join-timeout", REAL, AT(options.join_timeout), 1,
     1e6},
    {OPT_LR, "--lr", REAL, AT(job.optim.lr), 0, 1e6},
    {OPT_MIN_LR, "--min-lr", REAL, AT(job.optim.min_lr), 0, 1e6},
    {OPT_EPS, "--eps", REAL, AT(job.optim.eps), 0, 1e6},
    {OPT_DECAY, "--weight-decay", REAL, AT(job.optim.weight_decay), 0, 1e6},
    {OPT_CLIP, "--clip", REAL, AT(job.optim.clip), 0, 1e300},
    {OPT_OPTIMIZER, "--optimizer", WORD, AT(job.optim.optimizer), 0, 0,
     optimizers},
    {OPT_LR_SCHEDULE, "--lr-schedule", WORD, AT(job.optim.schedule), 0, 0,
     schedules},
    {OPT_DTYPE, "--dtype", WORD, AT(options.dtype), 0, 0, dtypes},
    {OPT_DEVICE, "--device", WORD, AT(options.device), 0, 0, devices},
    {OPT_TRANSPORT, "--transport", WORD, AT(options.transport), 0, 0,
     transports},
    {OPT_OBJECTIVE, "--objective", WORD, AT(options.objective), 0, 0,
     objectives},
    {OPT_SHAPES, "--shapes", WORD, AT(options.shapes), 0, 0, shapes},
#undef AT
};

static int set_word(struct tool *t, const struct setting *s, int *to)
{
    char known[128] = "";
    size_t n = 0;
    for (int i = 0; s->words[i] && n < sizeof known; i++) {
        if (!strcmp(optarg, s->words[i])) {
            *to = i;
            return 0;
        }
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                              i ? ", " : "", s->words[i]);
    }
    return tool_usage(t, "%s: '%s' is not one of: %s", s->name, optarg, known);
}

static int set_value(struct pprun *p, const struct setting *s)
{
    struct pp_err *err = &p->tool->err;
    void *to = (char *)p + s->at;
    int64_t n = 0;
    switch (s->value) {
    case TEXT:
        *(const char **)to = optarg;
        return 0;
    case FLAG:
        *(bool *)to = true;
        return 0;
    case REAL:
        return pp_parse_real(optarg, s->name, s->min, s->max, to, err);
    case WORD:
        return set_word(p->tool, s, to);
    case INT:
    case INT64:
        break;
    }
    if (pp_parse_int(optarg, s->name, (int64_t)s->min, (int64_t)s->max, &n,
                     err))
        return -1;
    if (s->value == INT)
        *(int *)to = (int)n;
    else
        *(int64_t *)to = n;
    return 0;
}

static int parse_betas(struct tool *t, struct pp_optim *o)
{
    char first[64];
    const char *comma = strchr(optarg, ',');
    if (!comma || (size_t)(comma - optarg) >= sizeof first)
        return tool_usage(t, "--betas: '%s' is not two numbers, as 0.9,0.999",
                          optarg);
    memcpy(first, optarg, (size_t)(comma - optarg));
    first[comma - optarg] = '\0';
    if (pp_parse_real(first, "--betas", 0, BELOW_1, &o->beta1, &t->err))
        return -1;
    return pp_parse_real(comma + 1, "--betas", 0, BELOW_1, &o->beta2, &t->err);
}

static int parse_memory(struct tool *t, struct pprun_options *o)
{
    o->memory_is_slots = strspn(optarg, "0123456789") == strlen(optarg);
    if (pp_parse_size(optarg, "--memory", &o->memory, &t->err))
        return -1;
    return o->memory ? 0 : tool_usage(t, "--memory: 0 is no memory");
}

static int set_option(struct pprun *p, int id)
{
    if (id == OPT_BETAS)
        return parse_betas(p->tool, &p->job.optim);
    if (id == OPT_MEMORY)
        return parse_memory(p->tool, &p->options);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].id == id)
            return set_value(p, &settings[i]);
    return tool_usage(p->tool, "option without a setting");
}

static int check_verify(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    const struct pp_job *j = &p->job;
    if (!o->verify)
        return tool_usage(p->tool, "--shrink and --json need --verify");
    if (j->optim.steps > 0 || j->save || j->dump_grads || o->logprobs ||
        o->resume || o->plan || o->trace || o->profile)
        return tool_usage(p->tool,
                          "--verify makes its own steps and does not go with "
                          "--steps, --save, --dump-grads, --logprobs, "
                          "--trace, --profile, --resume or --plan");
    if (o->dtype == PPRUN_BF16)
        return tool_usage(p->tool, "--verify works in fp32 and fp64: in bf16 "
                                   "rounding hides what a fault does");
    if (o->shrink && o->weights)
        return tool_usage(p->tool, "--shrink makes its own weights and does "
                                   "not go with --weights");
    return 0;
}

/* An interval without what it is an interval of: work that is thought safe
 * and is not. */
static int check_intervals(struct pprun *p)
{
    const struct pp_job *j = &p->job;
    if (j->save_every && !j->save)
        return tool_usage(p->tool, "--save-every needs --save");
    if (j->keep && !j->save)
        return tool_usage(p->tool, "--keep needs --save");
    if (j->eval_every && !p->options.eval)
        return tool_usage(p->tool, "--eval-every needs --eval");
    return 0;
}

static int check_recording(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    const char *name = o->trace ? "--trace" : "--profile";
    if (o->trace_steps && !o->trace)
        return tool_usage(p->tool, "--trace-steps needs --trace");
    if (!o->trace && !o->profile)
        return 0;
    if (p->job.optim.steps == 0)
        return tool_usage(p->tool, "%s needs --steps", name);
    if (o->trace && o->profile && !strcmp(o->trace, o->profile))
        return tool_usage(p->tool, "--trace and --profile: '%s' cannot be both",
                          o->trace);
    return 0;
}

static int check_transport(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    if (o->transport == PPRUN_NCCL && o->device != PPRUN_CUDA)
        return tool_usage(p->tool, "--transport nccl needs --device cuda");
    if (o->transport == PPRUN_MPI && o->device != PPRUN_CPU)
        return tool_usage(p->tool, "--transport mpi needs --device cpu");
    if (o->transport != PPRUN_THREADS && (o->verify || o->plan))
        return tool_usage(p->tool,
                          "--verify and --plan run in one process "
                          "and do not go with --transport %s",
                          transports[o->transport]);
    if (o->transport == PPRUN_THREADS && o->join_timeout > 0)
        return tool_usage(p->tool,
                          "--join-timeout needs --transport mpi or nccl");
    return 0;
}

static int check_options(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    struct tool *t = p->tool;
    bool trains = p->job.optim.steps > 0;
    if (check_transport(p))
        return -1;
    if (o->weights && o->seed >= 0)
        return tool_usage(t, "--weights and --init exclude each other");
    if (o->verify || o->shrink || o->json)
        return check_verify(p);
    if (!trains && !o->eval && !o->logprobs)
        return tool_usage(t, "nothing to do: give --steps, --eval, --logprobs "
                             "or --verify");
    if (o->logprobs && (trains || o->eval))
        return tool_usage(t, "--logprobs scores the data and does not go with "
                             "--steps or --eval");
    if ((p->job.save || p->job.dump_grads) && !trains)
        return tool_usage(t, "--save and --dump-grads need --steps");
    if (check_intervals(p))
        return -1;
    return check_recording(p);
}

static int run_process(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    pprun_handle_signals(p);
    if (pprun_process(p, manifest, &status))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

static int run(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    pp_cpu_blas_threads(p->options.blas_threads);
    if (p->options.transport != PPRUN_THREADS)
        return run_process(p, manifest);
    if (pprun_check_alone(p) || !tool_output(p->tool) ||
        pprun_choose_device(p) || pprun_prepare(p, manifest))
        return -1;
    if (p->options.verify && pprun_verify_prepare(p))
        return -1;
    if (pprun_check_memory(p))
        return -1;
    if (p->options.plan)
        return 0;
    if (pprun_check_device(p))
        return -1;
    if (p->options.verify)
        return pprun_verify(p);
    pprun_handle_signals(p);
    if (p->options.logprobs && pprun_logprobs_init(p))
        return -1;
    tool_progress(p->tool, p->job.optim.steps ? "the first step ..."
                                              : "going through the data ...");
    if (pprun_record_init(p))
        return -1;
    int rc = pprun_threads(p, &status);
    if (pprun_record_close(p) || rc)
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
        .options = {.seed = -1, .blas_threads = 1},
        .job = {.accumulate = 1,
                .optim = {.lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .clip = 1},
                .report = pprun_report,
                .evaluated = pprun_evaluated,
                .recorded = pprun_recorded,
                .stop = pprun_stop_requested},
    };
    const char *manifest;
    p.job.ctx = &p;
    p.argv = argv;
    for (int id; (id = tool_option(&t, argc, argv)) != TOOL_END;)
        if (id == TOOL_STOP || set_option(&p, id))
            return tool_finish(&t);
    if (check_options(&p) == 0 && tool_input(&t, argc, argv, &manifest) == 0)
        (void)run(&p, manifest);
    pprun_finish(&p);
    size_t bytes;
    int status = tool_finish(&t);
    /* OpenBLAS's exit handler waits for its threads, which do not end while
     * they are refused memory. */
    if (!pp_cpu_blas_has_room(1, &bytes))
        _exit(status);
    return status;
}
