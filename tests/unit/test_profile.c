/* SPDX-License-Identifier: MIT */
/* test_profile - the fit of a profile: it finds the coefficients that the times
 * were made from, even if a few times are disturbed, and it is as close as the
 * best of all lines through two measurements. */
#include "sched_fixture.h"

#include "base/rng.h"
#include "model/profile.h"
#include "model/vision.h"
#include "run/train/rank.h"
#include "run/train/record.h"
#include "schedule/simulate/sim.h"

/* --- the fit --- */

static double distance(const struct pp_fit_point *p, size_t n,
                       const double c[2])
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs(p[i].y - c[0] * p[i].x[0] - c[1] * p[i].x[1]);
    return sum;
}

/* Returns the least sum of distances. Some optimal coefficients pass through
 * two measurements, or through one with the other coefficient 0. */
static double least_distance(const struct pp_fit_point *p, size_t n)
{
    double least = distance(p, n, (const double[]){0, 0});
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            double det = p[i].x[0] * p[k].x[1] - p[i].x[1] * p[k].x[0];
            const double c[] = {(p[i].y * p[k].x[1] - p[k].y * p[i].x[1]) / det,
                                (p[k].y * p[i].x[0] - p[i].y * p[k].x[0]) /
                                    det};
            if (c[0] >= 0 && c[1] >= 0)
                least = fmin(least, distance(p, n, c));
        }
        for (int axis = 0; axis < 2; axis++) {
            double c[2] = {0};
            c[axis] = p[i].y / p[i].x[axis];
            least = fmin(least, distance(p, n, c));
        }
    }
    return least;
}

static const double even[] = {1, 1};

static void test_exact(void)
{
    struct pp_fit_point p[9];
    double c[2];
    for (int i = 0; i < 9; i++) {
        double tokens = 100 + 50 * i, pairs = tokens * (7 + (i * 5) % 9);
        p[i] = (struct pp_fit_point){{tokens, pairs},
                                     3e-6 * tokens + 2e-7 * pairs};
    }
    ok(pp_least_deviation(p, 9, even, c),
       "the coefficients are distinct for times of different sizes");
    is_near(c[0] / 3e-6, 1, 1e-9, "seconds per token");
    is_near(c[1] / 2e-7, 1, 1e-9, "seconds per pair");
    p[2].y *= 50; /* a disturbed measurement */
    p[7].y *= 9;
    pp_least_deviation(p, 9, even, c);
    is_near(c[0] / 3e-6, 1, 1e-4, "two of nine disturbed: per token");
    is_near(c[1] / 2e-7, 1, 1e-4, "two of nine disturbed: per pair");
    for (int i = 0; i < 9; i++)
        p[i].x[1] = 0;
    ok(!pp_least_deviation(p, 9, (const double[]){1, 0}, c) && c[1] == 0 &&
           c[0] > 3e-6,
       "without pairs the coefficient of pairs is 0");
}

static void test_alike(void)
{
    struct pp_fit_point p[5];
    double c[2];
    for (int i = 0; i < 5; i++)
        p[i] = (struct pp_fit_point){{512, 512 * 513 / 2}, 1e-3 * (1 + i)};
    ok(!pp_least_deviation(p, 5, (const double[]){2, .5}, c),
       "equal sizes: the coefficients are not distinct");
    is_near(512 * c[0] + 512. * 513 / 2 * c[1], 3e-3, 1e-9,
            "the fit gives the median time");
    is_near(c[0] / c[1], 4, 1e-9, "the coefficients have the ratio of shares");
    p[0].x[0] = 513;
    ok(!pp_least_deviation(p, 5, even, c),
       "nearly equal sizes: the coefficients are not distinct");
    ok(!pp_least_deviation(p, 0, even, c) && c[0] == 0 && c[1] == 0,
       "no measurements: the coefficients are 0");
    p[0] = p[1] = (struct pp_fit_point){{0, 0}, 1e-6};
    ok(!pp_least_deviation(p, 2, even, c) && c[0] == 0,
       "empty microbatches: the coefficients are 0");
}

