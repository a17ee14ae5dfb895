/* SPDX-License-Identifier: MIT */
/* Starts and ends are rounded to whole nanoseconds in the same way, so rounding
 * makes nothing overlap. Events are not sorted by time: neither viewer needs
 * it. It is one file because it is one format. */
#include "schedule/draw/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "base/num.h"

enum { THREAD_COMPUTE = 1, THREAD_SYNC = 2, THREAD_STEP = 3 };

/* A track of messages: a thread of a rank's process. */
struct track {
    int row, peer;
    bool backward, recv;
    int number; /* 0, 1, ... among tracks of the same channel */
    int thread; /* number within the rank */
    int64_t end;
};

struct pp_trace_writer {
    struct pp_json_writer json;
    const struct pp_trace *t;
    size_t n_messages;    /* messages of earlier passes */
    struct track *tracks; /* in the order of their first message */
    size_t n, capacity;
    int *threads;  /* per rank: the next thread number */
    int *beside;   /* per rank: thread of overlapped forwards; 0: none yet */
    int *copies;   /* per rank: thread of OFFLOADs, before that of RELOADs */
    size_t *first; /* per rank: its latest track; SIZE_MAX: none */
    size_t *next;  /* per track: the previous one of its rank; SIZE_MAX: none */
};

static int64_t ns(const struct pp_trace_writer *w, double time)
{
    return (int64_t)llround(time * w->t->ns);
}

double pp_trace_ns(double longest, double wish)
{
    /* Less than a microsecond is too short, more than four days too long. */
    while (longest * wish > 3.5e14)
        wish /= 1000;
    while (longest > 0 && longest * wish < 1e3 && longest * wish * 1e3 < 3.5e14)
        wish *= 1000;
    return wish;
}

/* Begins an event, an object on its own line, with the members that all events
 * have. */
static void event(struct pp_json_writer *j, const char *phase, int row,
                  int thread)
{
    pp_json_object(j, NULL, PP_JSON_INLINE);
    pp_json_string(j, "ph", phase);
    pp_json_int(j, "pid", row + 1);
    pp_json_int(j, "tid", thread);
}

/* Writes a time in microseconds, the unit of the format. */
static void time_member(struct pp_json_writer *j, const char *key, int64_t t)
{
    pp_json_format(j, key, "%s%" PRId64 ".%03d", t < 0 ? "-" : "",
                   (t < 0 ? -t : t) / 1000, (int)((t < 0 ? -t : t) % 1000));
}

/* Ends an event after its arguments. */
static void end_args(struct pp_json_writer *j)
{
    pp_json_end(j);
    pp_json_end(j);
}

/* Names a process or a thread; the viewer sorts them by place. */
static void metadata(struct pp_trace_writer *w, int row, int thread,
                     const char *what, const char *name, int place)
{
    struct pp_json_writer *j = &w->json;
    char key[32];
    snprintf(key, sizeof key, "%s_name", what);
    event(j, "M", row, thread);
    pp_json_string(j, "name", key);
    pp_json_object(j, "args", PP_JSON_INLINE);
    pp_json_string(j, "name", name);
    end_args(j);
    snprintf(key, sizeof key, "%s_sort_index", what);
    event(j, "M", row, thread);
    pp_json_string(j, "name", key);
    pp_json_object(j, "args", PP_JSON_INLINE);
    pp_json_int(j, "sort_index", place);
    end_args(j);
}

static void print_thread(struct pp_trace_writer *w, int row, int thread,
                         const char *name)
{
    metadata(w, row, thread, "thread", name, thread);
}

static const char *category(enum pp_op op)
{
    static const char *const names[] = {"forward", "backward", "input gradient",
                                        "weight gradient"};
    if (pp_is_compute(op))
        return names[op];
    return pp_is_send(op)   ? "send"
           : pp_is_recv(op) ? "recv"
           : pp_is_copy(op) ? "copy"
                            : "sync";
}

