/* SPDX-License-Identifier: MIT */
/* cut - makes pairs and responses that are longer than a bin shorter, before
 * they become pieces. Prompts stay whole: the ends of answers are cut off, as
 * TRL's max_length does (keep_start). */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "data/packed/packed.h"
#include "data/pieces.h"

/* The documents being cut, one after the other. */
struct cutter {
    struct pp_documents *d;
    const struct pp_piece_options *o;
    size_t limit; /* most tokens of a bin, with padding */
    size_t to;    /* tokens kept so far: the next sequence moves there */
};

/* Not a length: nothing is cut off. */
#define WHOLE SIZE_MAX

static size_t length_of(const struct pp_documents *d, size_t s)
{
    return d->first[s + 1] - d->first[s];
}

/* Returns the tokens that a sequence cannot do without: its prompt and one
 * scored token behind it, or all. Nothing predicts the first token. */
static size_t least_of(const struct pp_documents *d, size_t s)
{
    size_t n = length_of(d, s);
    for (size_t t = 1; t < n; t++)
        if (!d->labels || d->labels[d->first[s] + t] != PP_LABEL_IGNORE)
            return t + 1;
    return n;
}

static bool has_items(const struct pp_documents *d, size_t first, size_t end)
{
    const struct pp_item *at;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        for (size_t s = first; d->items[m].n && s < end; s++)
            if (pp_items_of(&d->items[m], s, &at) > 0)
                return true;
    return false;
}

/* Returns the padded length of sequences that have at most `most` tokens. */
static size_t padded_to(const struct cutter *c, size_t first, size_t end,
                        size_t most)
{
    size_t sum = 0;
    for (size_t s = first; s < end; s++) {
        size_t n = length_of(c->d, s);
        sum += pp_round_up(n < most ? n : most, c->o->align);
    }
    return sum;
}

/* Returns the most tokens that each sequence of a pair may have so that the
 * pair fits, or WHOLE if it does, or if a prompt would be cut. */
static size_t most_of_pair(const struct cutter *c, size_t first, size_t end)
{
    size_t low = 0, high = c->limit;
    if (c->o->oversize != PP_OVERSIZE_TRUNCATE || has_items(c->d, first, end) ||
        padded_to(c, first, end, WHOLE) <= c->limit)
        return WHOLE;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (padded_to(c, first, end, middle) <= c->limit)
            low = middle;
        else
            high = middle - 1;
    }
    for (size_t s = first; s < end; s++)
        if (length_of(c->d, s) > low && least_of(c->d, s) > low)
            return WHOLE;
    return low;
}

/* Returns the tokens that are kept of a response: none if it cannot be cut. */
static size_t kept_of_response(const struct cutter *c, size_t s)
{
    size_t n = length_of(c->d, s);
    if (n <= c->limit)
        return n;
    return c->o->oversize == PP_OVERSIZE_TRUNCATE &&
                   least_of(c->d, s) <= c->limit
               ? c->limit
               : 0;
}

/* Returns whether the responses of a group are cut: some are too long, and one
 * is kept. Items cannot be cut. */
static bool cuts_group(const struct cutter *c, size_t first, size_t end)
{
    bool keeps = false, cuts = false;
    if (c->o->oversize == PP_OVERSIZE_TRUNCATE && has_items(c->d, first, end))
        return false;
    for (size_t s = first; s < end; s++) {
        size_t n = kept_of_response(c, s);
        keeps |= n > 0;
        cuts |= n < length_of(c->d, s);
    }
    return keeps && cuts;
}

/* Moves n tokens, with their columns, from an index to a lower one. */
static void move_tokens(struct pp_documents *d, size_t from, size_t to,
                        size_t n)
{
    if (from == to)
        return;
    if (d->ids)
        memmove(d->ids + to, d->ids + from, n * sizeof *d->ids);
    if (d->labels)
        memmove(d->labels + to, d->labels + from, n * sizeof *d->labels);
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        size_t width = pp_column_width(c, d->top_k);
        float *x = d->columns[c];
        if (x && pp_columns[c].scope == PP_SCOPE_TOKEN)
            memmove(x + to * width, x + from * width, n * width * sizeof *x);
    }
}

/* Fails if sums over whole sequences would be wrong. */
static int check_sums(const struct pp_documents *d, size_t i,
                      const struct pp_piece_options *o, struct pp_err *err)
{
    if (!d->columns[PP_COLUMN_REF_LOGPS])
        return 0;
    return pp_fail_setting(err, PP_EXIT_INPUT, "oversize", "drop",
                           "document %zu is longer than the '%" PRIu32
                           "' tokens of a bin and cannot be cut: its ref_logps "
                           "are sums over all of it",
                           i, o->capacity);
}

/* Cuts a document, and moves it behind the one before. */
static int cut_document(struct cutter *c, size_t i, struct pp_err *err)
{
    struct pp_documents *d = c->d;
    size_t first = pp_documents_sequence(d, i), lost = 0;
    size_t end = pp_documents_sequence(d, i + 1);
    bool pair = d->kind == PP_DATA_PAIRS;
    size_t most = pair ? most_of_pair(c, first, end) : WHOLE;
    bool cuts = pair ? most < WHOLE : cuts_group(c, first, end);
    if (cuts && c->o->oversize == PP_OVERSIZE_TRUNCATE &&
        check_sums(d, i, c->o, err) != 0)
        return -1;
    for (size_t s = first; s < end; s++) {
        size_t n = length_of(d, s), kept = n;
        if (pair)
            kept = n < most ? n : most;
        else if (cuts)
            kept = kept_of_response(c, s);
        move_tokens(d, d->first[s], c->to, kept);
        d->first[s] = c->to;
        c->to += kept;
        lost += n - kept;
    }
    return lost ? pp_documents_add_omission(d, i, 0, lost, err) : 0;
}

int pp_documents_cut(struct pp_documents *d, const struct pp_piece_options *o,
                     struct pp_err *err)
{
    struct cutter c = {d, o, o->capacity / o->align * o->align, 0};
    if (d->kind == PP_DATA_DOCUMENTS || d->n == 0 ||
        (o->oversize != PP_OVERSIZE_TRUNCATE &&
         o->oversize != PP_OVERSIZE_DROP))
        return 0;
    for (size_t i = 0; i < d->n; i++)
        if (cut_document(&c, i, err) != 0)
            return -1;
    d->first[d->n_sequences] = c.to;
    return 0;
}
