/* SPDX-License-Identifier: MIT */
/* Writing PyTorch's CSV. The actions that PyTorch needs besides messages are
 * added here, not in the schedule, as pprun does not need them. */
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/files/csv.h"

struct printing {
    FILE *f;
    const struct pp_schedule *s;
    enum pp_csv_form form;
    bool add_sharding;
    size_t *left; /* per stage: compute actions still to print */
    int *done;    /* stages that are done and not yet resharded */
    int n_done;
    size_t n; /* cells of the row so far */
};

static int refuse(const struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    if (g->n_copies > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "PyTorch's CSV has no copies of the weights");
    if (g->slices.n > 1)
        return pp_fail(err, PP_EXIT_INPUT, "PyTorch's CSV has no slices");
    if (pp_schedule_copies(s))
        return pp_fail(err, PP_EXIT_INPUT,
                       "PyTorch's CSV has no OFFLOAD and RELOAD");
    for (int stage = 0; stage < g->n_stages; stage++) {
        const struct pp_stage_node *n = &g->stages[stage];
        if (n->n_inputs != (stage > 0) || (stage && n->inputs[0] != stage - 1))
            return pp_fail(err, PP_EXIT_INPUT,
                           "stage %d does not take its input from the stage "
                           "before it: PyTorch's CSV can only hold a chain",
                           stage);
    }
    return 0;
}

static void separate(struct printing *p)
{
    if (p->n++ > 0)
        fputc(',', p->f);
}

static void print_stage(struct printing *p, int stage, const char *word)
{
    separate(p);
    fprintf(p->f, "%d%s", stage, word);
}

static void print_microbatch(struct printing *p, struct pp_action a,
                             const char *word)
{
    print_stage(p, a.stage, word);
    fprintf(p->f, "%d", a.microbatch);
}

/* Waits at once: PyTorch allows one REDUCE_GRAD at a time on a rank. A frozen
 * stage has no gradients. */
static void print_reduce(struct printing *p, int stage)
{
    if (p->s->graph->stages[stage].frozen)
        return;
    print_stage(p, stage, "REDUCE_GRAD");
    if (p->form == PP_CSV_COMMS)
        print_stage(p, stage, "WAIT_REDUCE_GRAD");
}

/* Waits for an activation's send after its gradient is back: by then it has
 * been received. */
static void print_wait_forward(struct printing *p, struct pp_action a)
{
    const struct pp_graph *g = p->s->graph;
    if (p->form != PP_CSV_COMMS || !(a.op == PP_I || a.op == PP_B) ||
        a.stage + 1 == g->n_stages ||
        g->stages[a.stage + 1].row == g->stages[a.stage].row)
        return;
    print_microbatch(p, a, "WAIT_SEND_F");
}

/* Waits for the other sends at the end of the row, as nothing earlier shows
 * that they have been received: sends of gradients, and sends of activations
 * that have no gradient. */
static void print_last_waits(struct printing *p, const struct pp_row *list)
{
    for (size_t i = 0; p->form == PP_CSV_COMMS && i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (a.op == PP_SEND_B)
            print_microbatch(p, a, "WAIT_SEND_B");
        if (a.op == PP_SEND_F && !p->s->graph->stages[a.stage].has_backward)
            print_microbatch(p, a, "WAIT_SEND_F");
    }
}

/* Prints REDUCE_GRAD and RESHARD for the stages whose last action and messages
 * are printed. */
static void print_done(struct printing *p)
{
    for (int i = 0; i < p->n_done; i++)
        print_reduce(p, p->done[i]);
    for (int i = 0; i < p->n_done; i++)
        print_stage(p, p->done[i], "RESHARD");
    p->n_done = 0;
}

/* Prints UNSHARD for a rank's stages, in the order in which they are first
 * needed. */
static void print_unshards(struct printing *p, const struct pp_row *list)
{
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_compute(a.op) && p->left[a.stage]++ == 0)
            print_stage(p, a.stage, "UNSHARD");
    }
}

static bool is_printed(const struct printing *p, struct pp_action a)
{
    if (p->add_sharding && a.op == PP_REDUCE_GRAD)
        return false; /* print_done does it, before RESHARD */
    if (p->form == PP_CSV_COMPUTE)
        return pp_is_compute(a.op) || a.op == PP_IDLE;
    return pp_has_stage(a.op);
}

static void print_row(struct printing *p, const struct pp_row *list)
{
    char text[PP_ACTION_TEXT];
    bool second = false;
    p->n = 0;
    if (p->add_sharding)
        print_unshards(p, list);
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (!is_printed(p, a))
            continue;
        if (!pp_is_send(a.op) && !second)
            print_done(p);
        if (second)
            fputc(';', p->f);
        else if (a.op != PP_REDUCE_GRAD)
            separate(p);
        text[0] = '\0';
        if (a.op == PP_REDUCE_GRAD)
            print_reduce(p, a.stage);
        else if (a.op != PP_IDLE)
            pp_action_format(a, false, text);
        fprintf(p->f, "%s%s%s", a.overlap ? "(" : "", text,
                second ? ")OVERLAP_F_B" : "");
        print_wait_forward(p, a);
        second = a.overlap;
        if (p->add_sharding && pp_is_compute(a.op) && --p->left[a.stage] == 0)
            p->done[p->n_done++] = a.stage;
    }
    print_done(p);
    print_last_waits(p, list);
    fputc('\n', p->f);
}

/* Reductions that lowering added say nothing of the parameters. */
static bool has_sharding(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            enum pp_op op = s->rows[r].actions[i].op;
            if (op == PP_UNSHARD || op == PP_RESHARD ||
                (op == PP_REDUCE_GRAD && !s->graph->replicas))
                return true;
        }
    return false;
}

int pp_csv_print(FILE *f, const struct pp_schedule *s, enum pp_csv_form form,
                 struct pp_err *err)
{
    size_t n = (size_t)s->graph->n_stages;
    if (refuse(s, err))
        return -1;
    struct printing p = {.f = f,
                         .s = s,
                         .form = form,
                         .add_sharding =
                             form != PP_CSV_COMPUTE && !has_sharding(s),
                         .left = pp_calloc(n, sizeof *p.left),
                         .done = pp_calloc(n, sizeof *p.done)};
    for (int r = 0; r < s->graph->n_rows; r++)
        print_row(&p, &s->rows[r]);
    free(p.left);
    free(p.done);
    return 0;
}
