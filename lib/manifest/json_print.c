/* SPDX-License-Identifier: MIT */
/* json_print - prints a document so that people and diff can read it.
 *
 * jansson prints either one line or one number a line. Here a section, stage,
 * unit or row of actions begins a line, and its members stay on it. The layout
 * follows from the values alone: the same document has the same bytes. */
#include "manifest/sections.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

/* Containers at this depth and below, members of a unit or stage, are on one
 * line. */
#define INLINE_DEPTH 3

/* The keys of an object that is not described. */
static const struct pp_doc_field none[] = {{NULL}};

static bool is_container(const json_t *v)
{
    return json_is_object(v) || json_is_array(v);
}

static void print_escape(unsigned char c, FILE *f)
{
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *at = strchr(letters, c);
    if (at && c)
        fprintf(f, "\\%c", names[at - letters]);
    else
        fprintf(f, "\\u%04x", (unsigned)c);
}

/* Writes a run without escapes at once, because a row of actions can have
 * megabytes. */
static void print_string(const char *s, size_t n, FILE *f)
{
    putc('"', f);
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        fwrite(s + start, 1, i - start, f);
        print_escape(c, f);
        start = i + 1;
    }
    fwrite(s + start, 1, n - start, f);
    putc('"', f);
}

/* Writes whole numbers without an exponent: 2000, not 2e+03. */
static void print_real(double v, FILE *f)
{
    if (v == 0 && signbit(v))
        fputs("-0.0", f);
    else if (v == floor(v) && fabs(v) < 0x1p53)
        fprintf(f, "%.0f", v);
    else {
        char text[32];
        pp_format_real(v, text);
        fputs(text, f);
    }
}

static void print_scalar(const json_t *v, FILE *f)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        print_string(json_string_value(v), json_string_length(v), f);
        break;
    case JSON_INTEGER:
        fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        print_real(json_real_value(v), f);
        break;
    case JSON_TRUE:
        fputs("true", f);
        break;
    case JSON_FALSE:
        fputs("false", f);
        break;
    default:
        fputs("null", f);
    }
}

/* Returns true if every member begins a line. Mesh and history entries stay on
 * one line; lists of rows and units do not. */
static bool is_broken(const json_t *v, int depth)
{
    if (!depth || depth >= INLINE_DEPTH)
        return !depth;
    bool numbers = true, containers = false;
    const char *key;
    json_t *item;
    size_t i;
    /* jansson's iterators take a pointer to a value that is not const. */
    json_t *value = (json_t *)(uintptr_t)v;
    json_object_foreach(value, key, item)
    {
        numbers &= json_is_number(item);
        containers |= is_container(item);
    }
    json_array_foreach(value, i, item) numbers &= json_is_number(item);
    if (json_is_object(v) && depth == INLINE_DEPTH - 1)
        return containers;
    return !numbers;
}

struct printer {
    FILE *f;
    int depth;   /* the current container's */
    bool broken; /* one member a line */
    bool any;    /* a member has been printed */
};

static void print_value(const json_t *v, const struct pp_doc_field *fields,
                        int depth, FILE *f);

static void begin_member(struct printer *p)
{
    if (p->any)
        putc(',', p->f);
    if (p->broken)
        fprintf(p->f, "\n%*s", 2 * (p->depth + 1), "");
    else if (p->any)
        putc(' ', p->f);
    p->any = true;
}

static void print_member(struct printer *p, const char *key, const json_t *v,
                         const struct pp_doc_field *fields)
{
    begin_member(p);
    print_string(key, strlen(key), p->f);
    fputs(": ", p->f);
    print_value(v, fields, p->depth + 1, p->f);
}

/* Known keys come in the table's order; the others follow in the order that
 * they were read in. */
static void print_members(struct printer *p, const json_t *v,
                          const struct pp_doc_field *fields)
{
    for (const struct pp_doc_field *f = fields; f->key; f++) {
        const json_t *item = json_object_get(v, f->key);
        if (item)
            print_member(p, f->key, item, f->fields ? f->fields : none);
    }
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        if (!pp_field_find(fields, key))
            print_member(p, key, item, none);
    }
}

static void print_value(const json_t *v, const struct pp_doc_field *fields,
                        int depth, FILE *f)
{
    if (!is_container(v)) {
        print_scalar(v, f);
        return;
    }
    struct printer p = {f, depth, is_broken(v, depth), false};
    putc(json_is_object(v) ? '{' : '[', f);
    if (json_is_object(v))
        print_members(&p, v, fields);
    for (size_t i = 0; i < json_array_size(v); i++) {
        begin_member(&p);
        print_value(json_array_get(v, i), fields, depth + 1, f);
    }
    if (p.broken && p.any)
        fprintf(f, "\n%*s", 2 * depth, "");
    putc(json_is_object(v) ? '}' : ']', f);
}

void pp_value_print(const json_t *root, const struct pp_doc_field *fields,
                    FILE *f)
{
    print_value(root, fields, 0, f);
    putc('\n', f);
}
