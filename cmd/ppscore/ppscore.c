/* SPDX-License-Identifier: MIT */
/* ppscore - main(), and what scores, generation and evaluation add to a run. */
#include <stdio.h>
#include <unistd.h>

#include "kernels.h"
#include "ppscore.h"
#include "version.h"

static int open_output(struct runner *p)
{
    return tool_output(p->tool) ? 0 : -1;
}

static int take_data(struct runner *p)
{
    return p->job.generate.n ? ppscore_generate_prepare(p) : 0;
}

static int open_scores(struct runner *p)
{
    if (p->rank != 0 || !p->job.score)
        return 0;
    return p->job.generate.n ? ppscore_generate_open(p) : ppscore_lines_open(p);
}

/* Nothing is lost if a signal ends the run. */
static void handle_signals(const struct runner *p)
{
    if (p->options.transport != RUNNER_THREADS)
        runner_end_soon();
}

static int do_nothing(struct runner *p)
{
    (void)p;
    return 0;
}

static int write_scores(struct runner *p)
{
    if (!p->job.score)
        return 0;
    return p->job.generate.n ? ppscore_generate_write(p)
                             : ppscore_lines_write(p);
}

static const struct runner_hooks hooks = {
    .output = open_output,
    .data = take_data,
    .prepare = runner_find_resume,
    .open = open_scores,
    .signals = handle_signals,
    .begin = do_nothing,
    .end = write_scores,
    .close = do_nothing,
};

static int evaluated(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err)
{
    struct runner *p = ctx;
    FILE *f = p->tool->out;
    runner_write_evaluation(p, r, f);
    return fflush(f) == 0 ? 0
                          : pp_fail_errno(err, "writing %s failed",
                                          f == stdout ? "standard output"
                                                      : p->tool->output);
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "ppscore",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Reads out of the model of a stage manifest: scores, text, "
                   "a loss.",
        .options = ppscore_option_table,
        .shared = runner_option_table,
        .everyday = "logprobs top-k entropy generate sample stop-id eval data "
                    "weights resume temperature device dtype transport memory "
                    "print-memory output verbose help",
        .facts = PP_RUN_FACTS,
    };
    struct ppscore s = {
        .runner = {.tool = &t,
                   .hooks = &hooks,
                   .options = RUNNER_DEFAULTS,
                   .size = 1,
                   .job = {.accumulate = 1,
                           .scored = ppscore_scored,
                           .evaluated = evaluated,
                           .check_files = runner_check_files}},
        .sample = -1,
        .stop_id = -1,
    };
    const char *manifest;
    s.runner.job.ctx = &s.runner;
    pp_settings_init(&s.runner.job.settings);
    if (ppscore_read_options(&s, argc, argv))
        return tool_finish(&t);
    /* An error is in t.err. */
    (void)(tool_input(&t, &manifest) || runner_run(&s.runner, manifest));
    ppscore_lines_close(&s);
    ppscore_generate_free(&s);
    runner_finish(&s.runner);
    return runner_exit(&t);
}
