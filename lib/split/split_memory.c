/* SPDX-License-Identifier: MIT */
#include "split/split_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { N_BLOCKS = PP_UNIT_TRAINED }; /* blocks with a lifetime */

/* The changes of one rank's counts before and after each place. */
struct moments {
    size_t n_places, width;
    int *change; /* (n_places, 2, width): buffers that begin and that end */
    unsigned *now;
    const int *place_of_stage; /* index among the rank's stages */
};

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
    default:
        return z->width - 1;
    }
}

static bool dominates(const unsigned *a, const unsigned *b, size_t width)
{
    for (size_t i = 0; i < width; i++)
        if (a[i] < b[i])
            return false;
    return true;
}

static int grow(void **at, size_t *capacity, size_t need, size_t element,
                struct pp_err *err)
{
    size_t n = *capacity ? *capacity : 64, bytes;
    if (need <= *capacity)
        return 0;
    while (n < need)
        n *= 2;
    if (pp_mul(n, element, &bytes, err))
        return -1;
    void *grown = realloc(*at, bytes);
    if (!grown)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    *at = grown;
    *capacity = n;
    return 0;
}

/* Keeps a moment unless it is dominated: another moment of the rank has at
 * least as many buffers of every kind. */
static int add_moment(struct pp_split_memory *m, size_t first_peak,
                      const struct moments *z, struct pp_err *err)
{
    for (size_t k = first_peak; k < m->n_peaks; k++) {
        unsigned *other = &m->counts[m->at[k]];
        if (dominates(other, z->now, z->width))
            return 0;
        if (dominates(z->now, other, z->width)) {
            memcpy(other, z->now, z->width * sizeof *other);
            return 0;
        }
    }
    if (grow((void **)&m->at, &m->peak_capacity, m->n_peaks + 1, sizeof *m->at,
             err) ||
        grow((void **)&m->counts, &m->count_capacity, m->n_counts + z->width,
             sizeof *m->counts, err))
        return -1;
    m->at[m->n_peaks++] = m->n_counts;
    memcpy(&m->counts[m->n_counts], z->now, z->width * sizeof *z->now);
    m->n_counts += z->width;
    return 0;
}

/* Adds the moments at which a buffer ends after another one began. Only these
 * can be peaks. */
static int add_moments(struct pp_split_memory *m, struct moments *z,
                       struct pp_err *err)
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
            if (add_moment(m, first_peak, z, err))
                return -1;
            grew = false;
        }
        for (size_t i = 0; i < z->width; i++)
            z->now[i] -= (unsigned)end[i];
    }
    return 0;
}

static int read_rank(struct pp_split_memory *m, const struct pp_schedule *s,
                     int rank, const struct pp_stage_bytes *ones,
                     const int *place_of_stage, struct pp_err *err)
{
    struct pp_memory plan;
    struct moments z = {.n_places = s->rows[rank].n,
                        .place_of_stage = place_of_stage};
    int n_stages = m->first_stage[rank + 1] - m->first_stage[rank];
    int rc = -1;
    if (pp_memory_plan(s, rank, ones, &plan, err))
        return -1;
    z.width = N_BLOCKS * (size_t)n_stages + 1;
    z.change = calloc(z.n_places + 1, 2 * z.width * sizeof *z.change);
    z.now = calloc(z.width, sizeof *z.now);
    if (!z.change || !z.now) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < plan.n; i++) {
        const struct pp_buffer *b = &plan.buffers[i];
        if (b->kind == PP_BUF_WORKSPACE) {
            m->n_workspaces[rank]++;
            continue;
        }
        size_t c = b->kind == PP_BUF_RING ? z.width - 1 : count_of(&z, b);
        z.change[2 * z.width * b->first + c]++;
        z.change[2 * z.width * b->last + z.width + c]++;
    }
    rc = add_moments(m, &z, err);
out:
    free(z.change);
    free(z.now);
    pp_memory_finish(&plan);
    return rc;
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

static int read_ranks(struct pp_split_memory *m, const struct pp_schedule *s,
                      struct pp_err *err)
{
    size_t n = (size_t)m->graph->n_stages;
    int rc = -1, *place = calloc(n, sizeof *place);
    struct pp_stage_bytes *ones = calloc(n, sizeof *ones);
    if (!place || !ones) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        ones[i] = (struct pp_stage_bytes){1, 1, 1, 1, 1};
    list_stages(m, place);
    rc = 0;
    for (int r = 0; r < m->graph->n_rows && !rc; r++) {
        m->first_peak[r] = m->n_peaks;
        rc = read_rank(m, s, r, ones, place, err);
    }
    m->first_peak[m->graph->n_rows] = m->n_peaks;
out:
    free(place);
    free(ones);
    return rc;
}

/* Fills the table of largest workspaces of 2^k units. Any range of units is the
 * union of two such ranges. */
