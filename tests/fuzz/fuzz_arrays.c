/* SPDX-License-Identifier: MIT */
/* fuzz_arrays - reads any bytes as .npy files. They are refused with a reason,
 * or give documents of token ids. Each file is one byte for the array's role,
 * two bytes of length, and the bytes. */
#include <stdlib.h>
#include <string.h>

#include "data/readers.h"
#include "data/packed/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const names[] = {
    "input_ids",     "labels",           "loss_mask",      "attention_mask",
    "lengths",       "cu_groups",        "cu_seqlens",     "cu_seqlens_padded",
    "advantages",    "rewards",          "margins",        "kind",
    "generator_ids", "generator_labels", "generator_mask", "source",
    "start"};
enum { N_NAMES = sizeof names / sizeof *names };

struct input {
    struct {
        const uint8_t *data;
        size_t n;
    } at[N_NAMES];
};

static int find(void *ctx, const char *name, struct pp_array *out,
                struct pp_err *err)
{
    const struct input *x = ctx;
    for (size_t i = 0; i < N_NAMES; i++)
        if (!strcmp(names[i], name) && x->at[i].data)
            return pp_npy_parse(name, x->at[i].data, x->at[i].n, out, err) == 0
                       ? 1
                       : -1;
    return 0;
}

static void check(const struct pp_documents *d)
{
    const enum pp_column c = PP_COLUMN_GENERATOR_LABELS;
    if (d->columns[c] && d->n_values[c] != pp_documents_n_tokens(d))
        abort();
    if (pp_documents_sequence(d, d->n) != d->n_sequences)
        abort();
    for (size_t s = 0; s < d->n_sequences; s++)
        for (size_t k = d->first[s]; k < d->first[s + 1]; k++)
            if (d->ids[k] < 0 || (d->labels && d->labels[k] < 0 &&
                                  d->labels[k] != PP_LABEL_IGNORE))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input x = {0};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    for (size_t at = 0; at + 3 <= n;) {
        size_t which = data[at] % N_NAMES;
        size_t length = data[at + 1] | (size_t)data[at + 2] << 8;
        at += 3;
        x.at[which].n = length < n - at ? length : n - at;
        x.at[which].data = data + at;
        at += x.at[which].n;
    }
    if (pp_arrays_read("f", find, &x, data && n % 2, &d, &err) == 0)
        check(&d);
    else if (err.code != PP_EXIT_INPUT || !*err.text)
        abort();
    pp_documents_finish(&d);
    return 0;
}
