/* SPDX-License-Identifier: MIT */
/* image_golden - trains a small model with images or audio, and compares it
 * with what transformers computed (scripts/gen-llava, scripts/gen-qwen2-vl,
 * scripts/gen-audio, scripts/gen-omni): losses and norms of AdamW steps, the
 * gradient of every weight, and log-probabilities. */
#ifndef PP_TESTS_IMAGE_GOLDEN_H
#define PP_TESTS_IMAGE_GOLDEN_H

#include <math.h>

#include "data/tensors/safetensors.h"
#include "manifest/config_json.h"
#include "merged.h"
#include "model/frozen.h"
#include "model/vision.h"
#include "omni_model.h"
#include "schedule/check/check.h"
#include "schedule/kinds/kind.h"
#include "scratch.h"
#include "small_run.h"
#include "tap.h"

enum {
    STEPS = 5,
    BINS = 4,
    SEQUENCES = 6,
    MOST_STAGES = 6,
    MOST_TOKENS = 256,
    MOST_UNITS = 16
};

/* The gradient of a key's bias is truly zero. */
#define SMALL 1e-3

/* The sequences of each bin; the second has no image. */
static const uint32_t order[SEQUENCES] = {0, 2, 1, 4, 3, 5};
static const size_t first[BINS + 1] = {0, 2, 4, 5, 6};

struct golden {
    const char *name; /* of its folder */
    struct pp_model m;
    struct pp_tensors *weights, *want;
    struct pp_packed data;
    size_t from[SEQUENCES + 1]; /* tokens before each sequence of the golden */
};

/* Units first[s] .. first[s + 1] - 1 of each stage, which has a rank. Stages
 * are a chain, or two branches: one from stage `second` on, which meet in stage
 * `join`. */
struct split {
    const char *name;
    int n;
    size_t first[MOST_STAGES + 1];
    int second, join; /* 0: a chain */
};

/* Reads a tensor of the golden, which the caller frees. */
static double *read_values(const struct golden *g, const char *name, size_t *n)
{
    const struct pp_tensor *x = pp_tensors_find(g->want, name);
    struct pp_err err = {0};
    double *at = x ? calloc(x->n + 1, sizeof *at) : NULL;
    if (!at || pp_tensor_read_f64(x, 0, x->n, at, &err))
        give_up("%s: %s", name, x ? err.text : "is missing");
    *n = x->n;
    return at;
}

/* Returns the larger error. One that is not a number is infinite. */
static double worse(double a, double b)
{
    return isnan(b) ? INFINITY : fmax(a, b);
}

/* --- data --- */

/* Pads sequences to a multiple of align. */
static int write_tokens(struct golden *g, const char *dir, uint32_t align,
                        struct pp_err *err)
{
    int32_t ids[MOST_TOKENS], labels[MOST_TOKENS];
    struct pp_piece pieces[SEQUENCES] = {0};
    size_t n, n_sequences;
    double *id = read_values(g, "ids", &n);
    double *label = read_values(g, "labels", &n);
    double *length = read_values(g, "lengths", &n_sequences);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)id[i];
        labels[i] = (int32_t)label[i];
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        g->from[i + 1] = g->from[i] + (size_t)length[i];
        pieces[i].source = i;
        pieces[i].at = g->from[i];
        pieces[i].length = (uint32_t)length[i];
        pieces[i].padded = (pieces[i].length + align - 1) / align * align;
    }
    const struct pp_packed_content c = {.ids = ids,
                                        .labels = labels,
                                        .pieces = pieces,
                                        .n_bins = BINS,
                                        .first = first,
                                        .items = order,
                                        .n_inputs = SEQUENCES,
                                        .capacity = MOST_TOKENS,
                                        .align = align,
                                        .counts.tokens = n};
    free(id);
    free(label);
    free(length);
    return pp_packed_write(dir, &c, err);
}

