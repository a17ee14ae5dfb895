/* SPDX-License-Identifier: MIT */
/* test_sets - the sets of ranks that connect: every message has one, none lies
 * in another, and the steps of the connections grow with the neighbours of a
 * rank, and not with the ranks. */
#include "tap.h"

#include "base/rng.h"
#include "comm/sets.h"
#include "model/layout.h"

/* Adds the sets that a mesh of pipelines needs, of one of its ranks. */
static void add_rank(struct pp_comm_sets *s, const struct pp_layout *l,
                     int rank)
{
    static const enum pp_group_kind data[] = {PP_GROUP_TP, PP_GROUP_SHARERS,
                                              PP_GROUP_EP},
                                    weights[] = {PP_GROUP_DATA,
                                                 PP_GROUP_EXPERT_DATA};
    struct pp_place p;
    int pp = l->components[0].mesh.pp;
    if (!pp_layout_find(l, rank, &p))
        return;
    for (int k = 0; k < 3; k++) {
        const struct pp_group g = pp_layout_group(l, &p, data[k]);
        pp_comm_sets_add_group(s, &g, PP_DIRECTION_DATA);
    }
    for (int k = 0; k < 2; k++) {
        const struct pp_group g = pp_layout_group(l, &p, weights[k]);
        pp_comm_sets_add_group(s, &g, PP_DIRECTION_WEIGHTS);
    }
    for (int back = 0; back < 2 && pp > 1; back++) {
        int to = pp_layout_peer(l, &p, (p.row + (back ? pp - 1 : 1)) % pp);
        pp_comm_sets_add_pair(
            s, rank, to, back ? PP_DIRECTION_BACKWARD : PP_DIRECTION_FORWARD);
    }
    if (pp > 1 && (p.row == 0 || p.row == pp - 1)) {
        const struct pp_group g =
            pp_group_pair(pp_layout_peer(l, &p, 0),
                          pp_layout_peer(l, &p, pp - 1), p.row == 0 ? 0 : 1);
        pp_comm_sets_add_group(s, &g, PP_DIRECTION_SYNC);
    }
}

/* Adds the ranks from one on, around. */
static struct pp_comm_sets sets_of(const struct pp_layout *l, int from)
{
    struct pp_comm_sets s = {0};
    int n = pp_layout_ranks(l);
    for (int k = 0; k < n; k++)
        add_rank(&s, l, (from + k) % n);
    pp_comm_sets_order(&s, n);
    return s;
}

static bool has_rank(const struct pp_comm_sets *s, const struct pp_comm_set *x,
                     int rank)
{
    int k = 0;
    while (k < x->n && pp_comm_set_ranks(s, x)[k] != rank)
        k++;
    return k < x->n;
}

static bool lies_in(const struct pp_comm_sets *s, const int *ranks, int n,
                    enum pp_direction direction, const struct pp_comm_set *in)
{
    const int *of = pp_comm_set_ranks(s, in);
    if (in->direction != direction)
        return false;
    if (direction < PP_DIRECTION_SYNC)
        return ranks[0] == of[0] && ranks[1] == of[1];
    int k = 0;
    while (k < n && has_rank(s, in, ranks[k]))
        k++;
    return k == n;
}

/* Returns the number of sets that have all these ranks. */
static int n_holding(const struct pp_comm_sets *s, const int *ranks, int n,
                     enum pp_direction direction)
{
    int found = 0;
    for (size_t i = 0; i < s->n; i++)
        found += lies_in(s, ranks, n, direction, &s->items[i]);
    return found;
}

/* Whatever was added has a set, which alone holds its own ranks. */
static int count_faults(const struct pp_comm_sets *s,
                        const struct pp_comm_sets *added)
{
    int bad = 0;
    for (size_t i = 0; i < added->n; i++) {
        const struct pp_comm_set *x = &added->items[i];
        bad += !n_holding(s, pp_comm_set_ranks(added, x), x->n, x->direction);
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct pp_comm_set *x = &s->items[i];
        bad += n_holding(s, pp_comm_set_ranks(s, x), x->n, x->direction) != 1;
        bad += i > 0 && s->items[i - 1].step > x->step;
        for (size_t k = 0; k < i; k++)
            for (int r = 0; r < x->n && s->items[k].step == x->step; r++)
                bad += has_rank(s, &s->items[k], pp_comm_set_ranks(s, x)[r]);
    }
    return bad;
}

