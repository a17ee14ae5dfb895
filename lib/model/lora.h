/* SPDX-License-Identifier: MIT */
/* lora - adapters of low rank beside the products of layers (Hu et al., "LoRA:
 * Low-Rank Adaptation of Large Language Models", ICLR 2022). A product y = W x
 * of such a model is W x + scale B A x, with A (rank, in) and B (out, rank). A
 * and B are trained, and everything else is frozen. Names, defaults and first
 * values are as in PEFT (huggingface/peft). Pure.
 *
 * A and B are rows of the unit's table of tensors, beside the row of W. Of a
 * product whose outputs are divided, ranks divide the rows of B and all have A;
 * of one whose inputs are divided, they divide the columns of A and all have B.
 * So what a rank adds is a part of the same sum as its part of W x. */
#ifndef PP_MODEL_LORA_H
#define PP_MODEL_LORA_H

#include "base/err.h"
#include "model/model.h"

/* PEFT's defaults, but for the targets. */
#define PP_LORA_RANK 8
#define PP_LORA_ALPHA 8
#define PP_MOST_ALPHA 1e6
#define PP_LORA_ALL "all-linear"

/* The names of A and B in files, around the name of a product:
 * "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". */
#define PP_LORA_PREFIX "base_model.model."
#define PP_LORA_MARK ".lora_"

struct pp_lora {
    size_t rank; /* 0: the model has no adapters */
    double alpha;
    bool rslora; /* scale by the root of the rank */
    /* PP_LORA_ALL, or names with '+' between them: a name is that of a product,
     * "model.layers.0.self_attn.q_proj", or how it ends behind a dot. */
    const char *targets;
    /* NULL or "", or words NAME:RANK, NAME:RANK:ALPHA or NAME::ALPHA with '+'
     * between them: the rank and alpha of products with that name, each by the
     * first word that has it. */
    const char *ranks;
    /* NULL or "": all; or the numbers of the layers with '+' between them. */
    const char *layers;
    /* NULL or "": none; or how the names of modules outside of layers end, the
     * embedding, the last norm and the head, with '+' between them. They are
     * trained whole. */
    const char *saved;
};

/* The products that may have adapters, by slot. Adapter number i has A in slot
 * PP_P_ADAPTERS + 2 i, and B in the next. */
extern const int pp_lora_slots[PP_N_ADAPTED];
bool pp_lora_may_adapt(size_t slot);

/* Checks the words of ranks and layers. Other functions read what is checked.
 */
int pp_lora_check(const struct pp_lora *l, struct pp_err *err) PP_MUST_USE;

/* Takes the name, the rank and the alpha of a word of ranks, of n characters.
 * Of the last two, 0 and a negative number are not given. Returns false if that
 * is no such word. */
struct pp_lora_word {
    const char *name;
    size_t length, rank;
    double alpha;
};
bool pp_lora_word(const char *word, size_t n, struct pp_lora_word *out);

/* Return the rank of the adapter of a product, by its name or that of its
 * weight, and the factor of B A x; and the largest rank of all. */
size_t pp_lora_rank(const struct pp_lora *l, const char *name);
double pp_lora_scale(const struct pp_lora *l, const char *name);
size_t pp_lora_most(const struct pp_lora *l);

/* Changes the table of a unit, which is trained and has n slots: a layer gets A
 * and B, and all other tensors are frozen, but for modules that are trained
 * whole. They are in files as "base_model.model.lm_head.weight". The table has
 * the names of its tensors. */
void pp_lora_tensors(const struct pp_lora *l, struct pp_unit_id u, size_t n,
                     struct pp_tensor_info *table);

/* Returns whether a tensor of this name is in an adapter's file. */
bool pp_lora_has(const char *name);

/* Returns the name that a tensor of an adapter's file has in the base, if it is
 * of a module that is trained whole; NULL: it is another tensor. */
const char *pp_lora_base_name(const char *name);

/* Sets frozen[i] for the units of which adapters train nothing, beside units
 * that are frozen anyway. Fails with PP_EXIT_INPUT if the model or a target
 * cannot have adapters, if a name of a target or of a module names none, or if
 * nothing is left to train. The model has adapters, and no roles yet. */
int pp_lora_freeze(const struct pp_model *m, bool *frozen,
                   struct pp_err *err) PP_MUST_USE;

#endif
