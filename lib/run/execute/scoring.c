/* SPDX-License-Identifier: MIT */
#include "run/execute/scoring.h"

#include <math.h>
#include <string.h>

#include "model/unit_bytes.h"

/* The columns that are gathered, one element per scored token. */
static const enum pp_column gathered[] = {
    PP_COLUMN_ADVANTAGES, PP_COLUMN_LOGPROBS, PP_COLUMN_PREV_LOGPROBS,
    PP_COLUMN_REF_LOGPROBS};
enum { N_GATHERED = sizeof gathered / sizeof *gathered };

_Static_assert(sizeof(struct pp_sequence_sums) +
                       (N_GATHERED + 2) * sizeof(double) +
                       2 * sizeof(uint32_t) ==
                   PP_SCORING_ROW_BYTES,
               "unit_bytes.h");
_Static_assert((int)PP_MAX_METRICS == (int)PP_SCORING_METRICS, "unit_bytes.h");

/* The parts of the room, each with n_rows elements. */
struct room {
    double *x;
    struct pp_sequence_sums *sums; /* of all ranks that share the sequences */
    double *columns[N_GATHERED], *whole;
    uint32_t *first, *position; /* in the bin, of a scored token */
};

static struct room room_of(const struct pp_scoring *s)
{
    struct room r = {.x = s->room};
    r.sums = (struct pp_sequence_sums *)(r.x + s->n_rows);
    double *at = (double *)(r.sums + s->n_rows);
    for (size_t i = 0; i < N_GATHERED; i++, at += s->n_rows)
        r.columns[i] = at;
    r.whole = at;
    r.first = (uint32_t *)(at + s->n_rows);
    r.position = r.first + s->n_rows;
    return r;
}

double *pp_scoring_logps(const struct pp_scoring *s)
{
    return (double *)s->room + s->n_held;
}

/* Notes the scored tokens of the microbatch, or of this slice. */
static void note_tokens(const struct pp_scoring *s, const struct pp_bin *b,
                        uint32_t *position)
{
    size_t i = 0;
    for (size_t k = 0; k < s->rows->of.scored.n; k++)
        position[k] = (uint32_t)pp_batch_predicts(b, s->rows, k, &i);
}

/* Fills first (sequences + 1) from n positions, which ascend. */
static void find_first(const struct pp_bin *b, const uint32_t *position,
                       size_t n, uint32_t *first)
{
    size_t k = 0;
    for (uint32_t s = 0; s < b->n_sequences; s++) {
        first[s] = (uint32_t)k;
        while (k < n && position[k] < (uint32_t)b->cu_seqlens_padded[s + 1])
            k++;
    }
    first[b->n_sequences] = (uint32_t)k;
}

/* Gathers the columns of n tokens that the objective reads. */
static struct pp_objective_rows make_rows(const struct pp_scoring *s,
                                          const struct pp_bin *b,
                                          const struct room *room, size_t n)
{
    struct pp_objective_rows r = {.n_sequences = b->n_sequences,
                                  .first = room->first,
                                  .x = room->x,
                                  .adds_whole =
                                      s->env->context.group.index == 0};
    unsigned reads = pp_objective_reads(s->options);
    find_first(b, room->position, n, room->first);
    for (size_t i = 0; i < N_GATHERED; i++) {
        const float *column = b->columns[gathered[i]];
        if (!column || !(reads & pp_column_bit(gathered[i])))
            continue;
        for (size_t k = 0; k < n; k++)
            room->columns[i][k] = (double)column[room->position[k]];
        r.columns[gathered[i]] = room->columns[i];
    }
    const float *whole = b->columns[PP_COLUMN_REF_LOGPS];
    if (whole && reads & pp_column_bit(PP_COLUMN_REF_LOGPS)) {
        for (uint32_t i = 0; i < b->n_sequences; i++)
            room->whole[i] = (double)whole[i];
        r.columns[PP_COLUMN_REF_LOGPS] = room->whole;
    }
    return r;
}

static void add_sums(struct pp_sequence_sums *to,
                     const struct pp_sequence_sums *from)
{
    to->n += from->n;
    to->x += from->x;
    to->ratio += from->ratio;
    to->importance += from->importance;
    to->reference += from->reference;
    to->up += from->up;
    to->down += from->down;
    to->divergence += from->divergence;
}

/* Returns the means to exchange doubles between the ranks that divide
 * sequences. */
static struct pp_collective doubles_of(const struct pp_scoring *s)
{
    struct pp_collective c = s->env->context;
    c.value_bytes = sizeof(double);
    return c;
}

/* Gathers the sums of all ranks. sums (ranks, n) has the sums of this rank in
 * their place. */
static int gather_sums(const struct pp_scoring *s,
                       struct pp_sequence_sums *sums, size_t n,
                       struct pp_err *err)
{
    const struct pp_device_ops *ops = pp_device_ops(s->env->device);
    const struct pp_collective c = doubles_of(s);
    size_t ranks = (size_t)c.group.n, bytes = n * sizeof *sums;
    struct pp_sequence_sums *at = s->shared ? s->shared : sums;
    size_t own = (size_t)s->env->context.group.index * n;
    if (s->shared && ops->put(s->env->device, at + own, sums + own, bytes, err))
        return -1;
    if (pp_all_gather(&c, at, NULL, ranks * bytes / sizeof(double), err))
        return -1;
    return !s->shared ||
                   pp_device_read(s->env->device, at, ranks * bytes, sums, err)
               ? 0
               : -1;
}

/* Adds the tokens of this rank to the sums, and then the sums of the ranks in
 * their order: all get the same bits. Each sequence has a row or more for each
 * rank, so that the room is large enough. */
