/* SPDX-License-Identifier: MIT */
/* pppack - packs documents into microbatches of at most a given number of
 * tokens. It runs the steps and prints bins and statistics; the work is in
 * lib/pack and lib/data. */
#include "pppack.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "data/packed/packed.h"
#include "pack/rule.h"

/* Packs by a rule that reads the lengths without padding. */
static void choose_unpadded(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    uint32_t *lengths = pp_calloc(p->n, sizeof *lengths);
    for (size_t i = 0; i < p->n; i++)
        lengths[i] = p->piece[i].length;
    j->o->rule.packer->unpadded(lengths, p->padded, p->n, j->capacity,
                                &j->bins);
    free(lengths);
}

size_t pack_row_sizes(const struct pack_job *j,
                      struct pp_pack_size sizes[PP_N_MODALITIES])
{
    size_t n = 0;
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        uint32_t limit = pack_row_limit(j->in, (enum pp_modality)m);
        if (limit && j->pieces.rows[m])
            sizes[n++] = (struct pp_pack_size){j->pieces.rows[m], limit};
    }
    return n;
}

/* Returns what a piece is: pairs stay whole, groups of responses do not. */
static const char *piece_noun(const struct pack_job *j)
{
    static const char *const nouns[PP_DATA_N_KINDS] = {
        [PP_DATA_DOCUMENTS] = "sequences",
        [PP_DATA_PAIRS] = "pairs",
        [PP_DATA_ROLLOUTS] = "responses"};
    return nouns[j->in->docs.kind];
}

/* Refuses sequences that the rule cannot pack. */
static int check_rule(const struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    const struct pack_rule *rule = &j->o->rule;
    for (size_t i = 0; i < p->n && rule->packer->no_empty; i++)
        if (p->padded[i] == 0)
            return pp_fail(&j->t->err, PP_EXIT_INPUT,
                           "%s takes no empty sequences, but sequence '%zu' is "
                           "empty",
                           rule->packer->name, i);
    if ((size_t)rule->parts > p->n)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "--parts: '%" PRId64
                       "' bins need as many %s, but there are %zu",
                       rule->parts, piece_noun(j), p->n);
    if (rule->equal_size && p->n % (size_t)rule->parts)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "'%zu' sequences cannot be divided into %" PRId64
                       " parts of equal size",
                       p->n, rule->parts);
    return 0;
}

/* Packs the sequences by the rule. */
static void choose_bins(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    const struct pack_rule *rule = &j->o->rule;
    uint32_t room = rule->rows ? (uint32_t)rule->rows : j->capacity;
    struct pp_pack_size sizes[1 + PP_N_MODALITIES] = {{p->padded, room}};
    size_t n_sizes = 1 + pack_row_sizes(j, sizes + 1);
    if (n_sizes > 1)
        pp_pack_sizes(sizes, n_sizes, p->n, &j->bins);
    else if (!rule->parts && rule->packer->draw)
        rule->packer->draw(p->padded, p->n, room, (uint64_t)rule->seed,
                           &j->bins);
    else if (rule->packer->unpadded && j->o->align > 1)
        choose_unpadded(j);
    else if (!rule->parts)
        rule->packer->pack(p->padded, p->n, room, &j->bins);
    else
        (rule->equal_size ? pp_parts_kk_equal : rule->packer->divide)(
            p->padded, p->n, (size_t)rule->parts, &j->bins);
}

/* Checks the loads: rules that divide into parts know no capacity. */
static int check_loads(struct pack_job *j)
{
    if (!j->o->rule.packer->divide)
        return 0;
    uint64_t most = pp_bins_largest(&j->bins, j->pieces.padded);
    if (most > j->capacity)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "a bin would hold '%" PRIu64
                       "' tokens, but its capacity "
                       "is %" PRIu32 "; try more --parts",
                       most, j->capacity);
    return 0;
}

