/* SPDX-License-Identifier: MIT */
#include "run/recorder.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"

/* n things of size bytes for every pass of every step that is kept. */
static void *make(const struct pp_recorder *r, size_t n, size_t size,
                  struct pp_err *err)
{
    size_t passes = (size_t)r->kept.n_steps * (size_t)r->kept.n_passes, bytes;
    if (pp_mul(passes, n ? n : 1, &n, err) || pp_mul(n, size, &bytes, err))
        return NULL;
    void *p = malloc(bytes);
    /* Touched here, so that no page is new while a step runs. */
    if (p)
        memset(p, 0, bytes);
    else
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory: recording %d steps",
                r->kept.n_steps);
    return p;
}

static int init_layers(struct pp_recorder *r, const size_t *n_layers,
                       struct pp_err *err)
{
    int n_stages = r->schedule->graph->n_stages;
    size_t n;
    r->first_layer = calloc((size_t)n_stages, sizeof *r->first_layer);
    if (!r->first_layer)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < n_stages; s++) {
        r->first_layer[s] = r->n_layers;
        r->n_layers += n_layers[s];
    }
    if (pp_mul(r->parts, r->n_layers * PP_N_LAPS, &n, err))
        return -1;
    r->sizes = make(r, r->parts, sizeof *r->sizes, err);
    r->seconds = make(r, n, sizeof *r->seconds, err);
    if (!r->sizes || !r->seconds)
        return -1;
    /* A copy of the weights sees only some of the microbatches. */
    n *= (size_t)r->kept.n_steps * (size_t)r->kept.n_passes;
    for (size_t i = 0; i < n; i++)
        r->seconds[i] = -1;
    return 0;
}

int pp_recorder_init(struct pp_recorder *r, const struct pp_schedule *s,
                     int rank, const size_t *n_layers,
                     const struct pp_recording *kept, struct pp_err *err)
{
    *r = (struct pp_recorder){.kept = *kept, .schedule = s};
    r->n = s->rows[rank].n;
    r->parts = (size_t)s->n_microbatches * (size_t)s->graph->n_slices;
    r->spans = make(r, r->n, sizeof *r->spans, err);
    r->marks = make(r, 1, sizeof *r->marks, err);
    if (!r->spans || !r->marks)
        return -1;
    return kept->layers ? init_layers(r, n_layers, err) : 0;
}

void pp_recorder_finish(struct pp_recorder *r)
{
    free(r->spans);
    free(r->marks);
    free(r->first_layer);
    free(r->seconds);
    free(r->sizes);
    *r = (struct pp_recorder){0};
}

/* --- the course of a step --- */

static size_t latest(const struct pp_recorder *r)
{
    return (size_t)((r->n_done - 1) % r->kept.n_steps);
}

void pp_recorder_step(struct pp_recorder *r)
{
    if (!r->spans)
        return;
    r->n_done++;
    pp_recorder_mark(r, PP_MARK_START);
}

void pp_recorder_mark(struct pp_recorder *r, enum pp_mark mark)
{
    if (r->spans)
        r->marks[latest(r)][mark] = pp_clock();
}

void pp_recorder_pass(struct pp_recorder *r, int pass,
                      const struct pp_player *player, void *ctx,
                      const size_t *pc)
{
    r->pass = latest(r) * (size_t)r->kept.n_passes + (size_t)pass;
    r->player = player;
    r->ctx = ctx;
    r->pc = pc;
}

void pp_recorder_passed(struct pp_recorder *r)
{
    r->laps.seconds = NULL;
}

/* Pairs of a token and one that it attends to: real tokens, each with itself
 * and those before it in its sequence. */
static double pairs_of(const struct pp_microbatch *mb)
{
    double pairs = 0;
    for (size_t i = 0; i < mb->n_sequences; i++) {
        double n = mb->cu_seqlens[i + 1] - mb->cu_seqlens[i];
        double before = n > 0 ? mb->positions[mb->cu_seqlens_padded[i]] : 0;
        pairs += n * before + n * (n + 1) / 2;
    }
    return pairs;
}

void pp_recorder_layers(struct pp_recorder *r, struct pp_action a,
                        const struct pp_microbatch *mb)
{
    if (!r->seconds)
        return;
    size_t slices = r->parts / (size_t)r->schedule->n_microbatches;
    size_t part =
        r->pass * r->parts + (size_t)a.microbatch * slices + (size_t)a.slice;
    r->sizes[part][0] = (double)mb->tokens;
    r->sizes[part][1] = pairs_of(mb);
    r->laps.seconds =
        r->seconds + (part * r->n_layers + r->first_layer[a.stage]) * PP_N_LAPS;
    r->laps.last = pp_clock();
}

int pp_recorder_n_kept(const struct pp_recorder *r)
{
    return r->n_done < r->kept.n_steps ? (int)r->n_done : r->kept.n_steps;
}

int pp_recorder_place(const struct pp_recorder *r, int k)
{
    int64_t first = r->n_done - pp_recorder_n_kept(r);
    return (int)((first + k) % r->kept.n_steps);
}

/* --- the player --- */

typedef int (*action_fn)(void *ctx, struct pp_action a, struct pp_err *err);
typedef int (*message_fn)(void *ctx, struct pp_action a, int peer,
                          struct pp_err *err);

static double *begin(struct pp_recorder *r)
{
    double *span = r->spans[r->pass * r->n + *r->pc];
    span[0] = pp_clock();
    return span;
}

static int note_action(struct pp_recorder *r, action_fn f, struct pp_action a,
                       struct pp_err *err)
{
    double *span = begin(r);
    int rc = f(r->ctx, a, err);
    span[1] = pp_clock();
    return rc;
}

static int note_message(struct pp_recorder *r, message_fn f, struct pp_action a,
                        int peer, struct pp_err *err)
{
    double *span = begin(r);
    int rc = f(r->ctx, a, peer, err);
    span[1] = pp_clock();
    return rc;
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return note_action(r, r->player->compute, a, err);
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return note_message(r, r->player->send, a, peer, err);
}

static int recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return note_message(r, r->player->recv, a, peer, err);
}

static int sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return note_action(r, r->player->sync, a, err);
}

const struct pp_player pp_recording_player = {compute, send, recv, sync};
