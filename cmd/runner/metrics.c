/* SPDX-License-Identifier: MIT */
/* metrics - the metrics of objectives as JSON, and the line of an
 * evaluation. */
#include <stdio.h>

#include "base/json_writer.h"
#include "runner/runner.h"

void runner_write_metrics(struct pp_json_writer *w,
                          const struct pp_objective *o, unsigned columns,
                          const char *prefix, const double *metrics)
{
    char name[64];
    for (size_t k = 0; k < o->n_metrics; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, o->metrics[k].name);
        if (!(o->metrics[k].needs & ~columns))
            pp_json_real(w, name, metrics[k]);
    }
}

void runner_write_val_metrics(const struct runner *p,
                              const struct pp_step_report *r,
                              struct pp_json_writer *w)
{
    if (r->val_metrics)
        runner_write_metrics(w, pp_objectives[p->job.settings.objective.number],
                             runner_columns(p, &p->eval), "val_",
                             r->val_metrics);
}

void runner_write_evaluation(const struct runner *p,
                             const struct pp_step_report *r, FILE *f)
{
    struct pp_json_writer w = pp_json_line(f);
    if (p->job.optim.steps > 0)
        pp_json_int(&w, "step", r->step);
    pp_json_real(&w, "val_loss", r->val_loss);
    if (p->model.generator)
        pp_json_real(&w, "val_generator_loss", r->val_generator_loss);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    runner_write_val_metrics(p, r, &w);
    pp_json_finish(&w);
}
