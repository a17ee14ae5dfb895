/* SPDX-License-Identifier: MIT */
/* lists - reads the files and lists that options name: measured costs,
 * a speed for each rank, a mode or names for each stage, and layouts. */
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/num.h"
#include "data/scan.h"
#include "manifest/profile_json.h"
#include "model/vision.h"
#include "ppsplit.h"
#include "split/megatron.h"

/* --- --costs --- */

static void divide(double c[2], double ranks)
{
    c[0] /= ranks;
    c[1] /= ranks;
}

/* Turns the seconds of a rank that does the whole work of a row into seconds
 * for a token of the microbatch, whose work ranks divide. */
static void share_seconds(const struct split_job *j, struct pp_unit_id unit,
                          struct pp_unit_seconds *s)
{
    double *const parts[] = {s->fwd, s->input, s->weight};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (pp_unit_is_vision(unit))
            pp_vision_scale(&j->p.request.shard, unit.component, parts[k]);
        else
            divide(parts[k], pp_mesh_sharers(&j->p.mesh));
    s->once /= pp_mesh_sharers(&j->p.mesh);
}

/* The operations of F and W over those of a unit's own products: more in F with
 * adapters, and far less in W. */
struct adapted {
    double forward, weight;
};

/* Returns them if W lacks that share of the operations of F. Of trained
 * products W does what F does, and a gradient. */
static struct adapted adapted_of(double frozen)
{
    double forward = 2 / (1 + frozen);
    return frozen > 0 ? (struct adapted){forward, (1 - frozen) * forward}
                      : (struct adapted){1, 1};
}

/* Turns the seconds of unit i, which a file has at place `at`, into seconds
 * with the adapters of the plan. Fails if the plan needs a gradient that the
 * run did not make. */
static int adapt_seconds(struct split_job *j, size_t i, size_t at,
                         struct pp_unit_seconds *s)
{
    const struct pp_shard all = pp_shard_whole(&j->p.model);
    const struct pp_unit_id u = pp_model_unit(&j->p.model, i);
    enum pp_role role = pp_unit_role(&j->p.model, u);
    struct pp_flops f = pp_unit_fwd_flops(&all, u);
    double frozen = f.per_token > 0 ? f.frozen / f.per_token : 0;
    const char *lacks = NULL;
    if (s->no_weight && role == PP_ROLE_TRAINED)
        lacks = "weight";
    else if (s->no_input && role != PP_ROLE_FORWARD)
        lacks = "input";
    if (lacks)
        return pp_fail(
            &j->p.t.err, PP_EXIT_INPUT,
            "%s: /units/%zu/%s: '%s' was frozen in the run; the plan "
            "needs this gradient",
            j->o.costs_file, at, lacks, s->fqn);
    if (s->frozen > 0 && !(frozen > 0) && role == PP_ROLE_TRAINED)
        return pp_fail(
            &j->p.t.err, PP_EXIT_INPUT,
            "%s: /units/%zu/weight: '%s' had adapters in the run, and "
            "only they were trained; the plan trains all of it",
            j->o.costs_file, at, s->fqn);
    const struct adapted run = adapted_of(s->frozen), plan = adapted_of(frozen);
    s->fwd[0] *= plan.forward / run.forward;
    s->input[0] *= plan.forward / run.forward;
    s->weight[0] *= plan.weight / run.weight;
    s->frozen = 0;
    return 0;
}

/* Reports whether a row of a table is for a unit. */
static bool is_for(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    return n > 0 && pattern[n - 1] == '*' ? !strncmp(pattern, name, n - 1)
                                          : !strcmp(pattern, name);
}

