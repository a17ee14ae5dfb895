/* SPDX-License-Identifier: MIT */
/* env - what all work of a rank shares: its place, its share of the model, its
 * kernels, and the queue of its device.
 *
 * The rank owns the one env. Workers, engines, stages and layers point to it. A
 * rank whose row has overlap pairs has a second env, with another queue. */
#ifndef PP_RUN_PARTS_ENV_H
#define PP_RUN_PARTS_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/collective.h"
#include "device/device.h"
#include "kernels.h"
#include "model/edge.h"
#include "model/layout.h"
#include "model/shard.h"
#include "model/unit_bytes.h"

struct pp_attention_exchange;
struct pp_parameters;

enum { PP_PIXEL_ROOM = 1 << 20 };

/* A queue of its own, in which the host reads what a device has computed while
 * the device goes on. */
struct pp_reader {
    struct pp_device *device;
    void *event;
};

struct pp_env {
    struct pp_layout layout;
    struct pp_place place; /* of this rank */
    struct pp_comm *comm;
    struct pp_collective context;  /* with the ranks that divide sequences */
    struct pp_collective tensor;   /* with ranks that divide tensors */
    struct pp_collective experts;  /* with ranks that divide experts */
    struct pp_collective routers;  /* with ranks whose routers divide the tokens
                                      of a microbatch */
    struct pp_collective features; /* with ranks that exchange features */

    struct pp_shard shard; /* of the model, on this rank */
    const struct pp_kernels *kernels;
    const struct pp_parameters *params;
    int32_t first_word, n_words; /* of the vocabulary, on this rank */
    void *rope_cos, *rope_sin;   /* (max position, rotary / 2) */
    /* The tables of layers with a window, behind the others; NULL: the same. */
    void *windowed_cos, *windowed_sin;
    /* Tables of queries, which they scale, too; NULL: the same. */
    void *query_cos, *query_sin;
    const struct pp_attention_exchange *exchange;
    /* (PP_N_ROWS) The envs of units with other rows than tokens: of the
     * layers of each encoder, of its projector, of a generator. Zeroed if the
     * model or the rank has none; NULL: it has none at all. */
    const struct pp_env *others;
    bool generates; /* the rank has units of the generator alone */

    int32_t *expert_counts;   /* (expert-parallel ranks + 1, experts) in host
                                 memory, room for a layer of experts on a GPU;
                                 NULL on the CPU */
    struct pp_reader reader;  /* of a GPU, for layers of experts; or zeroed */
    int32_t *expert_routes;   /* (2, rows, top_k) the same, for experts that are
                                 replayed or recorded; or NULL */
    void *pixel_room;         /* host memory of PP_PIXEL_ROOM bytes or of a row,
                                 for the inputs of an encoder on their way to a
                                 GPU; or NULL */
    void *widened;            /* room for rows of mapped weights, or NULL */
    struct pp_device *device; /* NULL: the CPU */
    void *stream;             /* the kernels' argument */
};

/* Returns the env of units with these rows, or NULL. */
static inline const struct pp_env *pp_env_of(const struct pp_env *e,
                                             size_t rows)
{
    if (rows == PP_ROWS_TOKENS)
        return e;
    return e->others && e->others[rows].shard.model ? &e->others[rows] : NULL;
}

/* Returns the mesh of this rank's component. */
static inline const struct pp_mesh *pp_env_mesh(const struct pp_env *e)
{
    return &e->layout.components[e->place.component].mesh;
}

/* Reports whether the rank is one of an encoder with a mesh of its own. */
static inline bool pp_env_encodes(const struct pp_env *e)
{
    return pp_layout_encodes(&e->layout, e->place.component);
}

/* Reports whether the rank has tokens of the language model. One of an encoder
 * with a mesh of its own has images alone, and one of a generator has the
 * generator's. */
static inline bool pp_env_has_tokens(const struct pp_env *e)
{
    return !pp_env_encodes(e) && !e->generates;
}

/* Return the number of ranks that divide tensors, or experts. */
static inline size_t pp_env_tp(const struct pp_env *e)
{
    return e->tensor.group.n > 1 ? (size_t)e->tensor.group.n : 1;
}

static inline size_t pp_env_ep(const struct pp_env *e)
{
    return e->experts.group.n > 1 ? (size_t)e->experts.group.n : 1;
}

/* Returns the number of ranks whose routers divide a microbatch. */
static inline size_t pp_env_routers(const struct pp_env *e)
{
    return e->routers.group.n > 1 ? (size_t)e->routers.group.n : 1;
}

/* Returns the rows that a router of this rank sees, of so many that all
 * tensor-parallel ranks have: all, or with whole experts its own. */
static inline struct pp_token_range pp_env_routed(const struct pp_env *e,
                                                  size_t tokens)
{
    size_t n = tokens / pp_env_tp(e), at = (size_t)e->tensor.group.index;
    return pp_mesh_has_whole_experts(&e->shard.mesh)
               ? (struct pp_token_range){at * n, (at + 1) * n}
               : (struct pp_token_range){0, tokens};
}

/* Returns the rank that this one exchanges messages with in another row. */
static inline int pp_env_peer(const struct pp_env *e, int row)
{
    return pp_layout_peer(&e->layout, &e->place, row);
}

/* Reports whether the memory of the device is the host's. */
static inline bool pp_env_is_host(const struct pp_env *e)
{
    return pp_device_ops(e->device)->is_host;
}

/* Return what memory plans need to know of kernels (unit_bytes.h). */
struct pp_backend pp_kernels_backend(const struct pp_kernels *k, bool is_host);
static inline struct pp_backend pp_env_backend(const struct pp_env *e)
{
    return pp_kernels_backend(e->kernels, pp_env_is_host(e));
}

#endif
