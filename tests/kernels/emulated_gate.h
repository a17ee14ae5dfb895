/* SPDX-License-Identifier: MIT */
/* emulated_gate - around all that an emulated device does to its memory, one
 * at a time. Programs that emulate define it. */
#ifndef PP_TESTS_EMULATED_GATE_H
#define PP_TESTS_EMULATED_GATE_H

#ifdef __cplusplus
extern "C" {
#endif

void pp_emulated_enter(void);
void pp_emulated_leave(void);

#ifdef __cplusplus
}
#endif

#endif
