/* SPDX-License-Identifier: MIT */
/* pprun_memory - the memory that every rank will allocate, and the process for
 * its ranks, before they do. */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/memory_room.h"
#include "base/num.h"
#include "pprun.h"

static int refuse_memory(struct pprun *p, int rank,
                         const struct pp_rank_memory *m)
{
    const struct pprun_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    char need[32], limit[32];
    if (o->memory_is_slots && (size_t)m->slots > o->memory)
        return pp_fail(err, PP_EXIT_NO,
                       "rank %d keeps %d %s alive, but --max-in-flight allows "
                       "%zu",
                       rank, m->slots, pprun_slots(p->job.schedule->graph),
                       o->memory);
    if (o->memory_is_slots || pp_rank_total(&m->bytes) <= o->memory)
        return 0;
    pp_format_size(pp_rank_total(&m->bytes), need);
    pp_format_size(o->memory, limit);
    return pp_fail(err, PP_EXIT_NO, "rank %d needs %s, but --memory allows %s",
                   rank, need, limit);
}

static void print_row(const struct pprun *p, int rank,
                      const struct pp_rank_memory *m)
{
    char row[TOOL_MEMORY_ROW];
    tool_memory_row(rank, &m->bytes, row);
    tool_say(p->tool, TOOL_DETAIL, "%s", row);
}

static void print_memory_json(const struct pprun *p, int rank,
                              const struct pp_rank_memory *m,
                              const struct pprun_row_memory *row)
{
    FILE *f = p->tool->out;
    bool last = rank + 1 == p->job.schedule->graph->n_rows;
    fprintf(f, "%s  {\"rank\": %d, \"slots\": %d", rank ? "" : "[\n", rank,
            m->slots);
    for (int i = 0; i < PP_N_MEMORY_PARTS; i++)
        fprintf(f, ", \"%s\": %zu", pp_memory_part_names[i], m->bytes.part[i]);
    fprintf(f,
            ", \"total\": %zu, \"ranks\": %d, \"channels\": %zu, "
            "\"stacks\": %zu}%s",
            pp_rank_total(&m->bytes), row->ranks, row->channels, row->stacks,
            last ? "\n]\n" : ",\n");
}

/* Adds what n ranks take; the sum stays below SIZE_MAX. */
static void add_ranks(size_t *sum, size_t bytes, int n)
{
    if (__builtin_mul_overflow(bytes, (size_t)n, &bytes) ||
        __builtin_add_overflow(*sum, bytes, sum))
        *sum = SIZE_MAX;
}

/* Says what the threads of the process add to the table. */
static void print_threads(const struct pprun *p,
                          const struct pprun_row_memory *rows)
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

/* Refuses ranks that need more than this machine has for them. */
static int refuse_machine(struct pprun *p, size_t need)
{
    const struct pp_memory_room room = pp_memory_room("");
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
static void count_here(const struct pprun *p, bool (*here)(void *ctx, int rank),
                       void *ctx, int *n)
{
    const struct pp_layout l = pp_job_layout(&p->job);
    struct pp_place place;
    for (int r = 0; r < pp_layout_ranks(&l); r++)
        if (pp_layout_find(&l, r, &place) && (!here || here(ctx, r)))
            n[place.row]++;
}

static int check_rows(struct pprun *p, const struct pprun_row_memory *rows,
                      const int *here, size_t *need)
{
    const struct pprun_options *o = &p->options;
    for (int r = 0; r < p->job.schedule->graph->n_rows; r++) {
        struct pp_rank_memory m;
        if (pp_job_memory(&p->job, r, &m, &p->tool->err))
            return -1;
        print_row(p, r, &m);
        if (o->memory && refuse_memory(p, r, &m))
            return -1;
        if (o->plan)
            print_memory_json(p, r, &m, &rows[r]);
        if (p->job.device->is_host)
            add_ranks(need, pp_rank_total(&m.bytes), here[r]);
        add_ranks(need, rows[r].channels, 1);
        add_ranks(need, rows[r].stacks, 1);
    }
    return 0;
}

int pprun_check_memory(struct pprun *p, bool (*here)(void *ctx, int rank),
                       void *ctx)
{
    const struct pprun_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    size_t n = (size_t)p->job.schedule->graph->n_rows, need = 0;
    struct pprun_row_memory *rows = pp_calloc(n, sizeof *rows, err);
    int *ranks_here = pp_calloc(n, sizeof *ranks_here, err);
    char titles[TOOL_MEMORY_ROW];
    int rc = rows && ranks_here ? 0 : -1;
    /* --print-memory without a purpose is about training. */
    if (o->plan && !p->job.eval && !p->job.score && p->job.optim.steps == 0)
        p->job.optim.steps = 1;
    if (rc == 0 && o->transport == PPRUN_THREADS)
        rc = pprun_threads_memory(p, rows);
    if (rc == 0) {
        count_here(p, here, ctx, ranks_here);
        tool_memory_titles(titles);
        tool_say(p->tool, TOOL_DETAIL, "%s", titles);
        rc = check_rows(p, rows, ranks_here, &need);
    }
    if (rc == 0) {
        print_threads(p, rows);
        rc = o->plan ? 0 : refuse_machine(p, need);
    }
    free(rows);
    free(ranks_here);
    if (o->memory_is_slots)
        p->job.slot_limit = (int)o->memory;
    return rc;
}
