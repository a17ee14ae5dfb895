/* SPDX-License-Identifier: MIT */
#include "comm/mpi_receives.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"

int pp_mpi_end_order(const void *a, const void *b)
{
    const struct pp_mpi_end *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : (x->tag > y->tag) - (x->tag < y->tag);
}

int pp_mpi_receives_init(struct pp_mpi_receives *r,
                         const struct pp_mpi_end *from, size_t n_from, size_t n,
                         struct pp_err *err)
{
    if (pp_mul(n_from, n, &r->n, err))
        return -1;
    r->n_inboxes = n_from;
    r->inboxes = pp_try_calloc(n_from, sizeof *r->inboxes, err);
    r->all = pp_try_calloc(r->n, sizeof *r->all, err);
    r->active = pp_try_calloc(n_from, sizeof *r->active, err);
    if (!r->inboxes || !r->all || !r->active)
        return -1;
    for (size_t i = 0; i < n_from; i++)
        r->inboxes[i] = (struct pp_mpi_inbox){
            .from = from[i], .receives = r->all + i * n, .ring = n};
    return 0;
}

struct pp_mpi_inbox *pp_mpi_receives_inbox(const struct pp_mpi_receives *r,
                                           struct pp_mpi_end from)
{
    return bsearch(&from, r->inboxes, r->n_inboxes, sizeof *r->inboxes,
                   pp_mpi_end_order);
}

void pp_mpi_receives_finish(struct pp_mpi_receives *r)
{
    for (size_t i = 0; r->all && i < r->n; i++)
        free(r->all[i].spare);
    free(r->inboxes);
    free(r->all);
    free(r->active);
    *r = (struct pp_mpi_receives){0};
}

void pp_mpi_receives_post(struct pp_mpi_receives *r, struct pp_mpi_inbox *in,
                          void *buf, size_t bytes)
{
    if (in->received == in->posted)
        r->active[r->n_active++] = in;
    in->receives[in->posted++ % in->ring] =
        (struct pp_mpi_receive){.buf = buf, .bytes = bytes};
    pp_mpi_receives_advance(r);
}

int pp_mpi_receives_find(const struct pp_mpi_receives *r,
                         struct pp_mpi_inbox *in)
{
    return in->found ? 0
                     : r->mpi->probe(in->from.rank, in->from.tag, &in->found,
                                     &in->bytes, &in->message);
}

/* Begins the receive of the message that is found. A message of another size
 * goes elsewhere, so that its sender does not wait for ever. */
static int begin_receive(const struct pp_mpi_receives *r,
                         struct pp_mpi_inbox *in)
{
    struct pp_mpi_receive *next = &in->receives[in->begun % in->ring];
    void *to = next->buf;
    next->sent_bytes = in->bytes;
    if (next->sent_bytes != next->bytes)
        to = next->spare = malloc(in->bytes + 1);
    in->found = false;
    in->begun++;
    return r->mpi->recv(to, to ? in->bytes : 0, r->most, &in->message,
                        &next->request);
}

/* Returns MPI's code. */
static int advance_inbox(const struct pp_mpi_receives *r,
                         struct pp_mpi_inbox *in)
{
    bool done = true;
    int code = 0;
    while (!code && in->begun < in->posted) {
        code = pp_mpi_receives_find(r, in);
        if (code || !in->found)
            break;
        code = begin_receive(r, in);
    }
    while (!code && done && in->received < in->begun) {
        struct pp_mpi_receive *next = &in->receives[in->received % in->ring];
        code = r->mpi->test(&next->request, &done);
        in->received += !code && done;
    }
    return code;
}

void pp_mpi_receives_advance(void *receives)
{
    struct pp_mpi_receives *r = receives;
    for (size_t i = 0; i < r->n_active;) {
        struct pp_mpi_inbox *in = r->active[i];
        in->failure = advance_inbox(r, in);
        if (in->failure || in->received == in->posted)
            r->active[i] = r->active[--r->n_active];
        else
            i++;
    }
}