/* Returns whether tensors of clips have names of their own. */
static bool names_clips(const struct golden *g, size_t encoder)
{
    return pp_vision_hears(&g->m.encoders[encoder]) &&
           pp_tensors_find(g->want, "clips");
}

/* Reads the grids of all items of an encoder, and the rows before each. LLaVA's
 * images have one size. */
static void read_grids(const struct golden *g, size_t encoder,
                       struct pp_grid *grids, size_t *row)
{
    bool clips = names_clips(g, encoder);
    bool given = pp_tensors_find(g->want, "grids") != NULL;
    size_t n;
    double *at = read_values(g,
                             clips   ? "frames"
                             : given ? "grids"
                                     : "images",
                             &n);
    for (size_t i = 0; i < 2 * SEQUENCES; i++) {
        grids[i] = (struct pp_grid){1, 2, 2};
        if (clips && i < n)
            grids[i] = pp_clip_grid((uint32_t)at[i]);
        else if (given && 3 * i < n)
            grids[i] =
                (struct pp_grid){(uint32_t)at[3 * i], (uint32_t)at[3 * i + 1],
                                 (uint32_t)at[3 * i + 2]};
        row[i + 1] = row[i] + pp_grid_size(&grids[i]);
    }
    free(at);
}

/* Gives the set in memory the images of an encoder, in the order of its
 * sequences. */
static int add_images(struct golden *g, size_t encoder, struct pp_err *err)
{
    const struct pp_vision *v = &g->m.encoders[encoder];
    size_t n, n_patches, width = v->patch_inputs, to = 0;
    bool clips = names_clips(g, encoder);
    double *images = read_values(g, clips ? "clips" : "images", &n);
    double *patches = read_values(g, clips ? "rows" : "patches", &n_patches);
    uint32_t counts[SEQUENCES], before[SEQUENCES + 1] = {0};
    struct pp_grid of[2 * SEQUENCES], grids[2 * SEQUENCES];
    size_t row[2 * SEQUENCES + 1] = {0};
    float *pixels = NULL;
    read_grids(g, encoder, of, row);
    for (size_t i = 0; i < SEQUENCES; i++)
        before[i + 1] = before[i] + (uint32_t)images[i];
    for (size_t i = 0; i < SEQUENCES; i++) {
        counts[i] = (uint32_t)images[order[i]];
        for (uint32_t k = 0; k < counts[i]; k++)
            grids[to++] = of[before[order[i]] + k];
    }
    const struct pp_item_content c = {
        .kind = image_kind(v), .n = counts, .grids = grids};
    int rc = pp_packed_set_items(&g->data, &c, &pixels, err);
    to = 0;
    for (size_t i = 0; i < SEQUENCES && !rc; i++) {
        size_t from = row[before[order[i]]], end = row[before[order[i] + 1]];
        for (size_t k = from * width; k < end * width; k++)
            pixels[to++] = (float)patches[k];
    }
    free(images);
    free(patches);
    return rc;
}

/* Opens the files of a folder. With a name such as "qwen2.5-omni/audio" the
 * model has that encoder alone. */
static void open_files(struct golden *g, const char *name)
{
    const char *source = getenv("SRCDIR"), *only = strchr(name, '/');
    char dir[4096], path[4200];
    struct pp_err err = {0};
    snprintf(dir, sizeof dir, "%.4000s/tests/golden/%.*s",
             source ? source : ".", (int)strcspn(name, "/"), name);
    snprintf(path, sizeof path, "%s/%.40s.safetensors", dir,
             only ? only + 1 : "training");
    if (pp_model_read(dir, &g->m, &err) ||
        pp_tensors_open(dir, &g->weights, &err) ||
        pp_tensors_open(path, &g->want, &err))
        give_up("%s", err.text);
    if (only)
        keep_encoder(&g->m, only + 1);
}

