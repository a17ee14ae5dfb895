/* SPDX-License-Identifier: MIT */
/* packed_sections - the sections of an open index, found and checked. For
 * packed*.c only. */
#ifndef PP_DATA_PACKED_SECTIONS_H
#define PP_DATA_PACKED_SECTIONS_H

#include "data/packed.h"

/* Places in pp_packed.sections. */
enum {
    PP_SECTION_BINS,
    PP_SECTION_CU,
    PP_SECTION_CU_PADDED,
    PP_SECTION_SOURCE,
    PP_SECTION_START,
    PP_SECTION_COLUMNS,
    PP_SECTION_FIRST_GROUP, /* this and the next: NULL without groups */
    PP_SECTION_CU_GROUPS,
    PP_SECTION_TOKEN_FILES, /* this and the rest: NULL unless index-only */
    PP_SECTION_TOKEN_FILE,
    PP_SECTION_TOKEN_AT,
};

/* Checks the header of the mapped index and finds its sections. */
int pp_packed_find_sections(struct pp_packed *p,
                            struct pp_err *err) PP_MUST_USE;

/* Checks that no number in the sections leads out of them. */
int pp_packed_check_sections(const struct pp_packed *p,
                             struct pp_err *err) PP_MUST_USE;

#endif
