/* SPDX-License-Identifier: MIT */
/* pppack_compat - what --compat knows of other systems: the rule, and what
 * each does with documents that are empty or too long. */
#include "pppack.h"

#include <string.h>

#include "plan/pack_rule.h"

const struct pack_compat pack_compats[] = {
    {.packer = {.name = "nemo-rl-ffd", .pack = pp_pack_ffd},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-mffd", .pack = pp_pack_mffd},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-concat", .pack = pp_pack_next_fit},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-ffs",
                .pack = pp_pack_first_fit_shuffle,
                .draw = pp_draw_first_fit_shuffle},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "trl-bfd", .pack = pp_pack_bfd},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_TRUNCATE,
     .drops_empty = true},
    {.packer = {.name = "trl-bfd-split", .pack = pp_pack_bfd},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_SPLIT,
     .drops_empty = true},
    {.packer = {.name = "trl-wrapped", .pack = pp_pack_next_fit},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_SPLIT,
     .drops_empty = true,
     .wraps = true},
    {.packer = {.name = "automodel-knapsack", .pack = pp_pack_wfd}},
    {.packer = {.name = "megatron-rl",
                .pack = pp_pack_megatron_rl,
                .unpadded = pp_pack_megatron_rl_unpadded}},
    {.packer = {.name = "torchtune", .pack = pp_pack_next_fit}},
    {.packer = {.name = "axolotl", .pack = pp_pack_axolotl}},
    {.packer = {.name = "verl-kk",
                .pack = pp_pack_verl,
                .divide = pp_parts_kk}},
    {.packer = {.name = "verl-workload",
                .pack = pp_pack_verl_workload,
                .divide = pp_parts_verl_workload}},
    {.packer = {0}},
};
