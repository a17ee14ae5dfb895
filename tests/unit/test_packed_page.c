/* SPDX-License-Identifier: MIT */
/* test_packed_page - pp-pack(5) and pp-images(5) list the fields and arrays of
 * the code's tables, and no others. */
#include <stdlib.h>

#include "data/packed/format.h"
#include "tap.h"

/* Reads a page, which the caller frees. */
static char *read_page(const char *name)
{
    char path[4096];
    const size_t room = 1 << 17;
    char *text = calloc(1, room);
    snprintf(path, sizeof path, "%s/man/%s", getenv("SRCDIR"), name);
    FILE *f = fopen(path, "r");
    if (f) {
        ok(fread(text, 1, room - 1, f) > 0, "%s is read", name);
        fclose(f);
    }
    return text;
}

/* Returns whether a line is the row of an array: its third word is a type. */
static bool is_array_row(const char *line)
{
    char name[40], scope[40], type[8];
    if (sscanf(line, ".It %39s Ta %39[a-z +]Ta %7s Ta ", name, scope, type) !=
        3)
        return false;
    for (int t = 0; t < PP_N_ELEMENTS; t++)
        if (!strcmp(type, pp_element_types[t].name))
            return true;
    return false;
}

/* Looks for a row on the page behind those before it. */
static void has_row(const char **page, const char *row)
{
    const char *at = strstr(*page, row);
    ok(at != NULL, "the page has '%s' in its place", row + 4);
    if (at)
        *page = at + 1;
}

static void test_header(const char *page)
{
    const char *at = page;
    size_t end = offsetof(struct pp_packed_header, n_bins);
    for (int i = 0; i < PP_N_HEADER_FIELDS; i++) {
        const struct pp_header_field *f = &pp_header_fields[i];
        char row[100], bytes[20];
        snprintf(bytes, sizeof bytes, "%zu bytes", f->bytes);
        snprintf(row, sizeof row, ".It %zu Ta %s Ta %s Ta ", f->at,
                 f->bytes == 8   ? "u64"
                 : f->bytes == 4 ? "u32"
                                 : bytes,
                 f->name);
        has_row(&at, row);
        ok(f->at == end, "no gap before it");
        end += f->bytes;
    }
    ok(end == sizeof(struct pp_packed_header), "that is the whole header");
}

static void test_arrays(const char *page)
{
    const char *at = page;
    int n = 0;
    char row[160];
    for (int i = 0; i < PP_N_SECTIONS; i++) {
        const struct pp_section_row *s = &pp_sections[i];
        snprintf(row, sizeof row, ".It %s Ta %s%s Ta %s Ta %u Ta %s", s->name,
                 pp_scope_names[s->scope], s->is_sums ? " + bin" : "",
                 pp_element_types[s->type].name, s->width,
                 pp_with_names[s->with]);
        has_row(&at, row);
    }
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        const enum pp_scope scope =
            f < PP_PACKED_COLUMNS ? PP_SCOPE_TOKEN
            : f >= PP_PACKED_ROWS ? PP_SCOPE_ROW
                                  : pp_columns[f - PP_PACKED_COLUMNS].scope;
        snprintf(row, sizeof row, ".It %s Ta %s Ta %s Ta ", pp_packed_name(f),
                 pp_scope_names[scope], pp_packed_is_int(f) ? "i32" : "f32");
        has_row(&at, row);
    }
    for (at = page; (at = strstr(at, ".It ")); at++)
        n += is_array_row(at);
    is_int(n, PP_N_SECTIONS + PP_PACKED_N_FILES - 1, "and no other");
}

static void test_stream(const char *page)
{
#define ROW(type, field)                                               \
    snprintf(row, sizeof row, ".It %zu Ta " type " Ta " #field " Ta ", \
             offsetof(struct pp_packed_stream, field));                \
    has_row(&at, row)
    const char *at = page;
    char row[100];
    ROW("u64", n);
    ROW("u64", n_rows);
    ROW("u32", modality);
    ROW("u32", width);
    ROW("u32", token);
    ROW("u32", merge);
    ROW("u32", capacity);
    ROW("u32", max_items);
    ROW("u32", max_rows);
    ROW("u32", max_item);
    ROW("u32", class_out);
    ROW("u32", reserved);
}

int main(void)
{
    char *pack = read_page("pp-pack.5"), *images = read_page("pp-images.5");
    test_header(pack);
    test_arrays(pack);
    test_stream(images);
    free(pack);
    free(images);
    return done();
}
