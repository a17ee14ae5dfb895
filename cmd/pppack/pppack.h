/* SPDX-License-Identifier: MIT */
/* pppack - one run of pppack: its options, the input that they name, and the
 * bins of each part of it. */
#ifndef PP_CMD_PPPACK_H
#define PP_CMD_PPPACK_H

#include "data/documents.h"
#include "data/packed/packed.h"
#include "data/pieces.h"
#include "data/readers.h"
#include "manifest/manifest.h"
#include "manifest/processor_json.h"
#include "cost/stage_costs.h"
#include "pack/pack.h"
#include "tool.h"

/* The packer of another system. */
struct pack_compat {
    struct pp_packer packer;
    bool decides_oversize; /* then oversize says how: */
    enum pp_oversize oversize;
    bool drops_empty; /* drops documents without tokens */
    bool wraps;       /* cuts documents at the end of a bin */
    bool multiplies;  /* pads to the product 2 x cp x tp */
    /* Raises the number of bins; NULL: it cannot. */
    int (*raise)(struct pp_bins *b, size_t least, size_t multiple,
                 struct pp_err *err);
};

enum { PACK_MAX_SHARES = 3 };

enum pack_balance {
    PACK_BALANCE_NONE,
    PACK_BALANCE_TOKENS,
    PACK_BALANCE_FLOPS
};

/* Figures of how even the bins are. */
struct pack_figures {
    double imbalance; /* cost of the costliest bin over the mean */
    double step_time; /* simulated, with a schedule */
    /* With --cp-sizes per-sequence: cost of the costliest rank of a bin over
     * the mean of the bin, of the bin where it is most; most tokens of a rank;
     * and sequences that are whole on a rank. */
    double rank_imbalance, rank_tokens, whole;
};

/* The rule that makes the bins, and how many. */
struct pack_rule {
    const struct pp_packer *packer; /* NULL until known */
    const struct pack_compat *compat;
    int64_t rows, parts, bins_min, bins_multiple, seed;
    bool equal_size;
};

/* How items for encoders are read, and how many a bin holds. */
struct pack_items {
    int64_t image_token, audio_token; /* -1: not given */
    int64_t patch, merge;
    const char *processor;       /* --processor, or NULL */
    bool class_out;              /* --class-feature */
    int64_t patches, audio_rows; /* most in a bin; 0: no limit */
};

/* How documents are read, and which columns they get. */
struct pack_reading {
    bool bytes, from_lengths, has_modes;
    bool modes[256]; /* --modes, by an int8 as an unsigned number */
    int oversize, drop_empty;
    int64_t skip_bad;
    const char *column_files[PP_N_COLUMNS]; /* --add-column, or NULL */
    int baseline; /* --advantages: enum pp_baseline, or -1 */
};

/* The ranks that share sequences, and bins. */
struct pack_mesh {
    int64_t pad_to, cp, tp;
    int64_t dp; /* data-parallel ranks; 0: not given */
    int fp8;
    int sizes; /* --cp-sizes: 1 if each sequence has ranks of its own */
    bool per_rank;
};

struct pack_balancing {
    int what;                      /* enum pack_balance */
    double patch_cost, audio_cost; /* in tokens */
};

/* The options. They stay as they are after pack_read_options. */
struct pack_options {
    struct tool *t;
    struct pack_reading input;
    struct pack_items items;
    struct pack_rule rule;
    struct pack_balancing balance;
    struct pack_mesh mesh;
    int64_t shuffle;
    bool keeps_order;         /* --no-shuffle */
    bool shuffled;            /* --shuffle, or its default */
    uint32_t capacity, align; /* of bins and of sequences */
    uint32_t row; /* the padded length of a bin is a multiple of it */
    const char *manifest_name;
    bool stats;
    const char *svg, *check;
    const char *stats_of;           /* a packed directory to report on */
    const char *realign;            /* a packed directory to pad anew */
    const char *export_to;          /* format, or NULL */
    double shares[PACK_MAX_SHARES]; /* --split */
    size_t n_shares;                /* 0: not given */
};

/* The documents and the plan that the options name, and what the plan decides.
 */
struct pack_input {
    const struct pack_options *o;
    struct tool *t;
    struct pp_documents docs; /* with --lengths: only lengths */
    char *spill; /* directory for tokens that memory has no room for */
    struct pp_image_processor images; /* zeroed without --processor */
    /* With --image-token, and with --audio-token. */
    struct pp_jsonl_stream streams[PP_N_MODALITIES];
    const char *name;                /* the file being read */
    struct pp_manifest manifest;     /* zeroed without --manifest */
    int64_t dp, bins_multiple;       /* given, or from the plan */
    double per_token, per_pair;      /* with --balance flops */
    double per_row[PP_N_MODALITIES]; /* with --balance flops */
};

/* The bins of a part of the documents, or of all of them. */
struct pack_job {
    const struct pack_options *o;
    struct pack_input *in;
    struct tool *t;
    const char *part; /* its name; NULL without --split */
    size_t first_document, n_documents;
    uint32_t capacity; /* that of the options, or of all --rows */
    struct pp_pieces pieces;
    double made_s; /* the time at which all pieces were made */
    struct pp_bins bins;
    struct pp_rank_range *ranks;       /* of each sequence, in packed order */
    struct pp_epoch_order epoch;       /* of the directory */
    size_t lower_bound;                /* with --stats */
    struct pack_figures before, after; /* --balance, with --stats */
};

