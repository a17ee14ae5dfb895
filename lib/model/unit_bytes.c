/* SPDX-License-Identifier: MIT */
/* unit_bytes - the memory of units and the tables of a rank. Sums and products
 * of absurd models stop at LARGEST, which no machine has. */
#include "model/unit_bytes.h"

#include <math.h>

#include "kernel_sizes.h"
#include "base/num.h"
#include "model/edge.h"
#include "model/lora.h"
#include "model/parts.h"
#include "model/vision.h"

#define LARGEST ((size_t)1e18)

/* A block of the head has a multiple of HEAD_ROWS rows. A larger one has a
 * multiple of TILE_ROWS, which a matrix product on a GPU takes at a time. */
#define HEAD_ROWS 16
#define TILE_ROWS 128

static size_t times(size_t a, size_t b)
{
    size_t product;
    bool large = __builtin_mul_overflow(a, b, &product) || product > LARGEST;
    return large ? LARGEST : product;
}

static size_t plus(size_t a, size_t b)
{
    return a + b > LARGEST ? LARGEST : a + b; /* neither is above LARGEST */
}

/* --- backends --- */

struct pp_backend pp_backend_of(const struct pp_precision *p, bool is_host)
{
    return (struct pp_backend){
        .element_bytes = p->element_bytes,
        .accumulator_bytes = p->accumulator_bytes,
        .head_logits = is_host ? PP_CPU_HEAD_LOGITS : PP_CUDA_HEAD_LOGITS,
        .head_rows = is_host ? PP_CPU_HEAD_ROWS : PP_CUDA_HEAD_ROWS,
        .is_host = is_host,
    };
}

size_t pp_head_block_rows(const struct pp_backend *b, size_t vocab)
{
    size_t rows = b->head_logits / vocab;
    if (rows < HEAD_ROWS)
        return HEAD_ROWS;
    rows -= rows % (rows < TILE_ROWS ? HEAD_ROWS : TILE_ROWS);
    return pp_least(rows, b->head_rows);
}

size_t pp_head_room_rows(size_t block_rows, size_t tokens)
{
    return pp_least(block_rows, pp_round_up(tokens, HEAD_ROWS));
}

/* --- the workspace --- */

/* Rounding up may take up to a cache line for each of the four parts of a
 * workspace. */
enum { N_PARTS = 4 };

size_t pp_gathered_row_bytes(const struct pp_shard *s,
                             const struct pp_backend *b)
{
    return pp_most(s->model->hidden * b->element_bytes,
                   2 * pp_shard_row_ranks(s) * b->accumulator_bytes);
}

/* Returns the bytes of the scratch of an MLP or of experts for a row of this
 * rank. */
static size_t mlp_scratch(const struct pp_shard *s, struct pp_unit_id u,
                          const struct pp_backend *b)
{
    struct pp_experts_room r = pp_experts_room(s);
    if (!pp_layer_set_has(&s->model->moe.layers, u.layer))
        return pp_shard_row_ranks(s) * pp_shard_columns(s) * b->element_bytes;
    return pp_shard_routed_ranks(s) *
           ((r.product + r.act + r.again) * b->element_bytes +
            (r.choices + r.logits + r.weights + r.other_weights + r.arrivals) *
                b->accumulator_bytes);
}

size_t pp_unit_states(const struct pp_shard *s, struct pp_unit_id u,
                      size_t accumulator_bytes)
{
    const struct pp_delta d = pp_shard_delta(s);
    bool linear =
        u.kind == PP_UNIT_LAYER && pp_layer_set_has(&d.layers, u.layer);
    return linear ? pp_round_up(
                        times(pp_delta_passes(d.key_heads, d.value_heads,
                                              d.key_dim, d.value_dim, d.taps),
                              accumulator_bytes),
                        PP_LINE_BYTES)
                  : 0;
}

/* Returns the bytes that linear attention has for each row: the gradients of
 * its outputs; of a share of the heads for the rows of all context-parallel
 * ranks inputs and their gradients, the same on their way, and gradients of
 * outputs; then the scratch of its kernels. Sets the bytes that it has once. */