/* Fills units from a table: the last row that is for a unit counts. */
static int take_table(struct split_job *j, const struct pp_profile *p,
                      struct pp_unit_seconds *units)
{
    char name[PP_FQN_TEXT];
    for (size_t i = 0; i < j->n_units; i++) {
        size_t k = p->n_units;
        pp_model_fqn(&j->p.model, pp_model_unit(&j->p.model, i), name);
        while (k > 0 && !is_for(p->units[k - 1].fqn, name))
            k--;
        if (k == 0)
            return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                           "%s: no line is for the unit '%s'", j->o.costs_file,
                           name);
        units[i] = p->units[k - 1];
        units[i].fqn = pp_arena_strdup(&j->p.arena, name);
        divide(units[i].fwd, (double)j->o.tokens);
        divide(units[i].input, (double)j->o.tokens);
        divide(units[i].weight, (double)j->o.tokens);
    }
    return 0;
}

/* Fills units with the measured ones in the model's order. */
static int order_costs(struct split_job *j, const struct pp_profile *p,
                       struct pp_unit_seconds *units)
{
    struct pp_err *err = &j->p.t.err;
    char name[PP_FQN_TEXT];
    size_t at = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_unit_id u;
        if (!pp_unit_by_fqn(&j->p.model, p->units[i].fqn, &u))
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: /units/%zu/fqn: '%s' is not in the model",
                           j->o.costs_file, i, p->units[i].fqn);
    }
    for (size_t i = 0; i < j->n_units; i++) {
        pp_model_fqn(&j->p.model, pp_model_unit(&j->p.model, i), name);
        /* Begin after the last unit: the file is usually in order. */
        size_t tried = 0;
        while (tried < p->n_units && strcmp(p->units[at].fqn, name)) {
            at = (at + 1) % p->n_units;
            tried++;
        }
        if (tried == p->n_units)
            return pp_fail(err, PP_EXIT_INPUT, "%s: /units: '%s' is missing",
                           j->o.costs_file, name);
        units[i] = p->units[at];
        if (adapt_seconds(j, i, at, &units[i]))
            return -1;
        share_seconds(j, pp_model_unit(&j->p.model, i), &units[i]);
    }
    return 0;
}

int split_read_costs(struct split_job *j)
{
    struct pp_profile p;
    const void *text;
    size_t n;
    if (!j->o.costs_file)
        return 0;
    struct pp_unit_seconds *units =
        pp_arena_alloc(&j->p.arena, j->n_units, sizeof *units);
    if (pp_file_map(j->o.costs_file, &text, &n, &j->p.t.err))
        return -1;
    bool is_table = pp_profile_is_table(text, n);
    int rc = is_table ? pp_profile_parse_table(text, n, j->o.costs_file,
                                               &j->p.arena, &p, &j->p.t.err)
                      : pp_profile_parse(text, n, j->o.costs_file, &j->p.arena,
                                         &p, &j->p.t.err);
    pp_file_unmap(text, n);
    if (rc)
        return -1;
    if (j->p.mesh.expert_imbalance > 0 && !p.expert_ranks)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: has no loads of experts, which an imbalance of "
                       "'%g' would replace",
                       j->o.costs_file, j->p.mesh.expert_imbalance);
    j->profile =
        (struct pp_profile){.units = units,
                            .n_units = j->n_units,
                            .seconds_per_byte = p.seconds_per_byte,
                            .latency = p.latency,
                            .copy_seconds_per_byte = p.copy_seconds_per_byte,
                            .seconds_per_param = p.seconds_per_param};
    if (is_table)
        return take_table(j, &p, units);
    return order_costs(j, &p, units) || split_use_loads(j, &p) ? -1 : 0;
}

/* --- --rank-speed, --recompute --- */

int split_read_speeds(struct split_job *j)
{
    struct pp_err *err = &j->p.t.err;
    size_t n, n_ranks = (size_t)j->o.n_ranks;
    if (!j->o.rank_speed)
        return 0;
    j->speeds = pp_arena_alloc(&j->p.arena, n_ranks, sizeof *j->speeds);
    if (pp_parse_reals(j->o.rank_speed, "--rank-speed", 1e-6, 1e6, j->speeds,
                       n_ranks, &n, err))
        return -1;
    if (n != n_ranks)
        return tool_usage(&j->p.t,
                          "--rank-speed: '%s' is for %zu ranks, not %zu",
                          j->o.rank_speed, n, n_ranks);
    return 0;
}