static void test_random(void)
{
    struct pp_fit_point p[12];
    int good = 0, sign = 0;
    uint64_t key = pp_rng_key(7, "fit"), at = 0;
    for (int round = 0; round < 300; round++) {
        double c[2];
        for (int i = 0; i < 12; i++) {
            double tokens = 1 + 1000 * pp_rng_uniform(key, at++);
            double pairs = tokens * (1 + 500 * pp_rng_uniform(key, at++));
            p[i] = (struct pp_fit_point){{tokens, pairs},
                                         pp_rng_uniform(key, at++) * tokens};
        }
        pp_least_deviation(p, 12, even, c);
        sign += c[0] >= 0 && c[1] >= 0;
        good += distance(p, 12, c) <= 1.02 * least_distance(p, 12);
    }
    is_int(sign, 300, "no coefficient is negative");
    is_int(good, 300, "within 2 % of the best of all lines");
}

/* --- from a recorder --- */

static const struct pp_model model = {.architecture = PP_LLAMA,
                                      .hidden = 8,
                                      .intermediate = 24,
                                      .n_layers = 2,
                                      .n_heads = 2,
                                      .n_kv_heads = 1,
                                      .head_dim = 4,
                                      .vocab = 32};

enum { STEPS = 3, M = 4 };

/* Returns the true seconds of a part of a unit, per token or per pair. */
static double truth(const struct pp_model *m, size_t unit, int lap, int per)
{
    double attends = pp_model_unit(m, unit).kind == PP_UNIT_LAYER &&
                     lap != PP_LAYER_TIME_WEIGHT;
    return per ? attends * 1e-8 * (double)(unit + 1) * (lap + 2)
               : 1e-6 * (double)(unit + 2) * (3 - lap);
}

/* Two ranks, and the recorder of one of them. The first of three steps was slow
 * in everything. */
struct scene {
    struct fixture f;
    struct pp_job job;
    struct pp_unit_range stages[2];
    struct pp_stage stage[2];
    struct pp_edges passed[2];
    struct pp_layer layers[16];
    struct pp_rank r;
};

static void fill(struct scene *s)
{
    struct pp_recorder *rec = &s->r.recorder;
    const struct pp_model *m = s->job.model;
    for (size_t step = 0; step < STEPS; step++)
        for (size_t k = 0; k < M; k++) {
            size_t part = step * M + k;
            double tokens = 10. + 7 * (double)k;
            double pairs = tokens * (3 + (double)(5 * k % 7));
            rec->sizes[part] = (struct pp_part_size){
                tokens, pairs, {{5 * k % 3 * (9 + 1), 5 * k % 3 * 9, 0}}};
            for (int st = 0; st < 2; st++)
                for (size_t i = 0; i < s->stage[st].n_layers; i++)
                    for (int lap = 0; lap < PP_N_LAYER_TIMES; lap++)
                        rec->seconds[(part * rec->n_layers +
                                      rec->first_layer[st] + i) *
                                         PP_N_LAYER_TIMES +
                                     (size_t)lap] =
                            (step == 0 ? 40 : 1) *
                            (tokens *
                                 truth(m, s->stages[st].first + i, lap, 0) +
                             pairs * truth(m, s->stages[st].first + i, lap, 1));
        }
    rec->n_done = STEPS;
}

