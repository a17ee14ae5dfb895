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
                       "rank %d keeps %d %s alive, but --memory allows %zu",
                       rank, m->slots, pprun_slots(p->job.schedule->graph),
                       o->memory);
    if (o->memory_is_slots || m->total <= o->memory)
        return 0;
    pp_format_size(m->total, need);
    pp_format_size(o->memory, limit);
    return pp_fail(err, PP_EXIT_NO, "rank %d needs %s, but --memory allows %s",
                   rank, need, limit);
}

static void print_row(const struct pprun *p, int rank,
                      const struct pp_rank_memory *m)
{
    const size_t bytes[] = {
        m->state.weights, m->state.gradients, m->state.optimizer,
        m->activations,   m->workspace,       m->tables,
        m->total};
    char s[7][32];
    for (int i = 0; i < 7; i++)
        pp_format_size(bytes[i], s[i]);
    tool_say(p->tool, TOOL_DETAIL, "%4d %10s %10s %10s %6d %11s %10s %10s %10s",
             rank, s[0], s[1], s[2], m->slots, s[3], s[4], s[5], s[6]);
}

static void print_memory_json(const struct pprun *p, int rank,
                              const struct pp_rank_memory *m)
{
    bool last = rank + 1 == p->job.schedule->graph->n_rows;
    fprintf(p->tool->out,
            "%s  {\"rank\": %d, \"weights\": %zu, \"gradients\": %zu, "
            "\"optimizer\": %zu, \"slots\": %d, \"activations\": %zu, "
            "\"workspace\": %zu, \"tables\": %zu, \"total\": %zu}%s",
            rank ? "" : "[\n", rank, m->state.weights, m->state.gradients,
            m->state.optimizer, m->slots, m->activations, m->workspace,
            m->tables, m->total, last ? "\n]\n" : ",\n");
}

int pprun_check_memory(struct pprun *p)
{
    const struct pprun_options *o = &p->options;
    int n = p->job.schedule->graph->n_rows;
    /* --print-memory without a purpose is about training. */
    if (o->plan && !p->job.eval && !p->job.score && p->job.optim.steps == 0)
        p->job.optim.steps = 1;
    tool_say(p->tool, TOOL_DETAIL, "%4s %10s %10s %10s %6s %11s %10s %10s %10s",
             "rank", "weights", "gradients", "optimizer", "slots",
             "activations", "workspace", "tables", "total");
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
