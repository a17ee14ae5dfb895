/* SPDX-License-Identifier: MIT */
/* small_run - a small model, data for it, and a job whose ranks are threads.
 * For tests of whole runs. */
#ifndef PP_TESTS_SMALL_RUN_H
#define PP_TESTS_SMALL_RUN_H

#include <pthread.h>

#include "base/rng.h"
#include "comm/comm.h"
#include "data/packed/packed.h"
#include "model/vision.h"
#include "run/execute/job.h"

enum { SMALL_VOCAB = 37, SMALL_RANKS = 24, SMALL_SEQUENCES = 16 };

/* Grouped queries, norms of queries and keys, and a tied head. */
#define SMALL_MODEL(layers)                                                  \
    {                                                                        \
        .architecture = PP_QWEN3, .hidden = 16, .intermediate = 24,          \
        .n_layers = (layers), .n_heads = 4, .n_kv_heads = 2, .head_dim = 6,  \
        .vocab = SMALL_VOCAB, .max_position = 64, .norm_eps = 1e-6,          \
        .init_range = 0.2, .rope = {PP_ROPE_DEFAULT, 10000, 1, 1, 4, 64, 1}, \
        .tied = true, .qk_norm = true,                                       \
    }

/* Returns the kind of the images, or of the audio, that an encoder takes. */
static inline struct pp_item_kind image_kind(const struct pp_vision *v)
{
    bool audio = pp_vision_hears(v);
    uint32_t merge = 1;
    while (!audio && merge * merge < v->merge)
        merge++;
    return (struct pp_item_kind){
        (uint32_t)v->patch_inputs, (uint32_t)v->image_token,
        audio ? (uint32_t)v->merge : merge,
        audio ? PP_MODALITY_AUDIO : PP_MODALITY_IMAGES, v->class_out};
}

/* Packs sequences of random tokens into dir. Lengths are from shortest up to
 * but not including longest. Bin b has the sequences first[b] .. first[b + 1]
 * - 1. */
static inline int small_data(const char *dir, int shortest, int longest,
                             const size_t *first, size_t n_bins,
                             struct pp_packed *p, struct pp_err *err)
{
    int32_t ids[SMALL_SEQUENCES * 32];
    struct pp_piece pieces[SMALL_SEQUENCES] = {0};
    uint32_t items[SMALL_SEQUENCES], n_sequences = (uint32_t)first[n_bins];
    size_t n = 0;
    for (uint32_t i = 0; i < n_sequences; i++) {
        double more = pp_rng_uniform(1, i) * (longest - shortest);
        uint32_t length = (uint32_t)shortest + (uint32_t)more;
        pieces[i].source = i;
        pieces[i].at = n;
        pieces[i].padded = length;
        pieces[i].length = length;
        items[i] = i;
        for (uint32_t t = 0; t < length; t++)
            ids[n + t] = (int32_t)(pp_rng_uniform(2, n + t) * SMALL_VOCAB);
        n += length;
    }
    const struct pp_packed_content c = {.ids = ids,
                                        .pieces = pieces,
                                        .n_bins = n_bins,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = n_sequences,
                                        .capacity = 64,
                                        .align = 1,
                                        .counts.tokens = n};
    return pp_packed_write(dir, &c, err) || pp_packed_open(dir, p, err) ? -1
                                                                        : 0;
}

struct small_rank {
    const struct pp_job *job;
    struct pp_comm *comm;
    pthread_t id;
    enum pp_exit status;
    struct pp_err err;
};

static void *small_enter(void *arg)
{
    struct small_rank *t = arg;
    if (pp_rank_run(t->job, t->comm, &t->status, &t->err))
        t->status = t->err.code;
    return NULL;
}

/* The gathers of a rank, and the messages of PP_DIRECTION_HOST to it. */
struct small_counts {
    long gathers, messages, bytes;
};

/* A transport that counts. */
struct small_counter {
    struct pp_transport ops;
    const struct pp_transport *inner;
    struct small_counts *to;
};

static int small_recv(struct pp_comm *c, int from, enum pp_direction direction,
                      void *buf, size_t bytes, struct pp_err *err)
{
    const struct small_counter *x = (const struct small_counter *)c->ops;
    x->to->messages += direction == PP_DIRECTION_HOST;
    x->to->bytes += direction == PP_DIRECTION_HOST ? (long)bytes : 0;
    return x->inner->recv(c, from, direction, buf, bytes, err);
}

static int small_gather(struct pp_comm *c, const void *mine, void *all,
                        size_t bytes, struct pp_err *err)
{
    const struct small_counter *x = (const struct small_counter *)c->ops;
    x->to->gathers++;
    return x->inner->allgather(c, mine, all, bytes, err);
}

static void small_count(struct small_counter *x, struct pp_comm *c,
                        struct small_counts *to)
{
    *x = (struct small_counter){*c->ops, c->ops, to};
    x->ops.recv = small_recv;
    x->ops.allgather = small_gather;
    c->ops = &x->ops;
}

/* Runs the job. counts: (ranks), or NULL. If several ranks fail, *err is the
 * refusal that came first, not the message of a rank that was told of it. */
static int small_counted_ranks(const struct pp_job *job,
                               struct small_counts *counts, struct pp_err *err)
{
    struct small_rank t[SMALL_RANKS] = {0};
    struct small_counter counters[SMALL_RANKS];
    struct pp_comm_world *world = NULL;
    const struct pp_layout layout = pp_job_layout(job);
    int n = pp_layout_ranks(&layout);
    struct pp_comm_capacity capacity;
    struct pp_comm_channel *channels = NULL;
    size_t n_channels;
    if (pp_job_channel_capacity(job, &capacity, err)) {
        free(channels);
        return -1;
    }
    pp_job_channels(job, -1, &channels, &n_channels);
    if (pp_comm_world_create(n, capacity, channels, n_channels, &world, err)) {
        free(channels);
        return -1;
    }
    free(channels);
    for (int r = 0; r < n; r++) {
        t[r].job = job;
        t[r].comm = pp_comm_threads_open(world, r);
        if (counts)
            small_count(&counters[r], t[r].comm, &counts[r]);
    }
    for (int r = 0; r < n; r++)
        pthread_create(&t[r].id, NULL, small_enter, &t[r]);
    for (int r = 0; r < n; r++)
        pthread_join(t[r].id, NULL);
    for (int told = 0; told < 2; told++)
        for (int r = 0; r < n; r++)
            if (t[r].err.code == PP_EXIT_NO || (told && t[r].err.code))
                pp_fail(err, t[r].err.code, "%s", t[r].err.text);
    for (int r = 0; r < n; r++)
        t[r].comm->ops->close(t[r].comm);
    pp_comm_world_destroy(world);
    return err->code ? -1 : 0;
}

static inline int small_ranks(const struct pp_job *job, struct pp_err *err)
{
    return small_counted_ranks(job, NULL, err);
}

#endif
