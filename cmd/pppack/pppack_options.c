/* SPDX-License-Identifier: MIT */
/* pppack_options - the options of pppack, and the checks of them. */
#include "pppack.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "pack/pack_rule.h"

/* The systems of --compat: the rule of each, and what it does with documents
 * that are empty or too long. */
const struct pack_compat pack_compats[] = {
    {.packer = {.name = "nemo-rl-ffd", .pack = pp_pack_ffd},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-mffd", .pack = pp_pack_mffd},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-concat", .pack = pp_pack_next_fit},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-ffs",
                .pack = pp_pack_first_fit_shuffle,
                .draw = pp_draw_first_fit_shuffle},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "trl-bfd", .pack = pp_pack_bfd},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_TRUNCATE,
     .drops_empty = true},
    {.packer = {.name = "trl-bfd-split", .pack = pp_pack_bfd},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_SPLIT,
     .drops_empty = true},
    {.packer = {.name = "trl-wrapped", .pack = pp_pack_next_fit},
     .decides_oversize = true,
     .oversize = PP_OVERSIZE_SPLIT,
     .drops_empty = true,
     .wraps = true},
    {.packer = {.name = "automodel-knapsack", .pack = pp_pack_wfd}},
    {.packer = {.name = "megatron-dp-balanced", .pack = pp_pack_next_fit},
     .raise = pp_bins_multiple_from_tail},
    {.packer = {.name = "megatron-rl",
                .pack = pp_pack_megatron_rl,
                .unpadded = pp_pack_megatron_rl_unpadded}},
    {.packer = {.name = "torchtune", .pack = pp_pack_next_fit}},
    {.packer = {.name = "axolotl", .pack = pp_pack_axolotl}},
    {.packer = {.name = "verl-kk",
                .pack = pp_pack_verl,
                .divide = pp_parts_kk}},
    {.packer = {.name = "verl-workload",
                .pack = pp_pack_verl_workload,
                .divide = pp_parts_verl_workload}},
    {.packer = {0}},
};

/* Seeds may be nearly as large as int64_t, in which a range is a double. */
#define LARGEST 0x1p62

/* In the order of enum pp_oversize. */
static const char *const oversize_words[] = {"error", "truncate", "split",
                                             "drop", NULL};
/* In the order of fp8_tokens. */
static const char *const fp8_words[] = {"none", "tensorwise", "mxfp8",
                                        "blockwise", NULL};
/* A rank's tokens of a bin must be a multiple of these. */
static const uint32_t fp8_tokens[] = {1, 16, 32, 128};
/* In the order of enum pack_balance. */
static const char *const balance_words[] = {"none", "tokens", "flops", NULL};
static const char *const size_words[] = {"fixed", "per-sequence", NULL};
static const char *const baseline_words[] = {"group", "leave-one-out", NULL};
static const char *const empty_words[] = {"error", "drop", NULL};
static const char *const export_words[] = {"megatron", "safetensors", NULL};

static void list_rules(const char *words[])
{
    int n = 0;
    for (; n < TOOL_MAX_WORDS - 1 && pp_packers[n].name; n++)
        words[n] = pp_packers[n].name;
    words[n] = NULL;
}

static void list_compats(const char *words[])
{
    int n = 0;
    for (; n < TOOL_MAX_WORDS - 1 && pack_compats[n].packer.name; n++)
        words[n] = pack_compats[n].packer.name;
    words[n] = NULL;
}

/* Returns the index of a word in the list of an option, or -1. */
static int take_listed(struct tool *t, const struct tool_option *o,
                       const char *arg)
{
    const char *words[TOOL_MAX_WORDS];
    o->list(words);
    return tool_word(t, tool_spell(o).text, arg, words);
}

static int parse_rule(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    struct pack_job *j = t->base;
    int i = take_listed(t, o, arg);
    if (i >= 0)
        j->rule = &pp_packers[i];
    return i < 0 ? -1 : 0;
}

