/* SPDX-License-Identifier: MIT */
/* fuzz_units - reads any bytes as a table of units. It is refused with a
 * reason, or gives units that can be found by name and by place, and can be
 * split. */
#include <stdlib.h>
#include <string.h>

#include "manifest/units_json.h"
#include "model/cost.h"
#include "split/split.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void split(const struct pp_model *m)
{
    size_t n = pp_model_n_units(m), bounds[4];
    const struct pp_shard whole = pp_shard_whole(m);
    double *costs = calloc(n, sizeof *costs);
    if (!costs)
        return;
    for (size_t i = 0; i < n; i++)
        costs[i] = pp_cost_total(
            pp_unit_cost(&whole, pp_model_unit(m, i), PP_RECOMPUTE_NONE, 4096));
    pp_split_balanced(costs, n, 3, bounds);
    if (bounds[0] != 0 || bounds[1] > bounds[2] || bounds[2] > n ||
        bounds[3] != n)
        abort();
    free(costs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_arena a = {0};
    struct pp_model m;
    struct pp_err err = {0};
    char name[PP_FQN_TEXT];
    if (pp_units_parse((const char *)data, n, "fuzz", &a, &m, &err)) {
        if (err.code != PP_EXIT_INPUT || !*err.text || strchr(err.text, '\n'))
            abort();
        pp_arena_finish(&a);
        return 0;
    }
    uint64_t params = 0;
    for (size_t i = 0; i < pp_model_n_units(&m); i++) {
        struct pp_unit_id u = pp_model_unit(&m, i), found;
        pp_model_fqn(&m, u, name);
        params += pp_unit_n_params(&m, u);
        if (pp_model_index(&m, u) != i || !pp_unit_by_fqn(&m, name, &found) ||
            pp_model_index(&m, found) != i)
            abort();
    }
    if (m.n_layers == 0 || params != pp_model_n_params(&m))
        abort();
    split(&m);
    pp_arena_finish(&a);
    return 0;
}
