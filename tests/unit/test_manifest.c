/* SPDX-License-Identifier: MIT */
/* test_manifest - reads, changes and writes manifests. tests/invalid holds the
 * documents that are refused. */
#include <string.h>

#include "base/num.h"
#include "manifest/sections.h"
#include "cost/stage_costs.h"
#include "tap.h"

/* jq makes the other documents that are refused, and cannot write this byte. */
static void test_invalid_utf8(void)
{
    static const char text[] = "{\"format\": \"\xff\"}";
    struct pp_manifest m;
    struct pp_err err = {0};
    ok(pp_manifest_parse(text, strlen(text), "t", &m, &err) == -1 &&
           err.code == PP_EXIT_INPUT,
       "is refused");
    is_str(err.text,
           "t: line 1, column 12: unable to decode byte 0xff near '\"'",
           "invalid UTF-8");
}

/* A document in the writer's own layout. */
static const char own[] =
    "{\n"
    "  \"format\": \"pp-manifest\",\n"
    "  \"version\": 1,\n"
    "  \"model\": {\n"
    "    \"source\": \"m\",\n"
    "    \"architecture\": \"LlamaForCausalLM\",\n"
    "    \"dtype\": \"fp32\",\n"
    "    \"tied\": true,\n"
    "    \"params\": 110,\n"
    "    \"units\": [\n"
    "      {\"fqn\": \"model.embed_tokens\", \"params\": 10, \"fwd_flops\": "
    "[0, 0], \"act_bytes\": [0, 0, 8], \"out_bytes\": 4},\n"
    "      {\"fqn\": \"model.layers.0\", \"params\": 100, \"fwd_flops\": "
    "[10.5, 2000], \"act_bytes\": [1, 2, 3], \"out_bytes\": 5},\n"
    "      {\"fqn\": \"lm_head\", \"params\": 10, \"fwd_flops\": [20, 0], "
    "\"act_bytes\": [0, 7, 0], \"out_bytes\": 0}\n"
    "    ]\n"
    "  },\n"
    "  \"microbatch\": {\"tokens\": 96, \"seq_len\": 48, \"images\": 2, "
    "\"image_patches\": 7, \"clips\": 3, \"clip_rows\": 8},\n"
    "  \"mesh\": {\"pp\": 2, \"dp\": 1, \"tp\": 1, \"cp\": 1, \"ep\": 1},\n"
    "  \"stages\": [\n"
    "    {\n"
    "      \"stage\": 0,\n"
    "      \"rank\": 0,\n"
    "      \"inputs\": [],\n"
    "      \"units\": [\"model.embed_tokens\"]\n"
    "    },\n"
    "    {\n"
    "      \"stage\": 1,\n"
    "      \"rank\": 1,\n"
    "      \"inputs\": [0],\n"
    "      \"params\": 110,\n"
    "      \"fwd_flops\": [30.5, 2000],\n"
    "      \"act_bytes\": [1, 9, 3],\n"
    "      \"out_bytes\": 0,\n"
    "      \"units\": [\"model.layers.0\", \"lm_head\"]\n"
    "    }\n"
    "  ],\n"
    "  \"data\": {\n"
    "    \"path\": \"packed\",\n"
    "    \"checksum\": \"xxh3:0123456789abcdef\",\n"
    "    \"n_bins\": 3,\n"
    "    \"n_sequences\": 9,\n"
    "    \"capacity\": 128,\n"
    "    \"align\": 4,\n"
    "    \"max_tokens\": 120\n"
    "  },\n"
    "  \"schedule\": {\n"
    "    \"kind\": \"gpipe\",\n"
    "    \"n_microbatches\": 1,\n"
    "    \"channel_depth\": 0,\n"
    "    \"actions\": [\n"
    "      \"0F0 0SEND_F0 0RECV_B0 0B0\",\n"
    "      \"1RECV_F0 1F0 1B0 1SEND_B0\"\n"
    "    ]\n"
    "  },\n"
    "  \"history\": [\n"
    "    {\"tool\": \"ppsplit\", \"version\": \"0.1.0\", \"args\": \"-p 2\"}\n"
    "  ],\n"
    "  \"x-note\": {\n"
    "    \"quote\": \"a \\\"b\\\" \\\\ \\n\\u0001 \xc3\xa9\",\n"
    "    \"odd\": {\"n\": null, \"t\": true},\n"
    "    \"list\": [1, 2.5, -0.0]\n"
    "  }\n"
    "}\n";

