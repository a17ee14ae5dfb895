/* SPDX-License-Identifier: MIT */
/* memory - the peak memory of a rank as a function of its units: from the
 * events of the schedule to counts of live buffers, and from these to bytes. It
 * is one file because all parts share the layout of the counts. */
#include "split/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { N_BLOCKS = PP_UNIT_TRAINED }; /* blocks with a lifetime */

/* The changes of one rank's counts before and after each place. */
struct moments {
    size_t n_places, width;
    int *change; /* (n_places, 2, width): buffers that begin and that end */
    unsigned *now;
    const int *place_of_stage; /* index among the rank's stages */
    int n_stages;              /* on the rank */
    bool equal_messages;
};

/* Returns the boundary of one copy that a message crosses. */
static int crossing_of(const struct pp_graph *g, int sender)
{
    return pp_original(g, sender) + 1;
}

/* Returns the index of the count that a message belongs to. It is the output of
 * a stage of the rank, or of a stage before one of these. */
static size_t count_of_message(const struct moments *z,
                               const struct pp_buffer *b)
{
    bool own = b->kind == PP_BUF_OUTPUT || b->kind == PP_BUF_DOUTPUT;
    size_t base = N_BLOCKS * (size_t)z->n_stages;
    if (z->equal_messages)
        return base;
    /* The output of a stage that is followed by a stage of the same rank is
     * counted in two places, which add up. */
    size_t place = (size_t)z->place_of_stage[b->stage];
    return base + (own ? (size_t)z->n_stages : 0) + place;
}

/* Returns the index of the count that a buffer belongs to. */
static size_t count_of(const struct moments *z, const struct pp_buffer *b)
{
    size_t place = (size_t)z->place_of_stage[b->stage] * N_BLOCKS;
    switch (b->kind) {
    case PP_BUF_ACT_I:
        return place + PP_UNIT_ACT_I;
    case PP_BUF_ACT_W:
        return place + PP_UNIT_ACT_W;
    case PP_BUF_GRAD_W:
        return place + PP_UNIT_GRAD_W;
    case PP_BUF_GRAD_KEYS:
        return place + PP_UNIT_GRAD_KEYS;
    case PP_BUF_STATES:
        return place + PP_UNIT_STATES;
    case PP_BUF_GRAD_LAYER:
        return place + PP_UNIT_GRAD_LAYER;
    case PP_BUF_WEIGHTS:
        return place + PP_UNIT_WHOLE;
    default:
        return count_of_message(z, b);
    }
}

static bool dominates(const unsigned *a, const unsigned *b, size_t width)
{
    for (size_t i = 0; i < width; i++)
        if (a[i] < b[i])
            return false;
    return true;
}

/* Keeps a moment unless it is dominated: another moment of the rank has at
 * least as many buffers of every kind. */
static void add_moment(struct pp_split_memory *m, size_t first_peak,
                       const struct moments *z)
{
    for (size_t k = first_peak; k < m->n_peaks; k++) {
        unsigned *other = &m->counts[m->at[k]];
        if (dominates(other, z->now, z->width))
            return;
        if (dominates(z->now, other, z->width)) {
            memcpy(other, z->now, z->width * sizeof *other);
            return;
        }
    }
    pp_array_reserve(&m->at, &m->peak_capacity, m->n_peaks + 1, sizeof *m->at);
    pp_array_reserve(&m->counts, &m->count_capacity, m->n_counts + z->width,
                     sizeof *m->counts);
    m->at[m->n_peaks++] = m->n_counts;
    memcpy(&m->counts[m->n_counts], z->now, z->width * sizeof *z->now);
    m->n_counts += z->width;
}

/* Adds the moments at which a buffer ends after another one began. Only these
 * can be peaks. */
static void add_moments(struct pp_split_memory *m, struct moments *z)
{
    size_t first_peak = m->n_peaks;
    bool grew = false;
    for (size_t place = 0; place < z->n_places; place++) {
        const int *begin = &z->change[2 * z->width * place];
        const int *end = begin + z->width;
        bool ends = place + 1 == z->n_places;
        for (size_t i = 0; i < z->width; i++) {
            z->now[i] += (unsigned)begin[i];
            grew |= begin[i] > 0;
            ends |= end[i] > 0;
        }
        if (ends && grew) {
            add_moment(m, first_peak, z);
            grew = false;
        }
        for (size_t i = 0; i < z->width; i++)
            z->now[i] -= (unsigned)end[i];
    }
}

