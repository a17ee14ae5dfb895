/* SPDX-License-Identifier: MIT */
/* pppack - what the files of cmd/pppack*.c share: one run of the program, from
 * its options to the bins. */
#ifndef PP_CMD_PPPACK_H
#define PP_CMD_PPPACK_H

#include "data/documents.h"
#include "data/pieces.h"
#include "plan/pack.h"
#include "tool.h"

struct pack_job {
    struct tool t;
    /* What was asked. */
    const struct pp_packer *rule;
    int64_t rows, pad_to, cp, tp, bins_multiple, shuffle;
    int oversize, drop_empty;
    bool bytes, from_lengths, stats, shuffled;
    const char *check;
    uint32_t capacity, align;
    struct pp_documents docs; /* with --lengths only their lengths */
    struct pp_pieces pieces;
    struct pp_bins bins;
    const char *name; /* of the file being read */
};

/* Reads the files named from optind on, or standard input. */
int pack_read(struct pack_job *j, int argc, char **argv);

/* A line per bin with the indices of its documents, to the output; triples
 * (index, start, length) where documents may be cut. */
int pack_print_bins(struct pack_job *j);

/* Counts and efficiency as JSON. */
int pack_print_stats(struct pack_job *j);

#endif
