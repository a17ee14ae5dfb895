/* SPDX-License-Identifier: MIT */
/* test_packed_memory - takes, unpacks and scales down bins. */
#include "scratch.h"
#include "tap.h"

#include "data/packed/packed.h"
#include "model/model.h"

static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
static const int32_t labels[] = {5, -100, 7, 8, 9, 10, 11, -100, -100, 14};

/* Two bins: sequences of 3 (padded to 4) and 2; of 5 (padded to 6). */
static void make(const char *dir, struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_piece pieces[3] = {
        {.source = 0, .at = 0, .padded = 4, .length = 3},
        {.source = 1, .at = 3, .padded = 2, .length = 2},
        {.source = 2, .at = 5, .padded = 6, .length = 5}};
    uint32_t items[] = {0, 1, 2};
    size_t first[] = {0, 2, 3};
    const struct pp_packed_content c = {.ids = ids,
                                        .labels = labels,
                                        .pieces = pieces,
                                        .n_bins = 2,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = 3,
                                        .capacity = 8,
                                        .align = 2,
                                        .counts.tokens = 10};
    int rc = pp_packed_write(dir, &c, &err) || pp_packed_open(dir, p, &err);
    ok(rc == 0, "a packed directory: %s", err.text);
}

static void test_take(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed t;
    struct pp_bin a, b;
    is_int(pp_packed_take(p, 3, &t, &err), 0, "three of two bins are taken");
    is_int((long long)t.n_bins, 3, "after the last bin comes the first");
    is_int((long long)t.n_sequences, 5, "all sequences are taken");
    is_int(t.max_tokens, 6, "largest bin");
    is_int(t.max_seqlen, 6, "largest padded length");
    is_int(t.vocab, 15, "vocabulary");
    pp_packed_bin(p, 0, &a);
    pp_packed_bin(&t, 2, &b);
    is_int(b.tokens, a.tokens, "as many positions");
    is_int(b.scored, a.scored, "as many scored");
    ok(!memcmp(a.input_ids, b.input_ids, a.tokens * sizeof *a.input_ids) &&
           !memcmp(a.labels, b.labels, a.tokens * sizeof *a.labels),
       "the same columns");
    ok(b.cu_seqlens[1] == 3 && b.cu_seqlens_padded[1] == 4, "the same bounds");
    ok(b.source[0] == 3 && b.source[1] == 4, "sequences are numbered anew");
    pp_packed_finish(&t);
}

static void test_unpack(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed t, u;
    struct pp_bin b;
    uint32_t scored = 0;
    is_int(pp_packed_take(p, 2, &t, &err) || pp_packed_unpack(&t, &u, &err), 0,
           "unpacked");
    is_int((long long)u.n_bins, 3, "a bin for each sequence");
    is_int((long long)u.n_positions, (long long)p->n_tokens, "without padding");
    for (size_t i = 0; i < u.n_bins; i++) {
        pp_packed_bin(&u, i, &b);
        scored += b.scored;
        ok(b.n_sequences == 1 && b.source[0] == i && b.tokens == b.max_seqlen,
           "bin %zu is sequence %zu", i, i);
    }
    ok(b.input_ids[0] == 10 && b.labels[4] == 14, "its own columns");
    pp_packed_bin(p, 0, &b);
    uint32_t all = b.scored;
    pp_packed_bin(p, 1, &b);
    is_int(scored, all + b.scored, "as many scored");
    pp_packed_finish(&t);
    pp_packed_finish(&u);
}

static void test_likeness(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed s;
    struct pp_bin b;
    struct pp_synthetic_data l = {
        .tokens = 3, .max_sequences = 1, .vocab = 4, .seed = 1};
    is_int(pp_packed_synthetic(p, 2, &l, &s, &err), 0, "a likeness");
    pp_packed_bin(&s, 1, &b);
    is_int(b.cu_seqlens[1], 2, "half as long");
    is_int(b.tokens, 3, "padded still");
    ok(b.labels[1] == PP_LABEL_IGNORE && b.labels[2] == PP_LABEL_IGNORE,
       "labels are ignored where they were, and on padding");
    pp_packed_bin(&s, 0, &b);
    is_int(b.n_sequences, 1, "no more sequences than allowed");
    ok(s.vocab <= 4, "ids are in the small vocabulary");
    pp_packed_finish(&s);

    l.tokens = 40;
    is_int(pp_packed_synthetic(NULL, 9, &l, &s, &err), 0, "made up");
    ok(s.n_bins == 9 && s.max_tokens <= 40 && s.max_tokens >= 10,
       "of about that size");
    ok(s.n_positions == s.n_tokens, "without padding");
    pp_packed_finish(&s);
}

static void test_shrink(void)
{
    struct pp_model m = {.architecture = PP_QWEN3,
                         .hidden = 4096,
                         .intermediate = 12288,
                         .n_layers = 36,
                         .n_heads = 32,
                         .n_kv_heads = 8,
                         .head_dim = 128,
                         .vocab = 151936,
                         .tied = true,
                         .qk_norm = true};
    struct pp_model tiny = m;
    pp_model_synthetic(&m, 1, 1);
    ok(m.n_layers == 36 && m.n_heads == 4 * m.n_kv_heads && m.n_kv_heads > 1,
       "layers and heads per key head stay");
    ok(m.tied && m.qk_norm && !m.qkv_bias && m.head_dim % 2 == 0,
       "what it has stays");
    ok(m.hidden < 64 && m.vocab < 100 && m.intermediate < 100, "small");
    tiny.hidden = tiny.intermediate = tiny.vocab = 2;
    pp_model_synthetic(&tiny, 1, 1);
    ok(tiny.hidden == 2 && tiny.intermediate == 2 && tiny.vocab == 2,
       "a set is never scaled up");
}

int main(void)
{
    struct pp_packed p;
    char base[SCRATCH_TEXT], dir[SCRATCH_TEXT + 8];
    scratch_make(base);
    snprintf(dir, sizeof dir, "%s/packed", base);
    make(dir, &p);
    test_take(&p);
    test_unpack(&p);
    test_likeness(&p);
    test_shrink();
    pp_packed_finish(&p);
    scratch_remove(base);
    return done();
}
