/* SPDX-License-Identifier: MIT */
/* test_indexed - reads Megatron's indexed datasets: all element types,
 * documents of several sequences, every field damaged, every cut, and random
 * damage. */
#include "base/rng.h"
#include "data/readers.h"
#include "tap.h"

/* Two documents: sequences of 3 and of 2 tokens of 32 bits. */
static const unsigned char two[] =
    "MMIDIDX\0\0"
    "\1\0\0\0\0\0\0\0\4"
    "\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
    "\3\0\0\0\2\0\0\0"
    "\0\0\0\0\0\0\0\0\14\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0";
static const unsigned char tokens[20] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 1,
                                         0, 0, 4, 0, 0, 0, 5, 0, 0, 0};

struct bytes {
    unsigned char *p;
    size_t n;
};

/* Copies to memory of the exact size: a sanitizer finds a read past its end. */
static struct bytes copy(const void *p, size_t n)
{
    struct bytes b = {malloc(n ? n : 1), n};
    if (n)
        memcpy(b.p, p, n);
    return b;
}

static int parse(struct bytes idx, struct bytes bin, struct pp_documents *d,
                 struct pp_err *err)
{
    static const struct pp_indexed_options o = {0};
    return pp_indexed_parse("x.idx", idx.p, idx.n, "x.bin", bin.p, bin.n, &o, d,
                            err);
}

/* Returns "1 2 259 | 4 5". */
static void print(const struct pp_documents *d, char *buf, size_t size)
{
    size_t at = 0;
    *buf = '\0';
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            at += (size_t)snprintf(buf + at, size - at, " |");
        for (size_t k = d->first[i]; k < d->first[i + 1]; k++)
            at += (size_t)snprintf(buf + at, size - at, "%s%d", at ? " " : "",
                                   d->ids[k]);
    }
}

static void is_read(struct bytes idx, struct bytes bin, const char *want,
                    const char *what)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    char got[256];
    if (parse(idx, bin, &d, &err) != 0)
        ok(false, "%s: %s", what, err.text);
    else {
        print(&d, got, sizeof got);
        is_str(got, want, what);
    }
    pp_documents_finish(&d);
    free(idx.p);
    free(bin.p);
}

static struct bytes with(size_t at, unsigned char value)
{
    struct bytes b = copy(two, sizeof two);
    b.p[at] = value;
    return b;
}

static void is_refused(struct bytes idx, struct bytes bin, const char *want)
{
    struct pp_documents d = {0};
    struct pp_err err = {0};
    ok(parse(idx, bin, &d, &err) != 0 && err.code == PP_EXIT_INPUT, "refused");
    is_str(err.text, want, "with a reason");
    pp_documents_finish(&d);
    free(idx.p);
    free(bin.p);
}

static struct bytes all_tokens(void)
{
    return copy(tokens, sizeof tokens);
}

static void test_read(void)
{
    is_int((long long)sizeof two, 82, "the example index has 82 bytes");
    is_read(copy(two, sizeof two), all_tokens(), "1 2 259 | 4 5", "int32");
    struct bytes b = copy(two, sizeof two);
    b.p[26] = 2;
    b.p[66] = 2;
    b.n -= 8;
    is_read(b, all_tokens(), "1 2 259 4 5", "one document of two sequences");
    b = copy(two, sizeof two);
    b.p[50] = 4;
    b.p[38] = 1;
    is_read(b, all_tokens(), "1 2 259 | 2", "sequences that share tokens");
    b = copy(two, sizeof two);
    b.p = realloc(b.p, b.n + 2);
    b.p[b.n] = b.p[b.n + 1] = 0;
    b.n += 2;
    is_read(b, all_tokens(), "1 2 259 | 4 5", "with modes");
}

