/* SPDX-License-Identifier: MIT */
/* fuzz_indexed - any bytes as an index and tokens: refused with a reason, or
 * documents of token ids. The first byte says how many of the last are the
 * tokens. */
#include <stdlib.h>

#include "data/indexed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    if (n == 0)
        return 0;
    size_t bin = *data < n ? *data : n - 1, idx = n - 1 - bin;
    if (pp_indexed_parse("i", data + 1, idx, "b", data + 1 + idx, bin, false,
                         &d, &err)) {
        if (err.code != PP_EXIT_INPUT || !*err.text)
            abort();
    } else
        for (size_t i = 0; i < d.n; i++) {
            if (d.first[i + 1] <= d.first[i])
                abort();
            for (size_t k = d.first[i]; k < d.first[i + 1]; k++)
                if (d.ids[k] < 0)
                    abort();
        }
    pp_documents_finish(&d);
    return 0;
}