static int raise_bins(struct pack_job *j)
{
    size_t least = (size_t)j->o->rule.bins_min,
           multiple = (size_t)j->in->bins_multiple;
    if (j->bins.n_bins == 0 && least == 0)
        return 0;
    j->bins.noun = piece_noun(j);
    if (j->o->rule.compat && j->o->rule.compat->raise)
        return j->o->rule.compat->raise(&j->bins, least, multiple, &j->t->err);
    /* Giving items away keeps to any capacity. */
    if (j->o->items.patches || j->o->items.audio_rows)
        return pp_bins_multiple_by_popping(&j->bins, least, multiple,
                                           &j->t->err);
    return pp_bins_multiple(&j->bins, j->pieces.padded, j->capacity, least,
                            multiple, &j->t->err);
}

/* Computes the lower bound. It must run before rows are padded. */
static void certify(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    struct pp_pack_size sizes[PP_N_MODALITIES];
    size_t n_sizes = pack_row_sizes(j, sizes);
    j->lower_bound = j->bins.n_bins;
    if (j->o->rule.rows)
        return;
    pp_pack_certify(p->padded, p->n, j->capacity, j->bins.n_bins,
                    &j->lower_bound);
    for (size_t k = 0; k < n_sizes; k++) {
        size_t bound = 0;
        pp_pack_lower_bound(sizes[k].sizes, p->n, sizes[k].capacity, &bound);
        if (bound > j->lower_bound)
            j->lower_bound = bound;
    }
}

/* Pads bins to a multiple of the row. */
static void fill_rows(struct pack_job *j)
{
    const struct pp_bins *bins = &j->bins;
    for (size_t b = 0; j->o->row > j->o->align && b < bins->n_bins; b++)
        pp_pieces_pad_bin(&j->pieces, bins->items + bins->first[b],
                          bins->first[b + 1] - bins->first[b], j->o->row);
}

static struct pp_piece_options piece_options(const struct pack_job *j)
{
    return (struct pp_piece_options){
        .capacity = j->o->capacity,
        .align = j->o->align,
        .oversize = (enum pp_oversize)j->o->input.oversize,
        .drop_empty = j->o->input.drop_empty,
        .rows = {pack_row_limit(j->in, PP_MODALITY_IMAGES),
                 pack_row_limit(j->in, PP_MODALITY_AUDIO)},
        .first = j->first_document,
        .end = j->first_document + j->n_documents,
    };
}

/* Makes pairs and responses fit into bins. */
static int cut(struct pack_job *j)
{
    const struct pp_piece_options o = piece_options(j);
    return pp_documents_cut(&j->in->docs, &o, &j->t->err);
}

static int pack(struct pack_job *j)
{
    struct pp_err *err = &j->t->err;
    const struct pp_piece_options o = piece_options(j);
    j->capacity = j->o->capacity;
    j->epoch = (struct pp_epoch_order){.block = j->o->shuffled,
                                       .seed = (uint64_t)j->o->shuffle};
    int rc = j->o->rule.compat && j->o->rule.compat->wraps
                 ? pp_pieces_wrap(&j->in->docs, &o, &j->pieces, err)
                 : pp_pieces_make(&j->in->docs, &o, &j->pieces, err);
    j->made_s = pp_clock();
    if (rc != 0 && j->o->rule.compat && j->o->rule.compat->wraps)
        return pp_fail_at(err, "--compat %s: ", j->o->rule.compat->packer.name);
    if (rc != 0 || check_rule(j) != 0)
        return -1;
    choose_bins(j);
    if (j->o->rule.rows) {
        const struct pp_bins *bins = &j->bins;
        for (size_t b = 0; b < bins->n_bins; b++)
            pp_pieces_pad_evenly(&j->pieces, bins->items + bins->first[b],
                                 bins->first[b + 1] - bins->first[b]);
        j->capacity *= (uint32_t)j->o->rule.rows;
    }
    if (check_loads(j) != 0 || raise_bins(j) != 0)
        return -1;
    if (j->o->stats)
        certify(j);
    if (j->o->shuffled)
        pp_bins_shuffle(&j->bins, (uint64_t)j->o->shuffle);
    if (pack_balance(j) != 0)
        return -1;
    fill_rows(j);
    return 0;
}

