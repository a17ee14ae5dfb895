/* SPDX-License-Identifier: MIT */
/* blas_places - how many matrix products are in BLAS at a time. */
#ifndef PP_KERNELS_BLAS_PLACES_H
#define PP_KERNELS_BLAS_PLACES_H

/* A product by BLAS is between these calls. begin waits while the process makes
 * as many as BLAS has memory for. */
void pp_blas_begin(void);
void pp_blas_end(void);

#endif
