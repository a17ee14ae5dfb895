/* SPDX-License-Identifier: MIT */
#include "manifest/trace_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "manifest/json.h"

/* In microseconds: the latest time, which is twelve days, and the error of
 * times that were rounded to nanoseconds. */
static const double most_us = 1e12, slack_us = 2e-3;

/* An action and its index in its row. */
struct place {
    struct pp_action action;
    size_t at;
};

struct reader {
    const struct pp_schedule *s;
    struct pp_sim *sim;
    struct place **places; /* by rank, sorted; owned */
    int64_t step, pass;    /* to read */
    const char *plan;      /* whose trace it must be; "": any */
};

static int compare_actions(const void *a, const void *b)
{
    const struct pp_action *x = &((const struct place *)a)->action;
    const struct pp_action *y = &((const struct place *)b)->action;
    const int32_t keys[][2] = {{x->op, y->op},
                               {x->stage, y->stage},
                               {x->microbatch, y->microbatch},
                               {x->slice, y->slice},
                               {x->peer, y->peer}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    size_t x = ((const struct place *)a)->at, y = ((const struct place *)b)->at;
    int c = compare_actions(a, b);
    return c ? c : (x > y) - (x < y);
}

static void make_places(struct reader *r)
{
    int n = r->s->graph->n_rows;
    r->places = pp_calloc((size_t)n, sizeof *r->places);
    r->sim->rows = pp_calloc((size_t)n, sizeof *r->sim->rows);
    r->sim->n_rows = n;
    for (int k = 0; k < n; k++) {
        const struct pp_row *row = &r->s->rows[k];
        struct pp_sim_row *rank = &r->sim->rows[k];
        r->places[k] = pp_calloc(row->n + 1, sizeof **r->places);
        rank->spans = pp_calloc(row->n + 1, sizeof *rank->spans);
        rank->n = row->n;
        for (size_t i = 0; i < row->n; i++) {
            r->places[k][i] = (struct place){row->actions[i], i};
            /* A start of -1 means that the action is not read yet. */
            rank->spans[i] = (struct pp_span){row->actions[i], -1, -1};
        }
        qsort(r->places[k], row->n, sizeof **r->places, compare_places);
    }
}

/* Reads an integer of an event's args, or 0 if it is absent. */
static int arg(const struct pp_value *args, const char *key, int64_t *out)
{
    struct pp_value at;
    *out = 0;
    return pp_value_find(args, key, &at) ? pp_value_int(&at, 0, INT64_MAX, out)
                                         : 0;
}

/* Returns 1, with its step and pass, if the event is a slice of an action, 0 if
 * it is another event, and -1 on failure. */
static int is_action(const struct pp_value *at, int64_t *step, int64_t *pass)
{
    struct pp_value args, member;
    const char *text;
    if (pp_value_is_object(at) || pp_value_get_text(at, "ph", &text))
        return -1;
    if (strcmp(text, "X"))
        return 0;
    if (pp_value_find(at, "cat", &member)) {
        if (pp_value_text(&member, &text))
            return -1;
        if (!strcmp(text, "step"))
            return 0;
    }
    if (pp_value_member(at, "args", &args) || pp_value_is_object(&args) ||
        arg(&args, "step", step) || arg(&args, "pass", pass))
        return -1;
    return 1;
}

/* Finds the last pass of the last step. */
static int find_pass(struct reader *r, const struct pp_value *events, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        struct pp_value at = pp_value_item(events, i);
        int64_t step = 0, pass = 0;
        int is = is_action(&at, &step, &pass);
        if (is < 0)
            return -1;
        if (!is)
            continue;
        if (!any || step > r->step || (step == r->step && pass > r->pass)) {
            r->step = step;
            r->pass = pass;
        }
        any = true;
    }
    return any ? 0 : pp_value_fail(events, "there are no actions");
}

