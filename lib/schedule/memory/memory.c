/* SPDX-License-Identifier: MIT */
/* Buffer lifetimes. A buffer lives from the first action that touches it to the
 * last, so each row becomes a list of touches, which are sorted by buffer and
 * folded. place.c assigns the offsets. */
#include "schedule/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/sort.h"
#include "schedule/ir/deps.h"

/* --- lifetimes --- */

/* Places of activations: they stay; they leave with an OFFLOAD, or have left;
 * they have come back; and a backward has read them. */
enum where { STAYS, LEAVES, IS_BACK, IS_READ };

struct touches {
    const struct pp_schedule *s;
    const struct pp_graph *g;
    const struct pp_stage_bytes *sizes;
    unsigned char *where; /* (stages, microbatches) enum where; NULL if the row
                             has no copies */
    struct pp_buffer *at; /* the touches, with first == last */
    size_t n, capacity;
    size_t place;
    struct pp_action action;
};

static void touch(struct touches *t, enum pp_buffer_kind kind, int stage,
                  int peer, size_t bytes)
{
    pp_array_reserve(&t->at, &t->capacity, t->n + 1, sizeof *t->at);
    t->at[t->n++] = (struct pp_buffer){.kind = kind,
                                       .stage = stage,
                                       .microbatch = t->action.microbatch,
                                       .slice = t->action.slice,
                                       .peer = peer,
                                       .first = t->place,
                                       .last = t->place,
                                       .bytes = bytes};
}

/* Returns the entry of where of a microbatch. */
static unsigned char *where_is(const struct touches *t, struct pp_action a)
{
    return &t->where[(size_t)a.stage * (size_t)t->s->n_microbatches +
                     (size_t)a.microbatch];
}

/* Returns the sizes of a stage for the slice of the action. */
static const struct pp_stage_bytes *sizes_of(const struct touches *t, int stage)
{
    return pp_slice_bytes(t->g, t->sizes, stage, t->action.slice);
}

/* Touches activations, where they are now. */
static void touch_act(struct touches *t, enum pp_buffer_kind kind, size_t bytes)
{
    bool back = t->where && *where_is(t, t->action) >= IS_BACK;
    touch(t, kind, t->action.stage, back ? 0 : -1, bytes);
}

/* Touches activations on the host, in their forward and in the first backward
 * behind their RELOAD. */
static void touch_host(struct touches *t)
{
    const struct pp_stage_bytes *b = sizes_of(t, t->action.stage);
    unsigned char *where = t->where ? where_is(t, t->action) : NULL;
    bool forward = t->action.op == PP_F;
    if (!where || *where != (forward ? LEAVES : IS_BACK))
        return;
    *where = forward ? LEAVES : IS_READ;
    touch(t, PP_BUF_HOST, t->action.stage, -1,
          pp_round_up(b->act_i, PP_LINE_BYTES) + b->act_w);
}

/* Touches what a forward told the host. */
static void touch_told(struct touches *t)
{
    size_t bytes = sizes_of(t, t->action.stage)->told;
    if (bytes)
        touch(t, PP_BUF_TOLD, t->action.stage, -1, bytes);
}

/* Returns the bytes that stage `at` has of the output of stage `from`, and of
 * its gradient. */
static size_t input_bytes(const struct touches *t, int at, int from)
{
    size_t input = sizes_of(t, at)->input;
    return input ? input : sizes_of(t, from)->output;
}

static bool is_local(const struct touches *t, int stage)
{
    return t->g->stages[stage].row == t->g->stages[t->action.stage].row;
}

/* Touches what later slices read of all slices in the forward of the last one:
 * keys and values, and what experts kept. They live until then even if no
 * backward keeps them. */
static void touch_earlier(struct touches *t)
{
    int s = t->action.stage, last = t->g->slices.n - 1;
    struct pp_action a = t->action;
    for (int q = 0; a.slice == last && q < last; q++) {
        t->action.slice = (int16_t)q;
        touch(t, PP_BUF_ACT_I, s, -1, sizes_of(t, s)->act_i);
        if (sizes_of(t, s)->routed)
            touch(t, PP_BUF_ACT_W, s, -1, sizes_of(t, s)->act_w);
    }
    t->action = a;
}

