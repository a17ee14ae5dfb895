/* SPDX-License-Identifier: MIT */
#include "model/unit_table.h"

#include <string.h>

const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u)
{
    return &m->table->rows[pp_model_index(m, u)];
}

bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u)
{
    char name[PP_FQN_TEXT];
    pp_unit_fqn((struct pp_unit_id){PP_UNIT_HEAD, 0}, name);
    return m->table ? !strcmp(pp_unit_row(m, u)->fqn, name)
                    : u.kind == PP_UNIT_HEAD;
}
