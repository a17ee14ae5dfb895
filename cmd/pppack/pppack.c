/* SPDX-License-Identifier: MIT */
/* pppack - packs documents into microbatches of at most a given number of
 * tokens. It runs the steps and prints bins and statistics; the work is in
 * lib/pack and lib/data. */
#include "pppack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/packed/packed.h"
#include "pack/rule.h"

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
                       rule->parts, pack_noun(j), p->n);
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
    uint32_t *unpadded = pp_calloc(p->n, sizeof *unpadded);
    const struct pp_pack_input in = {
        .lengths = p->padded,
        .n = p->n,
        .capacity = rule->rows ? (uint32_t)rule->rows : j->capacity,
        .seed = (uint64_t)rule->seed,
        .unpadded = unpadded};
    struct pp_pack_size sizes[1 + PP_N_MODALITIES] = {{p->padded, in.capacity}};
    size_t n_sizes = 1 + pack_row_sizes(j, sizes + 1);
    for (size_t i = 0; i < p->n; i++)
        unpadded[i] = p->piece[i].length;
    if (n_sizes > 1)
        pp_pack_sizes(sizes, n_sizes, p->n, &j->bins);
    else if (!rule->parts)
        rule->packer->pack(&in, &j->bins);
    else
        (rule->equal_size ? pp_parts_kk_equal : rule->packer->divide)(
            p->padded, p->n, (size_t)rule->parts, &j->bins);
    free(unpadded);
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
    j->bins.noun = pack_noun(j);
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
    if (!j->o->input.from_lengths)
        pack_note(j);
    if (directory && (pack_write(j) != 0 || report_part(j) != 0))
        return -1;
    if (j->o->stats ? pack_print_stats(j) != 0
                    : !directory && print_bins(j) != 0)
        return -1;
    return 0;
}

/* Reads the plan and the documents. */
static int prepare_input(struct pack_input *in)
{
    const struct pack_options *o = in->o;
    bool directory = o->t->output && !o->input.from_lengths;
    if (pack_manifest_read(in) != 0)
        return -1;
    if (directory && !o->n_shares &&
        pp_packed_may_write(o->t->output, &o->t->err) != 0)
        return -1;
    double start = pp_clock();
    if (pack_read(in) != 0)
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
        rc = in->o->n_shares ? pack_each_part(&j, pack_part) : pack_part(&j);
    pp_bins_finish(&j.bins);
    pp_pieces_finish(&j.pieces);
    free(j.ranks);
    return rc;
}

static int run(const struct pack_options *o)
{
    if (o->check)
        return pack_check(o);
    if (o->stats_of)
        return pack_report(o, o->stats_of, true);
    if (o->realign)
        return pack_realign(o);
    if (o->export_to)
        return pack_export(o);
    struct pack_input in = {.o = o, .t = o->t};
    int rc = prepare_input(&in);
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
        run(&o);
    return tool_finish(&t);
}
