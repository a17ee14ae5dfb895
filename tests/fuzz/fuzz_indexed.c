/* SPDX-License-Identifier: MIT */
/* fuzz_indexed - reads any bytes as an index and tokens. They are refused with
 * a reason, or give documents of token ids. The first byte is the number of
 * bytes of tokens at the end. */
#include <stdlib.h>

#include "data/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const uint8_t *data, size_t idx, size_t bin,
                  const struct pp_indexed_options *o)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    if (pp_indexed_parse("i", data, idx, "b", data + idx, bin, o, &d, &err)) {
        if (err.code != PP_EXIT_INPUT || !*err.text)
            abort();
    } else
        for (size_t i = 0; i < d.n; i++) {
            if (d.first[i + 1] < d.first[i] + !o->allow_empty)
                abort();
            for (size_t k = d.first[i]; k < d.first[i + 1]; k++)
                if (d.ids[k] < 0)
                    abort();
        }
    for (size_t k = 0; k < d.n_omissions; k++)
        if (!o->modes || d.omissions[k].document >= d.n ||
            !d.omissions[k].n_sequences)
            abort();
    pp_documents_finish(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const bool modes[256] = {[1] = true};
    static const struct pp_indexed_options text = {0},
                                           other = {.allow_empty = true,
                                                    .modes = modes};
    if (n == 0)
        return 0;
    size_t bin = *data < n ? *data : n - 1, idx = n - 1 - bin;
    check(data + 1, idx, bin, &text);
    check(data + 1, idx, bin, &other);
    return 0;
}
