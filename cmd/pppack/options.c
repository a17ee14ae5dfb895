/* SPDX-License-Identifier: MIT */
/* options - the options of pppack, and the checks of them. */
#include "pppack.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "pack/rule.h"

/* The systems of --compat: the rule of each, and what it does with documents
 * that are empty or too long. */
static const struct pack_compat pack_compats[] = {
    {.packer = {.name = "nemo-rl-ffd", .pack = pp_pack_ffd},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-mffd", .no_empty = true, .pack = pp_pack_mffd},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-concat", .pack = pp_pack_next_fit},
     .multiplies = true,
     .raise = pp_bins_multiple_by_popping},
    {.packer = {.name = "nemo-rl-ffs",
                .draws = true,
                .pack = pp_pack_first_fit_shuffle},
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
    {.packer = {.name = "megatron-rl", .pack = pp_pack_megatron_rl}},
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
    struct pack_options *to = t->base;
    int i = take_listed(t, o, arg);
    if (i >= 0)
        to->rule.packer = &pp_packers[i];
    return i < 0 ? -1 : 0;
}

static int parse_compat(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    struct pack_options *to = t->base;
    int i = take_listed(t, o, arg);
    if (i >= 0)
        to->rule.compat = &pack_compats[i];
    return i < 0 ? -1 : 0;
}

/* --split: up to three shares. */
static int parse_shares(struct tool *t, const struct tool_option *option,
                        const char *arg)
{
    struct pack_options *o = t->base;
    double sum = 0;
    (void)option;
    if (pp_parse_reals(arg, "--split", 0, 1e9, o->shares, PACK_MAX_SHARES,
                       &o->n_shares, &t->err))
        return -1;
    for (size_t i = 0; i < o->n_shares && i < PACK_MAX_SHARES; i++)
        sum += o->shares[i];
    if (o->n_shares > PACK_MAX_SHARES || sum <= 0)
        return tool_usage(
            t,
            "--split: '%s' must be one to three positive numbers, such as "
            "98,1,1",
            arg);
    return 0;
}

/* --modes: numbers separated by commas. */
static int parse_modes(struct tool *t, const struct tool_option *option,
                       const char *s)
{
    struct pack_options *o = t->base;
    char list[1024], *rest = list, *word;
    (void)option;
    if (snprintf(list, sizeof list, "%s", s) >= (int)sizeof list)
        return tool_usage(t, "--modes: '%s' is too long", s);
    o->input.has_modes = true;
    while ((word = strsep(&rest, ","))) {
        int64_t mode;
        if (pp_parse_int(word, "--modes", INT8_MIN, INT8_MAX, &mode, &t->err) !=
            0)
            return -1;
        o->input.modes[(uint8_t)mode] = true;
    }
    return 0;
}

/* --add-column: NAME=FILE. */
static int parse_column(struct tool *t, const struct tool_option *option,
                        const char *s)
{
    struct pack_options *o = t->base;
    static const enum pp_column takes[] = {
        PP_COLUMN_LOGPROBS, PP_COLUMN_PREV_LOGPROBS, PP_COLUMN_REF_LOGPROBS,
        PP_COLUMN_TOPK_IDS};
    (void)option;
    size_t n = strcspn(s, "=");
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        bool is_list = pp_columns[takes[i]].is_list;
        const char *name = is_list ? "topk" : pp_columns[takes[i]].name;
        if (strlen(name) != n || strncmp(s, name, n) || !s[n] || !s[n + 1])
            continue;
        if (o->input.column_files[takes[i]])
            return tool_usage(t, "--add-column: '%s' is there twice", name);
        o->input.column_files[takes[i]] = s + n + 1;
        return 0;
    }
    return tool_usage(t,
                      "--add-column: '%s' must be logprobs, prev_logprobs, "
                      "ref_logprobs or topk, '=' and the name of a file",
                      s);
}

#define AT(member) TOOL_AT(struct pack_options, member)

