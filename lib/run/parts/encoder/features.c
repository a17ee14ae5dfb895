/* SPDX-License-Identifier: MIT */
/* features - takes the features of an encoder to the embedding's rows,
 * and their gradients back.
 *
 * Ranks that divide a microbatch divide its images, each as a whole, and its
 * tokens. So a feature and its placeholder may be on two ranks. Every rank
 * sends exactly what the others have placeholders for; the sizes come from the
 * index.
 *
 * Ranks that divide the tensors of an encoder all have the same features. They
 * take turns to send them, and each gets the gradients of the features that it
 * sent. Of a sum over them, all but one term is then zero. */
#include "run/parts/layer_impl.h"

/* Rooms in the scratch: features of this rank by destination, and features of
 * its tokens. */
struct feature_rooms {
    void *made, *taken;
};

static struct feature_rooms rooms_of(const struct pp_call *c, size_t encoder)
{
    size_t made =
        c->mb->views[encoder]->encoder.n_features * c->C * c->k->element_bytes;
    return (struct feature_rooms){c->scratch,
                                  (char *)c->scratch + pp_line_bytes(made)};
}

/* Sends the parts of x that begin at `out`, and receives the parts of y. */
static void swap_features(const struct pp_call *c, void *y, const size_t *in,
                          const void *x, const size_t *out)
{
    struct pp_collective of = c->env->features;
    size_t me = (size_t)of.group.index, bytes = c->C * c->k->element_bytes;
    of.value_bytes = bytes;
    pp_call_move(c, (char *)y + in[me] * bytes,
                 (const char *)x + out[me] * bytes,
                 (in[me + 1] - in[me]) * bytes);
    PP_TRY(c, pp_all_to_all(&of, y, in, x, out, c->err));
}

/* Returns the features that this rank sends. */
static size_t n_sent(const struct pp_call *c, const struct pp_feature_routes *r)
{
    return r->out[c->env->features.group.n];
}

const void *pp_layer_features_fwd(const struct pp_call *c, size_t encoder,
                                  const void *x)
{
    const struct pp_feature_routes *r = c->mb->taken[encoder].routes;
    if (!r)
        return x;
    const struct feature_rooms at = rooms_of(c, encoder);
    PP_RUN(c, embedding_fwd, at.made, r->order, x, n_sent(c, r), c->C);
    swap_features(c, at.taken, r->in, at.made, r->out);
    return at.taken;
}

void pp_layer_features_bwd(const struct pp_call *c, size_t encoder, void *dx,
                           const void *dy)
{
    const struct pp_taken_features *f = &c->mb->taken[encoder];
    const struct pp_feature_routes *r = f->routes;
    if (!r) {
        PP_RUN(c, embedding_fwd, dx, f->rows, dy, f->n, c->C);
        return;
    }
    const struct feature_rooms at = rooms_of(c, encoder);
    struct pp_collective copies =
        pp_env_of(c->env, PP_ROWS_FEATURES + encoder)->tensor;
    size_t made = c->mb->views[encoder]->encoder.n_features * c->C;
    PP_RUN(c, embedding_fwd, at.taken, f->rows, dy, f->n, c->C);
    swap_features(c, at.made, r->out, at.taken, r->in);
    if (copies.group.n > 1)
        PP_RUN(c, zero, dx, made);
    PP_RUN(c, scatter, dx, at.made, r->order, n_sent(c, r), c->C);
    copies.room = at.made;
    copies.room_values = made;
    if (made > 0)
        PP_TRY(c, pp_all_reduce(&copies, dx, made, c->err));
}
