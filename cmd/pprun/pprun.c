/* SPDX-License-Identifier: MIT */
/* pprun - main(), and the order of a run's steps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels.h"
#include "pprun.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"
#include "version.h"

/* Sets the microbatches of an epoch, so that it ends with a step if
 * --last-batch says so, and the steps of --epochs. */
static int count_steps(struct runner *p)
{
    const struct pprun_options *o = &pprun_of(p)->options;
    uint64_t each = (uint64_t)p->manifest.schedule.n_microbatches *
                    (uint64_t)p->manifest.mesh.dp * (uint64_t)p->job.accumulate;
    uint64_t whole = p->data.n_bins / each, rest = p->data.n_bins % each;
    if (runner_match_data(p))
        return -1;
    if (o->last_batch == PPRUN_LAST_DROP && whole == 0)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "--last-batch drop leaves nothing: the data has %zu "
                       "bins, and a step takes %" PRIu64,
                       p->data.n_bins, each);
    if (o->last_batch == PPRUN_LAST_DROP)
        p->data.epoch.length = whole * each;
    if (o->last_batch == PPRUN_LAST_SHORT)
        p->data.epoch.length = (whole + (rest > 0)) * each;
    if (o->epochs > 0)
        p->job.optim.steps = (int64_t)ceil(
            o->epochs * (double)pp_packed_epoch(&p->data) / (double)each);
    return 0;
}

/* Directories of checkpoints are locked before one is looked for. */
static int prepare(struct runner *p)
{
    return pprun_prepare_save(p) || runner_find_resume(p) ||
                   pprun_spare_checkpoints(p)
               ? -1
               : 0;
}

/* Ends the output of a run that saved what it did. */
static int end(struct runner *p)
{
    return p->job.save ? pprun_lines_finish(p) : 0;
}

static const struct runner_hooks hooks = {
    .output = pprun_lines_open,
    .data = count_steps,
    .prepare = prepare,
    .open = pprun_record_init,
    .signals = pprun_install_handlers,
    .begin = pprun_lines_begin,
    .end = end,
    .close = pprun_record_close,
};

static int verify(struct runner *p, const char *manifest)
{
    pp_blas_set_threads(p->options.blas_threads);
    if (runner_prepare_threads(p, manifest) || pprun_verify_prepare(p) ||
        runner_check_memory(p, NULL, NULL) || runner_check_device(p))
        return -1;
    return pprun_verify(p);
}

static int run_command(struct runner *p, const char *manifest)
{
    if (pprun_of(p)->options.launch >= 0)
        return pprun_print_launch(p, manifest);
    if (pprun_of(p)->options.merge)
        return pprun_merge(p, manifest);
    return p->options.verify ? verify(p, manifest) : runner_run(p, manifest);
}

/* Notes when a resumed run had no steps left, and where it saved what it
 * resumed. */
static void say_nothing_left(struct runner *p)
{
    int64_t steps = p->job.optim.steps;
    struct pp_ckpt_state s;
    struct pp_err ignored = {0};
    char saved[PP_PATH_TEXT] = "";
    if (!p->resume || steps == 0 || pprun_of(p)->start != 0 || p->rank != 0 ||
        p->tool->status != PP_EXIT_OK)
        return;
    if (p->job.save && pp_ckpt_state_read(p->resume, &s, &ignored) == 0 &&
        pp_path(saved, &ignored, "%s/" PP_CKPT_NAME, p->job.save, s.step))
        saved[0] = '\0';
    bool elsewhere = saved[0] && strcmp(saved, p->resume) != 0;
    tool_say(p->tool, TOOL_NOTE,
             "nothing left to do: %s has all of --steps '%" PRId64 "'%s%s",
             p->resume, steps, elsewhere ? "; it is saved as " : "",
             elsewhere ? saved : "");
}

/* Notes which signal stopped the run, and where it continues. */
static void say_stopped(struct runner *p)
{
    char text[256];
    if (p->rank != 0 || pprun_of(p)->stopped <= 0 ||
        p->tool->status != PP_EXIT_STOPPED)
        return;
    snprintf(text, sizeof text,
             "stopped by SIG%s after step %" PRId64 "; checkpoint "
             "%s/" PP_CKPT_NAME,
             sigabbrev_np(pprun_of(p)->stopped), pprun_of(p)->last_step,
             p->job.save, pprun_of(p)->last_step);
    pprun_lines_note(p, text);
}

static void finish(struct pprun *own)
{
    if (own->save_lock > 0)
        close(own->save_lock);
    if (own->stream_lock > 0)
        close(own->stream_lock);
    pprun_lines_free(&own->runner);
    pprun_curves_free(&own->runner);
    free(own->config_text);
    free(own->generator_config);
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pprun",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Trains the model of a stage manifest over its pipeline.",
        .options = pprun_option_table,
        .shared = runner_option_table,
        .everyday = "data weights init objective steps epochs lr lr-schedule "
                    "warmup weight-decay clip device dtype transport memory "
                    "print-memory save save-every resume eval "
                    "verify profile svg output verbose help",
        .facts = PP_RUN_FACTS,
    };
    struct pprun own = {
        .options = {.launch = -1},
        .runner = {.tool = &t,
                   .hooks = &hooks,
                   .options = RUNNER_DEFAULTS,
                   .size = 1,
                   .job = {.accumulate = 1,
                           .optim = {.lr = -1,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .clip = 1},
                           .report = pprun_report,
                           .stream = {.timeout = 10},
                           .stream_asked = pprun_weights_asked,
                           .stream_missed = pprun_weights_missed,
                           .evaluated = pprun_evaluated,
                           .recorded = pprun_recorded,
                           .stop = pprun_stop_requested,
                           .check_files = runner_check_files}},
    };
    struct runner *p = &own.runner;
    const char *manifest;
    p->job.ctx = p;
    pp_settings_init(&p->job.settings);
    if (pprun_read_options(p, argc, argv))
        return tool_finish(&t);
    p->job.record.layers = own.options.profile != NULL;
    if (own.options.cases) {
        if (pprun_objective_cases(p))
            return tool_finish(&t);
    } else if (tool_input(&t, &manifest) == 0 &&
               run_command(p, manifest) == 0) {
        say_nothing_left(p);
        say_stopped(p);
    }
    runner_finish(p);
    finish(&own);
    return runner_exit(&t);
}
