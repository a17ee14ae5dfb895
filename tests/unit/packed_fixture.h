/* SPDX-License-Identifier: MIT */
/* packed_fixture - damages files of packed directories, and sees whether that
 * is found.
 *
 * The functions are defined in the header on purpose, as in tap.h. */
#ifndef PP_TESTS_PACKED_FIXTURE_H
#define PP_TESTS_PACKED_FIXTURE_H

#include <sys/stat.h>
#include <unistd.h>

#include "data/packed/packed.h"
#include "data/packed/format.h"
#include "data/readers.h"
#include "tap.h"

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 16);
    *n = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

/* Returns the entry of that name in the table of an index, which has it. */
static struct pp_packed_array *entry_in(char *index, const char *name)
{
    struct pp_packed_header *h = (void *)index;
    struct pp_packed_array *a = (void *)(h + 1);
    while (strcmp(a->name, name) != 0)
        a++;
    return a;
}

/* Returns a section of an index, which has it. */
static void *section_in(char *index, int section)
{
    return index + entry_in(index, pp_sections[section].name)->offset;
}

/* Writes in place, thousands of times: some file systems flush a file that was
 * emptied and refilled. */
static void write_file(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, access(path, F_OK) == 0 ? "r+b" : "wb");
    if (fwrite(data, 1, n, f) != n || fflush(f) != 0 ||
        ftruncate(fileno(f), (off_t)n) != 0)
        ok(false, "cannot write %s", path);
    fclose(f);
}

/* Returns a sum over the items that a bin has of a modality. */
static double sum_items(const struct pp_packed *p, enum pp_modality m, size_t b)
{
    struct pp_bin_items at;
    struct pp_bin bin;
    double sum = 0;
    pp_packed_bin(p, b, &bin);
    pp_packed_bin_items(p, m, b, &at);
    for (uint32_t i = 0; at.cu_items && i <= bin.n_sequences; i++)
        sum += at.cu_items[i];
    for (uint32_t k = 0; k < at.n; k++)
        sum += at.grids[k].frames + at.grids[k].rows + at.cu_rows[k + 1];
    for (size_t i = 0; i < (size_t)at.rows * p->streams[m].width; i++)
        sum += (double)at.values[i];
    return sum;
}

/* Opens, reads everything and checks. Returns 0 or the error's code. */
static int look(const char *dir, struct pp_err *err)
{
    struct pp_packed p;
    long long sum = 0;
    memset(err, 0, sizeof *err);
    if (pp_packed_open(dir, &p, err) != 0)
        return (int)err->code;
    for (size_t k = 0; k < p.n_bins; k++) {
        struct pp_bin b;
        pp_packed_bin(&p, k, &b);
        for (uint32_t i = 0; i < b.n_sequences; i++)
            sum += (long long)b.source[i] + b.start[i];
        for (uint32_t i = 0; i < b.tokens; i++)
            sum += (long long)b.input_ids[i] + b.labels[i];
        for (int m = 0; m < PP_N_MODALITIES; m++)
            sum += sum_items(&p, (enum pp_modality)m, k) > 0;
    }
    /* Keep the compiler from removing the reads. */
    if (sum == 0x7fffffffffffffff)
        puts("# never");
    int rc = pp_packed_check(&p, err) == 0 ? 0 : (int)err->code;
    pp_packed_finish(&p);
    return rc;
}

/* Every prefix, and every byte changed in several ways, with and without a
 * right checksum, must be refused by open or found by the check. A sanitizer or
 * a fault shows a read outside. */
static void test_damage(const char *dir, const char *path)
{
    size_t n, missed = 0, cut = 0;
    char *data = read_file(path, &n);
    struct pp_err err;
    for (size_t i = 0; i < n; i++) {
        write_file(path, data, i);
        cut += look(dir, &err) == PP_EXIT_INPUT;
    }
    is_int((long long)cut, (long long)n, "every prefix is refused");
    static const unsigned char change[] = {0x01, 0x80, 0xff, 0x10};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 4; k++)
            for (int fit = 0; fit < 2; fit++) {
                char *bad = malloc(n);
                memcpy(bad, data, n);
                bad[i] = (char)((unsigned char)bad[i] ^ change[k]);
                struct pp_packed_header *h = (void *)bad;
                if (fit)
                    h->checksum = pp_packed_sum((void *)bad, n);
                write_file(path, bad, n);
                int rc = look(dir, &err);
                missed += !fit && (rc != PP_EXIT_INPUT ||
                                   !strstr(err.text, "/index: "));
                free(bad);
            }
    is_int((long long)missed, 0, "every changed byte of the index is found");
    write_file(path, data, n);
    is_int(look(dir, &err), 0, "the index restored is consistent");
    free(data);
}

