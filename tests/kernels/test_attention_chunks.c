/* SPDX-License-Identifier: MIT */
/* test_attention_chunks - attention whose keys come chunk by chunk, as the
 * ranks of a ring have them, against whole sequences: every result of every
 * rank. */
#include "values.h"

#define MAX_SEQUENCES 3

struct ring_case {
    const char *name;
    size_t NH, NKV, HDQK, HDV, window;
    bool sinks;
    int ranks;
    size_t n;
    int real[MAX_SEQUENCES], chunk[MAX_SEQUENCES]; /* rows of a chunk */
    double cap;
};

static const struct ring_case cases[] = {
    {"one rank", 2, 1, 4, 4, 0, 0, 1, 2, {7, 4}, {4, 2}},
    {"groups, uneven", 4, 2, 4, 6, 0, 0, 2, 3, {15, 1, 4}, {4, 2, 1}},
    {"three, sinks", 2, 2, 5, 4, 0, 1, 3, 2, {23, 12}, {4, 2}},
    {"window", 2, 1, 4, 4, 3, 0, 4, 2, {37, 16}, {5, 2}},
    {"cap", 2, 1, 4, 4, 9, 1, 3, 2, {37, 16}, {7, 3}, .cap = 0.8},
    {"window 1", 2, 1, 4, 4, 1, 0, 2, 1, {12}, {3}},
    {"blocks", 4, 2, 16, 16, 0, 0, 2, 2, {555, 280}, {140, 72}},
    {"blocks, window", 2, 1, 16, 8, 150, 0, 2, 1, {600}, {150}},
};
#define N_CASES (sizeof cases / sizeof *cases)

enum { Q, K, V, DOUT, O, LSE, DQ, DK, DV, N_TENSORS };

/* The tensors of some rows. */
struct ring_rows {
    struct pp_attention_shape s;
    int32_t cu[2 * MAX_SEQUENCES + 1], padded[2 * MAX_SEQUENCES + 1];
    struct pp_attention_keys keys[2 * MAX_SEQUENCES];
    size_t n, width[N_TENSORS];
    struct values at[N_TENSORS];
};

static void rows_init(struct ring_rows *r, const struct ring_case *t,
                      const struct pp_kernels *k)
{
    const size_t q = t->NH * t->HDQK, o = t->NH * t->HDV;
    const size_t kv = t->NKV * (t->HDQK > t->HDV ? t->HDQK : t->HDV);
    const size_t width[N_TENSORS] = {q, kv, kv, o, o, t->NH, q, kv, kv};
    r->s = (struct pp_attention_shape){
        .N = r->n,
        .NH = t->NH,
        .NKV = t->NKV,
        .HDQK = t->HDQK,
        .HDV = t->HDV,
        .ldq = q,
        .ldkv = kv,
        .ldo = o,
        .cu = r->cu,
        .cu_padded = r->padded,
        .scale = 0.4,
        .window = t->window,
        .cap = t->cap,
    };
    for (size_t i = 0; i < N_TENSORS; i++) {
        r->width[i] = width[i];
        r->at[i] = values_new(k, r->n * width[i], 0);
        fill(&r->at[i], 0);
    }
}

static void rows_finish(struct ring_rows *r)
{
    for (size_t i = 0; i < N_TENSORS; i++)
        values_free(&r->at[i]);
}

/* Makes whole sequences. */
static void whole_init(struct ring_rows *w, const struct ring_case *t,
                       const struct pp_kernels *k)
{
    static const char *const names[] = {"q", "k", "v", "dout"};
    *w = (struct ring_rows){.n = 0};
    for (size_t i = 0; i < t->n; i++) {
        w->cu[i + 1] = w->cu[i] + t->real[i];
        w->padded[i + 1] = w->padded[i] + 2 * t->ranks * t->chunk[i];
    }
    w->n = (size_t)w->padded[t->n];
    rows_init(w, t, k);
    w->s.n_sequences = t->n;
    for (size_t i = 0; i < 4; i++)
        fill_normal(&w->at[i], names[i], 1);
}

static int chunk_of(const struct ring_case *t, int rank, int half)
{
    return half ? 2 * t->ranks - 1 - rank : rank;
}

static int tokens_in(int real, int begin, int rows)
{
    return real <= begin ? 0 : real - begin < rows ? real - begin : rows;
}

/* Makes the tensors of a rank, with its rows of q, k, v and dout. */
static void rank_init(struct ring_rows *r, const struct ring_case *t,
                      const struct pp_kernels *k, int rank)
{
    *r = (struct ring_rows){.n = 0};
    for (size_t i = 0; i < 2 * t->n; i++) {
        int rows = t->chunk[i / 2];
        int begin = chunk_of(t, rank, (int)i % 2) * rows;
        int n = tokens_in(t->real[i / 2], begin, rows);
        r->cu[i + 1] = r->cu[i] + n;
        r->padded[i + 1] = r->padded[i] + rows;
        r->keys[i] = (struct pp_attention_keys){0, begin + n, begin};
    }
    r->n = (size_t)r->padded[2 * t->n];
    rows_init(r, t, k);
    r->s.n_sequences = 2 * t->n;
    r->s.keys = r->keys;
    r->s.NK = r->n;
    r->s.share = 2;
    r->s.one_chunk = true;
}

