/* SPDX-License-Identifier: MIT */
/* pppack - what the files of cmd/pppack/pppack*.c share: one run of the
 * program, from its options to the bins. */
#ifndef PP_CMD_PPPACK_H
#define PP_CMD_PPPACK_H

#include "data/documents.h"
#include "data/pieces.h"
#include "manifest/manifest.h"
#include "pack/pack.h"
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

enum { PACK_MAX_SHARES = 3 };

enum pack_balance {
    PACK_BALANCE_NONE,
    PACK_BALANCE_TOKENS,
    PACK_BALANCE_FLOPS
};

/* How even bins are. */
struct pack_figures {
    double imbalance; /* the costliest bin over the mean */
    double step_time; /* simulated, with a schedule */
};

struct pack_job {
    struct tool t;
    /* What was asked. */
    const struct pp_packer *rule; /* NULL until it is known */
    const struct pack_compat *compat;
    int64_t rows, parts, pad_to, cp, tp, bins_min, bins_multiple, shuffle, seed;
    int64_t dp; /* lanes; 0 until it is known */
    int oversize, drop_empty, fp8, balance;
    const char *manifest_name;
    bool equal_size, per_rank, bytes, from_lengths, stats, shuffled;
    const char *check;
    int64_t skip_bad;
    bool index_only, has_modes;
    bool modes[256];          /* of --modes, an int8 as an unsigned number */
    const char *export_to;    /* the format, or NULL */
    const char *parts_wanted; /* of --split, or NULL */
    double shares[PACK_MAX_SHARES];
    size_t n_shares;
    /* The part of the documents being packed: all, without --split. */
    const char *part;
    size_t first_document, n_documents;
    char *spill; /* where tokens go that memory does not hold */
    uint32_t capacity, align;
    uint32_t row; /* what the slots of a bin add up to is a multiple of it */
    struct pp_documents docs; /* with --lengths only their lengths */
    struct pp_pieces pieces;
    double made_s; /* when there were all of them */
    struct pp_bins bins;
    struct pp_manifest manifest;       /* with manifest_name */
    double per_token, per_pair;        /* with --balance flops */
    size_t lower_bound;                /* with --stats */
    struct pack_figures before, after; /* of --balance, with --stats */
    const char *name;                  /* of the file being read */
};

extern const struct tool_option pack_options[];

/* Reads the command line, checks which options go together, and derives the
 * alignment. Returns 0, or -1 if the run is over: help was printed, or j->t.err
 * is filled. */
int pack_read_options(struct pack_job *j, int argc, char **argv) PP_MUST_USE;

/* --modes: numbers between commas. */
int pack_parse_modes(struct pack_job *j, const char *s) PP_MUST_USE;

/* Reads the files named from optind on, or standard input. */
int pack_read(struct pack_job *j, int argc, char **argv);

/* Writes the directory, or the part of it that j->part names. */
int pack_write(struct pack_job *j) PP_MUST_USE;

/* Packs, writes and describes each part of --split with act. */
int pack_each_part(struct pack_job *j,
                   int (*act)(struct pack_job *)) PP_MUST_USE;

/* A packed directory in another format. */
int pack_export(struct pack_job *j, const char *dir) PP_MUST_USE;

/* --check. */
int pack_check(struct pack_job *j) PP_MUST_USE;

/* Whether what --split asks for can be understood. */
int pack_parse_shares(struct pack_job *j) PP_MUST_USE;

/* Reads --manifest and takes from it what is not asked for. */
int pack_manifest_read(struct pack_job *j) PP_MUST_USE;

/* Writes what was packed into the manifest: to its file, or to stdout where it
 * came from stdin. */
int pack_manifest_write(struct pack_job *j, int argc, char **argv) PP_MUST_USE;

/* --balance, and the figures before and after. */
int pack_balance(struct pack_job *j) PP_MUST_USE;

/* A line per bin with the indices of its documents, to the output; triples
 * (index, start, length) where documents may be cut. */
int pack_print_bins(struct pack_job *j);

/* Counts, efficiency and the bound on the bins as JSON. */
int pack_print_stats(struct pack_job *j);

#endif
