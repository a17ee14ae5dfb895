/* SPDX-License-Identifier: MIT */
/* pppack_options - the command line of pppack. */
#include "pppack.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "plan/pack_rule.h"

enum {
    ROWS = TOOL_LONG,
    PARTS,
    EQUAL_SIZE,
    PAD_TO,
    CP,
    TP,
    FP8,
    PER_RANK,
    COMPAT,
    BINS_MIN,
    BINS_MULTIPLE,
    BALANCE,
    DP,
    MANIFEST,
    OVERSIZE,
    EMPTY,
    SHUFFLE,
    SPLIT,
    SKIP_BAD,
    INDEX_ONLY,
    MODES,
    EXPORT,
    SEED,
    BYTES,
    LENGTHS,
    STATS,
    CHECK
};

const struct tool_option pack_options[] = {
    {'l', "capacity", "TOKENS", "the most tokens of a bin, padding included"},
    {'a', "algorithm", "RULE", "how bins are chosen; best without it"},
    {COMPAT, "compat", "SYSTEM", "make the bins of another system's packer"},
    {ROWS, "rows", "N", "with -a none: sequences of a bin"},
    {PARTS, "parts", "N", "with -a lpt or karmarkar-karp: make N bins"},
    {EQUAL_SIZE, "equal-size", NULL, "with --parts: of as many sequences each"},
    {PAD_TO, "pad-to", "N", "pad each sequence to a multiple of N"},
    {CP, "cp", "N", "and to what N context-parallel ranks need"},
    {TP, "tp", "N", "and to what N tensor-parallel ranks need"},
    {FP8, "fp8", "RECIPE", "and bins: tensorwise, mxfp8 or blockwise"},
    {PER_RANK, "per-rank", NULL, "-l is of one context-parallel rank"},
    {BINS_MIN, "bins-min", "N", "make at least N bins"},
    {BINS_MULTIPLE, "bins-multiple", "N", "make a multiple of N bins"},
    {BALANCE, "balance", "WHAT", "make bins alike in tokens or flops"},
    {DP, "dp", "N", "with --balance: N lanes run a bin each at a time"},
    {MANIFEST, "manifest", "FILE", "the plan: costs, lanes; gets the data"},
    {OVERSIZE, "oversize", "WHAT", "error (default), truncate, split or drop"},
    {EMPTY, "empty", "WHAT", "documents without tokens: error (default), drop"},
    {SHUFFLE, "shuffle", "SEED", "put the bins in an order drawn from SEED"},
    {SPLIT, "split", "SHARES", "into train, valid and test: 98,1,1"},
    {SKIP_BAD, "skip-bad", "N", "leave out up to N malformed lines"},
    {INDEX_ONLY, "index-only", NULL, "leave the tokens in their .bin files"},
    {MODES, "modes", "LIST", "the modes of indexed sequences to take: 0,1"},
    {EXPORT, "export", "FORMAT", "write a packed DIR as megatron, safetensors"},
    {SEED, "seed", "N", "of rules that draw: first-fit-shuffle; 42 without it"},
    {BYTES, "bytes", NULL, "tokens are the bytes of \"text\", then 256"},
    {LENGTHS, "lengths", NULL, "read a length per line, print bins of indices"},
    {STATS, "stats", NULL, "print statistics as JSON"},
    {CHECK, "check", "DIR", "check a packed directory: 0 consistent, 1 not"},
    {0},
};

/* In the order of enum pp_oversize. */
static const char *const oversize_words[] = {"error", "truncate", "split",
                                             "drop", NULL};
/* In the order of fp8_tokens. */
static const char *const fp8_words[] = {"none", "tensorwise", "mxfp8",
                                        "blockwise", NULL};
/* What a rank's tokens of a bin must be a multiple of. */
static const uint32_t fp8_tokens[] = {1, 16, 32, 128};
/* In the order of enum pack_balance. */
static const char *const balance_words[] = {"none", "tokens", "flops", NULL};
static const char *const empty_words[] = {"error", "drop", NULL};

static int parse_word(struct tool *t, const char *s, const char *what,
                      const char *const *words, int *out)
{
    int i = tool_word(t, what, s, words);
    if (i >= 0)
        *out = i;
    return i < 0 ? -1 : 0;
}

static int parse_capacity(struct pack_job *j, const char *s)
{
    size_t v;
    if (pp_parse_size(s, "-l", &v, &j->t.err) != 0)
        return -1;
    if (v < 1 || v > INT32_MAX)
        return tool_usage(&j->t, "-l: '%s' is not between 1 and %d", s,
                          INT32_MAX);
    j->capacity = (uint32_t)v;
    return 0;
}

/* Of rules, or of other systems: more than there are of either. */
enum { MAX_NAMES = 32 };

static int parse_rule(struct pack_job *j, const char *s)
{
    const char *names[MAX_NAMES + 1] = {NULL};
    for (int i = 0; i < MAX_NAMES && pp_packers[i].name; i++)
        names[i] = pp_packers[i].name;
    int i = tool_word(&j->t, "-a", s, names);
    if (i >= 0)
        j->rule = &pp_packers[i];
    return i < 0 ? -1 : 0;
}

