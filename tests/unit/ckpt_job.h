/* SPDX-License-Identifier: MIT */
/* ckpt_job - ranks as threads that save a small model, or load and compare it,
 * under several splits. */
#ifndef PP_TESTS_CKPT_JOB_H
#define PP_TESTS_CKPT_JOB_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"
#include "run/checkpoint/sums.h"
#include "run/parameters/weights.h"

#define MAX_RANKS 4
#define MAX_RANGES 2

static const struct pp_model tied = {
    .architecture = PP_QWEN3,
    .hidden = 8,
    .intermediate = 12,
    .n_layers = 3,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 4,
    .vocab = 63,
    .tied = true,
    .qk_norm = true,
};

/* Units 0 to 5: embedding, three layers, norm, head. Each tp consecutive ranks
 * divide their tensors; with owners, as many times tp ranks divide the state.
 */
struct split {
    int size, tp;
    struct pp_unit_range ranges[MAX_RANKS][MAX_RANGES];
    int owners;
    bool apart; /* only these, and only those, have channels */
};
static const struct split splits[] = {
    {1, 1, {{{0, 0, 6, 0}}}},
    {2, 1, {{{0, 0, 3, 0}}, {{1, 3, 3, 0}}}},
    /* V placement: the ends on one rank */
    {2, 1, {{{0, 0, 1, 0}, {3, 5, 1, 0}}, {{1, 1, 2, 0}, {2, 3, 2, 0}}}},
    /* only the embedding, nothing, layers and norm, only the head */
    {4, 1, {{{0, 0, 1, 0}}, {{1, 1, 0, 0}}, {{2, 1, 4, 0}}, {{3, 5, 1, 0}}}},
    /* two ranks for each of two stages */
    {4, 2, {{{0, 0, 3, 0}}, {{0, 0, 3, 0}}, {{1, 3, 3, 0}}, {{1, 3, 3, 0}}}},
};
enum { N_SPLITS = sizeof splits / sizeof *splits };

/* The work of one thread: save, or load and compare. */
struct job {
    const struct pp_model *model;
    const struct split *split;
    const char *dir, *load; /* load: a checkpoint, else save in dir */
    const char *source, *grads;
    size_t element_bytes;
    struct pp_ckpt_state state;
    int keep;
    size_t shard_size, save_bytes;
    size_t room; /* bytes to exchange with; 0: no rank exchanges */
    uint64_t seed;
    struct pp_comm_world *world;
    struct pp_err err[MAX_RANKS];
    struct pp_ckpt_state loaded[MAX_RANKS];
    int differ[MAX_RANKS];
};
struct thread {
    struct job *job;
    int rank;
    pthread_t id;
};

/* Returns the value of element i of a block, the same under every split. */
static inline double value(const struct job *j, const struct pp_parameter *t,
                           int b, size_t i)
{
    const char *name = pp_parameter_file_name(t);
    return pp_rng_uniform(pp_rng_key(j->seed + (uint64_t)b, name), i);
}

static inline double element(const struct job *j, const void *data, size_t i)
{
    return j->element_bytes == sizeof(double) ? ((const double *)data)[i]
                                              : ((const float *)data)[i];
}

/* Fills the blocks, or returns how many elements differ. */
static inline int visit(const struct job *j, struct pp_parameters *p, bool fill)
{
    int differ = 0;
    for (size_t k = 0; k < p->n; k++) {
        for (int b = PP_BLOCK_W; b <= PP_BLOCK_V; b++) {
            const struct pp_tensor_piece *piece = &p->at[k].piece;
            const struct pp_range range = pp_parameter_range(&p->at[k], b);
            void *data = pp_parameter_data(&p->at[k], b);
            for (size_t i = 0; i < range.n; i++) {
                size_t e = range.first + i;
                size_t left, at = pp_piece_place(piece, e, &left);
                double x = value(j, &p->at[k], b, at);
                if (j->element_bytes == sizeof(float))
                    x = (float)x;
                if (!fill)
                    differ += b != PP_BLOCK_G && element(j, data, i) != x;
                else if (j->element_bytes == sizeof(double))
                    ((double *)data)[i] = x;
                else
                    ((float *)data)[i] = (float)x;
            }
        }
    }
    return differ;
}

/* Returns n ranks, `stride` apart, of which one is this. */
static inline struct pp_group group_of(int n, int stride, int rank)
{
    int index = rank / stride % n;
    return (struct pp_group){.n = n,
                             .index = index,
                             .base = rank - index * stride,
                             .step = 1,
                             .size = {n, 1, 1},
                             .stride = {stride, 0, 0}};
}

/* Returns the ranks that have the same units, that of tensor-parallel ranks
 * first. */
static inline struct pp_group row_of(const struct split *s, int rank)
{
    return group_of(s->tp * (s->owners ? s->owners : 1), 1, rank);
}