static double delta_room(const struct pp_shard *s, const struct pp_backend *b,
                         size_t *once)
{
    const struct pp_delta d = pp_shard_delta(s);
    size_t NK = d.key_heads, NV = d.value_heads, DK = d.key_dim,
           DV = d.value_dim, e = b->element_bytes;
    size_t cp = (size_t)s->mesh.cp;
    double row = (double)(e * NV * DV);
    if (cp > 1)
        row += (double)(e * (3 * pp_delta_outputs(&d) + NV * DV));
    if (b->is_host) {
        *once = e * pp_delta_scratch(DK, DV);
        row += (double)(e * cp) * pp_delta_row_scratch(DK, DV);
    } else {
        *once = sizeof(float) * pp_delta_cuda_scratch(NK, NV, DK, DV);
        row += (double)(sizeof(float) * cp) *
               pp_delta_cuda_row_scratch(NK / cp, NV / cp, DK, DV);
    }
    return (double)pp_shard_row_ranks(s) * row;
}

/* The MLP and attention use the same memory, one after the other, for the
 * tokens of all tensor-parallel ranks. */
static void add_layer_scratch(const struct pp_shard *s, struct pp_unit_id u,
                              const struct pp_backend *b,
                              struct pp_workspace *w)
{
    const struct pp_model *m = s->model;
    const struct pp_heads h = pp_shard_heads(s, u);
    size_t tp = pp_shard_row_ranks(s), e = b->element_bytes;
    bool linear = pp_layer_set_has(&m->delta.layers, u.layer);
    size_t once = 0;
    double room = linear ? delta_room(s, b, &once)
                         : (double)(tp * pp_attention_room(s, u) * e);
    w->token += fmax((double)mlp_scratch(s, u, b), room);
    w->keys = linear ? 0 : tp * h.n_kv * (h.qk + h.v) * e;
    w->states = pp_unit_states(s, u, b->accumulator_bytes);
    if (pp_layer_set_has(&m->moe.layers, u.layer)) {
        w->told = b->is_host ? 0 : times(pp_experts_told(s), sizeof(int32_t));
        w->fixed += pp_round_up(
            times(pp_experts_room(s).counts, sizeof(int32_t)) + w->told,
            PP_LINE_BYTES);
    }
    if (linear) {
        w->fixed += once;
    } else if (b->is_host) {
        w->fixed += e * pp_attention_cpu_scratch(h.n, h.n_kv, h.qk, h.v);
    } else {
        w->token += (double)(tp * h.n * sizeof(float));
        w->fixed += pp_attention_cuda_scratch(0, h.n);
    }
}

/* Returns the bytes that context-parallel ranks exchange, for each row of a
 * rank. */
static size_t exchanged(const struct pp_shard *s, struct pp_unit_id u,
                        const struct pp_workspace *w,
                        const struct pp_backend *b)
{
    const struct pp_heads h = pp_shard_heads(s, u);
    const struct pp_mesh *x = &s->mesh;
    if (x->cp == 1)
        return 0;
    /* Sent and received: queries, keys and values, outputs and their
     * gradients. */
    if (x->cp_exchange == PP_CP_A2A)
        return 2 * (pp_shard_row_ranks(s) * h.n * (h.qk + 2 * h.v) *
                        b->element_bytes +
                    w->keys);
    /* Keys and values of a rank and of the next, gradients of both, and
     * gradients that arrive. */
    if (x->cp_exchange == PP_CP_RING)
        return times(5, w->keys);
    /* Keys and values of all ranks by rank, the same by sequence, and their
     * gradients. */
    return times(3 * (size_t)x->cp, w->keys);
}

/* Returns the log-probabilities that a loss has for every row: of the row, or
 * for an exact one also of a row of each context-parallel rank. */
static size_t logps_of(const struct pp_mesh *x)
{
    return pp_mesh_is_exact(x) ? 1 + (size_t)x->cp : 1;
}

/* The head has blocks of logits, and of rows of its input and their gradients;
 * and the log-probability of every row. Rows are tokens of all tensor-parallel
 * ranks: tp of them count as one of this rank. */