static int parse_compat(struct pack_job *j, const char *s)
{
    const char *names[MAX_NAMES + 1] = {NULL};
    for (int i = 0; i < MAX_NAMES && pack_compats[i].packer.name; i++)
        names[i] = pack_compats[i].packer.name;
    int i = tool_word(&j->t, "--compat", s, names);
    if (i >= 0)
        j->compat = &pack_compats[i];
    return i < 0 ? -1 : 0;
}

static int parse_count(struct pack_job *j, const char *what, int64_t *out)
{
    return pp_parse_int(optarg, what, 1, INT32_MAX, out, &j->t.err);
}

int pack_take_option(struct pack_job *j, int c)
{
    switch (c) {
    case 'l':
        return parse_capacity(j, optarg);
    case 'a':
        return parse_rule(j, optarg);
    case COMPAT:
        return parse_compat(j, optarg);
    case ROWS:
        return parse_count(j, "--rows", &j->rows);
    case PARTS:
        return parse_count(j, "--parts", &j->parts);
    case EQUAL_SIZE:
        j->equal_size = true;
        return 0;
    case PAD_TO:
        return parse_count(j, "--pad-to", &j->pad_to);
    case CP:
        return parse_count(j, "--cp", &j->cp);
    case TP:
        return parse_count(j, "--tp", &j->tp);
    case FP8:
        return parse_word(&j->t, optarg, "--fp8", fp8_words, &j->fp8);
    case PER_RANK:
        j->per_rank = true;
        return 0;
    case BINS_MIN:
        return parse_count(j, "--bins-min", &j->bins_min);
    case BINS_MULTIPLE:
        return parse_count(j, "--bins-multiple", &j->bins_multiple);
    case BALANCE:
        return parse_word(&j->t, optarg, "--balance", balance_words,
                          &j->balance);
    case DP:
        return parse_count(j, "--dp", &j->dp);
    case MANIFEST:
        j->manifest_name = optarg;
        return 0;
    case OVERSIZE:
        j->has_oversize = true;
        return parse_word(&j->t, optarg, "--oversize", oversize_words,
                          &j->oversize);
    case EMPTY:
        return parse_word(&j->t, optarg, "--empty", empty_words,
                          &j->drop_empty);
    case SHUFFLE:
        j->shuffled = true;
        return pp_parse_int(optarg, "--shuffle", 0, INT64_MAX, &j->shuffle,
                            &j->t.err);
    case SPLIT:
        j->parts_wanted = optarg;
        return pack_parse_shares(j);
    case SKIP_BAD:
        return pp_parse_int(optarg, "--skip-bad", 0, INT64_MAX, &j->skip_bad,
                            &j->t.err);
    case INDEX_ONLY:
        j->index_only = true;
        return 0;
    case MODES:
        return pack_parse_modes(j, optarg);
    case EXPORT:
        j->export_to = optarg;
        return 0;
    case SEED:
        j->seeded = true;
        return pp_parse_int(optarg, "--seed", 0, INT64_MAX, &j->seed,
                            &j->t.err);
    case BYTES:
        j->bytes = true;
        return 0;
    case LENGTHS:
        j->from_lengths = true;
        return 0;
    case STATS:
        j->stats = true;
        return 0;
    default:
        j->check = optarg;
        return 0;
    }
}

/* With --per-rank the capacity of a bin is that of all context-parallel ranks.
 */
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

/* The capacity is one of a full bin: a multiple of what its row must be. */
static int check_capacity(struct pack_job *j, uint32_t multiple,
                          const char *what)
{
    uint32_t below = j->capacity / multiple * multiple;
    if (j->capacity == below)
        return 0;
    char text[64];
    if (below)
        snprintf(text, sizeof text, "%" PRIu32 " and %" PRIu64 " are", below,
                 (uint64_t)below + multiple);
    else
        snprintf(text, sizeof text, "%" PRIu32 " is the least", multiple);
    return tool_usage(
        &j->t, "-l: '%" PRIu32 "' is not a multiple of %" PRIu32 " (%s); %s",
        j->capacity, multiple, what, text);
}

static int set_align(struct pack_job *j)
{
    uint32_t pad_to = (uint32_t)j->pad_to, cp = (uint32_t)j->cp,
             tp = (uint32_t)j->tp;
    j->align = j->compat && j->compat->multiplies
                   ? pp_pieces_align_product(pad_to, cp, tp)
                   : pp_pieces_align(pad_to, cp, tp);
    if (set_capacity(j) != 0 ||
        check_capacity(j, cp > 1 ? 2 * cp : 1, "2 x cp") != 0)
        return -1;
    if (!j->align || j->align > j->capacity)
        return tool_usage(&j->t,
                          "-l: '%" PRIu32 "' is less than the least multiple "
                          "that sequences are padded to",
                          j->capacity);
    if (j->align > INT32_MAX / fp8_tokens[j->fp8])
        return tool_usage(&j->t, "--fp8: rows would be longer than %d tokens",
                          INT32_MAX);
    j->row = j->align * fp8_tokens[j->fp8];
    return j->fp8 ? check_capacity(j, j->row, "--fp8") : 0;
}

