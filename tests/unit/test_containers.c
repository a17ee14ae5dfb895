/* SPDX-License-Identifier: MIT */
/* test_containers - checked allocation, vectors, heaps, the hash and the JSON
 * writer of lib/base. */
#include "tap.h"

#include <stdint.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/json_writer.h"
#include "base/rng.h"
#include "base/vec.h"

static void test_alloc(void)
{
    struct pp_err err = {0};
    int *p = pp_calloc(3, sizeof *p);
    ok(!p[0] && !p[2], "elements are zeroed");
    p[2] = 7;
    int *more = pp_realloc(p, 1000, sizeof *p);
    ok(more[2] == 7, "a larger array keeps its elements");
    ok(!pp_try_realloc(more, SIZE_MAX / 2, sizeof *p, &err),
       "an overflow fails");
    is_str(err.text, "out of memory",
           "the message is that of a failed allocation");
    is_int(err.code, PP_EXIT_SYSTEM, "the code is that of a system error");
    is_int(more[2], 7, "the old array stays valid");
    free(more);
    err = (struct pp_err){0};
    ok(!pp_try_calloc(SIZE_MAX / 2, 4, &err) && err.code,
       "an overflow fails in pp_try_calloc");
    void *empty = pp_calloc(0, 8);
    ok(empty, "an array of 0 elements is no error");
    free(empty);
}

static void test_vec(void)
{
    struct pair {
        int a, b;
    };
    struct {
        struct pair *items;
        size_t n, capacity;
    } v = {0};
    struct pp_err err = {0};
    for (int i = 0; i < 1000; i++)
        PP_VEC_PUSH(&v, ((struct pair){i, -i}));
    is_int((long long)v.n, 1000, "every item is counted");
    ok(v.items[0].b == 0 && v.items[999].b == -999, "items keep their values");
    PP_VEC_RESERVE(&v, 5000);
    ok(v.capacity >= 5000 && v.n == 1000, "reserving adds no items");
    size_t capacity = v.capacity;
    ok(pp_try_array_reserve(&v.items, &v.capacity, SIZE_MAX / 2,
                            sizeof *v.items, &err) &&
           err.code == PP_EXIT_SYSTEM,
       "reserving too much is an error");
    ok(v.capacity == capacity && v.items[999].a == 999,
       "a failed reserve changes nothing");
    free(v.items);
}

static bool key_is_less(const void *ctx, uint32_t a, uint32_t b)
{
    const int *key = ctx;
    return key[a] != key[b] ? key[a] < key[b] : a < b;
}

enum { N_KEYS = 500 };

/* Returns the number of indices whose position is wrong. */
static int count_lost(const struct pp_heap *h)
{
    int lost = 0;
    for (size_t i = 0; i < h->n; i++)
        lost += h->position[h->items[i]] != i;
    return lost;
}

/* Empties the heap. Returns the number of neighbours in the wrong order. */
static int count_unordered(struct pp_heap *h)
{
    int unordered = 0;
    uint32_t last = pp_heap_pop(h);
    while (h->n) {
        uint32_t next = pp_heap_pop(h);
        unordered += !key_is_less(h->ctx, last, next);
        last = next;
    }
    return unordered;
}

static void test_heap(void)
{
    static int key[N_KEYS];
    static uint32_t items[N_KEYS], position[N_KEYS];
    struct pp_heap h = {.items = items, .before = key_is_less, .ctx = key};
    uint64_t dice = pp_rng_key(1, "heap"), at = 0;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        key[i] = (int)(pp_rng_bits(dice, at++) % 100);
        pp_heap_push(&h, i);
    }
    is_int(count_unordered(&h), 0, "indices leave by key, then by index");
    h.position = position;
    for (uint32_t i = N_KEYS; i-- > 0;)
        pp_heap_push(&h, i);
    is_int(count_lost(&h), 0, "pushes keep positions up to date");
    int lost = 0;
    for (int k = 0; k < 2000; k++) {
        uint32_t i = (uint32_t)(pp_rng_bits(dice, at++) % N_KEYS);
        key[i] = (int)(pp_rng_bits(dice, at++) % 100);
        pp_heap_update(&h, position[i]);
        lost += count_lost(&h);
    }
    is_int(lost, 0, "updates keep positions up to date");
    is_int(count_unordered(&h), 0, "updates restore the order");
    pp_heap_push(&h, 3);
    ok(pp_heap_pop(&h) == 3 && h.n == 0, "a heap of one index returns it");
}

static void test_hash(void)
{
    uint64_t h = pp_fnv(PP_FNV_START, "foo", 3);
    ok(pp_fnv(PP_FNV_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c),
       "the published value of 'a'");
    ok(pp_fnv(h, "bar", 3) == UINT64_C(0x85944171f73967e8),
       "the published value of 'foobar', in two parts");
}

/* A document that a test writes into memory. */
struct document {
    struct pp_json_writer w;
    char *text;
    size_t n;
};