static void add_head_scratch(const struct pp_shard *s,
                             const struct pp_backend *b, struct pp_workspace *w)
{
    const struct pp_model *m = s->model;
    size_t tp = pp_shard_row_ranks(s), outputs = pp_shard_outputs(s);
    w->token += (double)(tp * logps_of(&s->mesh) * b->accumulator_bytes);
    /* The gradients of each prediction, before they are side by side; or that
     * of a generator, in the order of the rows. */
    bool apart = m->n_mtp || m->generator;
    w->token += (double)(apart ? m->hidden * b->element_bytes : 0);
    w->rows = pp_divide_up(pp_head_block_rows(b, outputs), tp);
    w->row = times(tp, plus(outputs, 2 * m->hidden) * b->element_bytes);
}

/* Ranks that divide images exchange features: the features of the images of a
 * rank, which are at most all tokens of a microbatch if the images are, and the
 * features of its tokens. The embedding also reads the former. */
static void add_features(const struct pp_shard *s, const struct pp_backend *b,
                         struct pp_workspace *w)
{
    const struct pp_model *m = s->model;
    const struct pp_image_load *l = s->images;
    if (l->exchangers < 2)
        return;
    double made = (double)(l->sharers * m->hidden);
    /* Images of several microbatches, of one encoder after the other. */
    size_t n = l->exchangers > l->sharers ? pp_model_n_encoders(m) : 0;
    for (size_t k = 0; k < n; k++)
        made = fmax(made, pp_edge_rate(s, pp_component_first(m, k + 1)));
    w->token += 2 * made * (double)b->element_bytes;
    w->fixed += 2 * PP_LINE_BYTES;
}

/* Returns the elements of what the unit gets and passes on, for each row. */
static size_t handed_on(const struct pp_model *m, struct pp_unit_id u)
{
    size_t both = 2 * m->hidden, at;
    if (!m->n_mtp && !m->reads)
        return both;
    at = pp_model_index(m, u);
    return pp_most(both, pp_edge_before(m, at).width +
                             pp_edge_before(m, at + 1).width);
}

static struct pp_workspace workspace_of(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        const struct pp_backend *b,
                                        size_t recomputed)
{
    const struct pp_model *m = s->model;
    size_t tp = pp_shard_row_ranks(s), routers = pp_mesh_routers(&s->mesh);
    struct pp_workspace w = {.fixed = N_PARTS * PP_LINE_BYTES};
    if (m->table) {
        w = pp_unit_row(m, u)->workspace;
        w.token += (double)recomputed;
        return w;
    }
    w.token = (double)(handed_on(m, u) * b->element_bytes + recomputed);
    if (tp > 1) {
        w.token += (double)(2 * tp * pp_gathered_row_bytes(s, b));
        w.fixed += 2 * PP_LINE_BYTES;
    }
    if (u.kind == PP_UNIT_EMBED) {
        add_features(s, b, &w);
        /* The embedding before a connector adds to it, or the gradient of what
         * it reads before that is sorted. */
        w.token +=
            (double)(m->reads ? pp_most(m->reads, m->hidden) * b->element_bytes
                              : 0);
    }
    if (u.kind == PP_UNIT_LAYER) {
        add_layer_scratch(s, u, b, &w);
        if (m->lora && pp_unit_role(m, u) == PP_ROLE_TRAINED) {
            w.token += (double)(tp * pp_lora_most(m->lora) * b->element_bytes);
            w.fixed += PP_LINE_BYTES;
        }
        if (!pp_layer_set_has(&m->delta.layers, u.layer))
            w.token += (double)exchanged(s, u, &w, b);
        /* Loads of experts are summed. */
        if (routers > 1 && pp_layer_set_has(&m->moe.layers, u.layer))
            w.fixed += times(routers, b->accumulator_bytes);
    }
    if (u.kind == PP_UNIT_HEAD)
        add_head_scratch(s, b, &w);
    /* Statistics that it gets and gives back. */
    if (u.kind == PP_UNIT_LOSS)
        w.token = (double)((2 * PP_HEAD_STATISTICS + logps_of(&s->mesh)) *
                           b->accumulator_bytes);
    /* The inputs of the second convolution of audio, or their gradients. */
    if (u.kind == PP_UNIT_PATCHES && pp_vision_hears(pp_unit_encoder(m, u)))
        w.token += (double)(PP_AUDIO_FRAMES * m->hidden * b->element_bytes);
    return w;
}