/* Adds a ring with the boundaries that its messages cross. */
static void add_ring(struct pp_split_memory *m, const struct pp_schedule *s,
                     int rank, const struct pp_buffer *b)
{
    const struct pp_row *row = &s->rows[rank];
    struct pp_split_ring ring = {b->stage, b->peer, 1, m->n_crossings,
                                 m->n_crossings};
    enum pp_op op = b->peer ? PP_SEND_B : PP_SEND_F;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        bool known = false;
        if (a.op != op || m->graph->stages[a.peer].row != b->stage)
            continue;
        int at = crossing_of(m->graph, op == PP_SEND_F ? a.stage : a.peer);
        for (size_t k = ring.first; k < ring.end; k++)
            known |= m->crossings[k] == at;
        if (known)
            continue;
        pp_array_reserve(&m->crossings, &m->crossing_capacity, ring.end + 1,
                         sizeof *m->crossings);
        m->crossings[ring.end++] = at;
    }
    pp_array_reserve(&m->rings, &m->ring_capacity, m->n_rings + 1,
                     sizeof *m->rings);
    m->n_crossings = ring.end;
    m->rings[m->n_rings++] = ring;
}

/* Counts a buffer of a ring. */
static void count_ring(struct pp_split_memory *m, const struct pp_schedule *s,
                       int rank, const struct pp_buffer *b)
{
    for (size_t i = m->first_ring[rank]; i < m->n_rings; i++) {
        struct pp_split_ring *ring = &m->rings[i];
        if (ring->to == b->stage && ring->backward == b->peer) {
            ring->n++;
            return;
        }
    }
    add_ring(m, s, rank, b);
}

/* Returns the number of counts of a peak. */
static size_t n_counts_of(const struct pp_split_memory *m, int rank)
{
    size_t n = (size_t)(m->first_stage[rank + 1] - m->first_stage[rank]);
    return N_BLOCKS * n + (m->equal_messages ? 1 : 2 * n);
}

static void read_rank(struct pp_split_memory *m, const struct pp_schedule *s,
                      int rank, const struct pp_stage_bytes *ones,
                      const int *place_of_stage)
{
    size_t width = n_counts_of(m, rank), n_places = s->rows[rank].n;
    struct pp_memory plan;
    struct moments z = {
        .n_places = n_places,
        .width = width,
        .change = pp_calloc(n_places + 1, 2 * width * sizeof *z.change),
        .now = pp_calloc(width, sizeof *z.now),
        .place_of_stage = place_of_stage,
        .n_stages = m->first_stage[rank + 1] - m->first_stage[rank],
        .equal_messages = m->equal_messages};
    pp_memory_buffers(s, rank, ones, &plan);
    for (size_t i = 0; i < plan.n; i++) {
        const struct pp_buffer *b = &plan.buffers[i];
        if (b->kind == PP_BUF_WORKSPACE) {
            m->n_workspaces[rank]++;
            continue;
        }
        if (b->kind == PP_BUF_RING && !m->equal_messages) {
            count_ring(m, s, rank, b);
            continue;
        }
        size_t c = b->kind == PP_BUF_RING ? width - 1 : count_of(&z, b);
        z.change[2 * width * b->first + c]++;
        z.change[2 * width * b->last + width + c]++;
    }
    add_moments(m, &z);
    free(z.change);
    free(z.now);
    pp_memory_finish(&plan);
}

/* Lists the stages of each rank, and each stage's index in that list. */
static void list_stages(struct pp_split_memory *m, int *place)
{
    int n = 0;
    for (int r = 0; r < m->graph->n_rows; r++) {
        m->first_stage[r] = n;
        for (int s = 0; s < m->graph->n_stages; s++)
            if (m->graph->stages[s].row == r) {
                place[s] = n - m->first_stage[r];
                m->stages[n++] = s;
            }
    }
    m->first_stage[m->graph->n_rows] = n;
}

static void read_ranks(struct pp_split_memory *m, const struct pp_schedule *s)
{
    size_t n = (size_t)(m->graph->n_stages * m->graph->slices.n);
    int *place = pp_calloc(n, sizeof *place);
    struct pp_stage_bytes *ones = pp_calloc(n, sizeof *ones);
    for (size_t i = 0; i < n; i++)
        ones[i] = (struct pp_stage_bytes){.act_i = 1,
                                          .act_w = 1,
                                          .grad_w = 1,
                                          .output = 1,
                                          .grad_layer = 1,
                                          .grad_keys = 1,
                                          .states = 1,
                                          .workspace = 1,
                                          .weights = 1};
    list_stages(m, place);
    for (int r = 0; r < m->graph->n_rows; r++) {
        m->first_peak[r] = m->n_peaks;
        m->first_ring[r] = m->n_rings;
        read_rank(m, s, r, ones, place);
    }
    m->first_peak[m->graph->n_rows] = m->n_peaks;
    m->first_ring[m->graph->n_rows] = m->n_rings;
    free(place);
    free(ones);
}

