/* SPDX-License-Identifier: MIT */
/* fuzz_action - reads any bytes as one action. It is refused, or written and
 * read again to the same action. */
#include <stdlib.h>
#include <string.h>

#include "schedule/ir/action.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool is_same(struct pp_action a, struct pp_action b)
{
    return a.stage == b.stage && a.microbatch == b.microbatch &&
           a.peer == b.peer && a.slice == b.slice && a.op == b.op &&
           a.overlap == b.overlap;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_err err = {0};
    struct pp_action a, b;
    if (pp_action_parse((const char *)data, n, &a, &err)) {
        if (err.code != PP_EXIT_INPUT || !*err.text)
            abort();
        return 0;
    }
    char text[PP_ACTION_TEXT];
    size_t length = pp_action_format(a, a.peer >= 0, text);
    if (length >= sizeof text || a.op >= PP_N_OPS ||
        pp_action_parse(text, length, &b, &err) || !is_same(a, b))
        abort();
    return 0;
}