static int parse_compat(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct pack_job *j = t->base;
    int i = take_listed(t, o, arg);
    if (i >= 0)
        j->compat = &pack_compats[i];
    return i < 0 ? -1 : 0;
}

static int parse_shares(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct pack_job *j = t->base;
    (void)o;
    j->parts_wanted = arg;
    return pack_parse_shares(j);
}

static int parse_modes(struct tool *t, const struct tool_option *o,
                       const char *arg)
{
    (void)o;
    return pack_parse_modes(t->base, arg);
}

static int parse_column(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    (void)o;
    return pack_parse_column(t->base, arg);
}

#define AT(member) TOOL_AT(struct pack_job, member)

const struct tool_option pack_options[] = {
    {.group = "Input"},
    {0, "bytes", NULL, "tokens are the bytes of \"text\", then 256", AT(bytes)},
    {0, "lengths", NULL, "read one length per line, print bins of indices",
     AT(from_lengths), .excludes = "bytes"},
    {0, "modes", "LIST", "modes of indexed sequences to read, such as 0,1",
     .parse = parse_modes},
    {0, "oversize", "WHAT",
     "too long: error (default), truncate, split or drop", AT(oversize),
     .words = oversize_words},
    {0, "empty", "WHAT", "documents without tokens: error (default) or drop",
     AT(drop_empty), .words = empty_words},
    {0, "skip-bad", "N", "skip up to N malformed lines", AT(skip_bad), 0,
     LARGEST, .excludes = "lengths"},
    {0, "add-column", "NAME=FILE", "add what ppscore --logprobs wrote",
     .parse = parse_column, .needs = "output", .excludes = "lengths"},
    {0, "advantages", "NAME", "from rewards: group or leave-one-out",
     AT(baseline), .words = baseline_words, .needs = "output",
     .excludes = "lengths"},

    {0, "image-token", "ID", "take images; the id of their placeholders",
     AT(image_token), 0, INT32_MAX - 1, .excludes = "bytes lengths"},
    {0, "audio-token", "ID", "take audio; the id of its placeholders",
     AT(audio_token), 0, INT32_MAX - 1, .excludes = "bytes lengths"},
    {0, "patch", "N", "cut images into patches of N x N pixels", AT(patch), 1,
     4096, .needs = "image-token"},
    {0, "merge", "N", "N x N patches are a token (1)", AT(merge), 1, 1024,
     .needs = "image-token"},
    {0, "processor", "PATH", "make patches as a preprocessor_config.json says",
     AT(processor), .needs = "image-token"},
    {0, "class-feature", NULL, "an image also has a feature of a class token",
     AT(class_out), .needs = "image-token"},

    {.group = "Bins"},
    {'l', "capacity", "TOKENS", "most tokens per bin, with padding",
     AT(capacity), 1, INT32_MAX, .counts = true},
    {0, "patches", "N", "most patches per bin, or rows of audio alone",
     AT(patches), 1, INT32_MAX, .counts = true,
     .excludes = "lengths algorithm compat"},
    {0, "audio-rows", "N", "most rows of audio per bin", AT(audio_rows), 1,
     INT32_MAX, .counts = true, .excludes = "lengths algorithm compat"},
    {'a', "algorithm", "RULE", "packing rule (best)", .list = list_rules,
     .parse = parse_rule},
    {0, "compat", "SYSTEM", "make the bins of another system",
     .list = list_compats, .parse = parse_compat,
     .excludes = "algorithm balance=tokens balance=flops"},
    {0, "rows", "N", "with -a none: sequences per bin", AT(rows), 1, INT32_MAX,
     .excludes = "balance=tokens balance=flops"},
    {0, "parts", "N", "with -a lpt or karmarkar-karp: number of bins",
     AT(parts), 1, INT32_MAX},
    {0, "equal-size", NULL, "with --parts: same number of sequences per bin",
     AT(equal_size), .needs = "parts"},
    {0, "bins-min", "N", "make at least N bins", AT(bins_min), 0, INT32_MAX},
    {0, "bins-multiple", "N", "make a multiple of N bins", AT(bins_multiple), 1,
     INT32_MAX},
    {0, "balance", "WHAT", "make bins equal in tokens or flops", AT(balance),
     .words = balance_words},
    {0, "patch-cost", "X", "with --balance: tokens that cost like a patch (0)",
     AT(patch_cost), 0, 1e6, .needs = "balance=tokens|balance=flops"},
    {0, "audio-cost", "X", "the same for a row of audio (as for a patch)",
     AT(audio_cost), 0, 1e6, .needs = "balance=tokens|balance=flops"},
    {0, "shuffle", "SEED", "put the bins in a random order (-o: 42)",
     AT(shuffle), 0, LARGEST,
     .excludes = "balance=tokens balance=flops no-shuffle"},
    {0, "no-shuffle", NULL, "keep the bins in the order of the rule, always",
     AT(keeps_order)},
    {0, "seed", "N", "first-fit-shuffle: seed of the packing rule (42)",
     AT(seed), 0, LARGEST},

    {.group = "Mesh"},
    {0, "pad-to", "N", "pad each sequence to a multiple of N", AT(pad_to), 1,
     INT32_MAX},
    {0, "cp", "N", "also pad for N context-parallel ranks", AT(cp), 1,
     INT32_MAX, .also = "cp-size context-parallel-size"},
    {0, "cp-sizes", "WHICH", "ranks of a sequence: fixed (all) or per-sequence",
     AT(sizes), .words = size_words},
    {0, "tp", "N", "also pad for N tensor-parallel ranks", AT(tp), 1, INT32_MAX,
     .also = "tp-size tensor-parallel-size tensor-model-parallel-size"},
    {0, "dp", "N", "with --balance or --export: data-parallel ranks", AT(dp), 1,
     INT32_MAX, .needs = "balance=tokens|balance=flops|export",
     .also = "dp-size data-parallel-size"},
    {0, "fp8", "RECIPE", "also pad for tensorwise, mxfp8 or blockwise", AT(fp8),
     .words = fp8_words},
    {0, "per-rank", NULL, "-l is per context-parallel rank", AT(per_rank)},
    {0, "manifest", "FILE",
     "plan to take costs and mesh from, then add data to", AT(manifest_name)},

    {.group = "Output"},
    {0, "split", "SHARES", "make train, valid and test data: 98,1,1",
     .parse = parse_shares, .needs = "output", .excludes = "lengths"},
    {0, "export", "FORMAT", "write a packed DIR as megatron or safetensors",
     AT(export_to), .words = export_words, .needs = "output",
     .excludes = "capacity"},
    {0, "realign", "DIR", "pad a packed directory anew, in -o or in its place",
     AT(realign), .excludes = "capacity lengths check export stats"},
    {0, "stats", NULL, "print statistics as JSON, of data or a packed DIR",
     AT(stats)},
    {0, "svg", "FILE", "also draw lengths and fill of the packed DIR", AT(svg),
     .excludes = "lengths check export split"},
    {0, "check", "DIR", "check a packed directory: 0 consistent, 1 not",
     AT(check), .excludes = "capacity output lengths"},
    {0},
};

