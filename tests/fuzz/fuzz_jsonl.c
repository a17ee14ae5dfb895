/* SPDX-License-Identifier: MIT */
/* fuzz_jsonl - reads any bytes as JSON Lines. They are refused with a line
 * number, or give documents whose ids and labels are in range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/readers.h"
#include "data/packed/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Checks the rows of a sequence's items. */
static void check_items(const struct pp_items *s, size_t sequence)
{
    const struct pp_item *at;
    for (size_t n = pp_items_of(s, sequence, &at); n > 0; n--, at++)
        for (size_t k = 0; k < at->rows; k++)
            if (!isfinite(s->values[(at->first_row + k) * s->kind.width]))
                abort();
}

/* Checks that a column of ids has one for each token. */
static void check_ids(const struct pp_documents *d, enum pp_column c)
{
    const int32_t *ids = (const int32_t *)(const void *)d->columns[c];
    size_t n = d->n_sequences ? d->first[d->n_sequences] : 0;
    if (ids && d->n_values[c] != n)
        abort();
    for (size_t i = 0; ids && i < n; i++)
        if (ids[i] < 0 && ids[i] != pp_columns[c].pad)
            abort();
}

static void check(const struct pp_documents *d, bool bytes)
{
    check_ids(d, PP_COLUMN_GENERATOR_IDS);
    check_ids(d, PP_COLUMN_GENERATOR_LABELS);
    for (size_t i = 0; i < d->n_sequences; i++)
        for (size_t k = d->first[i]; k < d->first[i + 1]; k++) {
            int32_t id = d->ids[k], label = d->labels ? d->labels[k] : id;
            if (id < 0 || (bytes && id > PP_BYTES_END) ||
                (label < 0 && label != PP_LABEL_IGNORE))
                abort();
        }
    for (size_t i = 0; i < d->n_sequences; i++)
        for (int m = 0; m < PP_N_MODALITIES; m++)
            check_items(&d->items[m], i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    /* Placeholders of images and audio are 9; of audio beside images, 8. */
    static const struct pp_jsonl_stream images = {9, 1, 2, false},
                                        audio = {9, 2, 0, false},
                                        other = {8, 2, 0, false},
                                        more = {9, 2, 2, true};
    static const struct pp_jsonl_stream *const streams[][PP_N_MODALITIES] = {
        {&images, NULL},
        {&images, NULL},
        {NULL, &audio},
        {&images, &other},
        {&more, NULL}};
    for (int mode = 0; mode < 5; mode++) {
        struct pp_documents d = {0};
        struct pp_err err = {0};
        bool bytes = mode == 1;
        struct pp_jsonl j = {.name = "in",
                             .bytes = bytes,
                             .streams = {streams[mode][0], streams[mode][1]}};
        FILE *f = fmemopen((void *)(size_t)data, n, "r");
        if (!f)
            return 0;
        if (pp_jsonl_read(&j, f, &d, &err) == 0)
            check(&d, bytes);
        else if (err.code != PP_EXIT_INPUT ||
                 strncmp(err.text, "in: line ", 9) != 0)
            abort();
        fclose(f);
        pp_documents_finish(&d);
    }
    return 0;
}