/* Copies a tensor's rows from the whole to a rank, or back. */
static void move(struct ring_rows *w, struct ring_rows *r,
                 const struct ring_case *t, int rank, size_t tensor, bool back)
{
    size_t width = w->width[tensor];
    for (size_t i = 0; i < 2 * t->n; i++) {
        size_t rows = (size_t)t->chunk[i / 2];
        size_t in = (size_t)w->padded[i / 2] +
                    (size_t)chunk_of(t, rank, (int)i % 2) * rows;
        for (size_t j = 0; j < rows * width; j++) {
            size_t a = in * width + j, b = (size_t)r->padded[i] * width + j;
            if (back)
                set(&w->at[tensor], a, get(&r->at[tensor], b));
            else
                set(&r->at[tensor], b, get(&w->at[tensor], a));
        }
    }
}

/* Runs a kernel of a rank for the keys of another, chunk by chunk. */
static void visit(struct ring_rows *r, struct ring_rows *of,
                  const struct ring_case *t, const struct pp_kernels *k,
                  int from, bool first, const struct values *sinks,
                  void *scratch, bool backward)
{
    struct values *x = r->at, *y = of->at;
    struct pp_attention_shape s = r->s;
    for (s.half = 0; s.half < 2; s.half++) {
        s.chunk = chunk_of(t, from, s.half);
        s.merge = backward || !first || s.half;
        if (backward ? k->attention_bwd(x[DQ].at, y[DK].at, y[DV].at,
                                        x[DOUT].at, x[Q].at, y[K].at, y[V].at,
                                        x[O].at, x[LSE].at, &s, scratch, NULL)
                     : k->attention_fwd(x[O].at, x[LSE].at, x[Q].at, y[K].at,
                                        y[V].at, t->sinks ? sinks->at : NULL,
                                        &s, scratch, NULL))
            abort();
    }
}

/* Computes the results of all ranks into `got`, whose inputs are those of the
 * whole. */
static void run_ring(struct ring_rows *got, const struct ring_case *t,
                     const struct pp_kernels *k, const struct values *sinks,
                     void *scratch)
{
    struct ring_rows r[8];
    for (int i = 0; i < t->ranks; i++) {
        rank_init(&r[i], t, k, i);
        for (size_t x = Q; x <= DOUT; x++)
            move(got, &r[i], t, i, x, false);
    }
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < t->ranks; i++)
            for (int step = 0; step < t->ranks; step++) {
                int from = (i + t->ranks - step) % t->ranks;
                visit(&r[i], &r[from], t, k, from, step == 0, sinks, scratch,
                      backward);
            }
    for (int i = 0; i < t->ranks; i++) {
        for (size_t x = O; x < N_TENSORS; x++)
            move(got, &r[i], t, i, x, true);
        rows_finish(&r[i]);
    }
}

static void against_whole(const struct ring_case *t, const struct pp_kernels *k,
                          double bound)
{
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    struct ring_rows want, got;
    whole_init(&want, t, k);
    whole_init(&got, t, k);
    struct values sinks = values_new(k, t->NH, 0);
    struct values scratch = values_new(k, k->attention_scratch(&want.s), 0);
    fill_normal(&sinks, "sinks", 1);
    struct values *x = want.at;
    if (k->attention_fwd(x[O].at, x[LSE].at, x[Q].at, x[K].at, x[V].at,
                         t->sinks ? sinks.at : NULL, &want.s, scratch.at,
                         NULL) ||
        k->attention_bwd(x[DQ].at, x[DK].at, x[DV].at, x[DOUT].at, x[Q].at,
                         x[K].at, x[V].at, x[O].at, x[LSE].at, &want.s,
                         scratch.at, NULL))
        abort();
    run_ring(&got, t, k, &sinks, scratch.at);
    bool same = true;
    for (size_t i = O; i < N_TENSORS; i++)
        same = same &&
               values_near(&got.at[i], &want.at[i], bound, 1, names[i - O]);
    ok(same, "%s, %s: the results of whole sequences", t->name, k->name);
    rows_finish(&want);
    rows_finish(&got);
    values_free(&sinks);
    values_free(&scratch);
}

int main(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        against_whole(&cases[i], &pp_kernels_f64, 1e-13);
        against_whole(&cases[i], &pp_kernels_f32, 4e-6);
    }
    return done();
}
