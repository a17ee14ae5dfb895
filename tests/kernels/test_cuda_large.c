/* SPDX-License-Identifier: MIT */
/* test_cuda_large - CUDA kernels on arrays with more than 2^32 elements, on the
 * emulated device: an index of 32 bits would wrap.
 *
 * The arrays are zero but for their last row, and take memory only where a
 * kernel goes. Only the first and the last blocks of a grid run. What they
 * write to the end of the last row must be what the kernels write for two rows.
 * Rows are so many that the last block of a loop over the grid is at its end.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "emulated_gate.h"
#include "gpu.h"
#include "tap.h"

#define MOST_ARRAYS 10
/* Elements at the end of a row that the last block writes. */
#define SHOWN 32

static const struct pp_kernels *k; /* of the case that runs */

/* An array of rows; or with `fixed` one that all runs share. */
struct array {
    size_t width, bytes; /* of a row in elements, of an element */
    bool is_output, is_ids, fixed;
};

#define IN(width)                     \
    {                                 \
        width, 2, false, false, false \
    }
#define OUT(width)                   \
    {                                \
        width, 2, true, false, false \
    }
#define WEIGHT(width)                \
    {                                \
        width, 2, false, false, true \
    }
#define STATISTIC(width)              \
    {                                 \
        width, 4, false, false, false \
    }
#define STATISTIC_OUT(width)         \
    {                                \
        width, 4, true, false, false \
    }
#define IDS(width)                   \
    {                                \
        width, 4, false, true, false \
    }

struct large {
    const char *name;
    int (*run)(void *const *at, size_t N, void *stream);
    size_t rows;
    struct array arrays[MOST_ARRAYS]; /* inputs may be overwritten */
    const struct pp_kernels *kernels; /* NULL: bf16 */
};

/* --- the kernels --- */

enum { WORDS = 152064, HIDDEN = 2048, GROUPS = 32, HEAD = 128, TOP = 4 };
enum { NARROW = 64, WIDE = 65 * NARROW }; /* a head, and the row that it ends */

static int cross_entropy(void *const *at, size_t N, void *s)
{
    return k->cross_entropy_fwd(at[3], at[4], at[0], at[1], N, WORDS, s) ||
           k->entropy(at[5], at[0], at[3], N, WORDS, s) ||
           k->cross_entropy_bwd(at[0], at[3], at[1], at[2], N, WORDS, 0, s);
}

static int soft_targets(void *const *at, size_t N, void *s)
{
    return k->top_k(at[3], at[4], at[0], N, WORDS, TOP, s) ||
           k->soft_targets_fwd(at[5], at[0], at[2], at[4], at[1], N, WORDS, TOP,
                               s) ||
           k->soft_targets_bwd(at[0], at[2], at[4], at[1], at[2], N, WORDS, TOP,
                               0, s);
}

static int rmsnorm(void *const *at, size_t N, void *s)
{
    enum { C = HIDDEN };
    return k->rmsnorm_fwd(at[3], at[4], at[0], at[2], at[1], N, 1, C, C, 1, C,
                          0, 1, NULL, s) ||
           k->rmsnorm_bwd_input(at[5], at[1], at[0], at[4], at[2], at[0], N, 1,
                                C, C, C, C, 1, 0, NULL, s) ||
           k->rmsnorm_bwd_weight(at[6], at[1], at[0], at[4], N, 1, C, C, C, 1,
                                 s);
}

static int layernorm(void *const *at, size_t N, void *s)
{
    return k->layernorm_fwd(at[3], at[4], at[5], at[0], at[2], at[2], at[1], N,
                            HIDDEN, 1, s) ||
           k->layernorm_bwd_input(at[6], at[1], at[0], at[4], at[5], at[2],
                                  at[0], N, HIDDEN, s);
}

static int gated(void *const *at, size_t N, void *s)
{
    return k->swiglu_fwd(at[2], at[0], N, HIDDEN, s) ||
           k->swiglu_bwd(at[3], at[1], at[0], N, HIDDEN, s) ||
           k->geglu_fwd(at[4], at[0], N, HIDDEN, s) ||
           k->geglu_bwd(at[5], at[1], at[0], N, HIDDEN, s);
}

static int elementwise(void *const *at, size_t N, void *s)
{
    size_t n = N * HIDDEN;
    return k->add(at[1], at[0], at[0], n, s) ||
           k->gelu_fwd(at[2], at[0], n, PP_GELU_ERF, s) ||
           k->gelu_bwd(at[3], at[1], at[0], n, PP_GELU_ERF, s) ||
           k->copy(at[4], at[0], N, HIDDEN, HIDDEN, HIDDEN, s) ||
           k->scale_by(at[4], 3, 1, n, n, s) || k->softcap(at[4], 2, n, s);
}