/* Fills the table of the largest of 2^k units. Any range of units is the union
 * of two such ranges. */
static void read_largest(struct pp_split_memory *m, int kind,
                         const double (*bytes)[PP_N_UNIT_BYTES])
{
    size_t n = m->n_units, levels = 1;
    bool any = false;
    free(m->largest[kind]);
    m->largest[kind] = NULL;
    for (size_t i = 0; i < n; i++)
        any |= bytes[i][kind] > 0;
    while (n >> levels)
        levels++;
    if (!any)
        return;
    double *at = m->largest[kind] = pp_calloc(levels, n * sizeof *at);
    for (size_t i = 0; i < n; i++)
        at[i] = bytes[i][kind];
    for (size_t k = 1; k < levels; k++)
        for (size_t i = 0; i + ((size_t)1 << k) <= n; i++) {
            const double *half = &at[(k - 1) * n + i];
            at[k * n + i] = fmax(half[0], half[(size_t)1 << (k - 1)]);
        }
}

static double larger(double a, double b)
{
    return a > b ? a : b; /* fmax is a call */
}

static double largest_of(const struct pp_split_memory *m, int kind,
                         size_t first, size_t end)
{
    size_t k = 0;
    if (!m->largest[kind] || first >= end)
        return 0;
    while ((end - first) >> (k + 1))
        k++;
    const double *run = &m->largest[kind][k * m->n_units];
    return larger(run[first], run[end - ((size_t)1 << k)]);
}

void pp_split_memory_set(struct pp_split_memory *m,
                         const double (*bytes)[PP_N_UNIT_BYTES])
{
    for (size_t i = 0; i < m->n_units; i++)
        for (size_t k = 0; k < PP_N_UNIT_BYTES; k++)
            m->before[i + 1][k] = m->before[i][k] + bytes[i][k];
    for (int k = 0; k < PP_N_UNIT_BYTES; k++)
        if (pp_unit_shares(k))
            read_largest(m, k, bytes);
}

static void set_messages(struct pp_split_memory *m, const double *bytes)
{
    m->equal_messages = true;
    m->least_message = m->n_units > 1 ? ceil(bytes[0]) : 0;
    for (size_t i = 0; i + 1 < m->n_units; i++) {
        m->message_bytes[i] = ceil(bytes[i]);
        m->equal_messages &= m->message_bytes[i] == m->message_bytes[0];
        m->least_message = fmin(m->least_message, m->message_bytes[i]);
    }
}

void pp_split_memory_init(struct pp_split_memory *m,
                          const struct pp_schedule *s,
                          const double (*bytes)[PP_N_UNIT_BYTES],
                          size_t n_units, const double *message_bytes)
{
    size_t ranks = (size_t)s->graph->n_rows;
    *m = (struct pp_split_memory){.graph = s->graph, .n_units = n_units};
    m->before = pp_calloc(n_units + 1, sizeof *m->before);
    m->first_stage = pp_calloc(ranks + 1, sizeof *m->first_stage);
    m->stages = pp_calloc((size_t)s->graph->n_stages, sizeof *m->stages);
    m->first_peak = pp_calloc(ranks + 1, sizeof *m->first_peak);
    m->first_ring = pp_calloc(ranks + 1, sizeof *m->first_ring);
    m->n_workspaces = pp_calloc(ranks, sizeof *m->n_workspaces);
    m->message_bytes = pp_calloc(n_units, sizeof *m->message_bytes);
    m->sizes = pp_calloc((N_BLOCKS + 2) * (size_t)s->graph->n_stages + 1,
                         sizeof *m->sizes);
    set_messages(m, message_bytes);
    read_ranks(m, s);
    pp_split_memory_set(m, bytes);
}

/* A partition as far as it is decided. Boundaries other than the first n_sized
 * have a small message. */
struct partition {
    const size_t *bounds;
    int n_decided; /* stages */
    int n_sized;
    bool messages; /* false: messages have no bytes */
};

/* Returns the bytes of a message over a boundary of one copy. */
static double message_over(const struct pp_split_memory *m,
                           const struct partition *x, int boundary)
{
    if (!x->messages)
        return 0;
    if (m->equal_messages || boundary >= x->n_sized)
        return m->least_message;
    size_t unit = x->bounds[boundary];
    return unit == 0 || unit == m->n_units ? 0 : m->message_bytes[unit - 1];
}

/* Returns the bytes of the rank's rings. */
static double add_rings(const struct pp_split_memory *m,
                        const struct partition *x, int rank)
{
    double sum = 0;
    for (size_t i = m->first_ring[rank]; i < m->first_ring[rank + 1]; i++) {
        const struct pp_split_ring *ring = &m->rings[i];
        double most = 0;
        for (size_t k = ring->first; k < ring->end; k++)
            most = larger(most, message_over(m, x, m->crossings[k]));
        sum += ring->n * most;
    }
    return sum;
}

