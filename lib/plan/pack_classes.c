/* SPDX-License-Identifier: MIT */
#include "plan/pack_classes.h"

#include <stdlib.h>
#include <string.h>

#include "plan/pack_rule.h"

int pp_classes_init(struct pp_classes *c, const uint32_t *lengths, size_t n,
                    struct pp_err *err)
{
    *c = (struct pp_classes){.order = pp_pack_order(lengths, n, false, err)};
    if (!c->order)
        return -1;
    size_t n_classes = 0;
    for (size_t k = 0; k < n; k++)
        n_classes += k == 0 || lengths[c->order[k]] != lengths[c->order[k - 1]];
    c->length = pp_pack_alloc(n_classes, sizeof *c->length, err);
    c->count = pp_pack_alloc(n_classes, sizeof *c->count, err);
    c->first = pp_pack_alloc(n_classes + 1, sizeof *c->first, err);
    if (!c->length || !c->count || !c->first) {
        pp_classes_finish(c);
        return -1;
    }
    for (size_t k = 0; k < n; k++) {
        uint32_t length = lengths[c->order[k]];
        if (k == 0 || length != c->length[c->n - 1]) {
            c->first[c->n] = k;
            c->length[c->n++] = length;
        }
        c->count[c->n - 1]++;
    }
    c->first[c->n] = n;
    return 0;
}

void pp_classes_finish(struct pp_classes *c)
{
    free(c->length);
    free(c->count);
    free(c->first);
    free(c->order);
    memset(c, 0, sizeof *c);
}