/* Returns the elements of hidden states that a unit of an encoder gets and
 * passes on beside its own rows. */
static size_t kept_beside(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_vision *v = pp_unit_encoder(m, u);
    size_t n = pp_vision_kept(v, u);
    if (u.kind != PP_UNIT_PATCHES)
        n += pp_vision_kept(v, pp_model_unit(m, pp_model_index(m, u) - 1));
    return n * v->hidden;
}

/* The same for a unit of an encoder, for each token of the language model. A
 * projector reads features out of its input. Ranks that divide tensors receive
 * parts of sums, as many values as a row of the encoder or of features has. */
static struct pp_workspace image_workspace_of(const struct pp_shard *s,
                                              struct pp_unit_id u,
                                              const struct pp_backend *b,
                                              double recomputed)
{
    struct pp_workspace w = {.fixed = N_PARTS * PP_LINE_BYTES};
    const struct pp_model *m = s->model;
    size_t at = pp_model_index(m, u);
    bool divided = s->images[u.component].tp > 1;
    if (!pp_unit_runs(m, u))
        return (struct pp_workspace){0};
    if (m->table)
        return (struct pp_workspace){.token = recomputed};
    if (u.kind != PP_UNIT_PROJECTOR) {
        const struct pp_model tower = pp_vision_tower(m, u.component);
        const struct pp_shard in = pp_vision_shard(s, &tower, u.component);
        w = workspace_of(&in, u, b, 0);
        w.token += divided ? (double)(tower.hidden * b->element_bytes) : 0;
        w.token += (double)(kept_beside(m, u) * b->element_bytes);
        w.fixed += divided ? PP_LINE_BYTES : 0;
        w.token = w.token * pp_rows_rate(s, pp_unit_rows(u)) + recomputed;
        w.keys = 0; /* nothing divides an image */
        return w;
    }
    double values = 2 * fmax(pp_edge_rate(s, at), pp_edge_rate(s, at + 1)) +
                    pp_vision_read_width(s, u.component);
    if (divided) {
        values += pp_edge_rate(s, at + 1);
        w.fixed += PP_LINE_BYTES;
    }
    /* It sorts what it sends over a bridge to ranks that divide tokens. */
    if (pp_vision_sorts(&s->images[u.component])) {
        values += pp_edge_rate(s, at + 1);
        w.fixed += PP_LINE_BYTES;
    }
    w.token = values * (double)b->element_bytes + recomputed;
    return w;
}

size_t pp_workspace_bytes(const struct pp_workspace *w, size_t rows,
                          size_t copied)
{
    size_t sum =
        plus(pp_least(pp_bytes_of_rows(w->token, rows), LARGEST), w->fixed);
    sum = plus(sum, times(w->row, pp_head_room_rows(w->rows, rows)));
    sum = plus(sum, times(w->keys, copied));
    return pp_round_up(sum, PP_LINE_BYTES);
}

size_t pp_copied_keys(const struct pp_mesh *x, size_t rows, size_t context)
{
    /* Keys and values, also of the context, and their gradients. What ranks
     * gather has room for the rows of a slice already. */
    size_t before = pp_divide_up(context, (size_t)pp_mesh_sharers(x));
    return x->cp > 1 ? 3 * (size_t)x->cp * before
           : context ? 2 * (before + rows)
                     : 0;
}

/* --- units --- */

