/* SPDX-License-Identifier: MIT */
/* test_head - the head's gradients that F makes at once, against those of I, W
 * and B, which compute the logits again: every bit, and the number of products.
 */
#include <string.h>

#include "rig.h"

#include "run/parts/layer_impl.h"

enum { TEACHER_K = 3 };

struct how {
    const char *name;
    double cap, temperature;
    bool teacher, objective, scores, ahead;
    size_t block_rows; /* 0: as many as there are */
    enum pp_role role;
};

static const struct how hows[] = {
    {.name = "targets"},
    {.name = "blocks", .block_rows = 48},
    {.name = "a cap and a temperature",
     .cap = 1,
     .temperature = 0.7,
     .block_rows = 48},
    {.name = "a teacher", .teacher = true, .block_rows = 48},
    {.name = "an objective", .objective = true},
    {.name = "an objective over blocks", .objective = true, .block_rows = 48},
    {.name = "scores", .objective = true, .scores = true},
    {.name = "two predictions", .ahead = true, .block_rows = 48},
    {.name = "a frozen head", .block_rows = 48, .role = PP_ROLE_PASSED},
    {.name = "a head without backward",
     .block_rows = 48,
     .role = PP_ROLE_FORWARD},
};
enum { N_HOWS = sizeof hows / sizeof *hows };

/* The distribution of a row: weights of words that depend on it. */
static int teach(void *ctx, size_t at, size_t n, int32_t *ids, double *weights,
                 double *entropy, struct pp_err *err)
{
    (void)ctx;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        entropy[i] = 0.1 * (double)((at + i) % 5);
        for (size_t j = 0; j < TEACHER_K; j++) {
            ids[i * TEACHER_K + j] = (int32_t)((at + i + 2 * j) % 11);
            weights[i * TEACHER_K + j] = 0.5 / (double)(j + 1);
        }
    }
    return 0;
}

/* A loss whose derivative by a log-probability depends on all of them. */
static int score(void *ctx, const struct pp_microbatch *mb, double *x,
                 double *loss, struct pp_err *err)
{
    double sum = 0;
    (void)ctx;
    (void)err;
    for (size_t i = 0; i < mb->scored.n; i++)
        sum += x[i];
    *loss = sum * sum;
    for (size_t i = 0; i < mb->scored.n; i++)
        x[i] = -2e-3 * sum * (1 + (double)(i % 3));
    return 0;
}

/* The products that the kernels below were asked for. */
static struct {
    const struct pp_kernels *k;
    int logits, inputs, weights;
} made;

static PP_LINEAR_FWD(count_logits)
{
    made.logits++;
    return made.k->linear_fwd(y, x, w, b, r, N, C, OC, ldy, ldx, stream);
}

static PP_LINEAR_BWD_INPUT(count_inputs)
{
    made.inputs++;
    return made.k->linear_bwd_input(dx, dy, w, r, N, C, OC, lddx, lddy, stream);
}

static PP_LINEAR_BWD_WEIGHT(count_weights)
{
    made.weights++;
    return made.k->linear_bwd_weight(dw, db, dy, x, N, C, OC, lddy, ldx, writes,
                                     stream);
}

/* A head with what it needs of each way to train it. */
struct subject {
    struct rig r;
    struct pp_kernels k;
    struct pp_ahead_loss ahead;
    double loss_ahead;
};