int split_read_modes(struct split_job *j)
{
    size_t n = j->o.n_sets;
    for (size_t i = 0; i < n && j->p.model.table; i++)
        if (j->o.sets[i] != PP_RECOMPUTE_SELECTIVE &&
            j->o.sets[i] != PP_RECOMPUTE_FULL && j->o.sets[i])
            return tool_usage(&j->p.t,
                              "--recompute: of a model that is estimated only "
                              "'selective' and 'full' are known");
    if (!j->o.recompute_list)
        return 0;
    if (n != j->n_stages)
        return tool_usage(&j->p.t,
                          "--recompute: '%s' is for %zu stages, not %zu",
                          j->o.recompute_list, n, j->n_stages);
    j->stage_modes = j->o.sets;
    return 0;
}

/* --- --fqns: torchtitan's module_fqns_per_model_part, in the names of a
 * manifest or in torchtitan's --- */

/* The next expected unit, and the place of the scanner. */
struct name_reader {
    struct split_job *j;
    struct pp_scan scan;
    bool *seen;      /* per unit */
    size_t next;     /* units in order so far */
    size_t late;     /* a unit out of order; n_units: none */
    bool torchtitan; /* names are torchtitan's, also in messages */
};

static bool find_unit(struct name_reader *r, const char *name,
                      struct pp_unit_id *u)
{
    const struct pp_model *m = &r->j->p.model;
    if (pp_unit_by_fqn(m, name, u))
        return true;
    if (!pp_torchtitan_by_fqn(m, name, u))
        return false;
    r->torchtitan = true;
    return true;
}

static void name_unit(const struct name_reader *r, size_t i,
                      char buf[PP_FQN_TEXT])
{
    struct pp_unit_id u = pp_model_unit(&r->j->p.model, i);
    if (r->torchtitan)
        pp_torchtitan_fqn(u, PP_TORCHTITAN_LM_HEAD, buf);
    else
        pp_model_fqn(&r->j->p.model, u, buf);
}

static int read_name(struct name_reader *r, int stage, size_t item)
{
    struct split_job *j = r->j;
    struct pp_unit_id u;
    const char *name, *wrong = NULL;
    if (pp_scan_string(&r->scan, &j->p.arena, &name, &j->p.t.err))
        return -1;
    if (!find_unit(r, name, &u))
        wrong = "is not in the model";
    else if (r->seen[pp_model_index(&j->p.model, u)])
        wrong = "appears twice";
    if (wrong)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT, "%s: /%d/%zu: '%s' %s",
                       j->rule.fqns, stage, item, name, wrong);
    size_t i = pp_model_index(&j->p.model, u);
    r->seen[i] = true;
    if (i == r->next)
        r->next++;
    else if (r->late == j->n_units)
        r->late = i;
    return 0;
}

static int read_stages(struct name_reader *r)
{
    struct split_job *j = r->j;
    struct pp_err *err = &j->p.t.err;
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
        if (n <= j->n_stages)
            j->bounds[n] = total;
    }
    if (more || pp_scan_end(&r->scan, err))
        return -1;
    if (n != j->n_stages)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %zu stages, not %zu",
                       j->rule.fqns, n, j->n_stages);
    return 0;
}

/* Checks that every unit is there, in order, and that the first and the last
 * stage hold one: they read tokens and compute the loss. */
