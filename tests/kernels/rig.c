/* SPDX-License-Identifier: MIT */
#include "rig.h"

#include "model/vision.h"

struct pp_model rig_model(void)
{
    return (struct pp_model){
        .hidden = 10,
        .intermediate = 7,
        .n_layers = 2,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 6,
        .vocab = 13,
        .max_position = 256,
        .norm_eps = 1e-5,
        .rope = {.theta = 100, .attention_factor = 1},
    };
}

bool rig_is_first(enum pp_unit_kind kind)
{
    return kind == PP_UNIT_EMBED || kind == PP_UNIT_PATCHES;
}

size_t rig_in_width(const struct pp_model *m, enum pp_unit_kind kind)
{
    return kind == PP_UNIT_PATCHES     ? m->encoders[0].patch_inputs
           : kind == PP_UNIT_PROJECTOR ? m->encoders[0].hidden
           : kind == PP_UNIT_HEAD      ? m->hidden * (1 + m->n_mtp)
                                       : m->hidden;
}

/* Bounds windows of n rows, the last one of a sequence by its end. */
static void bound_windows(struct rig *r, int32_t n)
{
    r->mb.encoder.cu_windows = r->cu_windows;
    for (size_t i = 0; i < RIG_MAX_SEQUENCES; i++)
        for (int32_t at = r->cu_padded[i]; at < r->cu_padded[i + 1]; at += n)
            r->cu_windows[++r->mb.encoder.n_windows] =
                at + n < r->cu_padded[i + 1] ? at + n : r->cu_padded[i + 1];
}

/* Puts the rows of clips in chunks. Some clips have an odd number of frames. */
static void cut_clips(struct rig *r, const struct packing *p)
{
    size_t chunk = r->m.encoders[0].chunk;
    bound_windows(r, (int32_t)chunk);
    for (size_t t = 0; t < r->mb.tokens; t++)
        r->positions[t] %= (int32_t)chunk;
    for (size_t i = 0; i < p->n; i++)
        r->n_frames[i] = 2 * p->real[i] - (p->real[i] % 4 == 1);
    r->mb.encoder.n_frames = r->n_frames;
}

void rig_list_kinds(struct rig *r)
{
    int chunk = (int)r->m.encoders[0].chunk;
    for (size_t i = 0; i < r->mb.n_sequences; i++) {
        int real = r->cu[i + 1] - r->cu[i];
        for (int j = 0; j < r->cu_padded[i + 1] - r->cu_padded[i]; j++) {
            bool begins = chunk ? j % chunk == 0 : j == 0;
            bool half = chunk && j + 1 == real && r->n_frames[i] % 2;
            r->kinds[r->cu_padded[i] + j] =
                j >= real
                    ? -1
                    : (begins ? PP_ROW_BEGINS : 0) | (half ? PP_ROW_HALF : 0);
        }
    }
}

/* Returns the packing with whole features in each sequence. */
static struct packing whole_features(const struct packing *p, int merge)
{
    struct packing whole = *p;
    for (size_t i = 0; i < p->n; i++) {
        whole.real[i] = (p->real[i] + merge - 1) / merge * merge;
        whole.padded[i] = (p->padded[i] + merge - 1) / merge * merge;
    }
    return whole;
}

/* Merges rows to features, those of windows in another order than that of their
 * rows. A window has two rows, or what is left of a sequence. */
static void merge_rows(struct rig *r, const struct packing *p, size_t t)
{
    const int merge = (int)r->m.encoders[0].merge;
    r->mb.encoder.n_features = t / (size_t)merge;
    r->mb.encoder.feature_rows = NULL;
    if (!r->m.encoders[0].window)
        return;
    for (size_t i = 0, at = 0; i < p->n; i++) {
        int n = p->padded[i] / merge, real = p->real[i] / merge;
        for (int k = 0; k < n; k++) {
            int place = k < real ? (k + real / 2) % real : k;
            r->features[at + (size_t)k] = (int32_t)at + place;
            r->sources[at + (size_t)place] = (int32_t)at + k;
        }
        at += (size_t)n;
    }
    r->mb.encoder.feature_rows = r->features;
    r->mb.encoder.sources = r->sources;
    bound_windows(r, 2);
}

