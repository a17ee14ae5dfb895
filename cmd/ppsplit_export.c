/* SPDX-License-Identifier: MIT */
/* --export: the plan in the words of another system. */
#include "plan/split_megatron.h"
#include "ppsplit.h"

const char *const split_export_names[] = {
    "megatron", "torchtitan", "torchtitan-output", "deepspeed", "fqns", NULL};

/* A layout string has decoder layers, and says nothing of norm and ranks. */
static int print_layout(const struct split_job *j, FILE *f, struct pp_err *err)
{
    struct pp_arena a = {0};
    size_t n = (size_t)j->graph.n_stages, layers = j->model.n_layers;
    if (j->bounds[n - 1] > layers + 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: a layout cannot part norm and head, as this "
                       "plan does");
    if (j->n_chunks > 1 && j->placement != PP_PLACEMENT_LOOP)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: Megatron places stages in a loop, not in a "
                       "V");
    size_t *counts = pp_arena_alloc(&a, n, sizeof *counts);
    const char *layout = NULL;
    if (counts) {
        for (size_t s = 0; s < n; s++)
            counts[s] = j->bounds[s + 1] - j->bounds[s];
        counts[0] -= 1;     /* embedding */
        counts[n - 1] -= 2; /* norm, head */
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
            if (j->export == SPLIT_EXPORT_FQNS)
                pp_unit_fqn(u, name);
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
