/* SPDX-License-Identifier: MIT */
#include "schedule/ir/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

void pp_schedule_init(struct pp_schedule *s, const struct pp_graph *g,
                      const char *kind, int n_microbatches)
{
    *s = (struct pp_schedule){.graph = g,
                              .kind = kind,
                              .n_microbatches = n_microbatches,
                              .channel_depth = 1};
    s->rows = pp_calloc((size_t)g->n_rows, sizeof *s->rows);
}

size_t pp_posted_at(const struct pp_row *row, size_t recv)
{
    size_t at = recv;
    while (at > 0 && (pp_is_message(row->actions[at - 1].op)))
        at--;
    if (at == 0 || !pp_is_compute(row->actions[at - 1].op))
        return recv;
    return at - 1 - pp_is_second_of_pair(row, at - 1);
}

void pp_schedule_add(struct pp_schedule *s, int row, struct pp_action a)
{
    struct pp_row *list = &s->rows[row];
    pp_array_reserve(&list->actions, &list->capacity, list->n + 1, sizeof a);
    list->actions[list->n++] = a;
}

void pp_schedule_copy(const struct pp_schedule *s, struct pp_schedule *dst)
{
    pp_schedule_init(dst, s->graph, s->kind, s->n_microbatches);
    dst->channel_depth = s->channel_depth;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            pp_schedule_add(dst, r, s->rows[r].actions[i]);
}

void pp_schedule_finish(struct pp_schedule *s)
{
    if (s->rows)
        for (int r = 0; r < s->graph->n_rows; r++)
            free(s->rows[r].actions);
    free(s->rows);
    *s = (struct pp_schedule){0};
}

/* Returns the number of stages that can be the peer of message a; *one is the
 * last of them. */
static int possible_peers(const struct pp_graph *g, struct pp_action a,
                          int *one)
{
    if (a.stage < 0 || a.stage >= g->n_stages)
        return 0;
    const struct pp_stage_node *n = &g->stages[a.stage];
    bool out = a.op == PP_SEND_F || a.op == PP_RECV_B;
    int count = out ? n->n_outputs : n->n_inputs, remote = 0;
    for (int i = 0; i < count; i++) {
        int other = out ? n->outputs[i] : n->inputs[i];
        if (g->stages[other].row == n->row)
            continue;
        *one = other;
        remote++;
    }
    return remote;
}

char *pp_schedule_format_row(const struct pp_schedule *s, int row)
{
    const struct pp_row *list = &s->rows[row];
    /* PP_ACTION_TEXT leaves room for the marks of a pair. */
    char *text = pp_realloc(NULL, list->n + 1, PP_ACTION_TEXT), *p = text;
    *p = '\0';
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        bool message = pp_is_message(a.op);
        bool second = pp_is_second_of_pair(list, i);
        int one;
        if (i > 0)
            *p++ = second ? ';' : ' ';
        if (a.overlap)
            *p++ = '(';
        p += pp_action_format(
            a, message && possible_peers(s->graph, a, &one) > 1, p);
        if (second)
            p = stpcpy(p, ")OVERLAP_F_B");
    }
    return pp_realloc(text, (size_t)(p - text) + 1, 1);
}

static void imply_peer(const struct pp_graph *g, struct pp_action *a)
{
    int one;
    if (pp_is_message(a->op) && a->peer < 0 && possible_peers(g, *a, &one) == 1)
        a->peer = one;
}

void pp_schedule_imply_peers(struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            imply_peer(s->graph, &s->rows[r].actions[i]);
}

/* Parses one action and appends it. */
static int add_cell(struct pp_schedule *s, int row, const char *text, size_t n,
                    uint8_t overlap, struct pp_err *err)
{
    struct pp_action a;
    if (pp_action_parse(text, n, &a, err))
        return -1;
    a.overlap = overlap;
    imply_peer(s->graph, &a);
    pp_schedule_add(s, row, a);
    return 0;
}

int pp_schedule_parse_cell(struct pp_schedule *s, int row, const char *text,
                           size_t n, struct pp_err *err)
{
    static const char tail[] = ")OVERLAP_F_B";
    size_t n_tail = sizeof tail - 1;
    if (n == 0 || text[0] != '(')
        return add_cell(s, row, text, n, 0, err);
    const char *semicolon = memchr(text, ';', n), *end = text + n - n_tail;
    if (n <= n_tail || memcmp(end, tail, n_tail) || !semicolon ||
        semicolon > end)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' is not a pair (F;B)OVERLAP_F_B",
                       n > 60 ? 60 : (int)n, text);
    if (add_cell(s, row, text + 1, (size_t)(semicolon - text) - 1, 1, err))
        return -1;
    return add_cell(s, row, semicolon + 1, (size_t)(end - semicolon) - 1, 0,
                    err);
}

