/* SPDX-License-Identifier: MIT */
/* --memory: whether every rank fits, and if not, which changes would make it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "ppsplit.h"

/* Numbers of ranks tried: every one is a plan of its own. */
enum { MAX_TRIES = 16, MAX_STAGES = 64 };

static double need(const struct split_job *j, int rank)
{
    return (double)j->ranks[rank].state_bytes +
           j->ranks[rank].activations_bytes;
}

static int fullest(const struct split_job *j)
{
    int rank = 0;
    for (int r = 1; r < j->graph.n_ranks; r++)
        if (need(j, r) > need(j, rank))
            rank = r;
    return rank;
}

static bool fits(const struct split_job *j)
{
    return need(j, fullest(j)) <= (double)j->memory_bytes;
}

/* The least number of ranks for which the same command fits; 0: none that was
 * tried, as where stages are so many that it would take long. */
static int64_t more_ranks(const struct split_job *j)
{
    bool found = false;
    int64_t n = j->n_ranks;
    if (j->method != SPLIT_BALANCED || j->rank_speed || !j->run.known)
        return 0;
    while (!found && ++n <= j->n_ranks + MAX_TRIES &&
           n * j->n_chunks <= MAX_STAGES &&
           n * j->n_chunks <= (int64_t)j->n_units) {
        struct split_job other = *j;
        other.n_ranks = n;
        other.arena = (struct pp_arena){0};
        other.run = (struct split_run){0};
        other.t.err = (struct pp_err){0};
        found = !split_plan(&other) && fits(&other);
        split_run_finish(&other.run);
        pp_arena_finish(&other.arena);
    }
    return found ? n : 0;
}

/* Data-parallel ranks that the two moments, half of what is trained, must be
 * spread over; 0: that alone is not enough. */
static int64_t moments_over(const struct split_job *j)
{
    double most = 1;
    for (int r = 0; r < j->graph.n_ranks; r++) {
        double half = (double)j->ranks[r].state_bytes / 2;
        double room =
            (double)j->memory_bytes - half - j->ranks[r].activations_bytes;
        if (room <= 0)
            return 0;
        most = half > room ? fmax(most, ceil(half / room)) : most;
    }
    return most < 1e6 ? (int64_t)most : 0;
}

/* Whether it is enough that a decoder layer keeps only its input, and makes
 * the rest again for its backward, one layer at a time. */
static bool recomputed(struct split_job *j)
{
    struct split_run *run = &j->run;
    struct pp_split_memory m;
    struct pp_err err = {0};
    double kept = split_message_bytes(j), largest = 0;
    bool enough = true;
    double(*bytes)[PP_N_UNIT_BYTES] =
        pp_arena_alloc(&j->arena, j->n_units, sizeof *bytes);
    for (size_t i = 0; bytes && i < j->n_units; i++) {
        split_unit_bytes(j, i, bytes[i]);
        double *b = bytes[i], all = b[PP_UNIT_ACT_I] + b[PP_UNIT_ACT_W];
        if (pp_model_unit(&j->model, i).kind != PP_UNIT_LAYER)
            continue;
        largest = all > largest ? all : largest;
        b[PP_UNIT_ACT_I] = 0;
        b[PP_UNIT_ACT_W] = kept;
    }
    if (!bytes || !run->known ||
        pp_split_memory_init(&m, &run->lowered,
                             (const double(*)[PP_N_UNIT_BYTES])bytes,
                             j->n_units, kept, &err))
        return false;
    for (int r = 0; r < run->graph.n_ranks; r++)
        enough &= pp_split_memory_need(&m, j->bounds, r) + largest <=
                  (double)j->memory_bytes;
    pp_split_memory_finish(&m);
    return enough;
}

/* ": it would fit with -p 6, or ...", or nothing. */
static void advise(struct split_job *j, char *buf, size_t bytes)
{
    char ranks[40] = "", recompute[40] = "", moments[80] = "";
    int64_t n;
    if (recomputed(j))
        snprintf(recompute, sizeof recompute, ", or recomputed activations");
    if ((n = moments_over(j)) > 1)
        snprintf(moments, sizeof moments,
                 ", or moments over %" PRId64 " data-parallel ranks (ZeRO-1)",
                 n);
    if ((n = more_ranks(j)) > 0)
        snprintf(ranks, sizeof ranks, ", or -p %" PRId64, n);
    n = snprintf(buf, bytes, "%s%s%s", recompute, moments, ranks);
    if (n == 0)
        snprintf(buf, bytes,
                 "; neither recomputing activations, nor ZeRO-1, "
                 "nor more ranks alone will do");
}

/* The stage of a rank that needs most. */
static int heaviest(const struct split_job *j, int rank)
{
    int most = -1;
    double bytes = -1;
    for (int s = 0; s < j->graph.n_stages; s++) {
        double b =
            (double)j->stages[s].state_bytes + j->stages[s].activations_bytes;
        if (j->graph.stages[s].rank == rank && b > bytes) {
            most = s;
            bytes = b;
        }
    }
    return most;
}

int split_check_memory(struct split_job *j)
{
    char text[3][32], advice[160];
    int rank = fullest(j);
    double most = need(j, rank), over = most - (double)j->memory_bytes;
    if (j->memory_bytes == 0 || fits(j))
        return 0;
    pp_format_size((size_t)most, text[0]);
    pp_format_size((size_t)over, text[1]);
    pp_format_size(j->memory_bytes, text[2]);
    advise(j, advice, sizeof advice);
    return pp_fail(&j->t.err, PP_EXIT_NO,
                   "rank %d needs %s, %s more than the limit of %s (%s %d; "
                   "%.0f bytes)%s%s",
                   rank, text[0], text[1], text[2],
                   j->graph.n_stages == j->graph.n_ranks ? "stage"
                                                         : "most in stage",
                   heaviest(j, rank), ceil(over),
                   *advice == ';' ? "" : ": it would fit with",
                   *advice == ';' ? advice : advice + strlen(", or"));
}