static const char abstract[] =
    "{\"stages\": [{\"rank\": 0, \"stage\": 0}, {\"stage\": 1, \"rank\": 1},"
    "{\"stage\": 2, \"rank\": 0, \"inputs\": [0, 1], \"x-s\": [{}]}],"
    "\"x-a\": 1, \"mesh\": {\"x-m\": 7, \"pp\": 2},"
    "\"version\": 1, \"format\": \"pp-manifest\"}";

static bool parse(const char *text, struct pp_manifest *m)
{
    struct pp_err err = {0};
    if (pp_manifest_parse(text, strlen(text), "t", m, &err))
        printf("# %s\n", err.text);
    return err.code == PP_EXIT_OK;
}

/* Returns the document as text. The caller frees it. */
static char *text_of(const struct pp_manifest *m)
{
    static char *text;
    static size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        abort();
    pp_manifest_write(m, f);
    if (fclose(f))
        abort();
    return text;
}

static void is_text(const struct pp_manifest *m, const char *want,
                    const char *what)
{
    char *text = text_of(m);
    is_str(text, want, what);
    free(text);
}

static void test_own(void)
{
    struct pp_manifest m;
    ok(parse(own, &m), "a whole manifest is read");
    is_int((long long)m.model.n_units, 3, "units");
    is_int((long long)m.model.params, 110, "a tied head counts once");
    is_near(m.model.units[1].costs.fwd_flops[0], 10.5, 0, "flops");
    ok(m.has_microbatch && m.microbatch.tokens == 96 &&
           m.microbatch.seq_len == 48,
       "microbatch");
    ok(m.microbatch.items[0].n == 2 && m.microbatch.items[0].rows == 7,
       "its images");
    ok(m.microbatch.items[1].n == 3 && m.microbatch.items[1].rows == 8,
       "its clips");
    is_int(m.mesh.pp, 2, "mesh");
    is_int(m.graph.n_stages, 2, "stages");
    is_int(m.graph.stages[0].n_outputs, 1, "the graph is connected");
    is_int(m.graph.tied[0], 0, "stage of the tied embedding");
    is_int(m.graph.tied[1], 1, "stage of the tied head");
    is_int((long long)m.stages[1].first_unit, 1, "first unit");
    is_int((long long)m.stages[1].n_units, 2, "number of units");
    is_int((long long)m.stages[0].costs.params, 10, "sum of parameters");
    is_near(m.stages[1].costs.act_bytes[1], 9, 0, "sum of saved bytes");
    is_near(m.stages[0].costs.out_bytes, 4, 0, "output of a stage");
    ok(m.data.checksum == 0x0123456789abcdef, "checksum");
    is_int(m.data.capacity, 128, "capacity");
    is_int(m.schedule.channel_depth, 0, "channel depth");
    is_int((long long)m.schedule.rows[1].n, 4, "actions");
    is_str(m.schedule.kind, "gpipe", "kind");
    is_text(&m, own, "writing it gives the same bytes");
    pp_manifest_finish(&m);
}

