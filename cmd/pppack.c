/* SPDX-License-Identifier: MIT */
/* pppack - packs documents into microbatches of at most a given number of
 * tokens. Options and messages; the work is in lib/plan and lib/data. */
#include "pppack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_write.h"

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

static int parse_count(struct pack_job *j, const char *what, int64_t *out)
{
    return pp_parse_int(optarg, what, 1, INT32_MAX, out, &j->t.err);
}

static int take_option(struct pack_job *j, int c)
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

static int set_align(struct pack_job *j)
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

static int check_options(struct pack_job *j, int argc)
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

static void show_written(void *ctx, size_t bins)
{
    struct pack_job *j = ctx;
    tool_progress(&j->t, "writing: bin %zu of %zu", bins, j->bins.n_bins);
}

static int pack(struct pack_job *j)
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

static int write_directory(struct pack_job *j)
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

static int check_directory(struct pack_job *j)
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

static int run(struct pack_job *j, int argc, char **argv)
{
    if (check_options(j, argc) != 0)
        return -1;
    if (j->check)
        return check_directory(j);
    bool directory = j->t.output && !j->from_lengths;
    if (directory && pp_packed_may_write(j->t.output, &j->t.err) != 0)
        return -1;
    if (pack_read(j, argc, argv) != 0 || pack(j) != 0)
        return -1;
    if (directory && write_directory(j) != 0)
        return -1;
    if (j->stats)
        return pack_print_stats(j);
    return directory ? 0 : pack_print_bins(j);
}

int main(int argc, char **argv)
{
    struct pack_job j = {
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
