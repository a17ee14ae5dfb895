/* SPDX-License-Identifier: MIT */
/* outline - makes units of named shapes. A description only names shapes, so
 * that described models and files take one way. */
#include "manifest/outline.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "manifest/config_values.h"
#include "manifest/formula.h"
#include "model/precision.h"
#include "model/shard.h"
#include "model/vision.h"

enum { MOST_LAYERS = 65536, N_GROUPS = 8, MODULE_TEXT = 80 };

/* A sum never overflows 64 bits: no file has so many numbers. */
#define MOST_PARAMS 0x1p60

/* A unit while its tensors come in. Widths are elements for each token. */
struct unit_sums {
    double params, products;
    double experts, whole; /* of params: see pp_unit_row */
    double outputs;        /* of products that are not added to the residual */
    double inputs;         /* of products whose output is */
    double hidden;         /* inputs that products of one module share */
    char groups[N_GROUPS][MODULE_TEXT]; /* these modules */
    char query[MODULE_TEXT];            /* the module of attention */
    char state[MODULE_TEXT];            /* of a recurrence, as an SSM */
    size_t n_queries;                   /* of modules of attention */
    bool indexes;                       /* sparse attention chooses keys */
};

struct outline {
    struct pp_formulas f;
    struct pp_arena *arena;
    double hidden, vocab, experts, used; /* used: experts of a token / all */
    size_t n_layers;
    struct unit_sums *layers, embedding, norm, head;
    struct unit_sums *into; /* of a tower: the unit that is described */
    bool described;
    bool embeds, has_head, attends; /* some layer's tensors say so */
};

/* --- names --- */

/* Reports whether a name ends with one of several words between '|', which
 * follow a '.' or begin it. */
static bool ends_with(const char *name, size_t n, const char *words)
{
    while (*words) {
        size_t k = strcspn(words, "|");
        if (n >= k && !memcmp(name + n - k, words, k) &&
            (n == k || name[n - k - 1] == '.'))
            return true;
        words += k + (words[k] == '|');
    }
    return false;
}

/* Finds the first number between dots in a name, "model.layers.3.mlp", and what
 * follows it. */
static const char *after_number(const char *name, size_t *number)
{
    for (const char *at = name; (at = strchr(at, '.')); at++) {
        char *end;
        if (at[1] < '0' || at[1] > '9')
            continue;
        *number = strtoul(at + 1, &end, 10);
        if (*end == '.')
            return end + 1;
    }
    return NULL;
}

/* Tensors of files that are not trained. */
static bool is_stored(const char *name)
{
    return ends_with(name, strlen(name),
                     "inv_freq|e_score_correction_bias|layer_scalar|"
                     "act_fn.beta|act_fn.eps|weight_scale_inv|weight_scale|"
                     "input_scale|slope_rate|rotary_emb.cos|rotary_emb.sin") &&
           !strstr(name, "moe_statics");
}

/* --- sums --- */

static void set_module(char to[MODULE_TEXT], const char *name, size_t n)
{
    snprintf(to, MODULE_TEXT, "%.*s", (int)(n < MODULE_TEXT ? n : 0), name);
}

/* Counts the input of products of one module once; experts, whose names differ
 * in a number, are one. */
static void share_input(struct outline *o, struct unit_sums *s,
                        const char *name, size_t n)
{
    size_t i = 0, number;
    char module[MODULE_TEXT];
    const char *rest = after_number(name, &number);
    while (n > 0 && name[n - 1] != '.')
        n--;
    for (size_t k = 1; rest && rest <= name + n && k < n; k++)
        if (name[k - 1] == '.' && name[k] >= '0' && name[k] <= '9')
            n = k;
    set_module(module, name, n);
    while (i < N_GROUPS && s->groups[i][0] && strcmp(s->groups[i], module))
        i++;
    if (i == N_GROUPS || s->groups[i][0])
        return;
    strcpy(s->groups[i], *module ? module : ".");
    s->hidden += o->hidden;
}

/* Adds a product (rows, cols) of a share of the tokens. n: of the name without
 * ".weight". */
static void add_product(struct outline *o, struct unit_sums *s,
                        const char *name, size_t n, double rows, double cols,
                        double share)
{
    bool last = ends_with(name, n,
                          "o_proj|out_proj|down_proj|c_proj|fc2|w2|wo|"
                          "output_linear|dense|dense_4h_to_h|proj|linear_fc2|"
                          "projection_layer|linear_2");
    s->products += 2 * rows * cols * share;
    if (last)
        s->inputs += cols * share;
    else
        s->outputs += rows * share;
    if (!last && fabs(cols - o->hidden) <= 0)
        share_input(o, s, name, n);
}

