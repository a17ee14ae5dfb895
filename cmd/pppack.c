/* SPDX-License-Identifier: MIT */
/* pppack - packs documents into microbatches of at most a given number of
 * tokens. Options and messages; the work is in lib/plan and lib/data. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "data/jsonl.h"
#include "data/lengths.h"
#include "data/packed.h"
#include "data/packed_write.h"
#include "data/pieces.h"
#include "plan/pack.h"
#include "tool.h"

enum {
    ROWS = TOOL_LONG,
    PAD_TO,
    CP,
    TP,
    BINS_MULTIPLE,
    OVERSIZE,
    EMPTY,
    SHUFFLE,
    BYTES,
    LENGTHS,
    STATS,
    CHECK
};

static const struct tool_option options[] = {
    {'l', "capacity", "TOKENS", "the most tokens of a bin, padding included"},
    {'a', "algorithm", "RULE", "best (default), bfd, ffd, next-fit, none"},
    {ROWS, "rows", "N", "with -a none: sequences of a bin"},
    {PAD_TO, "pad-to", "N", "pad each sequence to a multiple of N"},
    {CP, "cp", "N", "and to what N context-parallel ranks need"},
    {TP, "tp", "N", "and to what N tensor-parallel ranks need"},
    {BINS_MULTIPLE, "bins-multiple", "N", "make a multiple of N bins"},
    {OVERSIZE, "oversize", "WHAT", "error (default), truncate, split or drop"},
    {EMPTY, "empty", "WHAT", "documents without tokens: error (default), drop"},
    {SHUFFLE, "shuffle", "SEED", "put the bins in an order drawn from SEED"},
    {BYTES, "bytes", NULL, "tokens are the bytes of \"text\", then 256"},
    {LENGTHS, "lengths", NULL, "read a length per line, print bins of indices"},
    {STATS, "stats", NULL, "print statistics as JSON"},
    {CHECK, "check", "DIR", "check a packed directory: 0 consistent, 1 not"},
    {0},
};

/* In the order of enum pp_oversize. */
static const char *const oversize_words[] = {"error", "truncate", "split",
                                             "drop", NULL};
static const char *const empty_words[] = {"error", "drop", NULL};

struct job {
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

static int parse_word(struct tool *t, const char *s, const char *what,
                      const char *const *words, int *out)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(s, words[i])) {
            *out = i;
            return 0;
        }
    return tool_usage(t, "%s: '%s' is not a known word", what, s);
}

static int parse_capacity(struct job *j, const char *s)
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

static int parse_count(struct job *j, const char *what, int64_t *out)
{
    return pp_parse_int(optarg, what, 1, INT32_MAX, out, &j->t.err);
}

