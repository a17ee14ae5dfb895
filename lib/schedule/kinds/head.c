/* SPDX-License-Identifier: MIT */
/* head - kinds on a chain with a head whose words several stages divide
 * (pp_graph_add_head).
 *
 * The last stage of the chain sends its rows to the stages of the head. Each
 * makes the logits of its words, the pass S; the loss adds up what it needs of
 * them and sends it back; each stage of the head makes its gradients, the pass
 * T; and the last stage of the chain adds up the gradients of its rows. So a
 * microbatch crosses the rows twice between the forward and the backward of
 * that stage. The kind orders a chain with that many more rows behind it, and
 * the passes come when those rows would begin: S on all rows with the forward
 * of the first one, the loss with the second one, T with the backward of the
 * first one. Every row follows one order of the starts of actions, so that
 * nothing can deadlock that would not in the longer chain. A row keeps two
 * microbatches more than without a head.
 *
 * Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism",
 * MLSys 2025. Its passes exchange by collectives, here by messages. */
#include <stdlib.h>

#include "schedule/ir/event_order.h"
#include "schedule/kinds/kinds.h"

/* The rows behind the chain: of S and T, and of the loss. */
enum { BEHIND = 2 };

/* Emits op for all stages of the head. */
static void emit_pass(struct pp_schedule *s, int first, enum pp_op op,
                      int microbatch)
{
    for (int i = first; i < s->graph->n_stages - 1; i++)
        pp_emit(s, op, i, microbatch);
}

/* Emits what begins with an action of the longer chain. */
static void emit_start(struct pp_schedule *s, int first, struct pp_action a)
{
    enum pp_op op = a.op == PP_F ? PP_F : PP_B;
    if (a.stage < first)
        pp_emit(s, a.op, a.stage, a.microbatch);
    else if (a.op != PP_W && a.stage == first)
        emit_pass(s, first, op, a.microbatch);
    else if (a.op != PP_W)
        pp_emit(s, op, s->graph->n_stages - 1, a.microbatch);
}

int pp_emit_head(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o, struct pp_err *err)
{
    int first = pp_graph_head(s->graph), rc = 0;
    struct pp_event_order order = {0};
    struct pp_schedule longer = {0};
    struct pp_arena arena = {0};
    struct pp_graph g;
    if (k->chain || k->copies)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s does not run a head of %d stages: use gpipe, 1f1b, "
                       "eager-1f1b, seq1f1b, zb-h1 or zb-h2, which pass each "
                       "rank once",
                       s->kind, s->graph->n_stages - 1 - first);
    if (pp_graph_chain(&arena, first + BEHIND, 1, PP_PLACEMENT_LOOP, &g, err)) {
        pp_arena_finish(&arena);
        return -1;
    }
    struct pp_kind_options options = *o;
    options.idle = false;
    pp_schedule_init(&longer, &g, s->kind, o->n_microbatches);
    rc = k->emit(&longer, &options, err) ||
                 pp_event_order(&longer, NULL, &order, err)
             ? -1
             : 0;
    for (size_t i = 0; rc == 0 && i < order.n; i++)
        if (!order.events[i].completion)
            emit_start(s, first, order.events[i].action);
    free(order.events);
    pp_schedule_finish(&longer);
    pp_arena_finish(&arena);
    return rc;
}