/* Touches what the slice passes to the next one, and with `reads` what it has
 * of the slice before. */
static void touch_states(struct touches *t, bool reads)
{
    int s = t->action.stage, last = t->g->slices.n - 1;
    struct pp_action a = t->action;
    for (int q = a.slice - reads; q <= a.slice; q++) {
        t->action.slice = (int16_t)q;
        if (q >= 0 && q < last && sizes_of(t, s)->states)
            touch(t, PP_BUF_STATES, s, -1, sizes_of(t, s)->states);
    }
    t->action = a;
}

static void touch_forward(struct touches *t)
{
    int s = t->action.stage;
    const struct pp_stage_node *n = &t->g->stages[s];
    const struct pp_stage_bytes *b = sizes_of(t, s);
    touch_act(t, PP_BUF_ACT_I, b->act_i);
    touch_act(t, PP_BUF_ACT_W, b->act_w);
    touch_earlier(t);
    touch_states(t, true);
    touch_host(t);
    touch_told(t);
    if (n->n_outputs > 0)
        touch(t, PP_BUF_OUTPUT, s, -1, b->output);
    for (int i = 0; i < n->n_inputs; i++) {
        int in = n->inputs[i];
        if (is_local(t, in))
            touch(t, PP_BUF_OUTPUT, in, -1, sizes_of(t, in)->output);
        else
            touch(t, PP_BUF_INPUT, s, in, input_bytes(t, s, in));
    }
    size_t terms = b->joint == PP_JOINT_ROW ? (size_t)n->n_inputs : 1;
    if (n->n_inputs > 1 && b->joint != PP_JOINT_PARTS)
        touch(t, PP_BUF_INPUT, s, s, terms * input_bytes(t, s, n->inputs[0]));
}

/* Touches the buffers of the action that consumes output gradients. */
static void touch_consumption(struct touches *t)
{
    int s = t->action.stage;
    const struct pp_stage_node *n = &t->g->stages[s];
    size_t bytes = sizes_of(t, s)->output;
    touch_act(t, PP_BUF_ACT_I, sizes_of(t, s)->act_i);
    for (int i = 0; i < n->n_outputs; i++) {
        int out = n->outputs[i];
        if (is_local(t, out))
            touch(t, PP_BUF_DINPUT, out, s, bytes);
        else
            touch(t, PP_BUF_DOUTPUT, s, out, bytes);
    }
    for (int i = 0; i < n->n_inputs; i++)
        if (pp_sends_gradient(t->g, n->inputs[i])) {
            touch(t, PP_BUF_DINPUT, s, n->inputs[i],
                  input_bytes(t, s, n->inputs[i]));
        }
}

/* Touches the gradients of keys and values to which later slices add: the
 * gradients of the slice, and in the first backward of the microbatch, which is
 * the last slice's, the gradients of all earlier slices. */
static void touch_slices(struct touches *t)
{
    int s = t->action.stage, last = t->g->slices.n - 1;
    struct pp_action a = t->action;
    for (int q = a.slice == last ? 0 : a.slice; q <= a.slice && q < last; q++) {
        t->action.slice = (int16_t)q;
        touch(t, PP_BUF_GRAD_KEYS, s, -1, sizes_of(t, s)->grad_keys);
    }
    t->action = a;
}

static void touch_backward(struct touches *t)
{
    int s = t->action.stage;
    bool consumes = pp_consumes_gradient(t->g, t->action);
    touch_host(t);
    touch_states(t, consumes);
    bool ends = pp_ends_backward(t->g, t->action);
    if (consumes) {
        touch_consumption(t);
        touch_slices(t);
    }
    if (consumes && ends)
        touch(t, PP_BUF_GRAD_LAYER, s, -1, sizes_of(t, s)->grad_layer);
    else if (consumes || t->action.op == PP_W)
        touch(t, PP_BUF_GRAD_W, s, -1, sizes_of(t, s)->grad_w);
    if (ends) {
        touch_act(t, PP_BUF_ACT_W, sizes_of(t, s)->act_w);
        touch_told(t);
    }
}