static double out_rate(const struct pp_shard *s, struct pp_unit_id u,
                       const struct pp_backend *b)
{
    const struct pp_model *m = s->model;
    size_t e = b->element_bytes;
    if (pp_unit_is_vision(u))
        return pp_edge_rate(s, pp_model_index(m, u) + 1) * (double)e;
    if (m->table)
        return pp_unit_row(m, u)->costs.out_bytes * pp_table_bytes_of(m, e);
    /* The head's loss stays on its rank. */
    const struct pp_edge out = pp_edge_before(m, pp_model_index(m, u) + 1);
    return (double)pp_edge_bytes(out, e, b->accumulator_bytes);
}

static struct pp_unit_rates image_rates(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        const struct pp_backend *b,
                                        const struct pp_precision *types)
{
    double recomputed =
        pp_vision_saved_bytes(s, u, PP_SAVED_WORKSPACE, types, b->is_host);
    struct pp_unit_rates rates = {.out = out_rate(s, u, b),
                                  .workspace =
                                      image_workspace_of(s, u, b, recomputed)};
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        rates.act[k] = pp_vision_saved_bytes(s, u, (enum pp_saved_block)k,
                                             types, b->is_host);
    return rates;
}

struct pp_unit_rates pp_unit_rates(const struct pp_shard *s,
                                   struct pp_unit_id u, enum pp_recompute r,
                                   const struct pp_backend *b)
{
    const struct pp_shard of = pp_unit_shard(s, &u);
    const struct pp_precision types = {.element_bytes = b->element_bytes,
                                       .accumulator_bytes =
                                           b->accumulator_bytes};
    if (pp_unit_is_vision(u))
        return image_rates(&of, u, b, &types);
    size_t recomputed =
        pp_unit_saved_bytes(&of, u, r, PP_SAVED_WORKSPACE, &types);
    struct pp_unit_rates rates = {.out = out_rate(&of, u, b),
                                  .workspace =
                                      workspace_of(&of, u, b, recomputed)};
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        rates.act[k] = (double)pp_unit_saved_bytes(
            &of, u, r, (enum pp_saved_block)k, &types);
    return rates;
}

size_t pp_rank_rows(const struct pp_mesh *x, const struct pp_backend *b,
                    size_t tokens)
{
    size_t ranks = (size_t)pp_mesh_sharers(x);
    return pp_saved_rows(b->is_host, pp_divide_up(tokens, ranks));
}

size_t pp_bytes_of_rows(double rate, size_t rows)
{
    double bytes = rate * (double)rows, whole = rint(bytes);
    return pp_size_of(fabs(bytes - whole) <= 1e-9 * whole ? whole
                                                          : ceil(bytes));
}

struct pp_unit_bytes pp_unit_bytes(const struct pp_unit_rates *rates,
                                   size_t rows, size_t copied)
{
    struct pp_unit_bytes bytes = {
        .output = pp_bytes_of_rows(rates->out, rows),
        .grad_keys = times(rates->workspace.keys, rows),
        .states = rates->workspace.states,
        .told = rates->workspace.told,
        .workspace = pp_workspace_bytes(&rates->workspace, rows, copied)};
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        bytes.act[k] = pp_bytes_of_rows(rates->act[k], rows);
    return bytes;
}

/* --- state --- */

/* Returns the elements with the gap behind them. */
static size_t padded(uint64_t n, const struct pp_precision *p)
{
    return pp_round_up(pp_least((size_t)n, LARGEST),
                       PP_LINE_BYTES / p->element_bytes);
}

/* Returns the elements of a unit on a rank, when they are whole. */
static size_t whole(struct pp_elements held, const struct pp_precision *p)
{
    return padded(held.dense + held.experts, p);
}

size_t pp_gathered_bytes(const struct pp_mesh *x, struct pp_held held,
                         const struct pp_precision *p)
{
    return pp_mesh_divides_weights(x)
               ? times(whole(held.all, p), p->element_bytes)
               : 0;
}

/* Returns the elements of a unit that a rank owns. */
static size_t owned(const struct pp_mesh *x, struct pp_elements held,
                    const struct pp_precision *p)
{
    bool shared = x && !x->whole_state;
    size_t alike = shared ? (size_t)x->dp * (size_t)x->cp : 1;
    size_t sharers = alike * (shared && x->experts_over_tp ? (size_t)x->tp : 1);
    size_t experts =
        pp_divide_up(held.experts, sharers / (shared ? (size_t)x->ep : 1));
    uint64_t each = pp_divide_up(held.dense, alike) + experts;
    return padded(shared && held.owned ? held.owned : each, p);
}

