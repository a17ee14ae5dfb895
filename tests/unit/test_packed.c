/* SPDX-License-Identifier: MIT */
/* test_packed - writes packed directories and reads them back. False statements
 * must be found, and no damage may make the reader leave its files. */
#include "data/packed/packed.h"

#include "packed_fixture.h"
#include "scratch.h"

/* Documents of 5, 3, 4 and 1 tokens; the first is split at 3. */
static int32_t ids[] = {7, 8, 9, 10, 11, 20, 21, 22, 30, 31, 32, 33, 5};
static int32_t labels[] = {7,  -100, 9,    10, 11, -100, 21,
                           22, 30,   -100, 32, 40, 5};
static const struct pp_piece pieces[] = {{0, 0, 0, 3, 4},
                                         {3, 0, 3, 2, 2},
                                         {5, 1, 0, 3, 4},
                                         {8, 2, 0, 4, 4},
                                         {12, 3, 0, 1, 2}};
static const size_t first[] = {0, 2, 5};
static const uint32_t items[] = {3, 0, 2, 1, 4};

static const struct pp_packed_content content = {
    .ids = ids,
    .labels = labels,
    .pieces = pieces,
    .n_bins = 2,
    .first = first,
    .items = items,
    .n_inputs = 5,
    .capacity = 8,
    .align = 2,
    .epoch = {1, 9},
    .counts = {.sequences = 5,
               .tokens = 15,
               .n_dropped = 1,
               .dropped_tokens = 2},
};

static void same_ints(const int32_t *got, const int32_t *want, size_t n,
                      const char *what)
{
    ok(!memcmp(got, want, n * sizeof *got), "%s", what);
}

static void test_contents(const char *dir)
{
    struct pp_err err = {0};
    struct pp_packed p;
    struct pp_bin b;
    ok(pp_packed_write(dir, &content, &err) == 0, "written %s", err.text);
    if (!ok(pp_packed_open(dir, &p, &err) == 0, "opened %s", err.text))
        return;
    ok(p.n_bins == 2 && p.n_sequences == 5 && p.n_inputs == 5 &&
           p.n_tokens == 13 && p.n_positions == 16,
       "counts");
    ok(p.capacity == 8 && p.align == 2 && p.max_tokens == 8 &&
           p.max_seqlen == 4 && p.vocab == 41,
       "sizes; the vocabulary counts labels");
    pp_packed_bin(&p, 0, &b);
    ok(b.n_sequences == 2 && b.tokens == 8 && b.scored == 3 &&
           b.n_groups == 2 && b.max_seqlen == 4,
       "bin 0: counts");
    same_ints(b.cu_seqlens, (int32_t[]){0, 4, 7}, 3, "bin 0: cu_seqlens");
    same_ints(b.cu_seqlens_padded, (int32_t[]){0, 4, 8}, 3, "bin 0: padded");
    same_ints(b.input_ids, (int32_t[]){30, 31, 32, 33, 7, 8, 9, 0}, 8,
              "bin 0: ids");
    same_ints(b.labels, (int32_t[]){30, -100, 32, 40, 7, -100, 9, -100}, 8,
              "bin 0: labels");
    pp_packed_bin(&p, 1, &b);
    same_ints(b.cu_seqlens, (int32_t[]){0, 3, 5, 6}, 4, "bin 1: cu_seqlens");
    same_ints(b.cu_seqlens_padded, (int32_t[]){0, 4, 6, 8}, 4, "bin 1: padded");
    same_ints(b.input_ids, (int32_t[]){20, 21, 22, 0, 10, 11, 5, 0}, 8,
              "bin 1: ids");
    ok(b.source[0] == 1 && b.source[1] == 0 && b.source[2] == 3 &&
           b.start[0] == 0 && b.start[1] == 3,
       "bin 1: source and start");
    is_int(b.scored, 3, "bin 1: position 0 of a sequence is not scored");
    ok(pp_packed_check(&p, &err) == 0, "consistent %s", err.text);
    pp_packed_finish(&p);
    pp_packed_finish(&p);
}

