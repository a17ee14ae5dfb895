/* SPDX-License-Identifier: MIT */
/* families - the families by architecture, the parts of a unit, and the names
 * of its tensors. parts.c and parts_encoder.c have what each part is made of.
 */
#include <stdio.h>
#include <string.h>

#include "model/lora.h"
#include "model/parts.h"
#include "model/vision.h"

const struct pp_family *pp_family_of(enum pp_architecture a)
{
#define FAMILY(id, table) [PP_##id] = &pp_family_##table,
    static const struct pp_family *const families[PP_END_ARCHITECTURES] = {
        PP_FAMILIES(FAMILY)[PP_CLIP] = &pp_family_clip,
        [PP_QWEN2_VIT] = &pp_family_qwen2_vit,
        [PP_QWEN2_5_VIT] = &pp_family_qwen2_5_vit,
        [PP_OMNI_VIT] = &pp_family_omni_vit,
        [PP_WHISPER] = &pp_family_whisper,
        [PP_OMNI_AUDIO] = &pp_family_omni_audio,
    };
#undef FAMILY
    return families[a];
}

/* Lists the parts of a layer: attention and MLP with their norms. One for
 * multi-token prediction joins its inputs before them. */
static size_t layer_parts(const struct pp_family *f, bool joins,
                          enum pp_part_kind attention, enum pp_part_kind mlp,
                          struct pp_model_part out[PP_MAX_PARTS])
{
    size_t n = 0;
    if (joins)
        out[n++] = (struct pp_model_part){.kind = PP_PART_JOIN};
    if (!f->only_after)
        out[n++] = (struct pp_model_part){f->norm, PP_BEFORE_ATTENTION};
    out[n++] = (struct pp_model_part){.kind = attention};
    if (f->norms_after)
        out[n++] = (struct pp_model_part){f->norm, PP_AFTER_ATTENTION};
    if (!f->only_after && !f->parallel)
        out[n++] = (struct pp_model_part){f->norm, PP_BEFORE_MLP};
    out[n++] = (struct pp_model_part){.kind = mlp};
    if (f->norms_after)
        out[n++] = (struct pp_model_part){f->norm, PP_AFTER_MLP};
    return n;
}

static size_t embedding_parts(const struct pp_model *m,
                              const struct pp_family *f,
                              struct pp_model_part out[PP_MAX_PARTS])
{
    size_t n = 0;
    out[n++] = (struct pp_model_part){.kind = PP_PART_EMBEDDING};
    if (f->names->positions)
        out[n++] = (struct pp_model_part){.kind = PP_PART_POSITIONS};
    if (m->reads)
        out[n++] = (struct pp_model_part){.kind = PP_PART_CONNECTOR};
    return n;
}

/* Lists the parts of a unit but for their unit. */
static size_t list_parts(const struct pp_model *m, struct pp_unit_id u,
                         struct pp_model_part out[PP_MAX_PARTS])
{
    const struct pp_family *f = pp_family_of(m->architecture);
    bool dense =
        f->mlp == PP_PART_EXPERTS && !pp_layer_set_has(&m->moe.layers, u.layer);
    switch (u.kind) {
    case PP_UNIT_EMBED:
        return embedding_parts(m, f, out);
    case PP_UNIT_LAYER:
        return layer_parts(f, pp_unit_is_mtp(m, u),
                           pp_layer_set_has(&m->delta.layers, u.layer)
                               ? PP_PART_DELTA
                               : f->attention,
                           dense ? PP_PART_GATED_MLP : f->mlp, out);
    case PP_UNIT_NORM:
        out[0] = (struct pp_model_part){f->norm, PP_BEFORE_HEAD};
        return 1;
    case PP_UNIT_HEAD:
        out[0] = (struct pp_model_part){.kind = m->scores ? PP_PART_SCORE
                                                          : PP_PART_HEAD};
        return 1;
    case PP_UNIT_LOSS:
        out[0] = (struct pp_model_part){.kind = PP_PART_LOSS};
        return 1;
    case PP_UNIT_PATCHES:
        out[0] = (struct pp_model_part){
            .kind = pp_vision_hears(pp_unit_encoder(m, u)) ? PP_PART_FRAMES
                                                           : PP_PART_PATCHES,
            .encoder = u.component};
        out[1] = (struct pp_model_part){.kind = PP_PART_POSITIONS};
        return f->names->positions && !f->sinusoids ? 2 : 1;
    case PP_UNIT_PROJECTOR:
        out[0] = (struct pp_model_part){
            .kind = pp_vision_projector(pp_unit_encoder(m, u)),
            .encoder = u.component};
        return 1;
    default:
        return 0;
    }
}