static void test_abstract(void)
{
    struct pp_manifest m;
    ok(parse(abstract, &m), "a manifest without a model is read");
    ok(!m.has_model && !m.has_microbatch && m.has_stages && !m.has_schedule,
       "what it has");
    is_int(m.graph.stages[1].inputs[0], 0, "a stage follows the one before");
    is_int(m.graph.stages[2].n_inputs, 2, "unless it names its inputs");
    is_int(m.graph.stages[0].n_outputs, 2, "both of its readers are outputs");
    is_int(m.graph.tied[0], -1, "nothing is tied");
    is_int(m.mesh.dp, 1, "sizes of the mesh are 1 when absent");
    is_text(&m,
            "{\n"
            "  \"format\": \"pp-manifest\",\n"
            "  \"version\": 1,\n"
            "  \"mesh\": {\"pp\": 2, \"x-m\": 7},\n"
            "  \"stages\": [\n"
            "    {\"stage\": 0, \"rank\": 0},\n"
            "    {\"stage\": 1, \"rank\": 1},\n"
            "    {\n"
            "      \"stage\": 2,\n"
            "      \"rank\": 0,\n"
            "      \"inputs\": [0, 1],\n"
            "      \"x-s\": [{}]\n"
            "    }\n"
            "  ],\n"
            "  \"x-a\": 1\n"
            "}\n",
            "keys get their order, x- keys stay");
    pp_manifest_finish(&m);
}

/* A chain and its copy, two slices; the copies name no inputs. */
static const char copies[] =
    "{\"format\": \"pp-manifest\", \"version\": 1, \"mesh\": {\"pp\": 2},"
    "\"stages\": [{\"stage\": 0, \"rank\": 0}, {\"stage\": 1, \"rank\": 1},"
    "{\"stage\": 2, \"rank\": 1, \"copy_of\": 0},"
    "{\"stage\": 3, \"rank\": 0, \"copy_of\": 1}],"
    "\"schedule\": {\"kind\": \"x\", \"slices\": 2, \"n_microbatches\": 1,"
    "\"actions\": [\"0F0 0F0.1\", \"\"]}}";

static void test_copies(void)
{
    struct pp_manifest m, again;
    struct pp_err err = {0};
    ok(parse(copies, &m), "copies and slices are read");
    is_int(m.graph.n_copies, 2, "copies");
    is_int(m.graph.slices.n, 2, "slices");
    is_int(m.graph.stages[3].copy_of, 1, "a copy knows of what");
    is_int(m.graph.stages[2].n_inputs, 0, "the copy of a source is one");
    is_int(m.graph.stages[3].inputs[0], 2, "a copy follows copies");
    is_int(m.schedule.rows[0].actions[1].slice, 1, "a slice of a row");
    struct pp_graph g = m.graph;
    ok(!pp_manifest_set_stages(&m, NULL, &m.mesh, &g, m.stages, &err) &&
           m.graph.n_copies == 2 && m.has_schedule && m.graph.slices.n == 2,
       "they are set as they were, and the schedule stays");
    char *text = text_of(&m);
    ok(parse(text, &again) && strstr(text, "\"copy_of\": 1,"),
       "and read again as they were written");
    is_text(&again, text, "the same bytes");
    free(text);
    pp_manifest_finish(&again);
    pp_manifest_finish(&m);
}

/* Four units, the third with awkward numbers. */
static struct pp_plan_unit some_units[] = {
    {"model.embed_tokens", {7, {0, 0}, {0, 0, 1}, 16}},
    {"model.layers.0", {8, {1.0 / 3, 1e22}, {0.1, 2, 3}, 16}},
    {"model.layers.1", {UINT64_C(1) << 53, {1e-7, 12345678}, {4, 5, 6}, 16}},
    {"lm_head", {7, {2, 0}, {0, 0, 0}, 0}},
};
static const struct pp_plan_model some_model = {
    .source = "dir/\"m\"",
    .architecture = "Qwen3ForCausalLM",
    .dtype = "fp32",
    .tied = true,
    .params = 15 + (UINT64_C(1) << 53),
    .units = some_units,
    .n_units = 4,
};