const struct tool_option pack_options[] = {
    {.group = "Input"},
    {0, "bytes", NULL, "tokens are the bytes of \"text\", then 256",
     AT(input.bytes)},
    {0, "lengths", NULL, "read one length per line, print bins of indices",
     AT(input.from_lengths), .excludes = "bytes"},
    {0, "modes", "LIST", "modes of indexed sequences to read, such as 0,1",
     .parse = parse_modes},
    {0, "oversize", "WHAT",
     "too long: error (default), truncate, split or drop", AT(input.oversize),
     .words = oversize_words},
    {0, "empty", "WHAT", "documents without tokens: error (default) or drop",
     AT(input.drop_empty), .words = empty_words},
    {0, "skip-bad", "N", "skip up to N malformed lines", AT(input.skip_bad), 0,
     LARGEST, .excludes = "lengths"},
    {0, "add-column", "NAME=FILE", "add what ppscore --logprobs wrote",
     .parse = parse_column, .needs = "output", .excludes = "lengths"},
    {0, "advantages", "NAME", "from rewards: group or leave-one-out",
     AT(input.baseline), .words = baseline_words, .needs = "output",
     .excludes = "lengths"},

    {0, "image-token", "ID", "take images; the id of their placeholders",
     AT(items.image_token), 0, INT32_MAX - 1, .excludes = "bytes lengths"},
    {0, "audio-token", "ID", "take audio; the id of its placeholders",
     AT(items.audio_token), 0, INT32_MAX - 1, .excludes = "bytes lengths"},
    {0, "patch", "N", "cut images into patches of N x N pixels",
     AT(items.patch), 1, 4096, .needs = "image-token"},
    {0, "merge", "N", "N x N patches are a token (1)", AT(items.merge), 1, 1024,
     .needs = "image-token"},
    {0, "processor", "PATH", "make patches as a preprocessor_config.json says",
     AT(items.processor), .needs = "image-token"},
    {0, "class-feature", NULL, "an image also has a feature of a class token",
     AT(items.class_out), .needs = "image-token"},

    {.group = "Bins"},
    {'l', "capacity", "TOKENS", "most tokens per bin, with padding",
     AT(capacity), 1, INT32_MAX, .counts = true},
    {0, "patches", "N", "most patches per bin, or rows of audio alone",
     AT(items.patches), 1, INT32_MAX, .counts = true,
     .excludes = "lengths algorithm compat"},
    {0, "audio-rows", "N", "most rows of audio per bin", AT(items.audio_rows),
     1, INT32_MAX, .counts = true, .excludes = "lengths algorithm compat"},
    {'a', "algorithm", "RULE", "packing rule (best)", .list = list_rules,
     .parse = parse_rule},
    {0, "compat", "SYSTEM", "make the bins of another system",
     .list = list_compats, .parse = parse_compat,
     .excludes = "algorithm balance=tokens balance=flops"},
    {0, "rows", "N", "with -a none: sequences per bin", AT(rule.rows), 1,
     INT32_MAX, .excludes = "balance=tokens balance=flops"},
    {0, "parts", "N", "with -a lpt or karmarkar-karp: number of bins",
     AT(rule.parts), 1, INT32_MAX},
    {0, "equal-size", NULL, "with --parts: same number of sequences per bin",
     AT(rule.equal_size), .needs = "parts"},
    {0, "bins-min", "N", "make at least N bins", AT(rule.bins_min), 0,
     INT32_MAX},
    {0, "bins-multiple", "N", "make a multiple of N bins",
     AT(rule.bins_multiple), 1, INT32_MAX},
    {0, "balance", "WHAT", "make bins equal in tokens or flops",
     AT(balance.what), .words = balance_words},
    {0, "patch-cost", "X", "with --balance: tokens that cost like a patch (0)",
     AT(balance.patch_cost), 0, 1e6, .needs = "balance=tokens|balance=flops"},
    {0, "audio-cost", "X", "the same for a row of audio (as for a patch)",
     AT(balance.audio_cost), 0, 1e6, .needs = "balance=tokens|balance=flops"},
    {0, "shuffle", "SEED", "put the bins in a random order (-o: 42)",
     AT(shuffle), 0, LARGEST,
     .excludes = "balance=tokens balance=flops no-shuffle"},
    {0, "no-shuffle", NULL, "keep the bins in the order of the rule, always",
     AT(keeps_order)},
    {0, "seed", "N", "first-fit-shuffle: seed of the packing rule (42)",
     AT(rule.seed), 0, LARGEST},

    {.group = "Mesh"},
    {0, "pad-to", "N", "pad each sequence to a multiple of N", AT(mesh.pad_to),
     1, INT32_MAX},
    {0, "cp", "N", "also pad for N context-parallel ranks", AT(mesh.cp), 1,
     INT32_MAX, .also = "cp-size context-parallel-size"},
    {0, "cp-sizes", "WHICH", "ranks of a sequence: fixed (all) or per-sequence",
     AT(mesh.sizes), .words = size_words},
    {0, "tp", "N", "also pad for N tensor-parallel ranks", AT(mesh.tp), 1,
     INT32_MAX,
     .also = "tp-size tensor-parallel-size tensor-model-parallel-size"},
    {0, "dp", "N", "with --balance or --export: data-parallel ranks",
     AT(mesh.dp), 1, INT32_MAX, .needs = "balance=tokens|balance=flops|export",
     .also = "dp-size data-parallel-size"},
    {0, "fp8", "RECIPE", "also pad for tensorwise, mxfp8 or blockwise",
     AT(mesh.fp8), .words = fp8_words},
    {0, "per-rank", NULL, "-l is per context-parallel rank", AT(mesh.per_rank)},
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
static int set_capacity(struct pack_options *o)
{
    uint64_t capacity =
        (uint64_t)o->capacity * (o->mesh.per_rank ? (uint64_t)o->mesh.cp : 1);
    if (capacity > INT32_MAX)
        return tool_usage(o->t,
                          "-l: '%" PRIu32 "' tokens for each of %" PRId64
                          " ranks are more than %d",
                          o->capacity, o->mesh.cp, INT32_MAX);
    o->capacity = (uint32_t)capacity;
    return 0;
}

/* Checks that the ranks can divide a full bin. */
static int check_capacity(const struct pack_options *o, uint32_t multiple,
                          const char *what)
{
    uint32_t below = o->capacity / multiple * multiple;
    if (o->capacity == below)
        return 0;
    char text[64];
    if (below)
        snprintf(text, sizeof text, "try %" PRIu32 " or %" PRIu64, below,
                 (uint64_t)below + multiple);
    else
        snprintf(text, sizeof text, "the least is %" PRIu32, multiple);
    return tool_usage(
        o->t, "-l: '%" PRIu32 "' is not a multiple of %" PRIu32 " (%s); %s",
        o->capacity, multiple, what, text);
}

/* Sets the alignments of sequences and bins; 0: above 2^31. */
static int choose_align(struct pack_options *o)
{
    uint32_t pad_to = (uint32_t)o->mesh.pad_to, cp = (uint32_t)o->mesh.cp,
             tp = (uint32_t)o->mesh.tp;
    o->align = o->rule.compat && o->rule.compat->multiplies
                   ? pp_pieces_align_product(pad_to, cp, tp)
                   : pp_pieces_align(pad_to, cp, tp);
    if (o->align > INT32_MAX / fp8_tokens[o->mesh.fp8])
        return tool_usage(o->t, "--fp8: rows would be longer than %d tokens",
                          INT32_MAX);
    o->row = o->align * fp8_tokens[o->mesh.fp8];
    return 0;
}

static int set_align(struct pack_options *o)
{
    uint32_t cp = (uint32_t)o->mesh.cp;
    if (choose_align(o) != 0)
        return -1;
    if (set_capacity(o) != 0 ||
        check_capacity(o, cp > 1 ? 2 * cp : 1, "2 x cp") != 0)
        return -1;
    if (!o->align || o->align > o->capacity)
        return tool_usage(o->t,
                          "-l: '%" PRIu32 "' is less than the alignment of "
                          "sequences, %" PRIu32,
                          o->capacity, o->align);
    return o->mesh.fp8 ? check_capacity(o, o->row, "--fp8") : 0;
}

/* Checks --compat: a system decides some options and lacks others. */
static int check_compat(struct pack_options *o)
{
    const struct pack_compat *c = o->rule.compat;
    struct tool *t = o->t;
    if (tool_given(t, "oversize") && c->decides_oversize)
        return tool_usage(t, "--compat %s and --oversize exclude each other",
                          c->packer.name);
    if (!c->raise && (o->rule.bins_multiple > 1 || o->rule.bins_min > 0))
        return tool_usage(t,
                          "--compat %s excludes --bins-min and "
                          "--bins-multiple",
                          c->packer.name);
    o->rule.packer = &c->packer;
    o->input.drop_empty |= c->drops_empty;
    if (c->decides_oversize)
        o->input.oversize = (int)c->oversize;
    return 0;
}

static int check_rule(const struct pack_options *o)
{
    struct tool *t = o->t;
    bool none = !strcmp(o->rule.packer->name, "none");
    if (none != (o->rule.rows > 0))
        return tool_usage(t, "-a none and --rows must be given together");
    if (none && (o->rule.bins_multiple > 1 || o->rule.bins_min > 0))
        return tool_usage(t, "-a none excludes --bins-min and "
                             "--bins-multiple");
    if (none && o->rule.rows > INT32_MAX / (int64_t)o->capacity)
        return tool_usage(t, "--rows: '%" PRId64 "' is too many", o->rule.rows);
    if (tool_given(t, "seed") && !o->rule.packer->draws)
        return tool_usage(t, "--seed has no effect: %s is deterministic",
                          o->rule.packer->name);
    if (o->rule.parts && !o->rule.packer->divide)
        return tool_usage(t, "--parts needs -a lpt or karmarkar-karp, not %s",
                          o->rule.packer->name);
    if (o->rule.equal_size && o->rule.packer->divide != pp_parts_kk)
        return tool_usage(t, "--equal-size needs -a karmarkar-karp");
    if (o->rule.parts && (o->rule.bins_multiple > 1 || o->rule.bins_min > 0))
        return tool_usage(t, "--parts excludes --bins-min and "
                             "--bins-multiple: it sets the number of bins");
    return 0;
}

static int check_balance(const struct pack_options *o, int argc)
{
    struct tool *t = o->t;
    const char *name = o->manifest_name;
    if (name && !strcmp(name, "-") &&
        (optind == argc || o->stats || o->input.from_lengths))
        return tool_usage(t, "--manifest - needs input files, and excludes "
                             "--stats and --lengths");
    if (name && o->n_shares)
        return tool_usage(t, "--split and --manifest exclude each other: a "
                             "plan has one directory, which ppsched --data "
                             "adds");
    if (o->balance.what == PACK_BALANCE_FLOPS && !name)
        return tool_usage(t, "--balance flops needs --manifest");
    return 0;
}

/* Checks --cp-sizes. */
static int check_sizes(const struct pack_options *o)
{
    struct tool *t = o->t;
    if (!o->mesh.sizes)
        return 0;
    if (o->mesh.cp < 2 || o->mesh.cp > PP_MOST_SIZED_RANKS)
        return tool_usage(t,
                          "--cp-sizes per-sequence: --cp must be 2 to %d, not "
                          "'%" PRId64 "'",
                          (int)PP_MOST_SIZED_RANKS, o->mesh.cp);
    if (o->balance.what == PACK_BALANCE_NONE)
        return tool_usage(t, "--cp-sizes per-sequence needs --balance tokens "
                             "or flops");
    if (o->mesh.fp8)
        return tool_usage(t, "--cp-sizes per-sequence and --fp8 exclude each "
                             "other: ranks have different numbers of tokens");
    return 0;
}

/* Checks --realign, which takes paddings and no more. */
static int check_realign(struct pack_options *o, int argc)
{
    static const char *const takes[] = {
        "realign", "pad-to", "cp", "tp", "fp8", "verbose", "quiet", "output"};
    for (const struct tool_option *k = pack_options; k->name || k->group; k++) {
        bool taken = !k->name || !tool_given(o->t, k->name);
        for (size_t i = 0; !taken && i < sizeof takes / sizeof *takes; i++)
            taken = !strcmp(k->name, takes[i]);
        if (!taken)
            return tool_usage(o->t, "--%s has no effect with --realign",
                              k->name);
    }
    if (optind < argc)
        return tool_usage(o->t, "--realign takes no operands");
    if (choose_align(o) != 0)
        return -1;
    return o->align ? 0
                    : tool_usage(o->t, "--realign: sequences would be padded "
                                       "to more than 2^31 tokens");
}

/* Checks --export and --check, which pack nothing. */
static int check_directory(struct pack_options *o, int argc)
{
    if (o->realign)
        return check_realign(o, argc);
    if (o->export_to && optind + 1 != argc)
        return tool_usage(o->t, "--export needs one packed directory");
    static const char *const sizes[] = {"cp", "dp"};
    for (int i = 0; i < 2; i++)
        if (o->export_to && tool_given(o->t, sizes[i]) &&
            strcmp(o->export_to, "safetensors"))
            return tool_usage(o->t, "--%s has no effect with --export %s",
                              sizes[i], o->export_to);
    if (o->check && optind < argc)
        return tool_usage(o->t, "--check takes no operands");
    return 0;
}

static int check_packing(struct pack_options *o, int argc)
{
    struct tool *t = o->t;
    if (!o->capacity)
        return tool_usage(t, "a capacity is needed (-l)");
    if (o->items.image_token >= 0 &&
        o->items.image_token == o->items.audio_token)
        return tool_usage(t,
                          "--audio-token: '%" PRId64
                          "' is also that of images; each needs its own id",
                          o->items.audio_token);
    if (o->svg && (!t->output || !strcmp(o->svg, "-")))
        return tool_usage(t, "--svg needs -o DIR, and a file of its own");
    if (!t->output && !o->input.from_lengths && !o->stats)
        return tool_usage(t, "an output directory is needed (-o)");
    if (o->rule.compat && check_compat(o) != 0)
        return -1;
    if (!o->rule.packer)
        o->rule.packer = pp_packer_find("best");
    if (check_rule(o) != 0 || check_balance(o, argc) != 0 ||
        check_sizes(o) != 0)
        return -1;
    if (optind == argc && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "documents are expected");
    if (set_align(o) != 0)
        return -1;
    if (o->rule.compat && o->rule.compat->wraps && o->row > 1)
        return tool_usage(t,
                          "--compat %s fills bins, so padding is not possible",
                          o->rule.packer->name);
    return 0;
}

/* Decides on the order of the bins: a directory is shuffled unless the order
 * was asked for, is that of another system, or is made by --balance. */
static void set_order(struct pack_options *o)
{
    bool given = tool_given(o->t, "shuffle");
    bool ordered = o->rule.compat || o->rule.rows || o->rule.parts ||
                   o->keeps_order || o->balance.what != PACK_BALANCE_NONE;
    if (!given)
        o->shuffle = PP_PACK_SEED;
    o->shuffled = given || (o->t->output && !o->input.from_lengths && !ordered);
}

int pack_read_options(struct pack_options *o, int argc, char **argv)
{
    struct tool *t = o->t;
    t->base = o;
    if (tool_read_options(t, argc, argv) || tool_check_options(t))
        return -1;
    set_order(o);
    if (o->stats && !o->capacity && optind + 1 == argc &&
        pp_file_is_dir(argv[optind])) {
        o->stats_of = argv[optind];
        return 0;
    }
    return o->export_to || o->check || o->realign ? check_directory(o, argc)
                                                  : check_packing(o, argc);
}
