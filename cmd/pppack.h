/* SPDX-License-Identifier: MIT */
/* pppack - what the files of cmd/pppack*.c share: one run of the program. */
#ifndef PP_CMD_PPPACK_H
#define PP_CMD_PPPACK_H

#include "data/pieces.h"
#include "plan/pack.h"
#include "tool.h"

/* Another system's packer. */
struct pppack_compat {
    struct pp_packer packer;
    bool decides_oversize; /* and how: */
    enum pp_oversize oversize;
    bool drops_empty; /* documents without tokens */
    bool wraps;       /* documents are cut where a bin ends */
    bool pops;        /* raises the number of bins in NeMo-RL's way */
};

/* Ends with a zeroed entry. */
extern const struct pppack_compat pppack_compats[];

const struct pppack_compat *pppack_compat_find(const char *name);

struct job {
    struct tool t;
    /* What was asked. */
    const struct pp_packer *rule; /* NULL until it is known */
    const struct pppack_compat *compat;
    int64_t rows, parts, pad_to, cp, tp, bins_min, bins_multiple, shuffle;
    int oversize, drop_empty;
    bool has_oversize, equal_size, bytes, from_lengths, stats, shuffled;
    const char *check;
    uint32_t capacity, align;
    struct pp_documents docs; /* with --lengths only their lengths */
    struct pp_pieces pieces;
    struct pp_bins bins;
    const char *name; /* of the file being read */
};

extern const struct tool_option pppack_options[];

/* What one option says. */
int pppack_take_option(struct job *j, int c) PP_MUST_USE;

/* After the last option: whether they go together, and what follows. */
int pppack_check_options(struct job *j, int argc) PP_MUST_USE;

/* A bin per line; sequences are triples where some may be parts of inputs. */
int pppack_print_bins(struct job *j);

/* The JSON object of --stats. */
int pppack_print_stats(struct job *j);

#endif