static void sum(struct pp_plan_stage *s)
{
    for (size_t i = s->first_unit; i < s->first_unit + s->n_units; i++) {
        s->costs.params += some_units[i].costs.params;
        for (int k = 0; k < 2; k++)
            s->costs.fwd_flops[k] += some_units[i].costs.fwd_flops[k];
        for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
            s->costs.act_bytes[k] += some_units[i].costs.act_bytes[k];
        s->costs.out_bytes = some_units[i].costs.out_bytes;
    }
}

/* Splits some_model into n stages, one a rank. The first stage ends at the
 * boundary asked for, and the last stage holds the rest of the units. */
static int set_split(struct pp_manifest *m, int n_stages, size_t boundary,
                     struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_graph g;
    struct pp_mesh mesh = {n_stages, 1, 1, 1, 1};
    struct pp_plan_stage stages[4] = {0};
    int last = n_stages - 1;
    stages[0].n_units = last ? boundary : 4;
    for (int s = 1; s < n_stages; s++)
        stages[s].first_unit = boundary;
    if (last)
        stages[last].n_units = 4 - boundary;
    for (int s = 0; s < n_stages; s++) {
        sum(&stages[s]);
        if (s && !stages[s].n_units)
            stages[s].costs.out_bytes = stages[s - 1].costs.out_bytes;
    }
    int rc = pp_graph_chain(&a, n_stages, 1, PP_PLACEMENT_LOOP, &g, err);
    if (!rc)
        rc = pp_manifest_set_stages(m, NULL, &mesh, &g, stages, err);
    pp_arena_finish(&a);
    return rc;
}

static int set_schedule(struct pp_manifest *m, struct pp_err *err)
{
    struct pp_schedule s;
    pp_schedule_init(&s, &m->graph, "gpipe", 2);
    s.channel_depth = 3;
    int rc = pp_schedule_parse_row(&s, 0, "0F0 0F1", err);
    if (!rc)
        rc = pp_manifest_set_schedule(m, &s, err);
    pp_schedule_finish(&s);
    return rc;
}

static int set_microbatch(struct pp_manifest *m, struct pp_err *err)
{
    const struct pp_default_microbatch mb = {.tokens = 8, .seq_len = 4};
    return pp_manifest_set_microbatch(m, &mb, err);
}

static void test_setters(void)
{
    struct pp_manifest m, again;
    struct pp_err err = {0};
    pp_manifest_init(&m);
    is_text(&m, "{\n  \"format\": \"pp-manifest\",\n  \"version\": 1\n}\n",
            "holds format and version");
    ok(!pp_manifest_set_model(&m, &some_model, &err), "set the model");
    ok(m.has_model && m.model.params == some_model.params, "and see it");
    ok(m.model.units != some_units, "no reference is kept");
    ok(!set_microbatch(&m, &err) && m.microbatch.tokens == 8,
       "set the microbatch: %s", err.text);
    ok(!set_split(&m, 3, 2, &err), "set the stages: %s", err.text);
    is_int(m.graph.n_stages, 3, "and see them");
    is_int(m.graph.tied[1], 2, "the head is in the last");
    is_near(m.stages[1].costs.out_bytes, 16, 0,
            "an empty stage passes its input");
    ok(!set_schedule(&m, &err), "set a schedule: %s", err.text);
    ok(m.has_schedule && m.schedule.graph == &m.graph, "and see it");
    struct pp_plan_data data = {"p", 0xab, 5, 6, 100, 2, 99};
    ok(!pp_manifest_set_data(&m, &data, &err), "set data");
    ok(m.has_data && m.data.checksum == 0xab, "and see them");
    ok(!pp_manifest_add_history(&m, "t", "1", "", &err), "add history");
    ok(!pp_manifest_add_history(&m, "t", "1", "'\xc3\xa9'", &err), "twice");

    char *text = text_of(&m);
    ok(parse(text, &again), "what was set can be read");
    is_text(&again, text, "and written: the same bytes");
    ok(again.model.units[1].costs.fwd_flops[0] == 1.0 / 3, "reals are exact");
    ok(again.model.units[2].costs.params == UINT64_C(1) << 53, "integers too");
    is_int(again.schedule.channel_depth, 3, "the depth went along");
    ok(again.microbatch.seq_len == 4 && !again.microbatch.items[0].n,
       "the microbatch too");
    free(text);
    pp_manifest_finish(&again);
    pp_manifest_finish(&m);
}

