/* SPDX-License-Identifier: MIT */
/* table - the plans that were found, as a table for people and as JSON.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "draw/page.h"
#include "ppmesh.h"

/* The least share of a step that is named. */
#define WORTH_SAYING 0.005

void mesh_format(const struct pp_split_row *row, char text[MESH_TEXT])
{
    const struct pp_mesh *m = &row->request.shard.mesh;
    char chunks[24] = "", experts[32] = "";
    if (row->request.n_chunks > 1)
        snprintf(chunks, sizeof chunks, "x%d", (int)row->request.n_chunks);
    if (m->ep > 1)
        snprintf(experts, sizeof experts, "ep%d%s ", m->ep,
                 m->experts_over_tp ? "t" : "");
    snprintf(text, MESH_TEXT, "tp%d cp%d %spp%d%s dp%d b%d%s", m->tp, m->cp,
             experts, m->pp, chunks, m->dp,
             (int)pp_split_sequences(&row->request),
             m->divided_weights ? " z3" : "");
}

static enum pp_recompute mode_of(const struct pp_split_request *q, int64_t s)
{
    return q->stage_modes ? q->stage_modes[s] : q->recompute;
}

void mesh_format_modes(const struct pp_split_row *row, char text[MESH_TEXT])
{
    const struct pp_split_request *q = &row->request;
    int64_t stages = q->n_ranks * q->n_chunks, n[PP_N_RECOMPUTES] = {0};
    char set[PP_RECOMPUTE_TEXT];
    size_t at = 0;
    for (int64_t s = 0; s < stages; s++)
        for (int k = 0; k < PP_N_RECOMPUTES; k++)
            n[k] += mode_of(q, s) == pp_recompute_levels[k];
    for (int k = 0; k < PP_N_RECOMPUTES; k++)
        if (n[k] == stages) {
            pp_recompute_text(pp_recompute_levels[k], set);
            snprintf(text, MESH_TEXT, "%s", set);
            return;
        }
    for (int k = 1; k < PP_N_RECOMPUTES; k++)
        at += (size_t)snprintf(text + at, MESH_TEXT - at, "%s%d %s",
                               at ? ", " : "by stage: ", (int)n[k],
                               pp_recompute_text(pp_recompute_levels[k], set));
    snprintf(text + at, MESH_TEXT - at, " of %d", (int)stages);
}

/* The rates of a row. */
static struct planner_speed speed_of(const struct pp_split_row *row)
{
    return planner_speed_of(&row->request, row->step,
                            row->request.n_microbatches);
}

static bool recomputes(const struct pp_split_request *q)
{
    return q->stage_modes || q->recompute != PP_RECOMPUTE_NONE;
}

/* Writes what binds a plan. */
static void format_reason(const struct mesh_job *j,
                          const struct pp_split_row *row,
                          const double shares[PP_N_MESH_SHARES], char text[160])
{
    double left = (double)j->split.memory_bytes - row->need;
    int most = 0;
    for (int k = 1; k < PP_N_MESH_SHARES; k++)
        most = shares[k] > shares[most] ? k : most;
    if (recomputes(&row->request))
        snprintf(text, 160,
                 "memory binds: stages recompute; then %s takes most, %.1f %%",
                 pp_mesh_share_names[most], 100 * shares[most]);
    else if (left < 0.03 * (double)j->split.memory_bytes)
        snprintf(text, 160,
                 "memory is full; of the step %s takes most, %.1f %%",
                 pp_mesh_share_names[most], 100 * shares[most]);
    else
        snprintf(text, 160, "%s takes most of the step, %.1f %%",
                 pp_mesh_share_names[most], 100 * shares[most]);
}

/* The shares of a row's step that it would save. */
struct gains {
    double memory, link[PP_MAX_LEVELS];
};

static int find_gains(struct mesh_job *j, const struct pp_split_row *row,
                      struct gains *g)
{
    const struct pp_split_request *q = &row->request;
    struct pp_err *err = &j->split.t.err;
    double step;
    *g = (struct gains){.memory = 0};
    for (size_t k = 0; k < q->machine->n_levels; k++) {
        if (pp_mesh_faster(row, k, &step, err))
            return -1;
        g->link[k] = 1 - step / row->step;
    }
    if (!recomputes(q) || !pp_split_trainer(q)->modes)
        return 0;
    if (pp_mesh_larger(row, (size_t)1 << 30, &step, err))
        return -1;
    g->memory = fmax(0, 1 - step / row->step);
    return 0;
}