static void slice(struct pp_trace_writer *w, struct pp_action a, int row,
                  int thread, int64_t from, int64_t to)
{
    struct pp_json_writer *j = &w->json;
    char text[PP_ACTION_TEXT];
    pp_action_format(a, false, text);
    event(j, "X", row, thread);
    time_member(j, "ts", from);
    time_member(j, "dur", to - from);
    pp_json_string(j, "name", text);
    pp_json_string(j, "cat", category(a.op));
    pp_json_object(j, "args", PP_JSON_INLINE);
    pp_json_string(j, "op", pp_op_name(a.op));
    pp_json_int(j, "stage", a.stage);
    pp_json_int(j, "microbatch", a.microbatch);
    pp_json_int(j, "slice", a.slice);
    if (a.peer >= 0)
        pp_json_int(j, "peer", a.peer);
    if (a.overlap)
        pp_json_int(j, "overlap", 1);
    if (w->t->step > 0) {
        pp_json_int(j, "step", w->t->step);
        pp_json_int(j, "pass", w->t->pass);
    }
    end_args(j);
}

/* Names the tracks that every rank has. */
static void print_tracks(struct pp_trace_writer *w)
{
    const struct pp_schedule *s = w->t->schedule;
    for (int row = 0; row < s->graph->n_rows; row++) {
        const struct pp_row *list = &s->rows[row];
        const char *part = w->t->names ? w->t->names[row] : "";
        char name[300];
        bool syncs = false, copies = false;
        for (size_t i = 0; i < list->n; i++) {
            copies |= pp_is_copy(list->actions[i].op);
            syncs |= list->actions[i].op >= PP_REDUCE_GRAD &&
                     !pp_is_copy(list->actions[i].op);
        }
        snprintf(name, sizeof name, "rank %d%s%s", row, *part ? ", " : "",
                 part);
        metadata(w, row, 0, "process", name, row);
        print_thread(w, row, THREAD_COMPUTE, "compute");
        if (syncs)
            print_thread(w, row, THREAD_SYNC, "sync");
        if (w->t->parts)
            print_thread(w, row, THREAD_STEP, "step");
        if (copies) {
            w->copies[row] = w->threads[row];
            w->threads[row] += 2;
            print_thread(w, row, w->copies[row], "offload");
            print_thread(w, row, w->copies[row] + 1, "reload");
        }
    }
}

/* Reports if the i-th action is the forward of a pair that really overlapped.
 */
static bool runs_overlapped(const struct pp_trace_writer *w, int row, size_t i)
{
    const struct pp_span *s = &w->t->rows[row].spans[i];
    return s->action.overlap && ns(w, s[0].start) < ns(w, s[1].end) &&
           ns(w, s[1].start) < ns(w, s[0].end);
}

/* Returns the thread of the i-th action, which is a compute action. */
static int compute_thread(struct pp_trace_writer *w, int row, size_t i)
{
    if (!runs_overlapped(w, row, i))
        return THREAD_COMPUTE;
    if (!w->beside[row]) {
        w->beside[row] = w->threads[row]++;
        metadata(w, row, w->beside[row], "thread", "compute (2)",
                 THREAD_COMPUTE);
    }
    return w->beside[row];
}

/* Writes the actions of a rank, without its messages. */
static void print_row(struct pp_trace_writer *w, int row)
{
    const struct pp_sim_row *r = &w->t->rows[row];
    for (size_t i = 0; i < r->n; i++) {
        struct pp_action a = r->spans[i].action;
        bool sync = a.op >= PP_REDUCE_GRAD;
        int thread = pp_is_copy(a.op) ? w->copies[row] + (a.op == PP_RELOAD)
                     : sync           ? THREAD_SYNC
                                      : compute_thread(w, row, i);
        if (sync || pp_is_compute(a.op))
            slice(w, a, row, thread, ns(w, r->spans[i].start),
                  ns(w, r->spans[i].end));
    }
}

static void print_part(struct pp_trace_writer *w, const struct pp_trace_part *p)
{
    struct pp_json_writer *j = &w->json;
    int64_t from = ns(w, p->start), to = ns(w, p->end);
    event(j, "X", p->row, THREAD_STEP);
    time_member(j, "ts", from);
    time_member(j, "dur", to - from);
    pp_json_string(j, "name", p->name);
    pp_json_string(j, "cat", "step");
    pp_json_object(j, "args", PP_JSON_INLINE);
    pp_json_int(j, "step", w->t->step);
    end_args(j);
}

