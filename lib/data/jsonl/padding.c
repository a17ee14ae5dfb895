/* SPDX-License-Identifier: MIT */
/* padding - removes the padding that an attention mask marks. Positions
 * are counted from the first token that is left. */
#include <string.h>

#include "data/jsonl/sequence.h"

int pp_padding_read(struct pp_scan *s, size_t at, int32_t *room, size_t n,
                    struct pp_padding *out, struct pp_err *err)
{
    size_t given, first = 0, end;
    s->at = at;
    if (pp_scan_mask(s, room, &given, err) != 0)
        return -1;
    s->at = at; /* the place of errors */
    if (given != n)
        return pp_scan_fail(s, err,
                            "attention_mask of '%zu' elements for %zu "
                            "tokens",
                            given, n);
    while (first < n && !room[first])
        first++;
    for (end = first; end < n && room[end];)
        end++;
    for (size_t i = end; i < n; i++)
        if (room[i])
            return pp_scan_fail(s, err,
                                "attention_mask: '0' between tokens is not "
                                "padding");
    *out = (struct pp_padding){first, end - first};
    return 0;
}

int pp_sequence_trim(struct pp_jsonl_sequence *r, struct pp_scan *s,
                     const struct pp_fields *f, enum pp_field mask, size_t from,
                     struct pp_err *err)
{
    struct pp_padding p;
    if (!f->has[mask])
        return 0;
    if (pp_padding_read(s, f->at[mask], r->mask, r->n - from, &p, err) != 0)
        return -1;
    size_t at = from + p.before;
    memmove(r->ids + from, r->ids + at, p.n * sizeof *r->ids);
    memmove(r->labels + from, r->labels + at, p.n * sizeof *r->labels);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (r->has[c] && pp_columns[c].scope == PP_SCOPE_TOKEN)
            memmove(r->values[c] + from, r->values[c] + at,
                    p.n * sizeof *r->values[c]);
    r->n = from + p.n;
    return 0;
}