static int take_option(struct job *j, int c)
{
    switch (c) {
    case 'l':
        return parse_capacity(j, optarg);
    case 'a':
        j->rule = pp_packer_find(optarg);
        return j->rule ? 0 : tool_usage(&j->t, "-a: no rule '%s'", optarg);
    case ROWS:
        return parse_count(j, "--rows", &j->rows);
    case PAD_TO:
        return parse_count(j, "--pad-to", &j->pad_to);
    case CP:
        return parse_count(j, "--cp", &j->cp);
    case TP:
        return parse_count(j, "--tp", &j->tp);
    case BINS_MULTIPLE:
        return parse_count(j, "--bins-multiple", &j->bins_multiple);
    case OVERSIZE:
        return parse_word(&j->t, optarg, "--oversize", oversize_words,
                          &j->oversize);
    case EMPTY:
        return parse_word(&j->t, optarg, "--empty", empty_words,
                          &j->drop_empty);
    case SHUFFLE:
        j->shuffled = true;
        return pp_parse_int(optarg, "--shuffle", 0, INT64_MAX, &j->shuffle,
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

static int set_align(struct job *j)
{
    uint32_t chunks = j->cp > 1 ? 2 * (uint32_t)j->cp : 1;
    j->align =
        pp_pieces_align((uint32_t)j->pad_to, (uint32_t)j->cp, (uint32_t)j->tp);
    if (j->capacity % chunks)
        return tool_usage(&j->t,
                          "-l: '%" PRIu32 "' is not a multiple of %" PRIu32
                          " (2 x cp)",
                          j->capacity, chunks);
    if (!j->align || j->align > j->capacity)
        return tool_usage(&j->t,
                          "-l: '%" PRIu32 "' is less than the least multiple "
                          "that sequences are padded to",
                          j->capacity);
    return 0;
}

static int check_options(struct job *j, int argc)
{
    struct tool *t = &j->t;
    bool none = !strcmp(j->rule->name, "none");
    if (j->check) {
        if (optind < argc || j->capacity || t->output || j->from_lengths)
            return tool_usage(t, "--check takes no input and no output");
        return 0;
    }
    if (!j->capacity)
        return tool_usage(t, "a capacity is needed (-l)");
    if (j->from_lengths && j->bytes)
        return tool_usage(t, "--lengths and --bytes exclude each other");
    if (!t->output && !j->from_lengths && !j->stats)
        return tool_usage(t, "an output directory is needed (-o)");
    if (none != (j->rows > 0))
        return tool_usage(t, "-a none and --rows need each other");
    if (none && j->bins_multiple > 1)
        return tool_usage(t, "-a none makes no --bins-multiple");
    if (none && j->rows > INT32_MAX / (int64_t)j->capacity)
        return tool_usage(t, "--rows: '%" PRId64 "' is too many", j->rows);
    if (optind == argc && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "documents are expected");
    return set_align(j);
}

static void show_read(void *ctx, size_t line, size_t bytes)
{
    struct job *j = ctx;
    char size[32];
    if (line % 256)
        return;
    pp_format_size(bytes, size);
    tool_progress(&j->t, "%s: %zu lines, %s", j->name, line, size);
}

static void show_written(void *ctx, size_t bins)
{
    struct job *j = ctx;
    tool_progress(&j->t, "writing: bin %zu of %zu", bins, j->bins.n_bins);
}

static int read_documents(struct job *j, FILE *f)
{
    struct pp_jsonl reader = {
        .name = j->name,
        .bytes = j->bytes,
        .allow_empty = j->drop_empty,
        .progress = show_read,
        .ctx = j,
    };
    return pp_jsonl_read(&reader, f, &j->docs, &j->t.err);
}

static int read_input(struct job *j, const char *name)
{
    bool in = !strcmp(name, "-");
    FILE *f = in ? stdin : fopen(name, "re");
    j->name = in ? "standard input" : name;
    if (!f)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: %s", name,
                       strerror(errno));
    int rc = j->from_lengths ? pp_lengths_read(j->name, f, &j->docs, show_read,
                                               j, &j->t.err)
                             : read_documents(j, f);
    if (!in)
        fclose(f);
    return rc;
}

static int read_inputs(struct job *j, int argc, char **argv)
{
    if (optind == argc)
        return read_input(j, "-");
    for (int i = optind; i < argc; i++)
        if (read_input(j, argv[i]) != 0)
            return -1;
    return 0;
}

static int pack(struct job *j)
{
    struct pp_err *err = &j->t.err;
    if (pp_pieces_make(&j->docs, j->capacity, j->align,
                       (enum pp_oversize)j->oversize, j->drop_empty, &j->pieces,
                       err) != 0)
        return -1;
    uint32_t room = j->rows ? (uint32_t)j->rows : j->capacity;
    if (j->rule->pack(j->pieces.slots, j->pieces.n, room, &j->bins, err) != 0)
        return -1;
    if (j->rows) {
        const struct pp_bins *bins = &j->bins;
        for (size_t b = 0; b < bins->n_bins; b++)
            pp_pieces_even(&j->pieces, bins->items + bins->first[b],
                           bins->first[b + 1] - bins->first[b]);
        j->capacity *= (uint32_t)j->rows;
    }
    if (j->bins.n_bins > 0 &&
        pp_bins_multiple(&j->bins, j->pieces.slots, j->capacity,
                         (size_t)j->bins_multiple, err) != 0)
        return -1;
    return j->shuffled ? pp_bins_shuffle(&j->bins, (uint64_t)j->shuffle, err)
                       : 0;
}

/* A bin per line; sequences are triples where some may be parts of inputs. */
static int print_bins(struct job *j)
{
    FILE *f = tool_output(&j->t);
    bool parts =
        j->oversize == PP_OVERSIZE_SPLIT || j->oversize == PP_OVERSIZE_TRUNCATE;
    if (!f)
        return -1;
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++) {
            const struct pp_piece *q = &j->pieces.piece[j->bins.items[i]];
            fputs(i == j->bins.first[b] ? "[" : ", ", f);
            if (parts)
                fprintf(f, "[%" PRIu32 ", %" PRIu32 ", %" PRIu32 "]", q->source,
                        q->start, q->length);
            else
                fprintf(f, "%" PRIu32, q->source);
        }
        fputs("]\n", f);
    }
    return 0;
}

static uint64_t count_scored(const struct job *j)
{
    const int32_t *labels = j->docs.labels ? j->docs.labels : j->docs.ids;
    uint64_t n = 0;
    for (size_t i = 0; i < j->pieces.n; i++)
        for (size_t k = 1; k < j->pieces.piece[i].length; k++)
            n += labels[j->pieces.piece[i].at + k] != PP_LABEL_IGNORE;
    return n;
}

