/* SPDX-License-Identifier: MIT */
/* foreign - names files and directories of other programs that people give by
 * mistake. Errors say what they are and what to do, in place of a syntax error.
 */
#ifndef PP_BASE_FOREIGN_H
#define PP_BASE_FOREIGN_H

#include <stddef.h>

/* Returns what a file is that begins with n bytes, and what to do, as words
 * that follow "PATH: is": "a GGUF file; take the model's own safetensors".
 * Returns NULL if the bytes are no other program's. */
const char *pp_foreign_file(const void *head, size_t n);

/* Returns what a directory has in place of config.json or safetensors, and what
 * to do, as words that follow "PATH:", or NULL. */
const char *pp_foreign_dir(const char *dir);

#endif