/* Activations live up to their OFFLOAD, and from their RELOAD on. */
static void touch_copy(struct touches *t)
{
    const struct pp_stage_bytes *b = sizes_of(t, t->action.stage);
    if (t->action.op == PP_RELOAD)
        *where_is(t, t->action) = IS_BACK;
    touch_act(t, PP_BUF_ACT_I, b->act_i);
    touch_act(t, PP_BUF_ACT_W, b->act_w);
}

/* Returns the number of UNSHARDs of a stage up to a place of the row. */
static int count_unshards(const struct pp_row *row, size_t place, int stage)
{
    int n = 0;
    for (size_t i = 0; i <= place && i < row->n; i++)
        n += row->actions[i].op == PP_UNSHARD && row->actions[i].stage == stage;
    return n;
}

static void touch_weights(struct touches *t)
{
    int s = t->action.stage, row = t->g->stages[s].row;
    t->action.microbatch = count_unshards(&t->s->rows[row], t->place, s) - 1;
    if (sizes_of(t, s)->weights)
        touch(t, PP_BUF_WEIGHTS, s, -1, sizes_of(t, s)->weights);
}

static void touch_action(struct touches *t)
{
    struct pp_action a = t->action;
    switch ((enum pp_op)a.op) {
    case PP_F:
        touch_forward(t);
        return;
    case PP_B:
    case PP_I:
    case PP_W:
        touch_backward(t);
        return;
    case PP_SEND_F:
        touch(t, PP_BUF_OUTPUT, a.stage, -1, sizes_of(t, a.stage)->output);
        return;
    case PP_RECV_F:
        touch(t, PP_BUF_INPUT, a.stage, a.peer,
              input_bytes(t, a.stage, a.peer));
        return;
    case PP_SEND_B:
        touch(t, PP_BUF_DINPUT, a.stage, a.peer,
              input_bytes(t, a.stage, a.peer));
        return;
    case PP_RECV_B:
        touch(t, PP_BUF_DOUTPUT, a.stage, a.peer, sizes_of(t, a.stage)->output);
        return;
    case PP_UNSHARD:
    case PP_RESHARD:
        touch_weights(t);
        return;
    case PP_OFFLOAD:
    case PP_RELOAD:
        touch_copy(t);
        return;
    default:
        return;
    }
}

static int compare_buffers(const void *pa, const void *pb)
{
    const struct pp_buffer *a = pa, *b = pb;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    if (a->slice != b->slice)
        return a->slice < b->slice ? -1 : 1;
    return (a->peer > b->peer) - (a->peer < b->peer);
}

/* Returns a key in the order of compare_buffers. */
static struct pp_sort_key key_of(const struct pp_buffer *b, size_t item)
{
    return (struct pp_sort_key){
        .high = (uint64_t)b->kind << 32 | (uint32_t)b->stage,
        .low = (uint64_t)(uint32_t)b->microbatch << 33 |
               (uint64_t)(uint16_t)b->slice << 17 | (uint32_t)(b->peer + 1),
        .item = item};
}

static bool same_keys(const struct pp_sort_key *a, const struct pp_sort_key *b)
{
    return a->high == b->high && a->low == b->low;
}

/* Returns the buffers that n touches are of, sorted, malloc'ed. */
static struct pp_buffer *fold_touches(const struct pp_buffer *t, size_t n,
                                      size_t *n_buffers)
{
    struct pp_sort_key *keys = pp_calloc(2 * n + 1, sizeof *keys);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(&t[i], i);
    pp_sort_keys(keys, keys + n, n);
    for (size_t i = 0; i < n; i++)
        kept += i == 0 || !same_keys(&keys[i], &keys[i - 1]);
    struct pp_buffer *b = pp_calloc(kept + 1, sizeof *b), *k = b;
    for (size_t i = 0; i < n; i++) {
        const struct pp_buffer *x = &t[keys[i].item];
        if (i == 0 || !same_keys(&keys[i], &keys[i - 1])) {
            k += i > 0;
            *k = *x;
        }
        k->first = x->first < k->first ? x->first : k->first;
        k->last = x->last > k->last ? x->last : k->last;
    }
    free(keys);
    *n_buffers = kept;
    return b;
}