/* Marks what the module of a tensor is. */
static void mark(struct unit_sums *s, const char *name, size_t n)
{
    size_t module = n;
    while (module > 0 && name[module - 1] != '.')
        module--;
    if (ends_with(name, n,
                  "q_proj|q_b_proj|qkv_proj|query_key_value|c_attn|"
                  "Wqkv|wq|q|query|in_proj_qkv|qkv")) {
        set_module(s->query, module ? name : ".", module ? module : 1);
        s->n_queries++;
    }
    if (ends_with(name, n, "A_log"))
        set_module(s->state, module ? name : ".", module ? module : 1);
    s->indexes |= strstr(name, "indexer.") != NULL;
}

/* Adds a tensor of a unit. A matrix is a product if it is a weight, a tensor
 * (experts, ., .) if it has one for each expert, and (channels, ., taps) is a
 * convolution of each channel. */
static void add_tensor(struct outline *o, struct unit_sums *s, const char *name,
                       int n_dims, const double *dims, bool expert)
{
    double all = 1;
    size_t n = strlen(name), suffix = strlen(".weight");
    bool weight = n > suffix && !strcmp(name + n - suffix, ".weight");
    n -= weight ? suffix : 0;
    for (int i = 0; i < n_dims; i++)
        all *= dims[i];
    s->params += all;
    bool shared = strstr(name, "shared") != NULL;
    bool of_experts = expert || (n_dims == 3 && dims[1] > 1 && !shared);
    bool router = n_dims == 2 && fabs(dims[0] - o->experts) <= 0;
    s->experts += of_experts ? all : 0;
    s->whole += n_dims == 1 || router ? all : 0;
    bool table = ends_with(name, n,
                           "embed_tokens_per_layer|embed_positions|"
                           "wpe|position_embeddings|"
                           "token_type_embeddings|embeddings");
    mark(s, name, n);
    if (n_dims == 2 && weight && !table && !strstr(name, "norm"))
        add_product(o, s, name, n, dims[0], dims[1], expert ? o->used : 1);
    else if (n_dims == 3 && dims[1] > 1 &&
             (strstr(name, "expert") || fabs(dims[0] - o->experts) <= 0)) {
        /* Files have these as (out, in) or (in, out). */
        bool turned = ends_with(name, n, "gate_up_proj") &&
                      fabs(dims[1] - o->hidden) <= 0;
        bool down = ends_with(name, n, "down_proj|output_linear") &&
                    fabs(dims[2] - o->hidden) <= 0;
        bool swap = turned || down;
        add_product(o, s, name, n, dims[swap ? 2 : 1], dims[swap ? 1 : 2],
                    fmin(dims[0], o->experts) * o->used);
    } else if (n_dims == 3) {
        s->products += 2 * all;
        s->inputs += dims[0];
    }
}

/* Adds a tensor of the model, by its name. Tensors of layers beyond the last
 * one predict several tokens, and tensors of encoders are no part of the
 * language model: both are left out. */
static void add(struct outline *o, const char *name, int n_dims,
                const double *dims, bool expert)
{
    size_t layer, n = strlen(name);
    static const char *const others[] = {
        "visual.",      "vision_", "audio_",    "multi_modal",
        "mm_projector", "mtp.",    "mtp_",      "embed_vision",
        "embed_audio",  "talker.", "token2wav."};
    if (o->into) {
        add_tensor(o, o->into, name, n_dims, dims, expert);
        return;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *at = strstr(name, others[i]);
        if (at && (at == name || at[-1] == '.'))
            return;
    }
    if (is_stored(name))
        return;
    const char *inner = after_number(name, &layer);
    if (inner && (!o->described || !strncmp(name, "model.layers.", 13))) {
        if (layer < o->n_layers)
            add_tensor(o, &o->layers[layer], inner, n_dims, dims, expert);
        return;
    }
    bool words = n_dims == 2 && fabs(dims[0] - o->vocab) <= 0;
    if (ends_with(name, n,
                  "lm_head.weight|output.weight|embed_out.weight|"
                  "head.weight|lm_head.bias|embed_out.bias") ||
        (words && o->embeds && fabs(dims[1] - o->hidden) <= 0)) {
        o->has_head = true;
        add_tensor(o, &o->head, name, n_dims, dims, false);
    } else if (words) {
        o->embeds = true;
        o->embedding.params += dims[0] * dims[1];
    } else {
        bool norm = n_dims == 1 &&
                    (!strstr(name, "embed") || strstr(name, "embedding_norm"));
        add_tensor(o, norm ? &o->norm : &o->embedding, name, n_dims, dims,
                   false);
    }
}

/* --- descriptions --- */

