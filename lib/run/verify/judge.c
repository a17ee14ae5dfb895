/* SPDX-License-Identifier: MIT */
/* judge - computes errors, bounds and the verdict. */
#include "run/verify/parts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static bool is_double(const struct pp_verify *v)
{
    return v->element_bytes == sizeof(double);
}

/* Reports whether later steps are judged in fp64. */
static bool is_later_double(const struct pp_verify *v)
{
    return is_double(v) || v->later == PP_VERIFY_WIDE;
}

/* Returns the bound of the pipeline from the errors of the twin and the shaken
 * run. A NaN stays a NaN, and no error is within it. */
static double bound(bool is_double, double twin, double shaken)
{
    if (!is_double)
        return fmin(fmax(PP_VERIFY_FLOOR_F32, PP_VERIFY_FACTOR * twin),
                    PP_VERIFY_CAP);
    double rounding = fmax(twin * (DBL_EPSILON / FLT_EPSILON),
                           shaken * (DBL_EPSILON / PP_VERIFY_SHAKE));
    return fmin(fmax(PP_VERIFY_FLOOR_F64, PP_VERIFY_FACTOR * rounding),
                PP_VERIFY_CAP);
}

/* The norm of a tensor counts as at least SMALL times that of an average
 * tensor: smaller elements are mostly rounding. */
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

/* It never returns a negative NaN, since printf may print the sign. */
static double ratio(double difference, double size)
{
    return difference == 0 ? 0 : fabs(difference / size);
}

/* Every update rounds the weights, however small the change. */
static double update_rounding(bool is_double, const struct pp_verify_tensor *t,
                              double way)
{
    double epsilon = is_double ? DBL_EPSILON : FLT_EPSILON;
    return ratio(PP_VERIFY_STEPS * epsilon * t->w_norm, way);
}

static double worst(struct pp_verify_error e)
{
    double r = e.error == 0 ? 0 : e.error / e.bound; /* the bound may be 0 */
    return isnan(r) ? INFINITY : r;
}

/* Returns a tensor of a stage of the pipeline, from its pieces. The dot product
 * is over the square of the reference, and 1 if that is 0. */
static struct pp_verify_seen join_pieces(const struct pp_verify *v, int stage,
                                         size_t order)
{
    const struct pp_verify_tensor *t = &v->tensors[order];
    struct pp_verify_seen sum = {.held = false};
    for (size_t k = 0; k < v->tp; k++) {
        const struct pp_verify_seen *s =
            pp_verify_at(v, PP_VERIFY_PIPELINE, stage, k, order);
        sum.held |= s->held;
        sum.g = hypot(sum.g, s->g);
        sum.w = hypot(sum.w, s->w);
        sum.dot += s->dot;
    }
    sum.dot = t->g_norm > 0 ? sum.dot / (t->g_norm * t->g_norm) : 1;
    return sum;
}

static struct pp_verify_row judge_tensor(const struct pp_verify *v,
                                         struct sizes mean, size_t order,
                                         int stage)
{
    const struct pp_verify_tensor *t = &v->tensors[order];
    const struct pp_verify_seen *twin =
        pp_verify_at(v, PP_VERIFY_TWIN, 0, 0, order);
    const struct pp_verify_seen *shaken =
        pp_verify_at(v, PP_VERIFY_SHAKEN, 0, 0, order);
    const struct pp_verify_seen pipeline = join_pieces(v, stage, order);
    double root = SMALL * sqrt((double)t->n);
    double g = fmax(t->g_norm, root * mean.g);
    double w = fmax(t->moved, root * mean.w);
    bool later = is_later_double(v);
    struct pp_verify_row r = {
        .name = t->name,
        .tensor = order,
        .stage = stage,
        .rank = v->graph->stages[stage].row,
        .gradient = {ratio(pipeline.g, g),
                     bound(is_double(v), ratio(twin->g, g), 0)},
        .weights = {ratio(pipeline.w, w),
                    bound(later, ratio(twin->w, w), ratio(shaken->w, w))},
        .factor = pipeline.dot,
        .shared = t->shared,
    };
    r.weights.bound += update_rounding(later, t, w);
    r.worst = fmax(worst(r.gradient), worst(r.weights));
    return r;
}

/* Returns the error of the values of a sequence at a boundary. The projections
 * of the difference have about the size of its norm. Returns 0 if the sequence
 * did not pass this stage: it passes one copy of a stage only. */
static double distance(const double *run, const double *ref)
{
    double squares = 0;
    for (int k = 0; k < PP_VERIFY_SIGNS; k++)
        squares += (run[k] - ref[k]) * (run[k] - ref[k]) / PP_VERIFY_SIGNS;
    if (ref[PP_VERIFY_NORMS] == 0 || run[PP_VERIFY_NORMS] == 0)
        return 0;
    return sqrt(squares) / ref[PP_VERIFY_NORMS];
}