size_t pp_unit_parts(const struct pp_model *m, struct pp_unit_id u,
                     struct pp_model_part out[PP_MAX_PARTS])
{
    size_t n = list_parts(m, u, out);
    for (size_t i = 0; i < n; i++)
        out[i].unit = u;
    return n;
}

/* Names of the language model's tensors in LLaVA and Qwen2-Audio begin so. */
#define LANGUAGE "language_model."
/* The name of a score, whatever the family. */
#define SCORE "score.weight"

static bool nests(const struct pp_model *m)
{
    return m->encoders[0].kind == PP_VISION_LLAVA ||
           m->encoders[0].kind == PP_VISION_QWEN2_AUDIO;
}

const char *pp_embedding_name(const struct pp_model *m)
{
    return nests(m) ? LANGUAGE "model.embed_tokens.weight"
                    : pp_family_of(m->architecture)->names->embedding;
}

const char *pp_head_name(const struct pp_model *m)
{
    if (m->scores)
        return SCORE;
    return nests(m) ? LANGUAGE "lm_head.weight"
                    : pp_family_of(m->architecture)->names->head;
}

/* Returns the name of a tensor of a projector. */
static const char *projector_name(const struct pp_vision *v, size_t slot)
{
    static const char *const names[][PP_N_PROJECTOR_PARAMS] = {
        {"multi_modal_projector.linear_1.weight",
         "multi_modal_projector.linear_1.bias",
         "multi_modal_projector.linear_2.weight",
         "multi_modal_projector.linear_2.bias"},
        {"visual.merger.mlp.0.weight", "visual.merger.mlp.0.bias",
         "visual.merger.mlp.2.weight", "visual.merger.mlp.2.bias",
         "visual.merger.ln_q.weight", "visual.merger.ln_q.bias"},
        {NULL, NULL, "multi_modal_projector.linear.weight",
         "multi_modal_projector.linear.bias", "audio_tower.layer_norm.weight",
         "audio_tower.layer_norm.bias"},
        {NULL, NULL, "audio_tower.proj.weight", "audio_tower.proj.bias",
         "audio_tower.ln_post.weight", "audio_tower.ln_post.bias",
         "audio_tower.audio_bos_eos_token.weight"}};
    size_t of_audio = v->kind == PP_VISION_OMNI_AUDIO ? 3 : 2;
    return names[pp_vision_hears(v) ? of_audio : pp_vision_merges(v)][slot];
}

/* Sets what the names of the unit's tensors begin with. All names are shorter;
 * the bounds are for the compiler's checks. */
static void set_prefix(const struct pp_model *m, struct pp_unit_id u,
                       char prefix[PP_FQN_TEXT])
{
    const char *of = nests(m) && !pp_unit_is_vision(u) ? LANGUAGE : "";
    if (u.kind == PP_UNIT_LAYER)
        snprintf(prefix, PP_FQN_TEXT, "%s%.40s.%u.", of,
                 pp_family_of(m->architecture)->names->layers,
                 (unsigned)u.layer);
    else
        snprintf(prefix, PP_FQN_TEXT, "%s", of);
}

/* Names a tensor of a unit, and says how files have it. */
static void set_name(const struct pp_model *m, struct pp_unit_id u, size_t slot,
                     const char *prefix, struct pp_tensor_info *t)
{
    const struct pp_family *f = pp_family_of(m->architecture);
    const struct pp_names *names = f->names;
    const char *const ends[][PP_N_PATCH_PARAMS] = {
        [PP_UNIT_EMBED] = {names->embedding, names->positions,
                           PP_CONNECTOR_PREFIX "weight",
                           PP_CONNECTOR_PREFIX "bias"},
        [PP_UNIT_NORM] = {names->norm, names->norm_bias},
        [PP_UNIT_HEAD] = {m->scores ? SCORE : names->head},
        [PP_UNIT_PATCHES] = {names->patches, names->positions, names->embedding,
                             names->conv1_bias, names->conv2,
                             names->conv2_bias}};
    const char *name = u.kind == PP_UNIT_LAYER ? names->layer[slot]
                       : u.kind == PP_UNIT_PROJECTOR
                           ? projector_name(pp_unit_encoder(m, u), slot)
                           : ends[u.kind][slot];
    size_t first = strlen(prefix);
    memcpy(t->name, prefix, first);
    /* A layer that only a plan has, by its frequency of experts, may have a
     * part without names in the family. */
    strncpy(t->name + first, name ? name : "", sizeof t->name - 1 - first);
    if (u.kind == PP_UNIT_LAYER) {
        t->stacks = t->n_equal && (names->stacks || names->stacks_rows);
        t->transposed = t->n_dims == 2 &&
                        (names->transposed || (t->stacks && names->stacks));
        if (slot == PP_P_ROUTER_BIAS && names->bias_is_row) {
            t->n_dims = 2;
            t->transposed = true;
        }
        if (f->residual_init && (slot == PP_P_O || slot == PP_P_DOWN))
            t->init = PP_INIT_RESIDUAL;
    }
    if (u.kind == PP_UNIT_HEAD && m->tied)
        t->tied_to = pp_embedding_name(m);
}

