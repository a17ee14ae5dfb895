/* SPDX-License-Identifier: MIT */
/* objective - --objective-cases: computes objectives on numbers from a
 * file, with the functions that training uses. */
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "manifest/objective_case.h"
#include "pprun.h"
#include "run/objectives/objective.h"

/* A case, and its scored tokens one after the other. */
struct scored_case {
    struct pp_objective_case c;
    struct pp_settings settings;
    struct pp_objective_rows rows;
    struct pp_objective_counts step;
    uint32_t *at; /* (scored) their places among all tokens */
};

static int set_option(void *ctx, const char *name, const char *value,
                      struct pp_err *err)
{
    struct pp_settings *s = &((struct scored_case *)ctx)->settings;
    return !strcmp(name, "objective")
               ? pp_settings_objective(s, value, err)
               : pp_setting_set(s, s->objective.number, name, value, err);
}

/* Lists the scored tokens: nothing predicts the first of a sequence. A reward
 * is at the last one. */
static void list_scored(struct scored_case *s, struct pp_arena *a)
{
    const struct pp_objective_case *c = &s->c;
    const double *mask = c->arrays[PP_CASE_MASK];
    uint32_t *first = pp_arena_alloc(a, c->n_sequences + 1, sizeof *first);
    bool is_reward = s->settings.objective.number == PP_OBJECTIVE_REWARD;
    size_t n = 0;
    s->at = pp_arena_alloc(a, c->n_tokens + 1, sizeof *s->at);
    for (size_t q = 0; q < c->n_sequences; q++) {
        first[q] = (uint32_t)n;
        int32_t end = c->cu_seqlens[q + 1];
        int32_t from = is_reward ? end - 1 : c->cu_seqlens[q] + 1;
        for (int32_t t = from; t < end; t++)
            if (is_reward || !mask || mask[t] != 0)
                s->at[n++] = (uint32_t)t;
        s->step.sequences += n > first[q];
        s->step.pairs += q % 2 && n > first[q - 1];
        s->step.chosen += q % 2 ? 0 : (double)(n - first[q]);
    }
    first[c->n_sequences] = (uint32_t)n;
    s->step.tokens = (double)n;
    s->rows.first = first;
    s->rows.n_sequences = c->n_sequences;
    s->rows.adds_whole = true;
}

/* Returns a copy of the scored elements of an array, or NULL if there is none.
 */
static const double *gather(const struct scored_case *s,
                            enum pp_case_array which, struct pp_arena *a)
{
    const double *all = s->c.arrays[which];
    size_t n = s->rows.first[s->rows.n_sequences];
    double *v = all ? pp_arena_alloc(a, n + 1, sizeof *v) : NULL;
    for (size_t i = 0; v && i < n; i++)
        v[i] = all[s->at[i]];
    return v;
}

static void make_rows(struct scored_case *s, struct pp_arena *a)
{
    static const struct {
        enum pp_case_array from;
        enum pp_column to;
    } columns[] = {{PP_CASE_P, PP_COLUMN_PREV_LOGPROBS},
                   {PP_CASE_Q, PP_COLUMN_LOGPROBS},
                   {PP_CASE_F, PP_COLUMN_REF_LOGPROBS},
                   {PP_CASE_ADVANTAGES, PP_COLUMN_ADVANTAGES}};
    double *const counts[] = {&s->step.tokens, &s->step.sequences,
                              &s->step.pairs, &s->step.chosen};
    list_scored(s, a);
    s->rows.x = gather(s, PP_CASE_X, a);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        s->rows.columns[columns[i].to] = gather(s, columns[i].from, a);
    for (int i = 0; i < 4; i++)
        if (s->c.counts[i] >= 0)
            *counts[i] = s->c.counts[i];
}