/* Makes the scene of a rank. The first stage has n units. */
static bool build(struct scene *s, const struct pp_model *m, size_t n, int rank)
{
    size_t n_layers[2] = {0}, units = pp_model_n_units(m);
    const struct pp_recording kept = {STEPS, 1, true, 1};
    *s = (struct scene){0};
    chain(&s->f, 2, 1, PP_PLACEMENT_LOOP);
    if (emit(&s->f, "1f1b", M, 0) || pp_lower(&s->f.s, &s->f.err))
        return false;
    s->stages[0] = (struct pp_unit_range){.first = 0, .n = n};
    s->stages[1] = (struct pp_unit_range){.first = n, .n = units - n};
    s->job =
        (struct pp_job){.model = m, .schedule = &s->f.s, .stages = s->stages};
    s->r.job = &s->job;
    s->r.kernels.element_bytes = 4;
    s->r.env.layout.n_components = 1;
    s->r.env.layout.components[0].mesh =
        (struct pp_mesh){.pp = 2, .dp = 1, .tp = 1, .cp = 1, .ep = 1};
    s->r.worker.graph = &s->f.graph;
    s->r.worker.engine.stages = s->stage;
    s->r.worker.engine.passed = s->passed;
    for (int k = 0; k < 2; k++)
        s->passed[k] = pp_stage_edges(m, s->stages[k].first, s->stages[k].n);
    n_layers[rank] = s->stage[rank].n_layers = s->stages[rank].n;
    s->stage[rank].layers = s->layers;
    for (size_t i = 0; i < s->stages[rank].n; i++) {
        size_t unit = s->stages[rank].first + i;
        s->layers[i].number = unit;
        s->layers[i].rows = pp_unit_rows(pp_model_unit(m, unit));
    }
    if (pp_recorder_init(&s->r.recorder, &s->f.s, rank, n_layers, &kept, NULL,
                         &s->f.err))
        return false;
    fill(s);
    return true;
}

static void finish(struct scene *s)
{
    pp_recorder_finish(&s->r.recorder);
    drop(&s->f);
}

static void test_layers(void)
{
    for (int rank = 0; rank < 2; rank++) {
        struct scene s;
        struct pp_unit_fit fits[8] = {0};
        double worst = 0;
        int strangers = 0;
        ok(build(&s, &model, 2, rank) &&
               !pp_fit_layers(&s.r, 1, fits, &s.f.err),
           "rank %d is fitted", rank);
        for (size_t u = 0; u < pp_model_n_units(&model); u++) {
            bool mine = u >= s.stages[rank].first &&
                        u < s.stages[rank].first + s.stages[rank].n;
            strangers += fits[u].n != mine;
            for (int lap = 0; mine && lap < PP_N_LAYER_TIMES; lap++)
                for (int per = 0; per < 2; per++)
                    worst = fmax(worst, fabs(fits[u].seconds[lap][per] -
                                             truth(&model, u, lap, per)) /
                                            truth(&model, u, lap, 0));
        }
        is_int(strangers, 0, "only the rank's own units are fitted");
        ok(worst < 1e-6, "the fit finds the true times (%.1e)", worst);
        finish(&s);
    }
}

/* Returns the bytes of a message between the stages. */
typedef double bytes_fn(const struct pp_part_size *x);

static double token_bytes(const struct pp_part_size *x)
{
    return x->tokens * 8 * 4;
}

static double patch_bytes(const struct pp_part_size *x)
{
    return (double)x->images[0].rows * 12 * 4;
}

static double feature_bytes(const struct pp_part_size *x)
{
    return (double)x->images[0].features * 8 * 4;
}

/* Fills the spans of both ranks and the marks of every step. A message takes
 * 2 us and 1 ns per byte; its receiver waits from 5 us before. */
static void fill_record(const struct scene *s, bytes_fn *bytes_of,
                        struct pp_record *record)
{
    const struct pp_model *of = s->job.model;
    struct pp_messages messages;
    struct pp_err err = {0};
    struct pp_sim sim;
    for (int step = 0; step < STEPS; step++) {
        if (pp_record_view(record, step, 0, 0, &sim, &err))
            return;
        pp_messages_find(&s->f.s, sim.rows, NULL, 0, &messages);
        for (size_t i = 0; i < messages.n; i++) {
            const struct pp_message *m = &messages.at[i];
            double bytes =
                bytes_of(&s->r.recorder.sizes[step * M + m->action.microbatch]);
            double at = (double)i + 1, took = 2e-6 + 1e-9 * bytes;
            size_t from = (size_t)(m->from * STEPS + step) * record->n,
                   to = (size_t)(m->to * STEPS + step) * record->n;
            /* Every third receive is late and must not count. */
            record->spans[from + m->send][0] = at;
            record->spans[to + m->recv][0] = at + (i % 3 ? -5e-6 : 4e-3);
            record->spans[to + m->recv][1] = at + (i % 3 ? took : 5e-3);
        }
        pp_messages_finish(&messages);
        pp_sim_finish(&sim);
        for (int r = 0; r < 2; r++) {
            double *mark = record->marks[r * STEPS + step];
            double params = 0, slow = step == 0 ? 30 : 1;
            for (size_t i = 0; i < s->stages[r].n; i++)
                params += (double)pp_unit_n_params(
                    of, pp_model_unit(of, s->stages[r].first + i));
            mark[PP_MARK_ZEROED] = slow * params * 1e-9;
            mark[PP_MARK_PLAYED] = 7 + r; /* rank 1 ends last */
            mark[PP_MARK_EXCHANGED] = 8 + slow * params * 2e-9;
            mark[PP_MARK_UPDATED] = 8 + slow * params * 5e-9;
        }
    }
}

