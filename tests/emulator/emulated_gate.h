/* SPDX-License-Identifier: MIT */
/* emulated_gate - around all that an emulated device does: to its memory one
 * at a time, and behind the host where the device has streams. Programs that
 * emulate define it. */
#ifndef PP_TESTS_EMULATED_GATE_H
#define PP_TESTS_EMULATED_GATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void pp_emulated_enter(void);
void pp_emulated_leave(void);

/* Calls run(arg) behind the work of a kernel's stream: later, on a thread of
 * the stream's, or before it returns where there are no streams. */
void pp_emulated_queue(void *stream, void (*run)(void *), void *arg);

/* Kernels so far that began while one queued before, on another stream that
 * the same thread opened, was not done. Of the emulated runtime alone. */
uint64_t pp_emulated_passed(void);

#ifdef __cplusplus
}
#endif

#endif
