/* SPDX-License-Identifier: MIT */
/* test_layout - places, ranks and groups of every small mesh in every order of
 * axes, against lists; and the groups that Megatron-LM documents. */
#include "model/layout.h"
#include "tap.h"

enum { MOST = 64, N_ORDERS = 24 };

/* Writes the ranks of a group as "0 2 4". */
static const char *listed(const struct pp_layout *l, int rank,
                          enum pp_group_kind kind)
{
    static char text[256];
    struct pp_place p;
    int n = 0;
    if (!pp_layout_place(l, 0, rank, &p))
        return "no place";
    struct pp_group g = pp_layout_group(l, &p, kind);
    for (int i = 0; i < g.n; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? " " : "",
                      pp_group_rank(&g, i));
    return text;
}

/* Narayanan et al. and the comments of Megatron-LM's parallel_state.py: 16
 * ranks with tp 2 and pp 4. */
static void megatron_groups(void)
{
    const struct pp_layout l = {
        {{.mesh = {.pp = 4, .dp = 2, .tp = 2, .cp = 1, .ep = 1}}}, 1};
    is_str(listed(&l, 5, PP_GROUP_TP), "4 5", "tensor-parallel group of 5");
    is_str(listed(&l, 5, PP_GROUP_DP), "5 7", "data-parallel group of 5");
    is_str(listed(&l, 5, PP_GROUP_PP), "1 5 9 13", "pipeline group of 5");
    is_str(listed(&l, 6, PP_GROUP_SHARERS), "6 7", "ranks of a microbatch");
    is_str(listed(&l, 6, PP_GROUP_ROW), "4 5 6 7", "ranks of a row");
}

/* An encoder in front of a language model, on ranks of its own. */
static void encoder_ranks(void)
{
    const struct pp_layout l = {
        {{.mesh = {.pp = 1, .dp = 3, .tp = 4, .cp = 2, .ep = 1}},
         {.mesh = {.pp = 2, .dp = 5, .tp = 1, .cp = 1, .ep = 1},
          .first_rank = 24,
          .first_row = 1}},
        2};
    size_t lanes;
    is_int((long long)pp_layout_makers(&l, 0, &lanes), 6,
           "ranks divide images");
    is_int((long long)lanes, 5, "of as many microbatches");
    is_int((long long)pp_layout_encoder_tp(&l, 0), 4, "and their tensors");
}

/* The same, and a generator behind the language model. */
static void generator_ranks(void)
{
    const struct pp_mesh two = {.pp = 1, .dp = 2, .tp = 1, .cp = 1, .ep = 1};
    const struct pp_mesh eight = {.pp = 2, .dp = 4, .tp = 2, .cp = 1, .ep = 1};
    struct pp_layout l = {{{.mesh = two},
                           {.mesh = eight, .first_rank = 2, .first_row = 1},
                           {.mesh = two, .first_rank = 18, .first_row = 3}},
                          3,
                          true};
    size_t lanes;
    ok(pp_layout_encodes(&l, 0) && !pp_layout_encodes(&l, 1) &&
           !pp_layout_encodes(&l, 2) &&
           pp_layout_language(&l) == &l.components[1],
       "the language model is before its generator");
    is_int((long long)pp_layout_makers(&l, 0, &lanes), 2, "encoders divide");
    is_int((long long)lanes, 4, "the images of its microbatches");
    /* Eight ranks send to two, each of which takes what four sent. */
    ok(pp_layout_busier_end(&l, 0) == 1 && pp_layout_busier_end(&l, 1) == 4 &&
           pp_layout_busier_end(&l, 2) == 1,
       "a rank of the generator takes most");
    l.components[2].mesh = eight;
    ok(pp_layout_busier_end(&l, 1) == 1, "but not if there are as many");
}

/* Counts the faults of an encoder's division of the ranks of a row: its groups
 * meet in one rank, and those that exchange features have whole ones of its
 * groups and whole microbatches. */
