/* SPDX-License-Identifier: MIT */
/* report - the output of a run: a JSON line for every step. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "pprun.h"
#include "run/execute/batch.h"

static void write_step(const struct runner *p, const struct pp_step_report *r,
                       FILE *f)
{
    if (r->metadata)
        pprun_write_metadata(p, r, f);
    struct pp_json_writer w = pp_json_line(f);
    pp_json_int(&w, "step", r->step);
    pp_json_real(&w, "loss", r->loss);
    pp_json_real(&w, "grad_norm", r->grad_norm);
    if (p->job.n_named) {
        pp_json_object(&w, "grad_norms", PP_JSON_INLINE);
        for (size_t i = 0; i < p->job.n_named; i++)
            pp_json_real(&w, p->manifest.components[i].name, r->norms[i]);
        pp_json_end(&w);
    }
    pp_json_real(&w, "lr", r->lr);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    pp_json_uint(&w, "tokens", r->tokens);
    pp_json_real(&w, "seconds", r->seconds);
    pp_json_real(&w, "tokens_per_s", (double)r->tokens / r->seconds);
    if (p->job.nccl_sums)
        pp_json_string(&w, "sums", "nccl: bits may differ");
    if (r->bubble >= 0)
        pp_json_real(&w, "bubble", r->bubble);
    else
        pp_json_uint(&w, "host_waits", r->waits);
    if (r->products >= 0)
        pp_json_real(&w, "products", r->products);
    if (r->has_val_loss)
        pp_json_real(&w, "val_loss", r->val_loss);
    if (pp_router_has_losses(&p->job.settings.router)) {
        pp_json_real(&w, "aux_loss", r->aux_loss);
        pp_json_real(&w, "z_loss", r->z_loss);
    }
    if (pp_job_counts_routes(&p->job))
        pp_json_real(&w, "expert_load", r->expert_load);
    if (p->manifest.mesh.expert_capacity > 0)
        pp_json_uint(&w, "dropped", (uint64_t)r->dropped);
    if (p->manifest.mesh.ep > 1)
        pp_json_uint(&w, "expert_rounds", (uint64_t)r->expert_rounds);
    if (p->model.n_mtp)
        pp_json_real(&w, "mtp_loss", r->mtp_loss);
    if (p->model.generator)
        pp_json_real(&w, "generator_loss", r->generator_loss);
    if (p->model.generator && r->has_val_loss)
        pp_json_real(&w, "val_generator_loss", r->val_generator_loss);
    if (r->metrics)
        runner_write_metrics(&w,
                             pp_objectives[p->job.settings.objective.number],
                             runner_columns(p, &p->data), "", r->metrics);
    runner_write_val_metrics(p, r, &w);
    pp_json_finish(&w);
}

/* Says once that a step had nothing to learn from. */
static void note_unscored(struct runner *p, const struct pp_step_report *r)
{
    char text[160];
    if (pprun_of(p)->unscored || !isnan(r->loss))
        return;
    pprun_of(p)->unscored = true;
    snprintf(text, sizeof text,
             "step %" PRId64 " has no scored token, so its loss is null; later "
             "ones like it are not named",
             r->step);
    pprun_lines_note(p, text);
}

/* Makes the lines of a report, and gives them to the output. */
static int put(struct runner *p, const struct pp_step_report *r,
               void (*write)(const struct runner *,
                             const struct pp_step_report *, FILE *),
               bool stop, struct pp_err *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f)
        write(p, r, f);
    int rc = !f || fclose(f) ? pp_fail(err, PP_EXIT_SYSTEM, "out of memory")
             : pprun_lines_shown(p) ? pprun_lines_write(p, text, n, stop, err)
                                    : 0;
    free(text);
    return rc;
}

int pprun_report(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    struct runner *p = ctx;
    if (pprun_of(p)->start == 0) {
        pprun_of(p)->start = pp_clock() - r->seconds;
        pprun_of(p)->first_step = r->step - 1;
    }
    if (p->tool->out == stdout)
        tool_erase(p->tool);
    pprun_of(p)->last_step = r->step;
    pprun_of(p)->stopped = r->stop;
    int rc = put(p, r, write_step, r->stop, err);
    if (rc == 0 && r->metadata)
        rc = pprun_check_metadata(p, r, err);
    pprun_curves_add(p, r);
    note_unscored(p, r);
    if (rc || r->stop) /* standard error may have the same reader */
        return rc;
    pprun_show_progress(p, r);
    if (r->step < p->job.optim.steps)
        return 0;
    const struct pp_graph *g = p->job.schedule->graph;
    const struct pp_layout layout = pp_job_layout(&p->job);
    for (int k = 0; k < pp_layout_ranks(&layout); k++)
        tool_say(p->tool, TOOL_DETAIL, "rank %d: at most %d %s were alive", k,
                 r->peak_slots[k], runner_slots(g));
    tool_say(p->tool, TOOL_DETAIL,
             "a step sends %" PRIu64 " messages of %" PRIu64 " bytes in all",
             r->messages, r->message_bytes);
    return 0;
}

void pprun_weights_missed(void *ctx, int64_t step, const char *why)
{
    char text[320];
    snprintf(text, sizeof text,
             "the weights of step %" PRId64 " were not taken: %s", step, why);
    pprun_lines_note(ctx, text);
}

int pprun_evaluated(void *ctx, const struct pp_step_report *r,
                    struct pp_err *err)
{
    return put(ctx, r, runner_write_evaluation, false, err);
}
