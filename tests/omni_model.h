/* SPDX-License-Identifier: MIT */
/* omni_model - a Qwen2.5-Omni with one of its encoders: "vision" or "audio".
 */
#ifndef PP_TESTS_OMNI_MODEL_H
#define PP_TESTS_OMNI_MODEL_H

#include <string.h>

#include "model/model.h"

static inline void keep_encoder(struct pp_model *m, const char *part)
{
    if (!strcmp(part, "audio"))
        m->encoders[0] = m->encoders[1];
    m->encoders[1] = (struct pp_vision){.kind = PP_VISION_NONE};
}

#endif
