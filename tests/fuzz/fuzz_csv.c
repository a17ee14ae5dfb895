/* SPDX-License-Identifier: MIT */
/* fuzz_csv - any bytes as a schedule file of PyTorch's: refused in words, or
 * checked, lowered, written, and read again with the same verdict. */
#include <stdlib.h>
#include <string.h>

#include "sched/check.h"
#include "sched/csv.h"
#include "sched/lower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool is_valid(struct pp_csv *c, struct pp_err *err)
{
    if (!c->messages &&
        (pp_check_computes(&c->schedule, err) || pp_lower(&c->schedule, err)))
        return false;
    return !pp_check(&c->schedule, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_err err = {0};
    struct pp_csv c, again = {0};
    char *text = NULL;
    size_t length;
    if (pp_csv_parse((const char *)data, n, NULL, 0, &c, &err)) {
        if (!*err.text)
            abort();
        return 0;
    }
    if (is_valid(&c, &err)) {
        FILE *f = open_memstream(&text, &length);
        if (!f || pp_csv_print(f, &c.schedule, PP_CSV_COMMS, &err) || fclose(f))
            abort();
        if (pp_csv_parse(text, length, NULL, 0, &again, &err) ||
            !is_valid(&again, &err))
            abort();
    } else if (!*err.text) {
        abort();
    }
    free(text);
    pp_csv_finish(&again);
    pp_csv_finish(&c);
    return 0;
}
