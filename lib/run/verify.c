/* SPDX-License-Identifier: MIT */
/* verify - collects what the runs of --verify compute, and compares. */
#include "run/verify.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"

/* A tensor of the reference: gradients of the first step, weights at the start
 * and, once the last step is done, how far they went. */
struct pp_verify_tensor {
    char name[PP_FQN_TEXT];
    size_t n;
    double *g, *w; /* (n) */
    double g_norm, w_norm, moved;
};

/* Norms of another run's differences from it. */
struct pp_verify_seen {
    bool held;
    double g, w; /* of the differences */
    double dot;  /* of gradient and reference's, over the latter's square */
};

/* Of one sequence at one boundary: projections on fixed random signs, which
 * stand for the values themselves, and the norm. */
enum { N_SIGNS = 4, N_VALUES = N_SIGNS + 1 };

static double at(const void *p, size_t i, size_t element_bytes)
{
    return element_bytes == sizeof(double) ? ((const double *)p)[i]
                                           : (double)((const float *)p)[i];
}

static double *probe(const struct pp_verify *v, enum pp_verify_run run,
                     int stage, size_t sequence)
{
    size_t row = (size_t)run * (size_t)v->graph->n_stages + (size_t)stage;
    return v->probes + (row * v->n_sequences + sequence) * N_VALUES;
}

static struct pp_verify_seen *seen(const struct pp_verify *v,
                                   enum pp_verify_run run,
                                   const struct pp_parameter *p)
{
    size_t row = run == PP_VERIFY_MESH ? 1 + (size_t)p->stage : 0;
    return &v->seen[row * v->n_tensors + p->order];
}

