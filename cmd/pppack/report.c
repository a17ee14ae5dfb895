/* SPDX-License-Identifier: MIT */
/* report - what a packed directory holds: one line for people, figures
 * as JSON, and a picture of lengths and fill. */
#include <inttypes.h>

#include "base/num.h"
#include "draw/chart.h"
#include "pppack.h"

enum { BUCKETS = 40 };

static double fill_of(const struct pp_packed *p)
{
    double room = (double)p->n_bins * p->capacity;
    return room > 0 ? (double)p->n_tokens / room : 0;
}

void pack_print_stream(FILE *f, enum pp_modality m, bool both,
                       const struct pack_stream_figures *n, bool before)
{
    bool audio = m == PP_MODALITY_AUDIO;
    const struct {
        const char *key;
        uint64_t value;
    } all[] = {{audio ? "audio" : "images", n->items},
               {audio && both ? "audio_rows" : "patches", n->rows},
               {audio && both ? "max_audio_rows" : "max_patches", n->max_rows}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fprintf(f, "%s  \"%s\": %" PRIu64 "%s", before ? ",\n" : "", all[i].key,
                all[i].value, before ? "" : ",\n");
}

static int print_json(const struct pack_options *o, const struct pp_packed *p)
{
    uint64_t scored = 0;
    char efficiency[32];
    FILE *f = tool_output(o->t);
    if (!f)
        return -1;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        scored += bin.scored;
    }
    pp_format_real(fill_of(p), efficiency);
    fprintf(f,
            "{\n  \"inputs\": %zu,\n  \"sequences\": %zu,\n"
            "  \"groups\": %zu,\n  \"tokens\": %" PRIu64
            ",\n  \"scored\": %" PRIu64 ",\n  \"bins\": %zu,\n"
            "  \"capacity\": %" PRIu32 ",\n  \"align\": %" PRIu32
            ",\n  \"longest\": %" PRIu32 ",\n  \"fullest\": %" PRIu32
            ",\n  \"padding\": %" PRIu64 ",\n  \"efficiency\": %s",
            p->n_inputs, p->n_sequences, p->n_groups, p->n_tokens, scored,
            p->n_bins, p->capacity, p->align, p->max_seqlen, p->max_tokens,
            p->n_positions - p->n_tokens, efficiency);
    if (pp_packed_has_generator(p))
        fprintf(f,
                ",\n  \"generator_vocab\": %" PRIu32
                ",\n  \"generator_scored\": %" PRIu64,
                p->generator_vocab, pp_packed_scored(p, true));
    if (p->cp)
        fprintf(f, ",\n  \"cp\": %" PRIu32 ",\n  \"rank_tokens\": %" PRIu32,
                p->cp, p->max_rank_tokens);
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        const struct pp_packed_stream *s = &p->streams[m];
        const struct pack_stream_figures n = {s->n, s->n_rows, s->max_rows};
        if (pp_stream_exists(s))
            pack_print_stream(f, s->modality,
                              pp_stream_exists(&p->streams[0]) &&
                                  pp_stream_exists(&p->streams[1]),
                              &n, true);
    }
    fputs("\n}\n", f);
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
             p->n_sequences, p->n_bins, p->capacity, 100 * fill_of(p));
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
             100 * fill_of(&p));
    int rc = (o->svg && draw(o, &p)) || (json && print_json(o, &p)) ? -1 : 0;
    pp_packed_finish(&p);
    return rc;
}
