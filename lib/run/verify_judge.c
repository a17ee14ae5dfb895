/* SPDX-License-Identifier: MIT */
/* verify_judge - errors, their bounds and the verdict. */
#include "run/verify_parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static bool is_double(const struct pp_verify *v)
{
    return v->element_bytes == sizeof(double);
}

/* What the mesh may show where the twin shows so much. Not-a-number anywhere
 * stays one, and is no error within a bound. */
static double bound(const struct pp_verify *v, double twin)
{
    double floor = is_double(v) ? PP_VERIFY_FLOOR_F64 : PP_VERIFY_FLOOR_F32;
    double scale = is_double(v) ? DBL_EPSILON / FLT_EPSILON : 1;
    return fmin(fmax(floor, PP_VERIFY_FACTOR * twin * scale), PP_VERIFY_CAP);
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

/* Never a negative not-a-number: some printf show the sign. */
static double ratio(double difference, double size)
{
    return difference == 0 ? 0 : fabs(difference / size);
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
    double epsilon = is_double(v) ? DBL_EPSILON : FLT_EPSILON;
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

/* How far a sequence's values at a boundary are from the reference's: the
 * projections of the difference are of its norm's size. 0 where the run did not
 * pass: a sequence passes one copy of a stage only. */
static double distance(const double *run, const double *ref)
{
    double squares = 0;
    for (int k = 0; k < PP_VERIFY_SIGNS; k++)
        squares += (run[k] - ref[k]) * (run[k] - ref[k]) / PP_VERIFY_SIGNS;
    if (ref[PP_VERIFY_SIGNS] == 0 || run[PP_VERIFY_SIGNS] == 0)
        return 0;
    return sqrt(squares) / ref[PP_VERIFY_SIGNS];
}

static double distance_of(const struct pp_verify *v, enum pp_verify_run run,
                          int stage, size_t sequence)
{
    int first = pp_original(v->graph, stage);
    return distance(pp_verify_probe(v, run,
                                    run == PP_VERIFY_MESH ? stage : first,
                                    sequence),
                    pp_verify_probe(v, PP_VERIFY_REFERENCE, first, sequence));
}

static void judge_output(struct pp_verify *v, int stage)
{
    struct pp_verify_output *o = &v->outputs[stage];
    struct pp_bin bin;
    double twin = 0;
    for (size_t s = 0; s < v->data->n_sequences; s++)
        twin = fmax(twin, distance_of(v, PP_VERIFY_TWIN, stage, s));
    *o = (struct pp_verify_output){.e.bound = bound(v, twin)};
    for (size_t b = 0; b < v->data->n_bins; b++) {
        pp_packed_bin(v->data, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            double d = distance_of(v, PP_VERIFY_MESH, stage, bin.source[i]);
            if (i == 0 && !(d <= o->e.bound))
                o->first_sequences = true;
            if (d <= o->e.error)
                continue;
            o->e.error = d;
            o->microbatch = b;
            o->sequence = i;
        }
    }
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
            isnan(s[i].mesh) ? (double)NAN : s[i].mesh,
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

bool pp_verify_is_calm(const struct pp_verify *v)
{
    const double *loss = v->loss[PP_VERIFY_REFERENCE];
    struct sizes mean = mean_sizes(v);
    for (int i = 1; i < PP_VERIFY_STEPS; i++)
        if (!(loss[i] < loss[i - 1]))
            return false;
    for (size_t i = 0; i < v->n_tensors; i++) {
        const struct pp_verify_tensor *t = &v->tensors[i];
        double w = fmax(t->moved, SMALL * sqrt((double)t->n) * mean.w);
        if (!(PP_VERIFY_FACTOR * ratio(v->seen[i].w, w) <= PP_VERIFY_CAP))
            return false;
    }
    return true;
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
