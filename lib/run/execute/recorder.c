/* SPDX-License-Identifier: MIT */
/* recorder - timestamps of the actions of a step and of their layers. */
#include "run/execute/recorder.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* Allocates n items of size bytes for every pass of every step that is kept. */
static void *make(const struct pp_recorder *r, size_t n, size_t size,
                  struct pp_err *err)
{
    size_t passes = (size_t)r->kept.n_steps * (size_t)r->kept.n_passes, bytes;
    if (pp_mul(passes, n ? n : 1, &n, err) || pp_mul(n, size, &bytes, err))
        return NULL;
    void *p = malloc(bytes);
    /* Touch the pages now, so that no page is new during a step. */
    if (p)
        memset(p, 0, bytes);
    else
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory: recording %d steps",
                r->kept.n_steps);
    return p;
}

/* --- indices of the timestamps of a step --- */

static size_t timestamp_of_span(const struct pp_recorder *r, size_t pass,
                                size_t i)
{
    return PP_N_MARKS + 2 * (pass * r->n + i);
}

static size_t timestamp_of_layers(const struct pp_recorder *r, size_t pass,
                                  size_t i)
{
    return timestamp_of_span(r, (size_t)r->kept.n_passes, 0) + pass * r->n + i;
}

static size_t n_layer_times(const struct pp_recorder *r)
{
    return (size_t)r->kept.n_passes * r->parts * r->n_layers * PP_N_LAYER_TIMES;
}

static size_t timestamp_of_layer(const struct pp_recorder *r, size_t i)
{
    return timestamp_of_layers(r, (size_t)r->kept.n_passes, 0) + i;
}

static size_t n_timestamps(const struct pp_recorder *r)
{
    return r->kept.layers ? timestamp_of_layer(r, n_layer_times(r))
                          : timestamp_of_span(r, (size_t)r->kept.n_passes, 0);
}

/* --- allocation --- */

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
    if (pp_mul(r->parts, r->n_layers * PP_N_LAYER_TIMES, &n, err))
        return -1;
    r->sizes = make(r, r->parts, sizeof *r->sizes, err);
    r->seconds = make(r, n, sizeof *r->seconds, err);
    r->from = calloc(n_layer_times(r) + 1, sizeof *r->from);
    if (r->sizes && r->seconds && !r->from)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return r->sizes && r->seconds && r->from ? 0 : -1;
}

int pp_recorder_init(struct pp_recorder *r, const struct pp_schedule *s,
                     int rank, const size_t *n_layers,
                     const struct pp_recording *kept, struct pp_device *d,
                     struct pp_err *err)
{
    *r = (struct pp_recorder){.kept = *kept, .schedule = s, .device = d};
    r->n = s->rows[rank].n;
    r->parts = (size_t)s->n_microbatches * (size_t)s->graph->slices.n;
    r->spans = make(r, r->n, sizeof *r->spans, err);
    r->marks = make(r, 1, sizeof *r->marks, err);
    if (!r->spans || !r->marks)
        return -1;
    if (kept->layers && init_layers(r, n_layers, err))
        return -1;
    r->layer_times.timestamps = &r->timestamps;
    r->layer_times.device = d;
    return pp_timestamps_init(&r->timestamps, d, n_timestamps(r), err);
}

void pp_recorder_finish(struct pp_recorder *r)
{
    free(r->spans);
    free(r->marks);
    free(r->first_layer);
    free(r->seconds);
    free(r->sizes);
    free(r->from);
    pp_timestamps_finish(&r->timestamps);
    *r = (struct pp_recorder){0};
}

/* --- a step --- */

static size_t latest(const struct pp_recorder *r)
{
    return (size_t)((r->n_done - 1) % r->kept.n_steps);
}

void pp_recorder_step(struct pp_recorder *r)
{
    if (!r->spans)
        return;
    r->n_done++;
    pp_timestamps_clear(&r->timestamps);
    pp_recorder_mark(r, PP_MARK_START);
}

void pp_recorder_mark(struct pp_recorder *r, enum pp_mark mark)
{
    if (r->spans)
        pp_timestamp(&r->timestamps, r->device, mark);
}

/* A time is -1 if nothing ran: a copy of the weights sees only some of the
 * microbatches. */