/* Prints one index. There may be tens of millions, and printf would take longer
 * than packing. */
static void print_index(uint32_t v, bool first, FILE *f)
{
    char text[16];
    char *end = text + sizeof text, *at = end;
    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    *--at = first ? '[' : ' ';
    if (!first)
        *--at = ',';
    fwrite_unlocked(at, 1, (size_t)(end - at), f);
}

static void print_piece(const struct pp_piece *q, bool first, FILE *f)
{
    fprintf(f, "%s[%" PRIu32 ", %" PRIu32 ", %" PRIu32 "]", first ? "[" : ", ",
            q->source, q->start, q->length);
}

/* Prints a line per bin with arrays (index, start, length, first rank, ranks).
 */
static void print_places(const struct pack_job *j, FILE *f)
{
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++) {
            const struct pp_piece *q = &j->pieces.piece[j->bins.items[i]];
            fprintf(f, "%s[%" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %d, %d]",
                    i == j->bins.first[b] ? "[" : ", ", q->source, q->start,
                    q->length, j->ranks[i].first, j->ranks[i].n);
        }
        fputs("]\n", f);
    }
}

/* Prints a line per bin with the indices of its documents, or triples (index,
 * start, length) if documents may be cut. */
static int print_bins(struct pack_job *j)
{
    FILE *f = tool_output(j->t);
    bool parts = j->o->input.oversize == PP_OVERSIZE_SPLIT ||
                 j->o->input.oversize == PP_OVERSIZE_TRUNCATE;
    /* If pieces are the documents, they need no look-up. */
    bool whole = j->pieces.n == j->in->docs.n;
    if (!f)
        return -1;
    if (j->o->mesh.sizes) {
        print_places(j, f);
        return 0;
    }
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        size_t first = j->bins.first[b];
        for (size_t i = first; i < j->bins.first[b + 1]; i++) {
            uint32_t k = j->bins.items[i];
            if (parts)
                print_piece(&j->pieces.piece[k], i == first, f);
            else
                print_index(whole ? k : j->pieces.piece[k].source, i == first,
                            f);
        }
        fputs("]\n", f);
    }
    return 0;
}

/* Counts the scored labels of tokens [at, at + n), or of as many ids without
 * labels; the first is never scored. */
static uint64_t count_labels(const int32_t *labels, size_t at, size_t n)
{
    uint64_t scored = 0;
    if (!labels)
        return n ? n - 1 : 0;
    for (size_t k = 1; k < n; k++)
        scored += labels[at + k] != PP_LABEL_IGNORE;
    return scored;
}

/* Counts the sequences of all pieces, and their scored labels: labels of the
 * language model or of a generator. */
static void count_sequences(struct pack_job *j, const int32_t *labels,
                            uint64_t *n, uint64_t *scored)
{
    const struct pp_documents *d = &j->in->docs;
    *n = *scored = 0;
    for (size_t i = 0; i < j->pieces.n; i++) {
        const struct pp_piece *q = &j->pieces.piece[i];
        size_t s, here = pp_piece_sequences(d, j->first_document, q, &s);
        *n += here;
        if (here == 1)
            *scored += count_labels(labels, q->at, q->length);
        for (size_t end = s + here; here > 1 && s < end; s++)
            *scored += count_labels(labels, d->first[s],
                                    d->first[s + 1] - d->first[s]);
        if (i % 65536 == 0)
            pp_documents_release(&j->in->docs);
    }
}

/* Counts the scored labels of n tokens of both models. */
static uint64_t count_scored(const struct pack_job *j, size_t at, size_t n)
{
    const void *generator = j->in->docs.columns[PP_COLUMN_GENERATOR_LABELS];
    uint64_t scored = count_labels(j->in->docs.labels, at, n);
    return scored + (generator ? count_labels(generator, at, n) : 0);
}

