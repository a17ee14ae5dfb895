/* SPDX-License-Identifier: MIT */
/* elements - converts floating-point numbers between the types of tensors. A
 * type is known by its size: 8 bytes fp64, 4 fp32, 2 bf16. */
#ifndef PP_BASE_ELEMENTS_H
#define PP_BASE_ELEMENTS_H

#include <stddef.h>

/* Converts n numbers, rounding to nearest even. `to` may be `from` if its type
 * is not wider. */
void pp_elements_convert(void *to, size_t to_bytes, const void *from,
                         size_t from_bytes, size_t n);

#endif
