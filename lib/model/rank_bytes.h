/* SPDX-License-Identifier: MIT */
/* rank_bytes - all memory of a rank, by purpose. ppsplit, ppsched and pprun
 * print these parts by these names, so that their figures can be compared. */
#ifndef PP_MODEL_RANK_BYTES_H
#define PP_MODEL_RANK_BYTES_H

#include "model/unit_bytes.h"

enum pp_memory_part {
    PP_MEMORY_WEIGHTS,
    PP_MEMORY_GRADIENTS,
    PP_MEMORY_OPTIMIZER,   /* moments and master weights */
    PP_MEMORY_ACTIVATIONS, /* the arena without the next two: saved activations,
                            output gradients, and gaps between buffers */
    PP_MEMORY_MESSAGES,    /* at the peak of the arena */
    PP_MEMORY_WORKSPACE,   /* of actions */
    PP_MEMORY_TABLES,
    PP_N_MEMORY_PARTS
};
extern const char *const pp_memory_part_names[PP_N_MEMORY_PARTS];

struct pp_rank_bytes {
    size_t part[PP_N_MEMORY_PARTS];
    size_t mapped; /* of files that it reads in place, which are not allocated
                    */
};

/* Adds the state of a unit. */
void pp_rank_add_state(struct pp_rank_bytes *b, struct pp_state_bytes s);

/* Sets activations, messages and workspace to the parts of an arena. */
void pp_rank_set_arena(struct pp_rank_bytes *b, size_t arena, size_t messages,
                       size_t workspace);

/* Returns the bytes of the arena, and of the state. */
size_t pp_rank_arena(const struct pp_rank_bytes *b);
size_t pp_rank_state(const struct pp_rank_bytes *b);

size_t pp_rank_total(const struct pp_rank_bytes *b);

#endif
