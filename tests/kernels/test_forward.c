/* SPDX-License-Identifier: MIT */
/* test_forward - compares the output of a decoder layer and the head's loss
 * with the formulas. The loops share no code with the layers. Finite
 * differences would not find a wrong but smooth forward. */
#include "rig.h"

static const struct packing packed = {3, {5, 1, 9}, {8, 1, 9}};

struct loops {
    struct rig *r;
    const double *w[PP_N_LAYER_PARAMS];         /* by slot, or NULL */
    double h[64], q[9][64], k[9][64], v[9][64]; /* one sequence of <= 9 */
};

/* y (rows) = w (rows, cols) x + b */
static void product(double *y, const double *w, const double *b,
                    const double *x, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows; i++) {
        y[i] = b ? b[i] : 0;
        for (size_t j = 0; j < cols; j++)
            y[i] += w[i * cols + j] * x[j];
    }
}

static void norm(double *y, const double *x, const double *w, size_t n,
                 double eps)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        y[i] = w[i] * x[i] / sqrt(squares / (double)n + eps);
}

/* Rotates the pairs (i, i + hd / 2) of one head at position t. */
static void rotate(double *x, size_t hd, size_t t, double theta)
{
    for (size_t i = 0; i < hd / 2; i++) {
        double angle = (double)t / pow(theta, 2.0 * (double)i / (double)hd);
        double a = x[i], b = x[i + hd / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + hd / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void project(struct loops *s, const double *x, size_t t)
{
    const struct pp_model *m = &s->r->m;
    size_t hd = m->head_dim, C = m->hidden;
    norm(s->h, x, s->w[PP_P_NORM1], C, m->norm_eps);
    product(s->q[t], s->w[PP_P_Q], s->w[PP_P_Q_BIAS], s->h, m->n_heads * hd, C);
    product(s->k[t], s->w[PP_P_K], s->w[PP_P_K_BIAS], s->h, m->n_kv_heads * hd,
            C);
    product(s->v[t], s->w[PP_P_V], s->w[PP_P_V_BIAS], s->h, m->n_kv_heads * hd,
            C);
    for (size_t i = 0; i < m->n_heads + m->n_kv_heads; i++) {
        bool query = i < m->n_heads;
        double *head =
            query ? s->q[t] + i * hd : s->k[t] + (i - m->n_heads) * hd;
        if (m->qk_norm)
            norm(head, head, s->w[query ? PP_P_Q_NORM : PP_P_K_NORM], hd,
                 m->norm_eps);
        rotate(head, hd, t, m->rope.theta);
    }
}

static void attend(const struct loops *s, double *o, size_t t)
{
    const struct pp_model *m = &s->r->m;
    size_t hd = m->head_dim, group = m->n_heads / m->n_kv_heads;
    for (size_t h = 0; h < m->n_heads; h++) {
        double p[9], sum = 0;
        size_t window = pp_unit_window(m, s->r->l.unit);
        size_t first = window && t >= window ? t - window + 1 : 0;
        for (size_t j = first; j <= t; j++) {
            double score = 0;
            for (size_t i = 0; i < hd; i++)
                score += s->q[t][h * hd + i] * s->k[j][h / group * hd + i];
            p[j] = exp(score / sqrt((double)hd));
            sum += p[j];
        }
        for (size_t i = 0; i < hd; i++) {
            o[h * hd + i] = 0;
            for (size_t j = first; j <= t; j++)
                o[h * hd + i] += p[j] / sum * s->v[j][h / group * hd + i];
        }
    }
}

/* Computes the layer's output row of a real token at position t. */
static void finish_row(struct loops *s, double *y, const double *x, size_t t)
{
    const struct pp_model *m = &s->r->m;
    double o[64], mid[64], gate[64], up[64];
    size_t C = m->hidden, I = m->intermediate;
    attend(s, o, t);
    product(mid, s->w[PP_P_O], s->w[PP_P_O_BIAS], o, C,
            m->n_heads * m->head_dim);
    for (size_t i = 0; i < C; i++)
        mid[i] += x[i];
    norm(s->h, mid, s->w[PP_P_NORM2], C, m->norm_eps);
    product(gate, s->w[PP_P_GATE], s->w[PP_P_GATE_BIAS], s->h, I, C);
    product(up, s->w[PP_P_UP], s->w[PP_P_UP_BIAS], s->h, I, C);
    for (size_t i = 0; i < I; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    product(y, s->w[PP_P_DOWN], s->w[PP_P_DOWN_BIAS], gate, C, I);
    for (size_t i = 0; i < C; i++)
        y[i] += mid[i];
}

/* Returns the largest difference over the real rows of all sequences. */
static double worst_difference(struct rig *r)
{
    struct loops s = {.r = r};
    size_t C = r->m.hidden;
    const double *x = r->x.at, *y = r->y.at;
    double worst = 0;
    for (size_t i = 0; i < PP_N_LAYER_PARAMS; i++)
        s.w[i] = r->l.w[i];
    for (size_t i = 0; i < r->mb.n_sequences; i++) {
        size_t first = (size_t)r->cu_padded[i];
        size_t n = (size_t)(r->cu[i + 1] - r->cu[i]);
        for (size_t t = 0; t < n; t++)
            project(&s, x + (first + t) * C, t);
        for (size_t t = 0; t < n; t++) {
            double want[64];
            finish_row(&s, want, x + (first + t) * C, t);
            for (size_t j = 0; j < C; j++) {
                double d = fabs(want[j] - y[(first + t) * C + j]);
                worst = d <= worst ? worst : d;
            }
        }
    }
    return worst;
}

/* With a window, every layer has it. */
static void test_decoder(const char *name, bool bias, bool qk_norm,
                         size_t n_kv_heads, size_t window)
{
    struct pp_model m = rig_model();
    struct rig r;
    m.qkv_bias = m.o_bias = m.mlp_bias = bias;
    m.qk_norm = qk_norm;
    m.n_kv_heads = n_kv_heads;
    m.window = window;
    pp_layer_set_add(&m.windowed, 0);
    rig_init(&r, &m, PP_UNIT_LAYER, &pp_kernels_f64, &packed, 0);
    rig_forward(&r);
    double worst = worst_difference(&r);
    ok(worst < 1e-12, "%s is the formulas' (worst %.2g)", name, worst);
    rig_finish(&r);
}

/* Computes loss and gradients of the head by definition; dw is (V, C). */
static double head_loops(struct rig *r, struct values *dx, struct values *dw)
{
    size_t C = r->m.hidden, V = r->m.vocab;
    const double *w = r->w.at;
    double *p = calloc(V, sizeof *p), loss = 0;
    fill(dx, 0);
    fill(dw, 0);
    for (size_t i = 0; i < r->mb.scored.n; i++) {
        size_t at = (size_t)r->rows[i] * C, target = (size_t)r->targets[i];
        const double *x = (const double *)r->x.at + at;
        double sum = 0;
        product(p, w, NULL, x, V, C);
        loss -= p[target] * r->mb.loss.scale;
        for (size_t j = 0; j < V; j++)
            sum += p[j] = exp(p[j]);
        loss += log(sum) * r->mb.loss.scale;
        for (size_t j = 0; j < V * C; j++) {
            double d = (p[j / C] / sum - (j / C == target)) * r->mb.loss.scale;
            ((double *)dx->at)[at + j % C] += d * w[j];
            ((double *)dw->at)[j] += d * x[j % C];
        }
    }
    free(p);
    return loss;
}

/* Tests the head with a vocabulary so large that the scored rows need several
 * blocks. */
static void test_head(size_t vocab, size_t hidden, int tokens)
{
    struct packing one = {2, {tokens, 9}, {tokens, 12}};
    struct pp_model m = rig_model();
    struct rig r;
    m.vocab = vocab;
    m.hidden = hidden;
    rig_init(&r, &m, PP_UNIT_HEAD, &pp_kernels_f64, &one, 0);
    struct values dx = values_new(&pp_kernels_f64, r.dx.n, 0);
    struct values dw = values_new(&pp_kernels_f64, r.g.n, 0);
    double loss = rig_forward(&r), want = head_loops(&r, &dx, &dw);
    rig_backward(&r);
    ok(fabs(loss - want) <= 1e-12 * want &&
           values_near(&r.dx, &dx, 1e-12, 1e-3, "dx") &&
           values_near(&r.g, &dw, 1e-12, 1e-3, "dw"),
       "the head over %zu words is the formulas'", vocab);
    values_free(&dx);
    values_free(&dw);
    rig_finish(&r);
}

int main(void)
{
    test_decoder("Llama's layer", false, false, 2, 0);
    test_decoder("Llama's layer with biases", true, false, 4, 0);
    test_decoder("Qwen3's layer", false, true, 1, 0);
    test_decoder("a layer with everything", true, true, 2, 4);
    test_decoder("Mistral's layer", false, false, 2, 3);
    test_head(13, 10, 8);
    test_head(30011, 4, 500);
    return done();
}
