/* SPDX-License-Identifier: MIT */
/* test_packed_generator - the tokens of a generator behind the language model:
 * documents, the index, sets in memory, and the views of slices and ranks. What
 * is expected is computed from the number of the token. */
#include "packed_fixture.h"
#include "scratch.h"

#include "run/execute/batch.h"

enum { N = 5, CP = 4, VOCAB = 50, WITHOUT = 1, MOST = 64 };

static const uint32_t lengths[N] = {13, 8, 7, 5, 16};
static const struct pp_rank_range ranges[N] = {
    {0, 4}, {2, 2}, {1, 1}, {3, 1}, {0, 2}};

/* The ids and labels of token k of a document: every third has no label. One
 * document has no generator. */
static int32_t id_of(uint32_t document, uint32_t k)
{
    return document == WITHOUT ? 0 : (int32_t)((7 * document + 3 * k) % VOCAB);
}

static int32_t label_of(uint32_t document, uint32_t k)
{
    return document == WITHOUT || k % 3 == 1 ? PP_LABEL_IGNORE
                                             : id_of(document, k);
}

static uint32_t vocabulary(void)
{
    int32_t most = 0;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < lengths[i]; k++)
            most = id_of(i, k) > most ? id_of(i, k) : most;
    return (uint32_t)most + 1;
}

/* Makes the documents. Half of them have labels of their own, and the others
 * those of the language model, where the same tokens are scored. */
static int fill(struct pp_documents *d, struct pp_err *err)
{
    for (uint32_t i = 0; i < N; i++) {
        int32_t labels[16], given[16], generator[16];
        int32_t *ids = pp_documents_reserve(d, lengths[i], err);
        for (uint32_t k = 0; ids && k < lengths[i]; k++) {
            ids[k] = (int32_t)(100 + k);
            labels[k] = k % 3 == 1 ? PP_LABEL_IGNORE : ids[k];
            generator[k] = id_of(i, k);
            given[k] = label_of(i, k);
        }
        if (!ids || pp_documents_add(d, lengths[i], labels, err) ||
            (i != WITHOUT && pp_documents_set_generator(
                                 d, generator, i % 2 ? given : NULL, err)) ||
            pp_documents_check_last(d, PP_DATA_DOCUMENTS, err))
            return -1;
    }
    return 0;
}

static int make(const char *dir, const struct pp_documents *d,
                const struct pp_rank_range *ranks, struct pp_err *err)
{
    struct pp_piece pieces[N];
    const size_t first[] = {0, 4, 5};
    const uint32_t items[] = {0, 1, 2, 3, 4};
    for (uint32_t i = 0; i < N; i++)
        pieces[i] = (struct pp_piece){.at = d->first[i],
                                      .source = i,
                                      .length = lengths[i],
                                      .padded = (lengths[i] + 7) / 8 * 8};
    const struct pp_packed_content c = {.ids = d->ids,
                                        .labels = d->labels,
                                        .pieces = pieces,
                                        .n_bins = 2,
                                        .first = first,
                                        .items = items,
                                        .n_inputs = N,
                                        .capacity = 64,
                                        .align = 8,
                                        .docs = d,
                                        .ranks = ranks,
                                        .cp = ranks ? CP : 0,
                                        .counts.tokens = d->first[N]};
    return pp_packed_write(dir, &c, err);
}

/* Checks the generator's tokens of bin b of a set whose sources are documents
 * modulo N. Each sequence has `extra` tokens more. */
static void check_bin(const struct pp_packed *p, size_t b, uint32_t extra)
{
    struct pp_bin bin, plain;
    uint32_t scored = 0;
    size_t wrong = 0;
    pp_packed_bin(p, b, &plain);
    pp_packed_generator_bin(p, b, &bin);
    for (uint32_t i = 0; i < bin.n_sequences; i++) {
        uint32_t document = bin.source[i] % N, start = bin.start[i];
        int32_t at = bin.cu_seqlens_padded[i];
        uint32_t n = (uint32_t)(bin.cu_seqlens[i + 1] - bin.cu_seqlens[i]);
        for (uint32_t k = 0; at < bin.cu_seqlens_padded[i + 1]; k++, at++) {
            bool real = k + extra < n;
            int32_t label =
                real ? label_of(document, start + k) : PP_LABEL_IGNORE;
            wrong += bin.labels[at] != label;
            wrong +=
                bin.input_ids[at] != (real ? id_of(document, start + k) : 0);
            scored += k > 0 && label != PP_LABEL_IGNORE;
        }
    }
    ok(!wrong, "the generator's ids and labels of bin %zu", b);
    is_int(bin.scored, scored, "and how many are scored");
    ok(bin.tokens == plain.tokens && bin.cu_seqlens == plain.cu_seqlens &&
           bin.ranks == plain.ranks && !bin.columns[PP_COLUMN_GENERATOR_IDS],
       "in the same rows");
}

