/* SPDX-License-Identifier: MIT */
/* layer_features - takes the features of an encoder to the embedding's rows,
 * and their gradients back.
 *
 * Ranks that divide a microbatch divide its images, each as a whole, and its
 * tokens. So a feature and its placeholder may be on two ranks. Every rank
 * sends exactly what the others have placeholders for; the sizes come from the
 * index.
 *
 * Ranks that divide the tensors of an encoder all have the same features. They
 * take turns to send them, and each gets the gradients of those that it sent.
 * Of a sum over them, all but one term is then zero. */
#include "run/parts/layer_impl.h"

/* Rooms in the scratch: features of this rank by destination, and those of
 * its tokens. */
struct feature_rooms {
    void *made, *taken;
};

static struct feature_rooms rooms_of(const struct pp_layer *l,
                                     const struct pp_taken_features *f,
                                     void *scratch)
{
    size_t made = f->images->n_features * l->env->model->hidden *
                  l->env->kernels->element_bytes;
    return (struct feature_rooms){scratch,
                                  (char *)scratch + pp_line_bytes(made)};
}

/* Sends the parts of x that begin at `out`, and receives those of y. */
static int swap_features(const struct pp_layer *l, void *y, const size_t *in,
                         const void *x, const size_t *out, struct pp_err *err)
{
    const struct pp_device_ops *ops = pp_device_ops(l->env->device);
    struct pp_collective c = l->env->features;
    size_t me = (size_t)c.group.index;
    c.value_bytes = l->env->model->hidden * l->env->kernels->element_bytes;
    return ops->copy(l->env->device, (char *)y + in[me] * c.value_bytes,
                     (const char *)x + out[me] * c.value_bytes,
                     (in[me + 1] - in[me]) * c.value_bytes, err) ||
                   pp_all_to_all(&c, y, in, x, out, err)
               ? -1
               : 0;
}

/* Returns the features that this rank sends. */
static size_t n_sent(const struct pp_layer *l,
                     const struct pp_feature_routes *r)
{
    return r->out[l->env->features.group.n];
}

const void *pp_layer_features_fwd(const struct pp_layer *l,
                                  const struct pp_microbatch *mb,
                                  size_t encoder, const void *x, void *scratch,
                                  struct pp_err *err)
{
    const struct pp_taken_features *f = &mb->taken[encoder];
    const struct pp_feature_routes *r = f->routes;
    if (!r)
        return x;
    const struct feature_rooms at = rooms_of(l, f, scratch);
    int code =
        l->env->kernels->embedding_fwd(at.made, r->order, x, n_sent(l, r),
                                       l->env->model->hidden, l->env->stream);
    if (code) {
        pp_layer_fail(l, code, err);
        return NULL;
    }
    return swap_features(l, at.taken, r->in, at.made, r->out, err) ? NULL
                                                                   : at.taken;
}

int pp_layer_features_bwd(const struct pp_layer *l,
                          const struct pp_microbatch *mb, size_t encoder,
                          void *dx, const void *dy, void *scratch,
                          struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    const struct pp_taken_features *f = &mb->taken[encoder];
    const struct pp_feature_routes *r = f->routes;
    size_t C = l->env->model->hidden;
    if (!r) {
        PP_LAYER_RUN(
            k->embedding_fwd(dx, f->rows, dy, f->n, C, l->env->stream));
        return 0;
    }
    const struct feature_rooms at = rooms_of(l, f, scratch);
    struct pp_collective copies = l->env->projector[encoder]->tensor;
    size_t made = f->images->n_features * C;
    PP_LAYER_RUN(
        k->embedding_fwd(at.taken, f->rows, dy, f->n, C, l->env->stream));
    if (swap_features(l, at.made, r->out, at.taken, r->in, err))
        return -1;
    if (copies.group.n > 1)
        PP_LAYER_RUN(k->zero(dx, made, l->env->stream));
    PP_LAYER_RUN(
        k->scatter(dx, at.made, r->order, n_sent(l, r), C, l->env->stream));
    copies.room = at.made;
    copies.room_values = made;
    return made > 0 ? pp_all_reduce(&copies, dx, made, err) : 0;
}
