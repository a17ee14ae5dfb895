/* SPDX-License-Identifier: MIT */
#include "model/rank_bytes.h"

const char *const pp_memory_part_names[PP_N_MEMORY_PARTS] = {
    "weights",  "gradients", "optimizer", "activations",
    "messages", "workspace", "tables"};

void pp_rank_add_state(struct pp_rank_bytes *b, struct pp_state_bytes s)
{
    b->part[PP_MEMORY_WEIGHTS] += s.weights;
    b->part[PP_MEMORY_GRADIENTS] += s.gradients;
    b->part[PP_MEMORY_OPTIMIZER] += s.optimizer;
}

void pp_rank_set_arena(struct pp_rank_bytes *b, size_t arena, size_t messages,
                       size_t workspace)
{
    b->part[PP_MEMORY_ACTIVATIONS] = arena - messages - workspace;
    b->part[PP_MEMORY_MESSAGES] = messages;
    b->part[PP_MEMORY_WORKSPACE] = workspace;
}

size_t pp_rank_arena(const struct pp_rank_bytes *b)
{
    return b->part[PP_MEMORY_ACTIVATIONS] + b->part[PP_MEMORY_MESSAGES] +
           b->part[PP_MEMORY_WORKSPACE];
}

size_t pp_rank_state(const struct pp_rank_bytes *b)
{
    return b->part[PP_MEMORY_WEIGHTS] + b->part[PP_MEMORY_GRADIENTS] +
           b->part[PP_MEMORY_OPTIMIZER];
}

size_t pp_rank_total(const struct pp_rank_bytes *b)
{
    return pp_rank_state(b) + pp_rank_arena(b) + b->part[PP_MEMORY_TABLES];
}
