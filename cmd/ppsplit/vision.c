/* SPDX-License-Identifier: MIT */
/* vision - a model with an encoder: its images or its audio, and the
 * options that do not work with it. */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "model/edge.h"
#include "model/layout.h"
#include "model/vision.h"
#include "ppsplit.h"

/* Reports whether a method counts decoder layers: it would leave the encoder
 * out. */
static bool counts_layers(enum split_method method)
{
    switch (method) {
    case SPLIT_BALANCED:
    case SPLIT_FQNS:
    case SPLIT_PARAMETERS:
    case SPLIT_TYPE:
    case SPLIT_UNIFORM_UNITS:
        return false;
    default:
        return true;
    }
}

static bool is_for_torchtitan(const struct split_job *j)
{
    return j->o.export == SPLIT_EXPORT_TORCHTITAN ||
           j->o.export == SPLIT_EXPORT_TORCHTITAN_OUTPUT;
}

bool split_needs_text(const struct split_job *j)
{
    return counts_layers(j->rule.method) || is_for_torchtitan(j) ||
           j->o.export == SPLIT_EXPORT_MEGATRON;
}

static int check_method(struct split_job *j)
{
    if (counts_layers(j->rule.method))
        return tool_usage(&j->p.t,
                          "--method: '%s' counts decoder layers only, but the "
                          "model has an encoder",
                          split_method_names[j->rule.method]);
    if (j->o.export == SPLIT_EXPORT_MEGATRON)
        return tool_usage(&j->p.t, "--export: a layout of Megatron-LM has no "
                                   "symbol for an encoder's layers");
    if (is_for_torchtitan(j))
        return tool_usage(&j->p.t, "--export: torchtitan has no names for an "
                                   "encoder's layers; try --export fqns");
    return 0;
}

/* Sets a size of an encoder's mesh, "dp=2". */
static int set_encoder_size(struct tool *t, struct pp_mesh *x, const char *item)
{
    const struct {
        const char *name;
        int *at;
    } sizes[] = {
        {"pp=", &x->pp}, {"dp=", &x->dp}, {"tp=", &x->tp}, {"cp=", &x->cp}};
    size_t i = 0, n_sizes = sizeof sizes / sizeof *sizes;
    int64_t n;
    while (i < n_sizes && strncmp(item, sizes[i].name, 3))
        i++;
    if (!strncmp(item, "ep=", 3))
        return tool_usage(t,
                          "--encoder-mesh: '%s' is not possible, as an encoder "
                          "has no experts; it has pp, dp, tp and cp",
                          item);
    if (i == n_sizes)
        return tool_usage(
            t, "--encoder-mesh: '%s' is not a size such as pp=1,dp=2", item);
    if (pp_parse_int(item + 3, "--encoder-mesh", 1, SPLIT_MAX_RANKS, &n,
                     &t->err))
        return -1;
    if (*sizes[i].at)
        return tool_usage(t, "--encoder-mesh: '%s' is a second value for it",
                          item);
    *sizes[i].at = (int)n;
    return 0;
}

/* Takes the mesh of the encoders on the ranks of the language model. The stages
 * may cut it anywhere, so that it has no pp of its own. */
static int share_ranks(struct split_job *j, const struct split_encoder_mesh *e)
{
    const struct pp_mesh *x = &e->mesh;
    if (!e->name && j->o.n_meshes > 1)
        return tool_usage(&j->p.t,
                          "--encoder-mesh: 'shared' is one mesh for all "
                          "encoders; give no other and no name");
    if (x->pp)
        return tool_usage(&j->p.t,
                          "--encoder-mesh: 'pp' is not possible on the "
                          "language model's ranks, as stages may cut "
                          "the encoder anywhere");
    if (!x->tp && (!e->name || x->dp || x->cp))
        return tool_usage(&j->p.t,
                          "--encoder-mesh: 'shared' needs tp, the ranks that "
                          "divide the encoder's tensors; try shared,tp=2");
    j->o.shared = *x;
    j->p.mesh.encoder_tp = x->tp;
    if (!e->name)
        j->o.n_meshes = 0;
    return 0;
}

/* Takes all meshes that were given: meshes of ranks of their own, and one of
 * the language model's ranks. */
static int take_meshes(struct split_job *j)
{
    j->p.mesh.encoder_tp = 0;
    j->o.shared = (struct pp_mesh){.ep = 1};
    j->o.encoder_ranks = 0;
    for (size_t i = 0; i < j->o.n_meshes; i++)
        if (!j->o.meshes[i].shared)
            j->o.encoder_ranks += j->o.meshes[i].mesh.pp;
        else if (share_ranks(j, &j->o.meshes[i]))
            return -1;
    return 0;
}

/* Takes the name before a colon from the text of an option. */
static const char *take_name(char **text)
{
    char *colon = strchr(*text, ':');
    const char *name = colon ? *text : NULL;
    if (colon) {
        *colon = '\0';
        *text = colon + 1;
    }
    return name;
}

