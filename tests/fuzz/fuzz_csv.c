/* SPDX-License-Identifier: MIT */
/* fuzz_csv - reads any bytes as a schedule file of PyTorch's, in either
 * dialect, or as Megatron's orders. It is refused with a reason, or checked,
 * lowered, written and read again with the same verdict. The event graph and
 * the walk must agree. A schedule that completes at one depth must complete at
 * a larger one. */
#include <stdlib.h>
#include <string.h>

#include "schedule/check/check.h"
#include "schedule/files/csv.h"
#include "schedule/ir/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Returns 0, or -1 if there is a reason in err. */
static int verdict(const struct pp_schedule *s, const char *name, int depth)
{
    struct pp_err err = {0};
    int rc = pp_check_deadlock(s, pp_semantics_find(name), depth, &err);
    require(rc == 0 || (rc == -1 && *err.text));
    return rc;
}

static void try_semantics(struct pp_schedule *s, bool lowered)
{
    struct pp_err err = {0};
    if (pp_check_order(s, &err))
        return;
    for (int depth = 0; depth < 3; depth++) {
        struct pp_err why = {0};
        s->channel_depth = depth;
        require(pp_check(s, &why) == verdict(s, "channel", depth));
        for (int i = 0; i < PP_N_SEMANTICS; i++) {
            int rc = verdict(s, pp_semantics[i].name, depth);
            require(!rc || !lowered);
            require(rc || !verdict(s, pp_semantics[i].name, depth + 1));
        }
    }
    s->channel_depth = 1;
}

static bool is_valid(struct pp_import *c, struct pp_err *err)
{
    if (!c->messages && (pp_check_rows(&c->schedule, false, err) ||
                         pp_lower(&c->schedule, err)))
        return false;
    try_semantics(&c->schedule, !c->messages);
    return !pp_check(&c->schedule, err);
}

static void try(const char *data, size_t n, const struct pp_import_options *how)
{
    static const struct pp_import_options today = {.name = "fuzz"};
    struct pp_err err = {0};
    struct pp_import c, again = {0};
    char *text = NULL;
    size_t length;
    pp_import_fn parse = pp_is_orders(data, n) ? pp_orders_parse : pp_csv_parse;
    if (parse(data, n, how, &c, &err)) {
        require(*err.text);
        return;
    }
    if (is_valid(&c, &err)) {
        FILE *f = open_memstream(&text, &length);
        bool prints = !pp_schedule_copies(&c.schedule);
        require(f &&
                prints == !pp_csv_print(f, &c.schedule, PP_CSV_COMMS, &err) &&
                !fclose(f));
        require(!prints || (!pp_csv_parse(text, length, &today, &again, &err) &&
                            is_valid(&again, &err)));
    } else {
        require(*err.text);
    }
    free(text);
    pp_import_finish(&again);
    pp_import_finish(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int i = 0; i < 2; i++)
        try((const char *)data, n,
            &(struct pp_import_options){
                .name = "fuzz", .lenient = i, .n_rows = 2 * i});
    return 0;
}