static void open_golden(struct golden *g, const char *name, uint32_t align)
{
    char path[4200], scratch[SCRATCH_TEXT];
    struct pp_packed mapped = {0};
    struct pp_err err = {0};
    *g = (struct golden){.name = name};
    open_files(g, name);
    scratch_make(scratch);
    snprintf(path, sizeof path, "%s/packed", scratch);
    if (write_tokens(g, path, align, &err) ||
        pp_packed_open(path, &mapped, &err) ||
        pp_packed_take(&mapped, BINS, &g->data, &err))
        give_up("%s", err.text);
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (g->m.encoders[k].kind != PP_VISION_NONE && add_images(g, k, &err))
            give_up("%s", err.text);
    pp_packed_finish(&mapped);
    scratch_remove(scratch);
}

static void close_golden(struct golden *g)
{
    pp_packed_finish(&g->data);
    pp_tensors_close(g->weights);
    pp_tensors_close(g->want);
}

/* --- runs --- */

struct result {
    const struct golden *g;
    double loss[STEPS], norm[STEPS];
    double worst; /* error of a gradient, over its norm */
    char at[PP_FQN_TEXT];
    size_t n_compared;
    double logps[MOST_TOKENS]; /* of the tokens of the golden */
    pthread_mutex_t lock;
};

static int keep(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    (void)err;
    struct result *to = ctx;
    to->loss[r->step - 1] = r->loss;
    to->norm[r->step - 1] = r->grad_norm;
    return 0;
}

static void take_scores(void *ctx, const struct pp_token_place *at,
                        const double *values, size_t n)
{
    struct result *r = ctx;
    for (size_t i = 0; i < n; i++)
        r->logps[r->g->from[order[at[i].sequence]] + at[i].position] =
            values[i];
}

static double value(const void *p, size_t i, size_t bytes)
{
    return bytes == sizeof(double) ? ((const double *)p)[i]
                                   : (double)((const float *)p)[i];
}

/* Returns the gradient of a parameter in host memory; *room is to be freed. */
static const void *host_gradient(const struct pp_parameters *of,
                                 const struct pp_parameter *p, void **room)
{
    struct pp_err err = {0};
    size_t bytes = p->n * of->accumulator_bytes;
    *room = malloc(bytes + 1);
    const void *at =
        *room ? pp_device_read(of->device, p->g, bytes, *room, &err) : NULL;
    if (!at)
        give_up("a gradient cannot be read");
    return at;
}

/* Compares the gradient of a weight, or of a piece of it, with that of the
 * golden. A weight that is not trained has none in either. */
static void compare(struct result *r, const struct pp_parameters *of,
                    const struct pp_parameter *p)
{
    char name[PP_FQN_TEXT + 8];
    size_t n;
    snprintf(name, sizeof name, "grad.%.95s", p->info.name);
    if (!p->g)
        return;
    void *room;
    const void *g = host_gradient(of, p, &room);
    double *want = read_values(r->g, name, &n);
    double off = n == pp_tensor_elements(&p->info) ? 0 : INFINITY, all = 0;
    struct pp_run run;
    for (size_t at = 0;
         pp_piece_run(&p->piece, (struct pp_range){0, p->n}, at, &run);
         at += run.n)
        for (size_t i = 0; i < run.n && off < INFINITY; i++) {
            double d = value(g, run.at + i, of->accumulator_bytes) -
                       want[run.whole + i];
            off += d * d;
            all += want[run.whole + i] * want[run.whole + i];
        }
    free(want);
    free(room);
    off = worse(0, sqrt(off) / (sqrt(all) + SMALL));
    pthread_mutex_lock(&r->lock);
    if (off > r->worst) {
        r->worst = off;
        snprintf(r->at, sizeof r->at, "%s", p->info.name);
    }
    r->n_compared++;
    pthread_mutex_unlock(&r->lock);
}

static int inspect(void *ctx, const struct pp_inspection *at,
                   struct pp_err *err)
{
    (void)err;
    struct result *r = ctx;
    for (size_t i = 0; at->updates == 0 && i < at->params->n; i++)
        compare(r, at->params, &at->params->at[i]);
    return 0;
}