/* Does the work of pp_unit_params for a unit of a tower. Its two norms have one
 * shape. */
static size_t tower_params(const struct pp_model *m, struct pp_unit_id u,
                           struct pp_tensor_info out[PP_N_LAYER_PARAMS])
{
    static const char *const ends[] = {"weight", "bias"};
    char name[PP_FQN_TEXT];
    const struct pp_model tower = pp_vision_tower(m, u.component);
    size_t n = pp_unit_params(&tower, u, out);
    pp_vision_fqn(m, u, name);
    for (size_t slot = 0; slot < sizeof ends / sizeof *ends; slot++)
        if (u.kind == PP_UNIT_NORM && u.layer && out[slot].rows)
            snprintf(out[slot].name, sizeof out->name, "%.80s.%s", name,
                     ends[slot]);
    return n;
}

/* Does so for a unit of the generator. All names are shorter; the bound is for
 * the compiler's checks. */
static size_t generator_params(const struct pp_model *m, struct pp_unit_id u,
                               struct pp_tensor_info out[PP_N_LAYER_PARAMS])
{
    m = pp_unit_model(m, &u);
    size_t n = pp_unit_params(m, u, out);
    for (size_t slot = 0; slot < n; slot++) {
        char name[PP_FQN_TEXT];
        if (!out[slot].name[0])
            continue;
        snprintf(name, sizeof name, PP_GENERATOR_PREFIX "%.84s",
                 out[slot].name);
        memcpy(out[slot].name, name, sizeof name);
    }
    return n;
}

/* Reports whether a slot is a matrix that a product alone reads, or the
 * embedding. */
static bool may_map(struct pp_unit_id u, size_t slot)
{
    if (u.kind == PP_UNIT_EMBED || u.kind == PP_UNIT_HEAD)
        return slot == PP_P_WEIGHT;
    return u.kind == PP_UNIT_LAYER &&
           (pp_lora_may_adapt(slot) || slot == PP_P_ATTN_GATE ||
            slot == PP_P_SHARED_GATE || slot == PP_P_SHARED_UP ||
            slot == PP_P_SHARED_DOWN);
}

static void map_products(struct pp_unit_id u, struct pp_tensor_info *table,
                         size_t n)
{
    for (size_t slot = 0; slot < n; slot++) {
        struct pp_tensor_info *t = &table[slot];
        t->mapped = t->rows && t->frozen && !t->transposed && !t->by_load &&
                    may_map(u, slot);
    }
}

size_t pp_unit_params(const struct pp_model *m, struct pp_unit_id u,
                      struct pp_tensor_info out[PP_N_LAYER_PARAMS])
{
    static const size_t n_rows[] = {
        [PP_UNIT_EMBED] = PP_N_END_PARAMS,
        [PP_UNIT_LAYER] = PP_N_LAYER_PARAMS,
        [PP_UNIT_NORM] = PP_N_END_PARAMS,
        [PP_UNIT_HEAD] = PP_N_END_PARAMS,
        [PP_UNIT_LOSS] = 0,
        [PP_UNIT_PATCHES] = PP_N_PATCH_PARAMS,
        [PP_UNIT_PROJECTOR] = PP_N_PROJECTOR_PARAMS,
    };
    struct pp_model_part parts[PP_MAX_PARTS];
    if (u.component == PP_GENERATOR)
        return generator_params(m, u, out);
    if (pp_unit_is_vision(u) && u.kind != PP_UNIT_PROJECTOR &&
        !pp_model_is_tower(m))
        return tower_params(m, u, out);
    size_t n_parts = pp_unit_parts(m, u, parts);
    size_t n = n_parts ? n_rows[u.kind] : 0;
    bool trained = pp_unit_role(m, u) == PP_ROLE_TRAINED;
    char prefix[PP_FQN_TEXT];
    set_prefix(m, u, prefix);
    memset(out, 0, PP_N_LAYER_PARAMS * sizeof *out);
    for (size_t i = 0; i < n_parts; i++)
        pp_part_row(parts[i].kind)->tensors(m, &parts[i], out);
    for (size_t slot = 0; slot < n; slot++)
        if (out[slot].rows) {
            set_name(m, u, slot, prefix, &out[slot]);
            out[slot].frozen |= !trained;
            out[slot].by_load &= trained;
        }
    if (m->lora && trained)
        pp_lora_tensors(m->lora, u, n, out);
    if (m->maps)
        map_products(u, out, n);
    return n;
}
