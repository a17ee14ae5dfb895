/* SPDX-License-Identifier: MIT */
/* The cost of each action and the memory of each rank, from the stages of the
 * manifest and the sizes of the microbatches, or from --cost and --comm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ppsched.h"

/* Tokens of a microbatch if nothing gives its size. */
enum { DEFAULT_SEQ_LEN = 4096 };

static double stage_time(const void *ctx, struct pp_action a)
{
    const struct ppsched_costs *c = ctx;
    if (a.op == PP_REDUCE_GRAD)
        return pp_stage_time(&c->stage, a, 0, 0);
    if (!pp_is_compute(a.op) && !pp_is_send(a.op))
        return 0;
    size_t part =
        (size_t)a.microbatch * (size_t)c->graph->n_slices + (size_t)a.slice;
    return pp_stage_time(&c->stage, a, c->tokens[part], c->pairs[part]);
}

static void set_literal(struct ppsched *p)
{
    static const double defaults[] = {1, 1, 1, 0};
    const double *cost = p->options.has_cost ? p->options.cost : defaults;
    struct ppsched_costs *c = &p->costs;
    c->literal = true;
    c->literals = (struct pp_literal_costs){.graph = &p->manifest.graph,
                                            .f = cost[0],
                                            .i = cost[1],
                                            .w = cost[2],
                                            .comm = cost[3],
                                            .textbook = true};
    c->costs = (struct pp_costs){pp_literal_time, &c->literals};
}

/* Returns the size of all microbatches, which are alike without data. */
static struct pp_default_microbatch assumed_microbatch(const struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    if (p->options.seq_len)
        return pp_default_microbatch_of(p->options.seq_len);
    return m->has_microbatch ? m->microbatch
                             : pp_default_microbatch_of(DEFAULT_SEQ_LEN);
}

static void assume_microbatches(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    const struct pp_default_microbatch mb = assumed_microbatch(p);
    int64_t slices = c->graph->n_slices;
    int64_t n = p->schedule->n_microbatches * slices;
    for (int64_t k = 0; k < n; k++) {
        struct pp_default_microbatch_part part =
            pp_default_microbatch_slice(&mb, k % slices, slices);
        c->tokens[k] = part.tokens;
        c->pairs[k] = part.pairs;
    }
    bool sized = p->manifest.has_data;
    c->max_tokens = sized ? p->manifest.data.max_tokens : (size_t)mb.tokens;
    c->max_seqlen = sized ? c->max_tokens : (size_t)mb.seq_len;
}

/* Fills tokens and attended pairs of every slice of every microbatch, from the
 * bins of the step or as assumed, and the most tokens of any step. */
static void measure_microbatches(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    int m = p->schedule->n_microbatches;
    int64_t slices = c->graph->n_slices;
    if (!p->data) {
        assume_microbatches(p);
        return;
    }
    int step = p->options.step ? p->options.step : 1;
    /* Microbatch k of a step goes to data-parallel rank k mod dp. */
    size_t dp = (size_t)p->manifest.mesh.dp;
    size_t first = (size_t)(step - 1) * (size_t)m * dp;
    for (int k = 0; k < m; k++) {
        struct pp_bin bin;
        size_t at = pp_packed_place(&p->packed, first + (size_t)k * dp);
        pp_packed_bin(&p->packed, at, &bin);
        pp_slice_tokens(slices, bin.tokens, &c->tokens[k * slices]);
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            pp_slice_pairs(slices, bin.tokens, bin.cu_seqlens_padded[i],
                           bin.cu_seqlens[i + 1] - bin.cu_seqlens[i],
                           &c->pairs[k * slices]);
    }
    c->max_tokens = p->packed.max_tokens;
    c->max_seqlen = p->packed.max_seqlen;
}

/* Returns the workspace of a stage: the largest of its units', with what they
 * recompute. A stage without a model has one number. */
static size_t workspace_of(const struct ppsched *p, int s, size_t rows,
                           size_t copied)
{
    const struct pp_manifest_stage *stage = &p->manifest.stages[s];
    size_t most = 0;
    double n = pp_mesh_sharers(&p->manifest.mesh);
    for (size_t i = 0; i < stage->n_units; i++) {
        const struct pp_manifest_unit *u =
            &p->manifest.model.units[stage->first_unit + i];
        struct pp_workspace w = u->workspace;
        w.token +=
            pp_bytes_of_rows(u->modes[stage->recompute].workspace_bytes * n, 1);
        size_t bytes = pp_workspace_bytes(&w, rows, copied);
        most = bytes > most ? bytes : most;
    }
    return p->manifest.has_model
               ? most
               : pp_bytes_of_rows(stage->workspace_bytes * n, rows);
}