/* Reads the same five ids in every element type. */
static void test_types(void)
{
    static const unsigned char sizes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    for (unsigned char t = 1; t <= 8; t++) {
        unsigned size = sizes[t];
        struct bytes idx = with(17, t),
                     bin = {calloc(1, 5 * size + 1), 5 * (size_t)size};
        idx.p[50] = (unsigned char)(3 * size);
        for (unsigned i = 0; i < 5 && size; i++)
            bin.p[i * size] = (unsigned char)(i + 1);
        char what[32];
        snprintf(what, sizeof what, "element type %u", t);
        if (size)
            is_read(idx, bin, "1 2 3 | 4 5", what);
        else
            is_refused(idx, bin,
                       "x.idx: its elements are floating-point numbers; tokens "
                       "must be integers");
    }
    static const struct {
        unsigned char type, last;
        bool is_id;
    } cases[] = {{1, 0xff, true},  {2, 0xff, false}, {3, 0xff, false},
                 {4, 0xff, false}, {5, 0xff, false}, {8, 0xff, true},
                 {5, 1, false},    {4, 0x7f, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned size = sizes[cases[i].type];
        struct bytes idx = with(17, cases[i].type);
        struct bytes bin = {calloc(5, size), 5 * (size_t)size};
        struct pp_documents d = {0};
        struct pp_err err = {0};
        idx.p[50] = (unsigned char)(3 * size);
        bin.p[bin.n - 1] = cases[i].last;
        int rc = parse(idx, bin, &d, &err);
        ok((rc == 0) == cases[i].is_id, "type %u ending in %#x: %s",
           cases[i].type, cases[i].last, rc ? err.text : "an id");
        pp_documents_finish(&d);
        free(idx.p);
        free(bin.p);
    }
}

static void test_refused(void)
{
    is_refused(with(0, 'm'), all_tokens(),
               "x.idx: not the index of an indexed dataset");
    is_refused(with(9, 2), all_tokens(),
               "x.idx: unknown version '2'; only 1 is known");
    is_refused(with(17, 9), all_tokens(), "x.idx: unknown element type '9'");
    is_refused(with(25, 0x80), all_tokens(),
               "x.idx: cut short: '82' bytes are too few for "
               "9223372036854775810 "
               "sequences and 3 document entries");
    is_refused(with(26, 2), all_tokens(),
               "x.idx: has '8' bytes after the document entries; must be 2 "
               "modes or nothing");
    is_refused(with(37, 0x80), all_tokens(),
               "x.idx: sequence 0 has a negative length");
    struct bytes b = with(42, 8);
    b.p[50] = 4;
    is_refused(b, all_tokens(),
               "x.idx: sequence 1 begins before the previous one");
    is_refused(with(38, 3), all_tokens(),
               "x.bin: cut short: '20' bytes, but sequence 1 of x.idx ends at "
               "24");
    is_refused(copy(two, sizeof two), copy(tokens, 19),
               "x.bin: cut short: '19' bytes, but sequence 1 of x.idx ends at "
               "20");
    is_refused(with(58, 1), all_tokens(),
               "x.idx: its documents do not cover sequences 0 to 2");
    is_refused(with(74, 1), all_tokens(),
               "x.idx: its documents do not cover sequences 0 to 2");
    is_refused(with(66, 3), all_tokens(),
               "x.idx: document entry 2, '2', is less than the previous one");
    is_refused(with(66, 0), all_tokens(), "x.idx: document 0 is empty");
    b = copy(two, sizeof two);
    b.p = realloc(b.p, b.n + 2);
    b.p[b.n] = 0;
    b.p[b.n + 1] = 1;
    b.n += 2;
    is_refused(b, all_tokens(),
               "x.idx: sequence 1 has mode '1', so it may not be text");
}

/* Reads two sequences of modes 0 and -1. with_first: take mode 0; joined: they
 * are one document. */
static void is_chosen(bool with_first, bool with_last, bool joined,
                      const char *want, size_t n_omissions, const char *what)
{
    bool modes[256] = {[0] = with_first, [255] = with_last};
    const struct pp_indexed_options o = {.allow_empty = true, .modes = modes};
    struct pp_documents d = {0};
    struct pp_err err = {0};
    struct bytes b = copy(two, sizeof two), bin = all_tokens();
    if (joined) {
        b.p[26] = 2;
        b.p[66] = 2;
        b.n -= 8;
    }
    b.p = realloc(b.p, b.n + 2);
    b.p[b.n++] = 0;
    b.p[b.n++] = 255;
    char got[256] = "";
    if (pp_indexed_parse("x.idx", b.p, b.n, "x.bin", bin.p, bin.n, &o, &d,
                         &err) == 0)
        print(&d, got, sizeof got);
    is_str(got, want, what);
    size_t sum = 0;
    for (size_t k = 0; k < d.n_omissions; k++)
        sum += d.omissions[k].n_tokens;
    is_int((long long)sum, (long long)n_omissions, "tokens left out");
    pp_documents_finish(&d);
    free(b.p);
    free(bin.p);
}

static void test_modes(void)
{
    is_chosen(true, true, false, "1 2 259 | 4 5", 0, "both modes");
    is_chosen(true, false, true, "1 2 259", 2,
              "the first sequence of a document is taken");
    is_chosen(false, true, true, "4 5", 3,
              "the last sequence of a document is taken");
    is_chosen(true, false, false, "1 2 259 |", 2,
              "no sequence of a document is taken");
}

/* Every cut and random damage must be refused, or must give documents inside
 * the input. */
static void test_damage(void)
{
    uint64_t key = pp_rng_key(3, "damage");
    size_t wrong = 0, read = 0;
    for (size_t r = 0; r < 20000; r++) {
        struct pp_documents d = {0};
        struct pp_err err = {0};
        struct bytes idx = copy(two, r < sizeof two ? r : sizeof two);
        struct bytes bin =
            copy(tokens,
                 r < sizeof two ? sizeof tokens : pp_rng_bits(key, 8 * r) % 21);
        size_t n_changes = r < sizeof two ? 0 : pp_rng_bits(key, 8 * r + 1) % 4;
        for (size_t i = 0; i < n_changes; i++) {
            uint64_t bits = pp_rng_bits(key, 8 * r + 2 + i);
            idx.p[9 + bits % 73] = (unsigned char)(bits >> 32 & bits >> 48);
        }
        int rc = parse(idx, bin, &d, &err);
        if (rc != 0)
            wrong += err.code != PP_EXIT_INPUT || !*err.text;
        else {
            read++;
            for (size_t i = 0; i < (d.n ? d.first[d.n] : 0); i++)
                wrong += d.ids[i] < 0;
        }
        pp_documents_finish(&d);
        free(idx.p);
        free(bin.p);
    }
    is_int((long long)wrong, 0, "damage is refused or harmless");
    ok(read > 100 && read < 10000, "some of it is harmless (%zu)", read);
}

int main(void)
{
    test_read();
    test_types();
    test_refused();
    test_modes();
    test_damage();
    return done();
}