/* Counts the responses that were dropped from their groups. */
static size_t count_dropped_responses(const struct pack_job *j)
{
    const struct pp_documents *d = &j->in->docs;
    size_t n = 0,
           end = pp_documents_sequence(d, j->first_document + j->n_documents);
    for (size_t s = pp_documents_sequence(d, j->first_document);
         d->kind == PP_DATA_ROLLOUTS && s < end; s++)
        n += d->first[s] == d->first[s + 1];
    return n;
}

/* Says how many documents were cut or dropped because they were too long. */
static void note_oversize(struct pack_job *j)
{
    static const char *const nouns[PP_DATA_N_KINDS] = {
        [PP_DATA_DOCUMENTS] = "documents",
        [PP_DATA_PAIRS] = "pairs",
        [PP_DATA_ROLLOUTS] = "groups"};
    const struct pp_input_counts *c = &j->pieces.counts;
    const char *noun = nouns[j->in->docs.kind];
    size_t responses = count_dropped_responses(j);
    char text[64] = "";
    if (j->bins.n_bins == 0 || (j->o->input.oversize != PP_OVERSIZE_TRUNCATE &&
                                j->o->input.oversize != PP_OVERSIZE_DROP))
        return;
    if (responses)
        snprintf(text, sizeof text, ", with %zu whole response%s", responses,
                 responses == 1 ? "" : "s");
    if (c->n_truncated)
        tool_say(
            j->t, TOOL_NOTE,
            "%" PRIu64 " of %zu %s %s too long and cut by %" PRIu64 " tokens%s",
            c->n_truncated, j->n_documents, noun,
            c->n_truncated == 1 ? "was" : "were", c->truncated_tokens, text);
    if (c->n_dropped)
        tool_say(j->t, TOOL_NOTE,
                 "%" PRIu64 " of %zu %s %s too long and dropped, with %" PRIu64
                 " tokens; the first is document %zu",
                 c->n_dropped, j->n_documents, noun,
                 c->n_dropped == 1 ? "was" : "were", c->dropped_tokens,
                 j->pieces.first_dropped);
}

/* Names the documents that lost every scored token when they were cut. */
static void note_lost(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    const struct pp_documents *d = &j->in->docs;
    size_t n = 0, first = 0;
    for (size_t i = 0;
         j->o->input.oversize == PP_OVERSIZE_TRUNCATE && d->first && i < p->n;
         i++) {
        const struct pp_piece *q = &p->piece[i];
        size_t at, n_parts = pp_piece_sequences(d, j->first_document, q, &at);
        size_t whole = d->first[at + 1] - d->first[at];
        if (n_parts > 1 || q->length == whole ||
            count_scored(j, q->at, q->length) ||
            !count_scored(j, d->first[at], whole))
            continue;
        if (n++ == 0 || q->source < first)
            first = q->source;
    }
    if (n > 0)
        tool_say(j->t, TOOL_NOTE,
                 "%zu of %zu sequences lost every scored token when they were "
                 "cut to %" PRIu32 " tokens, the first of document %zu; they "
                 "train nothing: try a larger -l",
                 n, p->n, j->capacity - j->capacity % j->o->align, first);
}

/* Returns whether a piece has a sequence without a scored token. */
static bool lacks_scored(const struct pack_job *j, const struct pp_piece *q)
{
    const struct pp_documents *d = &j->in->docs;
    size_t s, n = pp_piece_sequences(d, j->first_document, q, &s);
    for (; n > 0; n--, s++)
        if (!count_labels(d->labels, d->first[s],
                          d->first[s + 1] - d->first[s]))
            return true;
    return false;
}