/* --- rings --- */

struct send_ring {
    int row, backward;
    size_t bytes, n; /* largest message, and the number of messages */
};

static int compare_rings(const void *pa, const void *pb)
{
    const struct send_ring *a = pa, *b = pb;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->backward - b->backward;
}

/* Returns the *n channels that the row sends on, malloc'ed. */
static struct send_ring *list_rings(struct touches *t,
                                    const struct pp_row *list, size_t *n)
{
    struct send_ring *c = pp_calloc(list->n + 1, sizeof *c);
    size_t kept = 0;
    *n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        bool forward = a.op == PP_SEND_F;
        t->action = a;
        if (pp_is_send(a.op))
            c[(*n)++] =
                (struct send_ring){t->g->stages[a.peer].row, !forward,
                                   forward ? sizes_of(t, a.stage)->output
                                           : input_bytes(t, a.stage, a.peer),
                                   1};
    }
    qsort(c, *n, sizeof *c, compare_rings);
    for (size_t i = 0; i < *n; i++) {
        if (kept == 0 || compare_rings(&c[kept - 1], &c[i])) {
            c[kept++] = c[i];
            continue;
        }
        c[kept - 1].n++;
        if (c[i].bytes > c[kept - 1].bytes)
            c[kept - 1].bytes = c[i].bytes;
    }
    *n = kept;
    return c;
}

/* Touches the row's first and last place, for a buffer that lives for the whole
 * step. */
static void touch_both_ends(struct touches *t, const struct pp_row *list,
                            enum pp_buffer_kind kind, int stage, int peer,
                            size_t bytes)
{
    t->place = 0;
    touch(t, kind, stage, peer, bytes);
    t->place = list->n - 1;
    touch(t, kind, stage, peer, bytes);
}

static bool is_second(const struct pp_row *list, size_t place)
{
    return place > 0 && list->actions[place - 1].overlap;
}

/* Touches the buffers of an action. The two actions of an overlap pair run at
 * once, so neither may reuse memory that the other frees. A receive is posted
 * early. */
static void touch_place(struct touches *t, const struct pp_row *list,
                        size_t place)
{
    bool second = is_second(list, place);
    t->place = place;
    t->action = list->actions[place];
    touch_action(t);
    if (pp_is_recv(t->action.op))
        t->place = pp_posted_at(list, place);
    else if (second || t->action.overlap)
        t->place = second ? place - 1 : place + 1;
    if (t->place != place)
        touch_action(t);
}

/* Touches the rank's workspaces: one for all its stages, and a second one for
 * the forward of overlap pairs. */
static void touch_workspace(struct touches *t, const struct pp_row *list,
                            int row)
{
    size_t most = 0;
    for (int i = 0; i < t->g->n_stages * t->g->slices.n; i++)
        if (t->g->stages[i / t->g->slices.n].row == row &&
            t->sizes[i].workspace > most)
            most = t->sizes[i].workspace;
    t->action = (struct pp_action){.microbatch = 0};
    bool pairs = false;
    for (size_t i = 0; i < list->n; i++)
        pairs |= list->actions[i].overlap;
    for (int k = 0; most && k < (pairs ? 2 : 1); k++)
        touch_both_ends(t, list, PP_BUF_WORKSPACE, k, -1, most);
}

static void touch_rings(struct touches *t, const struct pp_row *list)
{
    size_t n, depth = (size_t)t->s->channel_depth;
    struct send_ring *c = list_rings(t, list, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < depth && k < c[i].n; k++) {
            t->action = (struct pp_action){.microbatch = (int32_t)k};
            touch_both_ends(t, list, PP_BUF_RING, c[i].row, c[i].backward,
                            c[i].bytes);
        }
    free(c);
}