static int make_sums(const struct pp_scoring *s,
                     const struct pp_objective_rows *r,
                     struct pp_sequence_sums *sums, struct pp_err *err)
{
    size_t n = r->n_sequences, ranks = (size_t)s->env->context.group.n;
    struct pp_sequence_sums *own =
        sums + (size_t)s->env->context.group.index * n;
    memset(own, 0, n * sizeof *own);
    pp_objectives[s->options->number]->partial(s->options, r, own);
    if (ranks == 1 || n == 0)
        return 0;
    if (gather_sums(s, sums, n, err))
        return -1;
    for (size_t k = 1; k < ranks; k++)
        for (size_t i = 0; i < n; i++)
            add_sums(&sums[i], &sums[k * n + i]);
    return 0;
}

/* Stands for the log-probability of a row that is not scored. */
static const double unscored = INFINITY;

/* Gathers the scored tokens of all ranks into room->x and room->position, in
 * the order of the bin. Returns their number in *n. */
static int gather_tokens(const struct pp_scoring *s, const struct room *room,
                         size_t *n, struct pp_err *err)
{
    const struct pp_microbatch *mb = &s->rows->of;
    const struct pp_collective c = doubles_of(s);
    double *at = (double *)room->sums; /* it has room for the rows of the bin */
    double *own = at + (size_t)c.group.index * mb->tokens;
    for (size_t i = 0; i < mb->tokens; i++)
        own[i] = unscored;
    for (size_t k = 0; k < mb->scored.n; k++)
        own[mb->scored.rows[k]] = room->x[k];
    if (pp_all_gather(&c, at, NULL, mb->keys.n, err))
        return -1;
    *n = 0;
    for (size_t t = 0; t < mb->keys.n; t++) {
        double x = at[mb->keys.order[t]];
        if (x == unscored)
            continue;
        room->position[*n] = (uint32_t)t + (uint32_t)mb->scored.predicts;
        room->x[(*n)++] = x;
    }
    return 0;
}

/* Moves the gradients of this rank's tokens to the front. Its rows ascend as
 * the tokens of the bin do. */
static void keep_own(const struct pp_scoring *s, const struct room *room,
                     size_t n)
{
    const struct pp_microbatch *mb = &s->rows->of;
    size_t first = (size_t)s->env->context.group.index * mb->tokens, k = 0;
    for (size_t i = 0; i < n; i++) {
        size_t row =
            (size_t)mb->keys
                .order[room->position[i] - (uint32_t)mb->scored.predicts];
        if (row >= first && row < first + mb->tokens)
            room->x[k++] = room->x[i];
    }
}

/* The head takes minus the gradient by log-probabilities, and that by rewards.
 */
static void give_gradient(const struct pp_scoring *s, const struct room *room,
                          size_t n)
{
    for (size_t k = 0; s->rows->of.scored.predicts && k < n; k++)
        room->x[k] = -room->x[k];
}

/* Scores the tokens of all ranks with the bits of one rank. The first rank
 * alone reports loss and metrics. */
static int score_exactly(const struct pp_scoring *s, const struct pp_bin *b,
                         const struct room *room, double *loss,
                         struct pp_err *err)
{
    const struct pp_objective *o = pp_objectives[s->options->number];
    double ignored[PP_MAX_METRICS];
    size_t n;
    if (gather_tokens(s, room, &n, err))
        return -1;
    bool reports = s->env->context.group.index == 0;
    struct pp_objective_rows r = make_rows(s, b, room, n);
    r.adds_whole = true;
    memset(room->sums, 0, r.n_sequences * sizeof *room->sums);
    o->partial(s->options, &r, room->sums);
    o->finish(s->options, &r, room->sums, &s->step, loss,
              s->metrics && reports ? s->metrics : ignored, room->x);
    for (size_t k = 0; s->metrics && !reports && k < o->n_metrics; k++)
        s->metrics[k] = pp_metric_neutral(o->metrics[k].combine);
    *loss = reports ? *loss : 0;
    give_gradient(s, room, n);
    keep_own(s, room, n);
    return 0;
}

int pp_score_rows(void *ctx, const struct pp_microbatch *mb, double *x,
                  double *loss, struct pp_err *err)
{
    struct pp_scoring *s = ctx;
    const struct pp_objective *o = pp_objectives[s->options->number];
    double ignored[PP_MAX_METRICS];
    struct room room = room_of(s);
    struct pp_bin b = {0};
    size_t n = s->n_held + mb->scored.n;
    (void)x;
    if (s->bin != PP_NO_BIN)
        pp_packed_bin(s->packed, s->bin, &b);
    if (s->reference)
        b.columns[PP_COLUMN_REF_LOGPROBS] = s->reference + b.first_position;
    if (pp_mesh_is_exact(pp_env_mesh(s->env)))
        return score_exactly(s, &b, &room, loss, err);
    note_tokens(s, &b, room.position + s->n_held);
    s->n_held = mb->slice.continues ? n : 0;
    *loss = 0;
    if (mb->slice.continues)
        return 0;
    struct pp_objective_rows r = make_rows(s, &b, &room, n);
    if (make_sums(s, &r, room.sums, err))
        return -1;
    o->finish(s->options, &r, room.sums, &s->step, loss,
              s->metrics ? s->metrics : ignored, room.x);
    give_gradient(s, &room, n);
    return 0;
}

void pp_scoring_count(const struct pp_objective_options *o,
                      const struct pp_packed *p, size_t bin,
                      struct pp_objective_counts *sum)
{
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return;
    pp_packed_bin(p, bin, &b);
    if (o && pp_objective_by_sequence(o))
        pp_objective_count(o, &b, b.labels, sum);
    else
        sum->tokens += b.scored;
}