/* Names the pairs of which a side has no scored token, and such responses. */
static void note_sides(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    const struct pp_documents *d = &j->in->docs;
    bool pairs = d->kind == PP_DATA_PAIRS;
    size_t n = 0, first = 0;
    for (size_t i = 0; d->kind != PP_DATA_DOCUMENTS && i < p->n; i++) {
        const struct pp_piece *q = &p->piece[i];
        if (lacks_scored(j, q) && (n++ == 0 || q->source < first))
            first = q->source;
        if (i % 65536 == 0)
            pp_documents_release(&j->in->docs);
    }
    if (n > 0)
        tool_say(j->t, TOOL_NOTE,
                 "%zu of %zu %s ha%s %s scored token, the first is %sdocument "
                 "%zu; %s",
                 n, p->n, piece_noun(j), n == 1 ? "s" : "ve",
                 pairs ? "a side without a" : "no", pairs ? "" : "of ", first,
                 pairs    ? "dpo learns from at most one side of it"
                 : n == 1 ? "it trains nothing"
                          : "they train nothing");
}

/* Names a model that learns nothing from the data, because no token is scored.
 */
static void note_unscored(struct pack_job *j)
{
    const void *generator = j->in->docs.columns[PP_COLUMN_GENERATOR_LABELS];
    uint64_t scored, sequences, generated = 0;
    count_sequences(j, j->in->docs.labels, &sequences, &scored);
    if (generator)
        count_sequences(j, generator, &sequences, &generated);
    if (sequences == 0 || (scored && (generated || !generator)))
        return;
    if (scored + generated == 0)
        tool_say(j->t, TOOL_NOTE,
                 j->in->docs.kind == PP_DATA_PAIRS
                     ? "no token is scored, so pprun trains only rewards on "
                       "this data"
                     : "no token is scored, so pprun does not train on this "
                       "data");
    else
        tool_say(j->t, TOOL_NOTE, "no token of the %s is scored, so %s",
                 scored ? "generator" : "language model",
                 scored ? "it learns nothing"
                        : "only the generator's loss trains it");
}

/* Prints the counts of the input. */
static void print_counts(const struct pp_input_counts *c, FILE *f)
{
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"empty", c->n_empty},
        {"dropped", c->n_dropped},
        {"truncated", c->n_truncated},
        {"split", c->n_split},
        {"skipped", c->n_skipped},
        {"other_modes", c->other_modes},
        {"input_tokens", c->tokens},
        {"dropped_tokens", c->dropped_tokens},
        {"truncated_tokens", c->truncated_tokens},
    };
    enum { N = sizeof counts / sizeof *counts };
    for (size_t i = 0; i < N; i++)
        fprintf(f, "  \"%s\": %" PRIu64 "%s\n", counts[i].key, counts[i].value,
                i + 1 < N ? "," : "");
    fputs("}\n", f);
}

/* Counts the items of a piece. */
static size_t count_items(const struct pack_job *j, enum pp_modality m,
                          const struct pp_piece *q)
{
    size_t document = j->first_document + q->source, n = 0;
    size_t end = pp_documents_sequence(&j->in->docs, document + 1);
    const struct pp_item *at;
    for (size_t s = pp_documents_sequence(&j->in->docs, document); s < end; s++)
        n += pp_items_of(&j->in->docs.items[m], s, &at);
    return n;
}

/* Prints the figures of the items of a modality, if there are any. */
static void print_items(const struct pack_job *j, enum pp_modality m, FILE *f)
{
    const struct pp_pieces *p = &j->pieces;
    struct pack_stream_figures all = {0};
    if (!p->rows[m])
        return;
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        uint64_t here = 0;
        for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++) {
            uint32_t piece = j->bins.items[i];
            here += p->rows[m][piece];
            all.items += count_items(j, m, &p->piece[piece]);
        }
        all.rows += here;
        all.max_rows = here > all.max_rows ? here : all.max_rows;
    }
    pack_print_stream(f, m, p->rows[0] && p->rows[1], &all, false);
}