static void test_memory(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed t, u;
    struct pp_bin a, b;
    is_int(pp_packed_take(p, 3, &t, &err), 0, "bins are taken");
    is_int(t.generator_vocab, p->generator_vocab, "the same vocabulary");
    for (size_t i = 0; i < 3; i++)
        check_bin(&t, i, 0);
    is_int(pp_packed_unpack(&t, &u, &err), 0, "and unpacked");
    for (size_t i = 0; i < u.n_bins; i++)
        check_bin(&u, i, 0);
    pp_packed_finish(&u);
    is_int(pp_packed_extend(&t, 2, 4, &u, &err), 0, "and extended");
    for (size_t i = 0; i < u.n_bins; i++)
        check_bin(&u, i, 2);
    pp_packed_finish(&u);
    pp_packed_finish(&t);
    const struct pp_synthetic_data like = {
        .tokens = 64, .max_sequences = 9, .vocab = 7, .align = 8};
    is_int(pp_packed_synthetic(p, 2, &like, &t, &err), 0, "bins are imitated");
    pp_packed_generator_bin(p, 0, &a);
    pp_packed_generator_bin(&t, 0, &b);
    is_int(b.scored, a.scored, "with as many scored labels");
    ok(t.generator_vocab > 7 && t.generator_vocab <= p->generator_vocab,
       "and ids of the generator's vocabulary");
    ok(memcmp(a.input_ids, b.input_ids, a.tokens * sizeof *a.input_ids) != 0,
       "others than they were");
    pp_packed_finish(&t);
}

/* Views a bin on all ranks, or all slices, and notes what each row reads and
 * predicts, by its position in the bin. */
struct seen {
    int ids[MOST], targets[MOST];
    size_t wrong;
};

static void look_at(const struct pp_packed *p, const struct pp_bin *bin,
                    const struct pp_batch_part *part, struct seen *s)
{
    struct pp_batch batch;
    struct pp_host_microbatch host;
    struct pp_err err = {0};
    if (!ok(!pp_batch_init(&batch, NULL, MOST, VOCAB, false, &err) &&
                !pp_batch_view(&batch, p, part, &host, &err),
            "a view of bin %zu %s", part->bin, err.text))
        return;
    for (size_t i = 0; i < host.of.n_sequences; i++) {
        int32_t of = host.of.sequence[i], row = host.of.cu_seqlens_padded[i];
        int32_t n = host.of.cu_seqlens[i + 1] - host.of.cu_seqlens[i];
        for (int32_t t = row; t < row + n; t++) {
            int32_t at = bin->cu_seqlens_padded[of] + host.of.positions[t];
            int32_t id = id_of(bin->source[of], (uint32_t)host.of.positions[t]);
            s->ids[at]++;
            s->wrong += host.of.input_ids[t] !=
                        pp_word_here(part->first_word, part->n_words, id);
        }
    }
    for (size_t i = 0, of = 0; i < host.of.scored.n; i++) {
        int32_t t = host.of.positions[host.of.scored.rows[i]] + 1;
        size_t at = pp_batch_predicts(bin, &host, i, &of);
        int32_t id = id_of(bin->source[host.of.sequence[of]], (uint32_t)t);
        s->targets[at]++;
        s->wrong += host.of.scored.targets[i] !=
                    pp_word_here(part->first_word, part->n_words, id);
    }
    pp_batch_finish(&batch);
}

/* Checks that every token is read once, and predicted once if it has a label
 * and is not the first. */
static void check_seen(const struct pp_bin *bin, const struct seen *s,
                       const char *what)
{
    size_t wrong = s->wrong;
    for (uint32_t i = 0; i < bin->n_sequences; i++) {
        int32_t first = bin->cu_seqlens_padded[i];
        int32_t n = bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
        for (int32_t k = 0; first + k < bin->cu_seqlens_padded[i + 1]; k++) {
            bool scored =
                k > 0 && k < n &&
                label_of(bin->source[i], (uint32_t)k) != PP_LABEL_IGNORE;
            wrong += s->ids[first + k] != (k < n);
            wrong += s->targets[first + k] != scored;
        }
    }
    is_int((long long)wrong, 0, what);
}

static void test_views(const struct pp_packed *p)
{
    const struct {
        int ranks, slices;
        int32_t first_word, n_words;
        const char *what;
    } cases[] = {{1, 1, 0, 0, "the whole bin"},
                 {1, 3, 0, 0, "slices"},
                 {1, 1, 20, 10, "a part of the vocabulary"},
                 {p->cp ? CP : 2, 1, 0, 0, "context-parallel ranks"}};
    for (size_t b = 0; b < p->n_bins; b++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct seen s = {0};
            struct pp_bin bin;
            pp_packed_bin(p, b, &bin);
            for (int k = 0; k < cases[i].ranks * cases[i].slices; k++) {
                const struct pp_batch_part part = {
                    .bin = b,
                    .generator = true,
                    .slices = {cases[i].slices},
                    .slice = cases[i].slices > 1 ? k : 0,
                    .n_ranks = cases[i].ranks,
                    .rank = cases[i].ranks > 1 ? k : 0,
                    .first_word = cases[i].first_word,
                    .n_words = cases[i].n_words};
                look_at(p, &bin, &part, &s);
            }
            check_seen(&bin, &s, cases[i].what);
        }
}