static int check_division(const struct pp_layout *l, int rank)
{
    const struct pp_mesh *x = &l->components[0].mesh;
    struct pp_place p, other;
    int faults = !pp_layout_place(l, 0, rank, &p), shared = 0;
    struct pp_group tp = pp_layout_group(l, &p, PP_GROUP_ENCODER_TP);
    struct pp_group data = pp_layout_group(l, &p, PP_GROUP_ENCODER_DATA);
    struct pp_group all = pp_layout_group(l, &p, PP_GROUP_FEATURES);
    struct pp_group lane = pp_layout_group(l, &p, PP_GROUP_SHARERS);
    size_t lanes, makers = pp_layout_makers(l, 0, &lanes);
    for (int i = 0; i < tp.n; i++)
        for (int j = 0; j < data.n; j++)
            shared += pp_group_rank(&tp, i) == pp_group_rank(&data, j);
    faults += shared != 1 || tp.n * data.n != x->dp * x->tp * x->cp;
    faults += tp.n != x->encoder_tp || all.n != (int)makers * tp.n ||
              all.n != (int)lanes * lane.n;
    for (int i = 0; i < all.n; i++) {
        faults += !pp_layout_place(l, 0, pp_group_rank(&all, i), &other);
        /* Member i has lane, cp and tp, and is a copy of a maker. */
        faults += i != ((other.dp % (int)lanes) * x->cp + other.cp) * x->tp +
                           other.tp;
        struct pp_group of = pp_layout_group(l, &other, PP_GROUP_ENCODER_TP);
        faults += of.index != i % tp.n ||
                  pp_group_rank(&of, 0) != pp_group_rank(&all, i - of.index);
    }
    return faults;
}

static void encoder_divisions(void)
{
    struct pp_layout l = {
        {{.mesh = {.pp = 2, .dp = 2, .tp = 4, .cp = 1, .ep = 1}}}, 1};
    size_t lanes;
    is_str(listed(&l, 5, PP_GROUP_FEATURES), "4 5 6 7", "without a division");
    l.components[0].mesh.encoder_tp = 2;
    /* Megatron-LM gathers features of TP2/DP4 for TP4/DP2 in these groups: one
     * for each rank of tp. */
    is_str(listed(&l, 5, PP_GROUP_ENCODER_TP), "4 5", "tp 2 of a tp 4");
    is_str(listed(&l, 5, PP_GROUP_ENCODER_DATA), "1 3 5 7", "the same tensors");
    is_str(listed(&l, 13, PP_GROUP_FEATURES), "12 13 14 15", "a microbatch");
    is_int((long long)pp_layout_makers(&l, 0, &lanes), 2, "two makers");
    is_int((long long)lanes, 1, "of one microbatch");
    l.components[0].mesh = (struct pp_mesh){
        .pp = 1, .dp = 4, .tp = 2, .cp = 1, .ep = 1, .encoder_tp = 4};
    is_str(listed(&l, 6, PP_GROUP_ENCODER_TP), "4 5 6 7", "tp 4 of a tp 2");
    is_str(listed(&l, 6, PP_GROUP_FEATURES), "4 5 6 7", "two microbatches");
    int faults = 0, n = 0;
    for (int code = 0; code < 3 * 3 * 3 * N_ORDERS; code++) {
        struct pp_mesh *x = &l.components[0].mesh;
        *x = (struct pp_mesh){.pp = 2,
                              .dp = 1 + code % 3,
                              .tp = 1 + code / 3 % 3,
                              .cp = 1 + code / 9 % 3,
                              .ep = 1,
                              .order = code / 27};
        int ranks = x->dp * x->tp * x->cp;
        for (x->encoder_tp = 1; x->encoder_tp <= ranks; x->encoder_tp++)
            for (int r = 0; ranks % x->encoder_tp == 0 && r < 2 * ranks; r++) {
                faults += check_division(&l, r);
                n++;
            }
    }
    is_int(faults, 0, "divisions of rows in every order agree");
    ok(n > 30000, "on %d ranks", n);
}