static bool same(const struct pp_comm_sets *a, const struct pp_comm_sets *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) {
        const struct pp_comm_set *x = &a->items[i], *y = &b->items[i];
        equal = x->direction == y->direction && x->n == y->n &&
                x->step == y->step &&
                !memcmp(pp_comm_set_ranks(a, x), pp_comm_set_ranks(b, y),
                        (size_t)x->n * sizeof(int));
    }
    return equal;
}

static int steps_of(const struct pp_comm_sets *s)
{
    return s->n ? s->items[s->n - 1].step + 1 : 0;
}

static struct pp_layout mesh_of(int pp, int dp, int tp, int cp, int ep)
{
    return (struct pp_layout){
        {{.mesh = {.pp = pp, .dp = dp, .tp = tp, .cp = cp, .ep = ep}}}, 1};
}

/* Adds up the ranks that send to a rank of a ring of rows with replicas. */
static void connections(void)
{
    const struct pp_layout l = mesh_of(3, 4, 1, 1, 1);
    struct pp_comm_sets s = sets_of(&l, 0);
    size_t one = 16 * ((4096u + 512 + 4800) << 10), n[3] = {0};
    for (int rank = 0; rank < pp_layout_ranks(&l); rank++) {
        struct pp_place p;
        if (pp_layout_find(&l, rank, &p))
            n[p.row] += pp_comm_sets_bytes(&s, rank, 16);
    }
    /* Three replicas, the rows before and behind, and the two that are tied. */
    ok(n[0] == 4 * 6 * one && n[1] == 4 * 5 * one && n[2] == 4 * 6 * one,
       "NCCL has buffers for each rank that sends to a rank");
    ok(pp_comm_sets_blocks(4, 132) == 32 && pp_comm_sets_blocks(5, 132) == 8 &&
           pp_comm_sets_blocks(1, 0) == 1,
       "many sets have fewer blocks each");
    pp_comm_sets_finish(&s);
}

static void random_meshes(void)
{
    int bad = 0, unlike = 0, late = 0;
    for (uint64_t k = 0; k < 60; k++) {
        uint64_t r = pp_rng_bits(5, k);
        int dp = 1 + (int)(r >> 8 & 3), cp = 1 + (int)(r >> 16 & 1);
        int ep = r >> 40 & 1 ? cp * dp : 1;
        const struct pp_layout l =
            mesh_of(1 + (int)(r & 3), dp, 1 << (r >> 24 & 1), cp, ep);
        int n = pp_layout_ranks(&l);
        struct pp_comm_sets added = {0}, s = sets_of(&l, 0);
        struct pp_comm_sets other = sets_of(&l, n / 2);
        for (int rank = 0; rank < n; rank++)
            add_rank(&added, &l, rank);
        bad += count_faults(&s, &added);
        unlike += !same(&s, &other);
        late += steps_of(&s) >= 2 * pp_comm_sets_most(&s, n) + 1;
        pp_comm_sets_finish(&added);
        pp_comm_sets_finish(&s);
        pp_comm_sets_finish(&other);
    }
    is_int(bad, 0,
           "every message has a set, none lies in another, and sets of "
           "a step have no rank in common");
    is_int(unlike, 0, "the list does not depend on who adds first");
    is_int(late, 0, "steps are less than twice the sets of a rank, and one");
}

static void large_mesh(int pp, int dp, int tp, int most, int steps)
{
    const struct pp_layout l = mesh_of(pp, dp, tp, 1, 1);
    struct pp_comm_sets s = sets_of(&l, 0);
    ok(pp_comm_sets_most(&s, pp_layout_ranks(&l)) == most &&
           steps_of(&s) == steps,
       "pp %d, dp %d, tp %d: %d sets of a rank (%d), connected in %d steps "
       "(%d)",
       pp, dp, tp, pp_comm_sets_most(&s, pp_layout_ranks(&l)), most,
       steps_of(&s), steps);
    pp_comm_sets_finish(&s);
}

int main(void)
{
    connections();
    random_meshes();
    large_mesh(8, 4, 1, 6, 6);
    large_mesh(8, 128, 1, 6, 6);
    large_mesh(16, 8, 8, 7, 7);
    large_mesh(1, 1024, 1, 1, 1);
    return done();
}
