/* SPDX-License-Identifier: MIT */
/* schedule_section - "schedule" of a manifest: a row of text for each rank.
 *
 * It checks ranges only; lib/schedule/check validates the schedule. */
#include "manifest/sections.h"

#include <stdlib.h>

struct settings {
    const char *kind;
    int n_microbatches, slices, channel_depth;
};

#define AT(member) PP_AT(struct settings, member)
const struct pp_doc_field pp_schedule_fields[] = {
    {"kind", PP_STRING, PP_NEEDED, AT(kind)},
    {"n_microbatches", PP_INTEGER, PP_NEEDED, AT(n_microbatches), 1,
     PP_MAX_MICROBATCHES},
    {"slices", PP_INTEGER, PP_OPTIONAL, AT(slices), 1, PP_MAX_SLICES,
     .absent = 1},
    {"slice_parts"},
    {"channel_depth", PP_INTEGER, PP_ALWAYS, AT(channel_depth), 0,
     PP_MAX_MICROBATCHES, .absent = 1},
    {"actions"},
    {NULL},
};
#undef AT

static int check_range(const struct pp_value *row, const struct pp_schedule *s,
                       size_t i, struct pp_action a)
{
    int last = s->graph->n_stages - 1;
    bool stage = a.stage > last || a.peer > last;
    bool slice = a.slice >= s->graph->slices.n;
    if (!stage && !slice && a.microbatch < s->n_microbatches)
        return 0;
    char text[PP_ACTION_TEXT];
    pp_action_format(a, a.peer >= 0, text);
    if (stage)
        return pp_value_fail(row,
                             "action %zu: '%s' is beyond the last stage, "
                             "%d",
                             i, text, last);
    if (slice)
        return pp_value_fail(row,
                             "action %zu: '%s' is beyond the last slice, %d", i,
                             text, s->graph->slices.n - 1);
    return pp_value_fail(row,
                         "action %zu: '%s' is beyond the last microbatch, "
                         "%d",
                         i, text, s->n_microbatches - 1);
}

static int read_row(const struct pp_value *at, int rank, struct pp_schedule *s)
{
    if (pp_value_string(at))
        return -1;
    struct pp_err *err = at->source->err;
    const char *text = json_string_value(at->value);
    if (pp_schedule_parse_row(s, rank, text, err))
        return err->code == PP_EXIT_INPUT ? pp_value_fail_at(at) : -1;
    const struct pp_row *row = &s->rows[rank];
    for (size_t i = 0; i < row->n; i++)
        if (check_range(at, s, i, row->actions[i]))
            return -1;
    return 0;
}

static int read_rows(const struct pp_value *at, struct pp_schedule *s)
{
    struct pp_value actions;
    size_t n;
    if (pp_value_member(at, "actions", &actions) ||
        pp_value_array(&actions, &n))
        return -1;
    if (n != (size_t)s->graph->n_rows)
        return pp_value_fail(&actions, "%zu rows for %d pipeline ranks", n,
                             s->graph->n_rows);
    for (size_t r = 0; r < n; r++) {
        struct pp_value row = pp_value_item(&actions, r);
        if (read_row(&row, (int)r, s))
            return -1;
    }
    return 0;
}

/* A slice reads keys and values of the slices before it, in I too. A stage that
 * recomputes them does not have them. */
static int check_slices(const struct pp_value *at, int slices,
                        const struct pp_manifest *m)
{
    struct pp_value member;
    for (int s = 0; slices > 1 && s < m->graph.n_stages; s++)
        if (m->stages[s].recompute & PP_AGAIN_QKV) {
            pp_value_find(at, "slices", &member);
            return pp_value_fail(&member,
                                 "'%d' slices need the keys and values that "
                                 "stage %d does not save; it must recompute "
                                 "selectively or not at all",
                                 slices, s);
        }
    return 0;
}

/* Reads the parts of unequal slices. */
static int read_parts(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_slices *slices = &m->graph.slices;
    struct pp_value parts;
    size_t n;
    int64_t part, all = 0;
    if (!pp_value_find(at, "slice_parts", &parts))
        return 0;
    if (pp_value_array(&parts, &n))
        return -1;
    if (n != (size_t)slices->n)
        return pp_value_fail(&parts, "%zu parts of %d slices", n, slices->n);
    int32_t *ends = pp_arena_alloc(&m->arena, n, sizeof *ends);
    for (size_t q = 0; q < n; q++) {
        struct pp_value item = pp_value_item(&parts, q);
        if (pp_value_int(&item, 1, PP_MAX_SLICE_PARTS - all, &part))
            return -1;
        ends[q] = (int32_t)(all += part);
    }
    slices->ends = ends;
    return 0;
}

int pp_read_schedule_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    struct settings given = {0};
    if (pp_fields_read(at, pp_schedule_fields, &given))
        return -1;
    if (!m->has_stages)
        return pp_value_fail(at, "there are no stages to schedule");
    if (check_slices(at, given.slices, m))
        return -1;
    m->graph.slices = (struct pp_slices){given.slices, NULL};
    if (read_parts(at, m))
        return -1;
    pp_schedule_init(&m->schedule, &m->graph, given.kind, given.n_microbatches);
    m->schedule.channel_depth = given.channel_depth;
    if (read_rows(at, &m->schedule))
        return -1;
    m->has_schedule = true;
    return 0;
}

json_t *pp_write_schedule_section(const struct pp_schedule *s,
                                  struct pp_err *err)
{
    const struct settings settings = {s->kind, s->n_microbatches,
                                      s->graph->slices.n, s->channel_depth};
    json_t *o = pp_fields_write(pp_schedule_fields, &settings, err);
    const struct pp_slices *slices = &s->graph->slices;
    json_t *actions = json_array(), *parts = json_array();
    for (int q = 0; slices->ends && q < slices->n; q++)
        json_array_append_new(parts, json_integer(pp_slice_own(slices, q)));
    if (slices->ends)
        pp_put(o, "slice_parts", json_incref(parts));
    json_decref(parts);
    for (int r = 0; r < s->graph->n_rows; r++) {
        char *text = pp_schedule_format_row(s, r);
        json_array_append_new(actions, json_string(text));
        free(text);
    }
    pp_put(o, "actions", actions);
    return o;
}