static struct pp_record make_record(const struct scene *s, bytes_fn *bytes_of)
{
    const struct pp_row *rows = s->f.s.rows;
    struct pp_record r = {.schedule = &s->f.s, .n_steps = STEPS, .n_passes = 1};
    r.n = rows[0].n > rows[1].n ? rows[0].n : rows[1].n;
    r.spans = calloc(2 * STEPS * r.n, sizeof *r.spans);
    r.marks = calloc(2 * STEPS, sizeof *r.marks);
    fill_record(s, bytes_of, &r);
    return r;
}

/* A message of an encoder has the rows of its images, however many tokens. */
static void test_images(void)
{
    struct pp_model m = model;
    m.encoders[0] = (struct pp_vision){.kind = PP_VISION_LLAVA,
                                       .hidden = 12,
                                       .n_layers = 2,
                                       .n_run = 2,
                                       .n_heads = 2,
                                       .merge = 1,
                                       .class_token = true,
                                       .patches = 9};
    const struct {
        size_t n;
        bytes_fn *bytes;
        const char *what;
    } cuts[] = {{2, patch_bytes, "in the encoder"},
                {pp_component_first(&m, PP_LANGUAGE), feature_bytes,
                 "behind the projector"}};
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        struct pp_profile p = {0};
        ok(build(&s, &m, cuts[i].n, 0), "a cut %s", cuts[i].what);
        struct pp_record record = make_record(&s, cuts[i].bytes);
        ok(!pp_fit_messages(&s.r, &record, 1, &p, &s.f.err), "messages");
        is_near(p.seconds_per_byte / 1e-9, 1, 1e-3, "seconds per byte");
        is_near(p.latency / 2e-6, 1, 1e-3, "latency");
        free(record.spans);
        free(record.marks);
        finish(&s);
    }
}

static void test_record(void)
{
    struct scene s;
    struct pp_profile p = {0};
    ok(build(&s, &model, 2, 0), "a schedule of two ranks");
    struct pp_record record = make_record(&s, token_bytes);
    ok(!pp_fit_messages(&s.r, &record, 1, &p, &s.f.err), "messages");
    is_near(p.seconds_per_byte / 1e-9, 1, 1e-3, "seconds per byte");
    is_near(p.latency / 2e-6, 1, 1e-3, "latency");
    /* Clocks differ: three of four messages arrive before they leave. */
    for (size_t i = 0; i < 2 * STEPS * record.n; i++)
        record.spans[i][1] = record.spans[i][0] + (i % 4 ? 4e-6 : 1e-4);
    ok(!pp_fit_messages(&s.r, &record, 1, &p, &s.f.err) &&
           p.seconds_per_byte >= 0 && p.latency >= 0,
       "clocks that differ make no negative times");
    ok(!pp_fit_step(&s.r, &record, 1, &p, &s.f.err), "the rest of a step");
    is_near(p.seconds_per_param / 6e-9, 1, 1e-6, "seconds per parameter");
    free(record.spans);
    free(record.marks);
    finish(&s);
}

int main(void)
{
    test_exact();
    test_alike();
    test_random();
    test_layers();
    test_record();
    test_images();
    return done();
}
