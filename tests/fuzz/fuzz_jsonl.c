/* SPDX-License-Identifier: MIT */
/* fuzz_jsonl - reads any bytes as JSON Lines. They are refused with a line
 * number, or give documents whose ids and labels are in range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/readers.h"
#include "data/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct pp_documents *d, bool bytes)
{
    for (size_t i = 0; i < d->n_sequences; i++)
        for (size_t k = d->first[i]; k < d->first[i + 1]; k++) {
            int32_t id = d->ids[k], label = d->labels ? d->labels[k] : id;
            if (id < 0 || (bytes && id > PP_BYTES_END) ||
                (label < 0 && label != PP_LABEL_IGNORE))
                abort();
        }
    const struct pp_item *at;
    for (size_t i = 0; i < d->n_sequences; i++)
        for (size_t n = pp_items_of(&d->images, i, &at); n > 0; n--, at++)
            for (size_t k = 0; k < at->rows; k++)
                if (!isfinite(d->images.values[(at->first_row + k) *
                                               d->images.kind.width]))
                    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    /* Placeholders of images and audio are 9. */
    static const struct pp_jsonl_stream images = {9, 1, 2};
    static const struct pp_jsonl_stream audio = {9, 2, 0, PP_MODALITY_AUDIO};
    for (int mode = 0; mode < 3; mode++) {
        struct pp_documents d = {0};
        struct pp_err err = {0};
        bool bytes = mode == 1;
        struct pp_jsonl j = {.name = "in",
                             .bytes = bytes,
                             .images = mode == 2 ? &audio : &images};
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
