/* SPDX-License-Identifier: MIT */
/* ppsplit_export - --export: the plan in the form of another system. */
#include "base/json_writer.h"
#include "split/split_megatron.h"
#include "ppsplit.h"

const char *const split_export_names[] = {
    "megatron", "torchtitan", "torchtitan-output", "deepspeed", "fqns", NULL};

/* Prints a layout with multi-token prediction: m is a symbol of its own, and
 * the norm goes with the last decoder layer. Symbols are not counted, because
 * such layouts have few stages. */
static int print_mtp_layout(const struct split_job *j, FILE *f,
                            struct pp_err *err)
{
    size_t n = j->n_stages, norm = j->model.n_layers + 1;
    for (size_t s = 1; s < n; s++)
        if (j->plan.bounds[s] == norm)
            return pp_fail(err, PP_EXIT_INPUT,
                           "--export: a layout cannot separate the last layer "
                           "from the norm, as this plan does");
    for (size_t s = 0; s < n; s++) {
        for (size_t i = j->plan.bounds[s]; i < j->plan.bounds[s + 1]; i++)
            if (i != norm)
                fputc(i == 0                ? 'E'
                      : i < norm            ? 't'
                      : i == j->n_units - 1 ? 'L'
                                            : 'm',
                      f);
        fputc(s + 1 < n ? '|' : '\n', f);
    }
    return 0;
}

/* Prints a layout: it counts decoder layers, and does not name the norm. */
static int print_layout(const struct split_job *j, FILE *f, struct pp_err *err)
{
    struct pp_arena a = {0};
    size_t n = j->n_stages, layers = j->model.n_layers;
    size_t first = pp_model_n_first(&j->model);
    if (j->n_chunks > 1 && j->placement != PP_PLACEMENT_LOOP)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: Megatron places stages in a loop, not in a "
                       "V");
    if (j->model.n_mtp > 0)
        return print_mtp_layout(j, f, err);
    if (j->plan.bounds[n - 1] > first + layers || j->plan.bounds[1] < first)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "--export: a layout cannot separate %s, as this plan does",
            j->plan.bounds[1] < first ? "the units before the layers"
            : j->model.table          ? "the units after the layers"
                                      : "norm and head");
    size_t *counts = pp_arena_alloc(&a, n, sizeof *counts);
    const char *layout = NULL;
    if (counts) {
        for (size_t s = 0; s < n; s++)
            counts[s] = j->plan.bounds[s + 1] - j->plan.bounds[s];
        counts[0] -= first;                           /* embedding */
        counts[n - 1] -= j->n_units - first - layers; /* norm, head */
        layout = pp_layout_format(&a, counts, n);
    }
    if (layout)
        fprintf(f, "%s\n", layout);
    pp_arena_finish(&a);
    if (!layout)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

/* Prints one stage on a line. */
static void print_names(const struct split_job *j, FILE *f)
{
    char name[PP_FQN_TEXT];
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_array(&w, NULL, PP_JSON_BROKEN);
    for (int s = 0; s < j->plan.graph.n_stages; s++) {
        pp_json_array(&w, NULL, PP_JSON_INLINE);
        for (size_t i = j->plan.bounds[s]; i < j->plan.bounds[s + 1]; i++) {
            struct pp_unit_id u = pp_model_unit(&j->model, i);
            if (j->export == SPLIT_EXPORT_FQNS || j->model.table)
                pp_model_fqn(&j->model, u, name);
            else
                pp_torchtitan_fqn(u,
                                  j->export == SPLIT_EXPORT_TORCHTITAN_OUTPUT
                                      ? PP_TORCHTITAN_OUTPUT
                                      : PP_TORCHTITAN_LM_HEAD,
                                  name);
            pp_json_string(&w, NULL, name);
        }
        pp_json_end(&w);
    }
    pp_json_end(&w);
    putc('\n', f);
}

static void print_bounds(const struct split_job *j, FILE *f)
{
    for (int s = 0; s <= j->plan.graph.n_stages; s++)
        fprintf(f, "%s%zu", s ? ", " : "[", j->plan.bounds[s]);
    fputs("]\n", f);
}

int split_print_export(const struct split_job *j, FILE *f, struct pp_err *err)
{
    if (j->export == SPLIT_EXPORT_MEGATRON) {
        if (print_layout(j, f, err))
            return -1;
    } else if (j->export == SPLIT_EXPORT_DEEPSPEED) {
        print_bounds(j, f);
    } else {
        print_names(j, f);
    }
    if (ferror(f))
        return pp_fail_errno(err, "cannot write the plan");
    return 0;
}