static void set_sizes(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    size_t slices = (size_t)c->graph->n_slices;
    size_t tokens = (c->max_tokens + slices - 1) / slices;
    size_t rows = pp_rank_rows(&p->manifest.mesh, &c->backend, tokens);
    size_t copied = pp_copied_keys(rows, slices > 1 ? c->max_seqlen : 0);
    double n = pp_mesh_sharers(&p->manifest.mesh);
    for (int s = 0; s < c->graph->n_stages; s++) {
        const struct pp_manifest_stage *stage = &c->stages[s];
        c->sizes[s] = (struct pp_stage_bytes){
            .act_i =
                pp_bytes_of_rows(stage->act_bytes[PP_SAVED_ACT_I] * n, rows),
            .act_w =
                pp_bytes_of_rows(stage->act_bytes[PP_SAVED_ACT_W] * n, rows),
            .grad_w =
                pp_bytes_of_rows(stage->act_bytes[PP_SAVED_GRAD_W] * n, rows),
            .output = pp_bytes_of_rows(stage->out_bytes * n, rows),
            .workspace = workspace_of(p, s, rows, copied)};
    }
}

/* --- --comm and --reduce --- */

/* Returns the time of a message by --comm and of a reduction by --reduce; other
 * actions keep their costs. */
static double given_time(const void *ctx, struct pp_action a)
{
    const struct ppsched_given *m = ctx;
    if (m->reduce && a.op == PP_REDUCE_GRAD)
        return m->reduce[a.stage];
    if (!m->message || !pp_is_send(a.op))
        return m->inner.time(m->inner.ctx, a);
    int boundary = a.stage < a.peer ? a.stage : a.peer;
    return m->message[boundary] / m->n_slices;
}

/* Parses the numbers between commas: one for all, or one for each of n. */
static int parse_times(struct ppsched *p, const char *name, const char *text_of,
                       const char *of, double *time, size_t n)
{
    struct tool *t = p->tool;
    const char *s = text_of;
    size_t given = 0;
    for (bool more = true; more; given++) {
        char text[32];
        size_t length = strcspn(s, ",");
        if (length >= sizeof text || given == n)
            break;
        memcpy(text, s, length);
        text[length] = '\0';
        if (pp_parse_real(text, name, 0, 1e300, &time[given], &t->err))
            return -1;
        more = s[length] == ',';
        s += length + more;
    }
    if (*s || (given != 1 && given != n))
        return tool_usage(t,
                          "%s: '%s' must be one time, or %zu: one for each %s",
                          name, text_of, n, of);
    for (size_t i = given; i < n; i++)
        time[i] = time[0];
    return 0;
}

static int read_times(struct ppsched *p, const char *name, const char *text,
                      const char *of, size_t n, double **time)
{
    if (!text)
        return 0;
    *time = calloc(n, sizeof **time);
    if (!*time)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    return parse_times(p, name, text, of, *time, n);
}

static int init_given(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct ppsched_given *m = &p->costs.given;
    size_t stages = (size_t)p->manifest.graph.n_stages;
    /* A single stage has no boundary, but its one number is checked too. */
    if (read_times(p, "--comm", o->comm, "boundary between stages",
                   stages > 1 ? stages - 1 : 1, &m->message) ||
        read_times(p, "--reduce", o->reduce, "stage", stages, &m->reduce))
        return -1;
    m->n_slices = p->manifest.graph.n_slices;
    m->inner = p->costs.costs;
    p->costs.costs.time = given_time;
    p->costs.costs.ctx = m;
    return 0;
}

int ppsched_costs_init(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    size_t parts = (size_t)p->schedule->n_microbatches;
    c->graph = &p->manifest.graph;
    c->stages = p->manifest.stages;
    if (pp_mul(parts, (size_t)c->graph->n_slices, &parts, &p->tool->err))
        return -1;
    c->tokens = calloc(parts, sizeof *c->tokens);
    c->pairs = calloc(parts, sizeof *c->pairs);
    c->sizes = calloc((size_t)c->graph->n_stages, sizeof *c->sizes);
    if (!c->tokens || !c->pairs || !c->sizes)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_stage_costs_init(&c->stage, &p->manifest, &p->tool->err))
        return -1;
    for (int s = 0; s < c->graph->n_stages; s++)
        c->sized |= c->stages[s].out_bytes > 0 ||
                    c->stages[s].act_bytes[PP_SAVED_ACT_W] > 0;
    const char *dtype = p->manifest.model.dtype;
    c->precision = dtype ? pp_precision_find(dtype) : NULL;
    if (!c->precision)
        c->precision = &pp_precisions[0];
    c->backend = pp_backend_of(c->precision, !p->manifest.model.gpu);
    measure_microbatches(p);
    set_sizes(p);
    c->costs = (struct pp_costs){stage_time, c};
    if (!pp_stage_costs_known(&c->stage) || p->options.has_cost)
        set_literal(p);
    c->costs.pair_saving = 1 - p->options.pair_cost;
    c->costs.reduce_beside = p->options.reduce_beside;
    return p->options.comm || p->options.reduce ? init_given(p) : 0;
}

