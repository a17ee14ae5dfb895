/* SPDX-License-Identifier: MIT */
#include "run/train/job_memory.h"

#include "run/execute/sync_copies.h"

/* Most slots of a microbatch of p that buffers must hold. */
static size_t most_slots(const struct pp_job *j, const struct pp_packed *p)
{
    return j->shapes == PP_MESSAGE_MAX ? p->capacity : p->max_tokens;
}

static size_t largest(const struct pp_job *j, bool slots)
{
    size_t a = slots ? most_slots(j, j->data) : j->data->max_seqlen, b = 0;
    if (j->eval)
        b = slots ? most_slots(j, j->eval) : j->eval->max_seqlen;
    return a > b ? a : b;
}

static const struct pp_device_ops *device_of(const struct pp_job *j)
{
    return j->device ? j->device : &pp_device_cpu;
}

void pp_job_room(const struct pp_job *j, struct pp_engine_room *room)
{
    size_t slices = (size_t)j->schedule->graph->n_slices;
    size_t capacity = largest(j, true), positions = largest(j, false);
    *room = (struct pp_engine_room){
        .capacity = capacity,
        .tokens =
            pp_device_rows(device_of(j), (capacity + slices - 1) / slices),
        .positions = positions,
        .context = slices > 1 ? positions : 0};
}

enum pp_recompute pp_job_recompute(const struct pp_job *j, int stage)
{
    return j->recompute ? j->recompute[stage] : PP_RECOMPUTE_NONE;
}

void pp_job_sizes(const struct pp_job *j, struct pp_stage_bytes *out)
{
    struct pp_engine_room room;
    pp_job_room(j, &room);
    for (int s = 0; s < j->schedule->graph->n_stages; s++)
        pp_stage_sizes(j->model, j->stages[s].first, j->stages[s].n,
                       pp_job_recompute(j, s), j->kernels, room.tokens,
                       &out[s]);
}

bool pp_job_overlaps(const struct pp_job *j, int rank)
{
    const struct pp_row *row = &j->schedule->rows[rank];
    if (!device_of(j)->streams || j->time_products || j->record.layers ||
        j->optim.steps == 0 || j->score)
        return false;
    for (size_t i = 0; i < row->n; i++)
        if (row->actions[i].overlap)
            return true;
    return false;
}

/* Of the other's gradients, where embedding and head are tied across ranks. */
static size_t tied_elements(const struct pp_job *j, int rank)
{
    const struct pp_graph *g = j->schedule->graph;
    size_t n = 0;
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies; k++) {
        int first = k * (g->n_stages / g->n_copies);
        int embed = g->stages[g->tied[0] + first].row;
        int head = g->stages[g->tied[1] + first].row;
        if (embed != head && (rank == embed || rank == head))
            n += j->model->vocab * j->model->hidden;
    }
    return n;
}

size_t pp_job_workspace(const struct pp_job *j, int rank)
{
    const struct pp_kernels *k = j->kernels;
    struct pp_engine_room room;
    pp_job_room(j, &room);
    size_t engines = pp_job_overlaps(j, rank) ? 2 : 1;
    size_t engine = device_of(j)->handle_bytes +
                    pp_engine_scratch(j, rank, &room) * k->element_bytes +
                    pp_batch_bytes(room.capacity);
    size_t wide = room.positions * (j->model->head_dim / 2) * 2;
    wide += tied_elements(j, rank);
    if (j->schedule->graph->n_copies > 1)
        wide += PP_COPIED_PART;
    return engines * engine + wide * k->accumulator_bytes;
}