int split_read_encoder_mesh(struct tool *t, const struct tool_option *o,
                            const char *arg)
{
    struct split_job *j = t->base;
    char *text = pp_arena_strdup(&j->p.arena, arg);
    (void)o;
    const char *name = take_name(&text);
    /* The last one counts, unless both have names that differ. */
    const char *first = j->o.n_meshes ? j->o.meshes[0].name : NULL;
    bool other = name && first && strcmp(name, first);
    if (other && j->o.n_meshes == PP_MAX_ENCODERS &&
        strcmp(name, j->o.meshes[1].name))
        return tool_usage(t, "--encoder-mesh: '%s' is a third encoder", name);
    struct split_encoder_mesh *x = &j->o.meshes[other];
    j->o.n_meshes = other ? 2 : j->o.n_meshes ? j->o.n_meshes : 1;
    *x = (struct split_encoder_mesh){name, {.ep = 1}, false};
    for (char *item; (item = strsep(&text, ","));)
        if (!strcmp(item, "shared"))
            x->shared = true;
        else if (set_encoder_size(t, &x->mesh, item))
            return -1;
    int *const sizes[] = {&x->mesh.pp, &x->mesh.dp, &x->mesh.tp, &x->mesh.cp};
    for (size_t i = 0; !x->shared && i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = *sizes[i] ? *sizes[i] : 1;
    return take_meshes(j);
}

/* Finds the encoder that a mesh was given for. */
static int find_encoder(struct split_job *j, const char *name, size_t *at)
{
    const struct pp_vision *v = j->p.model.encoders;
    const char *first = pp_vision_part(&v[0]), *second = pp_vision_part(&v[1]);
    bool both = pp_model_n_encoders(&j->p.model) > 1;
    *at = 0;
    if (both && !name)
        return tool_usage(&j->p.t,
                          "--encoder-mesh: '%s' has two encoders; give a mesh "
                          "for each, --encoder-mesh %s:SIZES --encoder-mesh "
                          "%s:SIZES",
                          j->p.source, first, second);
    if (!name || !strcmp(name, first))
        return 0;
    *at = 1;
    if (both && !strcmp(name, second))
        return 0;
    return tool_usage(
        &j->p.t, "--encoder-mesh: '%s' has no encoder '%s', but %s%s%s",
        j->p.source, name, first, both ? " and " : "", both ? second : "");
}

/* Gives each encoder its mesh. All have one, or none. */
static int set_meshes(struct split_job *j)
{
    size_t at, n = pp_model_n_encoders(&j->p.model);
    bool shared = false;
    for (size_t i = 0; i < j->o.n_meshes; i++) {
        if (find_encoder(j, j->o.meshes[i].name, &at))
            return -1;
        shared |= j->o.meshes[i].shared;
        if (j->o.meshes[i].shared && at == 0)
            return tool_usage(&j->p.t,
                              "--encoder-mesh: '%s' cannot share ranks with "
                              "the language model while '%s' has its own, "
                              "since its features come first",
                              j->o.meshes[i].name,
                              pp_vision_part(&j->p.model.encoders[1]));
        if (j->o.meshes[i].shared)
            continue;
        struct pp_mesh *x = &j->encoders[at];
        *x = j->o.meshes[i].mesh;
        x->order = j->p.mesh.order;
        x->whole_state = j->p.mesh.whole_state;
        x->divided_weights = j->p.mesh.divided_weights;
        x->resident = j->p.mesh.resident;
    }
    for (size_t i = 0; j->o.n_meshes && i < n; i++)
        if (!j->encoders[i].dp && !(i > 0 && shared))
            return tool_usage(&j->p.t,
                              "--encoder-mesh: the encoder '%s' needs a mesh "
                              "too",
                              pp_vision_part(&j->p.model.encoders[i]));
    return 0;
}

/* Checks that an encoder on the language model's ranks has as many as a
 * pipeline rank. dp and cp may be left out, as they follow from tp. */
static int check_shared(struct split_job *j)
{
    const struct pp_mesh *x = &j->p.mesh, *e = &j->o.shared;
    int dp = e->dp ? e->dp : 1, cp = e->cp ? e->cp : 1;
    int64_t ranks = (int64_t)x->dp * pp_mesh_sharers(x);
    if (e->dp + e->cp == 0 || (int64_t)dp * cp * e->tp == ranks)
        return 0;
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "--encoder-mesh: dp %d x tp %d x cp %d is '%" PRId64
                   "' ranks, but a pipeline rank of the language model has "
                   "%" PRId64 " (dp %d x tp %d x cp %d)",
                   dp, e->tp, cp, (int64_t)dp * cp * e->tp, ranks, x->dp, x->tp,
                   x->cp);
}

/* Checks --encoder-ranks and --encoder-mesh, which put a boundary of the model
 * between ranks. */