static inline void work(struct job *j, struct pp_comm *comm,
                        struct pp_parameters *p)
{
    int r = comm->rank;
    struct pp_err *err = &j->err[r];
    struct pp_ckpt c = {
        .dir = j->dir,
        .comm = comm,
        .model = j->model,
        .params = p,
        .source = j->source,
        .config_text = "{\"a\": 1}\n",
        .keep = j->keep,
        .shard_size = j->shard_size,
        .save_bytes = j->save_bytes,
        .group = row_of(j->split, r),
        .room_bytes = j->room,
    };
    if (j->split->apart) {
        c.group = group_of(j->split->tp, 1, r);
        c.owners = group_of(j->split->owners, j->split->tp, r);
    }
    if (j->load) {
        if (!pp_ckpt_state_read(j->load, &j->loaded[r], err) &&
            !pp_ckpt_load(j->load, p, err))
            j->differ[r] = visit(j, p, false);
        return;
    }
    visit(j, p, true);
    void *room = c.room = j->room ? malloc(j->room) : NULL;
    int rc = j->grads ? pp_ckpt_dump_grads(j->grads, comm, p, err)
                      : pp_ckpt_save(&c, &j->state, err);
    free(room);
    if ((rc != 0) != (err->code != PP_EXIT_OK))
        pp_fail(err, PP_EXIT_SYSTEM, "a status of %d and no error", rc);
}

static inline void *enter(void *arg)
{
    struct thread *self = arg;
    struct job *j = self->job;
    struct pp_err *err = &j->err[self->rank];
    struct pp_comm *comm;
    struct pp_parameters p;
    comm = pp_comm_threads_open(j->world, self->rank);
    const struct pp_parameter_memory where = {
        .element_bytes = j->element_bytes,
        .accumulator_bytes = j->element_bytes,
        .shares = {.tp = (size_t)j->split->tp,
                   .tp_rank = (size_t)(self->rank % j->split->tp),
                   .owners = (size_t)j->split->owners,
                   .owner = j->split->owners
                                ? (size_t)(self->rank / j->split->tp)
                                : 0}};
    if (!pp_parameters_init(&p, j->model, j->split->ranges[self->rank],
                            MAX_RANGES, &where, PP_WITH_GRADS | PP_WITH_MOMENTS,
                            err)) {
        work(j, comm, &p);
        pp_parameters_finish(&p);
    }
    comm->ops->close(comm);
    return NULL;
}

/* Runs the job on all ranks. Returns the error of rank 0. */
static inline struct pp_err run_job(struct job *j)
{
    struct thread threads[MAX_RANKS];
    struct pp_err err = {0};
    if (pp_comm_world_create(j->split->size, (struct pp_comm_capacity){0, 1},
                             NULL, 0, &j->world, &err))
        return err;
    for (int r = 0; r < j->split->size; r++) {
        j->err[r] = (struct pp_err){0};
        threads[r] = (struct thread){j, r, 0};
        pthread_create(&threads[r].id, NULL, enter, &threads[r]);
    }
    for (int r = 0; r < j->split->size; r++)
        pthread_join(threads[r].id, NULL);
    pp_comm_world_destroy(j->world);
    return j->err[0];
}

static inline struct job make_job(const char *dir, int split, int64_t step)
{
    return (struct job){
        .model = &tied,
        .split = &splits[split],
        .dir = dir,
        .element_bytes = sizeof(float),
        .state = {step, 10 * step, 16, UINT64_MAX - 5, 1, {0.5, 1}},
        .shard_size = PP_CKPT_SHARD_SIZE,
        .seed = (uint64_t)step};
}

/* Returns the name of the newest checkpoint, "" for none, "!" for an error. */
static inline const char *newest(const char *dir)
{
    static char name[64];
    char *path = NULL;
    struct pp_err err = {0};
    if (pp_ckpt_find(dir, &path, &err))
        return "!";
    snprintf(name, sizeof name, "%s", path ? strrchr(path, '/') + 1 : "");
    free(path);
    return name;
}

static inline bool has(const char *dir, const char *name)
{
    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    return !pp_path(path, &err, "%s/%s", dir, name) && pp_file_exists(path);
}

/* Loads the newest checkpoint of dir under the split. Returns "" if all is as
 * the step saved it. */
static inline const char *loads(const char *dir, int split, int64_t step)
{
    static struct job j;
    char *path = NULL;
    struct pp_err err = {0};
    if (pp_ckpt_find(dir, &path, &err) || !path)
        return "nothing found";
    j = make_job(dir, split, step);
    j.load = path;
    err = run_job(&j);
    free(path);
    for (int r = 0; r < j.split->size; r++) {
        if (j.err[r].code)
            return j.err[r].text;
        if (j.differ[r])
            return "elements differ";
        if (memcmp(&j.loaded[r], &j.state, sizeof j.state) != 0)
            return "counters differ";
    }
    return "";
}

/* Returns whether two checkpoints list the same files with the same bytes, and
 * the lists are right. */
static inline bool same_bytes(const char *a, const char *b)
{
    const char *const dirs[2] = {a, b};
    const void *text[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    bool whole = true;
    for (int i = 0; i < 2; i++) {
        char path[PP_PATH_TEXT];
        struct pp_err err = {0};
        whole = !pp_ckpt_verify(dirs[i], NULL, 0, 1, &err) &&
                !pp_path(path, &err, "%s/" PP_CKPT_SUMS, dirs[i]) &&
                !pp_file_map(path, &text[i], &n[i], &err) && whole;
        if (err.code)
            printf("# %s\n", err.text);
    }
    bool same = whole && n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0;
    for (int i = 0; i < 2; i++)
        pp_file_unmap(text[i], n[i]);
    return same;
}

#endif
