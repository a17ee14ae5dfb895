/* SPDX-License-Identifier: MIT */
/* emulated_block - what the files of the emulated device tell each other about
 * the block that runs. */
#ifndef PP_TESTS_EMULATED_BLOCK_H
#define PP_TESTS_EMULATED_BLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Ends the program, because a GPU refuses this or computes something else. */
[[noreturn]] void pp_emulated_refuse(const char *why);

/* Returns the index of the thread that runs. */
unsigned pp_emulated_current(void);

/* The current thread waits until the bits of *word in mask are not value. */
void pp_emulated_wait_while(const uint64_t *word, uint64_t mask,
                            uint64_t value);

/* emulated_barriers.cpp: a block begins or ends. */
void pp_emulated_barriers_begin(void);
void pp_emulated_barriers_end(void);

/* emulated_wgmma.cpp: a block of n threads, with this much dynamic shared
 * memory, begins or ends; a thread of it ends. */
void pp_emulated_products_begin(unsigned n, size_t shared);
void pp_emulated_products_end(void);
void pp_emulated_products_leave(unsigned thread);

/* The current thread begins a copy to shared memory, or has waited for it. */
void pp_emulated_copy_began(const void *to, size_t bytes);
void pp_emulated_copy_ended(const void *to, size_t bytes);

#endif