/* Experts are consecutive over cp, then dp. */
static void expert_groups(void)
{
    struct pp_layout l = {
        {{.mesh = {.pp = 1, .dp = 3, .tp = 2, .cp = 4, .ep = 6}}}, 1};
    is_str(listed(&l, 0, PP_GROUP_EP), "0 2 4 6 8 10", "ep over cp, then dp");
    is_str(listed(&l, 13, PP_GROUP_EP), "13 15 17 19 21 23",
           "ep group that starts inside cp");
    is_str(listed(&l, 2, PP_GROUP_EXPERT_DATA), "2 14", "same experts");
    l.components[0].mesh.experts_over_tp = true;
    is_str(listed(&l, 7, PP_GROUP_EP), "6 7 8 9 10 11", "ep folded over tp");
    is_str(listed(&l, 7, PP_GROUP_EXPERT_DATA), "1 7 13 19",
           "same experts, folded");
}

/* Reports whether two places differ at most in the axes of a kind of group that
 * joins whole axes. */
static bool in_group(const struct pp_place *a, const struct pp_place *b,
                     enum pp_group_kind kind)
{
    static const bool free[][PP_N_AXES] = {
        [PP_GROUP_TP] = {[PP_AXIS_TP] = true},
        [PP_GROUP_CP] = {[PP_AXIS_CP] = true},
        [PP_GROUP_DP] = {[PP_AXIS_DP] = true},
        [PP_GROUP_PP] = {[PP_AXIS_PP] = true},
        [PP_GROUP_DATA] = {[PP_AXIS_CP] = true, [PP_AXIS_DP] = true},
        [PP_GROUP_SHARERS] = {[PP_AXIS_TP] = true, [PP_AXIS_CP] = true},
        [PP_GROUP_ROW] = {true, true, true, false},
    };
    const bool *f = free[kind];
    return (f[PP_AXIS_TP] || a->tp == b->tp) &&
           (f[PP_AXIS_CP] || a->cp == b->cp) &&
           (f[PP_AXIS_DP] || a->dp == b->dp) &&
           (f[PP_AXIS_PP] || a->row == b->row);
}

/* Checks one kind of group of one rank against a list. Returns the number of
 * faults. */
static int check_group(const struct pp_layout *l, int rank,
                       enum pp_group_kind kind)
{
    struct pp_place p, other;
    int faults = !pp_layout_place(l, 0, rank, &p), members = 0;
    struct pp_group g = pp_layout_group(l, &p, kind);
    bool seen[MOST] = {false};
    for (int i = 0; i < g.n; i++) {
        int r = pp_group_rank(&g, i);
        faults += !pp_layout_place(l, 0, r, &other) || seen[r] ||
                  (i == g.index) != (r == rank);
        struct pp_group same = pp_layout_group(l, &other, kind);
        faults += same.index != i || pp_group_rank(&same, g.index) != rank;
        faults += kind < PP_GROUP_EP && !in_group(&p, &other, kind);
        seen[r] = true;
    }
    for (int r = 0; r < pp_layout_ranks(l); r++)
        members += pp_layout_place(l, 0, r, &other) && kind < PP_GROUP_EP &&
                   in_group(&p, &other, kind);
    return faults + (kind < PP_GROUP_EP && members != g.n);
}

/* The two kinds of expert groups of a rank meet in that rank alone, and
 * together they join all ranks that hold the experts of one row. */
static int check_experts(const struct pp_layout *l, int rank)
{
    const struct pp_mesh *x = &l->components[0].mesh;
    struct pp_place p;
    int shared = 0, faults = !pp_layout_place(l, 0, rank, &p);
    struct pp_group a = pp_layout_group(l, &p, PP_GROUP_EP);
    struct pp_group b = pp_layout_group(l, &p, PP_GROUP_EXPERT_DATA);
    for (int i = 0; i < a.n; i++)
        for (int j = 0; j < b.n; j++)
            shared += pp_group_rank(&a, i) == pp_group_rank(&b, j);
    faults += shared != 1 || a.n != x->ep;
    return faults +
           (a.n * b.n != x->dp * x->cp * (x->experts_over_tp ? x->tp : 1));
}