/* False statements of the index, with a right checksum. */
static void test_lies(const char *dir, const char *path)
{
    size_t n;
    struct pp_err err;
    char *data = read_file(path, &n);
    struct pp_packed_header *h = (void *)data;
    struct pp_packed_array *starts = (void *)(h + 1);
    struct pp_packed_array *last = starts + h->n_arrays - 1;
    struct pp_packed_start *at = section_in(data, PP_SECTION_STARTS);
    struct pp_packed_record *r = section_in(data, PP_SECTION_BINS);
    int32_t *cu = section_in(data, PP_SECTION_CU);
    uint32_t *source = section_in(data, PP_SECTION_SOURCE);
    uint32_t *start = section_in(data, PP_SECTION_START);
    LIE(h->version = 11, PP_EXIT_INPUT,
        "needs a newer pptools, this one reads");
    LIE(h->version = 9, PP_EXIT_INPUT, "is not read any more; pack the data");
    LIE(h->n_arrays = 1000, PP_EXIT_INPUT, "cut short");
    LIE(h->n_arrays--, PP_EXIT_INPUT, "but its sections need");
    LIE(h->bytes = 2, PP_EXIT_INPUT, "counts");
    LIE(h->top_k = 1025, PP_EXIT_INPUT, "counts");
    LIE(h->epoch_block = 3, PP_EXIT_INPUT, "counts");
    LIE(h->n_bins = 0, PP_EXIT_INPUT, "counts");
    LIE(starts->offset += 8, PP_EXIT_INPUT, "'starts' must begin at byte");
    LIE(starts->offset = 0, PP_EXIT_INPUT, "'starts' must begin at byte");
    LIE(starts->width = 2, PP_EXIT_INPUT, "'2' times 3 u64, for each bin");
    LIE(starts->type = 9, PP_EXIT_INPUT, "'2' times 3 u64, for each bin");
    LIE(strcpy(starts->name, "ends"), PP_EXIT_INPUT,
        "section 'ends' needs a newer pptools");
    LIE(strcpy(last->name, "ids"), PP_EXIT_INPUT, "has no 'labels'");
    LIE(strcpy(last->name, "input_ids"), PP_EXIT_INPUT, "two arrays");
    LIE(last->offset = starts->offset, PP_EXIT_INPUT, "needs a newer pptools");
    LIE(last->type = PP_ELEMENT_F32, PP_EXIT_INPUT,
        "times 1 i32, for each tok");
    LIE(h->align = 3, PP_EXIT_INPUT, "align");
    LIE(h->capacity = 7, PP_EXIT_INPUT, "impossible");
    LIE(h->vocab = 42, PP_EXIT_NO, "vocabulary");
    LIE(at[1].first_position = 4, PP_EXIT_INPUT, "bin 1");
    LIE(r[0].n_sequences = 100, PP_EXIT_INPUT, "bin 0");
    LIE(r[0].scored = 2, PP_EXIT_NO, "scored");
    LIE(r[1].max_seqlen = 6, PP_EXIT_INPUT, "bin 1");
    LIE(cu[1] = 5, PP_EXIT_INPUT, "bin 0");
    LIE(cu[1] = -4, PP_EXIT_INPUT, "bin 0");
    LIE(source[0] = 5, PP_EXIT_INPUT, "source");
    LIE(source[0] = 1, PP_EXIT_INPUT, "twice");
    LIE(h->input.tokens++, PP_EXIT_INPUT, "16' tokens");
    LIE(h->input.dropped_tokens--, PP_EXIT_INPUT, "15' tokens");
    LIE(h->input.n_dropped = 0, PP_EXIT_INPUT, "5' documents");
    LIE(h->n_inputs++, PP_EXIT_INPUT, "6' documents");
    LIE(start[1] = 5, PP_EXIT_INPUT, "position 3 are missing");
    LIE(start[1] = UINT32_MAX, PP_EXIT_INPUT, "start '4294967295'");
    LIE(h->kind = 3, PP_EXIT_INPUT, "impossible");
    LIE(h->n_groups--, PP_EXIT_INPUT, "but its sections need");
    write_file(path, data, n);
    free(data);
}

/* Packs two pairs in one bin and one in another, with a margin per pair, a
 * reward per sequence and an advantage per token. */