struct pp_state_bytes pp_state_bytes(const struct pp_mesh *x,
                                     struct pp_held held,
                                     const struct pp_precision *p)
{
    bool divided = x && pp_mesh_divides_weights(x);
    return (struct pp_state_bytes){
        .weights = times(divided ? owned(x, held.all, p) : whole(held.all, p),
                         p->element_bytes),
        .gradients = times(whole(held.trained, p), pp_gradient_bytes(p)),
        .optimizer = times(owned(x, held.trained, p), pp_optimizer_bytes(p)),
    };
}

/* --- tables --- */

/* A double and 13 integers for each token: positions, ids, rows, targets, two
 * lists of bounds, numbers of sequences, columns of ids and labels, three for
 * the keys of a sequence, and the order of keys. The last four are for parts of
 * sequences; the kernels read them, but not columns. They read numbers if ranks
 * divide sequences: then each has few rows of its own. Ahead: the ids of the
 * next tokens, and rows and targets of their own. */
size_t pp_batch_host_bytes(size_t tokens, bool ahead)
{
    size_t n = ahead ? 13 + 3 : 13;
    return times(tokens + 1, sizeof(double) + n * sizeof(int32_t));
}

size_t pp_batch_device_bytes(size_t tokens, bool ahead)
{
    return times(tokens + 1, (ahead ? 12 + 3 : 12) * sizeof(int32_t));
}

/* Returns the integers of the images of a microbatch for each token, or for
 * each feature if the encoder has a mesh of its own. A feature takes the place
 * of a token. If all images have one size, the encoder has at most two tokens
 * for it, a patch and a class token, each with a position and an id, and there
 * is the row of the feature. Otherwise, each patch has two positions and each
 * token three, and there are bounds of windows and the places of features in
 * the encoder, both ways: kernels read them one way. Then there are bounds of
 * images, each of which has a feature or more, and the rows of tokens that get
 * features. Ranks that divide images have the order of the features to send,
 * and the ranks that take them, which kernels do not read. */
static size_t image_integers(const struct pp_image_counts *c, bool is_host)
{
    size_t of_patches = c->merge ? plus(times(c->merge, 2), 5 + is_host)
                                 : plus(2 * 2, c->states);
    return of_patches + 2 + (c->ranks > 1 ? 1 + is_host : 0);
}

/* On the host there are also the pixels of images, and bounds by rank. */
size_t pp_image_batch_bytes(size_t tokens, const struct pp_image_counts *c)
{
    size_t each = times(image_integers(c, true), sizeof(int32_t));
    return plus(times(tokens + 1, each + sizeof(void *)),
                c->ranks > 1 ? times(c->ranks + 1, 2 * sizeof(size_t)) : 0);
}

size_t pp_image_batch_device_bytes(size_t tokens,
                                   const struct pp_image_counts *c)
{
    return times(tokens + 1, times(image_integers(c, false), sizeof(int32_t)));
}

size_t pp_bridge_bytes(const struct pp_table_counts *c)
{
    size_t arrays = c->generated ? 5 : 1;
    return plus(times(3 * (c->bridges + 1), sizeof(size_t)),
                times(c->bridged + 1, arrays * sizeof(int32_t)));
}

size_t pp_scoring_bytes(size_t tokens)
{
    return times(tokens + 1, PP_SCORING_ROW_BYTES);
}

size_t pp_scoring_shared_bytes(size_t tokens)
{
    return times(tokens / 2, 7 * sizeof(double));
}

size_t pp_step_numbers(const struct pp_table_counts *c)
{
    size_t of_losses = times(c->n_losses, 1 + c->n_metrics);
    return c->n_tensors + of_losses + PP_SHARED_NUMBERS + c->n_ranks;
}