static int check_encoder_ranks(struct split_job *j)
{
    const char *name = j->o.n_meshes ? "--encoder-mesh" : "--encoder-ranks";
    if (j->o.encoder_ranks == 0 && j->o.n_meshes)
        return tool_usage(&j->p.t,
                          "--encoder-mesh: 'shared' is one mesh for all "
                          "encoders; give no name unless another encoder has "
                          "ranks of its own");
    if (j->o.encoder_ranks == 0)
        return 0;
    if (j->rule.method != SPLIT_BALANCED && !j->given)
        return tool_usage(&j->p.t, "%s needs --method balanced", name);
    if (j->o.placement == PP_PLACEMENT_BOTH_WAYS)
        return tool_usage(&j->p.t,
                          "%s needs one copy of the weights, not --placement "
                          "both-ways",
                          name);
    if (j->o.encoder_ranks >= j->o.n_ranks)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: '%" PRId64 "' of %" PRId64
                       " ranks leave none for the language model",
                       name, j->o.encoder_ranks, j->o.n_ranks);
    if (!j->o.n_meshes)
        return 0;
    if (j->p.mesh.cp_exact)
        return tool_usage(&j->p.t, "--encoder-mesh excludes --cp-exact");
    return set_meshes(j);
}

/* Sets the rows of an item: an option's, if they were given. */
static int set_rows(struct split_job *j, size_t encoder, const char *option,
                    int64_t rows)
{
    const struct pp_vision *v = &j->p.model.encoders[encoder];
    size_t patches = (size_t)rows;
    if (rows == 0)
        return 0;
    if (v->fixed_size && patches != v->patches)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: images of '%s' have %zu patches, not '%zu'", option,
                       j->p.source, v->patches, patches);
    if (patches % v->merge)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: '%zu' must be a multiple of %zu, the patches of "
                       "one token",
                       option, patches, v->merge);
    if (v->most && patches > v->most)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: clips of audio of '%s' have at most %zu rows, not "
                       "'%zu'",
                       option, j->p.source, v->most, patches);
    j->p.request.shard.images[encoder].patches = patches;
    return 0;
}

/* Sets what a sequence has for each encoder. --images also counts the clips of
 * a model that takes nothing but audio. */
static int set_items(struct split_job *j)
{
    const struct pp_vision *v = j->p.model.encoders;
    struct pp_image_load *of = j->p.request.shard.images;
    bool hears = pp_vision_hears(&v[0]);
    bool both = pp_model_n_encoders(&j->p.model) > 1;
    bool listens = hears || both;
    size_t audio = hears ? 0 : 1;
    if (!listens && (j->o.items[1].n || j->o.items[1].rows))
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT, "%s: '%s' takes no audio",
                       j->o.items[1].n ? "--clips" : "--clip-rows",
                       j->p.source);
    if (set_rows(j, 0, "--image-patches", j->o.items[0].rows) ||
        (listens && set_rows(j, audio, "--clip-rows", j->o.items[1].rows)))
        return -1;
    of[0].n_images = j->o.items[0].n ? (size_t)j->o.items[0].n : 1;
    if (listens && (both || j->o.items[1].n))
        of[audio].n_images = j->o.items[1].n ? (size_t)j->o.items[1].n : 1;
    return 0;
}

/* Checks that the tokens of all items fit into a sequence. */
static int check_tokens(struct split_job *j)
{
    const struct pp_vision *v = j->p.model.encoders;
    const struct pp_image_load *of = j->p.request.shard.images;
    size_t left = of[0].seq_len;
    for (size_t i = 0; i < PP_MAX_ENCODERS && of[i].n_images; i++) {
        size_t tokens = pp_image_rows(&v[i], of[i].patches, PP_ROWS_FEATURES);
        if (of[i].n_images > left / tokens)
            return pp_fail(
                &j->p.t.err, PP_EXIT_INPUT,
                "--%s: '%zu' %s of %zu tokens each do not fit into a "
                "sequence of %zu tokens (--seq-len)%s",
                i ? "clips" : "images", of[i].n_images,
                pp_modality_words(pp_vision_modality(&v[i])).items, tokens,
                of[i].seq_len, i ? ", which has images too" : "");
        left -= of[i].n_images * tokens;
    }
    return 0;
}

/* Sets how ranks divide the items of each encoder. */
static void divide_items(struct split_job *j)
{
    const struct pp_layout l =
        pp_split_layout_of(j->encoders, &j->p.mesh, (int)j->o.n_ranks);
    for (size_t i = 0; i < pp_model_n_encoders(&j->p.model); i++)
        pp_layout_divide_images(&l, i, &j->p.request.shard.images[i]);
}

int split_set_images(struct split_job *j)
{
    if (!pp_model_has_encoder(&j->p.model)) {
        const char *given = j->o.items[0].n                   ? "images"
                            : j->o.items[0].rows              ? "image-patches"
                            : j->o.items[1].n                 ? "clips"
                            : j->o.items[1].rows              ? "clip-rows"
                            : j->o.n_meshes || j->o.shared.tp ? "encoder-mesh"
                            : j->o.encoder_ranks              ? "encoder-ranks"
                                                              : NULL;
        return given ? pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                               "--%s: '%s' has no encoder", given, j->p.source)
                     : 0;
    }
    if (check_method(j) || check_encoder_ranks(j) || check_shared(j) ||
        set_items(j))
        return -1;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++)
        j->p.request.shard.images[i].seq_len = (size_t)j->p.seq_len;
    divide_items(j);
    return check_tokens(j);
}