int pp_schedule_parse_row(struct pp_schedule *s, int row, const char *text,
                          struct pp_err *err)
{
    for (size_t place = 0; *text; place++) {
        size_t n = strcspn(text, " ");
        if (pp_schedule_parse_cell(s, row, text, n, err))
            return pp_fail_at(err, "action %zu: ", place);
        text += n;
        if (*text == ' ' && *++text == '\0')
            return pp_fail(err, PP_EXIT_INPUT,
                           "action %zu: '' is not an action", place + 1);
    }
    return 0;
}

size_t pp_schedule_count(const struct pp_schedule *s, unsigned ops)
{
    size_t n = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            n += ops >> s->rows[r].actions[i].op & 1;
    return n;
}

bool pp_schedule_reduces(const struct pp_schedule *s)
{
    return pp_schedule_count(s, 1u << PP_REDUCE_GRAD) > 0;
}

bool pp_schedule_copies(const struct pp_schedule *s)
{
    return pp_schedule_count(s, 1u << PP_OFFLOAD | 1u << PP_RELOAD) > 0;
}

bool pp_schedule_is_canonical(const struct pp_schedule *s)
{
    /* The order within a row is enough, because a stage is on one row. */
    struct pp_action *last =
        pp_calloc((size_t)s->graph->n_stages, sizeof *last);
    bool canonical = s->graph->n_copies == 1;
    for (int st = 0; canonical && st < s->graph->n_stages; st++)
        last[st].microbatch = -1;
    for (int r = 0; canonical && r < s->graph->n_rows; r++)
        for (size_t i = 0; canonical && i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.op != PP_W && a.op != PP_B)
                continue;
            struct pp_action *l = &last[a.stage];
            canonical = a.microbatch > l->microbatch ||
                        (a.microbatch == l->microbatch && a.slice < l->slice);
            *l = a;
        }
    free(last);
    return canonical;
}

void pp_schedule_forward_only(const struct pp_schedule *s,
                              struct pp_schedule *dst)
{
    pp_schedule_init(dst, s->graph, s->kind, s->n_microbatches);
    dst->channel_depth = s->channel_depth;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            a.overlap = 0;
            bool keep = a.op == PP_F || a.op == PP_SEND_F ||
                        a.op == PP_RECV_F || a.op == PP_UNSHARD ||
                        a.op == PP_RESHARD;
            if (keep)
                pp_schedule_add(dst, r, a);
        }
}

/* Returns true if the stage of a compute action does not need it. */
static bool is_needless(const struct pp_graph *g, struct pp_action a)
{
    if (!pp_is_compute(a.op) || a.op == PP_F)
        return false;
    const struct pp_stage_node *n = &g->stages[a.stage];
    return !n->has_backward || (n->frozen && a.op == PP_W);
}

void pp_schedule_trim(struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_row *row = &s->rows[r];
        size_t n = 0;
        for (size_t i = 0; i < row->n; i++) {
            if (!is_needless(s->graph, row->actions[i]))
                row->actions[n++] = row->actions[i];
            else if (n > 0) /* it was paired with the forward before it */
                row->actions[n - 1].overlap = 0;
        }
        row->n = n;
    }
}

/* Returns the copy that a works in, or -1 if a is not valid work of the
 * schedule. */
static int copy_at(const struct pp_schedule *s, struct pp_action a)
{
    if (!pp_is_compute(a.op) || a.microbatch < 0 ||
        a.microbatch >= s->n_microbatches || a.stage < 0 ||
        a.stage >= s->graph->n_stages)
        return -1;
    return pp_copy_number(s->graph, a.stage);
}

int pp_copy_of(const struct pp_schedule *s, int m)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.microbatch == m && copy_at(s, a) >= 0)
                return copy_at(s, a);
        }
    return -1;
}

void pp_copies_of(const struct pp_schedule *s, int *copy)
{
    for (int m = 0; m < s->n_microbatches; m++)
        copy[m] = -1;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            int at = copy_at(s, a);
            if (at >= 0 && copy[a.microbatch] < 0)
                copy[a.microbatch] = at;
        }
}