size_t pp_table_sums(const struct pp_table_counts *c)
{
    /* A tensor may end with a smaller block. */
    size_t blocks = c->n_tensors + c->n_params / PP_SQUARES_BLOCK;
    return c->n_losses + 1 + blocks * (c->copies ? 2 : 1);
}

/* The metrics of every microbatch, and the rows of one. */
static size_t scoring(const struct pp_table_counts *c)
{
    size_t metrics = times(times(c->n_losses, c->n_metrics), sizeof(double));
    return c->n_metrics ? pp_line_bytes(metrics) +
                              pp_line_bytes(pp_scoring_bytes(c->tokens))
                        : 0;
}

/* The places of the sums of squares of owners; losses of an evaluation; places
 * and values of scores; the reference; the numbers of this rank, their sums and
 * their entries, which have an index; the slots of all ranks. */
static size_t statistics(const struct pp_table_counts *c)
{
    size_t numbers = times(pp_step_numbers(c), sizeof(double));
    size_t owners = times(2 * c->n_owners + 1, sizeof(size_t));
    return (c->n_owners > 1 ? pp_line_bytes(owners) : 0) +
           pp_line_bytes(times(c->n_eval, sizeof(double))) +
           pp_line_bytes(times(c->n_scores, sizeof(double))) +
           pp_line_bytes(
               times(times(c->n_scores, c->score_width), sizeof(double))) +
           (c->n_references
                ? pp_line_bytes(times(c->n_references, sizeof(float)))
                : 0) +
           2 * pp_line_bytes(numbers) + pp_line_bytes(times(numbers, 2)) +
           pp_line_bytes(times(c->n_ranks, sizeof(int)));
}

size_t pp_sum_values(const struct pp_table_counts *c, bool is_host)
{
    enum { OF_A_RANK = 1 << 20, MOST = 1 << 24, ON_HOST = 1 << 18 };
    size_t n = is_host ? ON_HOST : times(c->sums, OF_A_RANK);
    n = n < MOST ? n : MOST;
    n = n < c->n_params ? n : c->n_params; /* there are no more */
    return n > c->sums ? n : c->sums;
}

size_t pp_table_bytes(const struct pp_table_counts *c,
                      const struct pp_backend *b)
{
    size_t wide = b->accumulator_bytes, sum = 0;
    size_t engines = c->overlap ? 2 : 1;
    size_t engine =
        b->is_host ? pp_line_bytes(pp_batch_host_bytes(c->tokens, c->ahead))
                   : pp_line_bytes(pp_batch_device_bytes(c->tokens, c->ahead)) +
                         PP_CUDA_WORKSPACE_BYTES + PP_CUDA_PARTIAL_BYTES;
    const size_t rotary[] = {c->rotary, c->generator_rotary};
    if (c->widened)
        sum += pp_line_bytes(times(c->widened, b->element_bytes));
    for (size_t k = 0; k < 2; k++)
        if (rotary[k])
            sum += 2 * pp_line_bytes(times(c->positions, rotary[k] / 2 * wide));
    if (c->generated)
        engine += pp_line_bytes(
            b->is_host ? pp_batch_host_bytes(c->generated, false)
                       : pp_batch_device_bytes(c->generated, false));
    if (c->bridges)
        engine +=
            pp_line_bytes(b->is_host ? pp_bridge_bytes(c)
                                     : times(c->bridged + 1, sizeof(int32_t)));
    if (c->sums > 1)
        sum += pp_line_bytes(pp_sum_values(c, b->is_host) * wide);
    sum += pp_line_bytes(times(pp_table_sums(c), sizeof(double)));
    if (c->n_metrics && c->divided && !b->is_host)
        sum += pp_line_bytes(pp_scoring_shared_bytes(c->tokens));
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (c->images[k].ranks)
            engine += pp_line_bytes((b->is_host ? pp_image_batch_bytes
                                                : pp_image_batch_device_bytes)(
                c->images[k].rows, &c->images[k]));
    return sum + engines * engine +
           (b->is_host ? statistics(c) + scoring(c) : 0);
}