/* --- channels --- */

static void add_track(struct pp_trace_writer *w, struct track t)
{
    if (w->n == w->capacity) {
        pp_array_reserve(&w->tracks, &w->capacity, w->n + 1, sizeof *w->tracks);
        w->next = pp_realloc(w->next, w->capacity, sizeof *w->next);
    }
    char name[80], number[24] = "";
    t.thread = w->threads[t.row]++;
    if (t.number > 0)
        snprintf(number, sizeof number, " (%d)", t.number + 1);
    snprintf(name, sizeof name, "%s %s rank %d%s", t.recv ? "recv" : "send",
             t.backward ? (t.recv ? "B from" : "B to")
                        : (t.recv ? "F from" : "F to"),
             t.peer, number);
    print_thread(w, t.row, t.thread, name);
    w->next[w->n] = w->first[t.row];
    w->first[t.row] = w->n;
    w->tracks[w->n++] = t;
}

/* Returns the first track of its kind that is free at `from`, or a new one, and
 * marks it as taken until `to`. */
static struct track *take_track(struct pp_trace_writer *w, struct track t,
                                int64_t from, int64_t to)
{
    struct track *found = NULL;
    for (size_t i = w->first[t.row]; i != SIZE_MAX; i = w->next[i]) {
        struct track *k = &w->tracks[i];
        if (k->peer != t.peer || k->backward != t.backward || k->recv != t.recv)
            continue;
        t.number++;
        if (k->end <= from)
            found = k;
    }
    if (!found) {
        add_track(w, t);
        found = &w->tracks[w->n - 1];
    }
    found->end = to;
    return found;
}

/* Writes one end of an arrow inside the slice of a rank's i-th action: at its
 * start, or just before its end. */
static void arrow(struct pp_trace_writer *w, bool begins, size_t id, int row,
                  size_t i)
{
    const struct pp_span *s = &w->t->rows[row].spans[i];
    struct pp_json_writer *j = &w->json;
    event(j, begins ? "s" : "f", row, compute_thread(w, row, i));
    time_member(j, "ts", begins ? ns(w, s->end) - 1 : ns(w, s->start));
    pp_json_string(j, "name", "message");
    pp_json_string(j, "cat", "message");
    pp_json_uint(j, "id", id);
    if (!begins)
        pp_json_string(j, "bp", "e");
    pp_json_end(j);
}

static void print_message(struct pp_trace_writer *w, const struct pp_message *m,
                          size_t id)
{
    const struct pp_span *recv = &w->t->rows[m->to].spans[m->recv];
    const struct pp_span *made = &w->t->rows[m->from].spans[m->producer];
    const struct pp_span *used = &w->t->rows[m->to].spans[m->consumer];
    bool backward = m->action.op == PP_SEND_B;
    /* The clocks of two ranks may differ by more than a message takes. */
    int64_t from = ns(w, m->leaves);
    int64_t to = ns(w, m->arrives > m->leaves ? m->arrives : m->leaves);
    struct track *k = take_track(
        w, (struct track){m->from, m->to, backward, false, 0, 0, 0}, from, to);
    slice(w, m->action, m->from, k->thread, from, to);
    from = ns(w, m->waits);
    to = ns(w, m->arrives > m->waits ? m->arrives : m->waits);
    k = take_track(w, (struct track){m->to, m->from, backward, true, 0, 0, 0},
                   from, to);
    slice(w, recv->action, m->to, k->thread, from, to);
    /* A slice without length holds no arrow. */
    if (ns(w, made->start) < ns(w, made->end) &&
        ns(w, used->start) < ns(w, used->end)) {
        arrow(w, true, id, m->from, m->producer);
        arrow(w, false, id, m->to, m->consumer);
    }
}

