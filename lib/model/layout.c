/* SPDX-License-Identifier: MIT */
#include "model/layout.h"

#include "model/unit_bytes.h"

/* The sizes of the axes by enum pp_axis. */
static void axis_sizes(const struct pp_mesh *x, int size[PP_N_AXES])
{
    size[PP_AXIS_TP] = x->tp;
    size[PP_AXIS_CP] = x->cp;
    size[PP_AXIS_DP] = x->dp;
    size[PP_AXIS_PP] = x->pp;
}

/* The distance in rank between neighbours on each axis. */
static void axis_strides(const struct pp_mesh *x, int stride[PP_N_AXES])
{
    enum pp_axis order[PP_N_AXES];
    int size[PP_N_AXES], ranks = 1;
    axis_sizes(x, size);
    pp_mesh_axes(x, order);
    for (int i = 0; i < PP_N_AXES; i++) {
        stride[order[i]] = ranks;
        ranks *= size[order[i]];
    }
}

int pp_mesh_ranks(const struct pp_mesh *x)
{
    return x->pp * x->dp * x->tp * x->cp;
}

int pp_layout_ranks(const struct pp_layout *l)
{
    int n = 0;
    for (int i = 0; i < l->n_components; i++) {
        const struct pp_layout_component *c = &l->components[i];
        int end = c->first_rank + pp_mesh_ranks(&c->mesh);
        n = end > n ? end : n;
    }
    return n;
}

int pp_layout_rank(const struct pp_layout *l, const struct pp_place *p)
{
    const struct pp_layout_component *c = &l->components[p->component];
    int stride[PP_N_AXES];
    axis_strides(&c->mesh, stride);
    return c->first_rank + p->tp * stride[PP_AXIS_TP] +
           p->cp * stride[PP_AXIS_CP] + p->dp * stride[PP_AXIS_DP] +
           (p->row - c->first_row) * stride[PP_AXIS_PP];
}

bool pp_layout_place(const struct pp_layout *l, int component, int rank,
                     struct pp_place *p)
{
    const struct pp_layout_component *c = &l->components[component];
    const struct pp_mesh *x = &c->mesh;
    int stride[PP_N_AXES], at = rank - c->first_rank;
    if (at < 0 || at >= pp_mesh_ranks(x))
        return false;
    axis_strides(x, stride);
    *p = (struct pp_place){
        .component = component,
        .row = c->first_row + at / stride[PP_AXIS_PP] % x->pp,
        .tp = at / stride[PP_AXIS_TP] % x->tp,
        .cp = at / stride[PP_AXIS_CP] % x->cp,
        .dp = at / stride[PP_AXIS_DP] % x->dp,
    };
    return true;
}

int pp_layout_component(const struct pp_layout *l, int row)
{
    int i = 0;
    while (i + 1 < l->n_components &&
           (row < l->components[i].first_row ||
            row >= l->components[i].first_row + l->components[i].mesh.pp))
        i++;
    return i;
}

bool pp_layout_find(const struct pp_layout *l, int rank, struct pp_place *p)
{
    for (int i = 0; i < l->n_components; i++)
        if (pp_layout_place(l, i, rank, p))
            return true;
    return false;
}

int pp_layout_peer(const struct pp_layout *l, const struct pp_place *p, int row)
{
    struct pp_place other = *p;
    other.row = row;
    return pp_layout_rank(l, &other);
}

/* The axes that a kind of group joins, innermost first, with the index of a
 * place on each. */
struct joined {
    int n;
    enum pp_axis axis[3];
};

