/* SPDX-License-Identifier: MIT */
#include "data/columns.h"

const struct pp_column_kind pp_columns[PP_N_COLUMNS] = {
    [PP_COLUMN_ADVANTAGES] = {"advantages", PP_SCOPE_TOKEN},
    [PP_COLUMN_LOGPROBS] = {"logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_PREV_LOGPROBS] = {"prev_logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_REF_LOGPROBS] = {"ref_logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_REWARDS] = {"rewards", PP_SCOPE_SEQUENCE},
    [PP_COLUMN_REF_LOGPS] = {"ref_logps", PP_SCOPE_SEQUENCE},
    [PP_COLUMN_MARGINS] = {"margins", PP_SCOPE_GROUP},
};

const char *const pp_data_kinds[PP_DATA_N_KINDS] = {"documents", "pairs",
                                                    "rollouts"};
