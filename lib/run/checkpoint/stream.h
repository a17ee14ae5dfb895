/* SPDX-License-Identifier: MIT */
/* stream - a version of the weights for the reader of a FIFO or a socket.
 *
 * A version is a line of JSON, {"format": "pp-weights", "version": 1, "step":
 * N, "bytes": B}, and B bytes: a safetensors file. Then the writer closes, so
 * that a reader that finds fewer bytes knows that it has none. pp-weights(5) is
 * the manual. */
#ifndef PP_RUN_CHECKPOINT_STREAM_H
#define PP_RUN_CHECKPOINT_STREAM_H

#include "base/err.h"
#include "comm/comm.h"
#include "run/parameters/parameters.h"

struct pp_stream {
    const char *path; /* of the FIFO, or of the Unix socket to connect to */
    struct pp_comm *comm;
    const struct pp_parameters *params; /* this rank's */
    size_t save_bytes;                  /* of an element; 0: as in the run */
    int64_t step;
    double timeout;         /* seconds that the reader may take for nothing */
    int (*stop)(void *ctx); /* not 0: wait no longer; may be NULL */
    void *ctx;
};

/* Writes a version. Collective; rank 0 opens path and writes. A reader that is
 * absent, leaves or stalls, or a request to stop, costs this version and
 * nothing else: why then says so at rank 0, and is "" otherwise. Fails if the
 * ranks fail. The process must ignore SIGPIPE. */
int pp_ckpt_stream(const struct pp_stream *s, char why[256],
                   struct pp_err *err) PP_MUST_USE;

#endif