static struct joined joined_axes(enum pp_group_kind kind,
                                 const struct pp_mesh *x)
{
    static const struct joined axes[] = {
        [PP_GROUP_TP] = {1, {PP_AXIS_TP}},
        [PP_GROUP_CP] = {1, {PP_AXIS_CP}},
        [PP_GROUP_DP] = {1, {PP_AXIS_DP}},
        [PP_GROUP_PP] = {1, {PP_AXIS_PP}},
        [PP_GROUP_DATA] = {2, {PP_AXIS_CP, PP_AXIS_DP}},
        [PP_GROUP_SHARERS] = {2, {PP_AXIS_TP, PP_AXIS_CP}},
        [PP_GROUP_ROW] = {3, {PP_AXIS_TP, PP_AXIS_CP, PP_AXIS_DP}},
        [PP_GROUP_EP] = {2, {PP_AXIS_CP, PP_AXIS_DP}},
        [PP_GROUP_EXPERT_DATA] = {2, {PP_AXIS_CP, PP_AXIS_DP}},
    };
    bool experts = kind == PP_GROUP_EP || kind == PP_GROUP_EXPERT_DATA;
    bool encoders = kind >= PP_GROUP_ENCODER_TP;
    return axes[encoders || (experts && x->experts_over_tp) ? PP_GROUP_ROW
                                                            : kind];
}

/* Returns the ranks that divide the tensors of the encoder in a component. */
static int encoder_tp_of(const struct pp_layout *l, int component)
{
    const struct pp_mesh *x = &l->components[component].mesh;
    if (pp_layout_encodes(l, component))
        return x->tp;
    return x->encoder_tp ? x->encoder_tp : 1;
}

/* Returns the ranks of PP_GROUP_FEATURES. */
static int feature_ranks(const struct pp_layout *l, int component)
{
    int sharers = pp_mesh_sharers(&l->components[component].mesh);
    int tp = encoder_tp_of(l, component);
    int n = sharers;
    while (n % tp)
        n += sharers;
    return n;
}

/* Returns the ranks that members of the joined axes form groups of: neighbours
 * are such a group, or the ranks with the same number in each of them. 0: the
 * group has all members. */
static int group_size(const struct pp_layout *l, int component,
                      enum pp_group_kind kind)
{
    switch (kind) {
    case PP_GROUP_EP:
    case PP_GROUP_EXPERT_DATA:
        return l->components[component].mesh.ep;
    case PP_GROUP_ENCODER_TP:
    case PP_GROUP_ENCODER_DATA:
        return encoder_tp_of(l, component);
    case PP_GROUP_FEATURES:
        return feature_ranks(l, component);
    default:
        return 0;
    }
}

struct pp_group pp_layout_group(const struct pp_layout *l,
                                const struct pp_place *p,
                                enum pp_group_kind kind)
{
    const struct pp_layout_component *c = &l->components[p->component];
    const struct joined j = joined_axes(kind, &c->mesh);
    const int index[] = {[PP_AXIS_TP] = p->tp,
                         [PP_AXIS_CP] = p->cp,
                         [PP_AXIS_DP] = p->dp,
                         [PP_AXIS_PP] = p->row - c->first_row};
    struct pp_group g = {.step = 1, .size = {1, 1, 1}};
    int size[PP_N_AXES], stride[PP_N_AXES], at = 0, total = 1;
    axis_sizes(&c->mesh, size);
    axis_strides(&c->mesh, stride);
    g.base = pp_layout_rank(l, p);
    for (int i = 0; i < j.n; i++) {
        enum pp_axis a = j.axis[i];
        g.size[i] = size[a];
        g.stride[i] = stride[a];
        g.base -= index[a] * stride[a];
        at += index[a] * total;
        total *= size[a];
    }
    int size_of = group_size(l, p->component, kind);
    g.n = total;
    g.index = at;
    if (kind == PP_GROUP_EXPERT_DATA || kind == PP_GROUP_ENCODER_DATA) {
        g.first = at % size_of;
        g.step = size_of;
        g.n = total / size_of;
        g.index = at / size_of;
    } else if (size_of) {
        g.first = at - at % size_of;
        g.n = size_of;
        g.index = at % size_of;
    }
    return g;
}

struct pp_group pp_layout_partners(const struct pp_layout *l,
                                   const struct pp_place *p, int row)
{
    const struct pp_place first = {.component = pp_layout_component(l, row),
                                   .row = row};
    if (first.component != p->component)
        return pp_layout_group(l, &first, PP_GROUP_ROW);
    return (struct pp_group){.n = 1,
                             .base = pp_layout_peer(l, p, row),
                             .step = 1,
                             .size = {1, 1, 1}};
}