/* Puts both stages of a split into two on one rank. */
static int set_one_rank(struct pp_manifest *m, struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_graph g;
    struct pp_mesh mesh = {1, 1, 1, 1, 1};
    int rc = pp_graph_chain(&a, 1, 2, PP_PLACEMENT_LOOP, &g, err);
    if (!rc)
        rc = pp_manifest_set_stages(m, NULL, &mesh, &g, m->stages, err);
    pp_arena_finish(&a);
    return rc;
}

static void test_what_goes(void)
{
    struct pp_manifest m;
    struct pp_err err = {0};
    pp_manifest_init(&m);
    if (pp_manifest_set_model(&m, &some_model, &err) ||
        set_split(&m, 2, 1, &err) || set_schedule(&m, &err))
        abort();
    ok(!set_split(&m, 2, 2, &err) && m.has_schedule,
       "another boundary keeps the schedule");
    ok(!set_split(&m, 2, 0, &err) && !m.has_schedule,
       "unless what is tied lies elsewhere");
    ok(!set_schedule(&m, &err) && !set_one_rank(&m, &err) && !m.has_schedule,
       "other ranks drop the schedule");
    ok(!set_split(&m, 2, 1, &err) && !set_schedule(&m, &err) &&
           !set_split(&m, 3, 2, &err) && !m.has_schedule,
       "other stages drop the schedule");
    ok(!pp_manifest_set_model(&m, &some_model, &err) && !m.has_stages,
       "another model drops the stages");
    pp_manifest_finish(&m);
}

static void test_extensions(void)
{
    struct pp_manifest m;
    struct pp_err err = {0};
    ok(parse(abstract, &m), "x- keys in a section");
    struct pp_mesh mesh = {1, 2, 1, 1, 1};
    struct pp_arena a = {0};
    struct pp_graph g;
    struct pp_plan_stage stage = {0};
    ok(!pp_graph_chain(&a, 1, 1, PP_PLACEMENT_LOOP, &g, &err) &&
           !pp_manifest_set_stages(&m, NULL, &mesh, &g, &stage, &err),
       "a section is replaced: %s", err.text);
    char *text = text_of(&m);
    ok(strstr(text, "\"dp\": 2") && strstr(text, "\"x-m\": 7"),
       "its x- keys stay");
    free(text);
    pp_arena_finish(&a);
    pp_manifest_finish(&m);
}

static void test_refused(void)
{
    struct pp_manifest m;
    struct pp_err err = {0};
    if (!parse(own, &m))
        abort();
    struct pp_plan_unit twice[2] = {some_units[0], some_units[0]};
    struct pp_plan_model bad = some_model;
    bad.units = twice;
    bad.n_units = 2;
    ok(pp_manifest_set_model(&m, &bad, &err) == -1, "a wrong model");
    is_str(err.text,
           "manifest: /model/units/1/fqn: 'model.embed_tokens' is a duplicate "
           "name",
           "is refused like any document");
    is_int(err.code, PP_EXIT_INPUT, "with status 2");
    is_text(&m, own, "and nothing has changed");
    err = (struct pp_err){0};
    ok(pp_manifest_add_history(&m, "t", "1", "\xff", &err) == -1 &&
           err.code == PP_EXIT_INPUT,
       "bytes that are not UTF-8 are refused");
    is_text(&m, own, "and nothing has changed");
    err = (struct pp_err){0};
    struct pp_plan_unit latin = some_units[0];
    latin.fqn = "\xe9";
    bad.units = &latin;
    bad.n_units = 1;
    ok(pp_manifest_set_model(&m, &bad, &err) == -1, "a name in Latin-1");
    is_str(err.text, "fqn: '?' is not UTF-8", "is refused");
    is_text(&m, own, "and nothing has changed");
    pp_manifest_finish(&m);
}

