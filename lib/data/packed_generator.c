/* SPDX-License-Identifier: MIT */
/* packed_generator - the tokens of a generator behind the language model: two
 * columns in line with the language model's, and the number of scored labels of
 * each bin. */
#include <inttypes.h>
#include <string.h>

#include "data/packed.h"
#include "data/packed_format.h"

int pp_packed_find_generator(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (h->version != PP_PACKED_GENERATOR)
        return 0;
    if (!h->generator_vocab || h->generator_vocab > INT32_MAX ||
        h->class_out > 1 || h->kind != PP_DATA_DOCUMENTS ||
        !h->ranks != !h->cp || !h->stream.width != !h->stream.n_items)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the header's generator is impossible");
    p->generator_vocab = h->generator_vocab;
    return pp_packed_find_section(p, PP_SECTION_GENERATOR, h->generator_scored,
                                  h->n_bins, sizeof(uint32_t), err);
}

int pp_packed_check_generator(const struct pp_packed *p, struct pp_err *err)
{
    const uint32_t *scored = p->sections[PP_SECTION_GENERATOR];
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    for (size_t b = 0; scored && b < p->n_bins; b++)
        if (scored[b] > r[b].real - r[b].n_sequences)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: a generator cannot have '%" PRIu32
                           "' scored labels",
                           b, scored[b]);
    return 0;
}

/* Returns the bin's elements of one of the generator's columns. */
static const int32_t *column_of(const struct pp_bin *bin, enum pp_column c)
{
    return (const int32_t *)(const void *)bin->columns[c];
}

void pp_packed_generator_bin(const struct pp_packed *p, size_t b,
                             struct pp_bin *out)
{
    const uint32_t *scored = p->sections[PP_SECTION_GENERATOR];
    pp_packed_bin(p, b, out);
    out->input_ids = column_of(out, PP_COLUMN_GENERATOR_IDS);
    out->labels = column_of(out, PP_COLUMN_GENERATOR_LABELS);
    out->scored = scored[b];
    memset(out->columns, 0, sizeof out->columns);
}
