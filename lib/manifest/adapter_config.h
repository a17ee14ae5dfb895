/* SPDX-License-Identifier: MIT */
/* adapter_config - adapter_config.json, by which PEFT (huggingface/peft) says
 * what the adapters are that stand beside it in adapter_model.safetensors. */
#ifndef PP_MANIFEST_ADAPTER_CONFIG_H
#define PP_MANIFEST_ADAPTER_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "model/lora.h"

#define PP_ADAPTER_CONFIG "adapter_config.json"

/* Reads the adapters of a directory. *l has text of the arena. Sets *dropout if
 * they ask for some. Fails with PP_EXIT_INPUT, also if the file asks for what
 * we have not, such as DoRA. */
int pp_adapter_config_read(const char *dir, struct pp_arena *a,
                           struct pp_lora *l, bool *dropout,
                           struct pp_err *err) PP_MUST_USE;

/* Writes such a file for the adapters of m, whose base is the model at `base`,
 * to *text, which the caller frees. */
int pp_adapter_config_text(const struct pp_model *m, const char *base,
                           char **text, struct pp_err *err) PP_MUST_USE;

#endif
