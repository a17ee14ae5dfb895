/* SPDX-License-Identifier: MIT */
/* test_manifest_alloc - lets the nth allocation fail, for every n, while a
 * manifest is read, changed and written. The status is 3, nothing leaks, and
 * the manifest is as it was.
 *
 * The linker's --wrap catches libpp's own calls, and a hook catches
 * jansson's. */
#include <jansson.h>

#include "manifest/manifest.h"
#include "tap.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static struct {
    long until; /* allocations that still succeed; negative: all do */
    long live;
} heap = {.until = -1};

static bool refuse(void)
{
    if (heap.until == 0)
        return true;
    if (heap.until > 0)
        heap.until--;
    return false;
}

static void *count(void *p)
{
    heap.live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (refuse())
        return NULL;
    void *q = __real_realloc(p, n);
    heap.live += !p && q;
    return q;
}

void __wrap_free(void *p)
{
    heap.live -= p != NULL;
    __real_free(p);
}

static const char text[] =
    "{\"format\": \"pp-manifest\", \"version\": 1,"
    "\"model\": {\"source\": \"m\", \"architecture\": \"A\", \"dtype\": "
    "\"fp32\", \"units\": [{\"fqn\": \"a\", \"params\": 1, \"fwd_flops\": "
    "[1, 2], \"act_bytes\": [1, 2, 3], \"out_bytes\": 1}, {\"fqn\": \"b\","
    "\"params\": 1, \"fwd_flops\": [1, 2], \"act_bytes\": [1, 2, 3],"
    "\"out_bytes\": 1, \"recompute\": {\"full\": {\"again_flops\": [1, 2],"
    "\"act_bytes\": [1, 2, 3], \"passing_bytes\": 1}}}]}, \"mesh\": {\"pp\": "
    "2}, \"stages\": [{\"stage\": 0,"
    "\"rank\": 0, \"units\": [\"a\"]}, {\"stage\": 1, \"rank\": 1, \"units\":"
    "[\"b\"], \"recompute\": \"full\"}], \"profile\": {\"units\": [{\"fqn\":"
    " \"a\", \"fwd\": [1, 2],"
    "\"input\": [1, 2], \"weight\": [1, 2]}, {\"fqn\": \"b\", \"fwd\": [1, 2],"
    "\"input\": [1, 2], \"weight\": [1, 2]}]}, \"microbatch\": {\"tokens\": 1, "
    "\"seq_len\": 1}, \"schedule\": {\"kind\": \"k\", "
    "\"n_microbatches\": 1,"
    "\"actions\": [\"0F0 0SEND_F0\", \"1RECV_F0 1F0\"]}, \"x-a\": {}}";

static int parse(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_parse(text, sizeof text - 1, "t", m, err);
}

static int read_stream(struct pp_manifest *m, struct pp_err *err)
{
    long until = heap.until;
    heap.until = -1;
    FILE *f = fmemopen((void *)(size_t)text, sizeof text - 1, "r");
    heap.until = until;
    int rc = pp_manifest_read(f, "t", m, err);
    fclose(f);
    return rc;
}

static int set_model(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_set_model(m, &m->model, err);
}

static int set_profile(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_set_profile(m, &m->profile, err);
}

static int set_microbatch(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_set_microbatch(m, &m->microbatch, err);
}

static int set_stages(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_set_stages(m, &m->mesh, &m->graph, m->stages, err);
}

static int set_data(struct pp_manifest *m, struct pp_err *err)
{
    struct pp_manifest_data data = {"path", 1, 2, 3, 4, 1, 4};
    return pp_manifest_set_data(m, &data, err);
}

static int set_schedule(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_set_schedule(m, &m->schedule, err);
}

static int add_history(struct pp_manifest *m, struct pp_err *err)
{
    return pp_manifest_add_history(m, "tool", "1", "-x", err);
}

static int write_null(struct pp_manifest *m, struct pp_err *err)
{
    static FILE *null;
    if (!null && !(null = fopen("/dev/null", "w")))
        abort();
    return pp_manifest_write(m, null, err);
}

/* A step changes a manifest or makes one. */
struct step {
    const char *name;
    int (*run)(struct pp_manifest *m, struct pp_err *err);
    bool fresh;
};

/* Runs the step with n allocations granted. Returns false if n is enough. */
static bool fails_at(const struct step *s, long n, bool *good)
{
    struct pp_manifest m = {0};
    struct pp_err err = {0};
    heap.live = 0;
    if (!s->fresh && parse(&m, &err))
        abort();
    heap.until = n;
    int rc = s->run(&m, &err);
    heap.until = -1;
    *good = rc ? err.code == PP_EXIT_SYSTEM : err.code == PP_EXIT_OK;
    if (rc && !s->fresh)
        *good &= m.has_stages && m.has_schedule && m.schedule.rows[1].n == 2;
    pp_manifest_finish(&m);
    if (rc && !*good)
        printf("# after %ld allocations: %d '%s'\n", n, err.code, err.text);
    if (heap.live)
        printf("# after %ld allocations %ld are lost\n", n, heap.live);
    *good &= heap.live == 0;
    return rc != 0;
}

static void test_step(const struct step *s)
{
    long n = 0;
    bool good, all = true;
    while (fails_at(s, n, &good)) {
        all &= good;
        n++;
    }
    ok(all && good, "%s: each of %ld allocations may fail", s->name, n);
}

int main(void)
{
    static const struct step steps[] = {
        {"parse", parse, true},
        {"read", read_stream, true},
        {"init", pp_manifest_init, true},
        {"set model", set_model, false},
        {"set profile", set_profile, false},
        {"set microbatch", set_microbatch, false},
        {"set stages", set_stages, false},
        {"set data", set_data, false},
        {"set schedule", set_schedule, false},
        {"add history", add_history, false},
        {"write", write_null, false},
    };
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        test_step(&steps[i]);
    return done();
}
