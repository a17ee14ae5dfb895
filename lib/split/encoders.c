/* SPDX-License-Identifier: MIT */
/* Stages of encoders. A model's encoders come before its language model. One
 * encoder and the language model are a chain. Two encoders with stages of their
 * own are two branches that meet in the embedding's stage: no features of one
 * pass through the stages of the other. */
#include <math.h>

#include "model/edge.h"
#include "model/vision.h"
#include "split/plan.h"

/* Returns the unit behind a part. */
static size_t part_end(const struct pp_split_run *run, size_t part)
{
    size_t end = 0;
    for (size_t k = 0; k <= part; k++)
        end += run->parts[k].n_units;
    return end;
}

/* Returns the operations of an encoder for a token. */
static double flops_of(const struct pp_split_request *q, size_t encoder)
{
    double length = (double)q->microbatch.seq_len, sum = 0;
    for (size_t i = pp_component_first(q->shard.model, encoder);
         i < pp_component_first(q->shard.model, encoder + 1); i++) {
        const struct pp_flops f =
            pp_unit_fwd_flops(&q->shard, pp_model_unit(q->shard.model, i));
        sum += f.per_token + f.per_pair * pp_attended_pairs(0, length);
    }
    return sum;
}

/* Returns the stages of the first of two encoders that share n: as many as make
 * the mean stage of the other cheapest, if it is the costlier one, and not more
 * than either has units for. */
static size_t first_stages(const struct pp_split_request *q, size_t n,
                           size_t units, size_t others)
{
    double a = flops_of(q, 0), b = flops_of(q, 1), least = INFINITY;
    size_t best = 1;
    for (size_t k = 1; k < n; k++) {
        double most = fmax(a / (double)k, b / (double)(n - k));
        if (most < least && k <= units && n - k <= others) {
            least = most;
            best = k;
        }
    }
    return best;
}

/* Fills the parts of the model. */
static void make_parts(struct pp_split_run *run)
{
    const struct pp_split_request *q = run->request;
    size_t first = pp_component_first(q->shard.model, 1);
    size_t vision = pp_component_first(q->shard.model, PP_LANGUAGE), language;
    size_t n = (size_t)q->encoder_ranks, words = q->shard.model->head_stages;
    size_t head = words ? words + 1 : 0; /* with the loss */
    language = run->n_units - vision;
    run->n_parts = 0;
    if (n && vision > first && (q->encoders || n > 1)) {
        size_t at = q->encoders ? (size_t)q->encoders[0].pp
                                : first_stages(q, n, first, vision - first);
        run->parts[run->n_parts++] = (struct pp_split_part){at, first};
        n -= at;
        vision -= first;
    }
    if (n)
        run->parts[run->n_parts++] = (struct pp_split_part){n, vision};
    else if (q->encoder_ranks)
        language += vision; /* the second one is on its ranks */
    run->n_encoded = run->n_parts;
    run->parts[run->n_parts++] = (struct pp_split_part){
        run->n_stages - (size_t)q->encoder_ranks - head,
        (q->encoder_ranks ? language : run->n_units) - head};
    if (head)
        run->parts[run->n_parts++] = (struct pp_split_part){head, head};
}

/* Returns whether some stage begins with the unit, and which. */
static bool find_begin(const struct pp_split_run *run, size_t unit,
                       size_t *stage)
{
    const size_t *bounds = run->request->bounds;
    for (*stage = 1; *stage < run->n_stages; ++*stage)
        if (bounds[*stage] == unit)
            return true;
    return false;
}

/* Fills the parts of a split with two encoders that is given. A chain is enough
 * if one stage has the ends of both, and if the embedding's stage has all of
 * the second one. */
static int parts_of_bounds(struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_model *m = run->request->shard.model;
    size_t first = pp_component_first(m, 1),
           end = pp_component_first(m, PP_LANGUAGE);
    size_t second, language;
    bool begins = find_begin(run, first, &second), cut = false;
    bool ends = find_begin(run, end, &language);
    for (size_t s = 1; s < run->n_stages; s++) {
        size_t at = run->request->bounds[s];
        cut |= at > first && at < end;
        if (at == run->request->bounds[s + 1] && (at == first || at == end))
            return pp_fail(err, PP_EXIT_INPUT,
                           "stage %zu has no units, but the features of two "
                           "encoders go to the embedding's stage alone",
                           s);
    }
    if (!cut && !(begins && ends))
        return 0;
    if (!begins || !ends)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a stage has the end of one encoder and a part of "
                       "another, or of the language model; begin a stage with "
                       "each, or keep the second encoder with the embedding");
    if ((run->request->n_chunks > 1 && !run->request->encoder_ranks) ||
        run->graph.n_copies > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "two encoders with stages of their own need one stage "
                       "on each rank");
    run->parts[0] = (struct pp_split_part){second, first};
    run->parts[1] = (struct pp_split_part){language - second, end - first};
    run->parts[2] =
        (struct pp_split_part){run->n_stages - language, run->n_units - end};
    run->n_parts = 3;
    run->n_encoded = 2;
    return 0;
}

/* Joins two branches in the embedding's stage. */
static int join_branches(struct pp_split_run *run, struct pp_err *err)
{
    struct pp_graph *g = &run->graph;
    int second = (int)run->parts[0].n_stages;
    int embedding = second + (int)run->parts[1].n_stages;
    int *inputs = pp_arena_alloc(&run->arena, 2, sizeof *inputs);
    inputs[0] = second - 1;
    inputs[1] = embedding - 1;
    g->stages[second].n_inputs = 0;
    g->stages[embedding].inputs = inputs;
    g->stages[embedding].n_inputs = 2;
    return pp_graph_connect(&run->arena, g, err);
}