static int rope(void *const *at, size_t N, void *s)
{
    const struct pp_rope_axes axes = {1, {HEAD / 2}, at[1], at[1], NULL};
    size_t ld = GROUPS * HEAD;
    return k->rope(at[0], at[1], at[1], at[2], N, GROUPS, HEAD, ld, HEAD, false,
                   1, s) ||
           k->rope(at[0], at[1], at[1], at[2], N, GROUPS, HEAD, ld, HEAD, true,
                   -1, s) ||
           k->rope_axes(at[0], &axes, at[2], N, GROUPS, HEAD, ld, HEAD, 1, s);
}

/* ids are the last row of a table of as many rows. */
static int tables(void *const *at, size_t N, void *s)
{
    int32_t *ids = at[1], *last = ids + N - 1;
    const char *row = (char *)at[0] + (N - 1) * HIDDEN * k->element_bytes;
    *last = (int32_t)N - 1;
    return k->embedding_fwd(at[3], ids, at[0], N, HIDDEN, s) ||
           k->embedding_add(at[3], ids, at[0], N, HIDDEN, s) ||
           k->embedding_bwd_weight(at[4], row, last, 1, HIDDEN, s) ||
           k->scatter(at[5], row, last, 1, HIDDEN, s) ||
           k->experts->spread(at[6], at[0], at[2], ids, N, HIDDEN, s) ||
           k->experts->combine(at[6], at[3], at[2], ids, N, 1, HIDDEN, true,
                               s) ||
           k->experts->weigh_bwd(at[7], at[6], at[3], at[2], N, HIDDEN, s);
}

static int taps(void *const *at, size_t N, void *s)
{
    return k->taps_fwd(at[2], at[0], at[1], N, HIDDEN, s) ||
           k->taps_bwd(at[3], at[2], at[1], N, HIDDEN, s);
}

/* The last two rows are a sequence. The heads of the rows before them see few
 * keys, because all blocks that run are to be short. */
static int attention(void *const *at, size_t N, void *s)
{
    int32_t cu[] = {0, (int32_t)N - 2, (int32_t)N};
    const struct pp_attention_shape shape = {.N = N,
                                             .NH = 1,
                                             .NKV = 1,
                                             .HDQK = NARROW,
                                             .HDV = NARROW,
                                             .ldq = WIDE,
                                             .ldkv = WIDE,
                                             .ldo = WIDE,
                                             .n_sequences = 2,
                                             .cu = cu,
                                             .cu_padded = cu,
                                             .scale = 1,
                                             .window = 64};
    char *x[8];
    for (int i = 0; i < 8; i++)
        x[i] = (char *)at[i] + (WIDE - NARROW) * k->element_bytes;
    return k->attention_fwd(x[4], at[8], x[0], x[1], x[2], NULL, &shape, at[9],
                            s) ||
           k->attention_bwd(x[5], x[6], x[7], x[3], x[0], x[1], x[2], x[4],
                            at[8], &shape, at[9], s);
}

/* Every run of a loop over a grid has 2^24 threads, and a thread has 8 elements
 * or one. */
#define ROUNDS ((size_t)1 << 27)
#define ROWS ((((size_t)1 << 32) + ROUNDS) / HIDDEN)
#define HALF_ROWS (((size_t)5 << 30) / (GROUPS * HEAD))

#define WIDE_IN(bytes)                   \
    {                                    \
        WIDE, bytes, false, false, false \
    }
#define WIDE_OUT(bytes)                 \
    {                                   \
        WIDE, bytes, true, false, false \
    }
#define ATTENTION(bytes)                                                \
    {                                                                   \
        WIDE_IN(bytes), WIDE_IN(bytes), WIDE_IN(bytes), WIDE_IN(bytes), \
            WIDE_OUT(bytes), WIDE_OUT(bytes), WIDE_OUT(bytes),          \
            WIDE_OUT(bytes), STATISTIC_OUT(1), STATISTIC(2)             \
    }

