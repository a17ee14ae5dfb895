/* SPDX-License-Identifier: MIT */
/* pppack_print - what pppack writes to standard output: bins and statistics. */
#include "pppack.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/num.h"
#include "data/packed.h"

/* One of tens of millions: printf would take longer than packing does. */
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

int pack_print_bins(struct pack_job *j)
{
    FILE *f = tool_output(&j->t);
    bool parts =
        j->oversize == PP_OVERSIZE_SPLIT || j->oversize == PP_OVERSIZE_TRUNCATE;
    /* Then pieces are the documents, and need no look-up. */
    bool whole = j->pieces.n == j->docs.n;
    if (!f)
        return -1;
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

/* Labels of tokens at..at + n that count; the first never does. */
static uint64_t count_labels(const struct pack_job *j, size_t at, size_t n)
{
    const int32_t *labels = j->docs.labels;
    uint64_t scored = 0;
    if (!labels)
        return n ? n - 1 : 0;
    for (size_t k = 1; k < n; k++)
        scored += labels[at + k] != PP_LABEL_IGNORE;
    return scored;
}

/* Sequences of all pieces, and their labels that count. */
static void count_sequences(struct pack_job *j, uint64_t *n, uint64_t *scored)
{
    const struct pp_documents *d = &j->docs;
    *n = *scored = 0;
    for (size_t i = 0; i < j->pieces.n; i++) {
        const struct pp_piece *q = &j->pieces.piece[i];
        size_t document = j->first_document + q->source;
        size_t first = pp_documents_sequence(d, document);
        size_t end = pp_documents_sequence(d, document + 1);
        *n += end - first;
        if (end - first == 1)
            *scored += count_labels(j, q->at, q->length);
        for (size_t s = first; end - first > 1 && s < end; s++)
            *scored +=
                count_labels(j, d->first[s], d->first[s + 1] - d->first[s]);
        if (i % 65536 == 0)
            pp_documents_release(&j->docs);
    }
}

/* What became of the input. */
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

static void print_figure(FILE *f, const char *key, double v)
{
    char text[32];
    pp_format_real(v, text);
    fprintf(f, "  \"%s\": %s,\n", key, text);
}

/* Before and after --balance, or what there is without it. */
static void print_figures(const struct pack_job *j, FILE *f)
{
    if (j->bins.n_bins == 0)
        return;
    if (j->balance != PACK_BALANCE_NONE)
        print_figure(f, "imbalance_before", j->before.imbalance);
    print_figure(f, "imbalance", j->after.imbalance);
    if (!j->manifest.has_schedule)
        return;
    if (j->balance != PACK_BALANCE_NONE)
        print_figure(f, "step_time_before", j->before.step_time);
    print_figure(f, "step_time", j->after.step_time);
}

int pack_print_stats(struct pack_job *j)
{
    size_t bound = j->lower_bound;
    uint64_t padded = 0;
    char efficiency[32];
    const struct pp_pieces *p = &j->pieces;
    /* With a directory -o is taken: stdout. */
    FILE *f = j->from_lengths ? tool_output(&j->t) : stdout;
    if (!f)
        return -1;
    uint64_t n_sequences, scored;
    count_sequences(j, &n_sequences, &scored);
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
            j->rule->name, j->n_documents, n_sequences, p->n_tokens);
    if (!j->from_lengths)
        fprintf(f, "  \"scored\": %" PRIu64 ",\n", scored);
    fprintf(f,
            "  \"bins\": %zu,\n  \"lower_bound\": %zu,\n  \"gap\": %zu,\n"
            "  \"certified\": %s,\n"
            "  \"capacity\": %" PRIu32 ",\n  \"align\": %" PRIu32 ",\n"
            "  \"row\": %" PRIu32 ",\n"
            "  \"padding\": %" PRIu64 ",\n  \"efficiency\": %s,\n",
            j->bins.n_bins, bound, j->bins.n_bins - bound,
            !j->rows && j->bins.n_bins == bound ? "true" : "false", j->capacity,
            j->align, j->row, padded - p->n_tokens, efficiency);
    print_figures(j, f);
    print_counts(&p->counts, f);
    return 0;
}
