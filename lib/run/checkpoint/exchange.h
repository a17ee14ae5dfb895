/* SPDX-License-Identifier: MIT */
/* exchange - writes the tensors of several ranks to a file in large
 * pieces.
 *
 * A file system takes few long writes faster than many short ones. The ranks
 * that hold short runs of a tensor send them to each other, so that each writes
 * whole windows: 1 MiB or more if the tensor is as large. The windows of a rank
 * are consecutive. A rank holds the messages of one window at a time, so the
 * memory does not depend on the tensor.
 *
 * A transport of devices connects the ranks that divide a tensor, and the ranks
 * that divide the state of one rank's part of it, but not all with all. If
 * the file has the transpose, a range of memory is a part of every row. Then
 * the second ranks first exchange their ranges (pp_exchange_turn), so that each
 * has the elements of a range of rows, and the first ones write these. */
#ifndef PP_RUN_CHECKPOINT_EXCHANGE_H
#define PP_RUN_CHECKPOINT_EXCHANGE_H

#include "base/group.h"
#include "comm/comm.h"
#include "run/checkpoint/runs.h"

/* Bytes of a window: at least, if the tensor has as many, and at most. */
enum { PP_WINDOW_LEAST = 1 << 20, PP_WINDOW_MOST = 1 << 21 };

/* The runs of a tensor that a rank writes. */
struct pp_rank_runs {
    struct pp_runs runs;
    size_t first; /* its first element in the file's tensor */
    int rank;
};

struct pp_exchange {
    struct pp_comm *comm;
    struct pp_device *device; /* NULL: the CPU */
    struct pp_group group;    /* may exchange; n is 1 if this rank is alone */
    enum pp_direction direction; /* of their messages */
    size_t most;             /* bytes of a window: the room of each of these */
    char *in, *out;          /* messages, in device memory; borrowed */
    char *received, *packed; /* the same on the host; may be in and out */
    char *window;
    char *turned; /* what pp_exchange_turn made */
    size_t turned_bytes;
    /* (group.n) of the current tensor, ascending by the first element. The
     * caller sets n_parts to 0 and adds them; one is this rank's. */
    struct pp_rank_runs *parts;
    int n_parts, mine;
    bool failed; /* this rank: it exchanges all the same, and writes nothing */
};

/* Prepares for a group of ranks. room is device memory that nothing else uses
 * meanwhile; with less than 4 MiB windows are smaller. Without room, or in a
 * group of one, this rank is alone. */
int pp_exchange_init(struct pp_exchange *x, struct pp_comm *comm,
                     struct pp_device *device, const struct pp_group *group,
                     enum pp_direction direction, void *room, size_t room_bytes,
                     struct pp_err *err) PP_MUST_USE;
void pp_exchange_finish(struct pp_exchange *x);

/* Returns whether runs are so short that ranks should exchange them. */
bool pp_exchange_pays(const struct pp_runs *p, size_t element_bytes);

/* A file, or memory for this rank's share if that is not NULL. */
struct pp_target {
    char *memory;
    size_t first; /* element of the piece there */
    int fd;
    const char *path;
    uint64_t offset; /* of the tensor */
    struct pp_element_sizes bytes;
};

void pp_exchange_add(struct pp_exchange *x, int rank,
                     const struct pp_runs *runs);

/* Returns what rank `rank` of x->parts, which have one piece of a tensor, holds
 * when they have turned it: a range in the order of the file. */
struct pp_runs pp_exchange_share(const struct pp_exchange *x, int rank,
                                 size_t element_bytes);

/* Puts this rank's share in x->turned, with elements of bytes.there. Collective
 * over the ranks of x->parts, otherwise as pp_exchange_write. */
int pp_exchange_turn(struct pp_exchange *x, struct pp_element_sizes bytes,
                     const char *data, struct pp_err *err) PP_MUST_USE;

/* Writes a tensor. Collective over the ranks of x->parts. data is the range of
 * this rank's runs; NULL if x->failed. Fails if messages fail. If a write of
 * this rank fails, it fills *err and sets x->failed. */
int pp_exchange_write(struct pp_exchange *x, const struct pp_target *to,
                      const char *data, struct pp_err *err) PP_MUST_USE;

#endif
