/* SPDX-License-Identifier: MIT */
#ifndef PP_TESTS_BENCH_H
#define PP_TESTS_BENCH_H

/* Prints GFLOP/s or GB/s of every kernel; 0. */
int bench(void);

#endif
