/* SPDX-License-Identifier: MIT */
/* pppack - what the files of cmd/pppack*.c share: one run of the program, from
 * its options to the bins. */
#ifndef PP_CMD_PPPACK_H
#define PP_CMD_PPPACK_H

#include "data/documents.h"
#include "data/pieces.h"
#include "plan/pack.h"
#include "tool.h"

/* Another system's packer. */
struct pack_compat {
    struct pp_packer packer;
    bool decides_oversize; /* and how: */
    enum pp_oversize oversize;
    bool drops_empty; /* documents without tokens */
    bool wraps;       /* documents are cut where a bin ends */
    bool multiplies; /* pads for each kind of parallelism on top of the other */
    bool pops;       /* raises the number of bins in NeMo-RL's way */
};

/* Ends with a zeroed entry. */
extern const struct pack_compat pack_compats[];

const struct pack_compat *pack_compat_find(const char *name);

struct pack_job {
    struct tool t;
    /* What was asked. */
    const struct pp_packer *rule; /* NULL until it is known */
    const struct pack_compat *compat;
    int64_t rows, parts, pad_to, cp, tp, bins_min, bins_multiple, shuffle, seed;
    int oversize, drop_empty, fp8;
    bool has_oversize, equal_size, per_rank, bytes, from_lengths, stats,
        shuffled, seeded;
    const char *check;
    uint32_t capacity, align;
    uint32_t row; /* what the slots of a bin add up to is a multiple of it */
    struct pp_documents docs; /* with --lengths only their lengths */
    struct pp_pieces pieces;
    struct pp_bins bins;
    const char *name; /* of the file being read */
};

extern const struct tool_option pack_options[];

/* What one option says. */
int pack_take_option(struct pack_job *j, int c) PP_MUST_USE;

/* After the last option: whether they go together, and what follows. */
int pack_check_options(struct pack_job *j, int argc) PP_MUST_USE;

/* Reads the files named from optind on, or standard input. */
int pack_read(struct pack_job *j, int argc, char **argv);

/* A line per bin with the indices of its documents, to the output; triples
 * (index, start, length) where documents may be cut. */
int pack_print_bins(struct pack_job *j);

/* Counts, efficiency and the bound on the bins as JSON. */
int pack_print_stats(struct pack_job *j);

#endif
