/* SPDX-License-Identifier: MIT */
/* --comm: how long a message takes across each boundary between stages. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ppsched.h"

/* The costs of compute actions are as they were. */
static double time_of(const void *ctx, struct pp_action a)
{
    const struct ppsched_messages *m = ctx;
    if (!pp_is_send(a.op))
        return m->inner.time(m->inner.ctx, a);
    int boundary = a.stage < a.peer ? a.stage : a.peer;
    return m->time[boundary] / m->n_slices;
}

/* The numbers between commas: one for all boundaries, or one each. */
static int parse(struct ppsched *p, double *time, size_t n)
{
    struct tool *t = p->tool;
    const char *s = p->options.comm;
    size_t given = 0;
    for (bool more = true; more; given++) {
        char text[32];
        size_t length = strcspn(s, ",");
        if (length >= sizeof text || given == n)
            break;
        memcpy(text, s, length);
        text[length] = '\0';
        if (pp_parse_real(text, "--comm", 0, 1e300, &time[given], &t->err))
            return -1;
        more = s[length] == ',';
        s += length + more;
    }
    if (*s || (given != 1 && given != n))
        return tool_usage(t,
                          "--comm: '%s' is neither one time nor %zu, one for "
                          "each boundary between stages",
                          p->options.comm, n);
    for (size_t i = given; i < n; i++)
        time[i] = time[0];
    return 0;
}

int ppsched_messages_init(struct ppsched *p)
{
    struct ppsched_messages *m = &p->costs.messages;
    int stages = p->manifest.graph.n_stages;
    /* A single stage has no boundary; its one number is read all the same. */
    size_t n = stages > 1 ? (size_t)stages - 1 : 1;
    m->time = calloc(n, sizeof *m->time);
    if (!m->time)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    if (parse(p, m->time, n))
        return -1;
    m->n_slices = p->manifest.graph.n_slices;
    m->inner = p->costs.costs;
    p->costs.costs.time = time_of;
    p->costs.costs.ctx = m;
    return 0;
}