/* Reports whether a feature begins at row j of n: patches behind a class token,
 * or pairs of rows of audio. */
static bool is_feature(const struct pp_vision *v, int j, int n)
{
    return pp_vision_hears(v) ? j % 2 == 0 && j + 1 < n : j > 0;
}

static void pack(struct rig *r, const struct packing *p)
{
    size_t t = 0, n_axes = 0;
    uint64_t key = pp_rng_key(7, "tokens");
    while (n_axes < PP_ROPE_AXES && r->m.rope_axes[n_axes])
        n_axes++;
    for (size_t i = 0; i < p->n; i++) {
        r->cu[i + 1] = r->cu[i] + p->real[i];
        r->cu_padded[i + 1] = r->cu_padded[i] + p->padded[i];
        for (int j = 0; j < p->padded[i]; j++, t++) {
            bool real = j < p->real[i];
            r->positions[t] = real ? j : 0;
            for (size_t a = 0; a < n_axes; a++)
                r->axes[t * n_axes + a] =
                    real ? (j + (int)a) / ((int)a + 1) : 0;
            if (real && is_feature(&r->m.encoders[0], j, p->real[i]))
                r->features[r->mb.encoder.n_features++] = (int32_t)t;
            r->ids[t] = real ? (int32_t)(pp_rng_bits(key, t) % r->m.vocab) : -1;
            /* Every third row is not scored. */
            if (real && j + 1 < p->real[i] && j % 3 != 1) {
                r->rows[r->mb.scored.n] = (int32_t)t;
                r->targets[r->mb.scored.n++] =
                    (int32_t)(pp_rng_bits(key, t + 1000) % r->m.vocab);
            }
        }
    }
    /* The first token of an image is its class token. */
    for (size_t i = 0; i < t && r->l.unit.kind == PP_UNIT_PATCHES; i++)
        r->ids[i] = -1;
    for (size_t i = 0; i < p->n && r->l.unit.kind == PP_UNIT_PATCHES; i++)
        if (p->real[i])
            r->ids[r->cu_padded[i]] = 0;
    r->mb.encoder.feature_rows = r->features;
    if (pp_vision_merges(&r->m.encoders[0])) /* all rows, some at a time */
        merge_rows(r, p, t);
    r->mb.tokens = t;
    if (r->m.encoders[0].chunk)
        cut_clips(r, p);
    r->mb.n_sequences = p->n;
    r->mb.encoder.kinds = r->kinds;
    if (pp_vision_hears(&r->m.encoders[0]))
        rig_list_kinds(r);
    r->mb.cu_seqlens = r->cu;
    r->mb.cu_seqlens_padded = r->cu_padded;
    r->mb.positions = r->positions;
    r->mb.axes = n_axes ? r->axes : NULL;
    r->mb.input_ids = r->ids;
    r->mb.scored.rows = r->rows;
    r->mb.scored.targets = r->targets;
    r->mb.loss.scale = 0.37;
    r->mb.loss.sum = &r->loss;
    r->mb.loss.logps = r->logps;
}

static void bind_parameters(struct rig *r, size_t shift)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], t;
    size_t n = pp_unit_params(&r->m, r->l.unit, table), at = 0;
    r->w =
        values_new(r->env.kernels, pp_unit_n_params(&r->m, r->l.unit), shift);
    r->g = values_new(r->env.kernels, r->w.n, shift);
    fill_normal(&r->w, "parameters", 0.5);
    for (size_t i = 0; i < pp_table_slots(table, n); i++) {
        if (!pp_table_at(table, n, i, &t))
            continue;
        if (i < PP_N_LAYER_PARAMS) {
            r->l.w[i] = (char *)r->w.at + at * r->w.bytes;
            r->l.g[i] = (char *)r->g.at + at * r->g.bytes;
        }
        at += t.rows * t.cols;
    }
}

void rig_init(struct rig *r, const struct pp_model *m, enum pp_unit_kind kind,
              const struct pp_kernels *k, const struct packing *p, size_t shift)
{
    const struct pp_shard s = pp_shard_whole(m);
    rig_init_mode(r, &s, kind, PP_RECOMPUTE_NONE, k, p, shift);
}