struct setting {
    const struct split *split;
    const char *kind;
    const struct pp_kernels *kernels;
    const struct pp_device_ops *device; /* NULL: the CPU */
    const char *freeze;                 /* list, or NULL */
    bool merged, score;
    int dp, tp, cp;   /* 0: 1 */
    bool whole_state; /* each has all of the optimizer's state */
};

static int build(const struct setting *x, const struct pp_model *m, bool merged,
                 struct pp_arena *a, struct pp_graph *g, struct pp_err *err)
{
    static const int before[MOST_STAGES] = {0, 1, 2, 3, 4, 5};
    const struct split *b = x->split;
    int *ends = pp_arena_alloc(a, 2, sizeof *ends);
    *g = (struct pp_graph){.n_stages = b->n,
                           .n_rows = merged ? 1 : b->n,
                           .tied = {-1, -1},
                           .replicas = x->dp > 1 || x->cp > 1 || x->tp > 1};
    g->stages = pp_arena_alloc(a, (size_t)b->n, sizeof *g->stages);
    ends[0] = b->second - 1;
    ends[1] = b->join - 1;
    for (int s = 0; s < b->n; s++) {
        g->stages[s].row = merged ? 0 : s;
        g->stages[s].n_inputs = s > 0;
        g->stages[s].inputs = &before[s ? s - 1 : 0];
        g->stages[s].frozen = true;
        for (size_t u = b->first[s]; u < b->first[s + 1]; u++)
            g->stages[s].frozen &=
                pp_unit_role(m, pp_model_unit(m, u)) != PP_ROLE_TRAINED;
    }
    if (b->join) {
        g->stages[b->second].n_inputs = 0;
        g->stages[b->join].n_inputs = 2;
        g->stages[b->join].inputs = ends;
    }
    return pp_graph_connect(a, g, err);
}

static int play(const struct golden *g, const struct pp_model *m,
                const struct setting *x, const struct pp_schedule *s,
                struct result *out, struct pp_err *err)
{
    struct pp_unit_range stages[MOST_STAGES];
    struct pp_schedule forward = {0};
    for (int i = 0; i < x->split->n; i++)
        stages[i] = (struct pp_unit_range){
            i, x->split->first[i], x->split->first[i + 1] - x->split->first[i],
            0};
    pp_schedule_forward_only(s, &forward);
    const struct pp_job job = {
        .model = m,
        .schedule = s,
        .forward = &forward,
        .stages = stages,
        .mesh = {.dp = x->dp,
                 .tp = x->tp,
                 .cp = x->cp,
                 .whole_state = x->whole_state},
        .kernels = x->kernels,
        .device = x->device,
        .data = &g->data,
        .weights = g->weights,
        .weights_path = "golden",
        .optim = {.optimizer = PP_ADAMW_OPTIMIZER,
                  .lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .clip = 1,
                  .steps = x->score ? 0 : STEPS},
        .accumulate = 1,
        .score = x->score,
        .scored = take_scores,
        .inspect = inspect,
        .report = keep,
        .ctx = out,
    };
    int rc = small_ranks(&job, err);
    pp_schedule_finish(&forward);
    return rc;
}

