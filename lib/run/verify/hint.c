/* SPDX-License-Identifier: MIT */
/* hint - finds the likely place of a fault from the differences.
 *
 * Values pass the stages forward, then gradients pass them backward. The first
 * difference on this way is closest to the fault. */
#include <math.h>
#include <stdio.h>

#include "run/verify/verify.h"

static bool beyond(struct pp_verify_error e)
{
    return !(e.error <= e.bound);
}

/* The tensors of a stage, and the tensors whose gradients differ. */
struct stage_count {
    int tensors, bad;
};

static struct stage_count count(const struct pp_verify *v, int stage)
{
    struct stage_count c = {0, 0};
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        if (r->stage != stage)
            continue;
        c.tensors++;
        c.bad += beyond(r->gradient);
    }
    return c;
}

static int rank(const struct pp_verify *v, int stage)
{
    return v->graph->stages[stage].row;
}

/* Reports whether all wrong gradients are the same multiple of the right ones.
 */
static bool is_scaled(const struct pp_verify *v, double *factor)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        if (!beyond(r->gradient))
            continue;
        /* A multiple has the direction of the reference. */
        if (!(fabs(r->gradient.error - fabs(r->factor - 1)) <
              1e-2 * r->gradient.error))
            return false;
        low = fmin(low, r->factor);
        high = fmax(high, r->factor);
    }
    *factor = low;
    return high - low <= 1e-3 * fabs(high);
}

/* Reports whether only the embedding and the head of a tied model differ. */
static bool is_tied(const struct pp_verify *v)
{
    const int *tied = v->graph->tied;
    bool any = false;
    if (tied[0] < 0)
        return false;
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        bool end = r->tensor == 0 || r->tensor + 1 == v->n_tensors;
        if (beyond(r->gradient) && !end)
            return false;
        any |= beyond(r->gradient);
    }
    return any;
}

/* Reports whether only tensors differ that several tensor-parallel ranks hold.
 */
static bool is_shared(const struct pp_verify *v)
{
    for (size_t i = 0; i < v->n_rows; i++)
        if (beyond(v->rows[i].gradient) && !v->rows[i].shared)
            return false;
    return true;
}

/* Reports whether the gradients of the copies of a tensor add up to the right
 * one. */
static bool is_copied(const struct pp_verify *v)
{
    bool any = false;
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        double sum = 0;
        if (v->graph->n_copies == 1 || !beyond(r->gradient))
            continue;
        for (size_t k = 0; k < v->n_rows; k++)
            if (v->rows[k].tensor == r->tensor)
                sum += v->rows[k].factor;
        if (!(fabs(sum - 1) < 1e-3))
            return false;
        any = true;
    }
    return any;
}

static bool has_bad_gradient(const struct pp_verify *v)
{
    for (size_t i = 0; i < v->n_rows; i++)
        if (beyond(v->rows[i].gradient))
            return true;
    return false;
}

static void hint_forward(const struct pp_verify *v, int stage, char *text)
{
    const struct pp_verify_output *o = &v->outputs[stage];
    snprintf(
        text, PP_VERIFY_HINT_TEXT,
        "the output of stage %d on rank %d is the first that differs, most "
        "in sequence %zu of microbatch %zu: %s",
        stage, rank(v, stage), o->sequence, o->microbatch,
        o->first_sequences && v->graph->slices.n > 1
            ? "look at what this stage receives, and at the keys and values "
              "of the slices before"
        : o->first_sequences
            ? "look at what this stage receives"
            : "sequences that begin a microbatch agree, so look at the "
              "bounds of sequences and their positions in this stage");
}

/* Reports whether the gradient of the head differs. The input of the head
 * agrees, so the fault is in the gradient of the loss. */
static bool is_head_wrong(const struct pp_verify *v)
{
    for (size_t i = 0; i < v->n_rows; i++)
        if (v->rows[i].tensor + 1 == v->n_tensors &&
            beyond(v->rows[i].gradient))
            return true;
    return false;
}

/* Reports whether outputs are compared: outputs of whole sequences are. */
static bool has_outputs(const struct pp_verify *v)
{
    for (int s = 0; s < v->graph->n_stages; s++)
        if (v->outputs[s].compared)
            return true;
    return false;
}

static const char *before_loss(const struct pp_verify *v)
{
    return has_outputs(v) ? "the outputs of all stages agree"
                          : "outputs are not compared, as ranks divide tokens";
}

static void hint_loss(const struct pp_verify *v, char *text)
{
    const struct pp_verify_scalar *loss = &v->scalars[PP_VERIFY_LOSS];
    double factor, ratio = loss->found / loss->expected;
    if (!has_bad_gradient(v))
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "every gradient agrees and the loss differs: look at how it "
                 "is gathered from rank %d, which has the head",
                 rank(v, v->graph->n_stages / v->graph->n_copies - 1));
    else if (is_scaled(v, &factor) && fabs(factor - ratio) < 1e-3 * fabs(ratio))
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "%s, and the loss and the gradients are %.6g times what they "
                 "should be: look at the normaliser",
                 before_loss(v), ratio);
    else
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "%s and the loss differs: look at the labels, at their shift "
                 "inside each sequence, %sand whether all microbatches have "
                 "one normaliser",
                 before_loss(v),
                 v->objective ? "at the columns that the objective reads, "
                              : "");
}

/* Stages with gradients. */
struct stages_count {
    int all, bad; /* bad: some of them differ */
    int whole;    /* of bad: all differ */
    int last;     /* of bad */
};

