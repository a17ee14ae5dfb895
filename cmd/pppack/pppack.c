/* SPDX-License-Identifier: MIT */
/* pppack - packs documents into microbatches of at most a given number of
 * tokens. The run; the command line is in pppack_options.c, the work in
 * lib/pack and lib/data. */
#include "pppack.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/packed_write.h"
#include "pack/pack_rule.h"

/* pppack_compat - what --compat knows of other systems: the rule, and what
 * each does with documents that are empty or too long. */
const struct pack_compat pack_compats[] = {
    {.packer = {.name = "nemo-rl-ffd", .pack = pp_pack_ffd},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-mffd", .pack = pp_pack_mffd},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-concat", .pack = pp_pack_next_fit},
     .multiplies = true,
     .pops = true},
    {.packer = {.name = "nemo-rl-ffs",
                .pack = pp_pack_first_fit_shuffle,
                .draw = pp_draw_first_fit_shuffle},
     .multiplies = true,
     .pops = true},
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

/* By a rule that knows lengths without padding. */
static int choose_unpadded(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    uint32_t *lengths = pp_pack_alloc(p->n, sizeof *lengths, &j->t.err);
    if (!lengths)
        return -1;
    for (size_t i = 0; i < p->n; i++)
        lengths[i] = p->piece[i].length;
    int rc = j->rule->unpadded(lengths, p->padded, p->n, j->capacity, &j->bins,
                               &j->t.err);
    free(lengths);
    return rc;
}

/* Bins of the sequences, by the rule. */
static int choose_bins(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    struct pp_err *err = &j->t.err;
    uint32_t room = j->rows ? (uint32_t)j->rows : j->capacity;
    if (!j->parts && j->rule->draw)
        return j->rule->draw(p->padded, p->n, room, (uint64_t)j->seed, &j->bins,
                             err);
    if (j->rule->unpadded && j->align > 1)
        return choose_unpadded(j);
    if (!j->parts)
        return j->rule->pack(p->padded, p->n, room, &j->bins, err);
    if ((size_t)j->parts > p->n)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--parts: '%" PRId64 "' bins need as many sequences, "
                       "there are %zu",
                       j->parts, p->n);
    pp_parts_fn *divide = j->equal_size ? pp_parts_kk_equal : j->rule->divide;
    return divide(p->padded, p->n, (size_t)j->parts, &j->bins, err);
}

/* Rules that divide into a number of parts know no capacity. */
static int check_loads(struct pack_job *j)
{
    if (!j->rule->divide)
        return 0;
    uint64_t most = pp_bins_largest(&j->bins, j->pieces.padded);
    if (most > j->capacity)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "a bin would hold '%" PRIu64 "' tokens, more than the "
                       "%" PRIu32 " of its capacity; ask for more --parts",
                       most, j->capacity);
    return 0;
}

static int raise_bins(struct pack_job *j)
{
    size_t least = (size_t)j->bins_min, multiple = (size_t)j->bins_multiple;
    if (j->bins.n_bins == 0)
        return 0;
    if (j->compat && j->compat->pops)
        return pp_bins_multiple_by_popping(&j->bins, least, multiple,
                                           &j->t.err);
    return pp_bins_multiple(&j->bins, j->pieces.padded, j->capacity, least,
                            multiple, &j->t.err);
}

/* Before rows are padded, which is no property of the sequences. */
static int certify(struct pack_job *j)
{
    const struct pp_pieces *p = &j->pieces;
    j->lower_bound = j->bins.n_bins;
    return j->rows
               ? 0
               : pp_pack_certify(p->padded, p->n, j->capacity, j->bins.n_bins,
                                 &j->lower_bound, &j->t.err);
}

/* Pads bins to what their rows must be. */
static void fill_rows(struct pack_job *j)
{
    const struct pp_bins *bins = &j->bins;
    for (size_t b = 0; j->row > j->align && b < bins->n_bins; b++)
        pp_pieces_pad_bin(&j->pieces, bins->items + bins->first[b],
                          bins->first[b + 1] - bins->first[b], j->row);
}

