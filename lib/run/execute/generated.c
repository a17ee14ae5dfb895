/* SPDX-License-Identifier: MIT */
#include "run/execute/generated.h"

int pp_generated_init(struct pp_generated *g, struct pp_device *d,
                      const struct pp_table_counts *c, size_t vocab,
                      struct pp_err *err)
{
    size_t n = c->bridges + 1, rows = c->bridged + 1;
    *g = (struct pp_generated){.device = d};
    if (c->generated &&
        pp_batch_init(&g->batch, d, c->generated, vocab, false, err))
        return -1;
    if (!c->bridges)
        return 0;
    bool is_host = pp_device_ops(d)->is_host;
    g->memory = pp_device_alloc(is_host ? d : NULL, 1, pp_bridge_bytes(c),
                                "bridge", err);
    if (!g->memory || pp_sent_init(&g->sent, d, rows * sizeof *g->places, err))
        return -1;
    g->tokens = g->memory;
    g->next = g->tokens + n;
    g->bounds = g->next + n;
    g->places = (int32_t *)(g->bounds + n);
    if (c->generated)
        g->joined =
            (struct pp_joined_bin){.cu_seqlens = g->places + rows,
                                   .cu_seqlens_padded = g->places + 2 * rows,
                                   .ids = g->places + 3 * rows,
                                   .labels = g->places + 4 * rows};
    return 0;
}

void pp_generated_finish(struct pp_generated *g)
{
    pp_batch_finish(&g->batch);
    bool is_host = pp_device_ops(g->device)->is_host;
    pp_device_free(is_host ? g->device : NULL, g->memory);
    pp_sent_finish(&g->sent);
    *g = (struct pp_generated){.memory = NULL};
}

const int32_t *pp_generated_places(struct pp_generated *g,
                                   const struct pp_bridge *b)
{
    pp_bridge_bounds(b, g->bounds);
    pp_bridge_places(b, g->bounds, g->places);
    g->n_places = pp_bridge_rows(b);
    return g->places;
}

int pp_generated_view(struct pp_generated *g, const struct pp_env *env,
                      const struct pp_bridge *b, const struct pp_packed *p,
                      size_t bin, struct pp_err *err)
{
    struct pp_bin of = {0};
    const struct pp_batch_part part = {.bin = bin,
                                       .generator = true,
                                       .slices = {.n = 1},
                                       .n_ranks = pp_env_mesh(env)->cp,
                                       .rank = env->place.cp,
                                       .first_word = env->first_word,
                                       .n_words = env->n_words};
    if (b)
        pp_bridge_join(b, &g->joined, &of);
    if (b ? pp_batch_view_bin(&g->batch, &of, false, &part, &g->view, err)
          : pp_batch_view(&g->batch, p, &part, &g->view, err))
        return pp_fail_at(err, "generator: ");
    if (b)
        g->view.of.bridge = pp_generated_places(g, b);
    return 0;
}

int pp_generated_send(struct pp_generated *g, struct pp_microbatch *mb,
                      struct pp_err *err)
{
    bool here = mb->views[PP_GENERATOR] != NULL;
    struct pp_microbatch *of = here ? &g->there : mb;
    if (here && pp_batch_send(&g->batch, &g->view, of, err))
        return -1;
    const struct pp_sent_array places = {&of->bridge,
                                         of->bridge ? g->n_places : 0};
    pp_sent_add(&g->sent, &places, 1);
    return pp_sent_put(&g->sent, err);
}