static void test_streams(void)
{
    struct pp_manifest m;
    struct pp_err err = {0};
    FILE *f = fmemopen((void *)(size_t)own, sizeof own - 1, "r");
    ok(f && !pp_manifest_read(f, "own", &m, &err), "read from a stream");
    is_text(&m, own, "to its end");
    pp_manifest_finish(&m);
    fclose(f);

    f = fopen("/", "r");
    ok(f && pp_manifest_read(f, "/", &m, &err) == -1 &&
           err.code == PP_EXIT_INPUT,
       "a directory is not a manifest");
    is_str(err.text, "/: is a directory", "and that is said");
    if (f)
        fclose(f);
    pp_manifest_finish(&m);
    pp_manifest_finish(&m);
    ok(true, "finishing twice is harmless");
}

/* Writes whole, tiny, huge and other reals in an x- key. */
static void test_numbers(void)
{
    static const double values[] = {0.1,    1.0 / 3, 1e22,   1e300,
                                    5e-324, 1e5,     123456, -2.5,
                                    1e15,   0x1p53,  1e-10,  0x1p-30};
    struct pp_manifest m;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[200], *once;
        snprintf(text, sizeof text,
                 "{\"format\":\"pp-manifest\",\"version\":1,\"x-v\":%.17e}",
                 values[i]);
        if (!parse(text, &m))
            abort();
        once = text_of(&m);
        pp_manifest_finish(&m);
        ok(strtod(strstr(once, "x-v") + 5, NULL) == values[i],
           "%.17g is written exactly", values[i]);
        if (!parse(once, &m))
            abort();
        is_text(&m, once, "and a second time the same");
        pp_manifest_finish(&m);
        free(once);
    }
}

/* Reads pp-manifest(5). */
static void read_page(char *page, size_t room)
{
    char path[4096];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/man/pp-manifest.5", source ? source : ".");
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(page, 1, room - 1, f) : 0;
    if (f)
        fclose(f);
    page[n] = 0;
}

/* The example has every section. */
static void test_man_page(void)
{
    char page[32768];
    read_page(page, sizeof page);
    char *start = strstr(page, ".Bd -literal\n{"), *end;
    if (!ok(start && (end = strstr(start, ".Ed")), "the page has an example"))
        return;
    start = strchr(start, '\n');
    struct pp_manifest m;
    struct pp_err err = {0};
    ok(!pp_manifest_parse(start, (size_t)(end - start), "example", &m, &err),
       "it can be read: %s", err.text);
    ok(m.has_model && m.has_stages && m.has_data && m.has_schedule,
       "all sections are there");
    pp_manifest_finish(&m);
}

/* The parts of the page, and the keys of each. */
static const struct {
    const char *name;
    const struct pp_doc_field *fields;
} parts[] = {
    {"The top level", pp_manifest_fields},
    {"The model", pp_model_fields},
    {"The profile", pp_profile_fields},
    {"The machine", pp_machine_fields},
    {"The microbatch", pp_microbatch_fields},
    {"The mesh", pp_mesh_fields},
    {"Stages", pp_stage_fields},
    {"Components", pp_component_fields},
    {"Data", pp_data_fields},
    {"The schedule", pp_schedule_fields},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* Returns the table in a row, or NULL if it is another part's. */
static const struct pp_doc_field *table_in(const struct pp_doc_field *f)
{
    for (int i = 0; i < N_PARTS; i++)
        if (parts[i].fields == f->fields)
            return NULL;
    return f->fields;
}

/* Returns whether a table, or a table in it, has a key of n bytes. */
static bool has_key(const struct pp_doc_field *fields, const char *key,
                    size_t n)
{
    bool has = false;
    for (const struct pp_doc_field *f = fields; f->key && !has; f++)
        has = (strlen(f->key) == n && !strncmp(f->key, key, n)) ||
              (table_in(f) && has_key(table_in(f), key, n));
    return has;
}

/* Returns whether a line of keys in the text has a key: ".Cm a ,", ".It Cm a ,
 * b" or "a No x Cm b". */
static bool has_word(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = text; (at = strstr(at, key)); at += n) {
        const char *line = at;
        while (line > text && line[-1] != '\n')
            line--;
        if (at[-1] == ' ' && strchr(" \n", at[n]) &&
            (!strncmp(line, ".Cm ", 4) || !strncmp(line, ".It Cm ", 7)))
            return true;
    }
    return false;
}