static void read_layer_times(struct pp_recorder *r)
{
    const double *times = r->timestamps.times;
    double *to = r->seconds + latest(r) * n_layer_times(r);
    for (size_t i = 0; i < n_layer_times(r); i++) {
        double end = times[timestamp_of_layer(r, i)];
        to[i] = end < 0 ? -1 : end - times[r->from[i]];
    }
}

int pp_recorder_read(struct pp_recorder *r, struct pp_err *err)
{
    if (!r->spans)
        return 0;
    if (pp_timestamps_read(&r->timestamps, err))
        return -1;
    size_t n = (size_t)r->kept.n_passes * r->n;
    const double *times = r->timestamps.times;
    memcpy(r->marks[latest(r)], times, sizeof *r->marks);
    memcpy(r->spans[latest(r) * n], times + timestamp_of_span(r, 0, 0),
           n * sizeof *r->spans);
    if (r->timestamps.error > r->error)
        r->error = r->timestamps.error;
    if (r->seconds)
        read_layer_times(r);
    return 0;
}

void pp_recorder_pass(struct pp_recorder *r, int pass,
                      const struct pp_player *player, void *ctx,
                      const size_t *pc)
{
    r->pass = (size_t)pass;
    r->player = player;
    r->ctx = ctx;
    r->pc = pc;
}

void pp_recorder_passed(struct pp_recorder *r)
{
    r->layer_times.from = NULL;
}

/* Counts the pairs of a token and one that it attends to: each real token with
 * itself and with the earlier ones of its sequence. */
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

/* Counts the pairs of rows of each image. */
static double image_pairs_of(const struct pp_microbatch *images)
{
    double pairs = 0;
    for (size_t i = 0; i < images->n_sequences; i++) {
        double n = images->cu_seqlens[i + 1] - images->cu_seqlens[i];
        pairs += n * n;
    }
    return pairs;
}

void pp_recorder_begin(struct pp_recorder *r, size_t place,
                       struct pp_device *on)
{
    pp_timestamp(&r->timestamps, on, timestamp_of_span(r, r->pass, place));
}

void pp_recorder_end(struct pp_recorder *r, size_t place, struct pp_device *on)
{
    pp_timestamp(&r->timestamps, on, timestamp_of_span(r, r->pass, place) + 1);
}

void pp_recorder_layers(struct pp_recorder *r, size_t place, struct pp_action a,
                        const struct pp_host_microbatch *host)
{
    const struct pp_microbatch *mb = &host->of;
    if (!r->seconds)
        return;
    size_t slices = r->parts / (size_t)r->schedule->n_microbatches;
    size_t part =
        r->pass * r->parts + (size_t)a.microbatch * slices + (size_t)a.slice;
    size_t passes = latest(r) * (size_t)r->kept.n_passes;
    struct pp_part_size *size = &r->sizes[passes * r->parts + part];
    *size = (struct pp_part_size){.tokens = (double)mb->tokens / r->kept.share,
                                  .pairs = pairs_of(mb) / r->kept.share};
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        const struct pp_microbatch *images = mb->views[k];
        if (!images)
            continue;
        size->images[k].rows = images->tokens;
        size->images[k].features = images->encoder.n_features;
        size->images[k].pairs = image_pairs_of(images);
    }
    size_t lap =
        (part * r->n_layers + r->first_layer[a.stage]) * PP_N_LAYER_TIMES;
    r->layer_times.first = timestamp_of_layer(r, lap);
    r->layer_times.from = r->from + lap;
    r->layer_times.last = timestamp_of_layers(r, r->pass, place);
    pp_timestamp(&r->timestamps, r->device, r->layer_times.last);
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

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return r->player->compute(r->ctx, a, err);
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    pp_recorder_begin(r, *r->pc, r->device);
    int rc = r->player->send(r->ctx, a, peer, err);
    pp_recorder_end(r, *r->pc, r->device);
    return rc;
}

static int recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return r->player->recv(r->ctx, a, peer, err);
}

static int sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct pp_recorder *r = ctx;
    return r->player->sync(r->ctx, a, err);
}

const struct pp_player pp_recording_player = {compute, send, recv, sync};