int pp_split_graph(struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_split_request *q = run->request;
    size_t at = (size_t)q->encoder_ranks;
    int words = (int)q->shard.model->head_stages;
    if (q->encoder_ranks && q->encoder_ranks >= q->n_ranks)
        return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-ranks", NULL,
                               "no rank is left for the language model");
    if (q->encoder_ranks && q->placement == PP_PLACEMENT_BOTH_WAYS)
        return pp_fail_setting(err, PP_EXIT_INPUT, "encoder-ranks", NULL,
                               "two copies of the weights need stages of all "
                               "components on each rank");
    if (pp_graph_chain(&run->arena, (int)(q->n_ranks - q->encoder_ranks),
                       (int)q->n_chunks, q->placement, &run->graph, err) ||
        (at && pp_graph_precede(&run->arena, (int)at, &run->graph, err)) ||
        (words && pp_graph_add_head(&run->arena, words, &run->graph, err)))
        return -1;
    run->n_stages = (size_t)(run->graph.n_stages / run->graph.n_copies);
    make_parts(run);
    if (q->bounds && pp_model_n_encoders(q->shard.model) > 1 &&
        parts_of_bounds(run, err))
        return -1;
    for (size_t k = 0; at && k < run->n_parts; k++) {
        const struct pp_split_part *x = &run->parts[k];
        if (x->n_stages > x->n_units)
            return pp_fail_setting(
                err, PP_EXIT_INPUT, "encoder-ranks", NULL,
                "%zu %s are too many for the %s %zu units", x->n_stages,
                k == run->n_encoded && q->n_chunks > 1 ? "stages" : "ranks",
                k < run->n_encoded ? "encoder's" : "language model's",
                x->n_units);
    }
    return run->n_encoded > 1 ? join_branches(run, err) : 0;
}

struct pp_layout pp_split_layout_of(const struct pp_mesh *encoders,
                                    const struct pp_mesh *language, int n_rows)
{
    struct pp_layout l = {.n_components = 0};
    struct pp_layout_component c = {.first_rank = 0};
    for (size_t i = 0; encoders && i < PP_MAX_ENCODERS && encoders[i].dp; i++) {
        c.mesh = encoders[i];
        l.components[l.n_components++] = c;
        c.first_rank += pp_mesh_ranks(&c.mesh);
        c.first_row += c.mesh.pp;
    }
    c.mesh = *language;
    c.mesh.pp = n_rows - c.first_row;
    l.components[l.n_components++] = c;
    return l;
}

struct pp_layout pp_split_layout(const struct pp_split_run *run)
{
    const struct pp_split_request *q = run->request;
    return pp_split_layout_of(q->encoders, &q->shard.mesh, run->graph.n_rows);
}

void pp_split_set_features(struct pp_split_run *run, size_t rows)
{
    const struct pp_split_request *q = run->request;
    size_t first = pp_component_first(q->shard.model, 1);
    size_t end = pp_component_first(q->shard.model, PP_LANGUAGE);
    if (run->n_encoded < 2 && end > first)
        run->message_bytes[end - 1] += run->message_bytes[first - 1];
    double row = (double)(q->shard.model->hidden * run->backend.element_bytes);
    double least = INFINITY;
    if (q->encoders)
        least = run->taken_bytes = (double)pp_bytes_of_rows(row, rows);
    for (size_t k = 0; k < run->n_encoded; k++) {
        run->made_bytes[k] = run->message_bytes[part_end(run, k) - 1];
        least = fmin(least, run->made_bytes[k]);
    }
    for (size_t k = 0; k < run->n_encoded; k++)
        run->message_bytes[part_end(run, k) - 1] = least;
}

/* Returns the link of messages between neighbouring rows: the slowest, as the
 * search does not tell them apart. */
static struct pp_link messages_link(const struct pp_split_run *run)
{
    const struct pp_profile *p = run->request->profile;
    const struct pp_machine *m = run->request->machine;
    const struct pp_layout l = pp_split_layout(run);
    struct pp_link x = {0, 0};
    if (p && (!m || m->n_levels == 0))
        return (struct pp_link){p->latency, p->seconds_per_byte};
    for (int r = 1; p && r < run->graph.n_rows; r++)
        x = pp_link_slower(x, pp_machine_rows(m, &l, r - 1, r));
    return x;
}

void pp_split_set_messages(const struct pp_split_run *run, double *messages)
{
    const struct pp_layout l = pp_split_layout(run);
    const struct pp_link x = messages_link(run);
    for (size_t i = 0; i < run->n_units; i++)
        messages[i] = x.seconds + x.per_byte * run->message_bytes[i];
    for (size_t k = 0; k < run->n_encoded; k++)
        messages[part_end(run, k) - 1] =
            x.seconds +
            x.per_byte * run->made_bytes[k] *
                pp_layout_busier_end(&l, l.n_components > 1 ? (int)k : 0);
}

size_t pp_split_held(const struct pp_split_run *run, size_t first, size_t end)
{
    const struct pp_model *m = run->request->shard.model;
    size_t bytes = 0;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        if (pp_stage_holds(m, first, end - first, k))
            bytes += pp_line_bytes(pp_size_of(
                run->message_bytes[pp_component_first(m, k + 1) - 1]));
    return bytes;
}

void pp_split_features(const struct pp_split_run *run, const size_t *bounds,
                       int stage, struct pp_stage_bytes *x)
{
    size_t end = 0;
    for (size_t k = 0; k < run->n_encoded; k++) {
        end = part_end(run, k);
        if (bounds[stage + 1] == end)
            x->output = pp_size_of(run->made_bytes[k]);
    }
    if (end == 0 || bounds[stage] != end)
        return;
    x->input = pp_size_of(run->taken_bytes);
    x->joint = PP_JOINT_PARTS;
}
