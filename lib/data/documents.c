/* SPDX-License-Identifier: MIT */
#include "data/documents.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* Grows an array to at least n elements, by half again or more. */
static int grow(void *array, size_t *room, size_t n, size_t size,
                struct pp_err *err)
{
    void *old, *fresh;
    size_t target = *room + *room / 2 + 1024, bytes;
    if (target < n)
        target = n;
    if (pp_mul(target, size, &bytes, err) != 0)
        return -1;
    memcpy(&old, array, sizeof old);
    fresh = realloc(old, bytes);
    if (!fresh)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(array, &fresh, sizeof fresh);
    *room = target;
    return 0;
}

static size_t n_tokens(const struct pp_documents *d)
{
    return d->n ? d->first[d->n] : 0;
}

int32_t *pp_documents_room(struct pp_documents *d, size_t n, struct pp_err *err)
{
    size_t used = n_tokens(d), need;
    if (__builtin_add_overflow(used, n, &need)) {
        pp_fail(err, PP_EXIT_SYSTEM, "too many tokens");
        return NULL;
    }
    if (!d->ids || need > d->ids_room) {
        size_t room = d->ids_room;
        if (grow(&d->ids, &room, need, sizeof *d->ids, err) != 0)
            return NULL;
        if (d->labels) {
            size_t labels_room = d->ids_room;
            if (grow(&d->labels, &labels_room, need, sizeof *d->labels, err) !=
                0)
                return NULL;
        }
        d->ids_room = room;
    }
    return d->ids + used;
}

/* The first document with labels of its own: those before it have their ids. */
static int start_labels(struct pp_documents *d, struct pp_err *err)
{
    size_t used = n_tokens(d);
    d->labels = malloc(d->ids_room * sizeof *d->labels);
    if (!d->labels)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (used)
        memcpy(d->labels, d->ids, used * sizeof *d->labels);
    return 0;
}

int pp_documents_add(struct pp_documents *d, size_t n, const int32_t *labels,
                     struct pp_err *err)
{
    size_t used = n_tokens(d);
    if (d->n >= UINT32_MAX || n > INT32_MAX)
        return pp_fail(err, PP_EXIT_INPUT, "too long to be packed");
    if (labels && !d->labels && start_labels(d, err) != 0)
        return -1;
    if (d->n + 2 > d->first_room &&
        grow(&d->first, &d->first_room, d->n + 2, sizeof *d->first, err) != 0)
        return -1;
    if (d->labels && n)
        memcpy(d->labels + used, labels ? labels : d->ids + used,
               n * sizeof *d->labels);
    if (d->n == 0)
        d->first[0] = 0;
    d->first[++d->n] = used + n;
    return 0;
}

void pp_documents_finish(struct pp_documents *d)
{
    free(d->first);
    free(d->ids);
    free(d->labels);
    memset(d, 0, sizeof *d);
}