static const struct large cases[] = {
    {"cross_entropy, entropy",
     cross_entropy,
     32768,
     {IN(WORDS), IDS(1), STATISTIC(1), STATISTIC_OUT(1), STATISTIC_OUT(1),
      STATISTIC_OUT(1)}},
    {"soft_targets, top_k",
     soft_targets,
     32768,
     {IN(WORDS), STATISTIC(TOP), STATISTIC(1), STATISTIC_OUT(TOP), IDS(TOP),
      STATISTIC_OUT(1)}},
    {"rmsnorm",
     rmsnorm,
     ROWS,
     {IN(HIDDEN),
      IN(HIDDEN),
      WEIGHT(HIDDEN),
      OUT(HIDDEN),
      STATISTIC_OUT(1),
      OUT(HIDDEN),
      {HIDDEN, 4, true, false, true}}},
    {"layernorm",
     layernorm,
     ROWS,
     {IN(HIDDEN), IN(HIDDEN), WEIGHT(HIDDEN), OUT(HIDDEN), STATISTIC_OUT(1),
      STATISTIC_OUT(1), OUT(HIDDEN)}},
    {"swiglu, geglu",
     gated,
     ROWS,
     {IN(2 * HIDDEN), IN(HIDDEN), OUT(HIDDEN), OUT(2 * HIDDEN), OUT(HIDDEN),
      OUT(2 * HIDDEN)}},
    {"elementwise, gelu",
     elementwise,
     ROWS,
     {IN(HIDDEN), OUT(HIDDEN), OUT(HIDDEN), OUT(HIDDEN), OUT(HIDDEN)}},
    {"rope, rope_axes",
     rope,
     HALF_ROWS,
     {IN(GROUPS * HEAD), {HEAD / 2, 4, false, false, true}, IDS(1)}},
    {"embedding, scatter, rows of experts",
     tables,
     ROWS,
     {IN(HIDDEN), IDS(1), STATISTIC(1), OUT(HIDDEN), STATISTIC_OUT(HIDDEN),
      OUT(HIDDEN), OUT(HIDDEN), STATISTIC_OUT(1)}},
    {"taps",
     taps,
     ROWS,
     {IN(2 * HIDDEN), IDS(1), OUT(3 * HIDDEN), OUT(2 * HIDDEN)}},
    {"attention on tensor cores", attention, 1 << 20, ATTENTION(2)},
    {"attention", attention, 1 << 20, ATTENTION(4), &pp_kernels_cuda_f32},
};

/* --- the comparison --- */

static size_t size_of(const struct array *a, size_t rows)
{
    return (a->fixed ? 1 : rows) * a->width * a->bytes;
}

static char *last_row(const struct array *a, char *at, size_t rows)
{
    return at + size_of(a, rows) - a->width * a->bytes;
}

/* Fills the last row of an input: with normal numbers, or ids of 0. */
static void fill(const struct array *a, char *row, uint64_t key)
{
    for (size_t i = 0; i < a->width && !a->is_ids && !a->is_output; i++) {
        float x = (float)pp_rng_normal(key, i);
        memcpy(row + i * a->bytes, (char *)&x + sizeof x - a->bytes, a->bytes);
    }
}

/* Runs a case on so many rows. Returns whether it could. */
static bool run(const struct large *c, size_t rows, void *at[MOST_ARRAYS])
{
    for (int i = 0; i < MOST_ARRAYS && c->arrays[i].width; i++) {
        const struct array *a = &c->arrays[i];
        at[i] = mmap(NULL, size_of(a, rows) + 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at[i] == MAP_FAILED)
            abort();
        fill(a, last_row(a, at[i], rows), (uint64_t)i + 1);
    }
    memset(gpu_stream()->partials, 0, PP_CUDA_PARTIAL_BYTES);
    return c->run(at, rows, gpu_stream()) == 0;
}

static bool is_zero(const char *p, size_t bytes)
{
    while (bytes && !p[bytes - 1])
        bytes--;
    return bytes == 0;
}

static void test_case(const struct large *c)
{
    k = c->kernels ? c->kernels : &pp_kernels_cuda_bf16;
    void *small[MOST_ARRAYS] = {0}, *large[MOST_ARRAYS] = {0};
    bool good = run(c, 2, small);
    pp_emulated_ends = 2;
    good = good && run(c, c->rows, large);
    pp_emulated_ends = 0;
    ok(good, "%s: %zu rows", c->name, c->rows);
    for (int i = 0; i < MOST_ARRAYS && c->arrays[i].width; i++) {
        const struct array *a = &c->arrays[i];
        size_t n = a->width < SHOWN ? a->width : SHOWN;
        const char *want = last_row(a, small[i], 2) + (a->width - n) * a->bytes;
        const char *got =
            last_row(a, large[i], c->rows) + (a->width - n) * a->bytes;
        if (!a->is_ids)
            ok(!memcmp(got, want, n * a->bytes) && !is_zero(want, n * a->bytes),
               "%s: the end of array %d", c->name, i);
        munmap(small[i], size_of(a, 2) + 4096);
        munmap(large[i], size_of(a, c->rows) + 4096);
    }
}

int main(void)
{
    const char *why = gpu_open();
    if (why) {
        printf("1..0 # skip %s\n", why);
        return 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_case(&cases[i]);
    return done();
}