/* Returns the most that is open at once: slots, or parts of microbatches. */
static int64_t find_peak(const struct pp_schedule *s, int row, bool slots,
                         size_t *place)
{
    const struct pp_row *list = &s->rows[row];
    const struct pp_slices *slices = &s->graph->slices;
    int64_t live = 0, peak = 0, forward = 0;
    bool trains = false;
    *place = list->n;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        int64_t own = slots ? 1 : pp_slice_own(slices, a.slice);
        live += (a.op == PP_RELOAD) - (a.op == PP_OFFLOAD);
        if (!pp_is_compute(a.op) && !pp_is_copy(a.op))
            continue;
        if (a.op == PP_F && own > forward)
            forward = own;
        if (a.op == PP_F && s->graph->stages[a.stage].has_backward)
            live += own;
        if (live > peak) {
            *place = i;
            peak = live;
        }
        bool ends = pp_is_compute(a.op) && pp_ends_backward(s->graph, a);
        trains |= ends;
        live -= ends ? own : 0;
    }
    return trains ? peak : forward;
}

double pp_row_peak(const struct pp_schedule *s, int row, size_t *place)
{
    const struct pp_slices *slices = &s->graph->slices;
    return (double)find_peak(s, row, false, place) /
           (double)pp_slice_parts(slices, slices->n);
}

int pp_row_slots(const struct pp_schedule *s, int row)
{
    size_t place;
    return (int)find_peak(s, row, true, &place);
}

static bool copies(const struct pp_row *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (pp_is_copy(list->actions[i].op))
            return true;
    return false;
}

static void note_copies(struct touches *t, const struct pp_row *list)
{
    t->where = pp_calloc((size_t)t->g->n_stages,
                         (size_t)t->s->n_microbatches * sizeof *t->where);
    for (size_t i = 0; i < list->n; i++)
        if (list->actions[i].op == PP_OFFLOAD)
            *where_is(t, list->actions[i]) = LEAVES;
}

/* Places the buffers of both arenas. */
static int place_all(struct pp_memory *m, struct pp_err *err)
{
    struct pp_memory host = {.buffers = m->buffers + m->n, .n = m->n_host};
    if (pp_memory_place(m, err) || (host.n && pp_memory_place(&host, err)))
        return -1;
    m->host_bytes = host.arena_bytes;
    return 0;
}

void pp_memory_buffers(const struct pp_schedule *s, int row,
                       const struct pp_stage_bytes *sizes, struct pp_memory *m)
{
    const struct pp_row *list = &s->rows[row];
    struct touches t = {.s = s, .g = s->graph, .sizes = sizes};
    if (copies(list))
        note_copies(&t, list);
    *m = (struct pp_memory){.peak_slots = pp_row_slots(s, row)};
    for (size_t place = 0; place < list->n; place++)
        touch_place(&t, list, place);
    if (list->n > 0) {
        touch_rings(&t, list);
        touch_workspace(&t, list, row);
    }
    free(t.where);
    m->buffers = fold_touches(t.at, t.n, &m->n);
    free(t.at);
    for (; m->n > 0 && m->buffers[m->n - 1].kind >= PP_BUF_HOST; m->n--)
        m->n_host++;
}

int pp_memory_plan(const struct pp_schedule *s, int row,
                   const struct pp_stage_bytes *sizes, struct pp_memory *m,
                   struct pp_err *err)
{
    pp_memory_buffers(s, row, sizes, m);
    int rc = place_all(m, err);
    if (rc)
        pp_memory_finish(m);
    return rc;
}

const struct pp_buffer *pp_memory_weights(const struct pp_memory *m,
                                          const struct pp_row *row,
                                          size_t place, int stage)
{
    return pp_memory_find(m, PP_BUF_WEIGHTS, stage,
                          count_unshards(row, place, stage) - 1, 0, -1);
}

const struct pp_buffer *pp_memory_find(const struct pp_memory *m,
                                       enum pp_buffer_kind kind, int stage,
                                       int microbatch, int slice, int peer)
{
    struct pp_buffer key = {.kind = kind,
                            .stage = stage,
                            .microbatch = microbatch,
                            .slice = slice,
                            .peer = peer};
    size_t n = m->n + m->n_host;
    return n ? bsearch(&key, m->buffers, n, sizeof key, compare_buffers) : NULL;
}

void pp_memory_finish(struct pp_memory *m)
{
    free(m->buffers);
    *m = (struct pp_memory){0};
}