/* Refuses a case without what its objective reads. */
static int check_case(struct scored_case *s, struct pp_err *err)
{
    const struct pp_objective_options *o = &s->settings.objective;
    const char *objective = pp_objective_names[o->number];
    if (pp_settings_complete(&s->settings, err))
        return -1;
    if (o->number == PP_OBJECTIVE_DISTILL)
        return pp_fail(err, PP_EXIT_INPUT,
                       "objective 'distill' needs logits, which a case does "
                       "not have");
    unsigned needs = pp_objective_needs(o);
    if (o->number == PP_OBJECTIVE_DPO && !o->reference_free)
        needs |= pp_column_bit(PP_COLUMN_REF_LOGPROBS);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (needs & pp_column_bit((enum pp_column)c) && !s->rows.columns[c])
            return pp_fail(err, PP_EXIT_INPUT, "%s: needs %s", objective,
                           pp_columns[c].name);
    if (pp_objective_in_pairs(o) && !s->c.pairs_fit)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: the sequences must be pairs, the chosen one first",
                       objective);
    return 0;
}

static void write_case(FILE *f, const struct scored_case *s, double loss,
                       const double *metrics, const double *dx)
{
    unsigned columns = 0;
    size_t k = 0;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        columns |= s->rows.columns[c] ? pp_column_bit((enum pp_column)c) : 0;
    struct pp_json_writer w = pp_json_line(f);
    if (s->c.id)
        pp_json_format(&w, "id", "%s", s->c.id);
    pp_json_real(&w, "loss", loss);
    pp_json_object(&w, "metrics", PP_JSON_INLINE);
    runner_write_metrics(&w, pp_objectives[s->settings.objective.number],
                         columns, "", metrics);
    pp_json_end(&w);
    pp_json_array(&w, "dx", PP_JSON_INLINE);
    for (size_t t = 0; t < s->c.n_tokens; t++) {
        bool scored = k < s->rows.first[s->rows.n_sequences] && s->at[k] == t;
        pp_json_real(&w, NULL, scored ? dx[k] : 0);
        k += scored;
    }
    pp_json_end(&w);
    pp_json_finish(&w);
}

static int run_case(struct runner *p, const char *line, size_t n,
                    const char *place, struct pp_arena *a)
{
    struct pp_err *err = &p->tool->err;
    struct scored_case s = {.at = NULL};
    double loss, metrics[PP_MAX_METRICS];
    pp_settings_init(&s.settings);
    if (pp_objective_case_parse(line, n, place, a, set_option, &s, &s.c, err))
        return -1;
    make_rows(&s, a);
    if (check_case(&s, err))
        return pp_fail_at(err, "%s: ", place);
    const struct pp_objective *o = pp_objectives[s.settings.objective.number];
    struct pp_sequence_sums *sums =
        pp_arena_alloc(a, s.rows.n_sequences + 1, sizeof *sums);
    double *dx = pp_arena_alloc(a, s.c.n_tokens + 1, sizeof *dx);
    o->partial(&s.settings.objective, &s.rows, sums);
    o->finish(&s.settings.objective, &s.rows, sums, &s.step, &loss, metrics,
              dx);
    write_case(p->tool->out, &s, loss, metrics, dx);
    return 0;
}

int pprun_objective_cases(struct runner *p)
{
    const char *path = pprun_of(p)->options.cases;
    struct pp_err *err = &p->tool->err;
    FILE *f = tool_open_input(p->tool, &path);
    char *line, place[128];
    size_t n;
    int rc = 0;
    if (!f)
        return -1;
    struct pp_lines lines = {.f = f, .name = path};
    if (!tool_output(p->tool))
        rc = -1;
    while (rc == 0 && (rc = pp_lines_next(&lines, &line, &n, err)) > 0) {
        struct pp_arena a = {0};
        snprintf(place, sizeof place, "%.100s:%zu", lines.name, lines.n);
        rc = strspn(line, " \t\r") < n ? run_case(p, line, n, place, &a) : 0;
        pp_arena_finish(&a);
    }
    pp_lines_finish(&lines);
    tool_close_input(f);
    return rc;
}