static int fail_missing(const struct outline *o, const char *what)
{
    return pp_value_fail(o->f.config, "'%s' is missing, which '%.40s' needs",
                         o->f.missing, what);
}

/* Adds name(rows,cols;bias) of n characters. */
static int add_described(struct outline *o, const char *prefix,
                         const char *word, size_t n)
{
    const char *open = memchr(word, '(', n), *end = word + n - 1;
    double dims[4];
    int n_dims = 0;
    size_t length = (size_t)(open - word);
    bool bare = open[-1] == '!';
    char name[PP_FQN_TEXT];
    snprintf(name, sizeof name, "%s%.*s%s", prefix, (int)(length - bare), word,
             bare ? "" : ".weight");
    for (const char *at = open + 1; at <= end && n_dims <= 3; at++) {
        int depth = 0;
        const char *last = at;
        while (last < end && (depth || !strchr(",;", *last))) {
            depth += *last == '(' ? 1 : *last == ')' ? -1 : 0;
            last++;
        }
        if (at > open + 1 && at[-1] == ';') {
            double x = pp_formula(&o->f, at, (size_t)(last - at));
            if (fabs(x) > 0) {
                snprintf(name + strlen(name) - strlen("weight"), 8, "bias");
                add(o, name, 1, dims, false);
            }
            return 0;
        }
        o->f.missing[0] = '\0';
        dims[n_dims] = floor(pp_formula(&o->f, at, (size_t)(last - at)));
        if (isnan(dims[n_dims]))
            return fail_missing(o, name);
        n_dims++;
        at = last;
        if (*last == ';' || last == end) {
            double all = 1;
            for (int i = 0; i < n_dims; i++)
                all *= dims[i];
            if (!(all >= 0 && all < MOST_PARAMS))
                return pp_value_fail(o->f.config, "'%.60s' has no size", name);
            add(o, name, n_dims, dims, false);
        }
    }
    return 0;
}

/* Adds the tensors of a list of words. */
static int describe(struct outline *o, const char *prefix, const char *words)
{
    size_t n;
    for (; (words = pp_formula_word(words, &n)); words += n) {
        const char *at = memchr(words, '@', n);
        const char *open = memchr(words, '(', n);
        const char *defines = memchr(words, '=', n);
        size_t length = at ? (size_t)(at - words) : n;
        double x = at ? pp_formula(&o->f, at + 1, n - length - 1) : 1;
        if (defines && (!open || defines < open) && (!at || defines < at))
            continue;
        if (!(fabs(x) > 0))
            continue;
        if (open && open < words + length) {
            if (add_described(o, prefix, words, length))
                return -1;
            continue;
        }
        for (const struct pp_outline_part *p = pp_outline_parts; p->name; p++)
            if (strlen(p->name) == length && !memcmp(p->name, words, length) &&
                describe(o, prefix, p->words))
                return -1;
    }
    return 0;
}

static int describe_family(struct outline *o,
                           const struct pp_outline_family *family)
{
    char prefix[40];
    for (size_t i = 0; i < o->n_layers; i++) {
        o->f.layer = i;
        snprintf(prefix, sizeof prefix, "model.layers.%zu.", i);
        o->f.bad = NULL;
        if (describe(o, prefix, family->layer) ||
            pp_config_check_divisors(&o->f))
            return -1;
    }
    return describe(o, "", family->ends ? family->ends : "ends");
}

/* --- units --- */

/* Saved activations of a layer: its input and the sum after attention, the
 * inputs of products, and their outputs; of the backward, gradients of all
 * these. */
static void set_saved(const struct outline *o, const struct unit_sums *s,
                      struct pp_unit_costs *c)
{
    c->act_bytes[PP_SAVED_ACT_I] = rint(s->outputs);
    c->act_bytes[PP_SAVED_ACT_W] = rint(2 * o->hidden + s->hidden + s->inputs);
    c->act_bytes[PP_SAVED_GRAD_W] =
        rint(2 * o->hidden + s->hidden + s->outputs);
}

/* Returns a number of a layer: 0 if it has none, and at most what no model has.
 */
static double number_of(struct outline *o, const char *name)
{
    double x = pp_formula_of(&o->f, name);
    return x > 0 ? fmin(x, MOST_PARAMS) : 0;
}

