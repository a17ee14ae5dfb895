/* SPDX-License-Identifier: MIT */
/* memory - the memory that every rank will allocate, and the process for
 * its ranks, before they do. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/memory_available.h"
#include "base/num.h"
#include "comm/sets.h"
#include "cost/step.h"
#include "runner/runner.h"
#include "schedule/memory/memory.h"

/* The sizes of the largest microbatch that a plan is for. */
struct planned_sizes {
    int64_t tokens, seq_len;
};

/* Returns the sizes of the plan, or none if it assumes no microbatch. */
static struct planned_sizes planned_sizes(const struct pp_manifest *m)
{
    struct planned_sizes none = {INT64_MAX, INT64_MAX};
    if (m->has_data)
        return (struct planned_sizes){m->data.max_tokens, m->data.max_tokens};
    return m->has_microbatch ? (struct planned_sizes){m->microbatch.tokens,
                                                      m->microbatch.seq_len}
                             : none;
}

/* Copies a set of data, with no larger bins and sequences than planned. Returns
 * whether some are larger. */
static bool limit_bins(struct planned_sizes most, int cp,
                       const struct pp_packed *data, struct pp_packed *out)
{
    uint32_t room = pp_packed_room(data, cp);
    *out = *data;
    if (most.tokens >= room && most.seq_len >= data->max_seqlen)
        return false;
    out->cp = 0;
    out->max_tokens = most.tokens < room ? (uint32_t)most.tokens : room;
    if (out->max_tokens < data->capacity)
        out->capacity = out->max_tokens;
    if (most.seq_len < data->max_seqlen)
        out->max_seqlen = (uint32_t)most.seq_len;
    return true;
}

/* Returns the directory of the data, as open_packed chose it. */
static const char *data_dir(const struct runner *p)
{
    const struct runner_options *o = &p->options;
    const char *planned = p->manifest.has_data ? p->manifest.data.path : NULL;
    return o->data ? o->data : planned ? planned : o->eval;
}

/* Notes that data are larger than planned, and how much more memory a rank
 * needs. */
static void say_larger(struct runner *p, int rank, size_t need, size_t planned)
{
    const struct planned_sizes most = planned_sizes(&p->manifest);
    const struct pp_packed *data = p->job.data;
    const char *dir = data_dir(p);
    struct pp_packed limited;
    char texts[2][32];
    int cp = p->manifest.mesh.cp;
    bool trained = limit_bins(most, cp, data, &limited);
    if (!trained) {
        data = p->job.eval;
        dir = p->options.eval;
    }
    uint32_t room = pp_packed_room(data, cp);
    bool more = room > most.tokens;
    pp_format_size(need, texts[0]);
    pp_format_size(planned, texts[1]);
    tool_say(
        p->tool, TOOL_NOTE,
        "%s: %s have up to %" PRIu32 " tokens, but the plan is for %" PRId64
        ": rank %d needs %s instead of %s; %s%s",
        dir, more ? "microbatches" : "sequences",
        more ? room : data->max_seqlen, more ? most.tokens : most.seq_len, rank,
        texts[0], texts[1],
        trained ? "plan with ppsched --data " : "pack it with a smaller -l",
        trained ? dir : "");
}

/* Compares the memory of the fullest rank with the memory for data as planned.
 */
static int compare_planned(struct runner *p, int rank, size_t need)
{
    const struct planned_sizes most = planned_sizes(&p->manifest);
    struct pp_job job = p->job;
    const struct pp_packed **sets[] = {&job.data, &job.eval};
    struct pp_packed limited[2];
    struct pp_rank_memory planned;
    bool larger = false;
    if (p->options.verify || p->job.generate.n) /* they make other bins */
        return 0;
    for (int i = 0; i < 2; i++)
        if (*sets[i]) {
            larger |= limit_bins(most, job.mesh.cp, *sets[i], &limited[i]);
            *sets[i] = &limited[i];
        }
    if (!larger)
        return 0;
    if (pp_job_memory(&job, rank, &planned, &p->tool->err))
        return -1;
    if (pp_rank_total(&planned.bytes) < need)
        say_larger(p, rank, need, pp_rank_total(&planned.bytes));
    return 0;
}

static int check_memory(struct runner *p, int rank,
                        const struct pp_rank_memory *m)
{
    const struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    char need[32], limit[32];
    if (o->slots && m->slots > o->slots)
        return pp_fail(err, PP_EXIT_NO,
                       "rank %d keeps %d %s alive, but --max-in-flight allows "
                       "%d",
                       rank, m->slots, runner_slots(p->job.schedule->graph),
                       o->slots);
    if (!o->memory || pp_rank_total(&m->bytes) <= o->memory)
        return 0;
    pp_format_size(pp_rank_total(&m->bytes), need);
    pp_format_size(o->memory, limit);
    return pp_fail(err, PP_EXIT_NO, "rank %d needs %s, but --memory allows %s",
                   rank, need, limit);
}

