/* SPDX-License-Identifier: MIT */
/* frozen - which units are trained, and what follows for the others.
 *
 * Gradients reach a frozen unit only for the sake of a trained one before it.
 * Units are a chain in the model's order: an encoder comes before the language
 * model. Two encoders are two chains before it. */
#ifndef PP_MODEL_FROZEN_H
#define PP_MODEL_FROZEN_H

#include "base/err.h"
#include "model/model.h"

/* Fills the roles of n units. The units from `second` up to `joined`, if there
 * are any, are a second encoder's: no gradient for the first one's units passes
 * them. */
void pp_roles_of(const bool *frozen, size_t n, size_t second, size_t joined,
                 enum pp_role *roles);

/* Fills the roles of a model. */
void pp_model_roles(const struct pp_model *m, const bool *frozen,
                    enum pp_role *roles);

/* Fills frozen[i] for n units: units of an encoder that do not run. Returns
 * whether there are any. */
bool pp_freeze_idle(const struct pp_model *m, bool *frozen);

/* Sets frozen[i] for the units that a list names: words between commas, each a
 * name of a part (language, vision, projector, embedding, head) or a pattern of
 * glob(7) for names of units, such as "model.layers.[0-3]". A tied embedding
 * and head are frozen together. Fails with PP_EXIT_INPUT if a word names no
 * unit, or if no unit is left to train. */
int pp_freeze_units(const struct pp_model *m, const char *list, bool *frozen,
                    struct pp_err *err) PP_MUST_USE;

#endif