static void set_layer(struct outline *o, size_t layer, struct pp_unit_row *row)
{
    const struct unit_sums *s = &o->layers[layer];
    struct pp_unit_costs *c = &row->costs;
    o->f.layer = layer;
    c->fwd_flops[0] = rint(s->products); /* shares may be thirds */
    set_saved(o, s, c);
    /* A recurrence has queries, too. */
    bool recurs = s->state[0] && !strncmp(s->state, s->query, strlen(s->query));
    bool attends = s->query[0] || !o->attends;
    if (attends && !recurs && !pp_formula_holds(&o->f, "linear")) {
        c->fwd_flops[1] =
            number_of(o, "pair") * (double)(s->n_queries ? s->n_queries : 1);
        row->window = (size_t)number_of(o, "window");
        row->chunked = pp_formula_holds(&o->f, "chunked");
        row->per_any_pair = s->indexes ? number_of(o, "index") : 0;
    }
    if (s->state[0] || pp_formula_holds(&o->f, "linear"))
        c->fwd_flops[0] += number_of(o, "state");
    c->fwd_flops[0] += number_of(o, "more");
}

static void fill_rows(struct outline *o, bool tied, struct pp_unit_row *rows)
{
    const size_t n = o->n_layers;
    const double h = o->hidden;
    for (size_t i = 0; i < n; i++)
        o->attends |= o->layers[i].query[0] != '\0';
    const struct {
        const char *fqn, *class;
        enum pp_unit_kind kind;
        const struct unit_sums *s;
        double saved[PP_N_SAVED_BLOCKS], out;
    } ends[] = {{"model.embed_tokens",
                 "Embedding",
                 PP_UNIT_EMBED,
                 &o->embedding,
                 {0, 0, h},
                 h},
                {"model.norm", "Norm", PP_UNIT_NORM, &o->norm, {0, h, h}, h},
                {"lm_head", "Linear", PP_UNIT_HEAD, &o->head, {0, h, 0}, 0}};
    for (size_t i = 0; i < n + 3; i++) {
        struct pp_unit_row *row = &rows[i];
        size_t end = i == 0 ? 0 : i - n;
        const struct unit_sums *s = &o->layers[i > 0 && i <= n ? i - 1 : 0];
        if (i > 0 && i <= n) {
            row->fqn = pp_arena_printf(o->arena, "model.layers.%zu", i - 1);
            row->class = "Layer";
            row->kind = PP_UNIT_LAYER;
            row->costs.out_bytes = h;
            set_layer(o, i - 1, row);
        } else {
            s = ends[end].s;
            row->fqn = ends[end].fqn;
            row->class = ends[end].class;
            row->kind = ends[end].kind;
            row->costs.out_bytes = ends[end].out;
            row->costs.fwd_flops[0] = s->products;
            memcpy(row->costs.act_bytes, ends[end].saved,
                   sizeof row->costs.act_bytes);
        }
        row->costs.params = (uint64_t)s->params;
        row->experts = (uint64_t)s->experts;
        row->whole = (uint64_t)s->whole;
    }
    if (tied) {
        rows[n + 2].costs.params = (uint64_t)(o->vocab * h);
        rows[n + 2].costs.fwd_flops[0] = 2 * o->vocab * h;
    }
}

/* --- the configuration --- */

/* Finds the object of the language model. Whether its head is tied is said
 * outside of it, if there. */
static struct pp_value language_of(const struct pp_value *root)
{
    static const char *const keys[] = {"thinker_config", "text_config",
                                       "llm_config", "language_config"};
    struct pp_value at = *root;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *inner = json_object_get(at.value, keys[i]);
        if (json_is_object(inner))
            at.value = inner;
    }
    json_t *tied = json_object_get(root->value, "tie_word_embeddings");
    if (json_is_boolean(tied))
        json_object_set(at.value, "tie_word_embeddings", tied);
    return at;
}

static const char *text_of(const struct pp_value *object, const char *key)
{
    json_t *v = json_object_get(object->value, key);
    if (json_is_array(v) && json_array_size(v) == 1)
        v = json_array_get(v, 0);
    return json_is_string(v) && *json_string_value(v) ? json_string_value(v)
                                                      : NULL;
}

static const struct pp_outline_family *find_family(const char *type,
                                                   const char *architecture)
{
    const struct pp_outline_family *f = pp_outline_families;
    while (f->model_type && (type ? strcmp(f->model_type, type)
                                  : !architecture || !f->architecture ||
                                        strcmp(f->architecture, architecture)))
        f++;
    return f->model_type ? f : NULL;
}

static int read_number(struct outline *o, const char *name, double least,
                       double most, double *out)
{
    o->f.missing[0] = '\0';
    *out = pp_formula_of(&o->f, name);
    if (*out >= least && *out <= most)
        return 0;
    return isnan(*out)
               ? pp_value_fail(o->f.config, "'%s' is missing", o->f.missing)
               : pp_value_fail(o->f.config, "'%g' is no size (%s)", *out, name);
}