/* Sets the capacity of a bin. With --per-rank, -l is that of one
 * context-parallel rank. */
static int set_capacity(struct pack_job *j)
{
    uint64_t capacity =
        (uint64_t)j->capacity * (j->per_rank ? (uint64_t)j->cp : 1);
    if (capacity > INT32_MAX)
        return tool_usage(&j->t,
                          "-l: '%" PRIu32 "' tokens for each of %" PRId64
                          " ranks are more than %d",
                          j->capacity, j->cp, INT32_MAX);
    j->capacity = (uint32_t)capacity;
    return 0;
}

/* Checks that the ranks can divide a full bin. */
static int check_capacity(struct pack_job *j, uint32_t multiple,
                          const char *what)
{
    uint32_t below = j->capacity / multiple * multiple;
    if (j->capacity == below)
        return 0;
    char text[64];
    if (below)
        snprintf(text, sizeof text, "try %" PRIu32 " or %" PRIu64, below,
                 (uint64_t)below + multiple);
    else
        snprintf(text, sizeof text, "the least is %" PRIu32, multiple);
    return tool_usage(
        &j->t, "-l: '%" PRIu32 "' is not a multiple of %" PRIu32 " (%s); %s",
        j->capacity, multiple, what, text);
}

/* Sets the alignments of sequences and bins; 0: above 2^31. */
static int choose_align(struct pack_job *j)
{
    uint32_t pad_to = (uint32_t)j->pad_to, cp = (uint32_t)j->cp,
             tp = (uint32_t)j->tp;
    j->align = j->compat && j->compat->multiplies
                   ? pp_pieces_align_product(pad_to, cp, tp)
                   : pp_pieces_align(pad_to, cp, tp);
    if (j->align > INT32_MAX / fp8_tokens[j->fp8])
        return tool_usage(&j->t, "--fp8: rows would be longer than %d tokens",
                          INT32_MAX);
    j->row = j->align * fp8_tokens[j->fp8];
    return 0;
}

