/* SPDX-License-Identifier: MIT */
/* options - the options of ppscore, and checks of their combinations.
 */
#include <string.h>

#include "ppscore.h"

/* Seeds stay far from overflow when they are multiplied. */
#define LARGEST 0x1p52
#define AT(member) TOOL_AT(struct ppscore, member)
#define SCORES "logprobs|top-k|entropy"

const struct tool_option ppscore_option_table[] = {
    {.group = "Task"},
    {0, "logprobs", NULL, "write the log-probability of every token",
     AT(logprobs), .excludes = "eval generate"},
    {0, "top-k", "K", "write the K largest logits of each token too", AT(top_k),
     1, PP_MOST_TOP_K, .excludes = "eval generate"},
    {0, "entropy", NULL, "write the entropy at each token too",
     AT(runner.job.entropy), .excludes = "eval generate"},
    {0, "generate", "N", "continue every sequence of the data by N tokens",
     AT(generate), 1, 1 << 20, .excludes = "eval"},
    {0, "sample", "SEED", "with --generate: draw samples, not the best token",
     AT(sample), 0, LARGEST, .needs = "generate"},
    {0, "stop-id", "ID", "with --generate: a sequence ends with this token",
     AT(stop_id), 0, INT32_MAX, .needs = "generate"},
    {0, "eval", "DIR", "the loss on this packed directory",
     AT(runner.options.eval)},

    {.group = "Model and data"},
    {0, "data", "DIR", "the packed directory to read", AT(runner.options.data)},
    {0, "weights", "PATH", "take these safetensors",
     AT(runner.options.weights)},
    {0, "adapter", "DIR", "take this adapter, for a plan with --lora",
     AT(runner.options.adapter), .excludes = "init"},
    {0, "init", "SEED", "take random weights", AT(runner.options.seed), 0,
     LARGEST, .excludes = "weights"},
    {0, "resume", "DIR", "take the newest checkpoint, if any",
     AT(runner.options.resume)},
    {0, "fall-back", NULL, "if that is damaged, take the one before it",
     AT(runner.options.fall_back), .needs = "resume"},
    {0, "objective", "NAME,K=X", "with --eval, as of pprun (sft)",
     .parse = runner_parse_settings, .words = pp_objective_names,
     .needs = "eval"},
    {0, "temperature", "X", "divide logits by this (1)",
     AT(runner.job.temperature), 1e-3, 1e3},
    {0, "record-routing", "FILE", "write which experts each token got",
     AT(runner.options.record_routing), .needs = SCORES},
    {0, "replay-routing", "FILE", "give each token the experts of this file",
     AT(runner.options.replay_routing), .needs = SCORES},
    {0},
};

static int check_task(struct ppscore *s)
{
    struct runner *p = &s->runner;
    const char *routes = p->options.record_routing, *output = p->tool->output;
    if (!p->job.score && !p->options.eval)
        return tool_usage(p->tool,
                          "nothing to do: give --logprobs, --top-k, --entropy, "
                          "--generate or --eval");
    if (routes && output && !strcmp(routes, output))
        return tool_usage(p->tool,
                          "--record-routing and --output: both write to '%s'; "
                          "give two places",
                          output);
    return 0;
}

int ppscore_read_options(struct ppscore *s, int argc, char **argv)
{
    struct pp_job *j = &s->runner.job;
    struct tool *t = s->runner.tool;
    t->base = s;
    if (tool_read_options(t, argc, argv) ||
        runner_check_transport(&s->runner) || tool_check_options(t) ||
        runner_take_settings(&s->runner))
        return -1;
    j->top_k = (size_t)s->top_k;
    j->generate.n = (size_t)s->generate;
    j->score = s->logprobs || s->top_k || j->entropy || s->generate;
    return check_task(s);
}