static int pack(struct pack_job *j)
{
    struct pp_err *err = &j->t.err;
    const struct pp_piece_options o = {
        .capacity = j->capacity,
        .align = j->align,
        .oversize = (enum pp_oversize)j->oversize,
        .drop_empty = j->drop_empty,
        .first = j->first_document,
        .end = j->first_document + j->n_documents,
    };
    int rc = j->compat && j->compat->wraps
                 ? pp_pieces_wrap(&j->docs, &o, &j->pieces, err)
                 : pp_pieces_make(&j->docs, &o, &j->pieces, err);
    j->made_s = pp_clock();
    if (rc != 0 || choose_bins(j) != 0)
        return -1;
    if (j->rows) {
        const struct pp_bins *bins = &j->bins;
        for (size_t b = 0; b < bins->n_bins; b++)
            pp_pieces_pad_evenly(&j->pieces, bins->items + bins->first[b],
                                 bins->first[b + 1] - bins->first[b]);
        j->capacity *= (uint32_t)j->rows;
    }
    if (check_loads(j) != 0 || raise_bins(j) != 0)
        return -1;
    if (j->stats && certify(j) != 0)
        return -1;
    if (pack_balance(j) != 0)
        return -1;
    fill_rows(j);
    return j->shuffled ? pp_bins_shuffle(&j->bins, (uint64_t)j->shuffle, err)
                       : 0;
}

/* One directory, or what is printed instead. */
static int pack_part(struct pack_job *j)
{
    bool directory = j->t.output && !j->from_lengths;
    uint32_t capacity = j->capacity;
    double start = pp_clock();
    if (pack(j) != 0)
        return -1;
    tool_say(&j->t, PP_LOG_DETAIL,
             "%zu sequences: cut in %.3f ms, packed in %.3f ms", j->pieces.n,
             1e3 * (j->made_s - start), 1e3 * (pp_clock() - j->made_s));
    if (directory && pack_write(j) != 0)
        return -1;
    if (j->stats ? pack_print_stats(j) != 0
                 : !directory && pack_print_bins(j) != 0)
        return -1;
    j->capacity = capacity; /* the next part begins as this one did */
    return 0;
}

static int run(struct pack_job *j, int argc, char **argv)
{
    if (j->check)
        return pack_check(j);
    if (j->export_to)
        return pack_export(j, argv[optind]);
    bool directory = j->t.output && !j->from_lengths;
    if (pack_manifest_read(j) != 0)
        return -1;
    if (directory && !j->parts_wanted &&
        pp_packed_may_write(j->t.output, &j->t.err) != 0)
        return -1;
    double start = pp_clock();
    if (pack_read(j, argc, argv) != 0)
        return -1;
    tool_say(&j->t, PP_LOG_DETAIL, "%zu documents: read in %.3f ms", j->docs.n,
             1e3 * (pp_clock() - start));
    j->n_documents = j->docs.n;
    if (j->parts_wanted)
        return pack_each_part(j, pack_part);
    if (pack_part(j) != 0)
        return -1;
    return directory && j->manifest_name ? pack_manifest_write(j, argc, argv)
                                         : 0;
}

int main(int argc, char **argv)
{
    struct pack_job j = {
        .t = {.name = "pppack",
              .synopsis = "-l TOKENS [options] -o DIR [FILE...]",
              .summary = "Pack documents into microbatches of at most a given "
                         "number of tokens.",
              .options = pack_options},
        .pad_to = 1,
        .cp = 1,
        .tp = 1,
        .bins_multiple = 1,
        .seed = PP_PACK_SEED,
    };
    if (pack_read_options(&j, argc, argv) == 0)
        run(&j, argc, argv);
    pp_manifest_finish(&j.manifest);
    pp_bins_finish(&j.bins);
    pp_pieces_finish(&j.pieces);
    pp_documents_finish(&j.docs);
    free(j.spill);
    return tool_finish(&j.t);
}
