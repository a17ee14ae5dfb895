/* SPDX-License-Identifier: MIT */
/* routing - the files of --record-routing and --replay-routing. */
#include <stdlib.h>
#include <string.h>

#include "model/layer_set.h"
#include "runner/runner.h"

static int find_shape(struct runner *p, struct pp_routes_shape *s)
{
    const struct pp_moe *m = &p->model.moe;
    if (pp_routes_of(&p->data, s, &p->tool->err))
        return -1;
    s->n_experts = (uint32_t)m->n_experts;
    s->n_layers = (uint32_t)pp_layer_set_before(&m->layers, p->model.n_layers);
    s->top_k = (uint32_t)m->top_k;
    return 0;
}

int runner_routing_open(struct runner *p)
{
    struct pp_routes_shape shape;
    if (!p->options.replay_routing)
        return 0;
    p->job.given = &p->given;
    return find_shape(p, &shape) ||
                   pp_routes_open(p->options.replay_routing, &shape, &p->given,
                                  &p->tool->err)
               ? -1
               : 0;
}

int runner_routing_create(struct runner *p)
{
    struct pp_routes_shape shape;
    if (!p->options.record_routing)
        return 0;
    p->job.taken = &p->taken;
    return find_shape(p, &shape) ||
                   pp_routes_create(&p->taken, p->options.record_routing,
                                    &shape, &p->tool->err)
               ? -1
               : 0;
}

int runner_routing_join(struct runner *p, struct pp_rendezvous *j)
{
    struct pp_routes_shape shape;
    void *tmp = p->rank == 0 ? p->taken.tmp.path : NULL;
    size_t n = tmp ? strlen(tmp) + 1 : 0;
    if (!p->options.record_routing)
        return 0;
    if (pp_rendezvous_broadcast(j, &tmp, &n, &p->tool->err))
        return -1;
    if (p->rank == 0)
        return 0;
    p->job.taken = &p->taken;
    int rc = find_shape(p, &shape) ||
                     pp_routes_join(&p->taken, p->options.record_routing, tmp,
                                    &shape, &p->tool->err)
                 ? -1
                 : 0;
    free(tmp);
    return rc;
}

int runner_routing_close(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    if (!p->taken.tmp.path || err->code != PP_EXIT_OK) {
        pp_routes_abort(&p->taken);
        return 0;
    }
    return pp_routes_commit(&p->taken, err);
}
