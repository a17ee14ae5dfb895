/* SPDX-License-Identifier: MIT */
/* pprun's command line: the options, their values, and what goes together. */
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "pprun.h"

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
    OPT_JSON,
    OPT_END
};
_Static_assert(OPT_END - TOOL_LONG <= 64, "a bit for each");

/* Steps and seeds; far from overflow when they are multiplied. */
#define LARGEST 0x1p52
/* The largest decay rate of a moment. */
#define BELOW_1 (1 - 1e-12)

const struct tool_option pprun_option_table[] = {
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
    int i = tool_word(t, s->name, optarg, s->words);
    if (i >= 0)
        *to = i;
    return i < 0 ? -1 : 0;
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

static bool given(const struct pprun *p, int id)
{
    return p->options.given >> (id - TOOL_LONG) & 1;
}

static const char *name_of(int id)
{
    const struct tool_option *o = pprun_option_table;
    while (o->id != id)
        o++;
    return o->name;
}

/* What would go unheard without something else. --plan is for any steps. */
static const struct need {
    int id, what;
    bool verifies; /* --verify hears it too, or ignores it as it says */
} needs[] = {
    {OPT_SHRINK, OPT_VERIFY, true},     {OPT_JSON, OPT_VERIFY, true},
    {OPT_SAVE_EVERY, OPT_SAVE, false},  {OPT_KEEP, OPT_SAVE, false},
    {OPT_EVAL_EVERY, OPT_EVAL, false},  {OPT_TRACE_STEPS, OPT_TRACE, false},
    {OPT_SAVE, OPT_STEPS, false},       {OPT_EVAL_EVERY, OPT_STEPS, false},
    {OPT_DUMP_GRADS, OPT_STEPS, false}, {OPT_TRACE, OPT_STEPS, false},
    {OPT_PROFILE, OPT_STEPS, false},    {OPT_TIME_PRODUCTS, OPT_STEPS, false},
    {OPT_ACCUMULATE, OPT_STEPS, true},  {OPT_LR, OPT_STEPS, true},
    {OPT_OPTIMIZER, OPT_STEPS, true},   {OPT_BETAS, OPT_STEPS, true},
    {OPT_EPS, OPT_STEPS, true},         {OPT_DECAY, OPT_STEPS, true},
    {OPT_CLIP, OPT_STEPS, true},        {OPT_WARMUP, OPT_STEPS, true},
    {OPT_LR_SCHEDULE, OPT_STEPS, true}, {OPT_MIN_LR, OPT_STEPS, true},
};

static int check_needs(struct pprun *p)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const struct need *n = &needs[i];
        bool plans = p->options.plan && n->what == OPT_STEPS;
        bool verifies = p->options.verify && n->verifies;
        if (given(p, n->id) && !given(p, n->what) && !plans && !verifies)
            return tool_usage(p->tool, "--%s needs --%s", name_of(n->id),
                              name_of(n->what));
    }
    return 0;
}

static int check_verify(struct pprun *p)
{
    static const int own[] = {OPT_STEPS,  OPT_SAVE,   OPT_DUMP_GRADS,
                              OPT_TRACE,  OPT_PLAN,   OPT_LOGPROBS,
                              OPT_RESUME, OPT_PROFILE};
    const struct pprun_options *o = &p->options;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (given(p, own[i]))
            return tool_usage(p->tool,
                              "--verify makes its own steps and does not go "
                              "with --%s",
                              name_of(own[i]));
    if (o->dtype == PPRUN_BF16)
        return tool_usage(p->tool, "--verify works in fp32 and fp64: in bf16 "
                                   "rounding hides what a fault does");
    if (o->shrink && o->weights)
        return tool_usage(p->tool, "--shrink makes its own weights and does "
                                   "not go with --weights");
    return 0;
}

/* What the GPU or another optimizer would not hear. */
static int check_values(struct pprun *p)
{
    static const int host[] = {OPT_TIME_PRODUCTS, OPT_BLAS_THREADS};
    static const int adamw[] = {OPT_BETAS, OPT_EPS};
    const struct pp_optim *optim = &p->job.optim;
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        if (p->options.device == PPRUN_CUDA && given(p, host[i]))
            return tool_usage(p->tool, "--%s works on the CPU alone",
                              name_of(host[i]));
    for (size_t i = 0; i < sizeof adamw / sizeof *adamw; i++)
        if (optim->optimizer != PP_ADAMW_OPTIMIZER && given(p, adamw[i]))
            return tool_usage(p->tool, "--%s needs --optimizer adamw",
                              name_of(adamw[i]));
    if (optim->schedule != PP_LR_COSINE && given(p, OPT_MIN_LR))
        return tool_usage(p->tool, "--min-lr needs --lr-schedule cosine");
    return 0;
}

/* What is scored has a file of its own, and there are no lines beside. */
static int check_outputs(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    if (o->logprobs && strcmp(o->logprobs, "-") && p->tool->output)
        return tool_usage(p->tool,
                          "--logprobs: '%s' is where the result goes; "
                          "--output goes with --logprobs -",
                          o->logprobs);
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
    if (o->verify && check_verify(p))
        return -1;
    if (check_needs(p) || check_values(p) || check_outputs(p))
        return -1;
    if (!trains && !o->eval && !o->logprobs && !o->plan && !o->verify)
        return tool_usage(t, "nothing to do: give --steps, --eval, --logprobs, "
                             "--plan or --verify");
    if (o->logprobs && (trains || o->eval))
        return tool_usage(t, "--logprobs scores the data and does not go with "
                             "--steps or --eval");
    return 0;
}

int pprun_read_options(struct pprun *p, int argc, char **argv)
{
    for (int id; (id = tool_option(p->tool, argc, argv)) != TOOL_END;) {
        if (id == TOOL_STOP || set_option(p, id))
            return -1;
        p->options.given |= (uint64_t)1 << (id - TOOL_LONG);
    }
    return check_options(p);
}