static int set_align(struct pack_job *j)
{
    uint32_t cp = (uint32_t)j->cp;
    if (choose_align(j) != 0)
        return -1;
    if (set_capacity(j) != 0 ||
        check_capacity(j, cp > 1 ? 2 * cp : 1, "2 x cp") != 0)
        return -1;
    if (!j->align || j->align > j->capacity)
        return tool_usage(&j->t,
                          "-l: '%" PRIu32 "' is less than the alignment of "
                          "sequences, %" PRIu32,
                          j->capacity, j->align);
    return j->fp8 ? check_capacity(j, j->row, "--fp8") : 0;
}

/* Checks --compat: a system decides some options and lacks others. */
static int check_compat(struct pack_job *j)
{
    const struct pack_compat *c = j->compat;
    struct tool *t = &j->t;
    if (tool_given(t, "oversize") && c->decides_oversize)
        return tool_usage(t, "--compat %s and --oversize exclude each other",
                          c->packer.name);
    if (!c->raise && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t,
                          "--compat %s excludes --bins-min and "
                          "--bins-multiple",
                          c->packer.name);
    j->rule = &c->packer;
    j->drop_empty |= c->drops_empty;
    if (c->decides_oversize)
        j->oversize = (int)c->oversize;
    return 0;
}

static int check_rule(struct pack_job *j)
{
    struct tool *t = &j->t;
    bool none = !strcmp(j->rule->name, "none");
    if (none != (j->rows > 0))
        return tool_usage(t, "-a none and --rows must be given together");
    if (none && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t, "-a none excludes --bins-min and "
                             "--bins-multiple");
    if (none && j->rows > INT32_MAX / (int64_t)j->capacity)
        return tool_usage(t, "--rows: '%" PRId64 "' is too many", j->rows);
    if (tool_given(t, "seed") && !j->rule->draw)
        return tool_usage(t, "--seed has no effect: %s is deterministic",
                          j->rule->name);
    if (j->parts && !j->rule->divide)
        return tool_usage(t, "--parts needs -a lpt or karmarkar-karp, not %s",
                          j->rule->name);
    if (j->equal_size && j->rule->divide != pp_parts_kk)
        return tool_usage(t, "--equal-size needs -a karmarkar-karp");
    if (j->parts && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t, "--parts excludes --bins-min and "
                             "--bins-multiple: it sets the number of bins");
    return 0;
}

static int check_balance(struct pack_job *j, int argc)
{
    struct tool *t = &j->t;
    const char *name = j->manifest_name;
    if (name && !strcmp(name, "-") &&
        (optind == argc || j->stats || j->from_lengths))
        return tool_usage(t, "--manifest - needs input files, and excludes "
                             "--stats and --lengths");
    if (name && j->parts_wanted)
        return tool_usage(t, "--split and --manifest exclude each other: a "
                             "plan has one directory, which ppsched --data "
                             "adds");
    if (j->balance == PACK_BALANCE_FLOPS && !name)
        return tool_usage(t, "--balance flops needs --manifest");
    return 0;
}