static int check_mesh(const struct pp_mesh *x)
{
    const struct pp_layout l = {{{*x, 0, 3}}, 1};
    int faults = 0;
    for (int r = 0; r < pp_layout_ranks(&l); r++) {
        struct pp_place p;
        faults += !pp_layout_place(&l, 0, r, &p) || pp_layout_rank(&l, &p) != r;
        for (int k = 0; k < PP_N_GROUPS; k++)
            faults += check_group(&l, r, (enum pp_group_kind)k);
        faults += check_experts(&l, r);
        struct pp_group pipeline = pp_layout_group(&l, &p, PP_GROUP_PP);
        for (int i = 0; i < x->pp; i++)
            faults +=
                pp_layout_peer(&l, &p, 3 + i) != pp_group_rank(&pipeline, i);
    }
    return faults;
}

static void all_meshes(void)
{
    int faults = 0, n = 0;
    for (int code = 0; code < 3 * 3 * 3 * 3; code++)
        for (int order = 0; order < N_ORDERS; order++) {
            struct pp_mesh x = {.pp = 1 + code % 3,
                                .dp = 1 + code / 3 % 3,
                                .tp = 1 + code / 9 % 3,
                                .cp = 1 + code / 27,
                                .ep = 1,
                                .order = order};
            if (pp_mesh_ranks(&x) > 24)
                continue;
            for (x.ep = 1; x.ep <= x.dp * x.cp; x.ep++)
                if (x.dp * x.cp % x.ep == 0) {
                    faults += check_mesh(&x);
                    x.experts_over_tp = true;
                    faults += check_mesh(&x);
                    x.experts_over_tp = false;
                    n += 2;
                }
        }
    is_int(faults, 0, "places, ranks and groups agree with lists");
    ok(n > 3000, "of %d meshes", n);
}

static void orders(void)
{
    struct pp_mesh x = {1, 1, 1, 1, 1};
    char text[PP_MESH_ORDER_TEXT];
    pp_mesh_write_order(&x, text);
    is_str(text, "tp-cp-dp-pp", "default order");
    ok(pp_mesh_read_order(&x, "tp-cp-pp-dp"), "pp before dp is an order");
    pp_mesh_write_order(&x, text);
    is_str(text, "tp-cp-pp-dp", "it is written as it was read");
    ok(!pp_mesh_read_order(&x, "tp-tp-dp-pp") && !pp_mesh_read_order(&x, "tp"),
       "no other text is one");
    int same = 0;
    for (int order = 0; order < N_ORDERS; order++) {
        struct pp_mesh y = {1, 1, 1, 1, 1, .order = order};
        pp_mesh_write_order(&y, text);
        same += pp_mesh_read_order(&x, text) && x.order == order;
    }
    is_int(same, N_ORDERS, "every order survives its text");
}

static void components(void)
{
    const struct pp_layout l = {
        {{.mesh = {.pp = 2, .dp = 2, .tp = 2, .cp = 1, .ep = 1}},
         {.mesh = {.pp = 2, .dp = 2, .tp = 1, .cp = 1, .ep = 1},
          .first_rank = 8,
          .first_row = 2}},
        2};
    is_int(pp_layout_ranks(&l), 12, "ranks of both");
    struct pp_place p;
    ok(!pp_layout_place(&l, 1, 7, &p) && pp_layout_place(&l, 1, 8, &p) &&
           p.row == 2,
       "the first rank of the second component has its first row");
    ok(pp_layout_find(&l, 7, &p) && p.component == 0 &&
           pp_layout_find(&l, 9, &p) && p.component == 1 &&
           !pp_layout_find(&l, 12, &p),
       "a rank has its place in one of them");
    is_int(pp_layout_component(&l, 1), 0, "a row of the first");
    is_int(pp_layout_component(&l, 2), 1, "a row of the second");
    ok(pp_layout_find(&l, 6, &p), "rank 6");
    struct pp_group to = pp_layout_partners(&l, &p, 0);
    ok(to.n == 1 && pp_group_rank(&to, 0) == 2, "exchanges with its own place");
    to = pp_layout_partners(&l, &p, 2);
    ok(to.n == 2 && pp_group_rank(&to, 0) == 8 && pp_group_rank(&to, 1) == 9,
       "and over the bridge with the whole row");
}

int main(void)
{
    megatron_groups();
    encoder_ranks();
    generator_ranks();
    encoder_divisions();
    expert_groups();
    orders();
    all_meshes();
    components();
    return done();
}