static int read_sizes(struct outline *o)
{
    double layers, top_k;
    if (read_number(o, "H", 1, 1e9, &o->hidden) ||
        read_number(o, "V", 1, 1e9, &o->vocab) ||
        read_number(o, "L", 1, MOST_LAYERS, &layers))
        return -1;
    o->n_layers = (size_t)layers;
    o->experts = pp_formula_of(&o->f, "E");
    top_k = pp_formula_of(&o->f, "used");
    o->used = top_k > 0 && o->experts > 0 ? top_k : 1;
    o->layers = pp_arena_alloc(o->arena, o->n_layers, sizeof *o->layers);
    return 0;
}

static int compare_names(const void *name, const void *shape)
{
    return strcmp(name, ((const struct pp_shape *)shape)->name);
}

/* Reports whether a tensor is one of as many as there are experts, whose names
 * differ in a second number. */
static bool is_expert(const struct outline *o, const char *name,
                      const struct pp_shape *shapes, size_t n)
{
    size_t number;
    char last[256];
    const char *inner = after_number(name, &number);
    const char *rest = inner ? after_number(inner - 1, &number) : NULL;
    if (!rest || !(o->experts > 1) || strlen(name) >= sizeof last - 20)
        return false;
    const char *digits = rest - 1;
    while (digits[-1] != '.')
        digits--;
    snprintf(last, sizeof last, "%.*s%.0f.%s", (int)(digits - name), name,
             o->experts - 1, rest);
    return bsearch(last, shapes, n, sizeof *shapes, compare_names) != NULL;
}

static void add_shapes(struct outline *o, const struct pp_shape *shapes,
                       size_t n)
{
    double dims[8];
    for (size_t i = 0; i < n; i++) {
        const struct pp_shape *s = &shapes[i];
        for (int k = 0; k < s->n_dims && k < 8; k++)
            dims[k] = (double)s->dims[k];
        if (!s->is_buffer)
            add(o, s->name, s->n_dims < 8 ? s->n_dims : 8, dims,
                is_expert(o, s->name, shapes, n));
    }
}

/* Fails if the tensors are too many, or none of the first layer. */
static int check_params(const struct outline *o, const struct pp_value *root)
{
    double all = o->embedding.params + o->norm.params + o->head.params;
    for (size_t i = 0; i < o->n_layers; i++)
        all += o->layers[i].params;
    if (o->layers[0].params <= 0 || o->embedding.params <= 0)
        return pp_value_fail(root, "the weights beside it have no tensors of "
                                   "its layers or its embedding");
    return all <= MOST_PARAMS
               ? 0
               : pp_value_fail(root, "'%.3g' parameters are too many", all);
}

/* Names what the configuration has beside the layers of the language model and
 * the encoder of images, if that is described. */
static const char *left_out(struct outline *o, const struct pp_value *root,
                            bool images)
{
    static const char *const texts[] = {
        NULL,
        "encoders",
        "encoders of audio",
        "layers for multi-token prediction",
        "encoders and layers for multi-token prediction",
        "encoders of audio and layers for multi-token prediction"};
    json_t *thinker = json_object_get(root->value, "thinker_config");
    json_t *whole = thinker ? thinker : root->value;
    bool audio = json_is_object(json_object_get(whole, "audio_config"));
    bool vision = json_is_object(json_object_get(whole, "vision_config"));
    bool ahead = pp_formula_of(&o->f, "num_nextn_predict_layers") > 0 ||
                 pp_formula_of(&o->f, "mtp_num_hidden_layers") > 0;
    return texts[(vision && !images ? 1 : audio ? 2 : 0) + 3 * ahead];
}

/* Returns a size of the first layer, or 0. */
static size_t count_of(struct outline *o, const char *name)
{
    o->f.layer = 0;
    double x = pp_formula_of(&o->f, name);
    return x > 0 && x < 1e9 ? (size_t)x : 0;
}

static void make_table(struct outline *o, const char *architecture, bool known,
                       const char *beside, struct pp_model *m)
{
    struct pp_arena *a = o->arena;
    struct pp_unit_table *t = pp_arena_alloc(a, 1, sizeof *t);
    struct pp_unit_row *rows = pp_arena_alloc(a, o->n_layers + 3, sizeof *rows);
    double longest = pp_formula_of(&o->f, "longest");
    t->architecture = pp_arena_strdup(a, architecture);
    *m = (struct pp_model){
        .architecture = PP_TABLE,
        .table = t,
        .n_layers = o->n_layers,
        .hidden = (size_t)o->hidden,
        .vocab = (size_t)o->vocab,
        .n_heads = count_of(o, "nh"),
        .n_kv_heads = count_of(o, "nkv"),
        .head_dim = count_of(o, "qk"),
        .moe = {.n_experts = count_of(o, "E"), .top_k = count_of(o, "K")},
        .tied = !o->has_head,
        .max_position = longest > 0 && longest < 1e9 ? (size_t)longest : 0};
    t->rows = rows;
    t->n = o->n_layers + 3;
    t->n_first = 1;
    t->of_elements = true;
    t->left_out = beside;
    t->estimated = known ? PP_ESTIMATED_MEMORY : PP_ESTIMATED_COSTS;
    fill_rows(o, m->tied, rows);
}

