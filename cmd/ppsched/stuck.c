/* SPDX-License-Identifier: MIT */
/* Faults of a file with their lines and columns, the change that mends it, and
 * for a schedule that deadlocks the circle of waits and, with -t, the part that
 * runs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ppsched.h"
#include "schedule/check/stuck.h"

enum { POSITION_TEXT = 64 };

const char *ppsched_import_name(const struct ppsched *p)
{
    return strcmp(p->options.import, "-") ? p->options.import
                                          : "standard input";
}

/* Writes a place of the file with a colon before: ":3:17", or ":3" if the line
 * as a whole is meant, or nothing. */
static void format_place(struct pp_text_place at, char text[POSITION_TEXT])
{
    *text = '\0';
    if (at.column)
        snprintf(text, POSITION_TEXT, ":%zu:%zu", at.line, at.column);
    else if (at.line)
        snprintf(text, POSITION_TEXT, ":%zu", at.line);
}

/* Returns the place of an action, or of its row as a whole. */
static struct pp_text_place place_of(const struct ppsched *p, int row,
                                     size_t place)
{
    struct pp_text_place *const *places = p->import.places;
    if (!places)
        return (struct pp_text_place){0};
    if (place == PP_NO_PLACE)
        return (struct pp_text_place){places[row][0].line, 0};
    return places[row][place];
}

/* Returns the place of a fault. in_rows: not in the file. */
static struct pp_text_place fault_place(const struct ppsched *p,
                                        const struct pp_fault *f, bool in_rows)
{
    size_t column = f->place == PP_NO_PLACE ? 0 : f->place;
    return in_rows ? place_of(p, f->row, f->place)
                   : (struct pp_text_place){(size_t)f->row + 1, column};
}

/* --- the smallest change --- */

enum { EDIT_TEXT = 3 * PP_ACTION_TEXT + 64 };

/* Writes an edit: "move '1B0' (2:5) behind '1F0'". */
static void format_edit(const struct ppsched *p, const struct pp_edit *e,
                        char text[EDIT_TEXT])
{
    char mine[PP_ACTION_TEXT], with[PP_ACTION_TEXT], behind[PP_ACTION_TEXT];
    char where[POSITION_TEXT] = "", stand[PP_ACTION_TEXT + 32] = "";
    bool first = p->n_edits == 1 || e == p->edits;
    pp_action_format(e->action, false, mine);
    pp_action_format(e->with, false, with);
    if (e->behind.op != PP_IDLE)
        pp_action_format(e->behind, false, behind);
    /* Later edits are of rows that the first has changed. */
    if (first && e->kind != PP_EDIT_INSERT)
        format_place(place_of(p, e->row, e->place), where);
    if (e->behind.op == PP_IDLE)
        snprintf(stand, sizeof stand, " to the beginning of rank %d", e->row);
    else
        snprintf(stand, sizeof stand, " behind '%s'", behind);
    const char *open = *where ? " (" : "", *close = *where ? ")" : "";
    const char *at = *where ? where + 1 : "";
    if (e->kind == PP_EDIT_REMOVE)
        snprintf(text, EDIT_TEXT, "remove '%s'%s%s%s", mine, open, at, close);
    else if (e->kind == PP_EDIT_CHANGE)
        snprintf(text, EDIT_TEXT, "replace '%s'%s%s%s by '%s'", mine, open, at,
                 close, with);
    else if (e->kind == PP_EDIT_MOVE)
        snprintf(text, EDIT_TEXT, "move '%s'%s%s%s%s", mine, open, at, close,
                 stand);
    else
        snprintf(text, EDIT_TEXT, "add '%s'%s", with, stand);
}

/* Notes the smallest change that makes the file valid, if one is found. */
static int tell_mend(struct ppsched *p)
{
    char text[EDIT_TEXT];
    if (pp_mend_find(p->schedule, p->import.messages, p->edits, &p->n_edits,
                     &p->tool->err))
        return -1;
    for (int i = 0; i < p->n_edits; i++) {
        format_edit(p, &p->edits[i], text);
        tool_say(p->tool, TOOL_NOTE, "%s: %s: %s", ppsched_import_name(p),
                 i ? "and then" : "to make it valid", text);
    }
    return 0;
}

int ppsched_refuse_faults(struct ppsched *p, bool in_rows)
{
    struct tool *t = p->tool;
    struct pp_faults *faults = &p->faults;
    const char *name = ppsched_import_name(p);
    size_t kept = faults->n < PP_MAX_FAULTS ? faults->n : PP_MAX_FAULTS;
    char at[POSITION_TEXT];
    enum pp_exit code = PP_EXIT_NO;
    pp_faults_sort(faults);
    for (size_t i = 0; i < kept; i++) {
        const struct pp_fault *f = &faults->at[i];
        code = f->err.code > code ? f->err.code : code;
        format_place(fault_place(p, f, in_rows), at);
        if (i + 1 < faults->n)
            tool_say(t, TOOL_WARNING, "%s%s: %s", name, at, f->err.text);
    }
    if (in_rows && tell_mend(p))
        return -1;
    if (faults->n > kept)
        return pp_fail(&t->err, code, "%s: %zu more faults", name,
                       faults->n - kept);
    t->err = faults->at[kept - 1].err;
    t->err.code = code;
    return pp_fail_at(&t->err, "%s%s: ", name, at);
}