static int check_names(const struct name_reader *r)
{
    struct split_job *j = r->j;
    struct pp_err *err = &j->p.t.err;
    char name[PP_FQN_TEXT], other[PP_FQN_TEXT];
    for (size_t i = 0; i < j->n_units; i++)
        if (!r->seen[i]) {
            name_unit(r, i, name);
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is missing",
                           j->rule.fqns, name);
        }
    if (r->late < j->n_units) {
        name_unit(r, r->late, name);
        name_unit(r, r->late - 1, other);
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' comes before '%s'",
                       j->rule.fqns, name, other);
    }
    if (j->bounds[1] == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: /0: the first stage holds no unit", j->rule.fqns);
    if (j->bounds[j->n_stages - 1] == j->n_units)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: /%zu: the last stage holds no unit", j->rule.fqns,
                       j->n_stages - 1);
    return 0;
}

int split_read_fqns(struct split_job *j)
{
    const void *text;
    size_t bytes;
    struct name_reader r = {.j = j, .late = j->n_units};
    r.seen = pp_arena_alloc(&j->p.arena, j->n_units, sizeof *r.seen);
    if (pp_file_map(j->rule.fqns, &text, &bytes, &j->p.t.err))
        return -1;
    r.scan = (struct pp_scan){.text = text, .n = bytes, .name = j->rule.fqns};
    j->bounds[0] = 0;
    int rc = read_stages(&r) || check_names(&r) ? -1 : 0;
    pp_file_unmap(text, bytes);
    return rc;
}

/* --- --layout: Megatron-LM's, as a string or as a list of lists of the layer
 * types' names; both become the same symbols --- */

struct type_reader {
    struct split_job *j;
    struct pp_scan scan;
    char *out; /* symbols */
    size_t n;
};

/* Reads a layer type. Blanks around it and case do not matter. */
static int read_type(struct type_reader *r)
{
    static const char *const names[] = {"embedding", "decoder", "mtp", "loss"};
    static const char symbols[] = "EtmL";
    static const char blanks[] = " \t\n\r\f\v";
    const char *text;
    struct pp_err *err = &r->j->p.t.err;
    if (pp_scan_string(&r->scan, &r->j->p.arena, &text, err))
        return -1;
    const char *word = text + strspn(text, blanks);
    size_t length = strlen(word);
    while (length > 0 && strchr(blanks, word[length - 1]))
        length--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length &&
            !strncasecmp(names[i], word, length)) {
            r->out[r->n++] = symbols[i];
            return 0;
        }
    return pp_fail(err, PP_EXIT_INPUT,
                   "--layout: '%s' is not embedding, decoder, mtp or loss",
                   text);
}

static int read_types(struct type_reader *r)
{
    struct pp_err *err = &r->j->p.t.err;
    size_t n = 0;
    int more, inner;
    if (pp_scan_expect(&r->scan, '[', err))
        return -1;
    while ((more = pp_scan_more(&r->scan, ']', &n, err)) > 0) {
        size_t item = 0;
        if (n > 1)
            r->out[r->n++] = '|';
        if (pp_scan_expect(&r->scan, '[', err))
            return -1;
        while ((inner = pp_scan_more(&r->scan, ']', &item, err)) > 0)
            if (read_type(r))
                return -1;
        if (inner)
            return -1;
    }
    return more || pp_scan_end(&r->scan, err) ? -1 : 0;
}

int split_read_layout(struct split_job *j)
{
    struct pp_err *err = &j->p.t.err;
    size_t n = strlen(j->rule.layout);
    if (j->rule.layout[0] != '[') {
        if (pp_layout_expand(j->rule.layout, &j->p.arena, &j->symbols, err))
            return pp_fail_at(err, "--layout: ");
        return 0;
    }
    /* A symbol replaces more than one character, so n + 1 is enough. */
    struct type_reader r = {
        .j = j,
        .scan = {.text = j->rule.layout, .n = n, .name = "--layout"},
        .out = pp_arena_alloc(&j->p.arena, n + 1, 1),
    };
    j->symbols = r.out;
    return read_types(&r);
}