/* An id that the generator's model does not have. */
static void test_vocabulary(const struct pp_packed *p)
{
    const struct pp_batch_part part = {.generator = true, .slices = {1}};
    struct pp_batch batch;
    struct pp_host_microbatch host;
    struct pp_err err = {0};
    is_int(pp_batch_init(&batch, NULL, MOST, 20, false, &err), 0, "a batch");
    is_int(pp_batch_view(&batch, p, &part, &host, &err), -1, "a small model");
    is_str(err.text,
           "packed data: bin 0: id '21' is not in the vocabulary of 20",
           "is refused");
    pp_batch_finish(&batch);
}

static void test_lies(const char *dir, const char *path)
{
    size_t n;
    struct pp_err err;
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_packed_array *c = entry_in(data, "generator_labels");
    uint32_t *scored = section_in(data, PP_SECTION_GENERATOR);
    LIE(h->generator_vocab = 0, PP_EXIT_INPUT, "but its sections need");
    LIE(h->generator_vocab--, PP_EXIT_NO, "the generator's vocabulary");
    LIE(h->kind = PP_DATA_PAIRS, PP_EXIT_INPUT, "can have a generator");
    LIE(h->cp = 2 - h->cp / 2, PP_EXIT_INPUT, "impossible");
    LIE(h->images.n = 1, PP_EXIT_INPUT, "images are impossible");
    LIE(h->audio.width = 1, PP_EXIT_INPUT, "index:");
    LIE(scored[0]--, PP_EXIT_NO, "generator's scored labels must not be");
    LIE(scored[1] = 16, PP_EXIT_INPUT, "bin 1: a generator cannot have '16'");
    LIE(c->type = PP_ELEMENT_F32, PP_EXIT_INPUT, "times 1 i32, for each token");
    LIE(c->name[0] = 'x', PP_EXIT_INPUT, "has no 'generator_labels'");
    LIE(strcpy(c->name, "advantages"), PP_EXIT_INPUT,
        "cannot have 'advantages'");
    write_file(path, data, n);
    free(data);
}

/* A generator is trained by supervised fine-tuning alone. */
static void test_refusals(void)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    const int32_t generator[] = {1, 2};
    const float advantages[] = {1, 2};
    int32_t *ids = pp_documents_reserve(&d, 2, &err);
    ids[0] = ids[1] = 5;
    if (pp_documents_add(&d, 2, NULL, &err) ||
        pp_documents_set_column(&d, PP_COLUMN_ADVANTAGES, advantages, &err))
        ok(false, "%s", err.text);
    is_int(pp_documents_set_generator(&d, generator, NULL, &err), -1,
           "beside advantages");
    is_str(err.text,
           "'generator_ids' cannot be beside 'advantages': a generator is "
           "trained by supervised fine-tuning alone",
           "says which");
    pp_documents_finish(&d);
    err = (struct pp_err){0};
    ids = pp_documents_reserve(&d, 2, &err);
    ids[0] = ids[1] = 5;
    if (pp_documents_add(&d, 2, NULL, &err) ||
        pp_documents_set_generator(&d, generator, NULL, &err))
        ok(false, "%s", err.text);
    ok(!pp_documents_make_column(&d, PP_COLUMN_LOGPROBS, &err) &&
           strstr(err.text, "'logprobs'"),
       "nor before them: %s", err.text);
    err = (struct pp_err){0};
    is_int(pp_documents_check_last(&d, PP_DATA_ROLLOUTS, &err), -1,
           "nor in rollouts");
    pp_documents_finish(&d);
}

/* Writes the documents to a directory and looks at it in every way. */
static void test_directory(const char *base, const char *name,
                           const struct pp_rank_range *ranks)
{
    char dir[160], path[200], column[200];
    struct pp_documents d = {0};
    struct pp_packed p = {0};
    struct pp_err err = {0};
    snprintf(dir, sizeof dir, "%s/%s", base, name);
    snprintf(path, sizeof path, "%s/index", dir);
    snprintf(column, sizeof column, "%s/generator_labels", dir);
    if (ok(!fill(&d, &err) && !make(dir, &d, ranks, &err) &&
               !pp_packed_open(dir, &p, &err),
           "packed data %s", err.text)) {
        ok(pp_packed_has_generator(&p), "with a generator");
        is_int(p.generator_vocab, vocabulary(), "and its vocabulary");
        ok(!ranks == !p.cp, "and ranks, if they have some");
        for (size_t b = 0; b < p.n_bins; b++)
            check_bin(&p, b, 0);
        ok(!pp_packed_check(&p, &err), "consistent %s", err.text);
        test_memory(&p);
        test_views(&p);
        test_vocabulary(&p);
    }
    pp_packed_finish(&p);
    pp_documents_finish(&d);
    test_lies(dir, path);
    if (!ranks)
        return;
    test_damage(dir, path);
    test_column_damage(dir, column, "generator_labels");
    test_words(dir);
}

int main(void)
{
    char base[SCRATCH_TEXT];
    scratch_make(base);
    test_directory(base, "shared", NULL);
    test_directory(base, "ranks", ranges);
    test_refusals();
    scratch_remove(base);
    return done();
}