extern const struct tool_option pack_options[];

/* Reads and checks the options, and derives the alignment. Returns 0, or -1 if
 * the run is over: help was printed, or o->t->err is filled. */
int pack_read_options(struct pack_options *o, int argc,
                      char **argv) PP_MUST_USE;

/* Returns the folder for tokens that memory has no room for, beside the output.
 * The caller frees it. NULL after a failure. */
char *pack_spill_folder(const struct pack_options *o) PP_MUST_USE;
enum { PACK_SPILL_BYTES = 64 << 20 };

/* Reads the operands, or standard input if there are none, and adds the columns
 * of options. */
int pack_read(struct pack_input *in) PP_MUST_USE;

/* Writes the directory, or its part j->part. */
int pack_write(struct pack_job *j) PP_MUST_USE;

/* Calls act for each part of --split. */
int pack_each_part(struct pack_job *j,
                   int (*act)(struct pack_job *)) PP_MUST_USE;

/* Exports a packed directory to another format. */
int pack_export(const struct pack_options *o) PP_MUST_USE;

/* Does --realign. */
int pack_realign(const struct pack_options *o) PP_MUST_USE;

/* Does --check. */
int pack_check(const struct pack_options *o) PP_MUST_USE;

/* Reads --manifest, and takes missing settings from it. */
int pack_manifest_read(struct pack_input *in) PP_MUST_USE;

/* Returns the most rows of a modality in a bin; 0: no limit. --patches is about
 * audio if there are no images. */
static inline uint32_t pack_row_limit(const struct pack_input *in,
                                      enum pp_modality m)
{
    const struct pack_items *items = &in->o->items;
    bool alone = !in->docs.items[PP_MODALITY_IMAGES].n && !items->audio_rows;
    return (uint32_t)(m == PP_MODALITY_AUDIO && !alone ? items->audio_rows
                                                       : items->patches);
}

/* Fills sizes with the rows of the pieces that have a limit. Returns how many
 * there are. */
size_t pack_row_sizes(const struct pack_job *j,
                      struct pp_pack_size sizes[PP_N_MODALITIES]);

/* Returns what an encoder of the plan takes: the documents' items, if it is the
 * only one. */
static inline enum pp_modality pack_modality(const struct pack_input *in,
                                             size_t encoder)
{
    return pp_plan_modality(pp_manifest_plan(&in->manifest), encoder,
                            in->docs.items[PP_MODALITY_AUDIO].n
                                ? PP_MODALITY_AUDIO
                                : PP_MODALITY_IMAGES);
}

/* Fails if the documents have images and audio, and the plan not an encoder for
 * each. */
int pack_check_streams(struct pack_input *in) PP_MUST_USE;

/* Fails if the model of --manifest cannot take the items that were read. */
int pack_check_images(struct pack_input *in) PP_MUST_USE;

/* Adds the data section to the manifest, and writes it to its file, or to
 * stdout if it came from stdin. */
int pack_manifest_write(struct pack_input *in) PP_MUST_USE;

/* A sequence of a piece. */
struct pack_sequence {
    uint32_t padded;
    double pairs; /* of tokens that attend to each other */
};

/* Returns how many sequences a piece has: several if they share a bin; and
 * sequence k of it. */
size_t pack_n_sequences(const struct pack_job *j, const struct pp_piece *q);
struct pack_sequence pack_sequence(const struct pack_job *j,
                                   const struct pp_piece *q, size_t k);

/* Returns the cost of tokens and pairs, in what is balanced. */
double pack_cost(const struct pack_job *j, double tokens, double pairs);

/* Does --cp-sizes, and computes its figures. The bins are final. */
int pack_place(struct pack_job *j, struct pack_figures *f) PP_MUST_USE;

/* Adds what each rank has of bin b, whose first sequence is number `at`.
 * Returns the first sequence of the next bin. */
size_t pack_add_loads(const struct pack_job *j, size_t b, size_t at,
                      double *tokens, double *pairs);

/* Does --balance, and computes the figures before and after. */
int pack_balance(struct pack_job *j) PP_MUST_USE;

/* Measures the bins, by bin and slice. The caller frees the loads. */
struct pp_workload *pack_measure_bins(struct pack_job *j,
                                      const struct pp_stage_costs *c);

/* Simulates a step that begins with bin first. Its k-th microbatches are the
 * microbatches of round order[k]; NULL: of round k. *time is the time of
 * the slowest data-parallel rank. */
int pack_simulate_step(struct pack_job *j, const struct pp_stage_costs *c,
                       const struct pp_workload *sizes, size_t first,
                       const uint32_t *order, double *time) PP_MUST_USE;

/* Orders the microbatches of each step, if there is a schedule. */
int pack_order(struct pack_job *j) PP_MUST_USE;

/* Returns the noun for pieces, in the plural: pairs stay whole, groups of
 * responses do not. */
const char *pack_noun(const struct pack_job *j);

/* Notes what was cut or dropped, and what trains nothing. */
void pack_note(struct pack_job *j);

/* Prints counts, efficiency and the lower bound as JSON. */
int pack_print_stats(struct pack_job *j) PP_MUST_USE;

/* Says in a line what a packed directory holds, draws it with --svg, and with
 * json prints figures. */
int pack_report(const struct pack_options *o, const char *dir,
                bool json) PP_MUST_USE;

#endif
