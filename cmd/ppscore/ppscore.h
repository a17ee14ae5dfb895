/* SPDX-License-Identifier: MIT */
/* ppscore - types and functions that the files of ppscore share. */
#ifndef PP_CMD_PPSCORE_H
#define PP_CMD_PPSCORE_H

#include "runner/runner.h"

/* Scores on rank 0: they come in the order of the bins, and are
 * in a file without a name until they are written in that of the input. */
struct ppscore_scores {
    void *map; /* of the file without a name */
    size_t bytes;
    size_t held;     /* of it in this process, at most */
    uint64_t *first; /* (inputs + 1) place of each sequence's values */
    double *values;
    /* The first value of the input that is not finite, if there is one. */
    bool has_bad;
    struct pp_token_place bad;
    double bad_value;
};

/* A token of --generate. */
struct ppscore_drawn {
    int32_t id;
    double logprob;
};

struct ppscore {
    struct runner runner;
    bool logprobs;           /* --logprobs */
    int top_k;               /* 0: none */
    int generate;            /* tokens; 0: none */
    int64_t sample, stop_id; /* or -1 */
    struct ppscore_scores scores;
    struct pp_packed extended;   /* --generate: data with room behind it */
    struct ppscore_drawn *drawn; /* (sequences, --generate), on rank 0 */
    uint32_t *n_drawn;           /* (sequences) */
};

/* Returns the program's own struct around a runner. */
static inline struct ppscore *ppscore_of(const struct runner *p)
{
    return (struct ppscore *)(uintptr_t)p;
}

extern const struct tool_option ppscore_option_table[];

/* Fills the options and the parts of the job that they set. Refuses options
 * that would have no effect. */
int ppscore_read_options(struct ppscore *s, int argc, char **argv) PP_MUST_USE;

/* Log-probabilities, entropies, largest logits, rewards: open makes the file of
 * scores, at rank 0; write writes the lines after the run. */
int ppscore_lines_open(struct runner *p) PP_MUST_USE;
int ppscore_lines_write(struct runner *p) PP_MUST_USE;
void ppscore_lines_close(struct ppscore *s);
void ppscore_scored(void *ctx, const struct pp_token_place *at,
                    const double *values, size_t n);

/* --generate. prepare changes the job; open makes room for the tokens, at rank
 * 0; write writes the lines after the run. */
int ppscore_generate_prepare(struct runner *p) PP_MUST_USE;
int ppscore_generate_open(struct runner *p) PP_MUST_USE;
int ppscore_generate_write(struct runner *p) PP_MUST_USE;
void ppscore_generate_free(struct ppscore *s);

#endif
