/* SPDX-License-Identifier: MIT */
/* unit_table - a model that is known by a table of its units and what each
 * costs, whatever its architecture. Pure.
 *
 * Some units come first, then the layers, then some more: rules that count
 * layers count those between. In a pp_unit_id of such a model, layer is the
 * layer's number, or the unit's place in the table where it is none. */
#ifndef PP_MODEL_UNIT_TABLE_H
#define PP_MODEL_UNIT_TABLE_H

#include "model/model.h"

struct pp_unit_row {
    const char *fqn;   /* below PP_FQN_TEXT characters */
    const char *class; /* of its module; likewise */
    enum pp_unit_kind kind;
    uint64_t params;
    double fwd_flops[2]; /* per token, per attended pair */
    double act_bytes[PP_N_SAVED_BLOCKS], out_bytes; /* per token */
};

struct pp_unit_table {
    const char *architecture;
    const struct pp_unit_row *rows;
    size_t n, n_first; /* all, and those before the first layer */
};

/* The row of a unit of the model, which has a table. */
const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u);

/* Whether the unit makes its products again in each half of its backward, as
 * the head does: in a table that one named lm_head, as in a manifest. */
bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u);

#endif
