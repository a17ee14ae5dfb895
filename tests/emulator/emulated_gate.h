/* SPDX-License-Identifier: MIT */
/* emulated_gate - access to the emulated device: one user of its memory at a
 * time, and asynchronous work if the device has streams. Each program defines
 * these functions. */
#ifndef PP_TESTS_EMULATED_GATE_H
#define PP_TESTS_EMULATED_GATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void pp_emulated_enter(void);
void pp_emulated_leave(void);

/* Calls run(arg) after the earlier work of a stream: on the stream's thread, or
 * before it returns if there are no streams. code is the address of what a GPU
 * would run, and loads at its first use. */
void pp_emulated_queue(void *stream, const void *code, void (*run)(void *),
                       void *arg);

/* If not 0, only so many blocks at either end of a grid run: tests of arrays
 * that are too large to visit set it. */
extern size_t pp_emulated_ends;

/* Returns the number of kernels that began before an earlier kernel, on another
 * stream of the same thread, was done. Only the emulated runtime has it. */
uint64_t pp_emulated_passed(void);

#ifdef __cplusplus
}
#endif

#endif