/* Makes a table of a language model that pprun trains, inside one that it does
 * not. */
static void make_known_table(struct pp_model *of, const char *architecture,
                             const char *beside, struct pp_arena *a,
                             struct pp_model *m)
{
    struct pp_unit_table *t = pp_arena_alloc(a, 1, sizeof *t);
    size_t n = pp_model_n_units(of);
    struct pp_unit_row *rows = pp_arena_alloc(a, n, sizeof *rows);
    const struct pp_shard shard = pp_shard_whole(of);
    t->architecture = pp_arena_strdup(a, architecture);
    for (size_t i = 0; i < n; i++) {
        struct pp_tensor_info tensors[PP_N_LAYER_PARAMS];
        struct pp_unit_id u = pp_model_unit(of, i);
        struct pp_flops f = pp_unit_fwd_flops(&shard, u);
        char fqn[PP_FQN_TEXT];
        struct pp_unit_row *row = &rows[i];
        pp_model_fqn(of, u, fqn);
        row->fqn = pp_arena_strdup(a, fqn);
        row->class = u.kind == PP_UNIT_LAYER ? "Layer" : "Module";
        row->kind = u.kind;
        row->costs.params = pp_unit_n_params(of, u);
        row->costs.fwd_flops[0] = f.per_token;
        row->costs.fwd_flops[1] = f.per_pair;
        row->costs.out_bytes = u.kind == PP_UNIT_HEAD ? 0 : (double)of->hidden;
        row->window = f.window;
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            row->costs.act_bytes[b] = (double)pp_unit_saved_width(
                &shard, u, PP_RECOMPUTE_NONE, (enum pp_saved_block)b);
        size_t n_tensors = pp_unit_params(of, u, tensors);
        for (size_t k = 0; k < n_tensors; k++) {
            size_t one = tensors[k].rows * tensors[k].cols;
            row->experts += one * tensors[k].n_equal;
            row->whole += tensors[k].split == PP_SPLIT_NONE ? one : 0;
        }
    }
    t->rows = rows;
    t->n = n;
    t->n_first = 1;
    t->of_elements = true;
    t->left_out = beside;
    t->estimated = PP_ESTIMATED_MEMORY;
    *m = (struct pp_model){.architecture = PP_TABLE,
                           .table = t,
                           .n_layers = of->n_layers,
                           .hidden = of->hidden,
                           .vocab = of->vocab,
                           .n_heads = of->n_heads,
                           .n_kv_heads = of->n_kv_heads,
                           .head_dim = of->head_dim,
                           .moe = of->moe,
                           .tied = of->tied,
                           .max_position = of->max_position};
}

/* --- encoders --- */

/* Returns the description of the model's encoder of images, or NULL. */
static const struct pp_outline_tower *find_tower(const struct pp_value *root)
{
    const char *of = text_of(root, "model_type");
    const struct pp_outline_tower *t = pp_outline_towers;
    struct pp_value vision;
    if (!of || !pp_config_find_set(root, "vision_config", &vision))
        return NULL;
    const char *type = text_of(&vision, "model_type");
    while (t->model_type && strcmp(t->model_type, of))
        t++;
    bool other = t->type && type && strcmp(t->type, type);
    return t->model_type && !other ? t : NULL;
}

static int read_tower_sizes(struct outline *o, struct pp_vision *v)
{
    const struct {
        const char *name;
        size_t *to, most;
    } sizes[] = {
        {"H", &v->hidden, 1 << 24},     {"I", &v->intermediate, 1 << 24},
        {"nh", &v->n_heads, 1 << 24},   {"L", &v->n_layers, PP_SET_LAYERS - 1},
        {"run", &v->n_run, 0},          {"input", &v->patch_inputs, 1 << 24},
        {"P", &v->patch_size, 1 << 15}, {"side", &v->merge, 1 << 10},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t most = sizes[i].most ? sizes[i].most : v->n_layers;
        double x;
        if (read_number(o, sizes[i].name, 1, (double)most, &x))
            return -1;
        *sizes[i].to = (size_t)x;
    }
    v->merge *= v->merge;
    v->class_token = pp_formula_holds(&o->f, "cls");
    double fixed = pp_formula_of(&o->f, "fixed");
    v->fixed_size = fixed > 0 && fixed < 1 << 30;
    v->patches =
        v->fixed_size ? (size_t)fixed : pp_round_up(PP_USUAL_PATCHES, v->merge);
    return v->patches % v->merge == 0
               ? 0
               : pp_value_fail(o->f.config,
                               "'%zu' patches of an image are no multiple of "
                               "%zu, which make a feature",
                               v->patches, v->merge);
}