static int count_tensors(struct pp_verify *v, struct pp_err *err)
{
    struct pp_param slots[PP_N_LAYER_PARAMS];
    for (int fill = 0; fill < 2; fill++) {
        size_t k = 0;
        for (size_t u = 0; u < pp_model_n_units(v->model); u++) {
            size_t n =
                pp_unit_params(v->model, pp_model_unit(v->model, u), slots);
            for (size_t i = 0; i < n; i++) {
                if (!slots[i].name[0])
                    continue;
                if (fill)
                    memcpy(v->tensors[k].name, slots[i].name, PP_FQN_TEXT);
                k++;
            }
        }
        if (fill)
            break;
        v->n_tensors = k;
        v->tensors = calloc(k, sizeof *v->tensors);
        if (!v->tensors)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    return 0;
}

int pp_verify_init(struct pp_verify *v, const struct pp_model *m,
                   const struct pp_graph *mesh, size_t n_sequences,
                   size_t element_bytes, struct pp_err *err)
{
    *v = (struct pp_verify){.model = m,
                            .graph = mesh,
                            .n_sequences = n_sequences,
                            .element_bytes = element_bytes};
    size_t stages = (size_t)mesh->n_stages, n;
    if (pp_mul(n_sequences, stages * PP_VERIFY_N_RUNS, &n, err) ||
        count_tensors(v, err))
        return -1;
    v->probes = calloc(n + 1, N_VALUES * sizeof *v->probes);
    v->seen = calloc((stages + 1) * v->n_tensors, sizeof *v->seen);
    v->rows = calloc(stages * v->n_tensors, sizeof *v->rows);
    v->outputs = calloc(stages, sizeof *v->outputs);
    if (!v->probes || !v->seen || !v->rows || !v->outputs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

void pp_verify_finish(struct pp_verify *v)
{
    for (size_t i = 0; i < v->n_tensors; i++) {
        free(v->tensors[i].g);
        free(v->tensors[i].w);
    }
    free(v->tensors);
    free(v->probes);
    free(v->seen);
    free(v->rows);
    free(v->outputs);
    memset(v, 0, sizeof *v);
}

int pp_verify_report(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err)
{
    const struct pp_verify_job *j = ctx;
    (void)err;
    j->v->loss[j->run][r->step - 1] = r->loss;
    if (r->step == 1)
        j->v->norm[j->run] = r->grad_norm;
    return 0;
}

/* The reference's tensors are kept: gradients and weights at the start, then
 * weights at the end in their place. */
static int keep(struct pp_verify_tensor *t, const struct pp_parameter *p,
                int64_t updates, struct pp_err *err)
{
    const double *g = p->g, *w = p->w;
    if (!t->g) {
        t->n = p->n;
        t->g = calloc(p->n, sizeof *t->g);
        t->w = calloc(p->n, sizeof *t->w);
    }
    if (!t->g || !t->w)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    double g2 = 0, w2 = 0, moved = 0;
    for (size_t i = 0; i < p->n; i++) {
        g2 += g[i] * g[i];
        w2 += w[i] * w[i];
        moved += (w[i] - t->w[i]) * (w[i] - t->w[i]);
    }
    memcpy(t->w, w, p->n * sizeof *t->w);
    t->w_norm = sqrt(w2);
    t->moved = sqrt(moved);
    if (updates > 0)
        return 0;
    memcpy(t->g, g, p->n * sizeof *t->g);
    t->g_norm = sqrt(g2);
    return 0;
}

static void compare(const struct pp_verify_tensor *t, struct pp_verify_seen *s,
                    const struct pp_parameter *p, int64_t updates, size_t bytes)
{
    double g2 = 0, w2 = 0, dot = 0;
    for (size_t i = 0; i < p->n; i++) {
        double g = at(p->g, i, bytes), w = at(p->w, i, bytes) - t->w[i];
        g2 += (g - t->g[i]) * (g - t->g[i]);
        dot += g * t->g[i];
        w2 += w * w;
    }
    s->held = true;
    if (updates > 0) {
        s->w = sqrt(w2);
        return;
    }
    s->g = sqrt(g2);
    s->dot = t->g_norm > 0 ? dot / (t->g_norm * t->g_norm) : 1;
}

int pp_verify_inspect(void *ctx, const struct pp_inspection *i,
                      struct pp_err *err)
{
    const struct pp_verify_job *j = ctx;
    struct pp_verify *v = j->v;
    if (i->updates > 0 && i->updates < PP_VERIFY_STEPS)
        return 0;
    for (size_t k = 0; k < i->params->n; k++) {
        const struct pp_parameter *p = &i->params->at[k];
        struct pp_verify_tensor *t = &v->tensors[p->order];
        if (j->run != PP_VERIFY_REFERENCE)
            compare(t, seen(v, j->run, p), p, i->updates, j->element_bytes);
        else if (keep(t, p, i->updates, err))
            return -1;
    }
    return 0;
}

void pp_verify_output(void *ctx, int stage, size_t bin,
                      const struct pp_microbatch *mb, const void *y,
                      size_t width)
{
    const struct pp_verify_job *j = ctx;
    struct pp_bin b;
    pp_packed_bin(j->data, bin, &b);
    for (uint32_t s = 0; s < b.n_sequences; s++) {
        double *to = probe(j->v, j->run, stage, b.source[s]), squares = 0;
        size_t first = (size_t)b.cu_seqlens_padded[s] * width;
        size_t n = (size_t)(b.cu_seqlens[s + 1] - b.cu_seqlens[s]) * width;
        double sum[N_SIGNS] = {0};
        if (to[N_SIGNS] > 0 || first + n > mb->tokens * width)
            continue; /* the first step's is there */
        for (size_t i = 0; i < n; i++) {
            double x = at(y, first + i, j->element_bytes);
            uint64_t bits = pp_rng_bits(0, i);
            for (int k = 0; k < N_SIGNS; k++)
                sum[k] += bits >> k & 1 ? x : -x;
            squares += x * x;
        }
        memcpy(to, sum, sizeof sum);
        to[N_SIGNS] = sqrt(squares);
    }
}

double pp_verify_lr(const struct pp_verify *v)
{
    double g = 0, w = 0;
    for (size_t i = 0; i < v->n_tensors; i++) {
        g += v->tensors[i].g_norm * v->tensors[i].g_norm;
        w += v->tensors[i].w_norm * v->tensors[i].w_norm;
    }
    return g > 0 ? 1e-2 * sqrt(w / g) : 0;
}

static bool has_twin(const struct pp_verify *v)
{
    return v->element_bytes != sizeof(double);
}

/* What the mesh may show where the twin shows so much. Not-a-number anywhere
 * stays one, and is no error within a bound. */
static double bound(const struct pp_verify *v, double twin)
{
    double floor = has_twin(v) ? PP_VERIFY_FLOOR_F32 : PP_VERIFY_FLOOR_F64;
    double b = has_twin(v) ? fmax(floor, PP_VERIFY_FACTOR * twin) : floor;
    return fmin(b, PP_VERIFY_CAP);
}

/* A tensor whose elements are a thousand times smaller than the model's are
 * measured by those: what is left of it after rounding says little. */
#define SMALL 1e-3

struct sizes {
    double g, w; /* root mean square of an element, all tensors */
};

static struct sizes mean_sizes(const struct pp_verify *v)
{
    double g = 0, w = 0, n = 0;
    for (size_t i = 0; i < v->n_tensors; i++) {
        const struct pp_verify_tensor *t = &v->tensors[i];
        g += t->g_norm * t->g_norm;
        w += t->moved * t->moved;
        n += (double)t->n;
    }
    return (struct sizes){sqrt(g / n), sqrt(w / n)};
}

static double ratio(double difference, double size)
{
    return difference == 0 ? 0 : difference / size;
}

static double worst(struct pp_verify_error e)
{
    double r = e.error / e.bound;
    return isnan(r) ? INFINITY : r;
}

static struct pp_verify_row judge_tensor(const struct pp_verify *v,
                                         struct sizes mean, size_t order,
                                         int stage)
{
    const struct pp_verify_tensor *t = &v->tensors[order];
    const struct pp_verify_seen *twin = &v->seen[order];
    const struct pp_verify_seen *mesh =
        &v->seen[(1 + (size_t)stage) * v->n_tensors + order];
    double root = SMALL * sqrt((double)t->n);
    double g = fmax(t->g_norm, root * mean.g);
    double w = fmax(t->moved, root * mean.w);
    double epsilon = has_twin(v) ? FLT_EPSILON : DBL_EPSILON;
    struct pp_verify_row r = {
        .name = t->name,
        .tensor = order,
        .stage = stage,
        .rank = v->graph->stages[stage].rank,
        .gradient = {ratio(mesh->g, g), bound(v, ratio(twin->g, g))},
        .weights = {ratio(mesh->w, w), bound(v, ratio(twin->w, w))},
        .factor = mesh->dot,
    };
    /* Every update rounds the weights anew, however short the way. */
    r.weights.bound += ratio(PP_VERIFY_STEPS * epsilon * t->w_norm, w);
    r.worst = fmax(worst(r.gradient), worst(r.weights));
    return r;
}

static void judge_output(struct pp_verify *v, int stage)
{
    struct pp_verify_output *o = &v->outputs[stage];
    double twin = 0;
    int original = pp_original(v->graph, stage);
    o->output.error = 0;
    for (size_t s = 0; s < v->n_sequences; s++) {
        const double *ref = probe(v, PP_VERIFY_REFERENCE, original, s);
        const double *a = probe(v, PP_VERIFY_TWIN, original, s);
        const double *b = probe(v, PP_VERIFY_MESH, stage, s);
        double ab[2] = {0, 0};
        for (int k = 0; k < N_SIGNS; k++) {
            ab[0] += (a[k] - ref[k]) * (a[k] - ref[k]) / N_SIGNS;
            ab[1] += (b[k] - ref[k]) * (b[k] - ref[k]) / N_SIGNS;
        }
        /* A sequence passes one copy of a stage only. */
        if (ref[N_SIGNS] == 0 || b[N_SIGNS] == 0)
            continue;
        twin = fmax(twin, sqrt(ab[0]) / ref[N_SIGNS]);
        double error = sqrt(ab[1]) / ref[N_SIGNS];
        if (!(error <= o->output.error)) {
            o->output.error = error;
            o->sequence = s;
        }
    }
    o->output.bound = bound(v, twin);
}

static void judge_scalars(struct pp_verify *v)
{
    enum { REF = PP_VERIFY_REFERENCE, TWIN = PP_VERIFY_TWIN };
    const int mesh = PP_VERIFY_MESH, last = PP_VERIFY_STEPS - 1;
    const struct {
        const char *name;
        double ref, twin, mesh;
    } s[PP_VERIFY_SCALARS] = {
        [PP_VERIFY_LOSS] = {"loss of step 1", v->loss[REF][0], v->loss[TWIN][0],
                            v->loss[mesh][0]},
        [PP_VERIFY_NORM] = {"gradient norm of step 1", v->norm[REF],
                            v->norm[TWIN], v->norm[mesh]},
        [PP_VERIFY_LAST_LOSS] = {"loss of step 5", v->loss[REF][last],
                                 v->loss[TWIN][last], v->loss[mesh][last]},
    };
    for (int i = 0; i < PP_VERIFY_SCALARS; i++) {
        double size = fabs(s[i].ref);
        v->scalars[i] = (struct pp_verify_scalar){
            s[i].name,
            s[i].mesh,
            s[i].ref,
            {ratio(fabs(s[i].mesh - s[i].ref), size),
             bound(v, ratio(fabs(s[i].twin - s[i].ref), size))}};
    }
}

static int by_worst(const void *a, const void *b)
{
    const struct pp_verify_row *x = a, *y = b;
    if (x->worst != y->worst)
        return x->worst < y->worst ? 1 : -1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->stage > y->stage) - (x->stage < y->stage);
}

int pp_verify_judge(struct pp_verify *v, struct pp_err *err)
{
    struct sizes mean = mean_sizes(v);
    v->n_rows = 0;
    v->same = true;
    for (size_t i = 0; i < v->n_tensors; i++) {
        size_t before = v->n_rows;
        for (int s = 0; s < v->graph->n_stages; s++)
            if (v->seen[(1 + (size_t)s) * v->n_tensors + i].held)
                v->rows[v->n_rows++] = judge_tensor(v, mean, i, s);
        if (v->n_rows == before)
            return pp_fail(err, PP_EXIT_NO, "no stage holds '%s'",
                           v->tensors[i].name);
    }
    qsort(v->rows, v->n_rows, sizeof *v->rows, by_worst);
    judge_scalars(v);
    v->same = v->rows[0].worst <= 1;
    for (int i = 0; i < PP_VERIFY_SCALARS; i++)
        v->same &= worst(v->scalars[i].e) <= 1;
    for (int s = 0; s < v->graph->n_stages; s++)
        judge_output(v, s);
    return 0;
}