/* Reads the action that an event names. Its peer is in args. */
static int read_action(const struct pp_value *at, struct pp_action *a)
{
    struct pp_value name, args, peer;
    struct pp_err *err = at->source->err;
    const char *text;
    int64_t v;
    if (pp_value_member(at, "name", &name) || pp_value_text(&name, &text))
        return -1;
    if (pp_action_parse(text, strlen(text), a, err))
        return err->code == PP_EXIT_INPUT ? pp_value_fail_at(&name) : -1;
    pp_value_find(at, "args", &args);
    if (!pp_is_message(a->op))
        return 0;
    if (pp_value_member(&args, "peer", &peer) ||
        pp_value_int(&peer, 0, INT32_MAX, &v))
        return -1;
    a->peer = (int32_t)v;
    return 0;
}

/* Returns the first place of an action that has no event yet, or its last
 * place; NULL if there is none. Events of equal actions are in order. */
static const struct place *find_next(const struct reader *r, int row,
                                     const struct place *key)
{
    const struct place *first = r->places[row];
    const struct place *end = first + r->s->rows[row].n;
    const struct pp_span *spans = r->sim->rows[row].spans;
    const struct place *at = bsearch(key, first, (size_t)(end - first),
                                     sizeof *key, compare_actions);
    if (!at)
        return NULL;
    while (at > first && !compare_actions(at - 1, key))
        at--;
    while (spans[at->at].start >= 0 && at + 1 < end &&
           !compare_actions(at + 1, key))
        at++;
    return at;
}

static int read_event(struct reader *r, const struct pp_value *at)
{
    struct place key = {0};
    int64_t pid;
    double ts, dur;
    char text[PP_ACTION_TEXT];
    int n = r->s->graph->n_rows;
    if (pp_value_get_int(at, "pid", 1, n, &pid) ||
        pp_value_get_real(at, "ts", 0, most_us, &ts) ||
        pp_value_get_real(at, "dur", 0, most_us, &dur) ||
        read_action(at, &key.action))
        return -1;
    const struct place *found = find_next(r, (int)pid - 1, &key);
    pp_action_format(key.action, false, text);
    if (!found)
        return pp_value_fail(at, "rank %d has no '%s' in the schedule",
                             (int)pid - 1, text);
    struct pp_span *span = &r->sim->rows[pid - 1].spans[found->at];
    if (span->start >= 0)
        return pp_value_fail(at, "'%s' occurs more often than in the schedule",
                             text);
    span->start = ts;
    span->end = pp_is_send(key.action.op) ? ts : ts + dur;
    return 0;
}

static int check_present(const struct pp_value *events, struct pp_sim_row *rank,
                         int number)
{
    char text[PP_ACTION_TEXT];
    for (size_t i = 0; i < rank->n; i++) {
        struct pp_span *s = &rank->spans[i];
        if (s->start >= 0)
            continue;
        pp_action_format(s->action, false, text);
        if (s->action.op < PP_REDUCE_GRAD)
            return pp_value_fail(events, "rank %d lacks '%s'", number, text);
        /* An action that synchronises starts when the one before it ended. */
        s->start = s->end = i ? s[-1].end : 0;
    }
    return 0;
}

/* Actions of a rank must not overlap, except the two of an overlap pair. */
static int check_row_order(const struct pp_value *events,
                           const struct pp_sim_row *rank, int number)
{
    const struct pp_span *before = NULL;
    double start, end, ended = 0;
    char text[2][PP_ACTION_TEXT];
    for (size_t i = 0; i < rank->n; i++) {
        const struct pp_span *s = &rank->spans[i];
        if (!pp_is_compute(s->action.op))
            continue;
        bool second = i > 0 && s[-1].action.overlap;
        pp_span_piece(rank->spans, i, &start, &end);
        if (before && !second && start < ended - slack_us) {
            pp_action_format(s->action, false, text[0]);
            pp_action_format(before->action, false, text[1]);
            return pp_value_fail(events,
                                 "rank %d starts '%s' before '%s' has ended",
                                 number, text[0], text[1]);
        }
        before = s;
        ended = end;
    }
    return 0;
}

