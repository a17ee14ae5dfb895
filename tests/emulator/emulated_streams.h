/* SPDX-License-Identifier: MIT */
/* emulated_streams - work that a stream of the emulated GPU is given: when it
 * begins, and what waits for it. */
#ifndef PP_TESTS_EMULATED_STREAMS_H
#define PP_TESTS_EMULATED_STREAMS_H

#include <stdbool.h>

#include "cuda_runtime_api.h"

enum pp_emulated_task {
    PP_TASK_KERNEL,
    PP_TASK_MESSAGE, /* a kernel of NCCL, which waits for another GPU */
    PP_TASK_COPY,    /* needs no processor */
    PP_TASK_WAIT     /* for an event or the host, and needs no processor */
};

/* Queues run(arg) after the earlier work of the stream. Streams share the
 * hardware queues of their GPU. A task is in its queue until it begins, or with
 * PP_TASK_WAIT until it is done, and later tasks of the queue stay behind it. A
 * task begins when one of blocks processors is free, if there are blocks, and
 * holds as many as are free until it is done. Waits while the hardware queue is
 * full. */
void pp_emulated_give(cudaStream_t s, enum pp_emulated_task kind, int blocks,
                      void (*run)(void *), void *arg);

/* Returns whether pp_emulated_give would return at once. */
bool pp_emulated_has_room(cudaStream_t s);

/* Returns when the stream, or the GPU, has done all work that it has been
 * given. */
void pp_emulated_await_stream(cudaStream_t s);
void pp_emulated_await_gpu(int gpu);

#endif
