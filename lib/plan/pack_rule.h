/* SPDX-License-Identifier: MIT */
/* pack_rule - what packing rules share, and their list. A rule is a file
 * pack_NAME.c, a declaration here and a line in pack.c's table. */
#ifndef PP_PLAN_PACK_RULE_H
#define PP_PLAN_PACK_RULE_H

#include <stdbool.h>

#include "plan/pack.h"

pp_pack_fn pp_pack_bfd, pp_pack_ffd;

/* n zeroed elements, or NULL with *err filled. n may be 0. */
void *pp_pack_alloc(size_t n, size_t size, struct pp_err *err) PP_MUST_USE;

/* Indices by descending length; among equal lengths the lower index first, or
 * the higher. To be freed; NULL with *err filled. */
uint32_t *pp_pack_order(const uint32_t *lengths, size_t n, bool higher_first,
                        struct pp_err *err) PP_MUST_USE;

/* Makes bins of n items placed in the given order (NULL: 0, 1, ...), item i in
 * bin bin_of[i]. */
int pp_bins_make(struct pp_bins *out, const uint32_t *order,
                 const uint32_t *bin_of, size_t n, size_t n_bins,
                 struct pp_err *err) PP_MUST_USE;

#endif