static bool run(const struct golden *g, const struct setting *x,
                struct result *out)
{
    struct pp_arena a = {0};
    struct pp_graph graph = {0}, one = {0};
    struct pp_schedule s = {0}, merged = {0};
    struct pp_err err = {0};
    struct pp_model m = g->m;
    bool frozen[MOST_UNITS];
    enum pp_role roles[MOST_UNITS];
    int microbatches = BINS / (x->dp ? x->dp : 1);
    const struct pp_kind_options o = {.n_microbatches = microbatches};
    *out = (struct result){.g = g};
    pthread_mutex_init(&out->lock, NULL);
    pp_freeze_idle(&m, frozen);
    bool good = !x->freeze || !pp_freeze_units(&m, x->freeze, frozen, &err);
    pp_model_roles(&m, frozen, roles);
    m.roles = roles;
    good = good && !build(x, &m, false, &a, &graph, &err) &&
           !build(x, &m, true, &a, &one, &err) &&
           (pp_schedule_init(&s, &graph, x->kind, microbatches), true) &&
           !pp_kind_emit(pp_kind_find(x->kind), &s, &o, &err) &&
           !pp_lower(&s, &err) && !pp_check(&s, &err) &&
           !merge_rows(&s, &one, &merged, &err) &&
           !play(g, &m, x, x->merged ? &merged : &s, out, &err);
    if (!good)
        printf("# %s: %s\n", x->split->name, err.text);
    pp_schedule_finish(&merged);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
    pthread_mutex_destroy(&out->lock);
    return good;
}

/* --- tests --- */

/* Returns the largest error of numbers, over the wanted ones. */
static double distance(const struct golden *g, const char *name,
                       const double *got, size_t n, double least)
{
    size_t found;
    double *want = read_values(g, name, &found), worst = 0;
    for (size_t i = 0; i < n; i++)
        worst =
            worse(worst, fabs(got[i] - want[i]) / fmax(fabs(want[i]), least));
    free(want);
    return n <= found ? worst : INFINITY;
}

/* Returns the largest error of a scored log-probability. */
static double logps_off(const struct golden *g, const double *got)
{
    size_t n;
    double *labels = read_values(g, "labels", &n), *want, worst = 0;
    want = read_values(g, "logprobs", &n);
    for (size_t s = 0; s < SEQUENCES; s++)
        for (size_t i = g->from[s] + 1; i < g->from[s + 1]; i++)
            if (labels[i] != PP_LABEL_IGNORE)
                worst = worse(worst, fabs(got[i] - want[i]));
    free(labels);
    free(want);
    return worst;
}

static size_t n_gradients(const struct golden *g)
{
    size_t n = 0;
    for (size_t i = 0; i < pp_tensors_n(g->want); i++)
        n += !strncmp(pp_tensors_at(g->want, i)->name, "grad.", 5);
    return n;
}

static void beside_transformers(const struct golden *g, const struct setting *x,
                                double loss, double gradient, double later)
{
    struct result r;
    struct setting score = *x;
    ok(run(g, x, &r), "%s, %s, %s", x->kernels->name, x->split->name, x->kind);
    double off = distance(g, "losses", r.loss, 1, 0);
    ok(off <= loss, "  the loss: %.2g off", off);
    ok(r.worst <= gradient, "  every gradient: %.2g off at %s", r.worst, r.at);
    is_int((long long)r.n_compared, (long long)n_gradients(g),
           "  no gradient is missing");
    off = fmax(distance(g, "losses", r.loss, STEPS, 0),
               distance(g, "norms", r.norm, STEPS, 0));
    ok(off <= later, "  losses and norms of %d steps: %.2g off", STEPS, off);
    score.score = true;
    bool scored = run(g, &score, &r);
    off = logps_off(g, r.logps);
    ok(scored && off <= loss, "  log-probabilities: %.2g off", off);
}

/* All ranks have the bits of one, which plays the same list. */
static void same_bits(const struct golden *g, const struct setting *of)
{
    struct setting x = *of;
    struct result many, one;
    bool good = run(g, &x, &many);
    x.merged = true;
    good = run(g, &x, &one) && good;
    ok(good && isfinite(one.loss[STEPS - 1]) &&
           !memcmp(many.loss, one.loss, sizeof many.loss) &&
           !memcmp(many.norm, one.norm, sizeof many.norm),
       "%s, %s, %s, frozen: %s: the ranks have the bits of one",
       x.kernels->name, x.split->name, x.kind, x.freeze ? x.freeze : "nothing");
}

#endif