static void is_on_page(const char *text, const struct pp_doc_field *fields)
{
    for (const struct pp_doc_field *f = fields; f->key; f++) {
        if (!has_word(text, f->key))
            ok(false, "the page has the key %s", f->key);
        if (table_in(f))
            is_on_page(text, table_in(f));
    }
}

/* The page has every key of the tables in its part, and no other. */
static void test_keys_of_page(void)
{
    char page[32768], heading[64];
    read_page(page, sizeof page);
    for (int i = 0; i < N_PARTS; i++) {
        snprintf(heading, sizeof heading, "\n.Ss %s\n", parts[i].name);
        char *text = strstr(page, heading), *end;
        if (!ok(text != NULL, "the page has the part %s", parts[i].name))
            continue;
        end = strstr(text + 1, "\n.Ss ");
        if (end)
            *end = 0;
        is_on_page(text, parts[i].fields);
        for (char *item = text; (item = strstr(item, "\n.It Cm "));) {
            item += strlen("\n.It Cm ");
            for (size_t n; *item != '\n'; item += n) {
                item += strspn(item, " ,");
                n = strcspn(item, " ,\n");
                if (n > 0 && !has_key(parts[i].fields, item, n))
                    ok(false, "%s has the key %.*s", parts[i].name, (int)n,
                       item);
            }
        }
        if (end)
            *end = '\n';
    }
}

/* Writes a plan with an encoder on so many data-parallel ranks of its own, and
 * two of the language model. Its messages take 1 s a byte. */
static void apart_text(int dp, char *text, size_t room)
{
    static const char unit[] = "{\"fqn\": \"%s\", \"params\": 100, "
                               "\"fwd_flops\": [1, 1], \"act_bytes\": [1, 1, "
                               "1], \"out_bytes\": 3}";
    static const char time[] = "{\"fqn\": \"%s\", \"fwd\": [0, 0], "
                               "\"input\": [0, 0], \"weight\": [0, 0]}";
    char units[2][160], times[2][120];
    for (int i = 0; i < 2; i++) {
        snprintf(units[i], sizeof units[i], unit, i ? "b" : "a");
        snprintf(times[i], sizeof times[i], time, i ? "b" : "a");
    }
    snprintf(
        text, room,
        "{\"format\": \"pp-manifest\", \"version\": 1, \"model\": "
        "{\"source\": \"m\", \"architecture\": \"A\", \"dtype\": \"fp32\", "
        "\"units\": [%s, %s]}, \"profile\": {\"units\": [%s, %s], "
        "\"messages\": {\"seconds_per_byte\": 1, \"latency\": 0}}, "
        "\"mesh\": {\"pp\": 2, \"dp\": 2}, \"stages\": [{\"stage\": 0, "
        "\"rank\": 0, \"units\": [\"a\"], \"component\": \"v\"}, "
        "{\"stage\": 1, \"rank\": 1, \"units\": [\"b\"], \"component\": "
        "\"l\"}], \"components\": [{\"name\": \"v\", \"units\": 1, "
        "\"rank_offset\": 0, \"first_rank\": 0, \"mesh\": {\"pp\": 1, "
        "\"dp\": %d}}, {\"name\": \"l\", \"units\": 1, \"rank_offset\": 1, "
        "\"first_rank\": %d, \"mesh\": {\"pp\": 1, \"dp\": 2}}]}",
        units[0], units[1], times[0], times[1], dp, dp);
}