void ppsched_costs_finish(struct ppsched_costs *c)
{
    free(c->tokens);
    free(c->pairs);
    free(c->sizes);
    free(c->given.message);
    free(c->given.reduce);
    pp_stage_costs_finish(&c->stage);
}

/* Writes the action at which a rank needs most memory: "'0F3' (action 5)". */
static void tell_place(const struct ppsched *p, int rank, size_t place,
                       char *text, size_t bytes)
{
    char action[PP_ACTION_TEXT];
    pp_action_format(p->schedule->rows[rank].actions[place], false, action);
    snprintf(text, bytes, "'%s' (action %zu)", action, place);
}

double ppsched_slots(const struct ppsched *p, int rank)
{
    return (double)pp_row_slots(&p->schedule->rows[rank]) /
           p->manifest.graph.n_slices;
}

static int refuse_slots(struct ppsched *p, int rank, double slots)
{
    char kept[32], over[32], at[PP_ACTION_TEXT + 40];
    size_t place;
    pp_format_real(slots, kept);
    pp_format_real(slots - (double)p->options.memory, over);
    pp_row_peak(&p->schedule->rows[rank], &place);
    tell_place(p, rank, place, at, sizeof at);
    return pp_fail(&p->tool->err, PP_EXIT_NO,
                   "rank %d keeps %s slots alive, %s more than the limit of "
                   "'%zu', first at %s",
                   rank, kept, over, p->options.memory, at);
}

/* Returns the bytes of weights, gradients and optimizer state of a rank. */
static size_t state_bytes(const struct ppsched *p, int rank)
{
    const struct pp_manifest_model *model = &p->manifest.model;
    size_t sum = 0;
    for (int s = 0; s < p->manifest.graph.n_stages; s++) {
        const struct pp_manifest_stage *stage = &p->manifest.stages[s];
        if (p->manifest.graph.stages[s].row != rank)
            continue;
        if (!p->manifest.has_model)
            sum += pp_state_sum(pp_state_bytes(
                NULL, (struct pp_held){stage->params, 0}, p->costs.precision));
        for (size_t i = 0; i < stage->n_units; i++) {
            const struct pp_manifest_unit *u =
                &model->units[stage->first_unit + i];
            sum += model->has_state ? pp_size_of(ceil(u->state_bytes))
                                    : pp_state_sum(pp_state_bytes(
                                          NULL, (struct pp_held){u->params, 0},
                                          p->costs.precision));
        }
    }
    return sum;
}

/* Returns the elements of gradients of a tied embedding or head that a rank
 * receives in a copy of the weights. */
static size_t tied_elements(const struct ppsched *p, int rank, int copy)
{
    const struct pp_graph *g = &p->manifest.graph;
    if (g->tied[0] < 0 || copy >= g->n_copies)
        return 0;
    int first = copy * (g->n_stages / g->n_copies);
    int embed = g->stages[g->tied[0] + first].row;
    int head = g->stages[g->tied[1] + first].row;
    const struct pp_manifest_stage *s = &p->manifest.stages[g->tied[1]];
    size_t last = s->first_unit + s->n_units - 1;
    return embed != head && (rank == embed || rank == head)
               ? p->manifest.model.units[last].params
               : 0;
}

/* Returns the bytes of the tables of a rank, if the manifest has what they
 * depend on. */
