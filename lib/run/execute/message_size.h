/* SPDX-License-Identifier: MIT */
/* shapes - how many rows a message between stages has, and who says so. The
 * rows that count are the same in all of them: those of the index. */
#ifndef PP_RUN_EXECUTE_MESSAGE_SIZE_H
#define PP_RUN_EXECUTE_MESSAGE_SIZE_H

enum pp_message_size {
    PP_MESSAGE_PLANNED,  /* the microbatch's: both ranks read the index */
    PP_MESSAGE_EXCHANGE, /* the same; the receiver learns it from the message,
                           and holds it against the index */
    PP_MESSAGE_MAX       /* the data's capacity, the rows behind being 0, as
                           Megatron-LM without variable_seq_lengths */
};

#endif