/* What another system's packer decides, and what it cannot do. */
static int check_compat(struct pack_job *j)
{
    const struct pack_compat *c = j->compat;
    struct tool *t = &j->t;
    if (j->rule)
        return tool_usage(t, "--compat and -a exclude each other");
    if (j->has_oversize && c->decides_oversize)
        return tool_usage(t, "--compat %s decides about --oversize",
                          c->packer.name);
    if (!c->pops && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t,
                          "--compat %s knows no --bins-min and no "
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
        return tool_usage(t, "-a none and --rows need each other");
    if (none && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t, "-a none makes no --bins-multiple");
    if (none && j->rows > INT32_MAX / (int64_t)j->capacity)
        return tool_usage(t, "--rows: '%" PRId64 "' is too many", j->rows);
    if (j->seeded && !j->rule->draw)
        return tool_usage(t, "--seed: %s draws nothing", j->rule->name);
    if (j->parts && !j->rule->divide)
        return tool_usage(t, "--parts: %s makes as many bins as it needs",
                          j->rule->name);
    if (j->equal_size && (!j->parts || j->rule->divide != pp_parts_kk))
        return tool_usage(t, "--equal-size needs --parts and karmarkar-karp");
    if (j->parts && (j->bins_multiple > 1 || j->bins_min > 0))
        return tool_usage(t, "--parts says how many bins there are");
    return 0;
}

static int check_export(struct pack_job *j, int argc)
{
    struct tool *t = &j->t;
    if (strcmp(j->export_to, "megatron") && strcmp(j->export_to, "safetensors"))
        return tool_usage(t,
                          "--export: no format '%s'; there are megatron, "
                          "safetensors",
                          j->export_to);
    if (optind + 1 != argc || !t->output || j->capacity)
        return tool_usage(t, "--export takes a packed directory, and -o");
    return 0;
}

/* Options about files, which lengths are not. */
static int check_files(struct pack_job *j)
{
    struct tool *t = &j->t;
    bool directory = t->output && !j->from_lengths;
    if (j->parts_wanted && !directory)
        return tool_usage(t, "--split needs an output directory (-o)");
    if (j->index_only && !directory)
        return tool_usage(t, "--index-only needs an output directory (-o)");
    if (j->skip_bad && j->from_lengths)
        return tool_usage(t, "--skip-bad is about lines of JSON");
    return 0;
}

static int check_balance(struct pack_job *j, int argc)
{
    struct tool *t = &j->t;
    const char *name = j->manifest_name;
    if (name && !strcmp(name, "-") &&
        (optind == argc || j->stats || j->from_lengths))
        return tool_usage(t, "--manifest - needs input files, and prints "
                             "nothing but the manifest");
    if (name && j->parts_wanted)
        return tool_usage(t, "--split and --manifest exclude each other: a "
                             "plan names one directory; ppsched --data adds "
                             "it");
    if (j->dp && j->balance == PACK_BALANCE_NONE)
        return tool_usage(t, "--dp needs --balance");
    if (j->balance == PACK_BALANCE_NONE)
        return 0;
    if (j->compat || j->rows || j->shuffled)
        return tool_usage(t, "--balance excludes --compat, --rows and "
                             "--shuffle, which say what the order is");
    if (j->balance == PACK_BALANCE_FLOPS && !name)
        return tool_usage(t, "--balance flops needs --manifest");
    return 0;
}

int pack_check_options(struct pack_job *j, int argc)
{
    struct tool *t = &j->t;
    if (j->export_to)
        return check_export(j, argc);
    if (j->check) {
        if (optind < argc || j->capacity || t->output || j->from_lengths)
            return tool_usage(t, "--check takes no input and no output");
        return 0;
    }
    if (!j->capacity)
        return tool_usage(t, "a capacity is needed (-l)");
    if (j->from_lengths && j->bytes)
        return tool_usage(t, "--lengths and --bytes exclude each other");
    if (check_files(j) != 0)
        return -1;
    if (!t->output && !j->from_lengths && !j->stats)
        return tool_usage(t, "an output directory is needed (-o)");
    if (j->compat && check_compat(j) != 0)
        return -1;
    if (!j->rule)
        j->rule = pp_packer_find("best");
    if (check_rule(j) != 0)
        return -1;
    if (check_balance(j, argc) != 0)
        return -1;
    if (optind == argc && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "documents are expected");
    if (set_align(j) != 0)
        return -1;
    if (j->compat && j->compat->wraps && j->row > 1)
        return tool_usage(t, "--compat %s leaves no room for padding",
                          j->rule->name);
    return 0;
}
