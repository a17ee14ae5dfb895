/* SPDX-License-Identifier: MIT */
/* report - what was packed, and what a packed directory holds: notes, figures
 * as JSON, and a picture of lengths and fill. */
#include <inttypes.h>

#include "draw/chart.h"
#include "pppack.h"

enum { BUCKETS = 40 };

/* Returns the part of the capacity of bins that is tokens. */
static double fill_of(uint64_t n_tokens, size_t n_bins, uint32_t capacity)
{
    double all = (double)n_bins * capacity;
    return all > 0 ? (double)n_tokens / all : 0;
}

/* The numbers of items and rows of a stream, and most rows of a bin. */
struct stream_figures {
    uint64_t items, rows, max_rows;
};

/* Prints the figures of a stream. both: the data have images and audio. */
static void print_stream(struct pp_json_writer *w, enum pp_modality m,
                         bool both, const struct stream_figures *n)
{
    bool audio = m == PP_MODALITY_AUDIO;
    pp_json_uint(w, audio ? "audio" : "images", n->items);
    pp_json_uint(w, audio && both ? "audio_rows" : "patches", n->rows);
    pp_json_uint(w, audio && both ? "max_audio_rows" : "max_patches",
                 n->max_rows);
}

/* --- what was packed --- */

const char *pack_noun(const struct pack_job *j)
{
    static const char *const nouns[PP_DATA_N_KINDS] = {
        [PP_DATA_DOCUMENTS] = "sequences",
        [PP_DATA_PAIRS] = "pairs",
        [PP_DATA_ROLLOUTS] = "responses"};
    return nouns[j->in->docs.kind];
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

/* Returns the labels of a generator, or NULL. */
static const int32_t *generator_labels(const struct pack_job *j)
{
    const void *labels = j->in->docs.columns[PP_COLUMN_GENERATOR_LABELS];
    return labels;
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
    const int32_t *generator = generator_labels(j);
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
                 n, p->n, pack_noun(j), n == 1 ? "s" : "ve",
                 pairs ? "a side without a" : "no", pairs ? "" : "of ", first,
                 pairs    ? "dpo learns from at most one side of it"
                 : n == 1 ? "it trains nothing"
                          : "they train nothing");
}

/* Names a model that learns nothing from the data, because no token is scored.
 */
static void note_unscored(struct pack_job *j)
{
    const int32_t *generator = generator_labels(j);
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

void pack_note(struct pack_job *j)
{
    note_oversize(j);
    note_lost(j);
    note_sides(j);
    note_unscored(j);
}

/* Prints the counts of the input. */
static void print_counts(const struct pp_input_counts *c,
                         struct pp_json_writer *w)
{
    pp_json_uint(w, "empty", c->n_empty);
    pp_json_uint(w, "dropped", c->n_dropped);
    pp_json_uint(w, "truncated", c->n_truncated);
    pp_json_uint(w, "split", c->n_split);
    pp_json_uint(w, "skipped", c->n_skipped);
    pp_json_uint(w, "other_modes", c->other_modes);
    pp_json_uint(w, "input_tokens", c->tokens);
    pp_json_uint(w, "dropped_tokens", c->dropped_tokens);
    pp_json_uint(w, "truncated_tokens", c->truncated_tokens);
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
static void print_items(const struct pack_job *j, enum pp_modality m,
                        struct pp_json_writer *w)
{
    const struct pp_pieces *p = &j->pieces;
    struct stream_figures all = {0};
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
    print_stream(w, m, p->rows[0] && p->rows[1], &all);
}

/* Prints the figures. With --balance also prints the figures before balancing.
 */
static void print_figures(const struct pack_job *j, struct pp_json_writer *w)
{
    bool balanced = j->o->balance.what != PACK_BALANCE_NONE;
    if (j->bins.n_bins == 0)
        return;
    if (balanced)
        pp_json_real(w, "imbalance_before", j->before.imbalance);
    pp_json_real(w, "imbalance", j->after.imbalance);
    if (j->o->mesh.sizes) {
        pp_json_real(w, "rank_imbalance", j->after.rank_imbalance);
        pp_json_real(w, "rank_tokens", j->after.rank_tokens);
        pp_json_real(w, "whole", j->after.whole);
    }
    if (!j->in->manifest.has_schedule)
        return;
    if (balanced)
        pp_json_real(w, "step_time_before", j->before.step_time);
    pp_json_real(w, "step_time", j->after.step_time);
}

int pack_print_stats(struct pack_job *j)
{
    size_t bound = j->lower_bound, n_bins = j->bins.n_bins;
    const struct pp_pieces *p = &j->pieces;
    const int32_t *generator = generator_labels(j);
    uint64_t n_sequences, scored, padded = 0;
    /* With a directory, -o names it, and statistics go to stdout. */
    FILE *f = j->o->input.from_lengths ? tool_output(j->t) : stdout;
    if (!f)
        return -1;
    count_sequences(j, j->in->docs.labels, &n_sequences, &scored);
    for (size_t i = 0; i < p->n; i++)
        padded += p->piece[i].padded;
    struct pp_json_writer w = pp_json_lines(f);
    if (j->part)
        pp_json_string(&w, "part", j->part);
    pp_json_string(&w, "algorithm", j->o->rule.packer->name);
    pp_json_uint(&w, "inputs", j->n_documents);
    pp_json_uint(&w, "sequences", n_sequences);
    pp_json_uint(&w, "tokens", p->n_tokens);
    if (!j->o->input.from_lengths)
        pp_json_uint(&w, "scored", scored);
    pp_json_uint(&w, "bins", n_bins);
    pp_json_uint(&w, "lower_bound", bound);
    pp_json_uint(&w, "gap", n_bins - bound);
    pp_json_bool(&w, "certified", !j->o->rule.rows && n_bins == bound);
    pp_json_uint(&w, "capacity", j->capacity);
    pp_json_uint(&w, "align", j->o->align);
    pp_json_uint(&w, "row", j->o->row);
    pp_json_uint(&w, "padding", padded - p->n_tokens);
    pp_json_real(&w, "efficiency", fill_of(p->n_tokens, n_bins, j->capacity));
    for (int m = 0; m < PP_N_MODALITIES; m++)
        print_items(j, (enum pp_modality)m, &w);
    if (generator) {
        count_sequences(j, generator, &n_sequences, &scored);
        pp_json_uint(&w, "generator_scored", scored);
    }
    print_figures(j, &w);
    print_counts(&p->counts, &w);
    pp_json_finish(&w);
    return 0;
}

/* --- a packed directory --- */

static double packed_fill(const struct pp_packed *p)
{
    return fill_of(p->n_tokens, p->n_bins, p->capacity);
}

static int print_json(const struct pack_options *o, const struct pp_packed *p)
{
    uint64_t scored = 0;
    FILE *f = tool_output(o->t);
    if (!f)
        return -1;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        scored += bin.scored;
    }
    struct pp_json_writer w = pp_json_lines(f);
    pp_json_uint(&w, "inputs", p->n_inputs);
    pp_json_uint(&w, "sequences", p->n_sequences);
    pp_json_uint(&w, "groups", p->n_groups);
    pp_json_uint(&w, "tokens", p->n_tokens);
    pp_json_uint(&w, "scored", scored);
    pp_json_uint(&w, "bins", p->n_bins);
    pp_json_uint(&w, "capacity", p->capacity);
    pp_json_uint(&w, "align", p->align);
    pp_json_uint(&w, "longest", p->max_seqlen);
    pp_json_uint(&w, "fullest", p->max_tokens);
    pp_json_uint(&w, "padding", p->n_positions - p->n_tokens);
    pp_json_real(&w, "efficiency", packed_fill(p));
    if (pp_packed_has_generator(p)) {
        pp_json_uint(&w, "generator_vocab", p->generator_vocab);
        pp_json_uint(&w, "generator_scored", pp_packed_scored(p, true));
    }
    if (p->cp) {
        pp_json_uint(&w, "cp", p->cp);
        pp_json_uint(&w, "rank_tokens", p->max_rank_tokens);
    }
    bool both =
        pp_stream_exists(&p->streams[0]) && pp_stream_exists(&p->streams[1]);
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        const struct pp_packed_stream *s = &p->streams[m];
        const struct stream_figures n = {s->n, s->n_rows, s->max_rows};
        if (pp_stream_exists(s))
            print_stream(&w, s->modality, both, &n);
    }
    pp_json_finish(&w);
    return 0;
}

