/* SPDX-License-Identifier: MIT */
/* fuzz_safetensors - reads any bytes as a safetensors file, and as a JSON text.
 * They are refused with a reason, or give tensors that cover the data exactly
 * and can be read to their last element. */
#include <stdlib.h>
#include <string.h>

#include "data/tensors/safetensors.h"
#include "data/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_refused(const struct pp_err *err)
{
    if (err->code != PP_EXIT_INPUT || !*err->text)
        abort();
}

static void read_ends(const struct pp_tensor *t)
{
    struct pp_err err = {0};
    double d;
    float f;
    if (t->n == 0 || pp_dtype_bytes(t->dtype) == 0)
        return;
    bool is_real = t->dtype != PP_DTYPE_I64 && t->dtype != PP_DTYPE_I32;
    if ((pp_tensor_read_f64(t, t->n - 1, 1, &d, &err) == 0) != is_real ||
        (pp_tensor_read_f32(t, 0, 1, &f, &err) == 0) != is_real)
        abort();
}

static void check_tensors(const struct pp_tensor_list *list,
                          const uint8_t *data, size_t n)
{
    size_t bytes = 0, header = 8;
    for (int i = 0; i < 8; i++)
        header += (size_t)data[i] << 8 * i;
    for (size_t i = 0; i < list->n; i++) {
        const struct pp_tensor *t = &list->items[i];
        const uint8_t *p = t->data;
        if (p != data + header + bytes || t->bytes > n - header - bytes)
            abort();
        bytes += t->bytes;
        read_ends(t);
    }
    if (header + bytes != n)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_err err = {0};
    struct pp_arena a = {0};
    struct pp_tensor_list list = {0};
    if (pp_safetensors_parse("f", data, n, &a, &list, &err))
        check_refused(&err);
    else
        check_tensors(&list, data, n);
    free(list.items);
    struct pp_scan s = {.text = (const char *)data, .n = n, .name = "f"};
    struct pp_err other = {0};
    if (pp_scan_skip(&s, &other) || pp_scan_end(&s, &other))
        check_refused(&other);
    pp_arena_finish(&a);
    return 0;
}