/* Checks --realign, which takes paddings and no more. */
static int check_realign(struct pack_job *j, int argc)
{
    static const char *const takes[] = {
        "realign", "pad-to", "cp", "tp", "fp8", "verbose", "quiet", "output"};
    for (const struct tool_option *o = pack_options; o->name || o->group; o++) {
        bool taken = !o->name || !tool_given(&j->t, o->name);
        for (size_t i = 0; !taken && i < sizeof takes / sizeof *takes; i++)
            taken = !strcmp(o->name, takes[i]);
        if (!taken)
            return tool_usage(&j->t, "--%s has no effect with --realign",
                              o->name);
    }
    if (optind < argc)
        return tool_usage(&j->t, "--realign takes no operands");
    if (choose_align(j) != 0)
        return -1;
    return j->align ? 0
                    : tool_usage(&j->t, "--realign: sequences would be padded "
                                        "to more than 2^31 tokens");
}

/* Checks --export and --check, which pack nothing. */
static int check_directory(struct pack_job *j, int argc)
{
    if (j->realign)
        return check_realign(j, argc);
    if (j->export_to && optind + 1 != argc)
        return tool_usage(&j->t, "--export needs one packed directory");
    static const char *const sizes[] = {"cp", "dp"};
    for (int i = 0; i < 2; i++)
        if (j->export_to && tool_given(&j->t, sizes[i]) &&
            strcmp(j->export_to, "safetensors"))
            return tool_usage(&j->t, "--%s has no effect with --export %s",
                              sizes[i], j->export_to);
    if (j->check && optind < argc)
        return tool_usage(&j->t, "--check takes no operands");
    return 0;
}

static int check_packing(struct pack_job *j, int argc)
{
    struct tool *t = &j->t;
    if (!j->capacity)
        return tool_usage(t, "a capacity is needed (-l)");
    if (j->image_token >= 0 && j->image_token == j->audio_token)
        return tool_usage(t,
                          "--audio-token: '%" PRId64
                          "' is also that of images; each needs its own id",
                          j->audio_token);
    if (j->svg && (!t->output || !strcmp(j->svg, "-")))
        return tool_usage(t, "--svg needs -o DIR, and a file of its own");
    if (!t->output && !j->from_lengths && !j->stats)
        return tool_usage(t, "an output directory is needed (-o)");
    if (j->compat && check_compat(j) != 0)
        return -1;
    if (!j->rule)
        j->rule = pp_packer_find("best");
    if (check_rule(j) != 0 || check_balance(j, argc) != 0 ||
        pack_check_sizes(j) != 0)
        return -1;
    if (optind == argc && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "documents are expected");
    if (set_align(j) != 0)
        return -1;
    if (j->compat && j->compat->wraps && j->row > 1)
        return tool_usage(t,
                          "--compat %s fills bins, so padding is not possible",
                          j->rule->name);
    return 0;
}

/* Decides on the order of the bins: a directory is shuffled unless the order
 * was asked for, is that of another system, or is made by --balance. */
static void set_order(struct pack_job *j)
{
    bool given = tool_given(&j->t, "shuffle");
    bool ordered = j->compat || j->rows || j->parts || j->keeps_order ||
                   j->balance != PACK_BALANCE_NONE;
    if (!given)
        j->shuffle = PP_PACK_SEED;
    j->shuffled = given || (j->t.output && !j->from_lengths && !ordered);
    j->epoch.seed = (uint64_t)j->shuffle;
    j->epoch.block = j->shuffled;
}

int pack_read_options(struct pack_job *j, int argc, char **argv)
{
    struct tool *t = &j->t;
    t->base = j;
    if (tool_read_options(t, argc, argv) || tool_check_options(t))
        return -1;
    set_order(j);
    if (j->stats && !j->capacity && optind + 1 == argc &&
        pp_file_is_dir(argv[optind])) {
        j->stats_of = argv[optind];
        return 0;
    }
    return j->export_to || j->check || j->realign ? check_directory(j, argc)
                                                  : check_packing(j, argc);
}