static int read_workspace(struct pp_split_memory *m,
                          const double (*bytes)[PP_N_UNIT_BYTES],
                          struct pp_err *err)
{
    size_t n = m->n_units, levels = 1, size;
    bool any = false;
    free(m->workspace);
    m->workspace = NULL;
    for (size_t i = 0; i < n; i++)
        any |= bytes[i][PP_UNIT_PASSING] > 0;
    while (n >> levels)
        levels++;
    if (!any)
        return 0;
    if (pp_mul(n, levels, &size, err))
        return -1;
    m->workspace = calloc(size, sizeof *m->workspace);
    if (!m->workspace)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        m->workspace[i] = bytes[i][PP_UNIT_PASSING];
    for (size_t k = 1; k < levels; k++)
        for (size_t i = 0; i + ((size_t)1 << k) <= n; i++) {
            const double *half = &m->workspace[(k - 1) * n + i];
            m->workspace[k * n + i] = fmax(half[0], half[(size_t)1 << (k - 1)]);
        }
    return 0;
}

static double largest_workspace(const struct pp_split_memory *m, size_t first,
                                size_t end)
{
    size_t k = 0;
    if (!m->workspace || first >= end)
        return 0;
    while ((end - first) >> (k + 1))
        k++;
    const double *run = &m->workspace[k * m->n_units];
    return fmax(run[first], run[end - ((size_t)1 << k)]);
}

int pp_split_memory_set(struct pp_split_memory *m,
                        const double (*bytes)[PP_N_UNIT_BYTES],
                        struct pp_err *err)
{
    for (size_t i = 0; i < m->n_units; i++)
        for (size_t k = 0; k < PP_N_UNIT_BYTES; k++)
            m->before[i + 1][k] = m->before[i][k] + bytes[i][k];
    return read_workspace(m, bytes, err);
}

int pp_split_memory_init(struct pp_split_memory *m, const struct pp_schedule *s,
                         const double (*bytes)[PP_N_UNIT_BYTES], size_t n_units,
                         double message_bytes, struct pp_err *err)
{
    size_t ranks = (size_t)s->graph->n_rows;
    *m = (struct pp_split_memory){
        .graph = s->graph, .n_units = n_units, .message_bytes = message_bytes};
    m->before = calloc(n_units + 1, sizeof *m->before);
    m->first_stage = calloc(ranks + 1, sizeof *m->first_stage);
    m->stages = calloc((size_t)s->graph->n_stages, sizeof *m->stages);
    m->first_peak = calloc(ranks + 1, sizeof *m->first_peak);
    m->n_workspaces = calloc(ranks, sizeof *m->n_workspaces);
    if (!m->before || !m->first_stage || !m->stages || !m->first_peak ||
        !m->n_workspaces) {
        pp_split_memory_finish(m);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    int rc =
        read_ranks(m, s, err) || pp_split_memory_set(m, bytes, err) ? -1 : 0;
    if (rc)
        pp_split_memory_finish(m);
    return rc;
}

static double add_up(const struct pp_split_memory *m, const size_t *bounds,
                     int n_decided, int rank, double message_bytes)
{
    int first = m->first_stage[rank], n = m->first_stage[rank + 1] - first;
    double trained = 0, workspace = 0, most = 0;
    for (int i = 0; i < n; i++) {
        int s = pp_original(m->graph, m->stages[first + i]);
        if (s >= n_decided)
            continue;
        trained += m->before[bounds[s + 1]][PP_UNIT_TRAINED] -
                   m->before[bounds[s]][PP_UNIT_TRAINED];
        workspace =
            fmax(workspace, largest_workspace(m, bounds[s], bounds[s + 1]));
    }
    for (size_t k = m->first_peak[rank]; k < m->first_peak[rank + 1]; k++) {
        const unsigned *count = &m->counts[m->at[k]];
        double sum = 0;
        for (int i = 0; i < n; i++, count += N_BLOCKS) {
            int s = pp_original(m->graph, m->stages[first + i]);
            if (s >= n_decided)
                continue;
            const double *from = m->before[bounds[s]];
            const double *to = m->before[bounds[s + 1]];
            for (int b = 0; b < N_BLOCKS; b++)
                sum += count[b] * (to[b] - from[b]);
        }
        sum += *count * message_bytes;
        most = sum > most ? sum : most;
    }
    return trained + m->n_workspaces[rank] * workspace + most;
}

double pp_split_memory_least(const struct pp_split_memory *m,
                             const size_t *bounds, int n_decided, int rank)
{
    return add_up(m, bounds, n_decided, rank, m->message_bytes);
}

double pp_split_memory_need(const struct pp_split_memory *m,
                            const size_t *bounds, int rank)
{
    return add_up(m, bounds, m->graph->n_stages, rank, m->message_bytes);
}

double pp_split_memory_held(const struct pp_split_memory *m,
                            const size_t *bounds, int rank)
{
    return add_up(m, bounds, m->graph->n_stages, rank, 0);
}

double pp_split_memory_excess(const struct pp_split_memory *m,
                              const size_t *bounds, const double *limit,
                              int *rank, double *total)
{
    double most = 0, sum = 0;
    for (int r = 0; r < m->graph->n_rows; r++) {
        double excess = pp_split_memory_need(m, bounds, r) - limit[r];
        if (excess <= 0)
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
    free(m->workspace);
    free(m->first_stage);
    free(m->stages);
    free(m->first_peak);
    free(m->n_workspaces);
    free(m->at);
    free(m->counts);
    *m = (struct pp_split_memory){0};
}