/* Returns the number of the language model's component. An encoder is apart if
 * it is the component of its number; else it is on the ranks of the language
 * model, as the second of two can be while the first is apart. */
static int language_of(const struct pp_layout *l)
{
    return (int)(pp_layout_language(l) - l->components);
}

size_t pp_layout_makers(const struct pp_layout *l, size_t encoder,
                        size_t *lanes)
{
    const struct pp_mesh *x = &pp_layout_language(l)->mesh;
    const struct pp_mesh *e = &l->components[encoder].mesh;
    int language = language_of(l), ranks = feature_ranks(l, language);
    if (pp_layout_encodes(l, (int)encoder)) {
        *lanes = (size_t)x->dp;
        return (size_t)(e->dp * e->cp);
    }
    *lanes = (size_t)(ranks / pp_mesh_sharers(x));
    return (size_t)(ranks / encoder_tp_of(l, language));
}

size_t pp_layout_encoder_tp(const struct pp_layout *l, size_t encoder)
{
    return (size_t)(pp_layout_encodes(l, (int)encoder)
                        ? l->components[encoder].mesh.tp
                        : encoder_tp_of(l, language_of(l)));
}

size_t pp_layout_generated(const struct pp_layout *l, size_t room,
                           size_t longest)
{
    size_t lanes = (size_t)pp_layout_language(l)->mesh.dp;
    size_t ranks = (size_t)l->components[l->n_components - 1].mesh.dp;
    size_t all = lanes * room, most = all / ranks + 1 + longest;
    if (lanes % ranks == 0)
        return all / ranks;
    return most < all ? most : all;
}

void pp_layout_divide_images(const struct pp_layout *l, size_t encoder,
                             struct pp_image_load *load)
{
    load->sharers = (size_t)pp_mesh_sharers(&pp_layout_language(l)->mesh);
    load->makers = pp_layout_makers(l, encoder, &load->lanes);
    load->tp = pp_layout_encoder_tp(l, encoder);
    load->exchangers = pp_layout_encodes(l, (int)encoder)
                           ? 0
                           : (size_t)feature_ranks(l, language_of(l));
}

struct pp_mesh pp_layout_mesh(const struct pp_layout *l, int row,
                              bool is_encoder)
{
    int component = pp_layout_component(l, row);
    const struct pp_mesh *x = &l->components[component].mesh;
    return pp_layout_encodes(l, component) ? *x : pp_mesh_of(x, is_encoder);
}

double pp_layout_busier_end(const struct pp_layout *l, int component)
{
    const struct pp_mesh *x = &pp_layout_language(l)->mesh;
    const struct pp_mesh *e = &l->components[component].mesh;
    double copies = pp_mesh_ranks(e) / e->pp;
    double taken = x->dp * pp_mesh_sharers(x);
    if (pp_layout_encodes(l, component))
        return copies > taken ? copies / taken : 1;
    if (!l->generates || e != x)
        return 1;
    /* The generator's ranks divide the rows of all of these. */
    const struct pp_mesh *g = &l->components[l->n_components - 1].mesh;
    double takers = g->dp * pp_mesh_sharers(g);
    return taken > takers ? taken / takers : 1;
}

void pp_count_images(struct pp_table_counts *c, const struct pp_layout *l,
                     int row, size_t encoder, size_t merge, size_t states,
                     size_t features)
{
    const struct pp_mesh *x = &pp_layout_language(l)->mesh;
    struct pp_image_counts *n = &c->images[encoder];
    size_t sharers = (size_t)pp_mesh_sharers(x), lanes;
    bool apart = pp_layout_encodes(l, (int)encoder);
    int component = pp_layout_component(l, row);
    bool encodes = pp_layout_encodes(l, component);
    if (encodes && (size_t)component != encoder)
        return; /* features of the other one are not on this rank */
    pp_layout_makers(l, encoder, &lanes);
    n->merge = merge;
    n->states = states;
    n->rows = encodes ? features : c->tokens;
    if (!apart && lanes > 1 && features > n->rows)
        n->rows = features;
    n->ranks = !apart ? (size_t)feature_ranks(l, language_of(l))
               : encodes && sharers > 1 ? sharers * (size_t)x->dp
                                        : 1;
}
