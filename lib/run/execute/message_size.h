/* SPDX-License-Identifier: MIT */
/* shapes - how many rows a message between stages has, and who says so. The
 * rows that count are the same in all of them: those of the index. */
#ifndef PP_RUN_SHAPES_H
#define PP_RUN_SHAPES_H

enum pp_shapes {
    PP_SHAPES_PLANNED,  /* the microbatch's: both ranks read the index */
    PP_SHAPES_EXCHANGE, /* the same; the receiver learns it from the message,
                           and holds it against the index */
    PP_SHAPES_MAX       /* the data's capacity, the rows behind being 0, as
                           Megatron-LM without variable_seq_lengths */
};

#endif