/* Finds the layers whose outputs the projector reads beside the last one. */
static int read_deep(struct outline *o, struct pp_vision *v)
{
    for (o->f.layer = 0; o->f.layer < v->n_layers; o->f.layer++)
        if (pp_formula_holds(&o->f, "deep")) {
            pp_layer_set_add(&v->kept, o->f.layer + 1);
            v->n_states++;
        }
    v->n_states += v->n_states > 0;
    return v->n_states <= PP_MOST_STATES
               ? 0
               : pp_value_fail(o->f.config,
                               "'%zu' layers; there must be at "
                               "most %d",
                               v->n_states - 1, PP_MOST_STATES - 1);
}

/* The projector saves its input, the normed input, and the inputs and outputs
 * of its products; tensor-parallel ranks do not divide patches. */
static int make_tower_unit(struct outline *o, const struct pp_outline_tower *t,
                           const struct pp_model *m, size_t i,
                           struct pp_unit_row *row)
{
    const struct pp_vision *v = &m->encoders[0];
    double read = (double)pp_vision_read(v);
    double made = (double)(m->hidden * pp_vision_makes(v));
    struct unit_sums s = {0};
    struct pp_unit_costs *c = &row->costs;
    const size_t last = v->n_layers + 1, part = i == 0 ? 0 : i < last ? 1 : 2;
    const char *const words[] = {t->patches, t->layer, t->projector};
    o->into = &s;
    o->f.layer = i - (part == 1);
    if (describe(o, "", words[part]))
        return -1;
    row->kind = pp_vision_unit(v, i).kind;
    row->class = part == 1 ? "Layer" : "Module";
    row->fqn = t->names[part];
    if (part == 1) {
        row->fqn = pp_arena_printf(o->arena, "%s.%zu", row->fqn, i - 1);
        c->fwd_flops[1] = number_of(o, "pair");
    } else if (part == 0) {
        s.outputs = s.inputs = 0;
    }
    row->divided[PP_SAVED_ACT_I] = row->divided[PP_SAVED_GRAD_W] = s.outputs;
    row->divided[PP_SAVED_ACT_W] = s.inputs;
    memcpy(c->act_bytes, row->divided, sizeof c->act_bytes);
    const double kept[][2] = {
        {(double)v->patch_inputs, o->hidden},
        {2 * o->hidden + s.hidden, 2 * o->hidden + s.hidden},
        {2 * read, read + made}};
    c->act_bytes[PP_SAVED_ACT_W] += kept[part][0];
    c->act_bytes[PP_SAVED_GRAD_W] += kept[part][1];
    c->params = (uint64_t)s.params;
    c->fwd_flops[0] = s.products;
    row->whole = part == 0 ? c->params : (uint64_t)s.whole;
    return 0;
}

/* Adds an encoder to a table, in front of the language model. */
static int add_tower(const struct pp_outline_tower *t,
                     const struct pp_value *root, struct pp_arena *a,
                     struct pp_model *m)
{
    struct pp_value vision;
    int rc = pp_value_member(root, "vision_config", &vision) ||
             pp_value_is_object(&vision);
    if (rc)
        return -1;
    json_t *config = json_copy(vision.value);
    pp_put(config, "text_hidden", json_integer((json_int_t)m->hidden));
    json_object_set(config, "whole", root->value);
    vision.value = config;
    struct pp_vision *v = &m->encoders[0];
    struct outline o = {.f = {.config = &vision,
                              .own = t->sizes,
                              .common = pp_config_definitions},
                        .arena = a,
                        .experts = NAN,
                        .used = 1,
                        .described = true};
    v->kind = PP_VISION_PLANNED;
    rc = read_tower_sizes(&o, v) || read_deep(&o, v);
    o.hidden = (double)v->hidden;
    size_t n = pp_vision_n_units(v);
    struct pp_unit_table *table = pp_arena_alloc(a, 1, sizeof *table);
    *table = *m->table;
    struct pp_unit_row *rows = pp_arena_alloc(a, n + table->n, sizeof *rows);
    double params = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        rc = make_tower_unit(&o, t, m, i, &rows[i]);
        params += (double)rows[i].costs.params;
    }
    if (!rc && params > MOST_PARAMS)
        rc = pp_value_fail(&vision, "'%.3g' parameters are too many", params);
    memcpy(rows + n, table->rows, table->n * sizeof *rows);
    table->rows = rows;
    m->table = table;
    json_decref(config);
    return rc ? -1 : 0;
}

