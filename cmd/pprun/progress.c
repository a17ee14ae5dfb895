/* SPDX-License-Identifier: MIT */
/* progress - the line on a terminal: how far the run is, its loss and its
 * speed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "pprun.h"

/* Adds a loss to the curve. If the curve is full, each of its columns becomes
 * the mean of two. */
static void add_loss(struct pprun_curve *c, double loss)
{
    if (!isfinite(loss))
        return;
    if (c->n == PPRUN_CURVE && c->rest == 0) {
        for (int i = 0; i < PPRUN_CURVE / 2; i++)
            c->sum[i] = c->sum[2 * i] + c->sum[2 * i + 1];
        c->n = PPRUN_CURVE / 2;
        c->each *= 2;
    }
    if (c->rest == 0) {
        c->sum[c->n++] = 0;
        c->rest = c->each = c->each ? c->each : 1;
    }
    c->sum[c->n - 1] += loss;
    c->rest--;
}

/* Returns whether the terminal shows UTF-8, by the first variable that is set.
 */
static bool has_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *locale = getenv(names[i]);
        if (locale && *locale)
            return strstr(locale, "UTF-8") || strstr(locale, "utf8");
    }
    return false;
}

/* Writes the curve as columns of eight heights, from its least to its largest
 * loss. */
static void draw(const struct pprun_curve *c, char text[4 * PPRUN_CURVE + 3])
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄",
                                         "▅", "▆", "▇", "█"};
    double mean[PPRUN_CURVE], least = INFINITY, most = -INFINITY;
    for (int i = 0; i < c->n; i++) {
        int64_t n = i + 1 < c->n ? c->each : c->each - c->rest;
        mean[i] = c->sum[i] / (double)n;
        least = fmin(least, mean[i]);
        most = fmax(most, mean[i]);
    }
    text[0] = '\0';
    if (c->n < 2 || least >= most || !has_blocks())
        return;
    strcat(text, "  ");
    for (int i = 0; i < c->n; i++)
        strcat(text, blocks[(int)(7 * (mean[i] - least) / (most - least))]);
}

static void print_time(char text[32], double seconds)
{
    if (seconds < 3600)
        snprintf(text, 32, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, 32, "%.0f h %02d", floor(seconds / 3600),
                 (int)fmod(seconds / 60, 60));
}

bool pprun_lines_shown(const struct runner *p)
{
    return p->tool->quiet || p->tool->out != stdout || !isatty(STDOUT_FILENO) ||
           !isatty(STDERR_FILENO);
}

void pprun_show_progress(struct runner *p, const struct pp_step_report *r)
{
    struct pprun *own = pprun_of(p);
    int64_t done = r->step - own->first_step,
            left = p->job.optim.steps - r->step;
    double each = (pp_clock() - own->start) / (double)(done > 0 ? done : 1);
    int width = 10, full = (int)(width * r->step / p->job.optim.steps);
    char bubble[32] = "", val[32] = "", time[32];
    char curve[4 * PPRUN_CURVE + 3];
    add_loss(&own->curve, r->loss);
    draw(&own->curve, curve);
    if (r->bubble >= 0)
        snprintf(bubble, sizeof bubble, "  bubble %.0f%%", 100 * r->bubble);
    if (r->has_val_loss)
        snprintf(val, sizeof val, "  val_loss %.4f", r->val_loss);
    print_time(time, left > 0 ? each * (double)left : pp_clock() - own->start);
    /* A line that stays is shown whenever the last one was. */
    bool stays = left == 0 || r->has_val_loss;
    if (stays)
        p->tool->progress_time = 0;
    /* The most important parts come first: narrow terminals cut the rest. */
    tool_progress(p->tool,
                  "[%.*s%.*s] %" PRId64 "/%" PRId64 "  %s %s  loss %.4f%s"
                  "  norm %.3g  %.0f tok/s%s%s",
                  full, "##########", width - full, "..........", r->step,
                  p->job.optim.steps, time, left > 0 ? "left" : "in all",
                  r->loss, val, r->grad_norm, (double)r->tokens / r->seconds,
                  curve, bubble);
    if (stays)
        tool_keep(p->tool);
}
