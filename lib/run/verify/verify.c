/* SPDX-License-Identifier: MIT */
/* verify - collects the results of the runs, and compares tensors. */
#include "run/verify/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "model/vision.h"

static double at(const void *p, size_t i, size_t element_bytes)
{
    return element_bytes == sizeof(double) ? ((const double *)p)[i]
                                           : (double)((const float *)p)[i];
}

/* Returns the ranks that divide the tensors of a unit. */
static bool is_divided(const struct pp_layout *l, struct pp_unit_id u)
{
    return !pp_unit_is_vision(u) || pp_layout_encodes(l, (int)u.component) ||
           pp_layout_language(l)->mesh.encoder_tp;
}

static size_t tensor_ranks(const struct pp_layout *l, struct pp_unit_id u)
{
    const struct pp_mesh *x = &pp_layout_language(l)->mesh;
    if (u.component == PP_GENERATOR)
        return (size_t)l->components[l->n_components - 1].mesh.tp;
    return is_divided(l, u) && pp_unit_is_vision(u)
               ? pp_layout_encoder_tp(l, u.component)
               : (size_t)x->tp;
}

static int count_tensors(struct pp_verify *v, const struct pp_layout *l,
                         struct pp_err *err)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], info;
    for (int fill = 0; fill < 2; fill++) {
        size_t k = 0;
        for (size_t u = 0; u < pp_model_n_units(v->model); u++) {
            struct pp_unit_id unit = pp_model_unit(v->model, u);
            size_t n = pp_unit_params(v->model, unit, table);
            size_t tp = tensor_ranks(l, unit);
            if (!is_divided(l, unit))
                pp_table_undivide(table, n);
            v->tp = tp > v->tp ? tp : v->tp;
            for (size_t i = 0; i < pp_table_slots(table, n); i++) {
                if (!pp_table_at(table, n, i, &info))
                    continue;
                if (fill) {
                    memcpy(v->tensors[k].name, info.name, PP_FQN_TEXT);
                    v->tensors[k].shared =
                        tp > 1 && pp_tensor_piece(&info, tp, 1).replica;
                }
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
                   const struct pp_graph *pipeline,
                   const struct pp_packed *data, size_t element_bytes,
                   const struct pp_layout *layout, struct pp_err *err)
{
    *v = (struct pp_verify){.model = m,
                            .graph = pipeline,
                            .data = data,
                            .element_bytes = element_bytes,
                            .tp = 1,
                            .later = PP_VERIFY_PIPELINE};
    size_t stages = (size_t)pipeline->n_stages, n;
    if (pp_mul(data->n_sequences, stages * PP_VERIFY_N_RUNS, &n, err) ||
        count_tensors(v, layout, err))
        return -1;
    v->probes = calloc(n + 1, PP_VERIFY_VALUES * sizeof *v->probes);
    v->seen = calloc((stages * v->tp + 2) * v->n_tensors, sizeof *v->seen);
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
    free(v->digests[0]);
    free(v->digests[1]);
    memset(v, 0, sizeof *v);
}

int pp_verify_report(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err)
{
    const struct pp_verify_job *j = ctx;
    if (j->run == PP_VERIFY_REFERENCE &&
        !(isfinite(r->loss) && isfinite(r->grad_norm)))
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "one rank alone: step %lld: loss is %g and the gradient "
                       "norm %g",
                       (long long)r->step, r->loss, r->grad_norm);
    double loss = r->loss;
    if (j->v->model->generator && r->generator_loss == r->generator_loss)
        loss += j->v->generator_weight * r->generator_loss;
    j->v->loss[j->run][r->step - 1] = loss;
    if (r->step > 1)
        return 0;
    if (pp_verify_keep_digests(j->v, j->run, r->digests, err))
        return -1;
    j->v->norm[j->run] = r->grad_norm;
    j->v->evaluates |= r->has_val_loss;
    /* If nothing is scored, nothing can differ. */
    j->v->eval_loss[j->run] = isnan(r->val_loss) ? 0 : r->val_loss;
    return 0;
}

/* Keeps a tensor of the reference: gradients and weights at the start, then the
 * weights at the end in their place. */
static int keep(struct pp_verify_tensor *t, const struct pp_parameter *p,
                int64_t updates, struct pp_err *err)
{
    const double *g = p->g, *w = p->w; /* a frozen tensor has no g */
    if (!t->g) {
        t->n = p->n;
        t->g = calloc(p->n, sizeof *t->g);
        t->w = calloc(p->n, sizeof *t->w);
    }
    if (!t->g || !t->w)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    double g2 = 0, w2 = 0, moved = 0;
    for (size_t i = 0; i < p->n; i++) {
        g2 += g ? g[i] * g[i] : 0;
        w2 += w[i] * w[i];
        moved += (w[i] - t->w[i]) * (w[i] - t->w[i]);
    }
    memcpy(t->w, w, p->n * sizeof *t->w);
    t->w_norm = sqrt(w2);
    t->moved = sqrt(moved);
    if (updates > 0)
        return 0;
    if (g)
        memcpy(t->g, g, p->n * sizeof *t->g);
    t->g_norm = sqrt(g2);
    return 0;
}

/* Changes every weight a little, up or down at random. */
static void shake(const struct pp_parameter *p)
{
    double *w = p->w;
    for (size_t i = 0; i < p->n; i++)
        w[i] *= 1 + (pp_rng_bits(p->order, i) & 1 ? PP_VERIFY_SHAKE
                                                  : -PP_VERIFY_SHAKE);
}

static void compare(const struct pp_verify_tensor *t,
                    const struct pp_tensor_piece *piece,
                    struct pp_verify_seen *s, const void *gradient,
                    const void *weights, int64_t updates, size_t bytes)
{
    double g2 = 0, w2 = 0, dot = 0;
    const struct pp_range all = {0, pp_piece_elements(piece)};
    struct pp_run r;
    for (size_t first = 0; pp_piece_run(piece, all, first, &r); first += r.n)
        for (size_t k = 0; k < r.n; k++) {
            size_t here = r.at + k, i = r.whole + k;
            double g = gradient ? at(gradient, here, bytes) : 0;
            double w = at(weights, here, bytes) - t->w[i];
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
    s->dot = dot;
}

/* Compares a tensor that may be on a device. */
static int compare_on_device(const struct pp_verify_tensor *t,
                             struct pp_verify_seen *s, struct pp_device *d,
                             const struct pp_parameter *p, int64_t updates,
                             size_t bytes, struct pp_err *err)
{
    size_t n = p->n * bytes;
    char *room = pp_device_ops(d)->is_host ? NULL : malloc(2 * n);
    int rc = -1;
    if (!room && !pp_device_ops(d)->is_host)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    const void *g = p->g ? pp_device_read(d, p->g, n, room, err) : NULL;
    const void *w =
        g || p->info.frozen
            ? pp_device_read(d, p->w, n, room ? room + n : NULL, err)
            : NULL;
    if (w) {
        compare(t, &p->piece, s, g, w, updates, bytes);
        rc = 0;
    }
    free(room);
    return rc;
}

int pp_verify_inspect(void *ctx, const struct pp_inspection *i,
                      struct pp_err *err)
{
    const struct pp_verify_job *j = ctx;
    struct pp_verify *v = j->v;
    if ((i->updates > 0 && i->updates < PP_VERIFY_STEPS) ||
        j->run == PP_VERIFY_EXACT)
        return 0;
    for (size_t k = 0; k < i->params->n; k++) {
        const struct pp_parameter *p = &i->params->at[k];
        struct pp_verify_tensor *t = &v->tensors[p->order];
        size_t part = pp_parameter_shares(i->params, p)->tp_rank;
        /* An error of a replica reaches the sums of the next steps. */
        if (p->replica)
            continue;
        if (j->run == PP_VERIFY_REFERENCE && keep(t, p, i->updates, err))
            return -1;
        if (j->run == PP_VERIFY_SHAKEN && i->updates == 0)
            shake(p);
        else if (j->run != PP_VERIFY_REFERENCE &&
                 !(j->run == PP_VERIFY_WIDE && i->updates == 0)) {
            if (compare_on_device(
                    t, pp_verify_at(v, j->run, p->stage, part, p->order),
                    i->params->device, p, i->updates, j->element_bytes, err))
                return -1;
        }
    }
    return 0;
}

/* Adds rows [from, to) of a sequence to its probe; y is row from. */
static void add_rows(double *probe, const void *y, size_t from, size_t to,
                     size_t width, size_t element_bytes)
{
    double sum[PP_VERIFY_SIGNS] = {0}, squares = 0;
    for (size_t i = 0; i < (to - from) * width; i++) {
        double x = at(y, i, element_bytes);
        uint64_t bits = pp_rng_bits(0, from * width + i);
        for (int k = 0; k < PP_VERIFY_SIGNS; k++)
            sum[k] += bits >> k & 1 ? x : -x;
        squares += x * x;
    }
    for (int k = 0; k < PP_VERIFY_SIGNS; k++)
        probe[k] += sum[k];
    probe[PP_VERIFY_NORMS] = hypot(probe[PP_VERIFY_NORMS], sqrt(squares));
    probe[PP_VERIFY_ROWS] = (double)to;
}

/* Returns the rows of the images before the images of a sequence. */
static size_t rows_before(const struct pp_vision *v,
                          const struct pp_bin_items *images, uint32_t sequence,
                          size_t rows)
{
    if (!images->cu_items)
        return 0;
    size_t n = 0;
    for (int32_t k = 0; k < images->cu_items[sequence]; k++)
        n += pp_image_rows(v, pp_grid_size(&images->grids[k]), rows);
    return n;
}

/* Sets the rows of a sequence of a bin on an edge, from `begin` on. */
static void find_rows(const struct pp_verify_job *j, size_t bin,
                      const struct pp_bin *b, uint32_t sequence,
                      struct pp_edge edge, size_t *begin, size_t *n)
{
    struct pp_bin_items images;
    *begin = (size_t)b->cu_seqlens_padded[sequence];
    *n = (size_t)(b->cu_seqlens[sequence + 1] - b->cu_seqlens[sequence]);
    if (pp_rows_of_tokens(edge.rows))
        return;
    const struct pp_vision *v =
        &j->v->model->encoders[pp_rows_component(edge.rows)];
    pp_packed_bin_items(j->data, pp_vision_modality(v), bin, &images);
    *begin = rows_before(v, &images, sequence, edge.rows);
    *n = rows_before(v, &images, sequence + 1, edge.rows) - *begin;
}

void pp_verify_output(void *ctx, int stage, size_t bin,
                      const struct pp_microbatch *mb, const void *y,
                      struct pp_edge edge)
{
    const struct pp_verify_job *j = ctx;
    bool tokens = pp_rows_of_tokens(edge.rows);
    size_t first = tokens ? mb->slice.first_row : 0, width = edge.width;
    size_t end = tokens ? first + mb->tokens : SIZE_MAX;
    struct pp_bin b;
    if (j->run > PP_VERIFY_PIPELINE)
        return;
    pp_packed_bin(j->data, bin, &b);
    for (uint32_t s = 0; s < b.n_sequences; s++) {
        double *probe = pp_verify_probe(j->v, j->run, stage, b.source[s]);
        size_t begin, rows;
        find_rows(j, bin, &b, s, edge, &begin, &rows);
        size_t from = begin > first ? begin : first;
        size_t to = begin + rows < end ? begin + rows : end;
        /* Slices come in order. In later steps the probe is complete. */
        if (from >= to || probe[PP_VERIFY_ROWS] != (double)(from - begin))
            continue;
        const char *row = (const char *)y;
        row += (from - first) * width * j->element_bytes;
        add_rows(probe, row, from - begin, to - begin, width, j->element_bytes);
    }
}

double pp_verify_lr(const struct pp_verify *v)
{
    double g = 0, w = 0;
    for (size_t i = 0; i < v->n_tensors; i++) {
        g += v->tensors[i].g_norm * v->tensors[i].g_norm;
        w += v->tensors[i].w_norm * v->tensors[i].w_norm;
    }
    return g > 0 ? 2e-3 * sqrt(w / g) : 0;
}
