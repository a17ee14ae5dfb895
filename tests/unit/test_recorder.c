/* SPDX-License-Identifier: MIT */
/* test_recorder - puts a recorder in front of a player that reads the same
 * clock. Every span must contain the time read inside its action. The last
 * steps are kept, and the times of layers go to the right microbatch. */
#include "sched_fixture.h"

#include "base/clock.h"
#include "run/execute/recorder.h"

enum { M = 3, PASSES = 2, KEPT = 2 };

struct seen {
    struct pp_recorder *r;
    size_t pc;
    int pass;
    double inside[PASSES][64]; /* the time inside each action */
    int32_t positions[8], cu[3], cu_padded[3];
    size_t n_layers;
};

static void note(struct seen *s)
{
    s->inside[s->pass][s->pc] = pp_clock();
}

static int see_compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct seen *s = ctx;
    const struct pp_host_microbatch host = {
        {.tokens = 8,
         .n_sequences = 2,
         .positions = s->positions,
         .cu_seqlens = s->cu,
         .cu_seqlens_padded = s->cu_padded}};
    (void)err;
    pp_recorder_begin(s->r, s->pc, NULL);
    pp_recorder_layers(s->r, s->pc, a, &host);
    for (size_t i = 0; i < s->n_layers; i++)
        pp_layer_time(&s->r->layer_times, i,
                      a.op == PP_F ? PP_LAYER_TIME_FWD : PP_LAYER_TIME_INPUT);
    note(s);
    pp_recorder_end(s->r, s->pc, NULL);
    return 0;
}

static int see_message(void *ctx, struct pp_action a, int peer,
                       struct pp_err *err)
{
    (void)a, (void)peer, (void)err;
    note(ctx);
    return 0;
}

static int see_sync(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct seen *s = ctx;
    (void)a, (void)err;
    pp_recorder_begin(s->r, s->pc, NULL);
    note(s);
    pp_recorder_end(s->r, s->pc, NULL);
    return 0;
}

static const struct pp_player player = {see_compute, see_message, see_message,
                                        see_sync};

/* Counts the spans of a kept step that do not contain the time inside. */
static int count_wrong(const struct pp_recorder *r, const struct seen *s,
                       size_t place)
{
    int wrong = 0;
    for (size_t pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < r->n; i++) {
            const double *span = r->spans[(place * PASSES + pass) * r->n + i];
            wrong += !(span[0] <= s->inside[pass][i] &&
                       s->inside[pass][i] <= span[1]);
            wrong += i > 0 && span[0] < span[-1];
        }
    return wrong;
}

/* Runs one step. Returns the number of bad spans, -1 on failure. */
static int run_step(struct pp_recorder *r, struct seen *s, size_t place)
{
    struct pp_err err = {0};
    pp_recorder_step(r);
    pp_recorder_mark(r, PP_MARK_ZEROED);
    for (s->pass = 0; s->pass < PASSES; s->pass++) {
        s->pc = 0;
        pp_recorder_pass(r, s->pass, &player, s, &s->pc);
        if (pp_play(r->schedule, 0, &s->pc, &pp_recording_player, r, &err))
            return -1;
        pp_recorder_passed(r);
    }
    pp_recorder_mark(r, PP_MARK_PLAYED);
    return pp_recorder_read(r, &err) ? -1 : count_wrong(r, s, place);
}

static void test_steps(struct pp_recorder *r, struct seen *s)
{
    is_int(pp_recorder_n_kept(r), 0, "no step is kept yet");
    for (int step = 0; step < 5; step++)
        is_int(run_step(r, s, (size_t)step % KEPT), 0,
               "spans contain their actions, in order");
    is_int(pp_recorder_n_kept(r), KEPT, "the last steps are kept");
    is_int(pp_recorder_place(r, 0), 1, "the place of the older step");
    is_int(pp_recorder_place(r, 1), 0, "the place of the newer step");
    const double *old = r->marks[1], *new = r->marks[0];
    ok(old[PP_MARK_START] <= old[PP_MARK_ZEROED] &&
           old[PP_MARK_ZEROED] <= old[PP_MARK_PLAYED] &&
           old[PP_MARK_PLAYED] <= new[PP_MARK_START],
       "marks are in order");
}

static void test_layer_times(const struct pp_recorder *r)
{
    /* Sequences of 3 and 2 tokens; the first one has 4 earlier tokens. */
    is_near(r->sizes[0].tokens, 8, 0, "tokens include the padding");
    is_near(r->sizes[0].pairs, 5 + 6 + 7 + 1 + 2, 0,
            "pairs are of real tokens");
    int there = 0, absent = 0;
    for (size_t i = 0; i < KEPT * PASSES * M * 2; i++) {
        const double *at = &r->seconds[i * PP_N_LAYER_TIMES];
        there += at[PP_LAYER_TIME_FWD] >= 0 && at[PP_LAYER_TIME_INPUT] >= 0;
        absent += at[PP_LAYER_TIME_WEIGHT] < 0;
    }
    is_int(there, KEPT * PASSES * M * 2,
           "every layer of every microbatch has a time");
    is_int(absent, KEPT * PASSES * M * 2, "layers that did not run have none");
    struct pp_layer_times layer_times = r->layer_times;
    size_t before = layer_times.last;
    pp_layer_time(&layer_times, 0, PP_LAYER_TIME_FWD);
    pp_layer_time(NULL, 0, PP_LAYER_TIME_FWD);
    ok(layer_times.last == before, "layers outside a pass are not recorded");
}

int main(void)
{
    struct fixture f;
    struct pp_recorder r = {0};
    struct seen s = {.r = &r,
                     .positions = {4, 5, 6, 0, 0, 1, 0, 0},
                     .cu = {0, 3, 5},
                     .cu_padded = {0, 4, 8},
                     .n_layers = 2};
    const struct pp_recording kept = {KEPT, PASSES, true, 1};
    pp_recorder_step(&r);
    pp_recorder_mark(&r, PP_MARK_EXCHANGED);
    ok(!pp_recorder_read(&r, &f.err) && r.n_done == 0,
       "a recorder may keep nothing");
    chain(&f, 1, 1, PP_PLACEMENT_LOOP);
    ok(!emit(&f, "1f1b", M, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_recorder_init(&r, &f.s, 0, &s.n_layers, &kept, NULL, &f.err),
       "a recorder of a rank");
    test_steps(&r, &s);
    test_layer_times(&r);
    pp_recorder_finish(&r);
    drop(&f);
    return done();
}