/* Returns the elements of the layer's scratch: its workspace without the parts
 * of the stage, and without their gaps. */
static size_t scratch_of(const struct rig *r, size_t T)
{
    const struct pp_backend b = pp_kernels_backend(r->env.kernels, true);
    const struct pp_precision types = {.element_bytes = b.element_bytes,
                                       .accumulator_bytes =
                                           b.accumulator_bytes};
    struct pp_workspace w =
        pp_unit_rates(&r->env.shard, r->l.unit, r->l.recompute, &b).workspace;
    w.token -= 2 * r->m.hidden * b.element_bytes +
               pp_unit_saved_bytes(&r->env.shard, r->l.unit, r->l.recompute,
                                   PP_SAVED_WORKSPACE, &types);
    w.fixed -= 4 * PP_LINE_BYTES;
    return pp_workspace_bytes(&w, T, 0) / b.element_bytes;
}

/* Patches have pixels in place of an input. */
static void make_pixels(struct rig *r)
{
    size_t width = r->m.encoders[0].patch_inputs;
    size_t n = pp_vision_hears(&r->m.encoders[0])
                   ? r->mb.tokens * width
                   : r->mb.encoder.n_features * r->m.encoders[0].merge * width;
    if (r->l.unit.kind != PP_UNIT_PATCHES)
        return;
    r->pixels = calloc(n + 1, sizeof *r->pixels);
    r->mb.encoder.pixels = r->images;
    size_t at = 0;
    for (size_t i = 0; i < r->mb.n_sequences; i++) {
        size_t real = (size_t)(r->cu[i + 1] - r->cu[i]);
        r->images[i] = r->pixels + at * width;
        at += real - (r->l.w[PP_P_CLASS] && real > 0); /* the class token */
    }
    for (size_t i = 0; i < n; i++)
        r->pixels[i] = (float)get(&r->x, i);
}

void rig_init_mode(struct rig *r, const struct pp_shard *s,
                   enum pp_unit_kind kind, enum pp_recompute mode,
                   const struct pp_kernels *k, const struct packing *p,
                   size_t shift)
{
    const struct pp_model *m = s->model;
    *r = (struct rig){.m = *m, .l.recompute = mode};
    r->l.unit.kind = kind;
    if (!pp_model_is_tower(m) && kind != PP_UNIT_PROJECTOR)
        r->l.unit.component = PP_LANGUAGE;
    r->l.rows = pp_unit_rows(r->l.unit);
    r->l.env = &r->env;
    r->env.shard = *s;
    r->env.shard.model = &r->m;
    r->env.kernels = k;
    r->env.exchange = pp_attention_exchange(1, &(struct pp_mesh){.cp = 1});
    struct pp_env *layers = &r->others[0];
    *layers = r->env;
    layers->shard.model = &r->tower;
    r->env.others = r->others;
    if (kind == PP_UNIT_PROJECTOR)
        r->tower = pp_vision_tower(m, 0);
    struct packing whole = *p;
    if (pp_vision_merges(&m->encoders[0]))
        whole = whole_features(p, (int)m->encoders[0].merge);
    pack(r, &whole);
    bind_parameters(r, shift);
    size_t T = r->mb.tokens, half = m->head_dim / 2;
    size_t n_in = T * rig_in_width(m, kind);
    size_t n_out =
        (kind == PP_UNIT_PROJECTOR ? r->mb.encoder.n_features : T) * m->hidden;
    r->x = values_new(k, n_in, shift);
    r->dx = values_new(k, n_in, shift);
    r->y = values_new(k, n_out, shift);
    r->dy = values_new(k, n_out, shift);
    fill_normal(&r->x, "x", 1);
    fill_normal(&r->dy, "dy", 1);
    make_pixels(r);
    for (int b = 0; b < PP_N_UNIT_BLOCKS; b++)
        r->blocks[b] =
            values_new(k,
                       T * pp_unit_saved_width(&r->env.shard, r->l.unit, mode,
                                               (enum pp_saved_block)b),
                       shift);
    r->scratch = values_new(k, scratch_of(r, T), shift);
    r->cos = values_new(k, m->max_position * half, shift);
    r->sin = values_new(k, m->max_position * half, shift);
    pp_rope_tables(&r->m.rope, 2 * half, m->max_position, k->element_bytes,
                   r->cos.at, r->sin.at);
    r->env.rope_cos = r->cos.at;
    r->env.rope_sin = r->sin.at;
}