/* Sums of gradients are over the ranks of their component, and a message over a
 * bridge takes as long as its busier end. */
static void test_apart(void)
{
    static const struct {
        int dp;
        double sum, message;
    } cases[] = {{1, 0, 30}, {2, 200, 30}, {8, 350, 120}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        struct pp_manifest m;
        struct pp_stage_costs c;
        apart_text(cases[i].dp, text, sizeof text);
        if (!ok(parse(text, &m) &&
                    (pp_stage_costs_init(&c, pp_manifest_plan(&m)), true),
                "an encoder on %d ranks of its own", cases[i].dp))
            continue;
        struct pp_action reduce = {.op = PP_REDUCE_GRAD, .peer = -1};
        const struct pp_action sends[] = {
            {.op = PP_SEND_F, .stage = 0, .peer = 1},
            {.op = PP_SEND_B, .stage = 1, .peer = 0}};
        is_near(
            pp_stage_time(&c, reduce, pp_workload_of(0, 0), PP_LOGITS_LEAST),
            cases[i].sum, 1e-12, "  its sum of gradients");
        reduce.stage = 1;
        is_near(
            pp_stage_time(&c, reduce, pp_workload_of(0, 0), PP_LOGITS_LEAST),
            200, 1e-12, "  that of the language model");
        for (int k = 0; k < 2; k++)
            is_near(pp_stage_time(&c, sends[k], pp_workload_of(10, 0),
                                  PP_LOGITS_LEAST),
                    cases[i].message, 1e-12,
                    "  a message of 10 tokens over the bridge");
        pp_stage_costs_finish(&c);
        pp_manifest_finish(&m);
    }
}

#define UNIT(name)                                                   \
    "{\"fqn\": \"" name "\", \"params\": 1, \"fwd_flops\": [1, 1], " \
    "\"act_bytes\": [1, 1, 1], \"out_bytes\": 1}"
#define PART(name)                                                \
    "{\"name\": \"" name "\", \"units\": 1, \"rank_offset\": 0, " \
    "\"mesh\": {\"pp\": 1}}"

/* A plan may have more components than pprun knows: the language model is the
 * last one, and its stages are what they are. */
static void test_many(void)
{
    static const char text[] =
        "{\"format\": \"pp-manifest\", \"version\": 1, \"mesh\": {}, "
        "\"model\": {\"source\": \"m\", \"architecture\": \"A\", \"dtype\": "
        "\"fp32\", \"units\": [" UNIT("a") ", " UNIT("b") ", " UNIT(
            "c") ", " UNIT("d") "]}, \"stages\": [{\"stage\": 0, \"rank\": 0, "
                                "\"units\": [\"a\", \"b\", \"c\", \"d\"], "
                                "\"component\": [\"a\", "
                                "\"b\", \"c\", \"d\"]}], \"components\": "
                                "[" PART("a") ", " PART("b") ", " PART(
                                    "c") ", " PART("d") "]}";
    struct pp_manifest m;
    struct pp_stage_costs c;
    if (!ok(parse(text, &m) &&
                (pp_stage_costs_init(&c, pp_manifest_plan(&m)), true),
            "four components"))
        return;
    is_int((long long)c.language, 3,
           "  of which the last is the language "
           "model");
    pp_stage_costs_finish(&c);
    pp_manifest_finish(&m);
}

int main(void)
{
    test_apart();
    test_many();
    test_man_page();
    test_keys_of_page();
    test_own();
    test_abstract();
    test_copies();
    test_setters();
    test_what_goes();
    test_extensions();
    test_refused();
    test_invalid_utf8();
    test_streams();
    test_numbers();
    return done();
}
