/* SPDX-License-Identifier: MIT */
/* fuzz_trace - reads any bytes as a trace of two ranks and one microbatch. It
 * is refused with one line, or gives a finite span for every action, in order,
 * and is written as a trace that can be read, and imported as the schedule. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/trace_json.h"
#include "schedule/draw/trace.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_spans(const struct pp_sim *sim)
{
    for (int r = 0; r < sim->n_rows; r++)
        for (size_t i = 0; i < sim->rows[r].n; i++) {
            const struct pp_span *s = &sim->rows[r].spans[i];
            if (!isfinite(s->start) || !isfinite(s->end) || s->start < 0 ||
                s->end < s->start - 1e-8 || s->end > sim->makespan + 1e12)
                abort();
        }
}

/* Imports a text. If it is the trace of a schedule, that comes out. */
static void try_import(const char *text, size_t n, const struct pp_schedule *s)
{
    const struct pp_import_options o = {.name = "import"};
    struct pp_err err = {0};
    struct pp_import c;
    if (pp_trace_import(text, n, &o, &c, &err)) {
        if (s || !*err.text || strchr(err.text, '\n'))
            abort();
        return;
    }
    if (s &&
        (pp_lower(&c.schedule, &err) || c.schedule.rows[1].n != s->rows[1].n ||
         memcmp(c.schedule.rows[1].actions, s->rows[1].actions,
                s->rows[1].n * sizeof(struct pp_action))))
        abort();
    pp_import_finish(&c);
}

static void check_written(const struct pp_schedule *s, struct pp_sim *sim)
{
    char *text = NULL;
    size_t n;
    struct pp_err err = {0};
    struct pp_messages messages;
    struct pp_sim again;
    pp_messages_find(s, sim->rows, NULL, 0, &messages);
    const struct pp_trace t = {.schedule = s,
                               .rows = sim->rows,
                               .messages = &messages,
                               .ns = 1e9,
                               .unit = "s"};
    FILE *f = open_memstream(&text, &n);
    if (!f)
        abort();
    pp_trace_print(f, &t);
    if (fclose(f))
        abort();
    /* A message that was received before it was sent has no length. */
    bool good = true;
    try_import(text, n, s);
    for (size_t i = 0; i < messages.n; i++)
        good &= messages.at[i].arrives >= messages.at[i].leaves;
    if (good && pp_trace_parse(text, n, "again", s, &again, &err))
        abort();
    if (good)
        pp_sim_finish(&again);
    free(text);
    pp_messages_finish(&messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_arena a = {0};
    struct pp_graph g;
    struct pp_schedule s;
    struct pp_sim sim;
    struct pp_err err = {0};
    const struct pp_kind *kind = pp_kind_find("1f1b");
    const struct pp_kind_options o = {.n_microbatches = 1};
    if (pp_graph_chain(&a, 2, 1, PP_PLACEMENT_LOOP, &g, &err))
        abort();
    pp_schedule_init(&s, &g, "1f1b", 1);
    if (pp_kind_emit(kind, &s, &o, &err) || pp_lower(&s, &err))
        abort();
    try_import((const char *)data, n, NULL);
    if (pp_trace_parse((const char *)data, n, "fuzz", &s, &sim, &err)) {
        if (err.code != PP_EXIT_INPUT || !*err.text || strchr(err.text, '\n'))
            abort();
    } else {
        check_spans(&sim);
        check_written(&s, &sim);
        pp_sim_finish(&sim);
    }
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
    return 0;
}