void rig_finish(struct rig *r)
{
    struct values *all[] = {&r->w,       &r->g,   &r->x,   &r->y, &r->dx,
                            &r->scratch, &r->cos, &r->sin, &r->dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
    for (int b = 0; b < PP_N_UNIT_BLOCKS; b++)
        values_free(&r->blocks[b]);
    free(r->pixels);
}

struct pp_call rig_call(struct rig *r, enum pp_saved_when when,
                        struct pp_err *err)
{
    struct pp_layer_blocks b = {.scratch = r->scratch.at};
    r->host.of = r->mb;
    r->mb.host = &r->host;
    for (int i = 0; i < PP_N_UNIT_BLOCKS; i++)
        b.block[i] = r->blocks[i].at;
    if (when == PP_IN_FORWARD)
        b.block[PP_SAVED_GRAD_W] = NULL;
    return pp_layer_call(&r->l, &r->mb, &b, when, err);
}

double rig_forward(struct rig *r)
{
    struct pp_err err = {0};
    const struct pp_call c = rig_call(r, PP_IN_FORWARD, &err);
    bool embed = r->l.unit.kind == PP_UNIT_EMBED;
    bool head = r->l.unit.kind == PP_UNIT_HEAD;
    double sum = 0;
    r->loss = 0;
    if (pp_layer_fwd(&c, head ? NULL : r->y.at, embed ? NULL : r->x.at))
        abort();
    for (size_t i = 0; !head && i < r->y.n; i++)
        sum += get(&r->y, i) * get(&r->dy, i);
    return head ? r->loss : sum;
}

double rig_scalar(struct rig *r)
{
    struct pp_router_losses *l = r->mb.experts.router;
    if (!l)
        return rig_forward(r);
    l->balance = l->size = 0;
    double sum = rig_forward(r);
    return sum + l->options->balance * l->balance + l->options->size * l->size;
}

/* Reports whether element i of all parameters is of a tensor that is stored but
 * never trained: positions of audio, embeddings of the ends of a clip, or
 * numbers of xielu. */
static bool is_fixed(const struct rig *r, size_t i)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(&r->m, r->l.unit, table), at = 0;
    for (size_t slot = 0; slot < n; slot++) {
        at += pp_tensor_elements(&table[slot]);
        if (i < at)
            return table[slot].frozen && !table[slot].by_load;
    }
    return false;
}

void rig_differences(struct rig *r, struct values *at, struct values *out)
{
    const double h = 1e-5;
    for (size_t i = 0; i < at->n; i++) {
        if (at == &r->w && is_fixed(r, i)) {
            set(out, i, 0);
            continue;
        }
        double x = get(at, i);
        set(at, i, x + h);
        double up = rig_scalar(r);
        set(at, i, x - h);
        double down = rig_scalar(r);
        set(at, i, x);
        set(out, i, (up - down) / (2 * h));
    }
}

void rig_backward(struct rig *r)
{
    struct pp_err err = {0};
    const struct pp_call c = rig_call(r, PP_IN_BACKWARD, &err);
    bool first = rig_is_first(r->l.unit.kind);
    bool head = r->l.unit.kind == PP_UNIT_HEAD;
    fill(&r->g, 0);
    if (pp_layer_bwd_input(&c, first ? NULL : r->dx.at,
                           head ? NULL : r->dy.at) ||
        pp_layer_bwd_weight(&c))
        abort();
}

void rig_backward_together(struct rig *r)
{
    struct pp_err err = {0};
    const struct pp_call c = rig_call(r, PP_IN_BACKWARD, &err);
    fill(&r->g, 0);
    if (pp_layer_bwd(&c, r->dx.at, NULL))
        abort();
}

bool rig_guards(const struct rig *r)
{
    bool whole = guard_whole(&r->g) && guard_whole(&r->y) &&
                 guard_whole(&r->dx) && guard_whole(&r->scratch);
    for (int b = 0; b < PP_N_UNIT_BLOCKS; b++)
        whole = whole && guard_whole(&r->blocks[b]);
    return whole;
}