static size_t bucket_of(double x, double most)
{
    size_t i = (size_t)(BUCKETS * x / most);
    return i < BUCKETS ? i : BUCKETS - 1;
}

/* Counts the sequences by length and the bins by tokens. */
static void count(const struct pp_packed *p, double lengths[BUCKETS],
                  double fills[BUCKETS])
{
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        int32_t tokens = bin.cu_seqlens[bin.n_sequences];
        fills[bucket_of(tokens, p->capacity)]++;
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            lengths[bucket_of(bin.cu_seqlens[i + 1] - bin.cu_seqlens[i],
                              p->max_seqlen)]++;
    }
}

static int draw(const struct pack_options *o, const struct pp_packed *p)
{
    double lengths[BUCKETS] = {0}, fills[BUCKETS] = {0};
    double length[BUCKETS], fill[BUCKETS];
    char title[160];
    FILE *f;
    count(p, lengths, fills);
    for (int i = 0; i < BUCKETS; i++) {
        length[i] = (i + .5) * p->max_seqlen / BUCKETS;
        fill[i] = 100 * (i + .5) / BUCKETS;
    }
    const struct pp_series series[2] = {
        {.mark = PP_CHART_BARS, .x = length, .y = lengths, .n = BUCKETS},
        {.mark = PP_CHART_BARS,
         .color = 2,
         .x = fill,
         .y = fills,
         .n = BUCKETS}};
    const struct pp_chart charts[] = {
        {.title = "Lengths",
         .x_label = "tokens of a sequence",
         .y_label = "sequences",
         .series = &series[0],
         .n_series = 1,
         .bar_width = .9 * p->max_seqlen / BUCKETS},
        {.title = "Fill",
         .x_label = "tokens of a bin, percent of the capacity",
         .y_label = "bins",
         .series = &series[1],
         .n_series = 1,
         .bar_width = .9 * 100 / BUCKETS}};
    snprintf(title, sizeof title,
             "%zu sequences in %zu bins of %" PRIu32 " tokens: %.1f %% full",
             p->n_sequences, p->n_bins, p->capacity, 100 * packed_fill(p));
    if (!(f = tool_open(o->t, o->svg)))
        return -1;
    pp_charts(f, title, charts, 2, 1);
    return tool_close(o->t, f);
}

int pack_report(const struct pack_options *o, const char *dir, bool json)
{
    struct pp_packed p;
    if (pp_packed_open(dir, &p, &o->t->err) != 0)
        return -1;
    tool_say(o->t, json ? TOOL_DETAIL : TOOL_NOTE,
             "%s: %zu sequences of %" PRIu64 " tokens in %zu bins of %" PRIu32
             ", %.1f %% full",
             dir, p.n_sequences, p.n_tokens, p.n_bins, p.capacity,
             100 * packed_fill(&p));
    int rc = (o->svg && draw(o, &p)) || (json && print_json(o, &p)) ? -1 : 0;
    pp_packed_finish(&p);
    return rc;
}