/* Writes what more memory and faster links would save, or nothing. */
static void format_gains(const struct mesh_job *j, const struct gains *g,
                         char text[160])
{
    const struct pp_machine *m = &j->split.machine;
    const char *sign = "with twice the bandwidth";
    size_t n = 0;
    text[0] = '\0';
    for (size_t k = 0; k < m->n_levels; k++) {
        if (g->link[k] < WORTH_SAYING)
            continue;
        n += (size_t)snprintf(text + n, 160 - n, "%s %s: %.1f %% less", sign,
                              m->n_levels == 1    ? "of links"
                              : m->levels[k].size ? "in a node"
                                                  : "between nodes",
                              100 * g->link[k]);
        sign = ",";
    }
    if (g->memory >= WORTH_SAYING)
        snprintf(text + n, 160 - n, "%swith 1 GiB more memory: %.1f %% less",
                 n ? "; " : "", 100 * g->memory);
}

/* --- the table --- */

static int print_row(struct mesh_job *j, const char *label,
                     const struct pp_split_row *row, double best, FILE *f)
{
    double shares[PP_N_MESH_SHARES];
    char mesh[MESH_TEXT], modes[MESH_TEXT], memory[32], tokens[PP_AXIS_TEXT],
        reason[160], text[320 + MESH_TEXT] = "";
    size_t n = 0;
    struct gains gains;
    const struct planner_speed v = speed_of(row);
    if (pp_mesh_shares(row, shares, &j->split.t.err) ||
        find_gains(j, row, &gains))
        return -1;
    mesh_format(row, mesh);
    mesh_format_modes(row, modes);
    pp_format_short_size(pp_size_of(row->need), memory);
    pp_axis_format(v.tokens, tokens);
    fprintf(f, "%-3s %-30s %-14s %8.4g %8s %5.1f%% %5s\n", label, mesh,
            row->request.kind, row->step, tokens, 100 * v.mfu, memory);
    for (int k = 0; k < PP_N_MESH_SHARES; k++)
        if (shares[k] >= 5e-4)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %.1f%%",
                                  n ? ", " : "", pp_mesh_share_names[k],
                                  100 * shares[k]);
    if (row->step > best && row->step <= best * (1 + MESH_RESOLUTION))
        snprintf(text + n, sizeof text - n, "; equal to row 1");
    tool_entry(f, 4, "", text);
    format_reason(j, row, shares, reason);
    snprintf(text, sizeof text, "recomputation %s; %s", modes, reason);
    tool_entry(f, 4, "", text);
    format_gains(j, &gains, text);
    if (text[0])
        tool_entry(f, 4, "", text);
    return 0;
}

static void print_refused(const struct pp_mesh_found *f, FILE *out)
{
    static const char *const why[PP_N_MESH_REFUSALS] = {
        "tp does not divide the model",        "cp does not divide sequences",
        "ep does not divide experts or ranks", "more pipeline ranks than units",
        "dp does not divide the batch",        "the trainer has no such ranks",
        "too much memory in every way"};
    char text[400];
    size_t n = (size_t)snprintf(text, sizeof text, "%zu meshes", f->n_meshes);
    for (int k = 0; k < PP_N_MESH_REFUSALS; k++)
        if (f->n_refused[k])
            n += (size_t)snprintf(text + n, sizeof text - n, "; %zu: %s",
                                  f->n_refused[k], why[k]);
    tool_paragraph(out, "%s.", text);
}

int mesh_print_table(struct mesh_job *j, FILE *f)
{
    const struct pp_mesh_found *x = &j->found;
    char limit[32], label[24];
    double best = x->rows[0].step;
    pp_format_size(j->split.memory_bytes, limit);
    tool_paragraph(f,
                   "%s on %lld ranks: %lld sequences of %lld tokens in a step, "
                   "at most %s a rank.",
                   j->split.source, (long long)j->gpus,
                   (long long)j->global_batch, (long long)j->split.seq_len,
                   limit);
    fprintf(f, "\n%-3s %-30s %-14s %8s %8s %6s %5s\n", "", "mesh, microbatch",
            "schedule", "step (s)", "tokens/s", "MFU", "GiB");
    for (size_t i = 0; i < x->n_rows && i < (size_t)j->top; i++) {
        snprintf(label, sizeof label, "%zu", i + 1);
        if (print_row(j, label, &x->rows[i], best, f))
            return -1;
    }
    if (x->obvious.step > 0 && isfinite(x->obvious.step)) {
        fprintf(f, "\nThe obvious choice, %s:\n",
                x->obvious.fits ? "which fits" : "which does not fit");
        if (print_row(j, "", &x->obvious, best, f))
            return -1;
        if (x->obvious.fits)
            fprintf(f, "It takes %.1f %% longer than row 1.\n",
                    100 * (x->obvious.step / best - 1));
    }
    putc('\n', f);
    tool_paragraph(f,
                   "No plan of this model takes less than %.4g s: row 1 is "
                   "within %.1f %% of the best.",
                   x->bound, 100 * (best / x->bound - 1));
    tool_paragraph(f,
                   "%zu plans were made exactly. Rows within %.0f %% of row 1 "
                   "are marked as equal: the model does not tell them apart.%s",
                   x->n_plans, 100 * MESH_RESOLUTION,
                   j->stopped ? " The search was stopped by a signal." : "");
    print_refused(x, f);
    return 0;
}

