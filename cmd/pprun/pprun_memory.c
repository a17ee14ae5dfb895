/* SPDX-License-Identifier: MIT */
/* pprun_memory - the memory that every rank will allocate, before it does. */
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
                              const struct pp_rank_memory *m)
{
    FILE *f = p->tool->out;
    bool last = rank + 1 == p->job.schedule->graph->n_rows;
    fprintf(f, "%s  {\"rank\": %d, \"slots\": %d", rank ? "" : "[\n", rank,
            m->slots);
    for (int i = 0; i < PP_N_MEMORY_PARTS; i++)
        fprintf(f, ", \"%s\": %zu", pp_memory_part_names[i], m->bytes.part[i]);
    fprintf(f, ", \"total\": %zu}%s", pp_rank_total(&m->bytes),
            last ? "\n]\n" : ",\n");
}

int pprun_check_memory(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    int n = p->job.schedule->graph->n_rows;
    char titles[TOOL_MEMORY_ROW];
    /* --print-memory without a purpose is about training. */
    if (o->plan && !p->job.eval && !p->job.score && p->job.optim.steps == 0)
        p->job.optim.steps = 1;
    tool_memory_titles(titles);
    tool_say(p->tool, TOOL_DETAIL, "%s", titles);
    for (int r = 0; r < n; r++) {
        struct pp_rank_memory m;
        if (pp_job_memory(&p->job, r, &m, &p->tool->err))
            return -1;
        print_row(p, r, &m);
        if (o->memory && refuse_memory(p, r, &m))
            return -1;
        if (o->plan)
            print_memory_json(p, r, &m);
    }
    if (o->memory_is_slots)
        p->job.slot_limit = (int)o->memory;
    return 0;
}