static struct stages_count count_stages(const struct pp_verify *v)
{
    struct stages_count n = {.last = -1};
    for (int s = 0; s < v->graph->n_stages; s++) {
        struct stage_count c = count(v, s);
        n.all += c.tensors > 0;
        n.bad += c.bad > 0;
        n.whole += c.bad > 0 && c.bad == c.tensors;
        n.last = c.bad ? s : n.last;
    }
    return n;
}

/* Writes which gradients differ, and where to look. */
static void hint_gradients(const struct pp_verify *v, char *text, size_t room)
{
    const struct stages_count n = count_stages(v);
    const int last = n.last;
    double factor;
    if (is_shared(v))
        snprintf(text, room,
                 "only gradients of tensors differ that several "
                 "tensor-parallel ranks hold: look at their sum over these "
                 "ranks");
    else if (is_copied(v))
        snprintf(text, room,
                 "the gradients of the copies of the weights are parts that "
                 "make the right sum: they are not added correctly");
    else if (v->objective && is_head_wrong(v) && !is_scaled(v, &factor))
        snprintf(
            text, room,
            "the gradients differ from the head down: look at the gradient "
            "of the objective, where a term of the loss may have none");
    else if (n.bad == 1)
        snprintf(text, room,
                 "only stage %d on rank %d has wrong gradients: look at its "
                 "weight gradients%s, one may be missing or added twice",
                 last, rank(v, last),
                 v->graph->replicas ? " and their sum over replicas" : "");
    else if (is_scaled(v, &factor))
        snprintf(
            text, room,
            "the gradients that differ are %.4g times what they should be: "
            "look at the normaliser",
            factor);
    else
        snprintf(text, room,
                 "gradients differ from stage %d on rank %d down%s: look at "
                 "%s%sits backward and at the gradient that it receives",
                 last, rank(v, last),
                 n.whole == n.bad && n.bad < n.all ? ", those above agree" : "",
                 v->offloads ? "what comes back from the host, at " : "",
                 v->recompute && v->recompute[last] ? "what it recomputes, at "
                                                    : "");
}

static void hint_backward(const struct pp_verify *v, char *text)
{
    if (is_tied(v)) {
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "only the gradients of the tied embedding and head differ: "
                 "those of stages %d and %d are not added correctly",
                 v->graph->tied[0], v->graph->tied[1]);
        return;
    }
    int at = snprintf(text, PP_VERIFY_HINT_TEXT, "%s, and ",
                      has_outputs(v) ? "all outputs and the loss agree"
                                     : "the loss agrees");
    hint_gradients(v, text + at, PP_VERIFY_HINT_TEXT - (size_t)at);
}

/* Reports whether the loss of the second step agrees. The evaluation sees the
 * update before it. */
static bool second_agrees(const struct pp_verify *v)
{
    double ref = v->loss[PP_VERIFY_REFERENCE][1];
    double off = fabs(v->loss[PP_VERIFY_PIPELINE][1] - ref);
    return off <= v->scalars[PP_VERIFY_EVAL].e.bound * fabs(ref);
}

static void hint_later(const struct pp_verify *v, char *text)
{
    if (v->evaluates && beyond(v->scalars[PP_VERIFY_EVAL].e) &&
        second_agrees(v))
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "training agrees and the loss of the evaluation differs: look "
                 "at its microbatches, and at the empty ones after the last");
    else
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "the first step agrees and a later one differs: look at the "
                 "update and at what is kept from step to step%s",
                 v->evaluates
                     ? ", such as the sizes of the evaluation in between"
                 : v->graph->replicas
                     ? ", such as the weights that replicas fetch from each "
                       "other"
                     : "");
}

/* Writes the hint if bits of an exact plan differ. */
static bool hint_bits(const struct pp_verify *v, char *text)
{
    enum pp_digest_of of;
    int s = pp_verify_inexact(v, &of);
    if (s < 0)
        return false;
    bool head = s + 1 == v->graph->n_stages / v->graph->n_copies;
    if (of == PP_DIGEST_LOSS)
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "the plan is exact and all log-probabilities have the bits of "
                 "one rank, but not their sum: look at the order in which the "
                 "loss is summed");
    else
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "the plan is exact, but the %s of stage %d on rank %d do not "
                 "have the bits of one rank",
                 of == PP_DIGEST_GRADIENT ? "input gradients"
                 : head                   ? "log-probabilities"
                                          : "outputs",
                 s, rank(v, s));
    return true;
}

bool pp_verify_differs_later(const struct pp_verify *v)
{
    for (int s = 0; s < v->graph->n_stages; s++)
        if (beyond(v->outputs[s].e))
            return false;
    for (int i = v->n_scalars - (v->exact ? PP_VERIFY_EXACT_ONES : 0);
         i < v->n_scalars; i++)
        if (beyond(v->scalars[i].e))
            return false;
    return !v->same && !beyond(v->scalars[PP_VERIFY_LOSS].e) &&
           !beyond(v->scalars[PP_VERIFY_NORM].e) && !has_bad_gradient(v);
}

void pp_verify_hint(const struct pp_verify *v, char text[PP_VERIFY_HINT_TEXT])
{
    text[0] = '\0';
    if (v->same)
        return;
    for (int s = 0; s < v->graph->n_stages; s++)
        if (beyond(v->outputs[s].e)) {
            hint_forward(v, s, text);
            return;
        }
    if (hint_bits(v, text))
        return;
    if (beyond(v->scalars[PP_VERIFY_LOSS].e))
        hint_loss(v, text);
    else if (has_bad_gradient(v))
        hint_backward(v, text);
    else if (beyond(v->scalars[PP_VERIFY_NORM].e))
        snprintf(text, PP_VERIFY_HINT_TEXT,
                 "every gradient agrees and their norm differs: look at how "
                 "it is summed over the ranks");
    else
        hint_later(v, text);
}