void ppsched_refused_json(struct ppsched *p)
{
    struct tool *t = p->tool;
    size_t kept = p->faults.n < PP_MAX_FAULTS ? p->faults.n : PP_MAX_FAULTS;
    bool in_rows = p->schedule != NULL;
    if (t->misused || (t->err.code != PP_EXIT_NO && kept == 0))
        return;
    struct pp_err why = t->err;
    t->err = (struct pp_err){0};
    FILE *f = tool_output(t);
    if (!f)
        return;
    struct pp_json_writer w = pp_json_lines(f);
    pp_json_bool(&w, "valid", false);
    pp_json_string(&w, "error", why.text);
    pp_json_array(&w, "faults", PP_JSON_HUGGED);
    for (size_t i = 0; i < kept; i++) {
        const struct pp_fault *fault = &p->faults.at[i];
        struct pp_text_place at = fault_place(p, fault, in_rows);
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_int(&w, "rank", fault->row);
        if (at.line)
            pp_json_uint(&w, "line", at.line);
        if (at.column)
            pp_json_uint(&w, "column", at.column);
        pp_json_string(&w, "text", fault->err.text);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_array(&w, "changes", PP_JSON_HUGGED);
    for (int i = 0; i < p->n_edits; i++) {
        char text[EDIT_TEXT];
        format_edit(p, &p->edits[i], text);
        pp_json_string(&w, NULL, text);
    }
    pp_json_end(&w);
    pp_json_finish(&w);
    tool_say(t, TOOL_WARNING, "%s", why.text);
    t->status = why.code;
}

static void tell_wait(struct ppsched *p, const struct pp_wait *w)
{
    char at[POSITION_TEXT], on[POSITION_TEXT];
    char mine[PP_ACTION_TEXT], theirs[PP_ACTION_TEXT];
    const struct pp_row *rows = p->schedule->rows;
    pp_action_format(rows[w->row].actions[w->place], false, mine);
    pp_action_format(rows[w->on_row].actions[w->on_place], false, theirs);
    format_place(place_of(p, w->row, w->place), at);
    format_place(place_of(p, w->on_row, w->on_place), on);
    tool_say(p->tool, TOOL_WARNING,
             "%s%s: rank %d waits in '%s' for '%s' of rank %d%s%s%s",
             ppsched_import_name(p), at, w->row, mine, theirs, w->on_row,
             *on ? " (" : "", *on ? on + 1 : "", *on ? ")" : "");
}

/* Draws the actions that run. */
static int draw_part(struct ppsched *p, const struct pp_stuck *k, bool messages)
{
    struct pp_err *err = &p->tool->err;
    struct pp_schedule part = *p->schedule;
    struct pp_sim sim = {0};
    size_t n = (size_t)part.graph->n_rows, all = 0;
    FILE *f = tool_output(p->tool);
    if (!f)
        return -1;
    part.rows = pp_calloc(n, sizeof *part.rows);
    for (size_t r = 0; r < n; r++) {
        part.rows[r] = p->schedule->rows[r];
        part.rows[r].n = k->done[r];
        all += k->done[r];
    }
    int rc = ppsched_open_costs(p) ||
             pp_simulate(&part, &p->costs.costs,
                         messages ? part.channel_depth : INT_MAX, &sim, err);
    if (!rc)
        fprintf(f, "%s: a deadlock stops all ranks after %zu actions:\n",
                part.kind, all);
    if (!rc && sim.makespan > 0) {
        struct pp_draw d = ppsched_way_to_draw(p, f);
        rc = pp_draw(f, &part, &sim, &d, err);
    }
    pp_sim_finish(&sim);
    free(part.rows);
    return rc ? -1 : 0;
}

int ppsched_tell_stuck(struct ppsched *p, bool messages)
{
    struct pp_stuck k;
    if (pp_stuck_find(p->schedule, messages, &k, &p->tool->err))
        return -1;
    for (size_t i = 0; p->options.import && i < k.n_circle; i++)
        tell_wait(p, &k.circle[i]);
    int rc = k.n_circle && p->options.timeline ? draw_part(p, &k, messages) : 0;
    if (!rc && k.n_circle && p->options.import)
        rc = tell_mend(p);
    pp_stuck_finish(&k);
    return rc;
}
