/* SPDX-License-Identifier: MIT */
/* --export: the plan in the words of another system. */
#include "split/split_megatron.h"
#include "ppsplit.h"

const char *const split_export_names[] = {
    "megatron", "torchtitan", "torchtitan-output", "deepspeed", "fqns", NULL};

/* A layout string has decoder layers, and says nothing of norm and ranks. */
/* With multi-token prediction, norm and last decoder layer go together, and m
 * is a symbol of its own. Written out: such layouts are of few stages. */
static int print_mtp_layout(const struct split_job *j, FILE *f,
                            struct pp_err *err)
{
    size_t n = (size_t)j->graph.n_stages, norm = j->model.n_layers + 1;
    for (size_t s = 1; s < n; s++)
        if (j->bounds[s] == norm)
            return pp_fail(err, PP_EXIT_INPUT,
                           "--export: a layout cannot part the last layer and "
                           "the norm, as this plan does");
    for (size_t s = 0; s < n; s++) {
        for (size_t i = j->bounds[s]; i < j->bounds[s + 1]; i++)
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

static int print_layout(const struct split_job *j, FILE *f, struct pp_err *err)
{
    struct pp_arena a = {0};
    size_t n = (size_t)j->graph.n_stages, layers = j->model.n_layers;
    size_t first = pp_model_n_first(&j->model);
    if (j->n_chunks > 1 && j->placement != PP_PLACEMENT_LOOP)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: Megatron places stages in a loop, not in a "
                       "V");
    if (j->model.n_mtp > 0)
        return print_mtp_layout(j, f, err);
    if (j->bounds[n - 1] > first + layers || j->bounds[1] < first)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: a layout cannot part %s, as this plan does",
                       j->bounds[1] < first ? "what comes before the layers"
                       : j->model.table     ? "what comes behind the layers"
                                            : "norm and head");
    size_t *counts = pp_arena_alloc(&a, n, sizeof *counts);
    const char *layout = NULL;
    if (counts) {
        for (size_t s = 0; s < n; s++)
            counts[s] = j->bounds[s + 1] - j->bounds[s];
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

/* One stage on a line. */
static void print_names(const struct split_job *j, FILE *f)
{
    char name[PP_FQN_TEXT];
    int n = j->graph.n_stages;
    fputs("[\n", f);
    for (int s = 0; s < n; s++) {
        fputs("  [", f);
        for (size_t i = j->bounds[s]; i < j->bounds[s + 1]; i++) {
            struct pp_unit_id u = pp_model_unit(&j->model, i);
            if (j->export == SPLIT_EXPORT_FQNS || j->model.table)
                pp_model_fqn(&j->model, u, name);
            else
                pp_torchtitan_fqn(u,
                                  j->export == SPLIT_EXPORT_TORCHTITAN_OUTPUT
                                      ? PP_TORCHTITAN_OUTPUT
                                      : PP_TORCHTITAN_LM_HEAD,
                                  name);
            fprintf(f, "%s\"%s\"", i > j->bounds[s] ? ", " : "", name);
        }
        fputs(s < n - 1 ? "],\n" : "]\n", f);
    }
    fputs("]\n", f);
}

static void print_bounds(const struct split_job *j, FILE *f)
{
    for (int s = 0; s <= j->graph.n_stages; s++)
        fprintf(f, "%s%zu", s ? ", " : "[", j->bounds[s]);
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