/* Prints how many labels of a generator are scored, if there is one. */
static void print_generator(struct pack_job *j, FILE *f)
{
    const void *labels = j->in->docs.columns[PP_COLUMN_GENERATOR_LABELS];
    uint64_t n, scored;
    if (!labels)
        return;
    count_sequences(j, labels, &n, &scored);
    fprintf(f, "  \"generator_scored\": %" PRIu64 ",\n", scored);
}

static void print_figure(FILE *f, const char *key, double v)
{
    char text[32];
    pp_format_real(v, text);
    fprintf(f, "  \"%s\": %s,\n", key, text);
}

/* Prints the figures. With --balance also prints the figures before balancing.
 */
static void print_figures(const struct pack_job *j, FILE *f)
{
    if (j->bins.n_bins == 0)
        return;
    if (j->o->balance.what != PACK_BALANCE_NONE)
        print_figure(f, "imbalance_before", j->before.imbalance);
    print_figure(f, "imbalance", j->after.imbalance);
    if (j->o->mesh.sizes) {
        print_figure(f, "rank_imbalance", j->after.rank_imbalance);
        print_figure(f, "rank_tokens", j->after.rank_tokens);
        print_figure(f, "whole", j->after.whole);
    }
    if (!j->in->manifest.has_schedule)
        return;
    if (j->o->balance.what != PACK_BALANCE_NONE)
        print_figure(f, "step_time_before", j->before.step_time);
    print_figure(f, "step_time", j->after.step_time);
}

/* Prints counts, efficiency and the lower bound as JSON. */
static int print_stats(struct pack_job *j)
{
    size_t bound = j->lower_bound;
    uint64_t padded = 0;
    char efficiency[32];
    const struct pp_pieces *p = &j->pieces;
    /* With a directory, -o names it, and statistics go to stdout. */
    FILE *f = j->o->input.from_lengths ? tool_output(j->t) : stdout;
    if (!f)
        return -1;
    uint64_t n_sequences, scored;
    count_sequences(j, j->in->docs.labels, &n_sequences, &scored);
    for (size_t i = 0; i < p->n; i++)
        padded += p->piece[i].padded;
    double room = (double)j->bins.n_bins * (double)j->capacity;
    pp_format_real(room > 0 ? (double)p->n_tokens / room : 0, efficiency);
    fputs("{\n", f);
    if (j->part)
        fprintf(f, "  \"part\": \"%s\",\n", j->part);
    fprintf(f,
            "  \"algorithm\": \"%s\",\n  \"inputs\": %zu,\n"
            "  \"sequences\": %" PRIu64 ",\n  \"tokens\": %" PRIu64 ",\n",
            j->o->rule.packer->name, j->n_documents, n_sequences, p->n_tokens);
    if (!j->o->input.from_lengths)
        fprintf(f, "  \"scored\": %" PRIu64 ",\n", scored);
    fprintf(f,
            "  \"bins\": %zu,\n  \"lower_bound\": %zu,\n  \"gap\": %zu,\n"
            "  \"certified\": %s,\n"
            "  \"capacity\": %" PRIu32 ",\n  \"align\": %" PRIu32 ",\n"
            "  \"row\": %" PRIu32 ",\n"
            "  \"padding\": %" PRIu64 ",\n  \"efficiency\": %s,\n",
            j->bins.n_bins, bound, j->bins.n_bins - bound,
            !j->o->rule.rows && j->bins.n_bins == bound ? "true" : "false",
            j->capacity, j->o->align, j->o->row, padded - p->n_tokens,
            efficiency);
    for (int m = 0; m < PP_N_MODALITIES; m++)
        print_items(j, (enum pp_modality)m, f);
    print_generator(j, f);
    print_figures(j, f);
    print_counts(&p->counts, f);
    return 0;
}

/* Says what was written, unless statistics do. */
static int report_part(struct pack_job *j)
{
    char path[4096];
    if (j->o->stats && !j->o->svg)
        return 0;
    snprintf(path, sizeof path, "%s%s%s", j->t->output, j->part ? "/" : "",
             j->part ? j->part : "");
    return pack_report(j->o, path, false);
}