/* --- JSON --- */

static int write_row(struct mesh_job *j, struct pp_json_writer *w,
                     const char *key, const struct pp_split_row *row)
{
    char set[PP_RECOMPUTE_TEXT];
    const struct pp_mesh *m = &row->request.shard.mesh;
    const struct planner_speed v = speed_of(row);
    double shares[PP_N_MESH_SHARES];
    struct gains gains;
    char order[PP_MESH_ORDER_TEXT], reason[160];
    if (pp_mesh_shares(row, shares, &j->split.t.err) ||
        find_gains(j, row, &gains))
        return -1;
    pp_mesh_write_order(m, order);
    format_reason(j, row, shares, reason);
    pp_json_object(w, key, PP_JSON_BROKEN);
    pp_json_int(w, "tp", m->tp);
    pp_json_int(w, "cp", m->cp);
    pp_json_int(w, "ep", m->ep);
    pp_json_bool(w, "experts_over_tp", m->experts_over_tp);
    pp_json_int(w, "pp", m->pp);
    pp_json_int(w, "chunks", row->request.n_chunks);
    pp_json_int(w, "dp", m->dp);
    pp_json_int(w, "zero", pp_mesh_zero(m));
    pp_json_string(w, "order", order);
    pp_json_int(w, "micro_batch_size", pp_split_sequences(&row->request));
    pp_json_int(w, "microbatches", row->request.n_microbatches);
    pp_json_array(w, "recompute", PP_JSON_INLINE);
    for (int64_t s = 0; s < row->request.n_ranks * row->request.n_chunks; s++)
        pp_json_string(w, NULL,
                       pp_recompute_text(mode_of(&row->request, s), set));
    pp_json_end(w);
    pp_json_string(w, "schedule", row->request.kind);
    pp_json_real(w, "step_seconds", row->step);
    pp_json_real(w, "tokens_per_second", v.tokens);
    pp_json_real(w, "mfu", v.mfu);
    pp_json_real(w, "memory_bytes", row->need);
    pp_json_int(w, "limit_bytes", (int64_t)j->split.memory_bytes);
    pp_json_bool(w, "fits", row->fits);
    pp_json_object(w, "shares", PP_JSON_INLINE);
    for (int k = 0; k < PP_N_MESH_SHARES; k++)
        pp_json_real(w, pp_mesh_share_names[k], shares[k]);
    pp_json_end(w);
    pp_json_string(w, "reason", reason);
    pp_json_real(w, "saved_by_1_gib", gains.memory);
    pp_json_array(w, "saved_by_links", PP_JSON_INLINE);
    for (size_t k = 0; k < j->split.machine.n_levels; k++)
        pp_json_real(w, NULL, gains.link[k]);
    pp_json_end(w);
    pp_json_end(w);
    return 0;
}

int mesh_print_json(struct mesh_job *j, FILE *f)
{
    const struct pp_mesh_found *x = &j->found;
    struct pp_json_writer w = {.f = f, .indent = 2};
    int rc = 0;
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_array(&w, "plans", PP_JSON_BROKEN);
    for (size_t i = 0; !rc && i < x->n_rows && i < (size_t)j->top; i++)
        rc = write_row(j, &w, NULL, &x->rows[i]);
    pp_json_end(&w);
    pp_json_real(&w, "lower_bound_seconds", x->bound);
    pp_json_real(&w, "gap", 1 - x->bound / x->rows[0].step);
    pp_json_int(&w, "meshes", (int64_t)x->n_meshes);
    pp_json_object(&w, "refused", PP_JSON_INLINE);
    for (int k = 0; k < PP_N_MESH_REFUSALS; k++)
        pp_json_int(&w, pp_mesh_refusal_names[k], (int64_t)x->n_refused[k]);
    pp_json_end(&w);
    if (!rc && x->obvious.step > 0 && isfinite(x->obvious.step))
        rc = write_row(j, &w, "obvious", &x->obvious);
    pp_json_end(&w);
    putc('\n', f);
    return rc;
}