/* Converts microseconds to seconds from the first compute action, and sums them
 * up. */
static void sum_up(struct pp_sim *sim)
{
    double first = HUGE_VAL, busy = 0;
    for (int r = 0; r < sim->n_rows; r++)
        for (size_t i = 0; i < sim->rows[r].n; i++)
            if (pp_is_compute(sim->rows[r].spans[i].action.op))
                first = fmin(first, sim->rows[r].spans[i].start);
    for (int r = 0; r < sim->n_rows; r++) {
        struct pp_sim_row *rank = &sim->rows[r];
        for (size_t i = 0; i < rank->n; i++) {
            struct pp_span *s = &rank->spans[i];
            /* A rank may wait for its first message before that. */
            s->start = fmax(1e-6 * (s->start - first), 0);
            s->end = 1e-6 * (s->end - first);
            if (pp_is_compute(s->action.op))
                sim->makespan = fmax(sim->makespan, s->end);
        }
        rank->busy = pp_sim_busy(rank);
        busy += rank->busy;
    }
    if (sim->makespan > 0)
        sim->bubble = 1 - busy / (sim->n_rows * sim->makespan);
}

/* Refuses a trace that names another plan. Traces of 0.2 name none. */
static int check_plan(const struct reader *r, const struct pp_value *root)
{
    struct pp_value data, plan;
    const char *text;
    if (!*r->plan || !pp_value_find(root, "otherData", &data))
        return 0;
    if (pp_value_is_object(&data))
        return -1;
    if (!pp_value_find(&data, "plan", &plan))
        return 0;
    if (pp_value_text(&plan, &text))
        return -1;
    return strcmp(text, r->plan)
               ? pp_value_fail(&plan, "the trace is of a plan with another "
                                      "model, mesh or split")
               : 0;
}

