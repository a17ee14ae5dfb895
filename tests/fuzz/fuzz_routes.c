/* SPDX-License-Identifier: MIT */
/* fuzz_routes - reads any bytes as a file of routes, as they are and with the
 * magic and the checksum that would be right. It is refused with a reason, or
 * every place has distinct experts or none. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "data/routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct pp_routes *r)
{
    const struct pp_routes_shape *s = &r->shape;
    size_t n = (size_t)s->n_layers * s->n_positions * s->top_k;
    for (size_t i = 0; i < n; i++) {
        bool none = r->experts[i] == PP_NO_EXPERT;
        if (none != (r->experts[i / s->top_k * s->top_k] == PP_NO_EXPERT) ||
            (!none && r->experts[i] >= s->n_experts))
            abort();
        for (size_t j = i / s->top_k * s->top_k; !none && j < i; j++)
            if (r->experts[j] == r->experts[i])
                abort();
    }
}

static void parse(const void *data, size_t n)
{
    struct pp_routes r;
    struct pp_err err = {0};
    if (pp_routes_parse(data, n, &r, &err) == 0)
        check(&r);
    else if (err.code == PP_EXIT_OK || !*err.text)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *copy = malloc(n + 16);
    if (!copy)
        return 0;
    memcpy(copy, data, n);
    parse(copy, n);
    uint64_t sum = pp_checksum_of(data, n);
    memcpy(copy, "PPROUTE", 8);
    memcpy(copy + 8, &sum, sizeof sum);
    memcpy(copy + 16, data, n);
    parse(copy, n + 16);
    free(copy);
    return 0;
}