/* Writes a counter. Perfetto shows both its name and its unit. */
static void print_counter(struct pp_trace_writer *w, int row, const char *name,
                          const char *unit, const struct pp_memory_timeline *c)
{
    struct pp_json_writer *j = &w->json;
    for (size_t i = 0; i < c->n; i++) {
        event(j, "C", row, 0);
        time_member(j, "ts", ns(w, c->at[i].time));
        pp_json_string(j, "name", name);
        pp_json_object(j, "args", PP_JSON_INLINE);
        pp_json_format(j, unit, "%.15g", c->at[i].value);
        end_args(j);
    }
}

static void print_head(struct pp_trace_writer *w)
{
    const struct pp_schedule *s = w->t->schedule;
    struct pp_json_writer *j = &w->json;
    char number[32], text[80];
    pp_json_object(j, NULL, PP_JSON_INLINE);
    pp_json_string(j, "displayTimeUnit", "ms");
    pp_json_break(j);
    pp_json_object(j, "otherData", PP_JSON_INLINE);
    pp_json_string(j, "kind", s->kind);
    pp_json_int(j, "ranks", s->graph->n_rows);
    pp_json_int(j, "stages", s->graph->n_stages);
    if (s->graph->n_copies > 1)
        pp_json_int(j, "copies", s->graph->n_copies);
    pp_json_int(j, "microbatches", s->n_microbatches);
    pp_json_int(j, "channel_depth", s->channel_depth);
    if (w->t->plan && *w->t->plan)
        pp_json_string(j, "plan", w->t->plan);
    pp_format_real(1e6 / w->t->ns, number);
    snprintf(text, sizeof text, "%s %s", number, w->t->unit);
    pp_json_string(j, "a_millisecond_is", text);
    if (w->t->error > 0) {
        snprintf(text, sizeof text, "%.3g %s", w->t->error, w->t->unit);
        pp_json_string(j, "clocks_agree_within", text);
    }
    pp_json_end(j);
    pp_json_break(j);
    pp_json_array(j, "traceEvents", PP_JSON_BROKEN);
}

void pp_trace_add(struct pp_trace_writer *w, const struct pp_trace *t)
{
    w->t = t;
    for (int r = 0; r < t->schedule->graph->n_rows; r++) {
        print_row(w, r);
        if (t->slots)
            print_counter(w, r, "activations", "slots", &t->slots[r]);
        if (t->bytes)
            print_counter(w, r, "memory", "bytes", &t->bytes[r]);
    }
    for (size_t i = 0; i < t->n_parts; i++)
        print_part(w, &t->parts[i]);
    for (size_t i = 0; i < t->messages->n; i++)
        print_message(w, &t->messages->at[i], w->n_messages + i + 1);
    w->n_messages += t->messages->n;
}

void pp_trace_open(struct pp_trace_writer **out, FILE *f,
                   const struct pp_trace *first)
{
    int n = first->schedule->graph->n_rows;
    struct pp_trace_writer *w = *out = pp_calloc(1, sizeof *w);
    *w =
        (struct pp_trace_writer){.json = {.f = f, .compact = true}, .t = first};
    w->threads = pp_calloc((size_t)n, sizeof *w->threads);
    w->beside = pp_calloc((size_t)n, sizeof *w->beside);
    w->copies = pp_calloc((size_t)n, sizeof *w->copies);
    w->first = pp_calloc((size_t)n, sizeof *w->first);
    for (int r = 0; r < n; r++) {
        w->threads[r] = THREAD_STEP + (first->parts != NULL);
        w->first[r] = SIZE_MAX;
    }
    print_head(w);
    print_tracks(w);
}

void pp_trace_close(struct pp_trace_writer *w)
{
    if (!w)
        return;
    pp_json_end(&w->json);
    pp_json_end(&w->json);
    putc('\n', w->json.f);
    free(w->tracks);
    free(w->next);
    free(w->threads);
    free(w->beside);
    free(w->copies);
    free(w->first);
    free(w);
}

void pp_trace_print(FILE *f, const struct pp_trace *t)
{
    struct pp_trace_writer *w = NULL;
    pp_trace_open(&w, f, t);
    pp_trace_add(w, t);
    pp_trace_close(w);
}
