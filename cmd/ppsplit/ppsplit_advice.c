/* SPDX-License-Identifier: MIT */
/* --memory: whether every rank fits, and if not, which changes would make it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "model/cost.h"
#include "ppsplit.h"

/* Numbers of ranks tried: every one is a plan of its own. */
enum { MAX_TRIES = 16, MAX_STAGES = 64 };

static double need(const struct split_job *j, int rank)
{
    return j->ranks[rank].state_bytes + j->ranks[rank].activations_bytes;
}

static int fullest(const struct split_job *j)
{
    int rank = 0;
    for (int r = 1; r < j->graph.n_rows; r++)
        if (need(j, r) > need(j, rank))
            rank = r;
    return rank;
}

bool split_fits_memory(const struct split_job *j)
{
    return need(j, fullest(j)) <= (double)j->memory_bytes;
}

/* Whether the same command fits with so many ranks, data-parallel ones, and
 * that recomputation. */
static bool would_fit(const struct split_job *j, int64_t n_ranks, int dp,
                      enum pp_recompute r)
{
    struct split_job other = *j;
    other.n_ranks = n_ranks;
    other.mesh.dp = dp;
    if (!split_by_stage(j) || r != j->recompute) {
        other.recompute = r;
        other.recompute_list = NULL;
        other.recompute_auto = false;
    }
    other.modes = NULL;
    other.fit_only = true;
    if (j->automatic) { /* what fits for a named kind fits for auto */
        other.automatic = false;
        other.kind = j->run.kind->name;
    }
    other.arena = (struct pp_arena){0};
    other.run = (struct split_run){0};
    other.t.err = (struct pp_err){0};
    bool yes = !split_plan(&other) && split_fits_memory(&other);
    split_run_finish(&other.run);
    pp_arena_finish(&other.arena);
    return yes;
}

/* The least number of ranks for which the same command fits; 0: none that was
 * tried, as where stages are so many that it would take long. */
static int64_t more_ranks(const struct split_job *j)
{
    int64_t n = j->n_ranks;
    if (j->method != SPLIT_BALANCED || j->rank_speed || j->recompute_list ||
        !j->run.known)
        return 0;
    while (++n <= j->n_ranks + MAX_TRIES && n * j->n_chunks <= MAX_STAGES &&
           n * j->n_chunks <= (int64_t)j->n_units)
        if (would_fit(j, n, j->mesh.dp, j->recompute))
            return n;
    return 0;
}

/* Whether this split fits where so many data-parallel ranks share the
 * optimizer's state. */
static bool fits_over(const struct split_job *j, int dp)
{
    struct split_job other = *j;
    other.mesh.dp = dp;
    for (int r = 0; r < j->graph.n_rows; r++) {
        double bytes = j->ranks[r].activations_bytes;
        for (int s = 0; s < j->graph.n_stages; s++)
            for (size_t i = split_first(j, s); i < split_end(j, s); i++)
                if (j->graph.stages[s].row == r)
                    bytes += split_state_bytes(&other, i);
        if (bytes > (double)j->memory_bytes)
            return false;
    }
    return true;
}

/* The least number of data-parallel ranks, more than there are, with which the
 * same command fits (ZeRO-1); 0: that alone is not enough. Another split may do
 * with fewer than this one. */
static int more_replicas(const struct split_job *j)
{
    enum { MOST = 1 << 16 };
    int low = 1, high = MOST / j->mesh.dp;
    if (high < 2 || !fits_over(j, high * j->mesh.dp))
        return 0;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (fits_over(j, middle * j->mesh.dp))
            high = middle;
        else
            low = middle;
    }
    if (j->method == SPLIT_BALANCED && j->graph.n_stages <= MAX_STAGES)
        for (low = 1; high - low > 1;) {
            int middle = low + (high - low) / 2;
            if (would_fit(j, j->n_ranks, middle * j->mesh.dp, j->recompute))
                high = middle;
            else
                low = middle;
        }
    return high * j->mesh.dp;
}

/* The least recomputation for which the same command fits; NULL: none. */
static const char *more_recompute(const struct split_job *j)
{
    bool any = j->run.known && !j->recompute_auto; /* which has tried all */
    for (int r = (int)j->recompute + 1; any && r < PP_N_RECOMPUTES; r++)
        if (would_fit(j, j->n_ranks, j->mesh.dp, (enum pp_recompute)r))
            return pp_recompute_names[r];
    return NULL;
}

/* ": it would fit with -p 6, or ...", or nothing. */
static void advise(struct split_job *j, char *buf, size_t bytes)
{
    char ranks[40] = "", recompute[40] = "", moments[80] = "";
    int64_t n;
    const char *mode = more_recompute(j);
    if (mode)
        snprintf(recompute, sizeof recompute, ", or --recompute %s", mode);
    if ((n = more_replicas(j)) > 1)
        snprintf(moments, sizeof moments, ", or --dp %" PRId64 " (ZeRO-1)", n);
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
        double b = j->stages[s].state_bytes + j->stages[s].activations_bytes;
        if (j->graph.stages[s].row == rank && b > bytes) {
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
    if (j->memory_bytes == 0 || split_fits_memory(j))
        return 0;
    pp_format_size((size_t)most, text[0]);
    pp_format_size((size_t)over, text[1]);
    pp_format_size(j->memory_bytes, text[2]);
    advise(j, advice, sizeof advice);
    return pp_fail(&j->t.err, PP_EXIT_NO,
                   "rank %d needs %s, %s more than the limit of %s (%s %d; "
                   "%.0f bytes)%s%s",
                   rank, text[0], text[1], text[2],
                   j->graph.n_stages == j->graph.n_rows ? "stage"
                                                        : "most in stage",
                   heaviest(j, rank), ceil(over),
                   *advice == ';' ? "" : ": it would fit with",
                   *advice == ';' ? advice : advice + strlen(", or"));
}
