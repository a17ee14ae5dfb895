/* SPDX-License-Identifier: MIT */
/* teacher - the distributions that a student learns, from the packed lists of a
 * teacher's largest logits. They are softmaxes over the lists. */
#ifndef PP_RUN_EXECUTE_TEACHER_H
#define PP_RUN_EXECUTE_TEACHER_H

#include "run/execute/batch.h"

/* All is borrowed. */
struct pp_teacher {
    const struct pp_packed *packed;
    size_t bin;
    const struct pp_host_microbatch *rows; /* of the bin */
    int32_t vocab;
    int32_t first_word, n_words; /* of this rank; 0 words: all */
};

struct pp_pass;

/* If the pass distills, makes *t the teacher of *host, the rows of a part.
 * b has the vocabulary. The forward fails with PP_EXIT_INPUT if a
 * scored token has no list, or one with an id outside the vocabulary or with
 * logits that are not finite. */
void pp_teacher_attach(struct pp_teacher *t, const struct pp_pass *p,
                       const struct pp_batch_part *part,
                       const struct pp_batch *b,
                       struct pp_host_microbatch *host);

#endif
