/* SPDX-License-Identifier: MIT */
/* --fqns: stages written out as a JSON list of lists of names, as torchtitan's
 * module_fqns_per_model_part, in the names of a manifest or in torchtitan's. */
#include <string.h>

#include "base/file.h"
#include "data/scan.h"
#include "ppsplit.h"

/* The next expected unit and where the scanner stands. */
struct reader {
    struct split_job *j;
    struct pp_scan scan;
    bool *seen;      /* of each unit */
    size_t next;     /* units in order so far */
    size_t late;     /* a unit that comes before its turn, or n_units */
    bool torchtitan; /* names are torchtitan's */
};

/* The unit of that name in either language, which is then that of messages. */
static bool find_unit(struct reader *r, const char *name, struct pp_unit_id *u)
{
    const struct pp_model *m = &r->j->model;
    if (pp_unit_by_fqn(m, name, u))
        return true;
    if (!pp_torchtitan_by_fqn(m, name, u))
        return false;
    r->torchtitan = true;
    return true;
}

static void name_unit(const struct reader *r, size_t i, char buf[PP_FQN_TEXT])
{
    struct pp_unit_id u = pp_model_unit(&r->j->model, i);
    if (r->torchtitan)
        pp_torchtitan_fqn(u, PP_TORCHTITAN_LM_HEAD, buf);
    else
        pp_model_fqn(&r->j->model, u, buf);
}

static int read_name(struct reader *r, int stage, size_t item)
{
    struct split_job *j = r->j;
    struct pp_unit_id u;
    const char *name, *wrong = NULL;
    if (pp_scan_string(&r->scan, &j->arena, &name, &j->t.err))
        return -1;
    if (!find_unit(r, name, &u))
        wrong = "is not in the model";
    else if (r->seen[pp_model_index(&j->model, u)])
        wrong = "is there twice";
    if (wrong)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: /%d/%zu: '%s' %s",
                       j->fqns, stage, item, name, wrong);
    size_t i = pp_model_index(&j->model, u);
    r->seen[i] = true;
    if (i == r->next)
        r->next++;
    else if (r->late == j->n_units)
        r->late = i;
    return 0;
}

static int read_stages(struct reader *r)
{
    struct split_job *j = r->j;
    struct pp_err *err = &j->t.err;
    size_t n = 0, total = 0;
    int more, inner;
    if (pp_scan_expect(&r->scan, '[', err))
        return -1;
    while ((more = pp_scan_more(&r->scan, ']', &n, err)) > 0) {
        size_t item = 0;
        if (pp_scan_expect(&r->scan, '[', err))
            return -1;
        while ((inner = pp_scan_more(&r->scan, ']', &item, err)) > 0)
            if (read_name(r, (int)n - 1, item - 1))
                return -1;
        if (inner)
            return -1;
        total += item;
        if (n <= (size_t)j->graph.n_stages)
            j->bounds[n] = total;
    }
    if (more || pp_scan_end(&r->scan, err))
        return -1;
    if (n != (size_t)j->graph.n_stages)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %zu stages, not %d", j->fqns, n,
                       j->graph.n_stages);
    return 0;
}

/* Every unit is there, in order, and the ends lie where tokens are read and
 * the loss is taken. */
static int check_names(const struct reader *r)
{
    struct split_job *j = r->j;
    char name[PP_FQN_TEXT], other[PP_FQN_TEXT];
    for (size_t i = 0; i < j->n_units; i++)
        if (!r->seen[i]) {
            name_unit(r, i, name);
            return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: no '%s'", j->fqns,
                           name);
        }
    if (r->late < j->n_units) {
        name_unit(r, r->late, name);
        name_unit(r, r->late - 1, other);
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: '%s' comes before '%s'",
                       j->fqns, name, other);
    }
    int last = j->graph.n_stages - 1;
    if (j->bounds[1] == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: /0: the first stage holds no unit", j->fqns);
    if (j->bounds[last] == j->n_units)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: /%d: the last stage holds no unit", j->fqns, last);
    return 0;
}

int split_read_fqns(struct split_job *j)
{
    const void *text;
    size_t bytes;
    struct reader r = {.j = j, .late = j->n_units};
    r.seen = pp_arena_alloc(&j->arena, j->n_units, sizeof *r.seen);
    if (!r.seen)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_file_map(j->fqns, &text, &bytes, &j->t.err))
        return -1;
    r.scan = (struct pp_scan){.text = text, .n = bytes, .name = j->fqns};
    j->bounds[0] = 0;
    int rc = read_stages(&r) || check_names(&r) ? -1 : 0;
    pp_file_unmap(text, bytes);
    return rc;
}