static double distance_of(const struct pp_verify *v, enum pp_verify_run run,
                          int stage, size_t sequence)
{
    int first = pp_original(v->graph, stage);
    return distance(pp_verify_probe(v, run,
                                    run == PP_VERIFY_PIPELINE ? stage : first,
                                    sequence),
                    pp_verify_probe(v, PP_VERIFY_REFERENCE, first, sequence));
}

static bool has_probe(const struct pp_verify *v, int stage, size_t sequence)
{
    return pp_verify_probe(v, PP_VERIFY_PIPELINE, stage,
                           sequence)[PP_VERIFY_NORMS] != 0;
}

static void judge_output(struct pp_verify *v, int stage)
{
    struct pp_verify_output *o = &v->outputs[stage];
    struct pp_bin bin;
    double twin = 0;
    for (size_t s = 0; s < v->data->n_sequences; s++)
        twin = fmax(twin, distance_of(v, PP_VERIFY_TWIN, stage, s));
    *o = (struct pp_verify_output){.e.bound = bound(is_double(v), twin, 0)};
    for (size_t b = 0; b < v->data->n_bins; b++) {
        pp_packed_bin(v->data, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            double d = distance_of(v, PP_VERIFY_PIPELINE, stage, bin.source[i]);
            o->compared |= has_probe(v, stage, bin.source[i]);
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

/* A loss of an objective may cancel to 0. The errors of its terms are at least
 * the errors of a loss of this size. */
#define SMALL_LOSS 1e-2

static void judge_scalars(struct pp_verify *v)
{
    enum { REF = PP_VERIFY_REFERENCE, TWIN = PP_VERIFY_TWIN };
    const int pipeline = PP_VERIFY_PIPELINE, last = PP_VERIFY_STEPS - 1;
    const struct {
        const char *name;
        double ref, twin, pipeline, shaken;
    } s[PP_VERIFY_SCALARS] = {
        [PP_VERIFY_LOSS] = {"loss of step 1", v->loss[REF][0], v->loss[TWIN][0],
                            v->loss[pipeline][0], v->loss[REF][0]},
        [PP_VERIFY_NORM] = {"gradient norm of step 1", v->norm[REF],
                            v->norm[TWIN], v->norm[pipeline], v->norm[REF]},
        [PP_VERIFY_LAST_LOSS] = {"loss of step 5", v->loss[REF][last],
                                 v->loss[TWIN][last], v->loss[v->later][last],
                                 v->loss[PP_VERIFY_SHAKEN][last]},
        [PP_VERIFY_EVAL] = {"evaluation after step 1", v->eval_loss[REF],
                            v->eval_loss[TWIN], v->eval_loss[pipeline],
                            v->eval_loss[REF]},
    };
    v->n_scalars = v->evaluates ? PP_VERIFY_SCALARS : PP_VERIFY_EVAL;
    for (int i = 0; i < v->n_scalars; i++) {
        double least = v->objective && i != PP_VERIFY_NORM ? SMALL_LOSS : 0;
        double size = fmax(fabs(s[i].ref), least);
        bool wide =
            i == PP_VERIFY_LAST_LOSS ? is_later_double(v) : is_double(v);
        v->scalars[i] = (struct pp_verify_scalar){
            s[i].name,
            isnan(s[i].pipeline) ? (double)NAN : s[i].pipeline,
            s[i].ref,
            {ratio(fabs(s[i].pipeline - s[i].ref), size),
             bound(wide, ratio(fabs(s[i].twin - s[i].ref), size),
                   ratio(fabs(s[i].shaken - s[i].ref), size))}};
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
        double twin = ratio(pp_verify_at(v, PP_VERIFY_TWIN, 0, 0, i)->w, w);
        double updates = update_rounding(false, t, w);
        /* The rest of the error grew over the steps. */
        if (!(PP_VERIFY_FACTOR * (twin - updates) <= PP_VERIFY_CAP &&
              updates <= 1))
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
            if (join_pieces(v, s, i).held)
                v->rows[v->n_rows++] = judge_tensor(v, mean, i, s);
        if (v->n_rows == before)
            return pp_fail(err, PP_EXIT_NO, "no stage holds '%s'",
                           v->tensors[i].name);
    }
    qsort(v->rows, v->n_rows, sizeof *v->rows, by_worst);
    judge_scalars(v);
    pp_verify_judge_exact(v);
    v->same = v->rows[0].worst <= 1;
    for (int i = 0; i < v->n_scalars; i++)
        v->same &= worst(v->scalars[i].e) <= 1;
    for (int s = 0; s < v->graph->n_stages; s++)
        judge_output(v, s);
    return 0;
}