static int print_stats(struct job *j)
{
    size_t bound = j->bins.n_bins;
    uint64_t slots = 0;
    char efficiency[32];
    const struct pp_pieces *p = &j->pieces;
    /* With a directory -o is taken: stdout. */
    FILE *f = j->from_lengths ? tool_output(&j->t) : stdout;
    if (!f)
        return -1;
    if (!j->rows && pp_pack_lower_bound(p->slots, p->n, j->capacity, &bound,
                                        &j->t.err) != 0)
        return -1;
    for (size_t i = 0; i < p->n; i++)
        slots += p->piece[i].slot;
    double room = (double)j->bins.n_bins * (double)j->capacity;
    pp_format_real(room > 0 ? (double)p->n_tokens / room : 0, efficiency);
    fprintf(f,
            "{\n  \"algorithm\": \"%s\",\n  \"inputs\": %zu,\n"
            "  \"sequences\": %zu,\n  \"tokens\": %" PRIu64 ",\n",
            j->rule->name, j->docs.n, p->n, p->n_tokens);
    if (!j->from_lengths)
        fprintf(f, "  \"scored\": %" PRIu64 ",\n", count_scored(j));
    fprintf(f,
            "  \"bins\": %zu,\n  \"lower_bound\": %zu,\n"
            "  \"capacity\": %" PRIu32 ",\n  \"align\": %" PRIu32 ",\n"
            "  \"padding\": %" PRIu64 ",\n  \"efficiency\": %s,\n",
            j->bins.n_bins, bound, j->capacity, j->align, slots - p->n_tokens,
            efficiency);
    fprintf(f,
            "  \"empty\": %zu,\n  \"dropped\": %zu,\n  \"truncated\": %zu,\n"
            "  \"split\": %zu\n}\n",
            p->n_empty, p->n_dropped, p->n_truncated, p->n_split);
    return 0;
}

static int write_directory(struct job *j)
{
    const struct pp_packed_content content = {
        .ids = j->docs.ids,
        .labels = j->docs.labels,
        .pieces = j->pieces.piece,
        .n_bins = j->bins.n_bins,
        .first = j->bins.first,
        .items = j->bins.items,
        .n_inputs = j->docs.n,
        .capacity = j->capacity,
        .align = j->align,
        .progress = show_written,
        .ctx = j,
    };
    if (j->bins.n_bins == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "there is nothing to pack");
    return pp_packed_write(j->t.output, &content, &j->t.err);
}

static int check_directory(struct job *j)
{
    struct pp_packed p;
    if (pp_packed_open(j->check, &p, &j->t.err) != 0)
        return -1;
    int rc = pp_packed_check(&p, &j->t.err);
    if (rc != 0)
        pp_fail_at(&j->t.err, "%s: ", j->check);
    else
        tool_say(&j->t, PP_LOG_DETAIL, "%s: %zu bins, consistent", j->check,
                 p.n_bins);
    pp_packed_finish(&p);
    return rc;
}

static int run(struct job *j, int argc, char **argv)
{
    if (check_options(j, argc) != 0)
        return -1;
    if (j->check)
        return check_directory(j);
    bool directory = j->t.output && !j->from_lengths;
    if (directory && pp_packed_may_write(j->t.output, &j->t.err) != 0)
        return -1;
    if (read_inputs(j, argc, argv) != 0 || pack(j) != 0)
        return -1;
    if (directory && write_directory(j) != 0)
        return -1;
    if (j->stats)
        return print_stats(j);
    return directory ? 0 : print_bins(j);
}

int main(int argc, char **argv)
{
    struct job j = {
        .t = {.name = "pppack",
              .synopsis = "-l TOKENS [options] -o DIR [FILE...]",
              .summary = "Pack documents into microbatches of at most a given "
                         "number of tokens.",
              .options = options},
        .rule = pp_packer_find("best"),
        .pad_to = 1,
        .cp = 1,
        .tp = 1,
        .bins_multiple = 1,
    };
    int c, rc = 0;
    while (rc == 0 && (c = tool_option(&j.t, argc, argv)) != TOOL_END) {
        if (c == TOOL_STOP)
            return tool_finish(&j.t);
        rc = take_option(&j, c);
    }
    if (rc == 0)
        run(&j, argc, argv);
    pp_bins_finish(&j.bins);
    pp_pieces_finish(&j.pieces);
    pp_documents_finish(&j.docs);
    return tool_finish(&j.t);
}