static struct pp_json_writer *start_document(struct document *d, int indent,
                                             bool compact)
{
    *d = (struct document){.w = {.indent = indent, .compact = compact}};
    d->w.f = open_memstream(&d->text, &d->n);
    return &d->w;
}

static void compare_document(struct document *d, const char *want,
                             const char *what)
{
    fclose(d->w.f);
    is_str(d->text, want, what);
    free(d->text);
}

static void test_json_values(void)
{
    struct document d;
    struct pp_json_writer *w = start_document(&d, 2, false);
    pp_json_object(w, NULL, PP_JSON_INLINE);
    pp_json_string(w, "a \"key\"", "back\\slash\n");
    pp_json_bool(w, "yes", true);
    pp_json_bool(w, "no", false);
    pp_json_int(w, "least", INT64_MIN);
    pp_json_uint(w, "most", UINT64_MAX);
    pp_json_real(w, "tenth", 0.1);
    pp_json_real(w, "no number", NAN);
    pp_json_real(w, "no end", -INFINITY);
    pp_json_format(w, "ts", "%d.%03d", 1, 2);
    pp_json_end(w);
    compare_document(
        &d,
        "{\"a \\\"key\\\"\": \"back\\\\slash\\u000a\", \"yes\": true, "
        "\"no\": false, \"least\": -9223372036854775808, "
        "\"most\": 18446744073709551615, \"tenth\": 0.1, "
        "\"no number\": null, \"no end\": null, \"ts\": 1.002}",
        "values of every kind on one line");
}

static void test_json_lines(void)
{
    struct document d;
    struct pp_json_writer *w = start_document(&d, 2, false);
    pp_json_object(w, NULL, PP_JSON_BROKEN);
    pp_json_int(w, "ranks", 2);
    pp_json_array(w, "idle", PP_JSON_HUGGED);
    for (int i = 0; i < 2; i++) {
        pp_json_object(w, NULL, PP_JSON_INLINE);
        pp_json_int(w, "busy", i);
        pp_json_end(w);
    }
    pp_json_end(w);
    pp_json_array(w, "peak", PP_JSON_INLINE);
    pp_json_int(w, NULL, 4);
    pp_json_int(w, NULL, 3);
    pp_json_end(w);
    pp_json_object(w, "map", PP_JSON_BROKEN);
    pp_json_string(w, "k", "v");
    pp_json_end(w);
    pp_json_array(w, "none", PP_JSON_BROKEN);
    pp_json_end(w);
    pp_json_end(w);
    compare_document(&d,
                     "{\n  \"ranks\": 2,\n  \"idle\": [\n    {\"busy\": 0},\n"
                     "    {\"busy\": 1}],\n  \"peak\": [4, 3],\n  \"map\": {\n"
                     "    \"k\": \"v\"\n  },\n  \"none\": []\n}",
                     "brackets that are broken, hugged, inline and empty");
}

static void test_json_breaks(void)
{
    struct document d;
    struct pp_json_writer *w = start_document(&d, 1, false);
    pp_json_object(w, NULL, PP_JSON_INLINE);
    pp_json_bool(w, "same", true);
    pp_json_string(w, "hint", "");
    pp_json_break(w);
    pp_json_string(w, "later", "fp64");
    pp_json_break(w);
    pp_json_array(w, "scalars", PP_JSON_HUGGED);
    pp_json_object(w, NULL, PP_JSON_INLINE);
    pp_json_real(w, "found", 1.5);
    pp_json_end(w);
    pp_json_end(w);
    pp_json_end(w);
    compare_document(&d,
                     "{\"same\": true, \"hint\": \"\",\n \"later\": \"fp64\",\n"
                     " \"scalars\": [\n  {\"found\": 1.5}]}",
                     "a line may break before any member");
}

static void test_json_compact(void)
{
    struct document d;
    struct pp_json_writer *w = start_document(&d, 0, true);
    pp_json_object(w, NULL, PP_JSON_INLINE);
    pp_json_string(w, "unit", "ms");
    pp_json_break(w);
    pp_json_array(w, "events", PP_JSON_BROKEN);
    for (int i = 0; i < 2; i++) {
        pp_json_object(w, NULL, PP_JSON_INLINE);
        pp_json_int(w, "pid", i);
        pp_json_array(w, "shape", PP_JSON_INLINE);
        pp_json_int(w, NULL, 2);
        pp_json_int(w, NULL, 3);
        pp_json_end(w);
        pp_json_end(w);
    }
    pp_json_end(w);
    pp_json_end(w);
    compare_document(
        &d,
        "{\"unit\":\"ms\",\n\"events\":[\n{\"pid\":0,\"shape\":[2,3]},\n"
        "{\"pid\":1,\"shape\":[2,3]}\n]}",
        "compact text has no spaces");
}

int main(void)
{
    test_alloc();
    test_vec();
    test_heap();
    test_hash();
    test_json_values();
    test_json_lines();
    test_json_breaks();
    test_json_compact();
    return done();
}