static void begin(struct subject *s, const struct how *h,
                  const struct pp_kernels *k, bool at_once)
{
    static const struct packing two = {2, {180, 60}, {184, 63}};
    struct pp_model m = rig_model();
    s->k = *k;
    s->k.linear_fwd = count_logits;
    s->k.linear_bwd_input = count_inputs;
    s->k.linear_bwd_weight = count_weights;
    s->k.head_rows = h->block_rows ? h->block_rows : SIZE_MAX;
    m.logit_cap = h->cap;
    m.scores = h->scores;
    m.n_mtp = h->ahead;
    rig_init(&s->r, &m, PP_UNIT_HEAD, &s->k, &two, 0);
    struct pp_microbatch *mb = &s->r.mb;
    s->r.l.role = h->role;
    if (h->role != PP_ROLE_TRAINED)
        memset(s->r.l.g, 0, sizeof s->r.l.g);
    mb->loss.at_once = at_once;
    mb->loss.temperature = h->temperature;
    mb->teacher.fetch = h->teacher ? teach : NULL;
    mb->teacher.k = TEACHER_K;
    mb->loss.objective = h->objective ? score : NULL;
    for (size_t i = 0; h->scores && i < mb->scored.n; i++)
        s->r.targets[i] = -1;
    s->loss_ahead = 0;
    s->ahead = (struct pp_ahead_loss){.weight = 0.3, .sum = &s->loss_ahead};
    mb->ahead.loss = h->ahead ? &s->ahead : NULL;
    mb->ahead.scored.n = mb->scored.n - 7; /* other rows, and fewer */
    mb->ahead.scored.rows = mb->scored.rows + 7;
    mb->ahead.scored.targets = mb->scored.targets + 3;
    fill(&s->r.g, 0.25); /* what earlier microbatches have added */
    made.k = k;
    made.logits = made.inputs = made.weights = 0;
}

static void run(struct subject *s, bool together)
{
    struct rig *r = &s->r;
    struct pp_err err = {0};
    const struct pp_call c = rig_call(r, PP_IN_BACKWARD, &err);
    rig_forward(r);
    fill(&r->x, NAN); /* nothing after F reads it */
    if (r->l.role == PP_ROLE_FORWARD)
        return;
    fill(&r->scratch, NAN);
    if (together ? pp_layer_bwd(&c, r->dx.at, NULL)
                 : pp_layer_bwd_input(&c, r->dx.at, NULL))
        abort();
    if (!together && r->l.role == PP_ROLE_TRAINED && pp_layer_bwd_weight(&c))
        abort();
}

/* Compares F at once with F alone, before B or I and W. */
static void same(const struct how *h, const struct pp_kernels *k, bool together)
{
    struct subject apart, once;
    begin(&apart, h, k, false);
    run(&apart, together);
    int logits = made.logits, weights = made.weights;
    begin(&once, h, k, true);
    run(&once, together);
    const struct rig *a = &apart.r, *b = &once.r;
    bool trains = h->role == PP_ROLE_TRAINED;
    ok(!memcmp(&a->loss, &b->loss, sizeof a->loss) &&
           !memcmp(&apart.loss_ahead, &once.loss_ahead,
                   sizeof apart.loss_ahead) &&
           !memcmp(a->logps, b->logps, a->mb.scored.n * sizeof *a->logps) &&
           same_bits(&a->g, &b->g) &&
           (h->role == PP_ROLE_FORWARD || same_bits(&a->dx, &b->dx)) &&
           rig_guards(b) && a->mb.scored.n > 96,
       "%s, %s, %s: the bits of F and then the backward", h->name, k->name,
       together ? "B" : "I and W");
    bool changed = false;
    for (size_t i = 0; i < b->g.n; i++)
        changed |= get(&b->g, i) < 0.25 || get(&b->g, i) > 0.25;
    int passes = h->role == PP_ROLE_FORWARD || (h->objective && h->block_rows)
                     ? logits
                     : logits / (together || !trains ? 2 : 3);
    if (!ok(changed == trains && made.logits == passes &&
                made.weights == weights,
            "%s, %s: %d products of logits", h->name, k->name, passes))
        printf("# %d of %d products\n", made.logits, logits);
    rig_finish(&apart.r);
    rig_finish(&once.r);
}

int main(void)
{
    for (size_t i = 0; i < N_HOWS; i++)
        for (int together = 0; together < 2; together++) {
            if (together && hows[i].role != PP_ROLE_TRAINED)
                continue;
            same(&hows[i], &pp_kernels_f32, together);
            same(&hows[i], &pp_kernels_f64, together);
        }
    return done();
}