static void print_row(const struct runner *p, int rank,
                      const struct pp_rank_memory *m)
{
    char row[TOOL_MEMORY_ROW];
    tool_memory_row(rank, &m->bytes, row);
    tool_say_row(p->tool, TOOL_DETAIL, row);
}

static void print_memory_json(const struct runner *p,
                              const struct runner_row_memory *rows)
{
    struct pp_json_writer w = {.f = p->tool->out, .indent = 2};
    pp_json_array(&w, NULL, PP_JSON_BROKEN);
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        const struct pp_rank_memory *m = &rows[r].rank;
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_int(&w, "rank", r);
        pp_json_int(&w, "slots", m->slots);
        for (int i = 0; i < PP_N_MEMORY_PARTS; i++)
            pp_json_uint(&w, pp_memory_part_names[i], m->bytes.part[i]);
        pp_json_uint(&w, "total", pp_rank_total(&m->bytes));
        pp_json_uint(&w, "host", m->host);
        pp_json_int(&w, "ranks", rows[r].ranks);
        pp_json_uint(&w, "channels", rows[r].channels);
        pp_json_uint(&w, "stacks", rows[r].stacks);
        pp_json_uint(&w, "connections", rows[r].connections);
        pp_json_uint(&w, "mapped", m->bytes.mapped);
        pp_json_end(&w);
    }
    pp_json_finish(&w);
}

/* Adds what n ranks take; the sum stays below SIZE_MAX. */
static void add_ranks(size_t *sum, size_t bytes, int n)
{
    if (__builtin_mul_overflow(bytes, (size_t)n, &bytes) ||
        __builtin_add_overflow(*sum, bytes, sum))
        *sum = SIZE_MAX;
}

/* Says what the threads of the process add to the table. */
static void print_threads(const struct runner *p,
                          const struct runner_row_memory *rows)
{
    size_t channels = 0, stacks = 0;
    char text[2][32];
    int ranks = 0;
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        channels += rows[r].channels;
        stacks += rows[r].stacks;
        ranks += rows[r].ranks;
    }
    pp_format_short_size(channels, text[0]);
    pp_format_short_size(stacks, text[1]);
    if (ranks)
        tool_say(p->tool, TOOL_DETAIL,
                 "this process adds %s for channels of %d ranks and %s for "
                 "their stacks",
                 text[0], ranks, text[1]);
}

/* Computes what NCCL takes of the GPUs for its connections, if ranks are
 * processes. */
static void measure_connections(const struct runner *p,
                                struct runner_row_memory *rows)
{
    const struct pp_layout l = pp_job_layout(&p->job);
    int n_ranks = pp_layout_ranks(&l);
    struct pp_comm_sets sets;
    struct pp_place place;
    pp_job_comm_sets(&p->job, &sets);
    /* A GPU with fewer processors than the largest has no more blocks. */
    int blocks = pp_comm_sets_blocks(pp_comm_sets_most(&sets, n_ranks),
                                     PP_COMM_MOST_PROCESSORS);
    for (int r = 0; r < n_ranks; r++) {
        size_t bytes = pp_comm_sets_bytes(&sets, r, blocks);
        size_t *most =
            pp_layout_find(&l, r, &place) ? &rows[place.row].connections : NULL;
        if (most && bytes > *most)
            *most = bytes;
    }
    pp_comm_sets_finish(&sets);
}

/* Says what hosts and connections take beside the table. */
static void print_beside(const struct runner *p,
                         const struct runner_row_memory *rows)
{
    size_t most = 0, connected = 0;
    char text[32];
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        most = rows[r].rank.host > most ? rows[r].rank.host : most;
        connected =
            rows[r].connections > connected ? rows[r].connections : connected;
    }
    pp_format_short_size(connected, text);
    if (connected)
        tool_say(p->tool, TOOL_DETAIL,
                 "NCCL takes up to %s of a GPU for the connections of its rank",
                 text);
    pp_format_short_size(most, text);
    if (most)
        tool_say(p->tool, TOOL_DETAIL, "a rank takes up to %s of the host",
                 text);
}

/* Returns the seconds of a copy of each stage, by the profile. */
static double *copy_times(const struct runner *p)
{
    const struct pp_graph *g = p->job.schedule->graph;
    struct pp_stage_bytes *sizes =
        pp_job_sizes(&p->job, PP_PASS_TRAIN, &p->tool->err);
    double *copy =
        sizes ? pp_try_calloc((size_t)g->n_stages, sizeof *copy, &p->tool->err)
              : NULL;
    for (int s = 0; copy && s < g->n_stages; s++) {
        const struct pp_stage_bytes *b = pp_slice_bytes(g, sizes, s, 0);
        copy[s] = (double)(b->act_i + b->act_w) *
                  p->manifest.profile.copy_seconds_per_byte;
    }
    free(sizes);
    return copy;
}