static size_t table_bytes(const struct ppsched *p, const struct pp_schedule *s,
                          int rank)
{
    const struct ppsched_costs *c = &p->costs;
    const struct pp_row *row = &s->rows[rank];
    size_t dp = (size_t)p->manifest.mesh.dp;
    size_t alike = dp * (size_t)p->manifest.mesh.cp;
    bool pairs = false;
    for (size_t i = 0; i < row->n; i++)
        pairs |= row->actions[i].overlap;
    const struct pp_table_counts counts = {
        .tokens = c->max_tokens,
        .positions = c->max_seqlen,
        .rotary = p->manifest.model.rotary,
        .n_tensors = p->manifest.model.n_tensors,
        .n_losses = (size_t)s->n_microbatches * dp,
        .n_ranks = (size_t)p->manifest.graph.n_rows * alike,
        .tied = {tied_elements(p, rank, 0), tied_elements(p, rank, 1)},
        .copies = p->manifest.graph.n_copies > 1,
        .replicas = alike > 1,
        .overlap = pairs && !c->backend.is_host};
    return counts.n_tensors ? pp_table_bytes(&counts, &c->backend) : 0;
}

static int refuse_bytes(struct ppsched *p, int rank, const struct pp_memory *m)
{
    char text[6][32], at[PP_ACTION_TEXT + 40];
    size_t state = state_bytes(p, rank),
           tables = table_bytes(p, p->schedule, rank);
    size_t total = m->arena_bytes + state + tables;
    const size_t bytes[] = {total,          total - p->options.memory,
                            m->arena_bytes, state,
                            tables,         p->options.memory};
    for (int i = 0; i < 6; i++)
        pp_format_size(bytes[i], text[i]);
    tell_place(p, rank, m->peak_place, at, sizeof at);
    return pp_fail(&p->tool->err, PP_EXIT_NO,
                   "rank %d needs %s, %s more than the limit of %s: %s of "
                   "activations and messages, most of them live at %s, %s of "
                   "parameters and %s of tables",
                   rank, text[0], text[1], text[5], text[2], at, text[3],
                   text[4]);
}

size_t ppsched_fixed_bytes(const struct ppsched *p, const struct pp_schedule *s,
                           int rank)
{
    return state_bytes(p, rank) + table_bytes(p, s, rank);
}

double ppsched_room(const struct ppsched *p, int rank)
{
    size_t workspace = 0;
    for (int s = 0; s < p->manifest.graph.n_stages; s++)
        if (p->manifest.graph.stages[s].row == rank &&
            p->costs.sizes[s].workspace > workspace)
            workspace = p->costs.sizes[s].workspace;
    return (double)p->options.memory -
           (double)ppsched_fixed_bytes(p, p->schedule, rank) -
           (double)workspace;
}

static int check_rank(struct ppsched *p, int rank, const struct pp_memory *m)
{
    const struct ppsched_options *o = &p->options;
    double slots = ppsched_slots(p, rank);
    if (!o->has_memory)
        return 0;
    if (o->memory_is_slots)
        return slots > (double)o->memory ? refuse_slots(p, rank, slots) : 0;
    return m->arena_bytes + ppsched_fixed_bytes(p, p->schedule, rank) >
                   o->memory
               ? refuse_bytes(p, rank, m)
               : 0;
}

int ppsched_fits(void *ctx, const struct pp_schedule *s, bool *yes,
                 struct pp_err *err)
{
    const struct ppsched *p = ctx;
    const struct ppsched_options *o = &p->options;
    bool limited = o->has_memory && !o->memory_is_slots && p->costs.sized;
    *yes = true;
    for (int r = 0; r < s->graph->n_rows && limited && *yes; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, p->costs.sizes, &m, err))
            return -1;
        *yes = m.arena_bytes + ppsched_fixed_bytes(p, s, r) <= o->memory;
        pp_memory_finish(&m);
    }
    return 0;
}

int ppsched_memory(struct ppsched *p, struct ppsched_bytes *out)
{
    const struct ppsched_options *o = &p->options;
    bool bytes =
        p->costs.sized && (out || (o->has_memory && !o->memory_is_slots));
    if (o->has_memory && !o->memory_is_slots && !p->costs.sized)
        return tool_usage(p->tool, "--memory: the stages have no sizes; give "
                                   "the limit in slots, without a suffix");
    for (int r = 0; r < p->manifest.graph.n_rows; r++) {
        struct pp_memory m = {0};
        if (bytes &&
            pp_memory_plan(p->schedule, r, p->costs.sizes, &m, &p->tool->err))
            return -1;
        if (out)
            out[r] = (struct ppsched_bytes){
                m.peak_bytes, m.arena_bytes,
                m.arena_bytes + ppsched_fixed_bytes(p, p->schedule, r),
                m.peak_place};
        int rc = check_rank(p, r, &m);
        pp_memory_finish(&m);
        if (rc)
            return -1;
    }
    return 0;
}