static int fail_unknown(const struct pp_value *root)
{
    struct pp_value list, at = *root;
    const char *text = text_of(root, "architectures");
    if (text && pp_value_find(root, "architectures", &list))
        at = json_is_array(list.value) ? pp_value_item(&list, 0) : list;
    else if ((text = text_of(root, "model_type")))
        pp_value_find(root, "model_type", &at);
    return pp_value_fail(&at,
                         "'%.*s' is not known; it can be planned from its "
                         "weights, if they are beside it",
                         PP_VALUE_QUOTE, text ? text : "");
}

/* Reports whether pp_model_read knows a model. */
static bool is_trained(const struct pp_value *root)
{
    const char *name = text_of(root, "architectures");
    const char *type = text_of(root, "model_type");
    struct pp_config_model known;
    if (type && !strcmp(type, "qwen2_5_omni")) /* its thinker is trained */
        return true;
    if (type && !strcmp(type, "kimi_k2")) /* a DeepSeek-V3 */
        return true;
    for (size_t i = 0; pp_config_model(i, &known); i++)
        if (name ? !strcmp(name, known.architecture)
                 : type && !strcmp(type, known.model_type))
            return true;
    return !name && !type;
}

/* Reads the language model. tower: it has an encoder that is planned, too. */
static int read_language(const struct pp_value *root,
                         const struct pp_value *config, bool tower,
                         const struct pp_shape *shapes, size_t n,
                         struct pp_arena *a, struct pp_model *m)
{
    const char *name = text_of(root, "architectures");
    const char *type = text_of(config, "model_type");
    const struct pp_outline_family *family = find_family(type, name);
    /* Families without a class are within others that are not trained. */
    bool inside = config->value != root->value && !is_trained(root);
    if (family && !family->architecture && !inside)
        family = NULL;
    /* A window that no list of layers restricts is that of all. */
    const char *own = family
                          ? family->layer
                          : "sliding=has(layer_types)?type(sliding_attention):"
                            "has(sliding_window)&&(use_sliding_window|1)";
    struct outline o = {
        .f = {.config = config, .own = own, .common = pp_config_definitions},
        .arena = a};
    if (inside && !family && is_trained(config)) {
        struct pp_model of = {0};
        if (pp_config_read_language(config, &of) ||
            pp_config_read_details(config, &of))
            return -1;
        make_known_table(&of, name ? name : type, left_out(&o, root, tower), a,
                         m);
        return 0;
    }
    if (!family && n == 0)
        return fail_unknown(root);
    if (read_sizes(&o))
        return -1;
    o.described = family != NULL;
    if (family && describe_family(&o, family))
        return -1;
    if (!family)
        add_shapes(&o, shapes, n);
    if (check_params(&o, root))
        return -1;
    name = name                             ? name
           : family && family->architecture ? family->architecture
                                            : type;
    make_table(&o, name ? name : "", family, left_out(&o, root, tower), m);
    return 0;
}

static int read_config(const struct pp_value *root, bool encoders,
                       const struct pp_shape *shapes, size_t n,
                       struct pp_arena *a, struct pp_model *m)
{
    if (pp_value_is_object(root))
        return -1;
    const struct pp_outline_tower *t = encoders ? find_tower(root) : NULL;
    const struct pp_value config = language_of(root);
    if (read_language(root, &config, t, shapes, n, a, m) ||
        (t && add_tower(t, root, a, m)))
        return -1;
    m->dtype = pp_config_dtype(root);
    m->dtype = m->dtype ? m->dtype : pp_config_dtype(&config);
    return 0;
}

int pp_outline_read(const char *path, const struct pp_shape *shapes, size_t n,
                    bool encoders, const struct pp_err *why, struct pp_arena *a,
                    struct pp_model *m, struct pp_err *err)
{
    const char *file = pp_file_is_dir(path)
                           ? pp_arena_printf(a, "%s/config.json", path)
                           : path;
    json_t *value;
    if (pp_value_read_python(file, &value, err)) {
        *err = *why;
        return -1;
    }
    const struct pp_value_source source = {file, err};
    const struct pp_value root = {.source = &source, .value = value};
    const struct pp_outline_family *family = find_family(
        text_of(&root, "model_type"), text_of(&root, "architectures"));
    /* Some settings of a family are planned alone. */
    bool known = is_trained(&root) && !(family && family->architecture);
    int rc = known ? -1 : read_config(&root, encoders, shapes, n, a, m);
    if (known)
        *err = *why;
    json_decref(value);
    return rc;
}