static int read_events(struct reader *r, const struct pp_value *root)
{
    struct pp_value events;
    size_t n;
    if (pp_value_is_object(root) || check_plan(r, root) ||
        pp_value_member(root, "traceEvents", &events) ||
        pp_value_array(&events, &n) || find_pass(r, &events, n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct pp_value at = pp_value_item(&events, i);
        int64_t step = 0, pass = 0;
        if (is_action(&at, &step, &pass) > 0 && step == r->step &&
            pass == r->pass && read_event(r, &at))
            return -1;
    }
    for (int k = 0; k < r->sim->n_rows; k++)
        if (check_present(&events, &r->sim->rows[k], k) ||
            check_row_order(&events, &r->sim->rows[k], k))
            return -1;
    sum_up(r->sim);
    return 0;
}

/* Reads a document and takes it. */
static int load_trace(json_t *value, const char *name,
                      const struct pp_schedule *s, const char *plan,
                      struct pp_sim *sim, int64_t *step, struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    const struct pp_value root = {.source = &source, .value = value};
    struct reader r = {.s = s, .sim = sim, .plan = plan};
    *sim = (struct pp_sim){0};
    make_places(&r);
    int rc = read_events(&r, &root);
    for (int k = 0; k < s->graph->n_rows; k++)
        free(r.places[k]);
    free(r.places);
    *step = r.step;
    if (rc)
        pp_sim_finish(sim);
    json_decref(value);
    return rc;
}

int pp_trace_parse(const char *text, size_t n, const char *name,
                   const struct pp_schedule *s, struct pp_sim *sim,
                   struct pp_err *err)
{
    json_t *value;
    int64_t step;
    return pp_value_parse(text, n, name, &value, err)
               ? -1
               : load_trace(value, name, s, "", sim, &step, err);
}

int pp_trace_read(const char *path, const struct pp_schedule *s,
                  const char *plan, struct pp_sim *sim, int64_t *step,
                  struct pp_err *err)
{
    json_t *value;
    return pp_value_read(path, &value, err)
               ? -1
               : load_trace(value, path, s, plan, sim, step, err);
}

/* --- a trace as a schedule --- */

bool pp_is_trace(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", text[i]))
        i++;
    return i < n && text[i] == '{' && strstr(text, "\"traceEvents\"");
}

/* Reads an event of the pass that r has found. Returns 1 with its rank and
 * action if it is an action to keep, 0 if not, and -1 on failure. */
static int read_kept(const struct reader *r, const struct pp_value *at,
                     int *row, struct pp_action *a)
{
    struct pp_value args;
    int64_t step = 0, pass = 0, pid, overlap;
    int is = is_action(at, &step, &pass);
    if (is <= 0 || step != r->step || pass != r->pass)
        return is < 0 ? -1 : 0;
    if (pp_value_get_int(at, "pid", 1, PP_IMPORT_ROWS, &pid) ||
        read_action(at, a) || pp_value_member(at, "args", &args) ||
        arg(&args, "overlap", &overlap))
        return -1;
    *row = (int)pid - 1;
    a->overlap = overlap == 1;
    return pp_has_stage(a->op) && !pp_is_message(a->op);
}

/* Reads a number of otherData, or 0 if the trace does not have it. */
static int64_t fact(const struct pp_value *root, const char *key)
{
    struct pp_value data;
    int64_t n;
    struct pp_err unused = {0};
    const struct pp_value_source quiet = {"", &unused};
    if (!pp_value_find(root, "otherData", &data) || pp_value_is_object(&data))
        return 0;
    data.source = &quiet;
    return pp_value_get_int(&data, key, 0, INT32_MAX, &n) ? 0 : n;
}

static int import_events(const struct pp_value *root,
                         const struct pp_import_options *o, struct pp_import *c,
                         struct pp_err *err)
{
    struct pp_value events;
    struct reader r = {0};
    struct pp_action a;
    size_t n;
    int row, rows = 0, keep = 0;
    if (pp_value_is_object(root) ||
        pp_value_member(root, "traceEvents", &events) ||
        pp_value_array(&events, &n) || find_pass(&r, &events, n))
        return -1;
    for (size_t i = 0; i < n && keep >= 0; i++) {
        struct pp_value at = pp_value_item(&events, i);
        keep = read_kept(&r, &at, &row, &a);
        if (keep > 0 && row >= rows)
            rows = row + 1;
    }
    if (keep < 0)
        return -1;
    if (pp_import_begin(c, "trace", (size_t)rows, o, err))
        return pp_fail_at(err, "%s: ", o->name);
    for (size_t i = 0; i < n; i++) {
        struct pp_value at = pp_value_item(&events, i);
        if (read_kept(&r, &at, &row, &a) > 0)
            pp_schedule_add(&c->schedule, row, a);
    }
    int64_t depth = fact(root, "channel_depth");
    c->graph.n_copies = (int)fact(root, "copies");
    c->schedule.channel_depth = depth > 0 ? (int)depth : 1;
    if (!o->n_microbatches)
        c->schedule.n_microbatches = (int)fact(root, "microbatches");
    return pp_import_complete(c, o, err) ? pp_fail_at(err, "%s: ", o->name) : 0;
}

int pp_trace_import(const char *text, size_t n,
                    const struct pp_import_options *o, struct pp_import *c,
                    struct pp_err *err)
{
    const struct pp_value_source source = {o->name, err};
    struct pp_value root = {.source = &source};
    *c = (struct pp_import){0};
    if (pp_value_parse(text, n, o->name, &root.value, err))
        return -1;
    int rc = import_events(&root, o, c, err);
    json_decref(root.value);
    if (rc)
        pp_import_finish(c);
    return rc ? -1 : 0;
}