/* Packs one directory, or prints its bins. */
static int pack_part(struct pack_job *j)
{
    bool directory = j->t->output && !j->o->input.from_lengths;
    double start = pp_clock();
    if (pack(j) != 0)
        return -1;
    tool_say(j->t, TOOL_DETAIL,
             "%zu sequences: cut in %.3f ms, packed in %.3f ms", j->pieces.n,
             1e3 * (j->made_s - start), 1e3 * (pp_clock() - j->made_s));
    if (!j->o->input.from_lengths) {
        note_oversize(j);
        note_lost(j);
        note_sides(j);
        note_unscored(j);
    }
    if (directory && (pack_write(j) != 0 || report_part(j) != 0))
        return -1;
    if (j->o->stats ? print_stats(j) != 0 : !directory && print_bins(j) != 0)
        return -1;
    return 0;
}

/* Reads the plan and the documents. */
static int prepare_input(struct pack_input *in, int argc, char **argv)
{
    const struct pack_options *o = in->o;
    bool directory = o->t->output && !o->input.from_lengths;
    if (pack_manifest_read(in) != 0)
        return -1;
    if (directory && !o->parts_wanted &&
        pp_packed_may_write(o->t->output, &o->t->err) != 0)
        return -1;
    double start = pp_clock();
    if (pack_read(in, argc, argv) != 0 || pack_add_columns(in) != 0)
        return -1;
    if (o->manifest_name && (pack_check_streams(in) != 0 ||
                             (directory && pack_check_images(in) != 0)))
        return -1;
    tool_say(o->t, TOOL_DETAIL, "%zu documents: read in %.3f ms", in->docs.n,
             1e3 * (pp_clock() - start));
    return 0;
}

/* Packs the documents, or each part of them. */
static int pack_all(struct pack_input *in)
{
    struct pack_job j = {
        .o = in->o, .in = in, .t = in->t, .n_documents = in->docs.n};
    int rc = cut(&j);
    if (rc == 0)
        rc =
            in->o->parts_wanted ? pack_each_part(&j, pack_part) : pack_part(&j);
    pp_bins_finish(&j.bins);
    pp_pieces_finish(&j.pieces);
    free(j.ranks);
    return rc;
}

static int run(const struct pack_options *o, int argc, char **argv)
{
    if (o->check)
        return pack_check(o);
    if (o->stats_of)
        return pack_report(o, o->stats_of, true);
    if (o->realign)
        return pack_realign(o);
    if (o->export_to)
        return pack_export(o, argv[optind]);
    struct pack_input in = {.o = o, .t = o->t};
    int rc = prepare_input(&in, argc, argv);
    if (rc == 0)
        rc = pack_all(&in);
    if (rc == 0 && o->t->output && !o->input.from_lengths && o->manifest_name)
        rc = pack_manifest_write(&in);
    pp_manifest_finish(&in.manifest);
    pp_documents_finish(&in.docs);
    free(in.spill);
    return rc;
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pppack",
        .synopsis = "-l TOKENS [options] -o DIR [FILE...]",
        .summary = "Pack documents into microbatches of at most a given "
                   "number of tokens.",
        .options = pack_options,
        .everyday = "bytes lengths oversize capacity algorithm compat balance "
                    "cp tp dp manifest split export realign stats svg check "
                    "output verbose help"};
    struct pack_options o = {
        .t = &t,
        .input.baseline = -1,
        .items = {.image_token = -1, .audio_token = -1, .merge = 1},
        .rule = {.bins_multiple = 1, .seed = PP_PACK_SEED},
        .mesh = {.pad_to = 1, .cp = 1, .tp = 1},
    };
    if (pack_read_options(&o, argc, argv) == 0)
        run(&o, argc, argv);
    return tool_finish(&t);
}