static void test_column_damage(const char *dir, const char *path,
                               const char *name)
{
    size_t n, found = 0;
    char *data = read_file(path, &n);
    struct pp_err err;
    for (size_t i = 0; i < n; i++) {
        data[i] = (char)(data[i] ^ 4);
        write_file(path, data, n);
        found += look(dir, &err) == PP_EXIT_NO;
        data[i] = (char)(data[i] ^ 4);
    }
    ok(found == n, "every changed byte of %s is found", name);
    write_file(path, data, n - 4);
    is_int(look(dir, &err), PP_EXIT_INPUT, "a column cut short is refused");
    ok(strstr(err.text, name) != NULL, "by name: %s", err.text);
    remove(path);
    is_int(look(dir, &err), PP_EXIT_INPUT, "a missing column is refused");
    write_file(path, data, n);
    free(data);
}

/* Reads a set through every function that takes one, and a directory also as
 * pprun does for log-probabilities: with room for the last token of each
 * document. */
static void read_all(const struct pp_packed *p)
{
    struct pp_err err = {0};
    struct pp_packed taken, single;
    struct pp_documents docs = {0};
    uint64_t room = 0;
    uint32_t *end = calloc(p->n_inputs, sizeof *end);
    volatile float value;
    for (size_t k = 0; k < p->n_bins; k++) {
        struct pp_bin b;
        pp_packed_bin(p, k, &b);
        for (uint32_t i = 0; i < b.n_sequences; i++) {
            uint32_t n = (uint32_t)(b.cu_seqlens[i + 1] - b.cu_seqlens[i]);
            uint32_t *last = &end[b.source[i]];
            *last = b.start[i] + n > *last ? b.start[i] + n : *last;
        }
        const uint32_t n[] = {b.tokens, b.n_sequences, b.n_groups};
        for (int c = 0; c < PP_N_COLUMNS; c++)
            for (uint32_t i = 0; b.columns[c] && i < n[pp_columns[c].scope];
                 i++)
                value = b.columns[c][i];
        for (int m = 0; m < PP_N_MODALITIES; m++)
            value = (float)sum_items(p, (enum pp_modality)m, k);
    }
    (void)value;
    for (size_t i = 0; i < p->n_inputs; i++)
        room += end[i];
    if (room != p->n_tokens)
        ok(false, "documents have %llu tokens", (unsigned long long)room);
    free(end);
    if (pp_packed_take(p, p->n_bins, &taken, &err) == 0) {
        if (pp_packed_unpack(&taken, &single, &err) == 0)
            pp_packed_finish(&single);
        pp_packed_finish(&taken);
    }
    if (pp_packed_documents(p, &docs, &err) != 0 && strchr(err.text, '\n'))
        ok(false, "more than one line: %s", err.text);
    pp_documents_finish(&docs);
}

/* Opens a directory with an altered index. Returns 0 if it was read or refused
 * as it should be. */
static int try_index(const char *dir)
{
    struct pp_packed p;
    struct pp_err err = {0};
    if (pp_packed_open(dir, &p, &err) != 0)
        return err.code != PP_EXIT_INPUT || !err.text[0] ||
               strchr(err.text, '\n');
    read_all(&p);
    struct pp_err checked = {0};
    int rc = pp_packed_check(&p, &checked) != 0 && checked.code != PP_EXIT_NO;
    pp_packed_finish(&p);
    return rc;
}

/* Sets every word of the index to extreme and to near values, with a right
 * checksum. */
static void test_words(const char *dir)
{
    static const uint64_t extremes[] = {0, INT32_MAX, UINT32_MAX, UINT64_MAX};
    static const int near[] = {-1, 1, 8};
    enum { N_EXTREMES = 4, N_NEAR = 3 };
    char path[300];
    size_t n, wrong = 0;
    snprintf(path, sizeof path, "%s/index", dir);
    char *data = read_file(path, &n);
    for (size_t size = 4; size <= 8; size += 4)
        for (size_t i = 0; i + size <= n; i += size) {
            struct pp_packed_header *h = (void *)data;
            for (int k = 0; k < N_EXTREMES + N_NEAR; k++) {
                uint64_t old = 0, value;
                memcpy(&old, data + i, size);
                value = k < N_EXTREMES ? extremes[k]
                                       : old + (uint64_t)near[k - N_EXTREMES];
                memcpy(data + i, &value, size);
                uint64_t sum = h->checksum;
                h->checksum = pp_packed_sum((void *)data, n);
                write_file(path, data, n);
                wrong += try_index(dir) != 0;
                h->checksum = sum;
                memcpy(data + i, &old, size);
            }
        }
    write_file(path, data, n);
    ok(wrong == 0, "every word of %s is refused or harmless: %zu are not", path,
       wrong);
    free(data);
}

/* Makes a false statement of the index in `data` of n bytes, with a right
 * checksum, and looks for the word in the message. Uses dir, path, n, err, data
 * and h of the caller. */
#define LIE(statement, status, word)                                 \
    do {                                                             \
        char *saved = malloc(n);                                     \
        memcpy(saved, data, n);                                      \
        statement;                                                   \
        h->checksum = pp_packed_sum((void *)data, n);                \
        write_file(path, data, n);                                   \
        is_int(look(dir, &err), status, #statement);                 \
        ok(strstr(err.text, word) != NULL, "it says '%s': %s", word, \
           err.text);                                                \
        memcpy(data, saved, n);                                      \
        free(saved);                                                 \
    } while (0)

#endif
