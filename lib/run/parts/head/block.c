/* SPDX-License-Identifier: MIT */
/* block - a block of scored rows: its parts, the words of each rank, and the
 * cap of the logits. */
#include "run/parts/head/head.h"

size_t pp_head_words(const struct pp_call *c)
{
    return c->l->n_words ? c->l->n_words : pp_shard_outputs(&c->env->shard);
}

size_t pp_head_ranks(const struct pp_call *c)
{
    return c->m->scores ? 1 : pp_env_tp(c->env);
}

struct pp_head_span pp_head_span(const struct pp_call *c, size_t rank)
{
    if (pp_head_ranks(c) == 1)
        return (struct pp_head_span){0, pp_head_words(c)};
    struct pp_tensor_piece p =
        pp_tensor_piece(c->l->words, pp_head_ranks(c), rank);
    return (struct pp_head_span){p.offset[0] / p.cols, p.rows};
}

struct pp_head_block pp_head_part(const struct pp_call *c,
                                  const struct pp_head_block *h, size_t i,
                                  size_t most)
{
    struct pp_head_block part = *h;
    part.at = h->at + i;
    part.n = h->n - i < most ? h->n - i : most;
    part.logits = pp_at(c, h->logits, i * pp_head_words(c));
    part.lse = pp_statistic_at(c, h->lse, i);
    return part;
}

/* Logits are divided by the temperature before the cap: it is divided, too. */
double pp_head_cap(const struct pp_call *c)
{
    double temperature =
        c->mb->loss.temperature > 0 ? c->mb->loss.temperature : 1;
    return c->m->scores ? 0 : c->m->logit_cap / temperature;
}
