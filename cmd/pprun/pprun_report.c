/* SPDX-License-Identifier: MIT */
/* pprun_report - the output of a run: a JSON line for every step, and
 * log-probabilities. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "pprun.h"
#include "run/execute/batch.h"

static void write_step(const struct pprun *p, const struct pp_step_report *r,
                       FILE *f)
{
    struct pp_json_writer w = {.f = f};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_int(&w, "step", r->step);
    pp_json_real(&w, "loss", r->loss);
    pp_json_real(&w, "grad_norm", r->grad_norm);
    pp_json_real(&w, "lr", r->lr);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    pp_json_uint(&w, "tokens", r->tokens);
    pp_json_real(&w, "seconds", r->seconds);
    pp_json_real(&w, "tokens_per_s", (double)r->tokens / r->seconds);
    if (r->bubble >= 0)
        pp_json_real(&w, "bubble", r->bubble);
    if (r->products >= 0)
        pp_json_real(&w, "products", r->products);
    if (r->has_val_loss)
        pp_json_real(&w, "val_loss", r->val_loss);
    if (r->metrics)
        pprun_write_metrics(&w, pp_objectives[p->objective.number],
                            pprun_columns(&p->data), r->metrics);
    pp_json_end(&w);
    putc('\n', f);
}

int pprun_report(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    struct pprun *p = ctx;
    if (p->start == 0) {
        p->start = pp_clock() - r->seconds;
        p->first_step = r->step - 1;
    }
    if (p->tool->out == stdout)
        tool_erase(p->tool);
    p->last_step = r->step;
    p->stopped = r->stop;
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    if (f)
        write_step(p, r, f);
    int rc = !f || fclose(f) ? pp_fail(err, PP_EXIT_SYSTEM, "out of memory")
             : pprun_lines_shown(p)
                 ? pprun_lines_write(p, line, n, r->stop, err)
                 : 0;
    free(line);
    pprun_curves_add(p, r);
    if (rc || r->stop) /* standard error may have the same reader */
        return rc;
    pprun_show_progress(p, r);
    if (r->step < p->job.optim.steps)
        return 0;
    const struct pp_graph *g = p->job.schedule->graph;
    const struct pp_layout layout = pp_job_layout(&p->job);
    for (int k = 0; k < pp_layout_ranks(&layout); k++)
        tool_say(p->tool, TOOL_DETAIL, "rank %d: at most %d %s were alive", k,
                 r->peak_slots[k], pprun_slots(g));
    tool_say(p->tool, TOOL_DETAIL,
             "a step sends %" PRIu64 " messages of %" PRIu64 " bytes in all",
             r->messages, r->message_bytes);
    return 0;
}

int pprun_evaluated(void *ctx, double val_loss, struct pp_err *err)
{
    struct pprun *p = ctx;
    FILE *f = p->tool->out;
    struct pp_json_writer w = {.f = f};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_real(&w, "val_loss", val_loss);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    pp_json_end(&w);
    putc('\n', f);
    if (fflush(f) == 0)
        return 0;
    return pp_fail_errno(err, "writing %s failed", pprun_output_name(p));
}

int pprun_logprobs_init(struct pprun *p)
{
    size_t n = p->data.n_inputs ? p->data.n_inputs : 1;
    const char *path = p->options.logprobs;
    if (p->rank == 0 && strcmp(path, "-") &&
        tool_open(p->tool, path, &p->scores))
        return -1;
    p->logps = calloc(n, sizeof *p->logps);
    p->logps_length = calloc(n, sizeof *p->logps_length);
    if (!p->logps || !p->logps_length)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    /* A long input may be in several pieces. */
    for (size_t b = 0; b < p->data.n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(&p->data, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            uint32_t *length = &p->logps_length[bin.source[i]];
            uint32_t end = bin.start[i] + (uint32_t)(bin.cu_seqlens[i + 1] -
                                                     bin.cu_seqlens[i]);
            *length = end > *length ? end : *length;
        }
    }
    for (size_t s = 0; s < p->data.n_inputs; s++) {
        if (!p->logps_length[s])
            continue;
        p->logps[s] = calloc(p->logps_length[s], sizeof **p->logps);
        if (!p->logps[s])
            return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    }
    return 0;
}

/* Stores the scores of a microbatch. Runs on every rank that has the head or a
 * copy of it, for its own microbatches. */
void pprun_logps(void *ctx, size_t b, const struct pp_microbatch *mb)
{
    struct pprun *p = ctx;
    struct pp_bin bin;
    if (b == PP_NO_BIN)
        return;
    pp_packed_bin(&p->data, b, &bin);
    for (size_t i = 0, k = 0; k < mb->n_scored; k++) {
        int32_t row = mb->scored_rows[k];
        if (k == mb->n_labelled)
            i = 0;
        while (row >= mb->cu_seqlens_padded[i + 1])
            i++;
        size_t of = (size_t)mb->sequence[i];
        /* The row of position t predicts position t + 1. */
        p->logps[bin.source[of]][bin.start[of] + (uint32_t)mb->positions[row] +
                                 1] = mb->logps[k];
    }
}

/* Checks all scores before the first line is written. */
static int check_scores(struct pprun *p)
{
    for (size_t s = 0; s < p->data.n_inputs; s++)
        for (uint32_t i = 0; p->logps[s] && i < p->logps_length[s]; i++)
            if (!isfinite(p->logps[s][i]))
                return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                               "sequence %zu: the log-probability of token "
                               "%" PRIu32 " is %g",
                               s, i, fabs(p->logps[s][i]));
    return 0;
}

int pprun_logprobs_write(struct pprun *p)
{
    if (check_scores(p))
        return -1;
    FILE *f = p->scores.f ? p->scores.f : p->tool->out;
    for (size_t s = 0; s < p->data.n_inputs; s++) {
        if (!p->logps[s])
            continue;
        struct pp_json_writer w = {.f = f};
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_uint(&w, "sequence", s);
        if (p->job.temperature > 0)
            pp_json_real(&w, "temperature", p->job.temperature);
        pp_json_array(&w, "logprobs", PP_JSON_INLINE);
        for (uint32_t i = 0; i < p->logps_length[s]; i++)
            pp_json_real(&w, NULL, p->logps[s][i]);
        pp_json_end(&w);
        pp_json_end(&w);
        putc('\n', f);
    }
    return p->scores.f ? tool_close(p->tool, &p->scores) : 0;
}