/* Fills the bytes of what a peak of the rank counts. Returns how many there
 * are. */
static size_t fill_sizes(const struct pp_split_memory *m,
                         const struct partition *x, int rank)
{
    const int *stages = &m->stages[m->first_stage[rank]];
    size_t n = (size_t)(m->first_stage[rank + 1] - m->first_stage[rank]);
    double *size = m->sizes;
    for (size_t i = 0; i < n; i++, size += N_BLOCKS) {
        int s = pp_original(m->graph, stages[i]);
        bool known = s < x->n_decided;
        size_t first = x->bounds[known ? s : 0];
        size_t end = x->bounds[known ? s + 1 : 0];
        for (int b = 0; b < N_BLOCKS; b++)
            size[b] = m->before[end][b] - m->before[first][b];
        size[PP_UNIT_GRAD_LAYER] =
            largest_of(m, PP_UNIT_GRAD_LAYER, first, end);
    }
    if (m->equal_messages)
        *size++ = message_over(m, x, 0);
    for (size_t i = 0; i < n && !m->equal_messages; i++) {
        int s = pp_original(m->graph, stages[i]);
        size[i] = message_over(m, x, s);
        size[n + i] = message_over(m, x, s + 1);
    }
    return n_counts_of(m, rank);
}

/* Returns the bytes of a peak. */
static double add_peak(const double *size, const unsigned *count, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += count[i] * size[i];
    return sum;
}

static double add_up(const struct pp_split_memory *m, const struct partition *x,
                     int rank)
{
    int first = m->first_stage[rank], n = m->first_stage[rank + 1] - first;
    double trained = 0, workspace = 0, most = 0;
    for (int i = 0; i < n; i++) {
        int s = pp_original(m->graph, m->stages[first + i]);
        if (s >= x->n_decided)
            continue;
        const size_t *at = &x->bounds[s];
        trained += m->before[at[1]][PP_UNIT_TRAINED] -
                   m->before[at[0]][PP_UNIT_TRAINED];
        workspace =
            larger(workspace, largest_of(m, PP_UNIT_WORKSPACE, at[0], at[1]));
    }
    size_t width = fill_sizes(m, x, rank);
    for (size_t k = m->first_peak[rank]; k < m->first_peak[rank + 1]; k++)
        most = larger(most, add_peak(m->sizes, &m->counts[m->at[k]], width));
    return trained + m->n_workspaces[rank] * workspace + most +
           add_rings(m, x, rank);
}

double pp_split_memory_least(const struct pp_split_memory *m,
                             const size_t *bounds, int n_decided, int rank)
{
    const struct partition x = {bounds, n_decided, n_decided, true};
    return add_up(m, &x, rank);
}

double pp_split_memory_small(const struct pp_split_memory *m,
                             const size_t *bounds, int rank)
{
    const struct partition x = {bounds, m->graph->n_stages, 0, true};
    return add_up(m, &x, rank);
}

double pp_split_memory_need(const struct pp_split_memory *m,
                            const size_t *bounds, int rank)
{
    int n = m->graph->n_stages;
    const struct partition x = {bounds, n, n, true};
    return add_up(m, &x, rank);
}

double pp_split_memory_held(const struct pp_split_memory *m,
                            const size_t *bounds, int rank)
{
    const struct partition x = {bounds, m->graph->n_stages, 0, false};
    return add_up(m, &x, rank);
}

double pp_split_memory_excess(const struct pp_split_memory *m,
                              const size_t *bounds, const double *limit,
                              int *rank, double *total)
{
    double most = 0, sum = 0;
    for (int r = 0; r < m->graph->n_rows; r++) {
        double need = pp_split_memory_need(m, bounds, r);
        double excess = need - limit[r];
        if (!pp_split_memory_over(need, limit[r]))
            continue;
        sum += excess;
        if (excess > most) {
            most = excess;
            if (rank)
                *rank = r;
        }
    }
    if (total)
        *total = sum;
    return most;
}

void pp_split_memory_finish(struct pp_split_memory *m)
{
    free(m->before);
    for (int k = 0; k < PP_N_UNIT_BYTES; k++)
        free(m->largest[k]);
    free(m->first_stage);
    free(m->stages);
    free(m->first_peak);
    free(m->n_workspaces);
    free(m->message_bytes);
    free(m->first_ring);
    free(m->rings);
    free(m->crossings);
    free(m->at);
    free(m->counts);
    free(m->sizes);
    *m = (struct pp_split_memory){0};
}