/* Says how long the plan expects the first step to take: the step of ppsched
 * --stats with these data. */
static int say_step(const struct runner *p)
{
    double seconds;
    const struct pp_packed *data = p->data.n_bins ? &p->data : NULL;
    if (!p->manifest.has_profile || p->job.optim.steps == 0)
        return 0;
    double *copy = copy_times(p);
    int rc = copy ? pp_step_seconds(pp_manifest_plan(&p->manifest),
                                    &p->manifest.schedule, data, copy, &seconds,
                                    &p->tool->err)
                  : -1;
    free(copy);
    if (rc)
        return -1;
    tool_say(p->tool, TOOL_DETAIL, "the plan expects a step of %.9g s",
             seconds);
    return 0;
}

/* Refuses ranks that need more than this machine has for them. */
static int refuse_machine(struct runner *p, size_t need)
{
    const struct pp_available_memory room = pp_available_memory("");
    char text[2][32];
    if (need <= room.bytes)
        return 0;
    pp_format_size(need, text[0]);
    pp_format_size(room.bytes, text[1]);
    return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                   "out of memory: the ranks here need %s, but %s has %s left; "
                   "see --print-memory",
                   text[0], room.of, text[1]);
}

/* Counts the ranks of each row that are on this machine. */
static void count_here(const struct runner *p,
                       bool (*here)(void *ctx, int rank), void *ctx, int *n)
{
    const struct pp_layout l = pp_job_layout(&p->job);
    struct pp_place place;
    for (int r = 0; r < pp_layout_ranks(&l); r++)
        if (pp_layout_find(&l, r, &place) && (!here || here(ctx, r)))
            n[place.row]++;
}

/* Computes the memory of all ranks, and compares the fullest with the plan. */
static int measure_rows(struct runner *p, struct runner_row_memory *rows)
{
    int fullest = 0;
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        if (pp_job_memory(&p->job, r, &rows[r].rank, &p->tool->err))
            return -1;
        if (pp_rank_total(&rows[r].rank.bytes) >
            pp_rank_total(&rows[fullest].rank.bytes))
            fullest = r;
    }
    return compare_planned(p, fullest,
                           pp_rank_total(&rows[fullest].rank.bytes));
}

static int check_rows(struct runner *p, const struct runner_row_memory *rows,
                      const int *here, size_t *need)
{
    char titles[TOOL_MEMORY_ROW];
    tool_memory_titles(p->model.maps, titles);
    tool_say_row(p->tool, TOOL_DETAIL, titles);
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        const struct pp_rank_memory *m = &rows[r].rank;
        print_row(p, r, m);
        if (check_memory(p, r, m))
            return -1;
        if (p->job.device->is_host)
            add_ranks(need, pp_rank_total(&m->bytes), here[r]);
        if (!p->job.offload_dir)
            add_ranks(need, m->host, here[r]);
        add_ranks(need, rows[r].channels, 1);
        add_ranks(need, rows[r].stacks, 1);
    }
    return 0;
}

int runner_check_memory(struct runner *p, bool (*here)(void *ctx, int rank),
                        void *ctx)
{
    const struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    size_t n = (size_t)p->job.schedule->graph->n_rows, need = 0;
    struct runner_row_memory *rows = pp_try_calloc(n, sizeof *rows, err);
    int *ranks_here = pp_try_calloc(n, sizeof *ranks_here, err);
    int rc = rows && ranks_here ? 0 : -1;
    /* --print-memory without a purpose is about training. */
    if (o->plan && !p->job.eval && !p->job.score && p->job.optim.steps == 0)
        p->job.optim.steps = 1;
    if (rc == 0 && o->transport == RUNNER_THREADS)
        rc = runner_threads_memory(p, rows);
    if (rc == 0 && !p->job.device->is_host &&
        (o->plan || o->transport == RUNNER_NCCL))
        measure_connections(p, rows);
    if (rc == 0)
        rc = measure_rows(p, rows);
    if (rc == 0) {
        count_here(p, here, ctx, ranks_here);
        rc = check_rows(p, rows, ranks_here, &need);
    }
    if (rc == 0 && o->plan)
        print_memory_json(p, rows);
    if (rc == 0)
        rc = say_step(p);
    if (rc == 0) {
        print_threads(p, rows);
        print_beside(p, rows);
        rc = o->plan ? 0 : refuse_machine(p, need);
    }
    free(rows);
    free(ranks_here);
    p->job.slot_limit = o->slots;
    return rc;
}