static void test_groups(const char *base)
{
    static size_t starts[] = {0, 3, 5, 6, 10, 11, 13};
    static uint32_t member[] = {0, 2, 4, 6};
    static float advantages[13], rewards[] = {0, 1, 2, 3, 4, 5},
                                 margins[] = {.5, 1.5, 2.5};
    static const struct pp_piece groups[] = {
        {0, 0, 0, 5, 6}, {5, 1, 0, 5, 6}, {10, 2, 0, 3, 4}};
    static const size_t bins[] = {0, 2, 3};
    static const uint32_t order[] = {2, 0, 1};
    struct pp_documents docs = {.n = 3,
                                .n_sequences = 6,
                                .first = starts,
                                .member = member,
                                .kind = PP_DATA_PAIRS};
    struct pp_packed_content c = content;
    struct pp_packed p;
    struct pp_bin b;
    struct pp_err err = {0};
    char dir[256];
    for (int i = 0; i < 13; i++)
        advantages[i] = (float)i;
    docs.columns[PP_COLUMN_ADVANTAGES] = advantages;
    docs.columns[PP_COLUMN_REWARDS] = rewards;
    docs.columns[PP_COLUMN_MARGINS] = margins;
    c.pieces = groups;
    c.first = bins;
    c.items = order;
    c.n_inputs = 3;
    c.capacity = 10;
    c.docs = &docs;
    c.counts = (struct pp_input_counts){.sequences = 6, .tokens = 13};
    snprintf(dir, sizeof dir, "%s/groups", base);
    if (!ok(pp_packed_write(dir, &c, &err) == 0 &&
                pp_packed_open(dir, &p, &err) == 0,
            "pairs are written %s", err.text))
        return;
    ok(p.kind == PP_DATA_PAIRS && p.n_groups == 3 && p.n_sequences == 6,
       "and known as such");
    pp_packed_bin(&p, 0, &b);
    ok(b.n_groups == 2 && b.n_sequences == 4 && b.cu_groups[1] == 2 &&
           b.cu_groups[2] == 4 && b.start[1] == 1 && b.start[3] == 3,
       "two pairs in a bin");
    same_ints(b.cu_seqlens_padded, (int32_t[]){0, 2, 4, 8, 10}, 5,
              "each sequence is aligned");
    ok(b.columns[PP_COLUMN_MARGINS][0] == 2.5F &&
           b.columns[PP_COLUMN_REWARDS][2] == 0 &&
           b.columns[PP_COLUMN_ADVANTAGES][2] == 11 &&
           b.columns[PP_COLUMN_ADVANTAGES][7] == 0,
       "columns go with pair, sequence and token; padding is 0");
    pp_packed_bin(&p, 1, &b);
    ok(b.n_groups == 1 && b.cu_groups[0] == 0 && b.cu_groups[1] == 2 &&
           b.columns[PP_COLUMN_MARGINS][0] == 1.5F &&
           b.columns[PP_COLUMN_REWARDS][0] == 2,
       "and one in the next");
    ok(pp_packed_check(&p, &err) == 0, "consistent %s", err.text);
    pp_packed_finish(&p);
    char path[300];
    snprintf(path, sizeof path, "%s/index", dir);
    test_damage(dir, path);
    snprintf(path, sizeof path, "%s/margins", dir);
    test_column_damage(dir, path, "margins");
    test_words(dir);
}

static void test_place(const char *base)
{
    char dir[256], path[300];
    struct pp_err err = {0};
    struct pp_packed_content one = content;
    struct pp_packed p;
    snprintf(dir, sizeof dir, "%s/place", base);
    ok(mkdir(dir, 0777) == 0 && pp_packed_write(dir, &one, &err) == 0,
       "an empty directory is filled");
    one.n_bins = 1;
    one.n_inputs = 3;
    one.counts.tokens = 9;
    ok(pp_packed_write(dir, &one, &err) == 0 &&
           pp_packed_open(dir, &p, &err) == 0 && p.n_bins == 1,
       "a packed directory is replaced");
    pp_packed_finish(&p);
    snprintf(path, sizeof path, "%s.0123456789ab.tmp", dir);
    ok(mkdir(path, 0777) == 0 && pp_packed_write(dir, &content, &err) == 0 &&
           access(path, F_OK) != 0,
       "the remains of an interrupted run are removed");
    snprintf(path, sizeof path, "%s/notes", dir);
    write_file(path, "mine", 4);
    ok(pp_packed_write(dir, &content, &err) != 0 && err.code == PP_EXIT_INPUT &&
           strstr(err.text, "'notes'"),
       "a directory with a stranger's file is not replaced: %s", err.text);
    ok(access(path, F_OK) == 0, "with the file");
    remove(path);
    err = (struct pp_err){0};
    snprintf(path, sizeof path, "%s/index", dir);
    write_file(path, "PPPACX\0\0", 8);
    ok(pp_packed_may_write(dir, &err) != 0 && err.code == PP_EXIT_INPUT,
       "an index of another kind is not replaced: %s", err.text);
    err = (struct pp_err){0};
    ok(pp_packed_write(path, &content, &err) != 0 && err.code == PP_EXIT_INPUT,
       "a file is not replaced: %s", err.text);
    err = (struct pp_err){0};
    snprintf(path, sizeof path, "%s/none/such", base);
    ok(pp_packed_write(path, &content, &err) != 0 && err.code == PP_EXIT_SYSTEM,
       "a missing parent: %s", err.text);
}

int main(void)
{
    char base[SCRATCH_TEXT], dir[64], path[3][128];
    scratch_make(base);
    snprintf(dir, sizeof dir, "%s/packed", base);
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, pp_packed_name(i));
    test_contents(dir);
    test_damage(dir, path[0]);
    test_column_damage(dir, path[1], "input_ids");
    test_column_damage(dir, path[2], "labels");
    test_lies(dir, path[0]);
    test_words(dir);
    test_groups(base);
    test_place(base);
    scratch_remove(base);
    return done();
}
