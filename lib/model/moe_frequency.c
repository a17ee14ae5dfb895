/* SPDX-License-Identifier: MIT */
#include "model/moe_frequency.h"

#include <ctype.h>
#include <string.h>

/* Limit of nested parentheses; Megatron's examples have one level. */
enum { MAX_DEPTH = 8 };

struct parser {
    const char *text, *at;
    size_t n_layers;
    size_t n; /* entries so far */
    unsigned char entries[PP_SET_LAYERS];
    struct pp_err *err;
};

static int fail(const struct parser *p, const char *wanted)
{
    return pp_fail(p->err, PP_EXIT_INPUT,
                   "'%.100s': expected %s at character %zu", p->text, wanted,
                   (size_t)(p->at - p->text) + 1);
}

static char next(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
    return *p->at;
}

static int read_number(struct parser *p, size_t *out)
{
    size_t v = 0;
    if (!isdigit((unsigned char)next(p)))
        return fail(p, "a number");
    while (isdigit((unsigned char)*p->at)) {
        v = 10 * v + (size_t)(*p->at++ - '0');
        if (v > PP_SET_LAYERS)
            v = PP_SET_LAYERS + 1; /* too large in any case */
    }
    *out = v;
    return 0;
}

static int add(struct parser *p, unsigned char entry)
{
    if (p->n == p->n_layers)
        return pp_fail(p->err, PP_EXIT_INPUT,
                       "'%.100s' is for more than the %zu layers", p->text,
                       p->n_layers);
    p->entries[p->n++] = entry;
    return 0;
}

/* [0,1,...] */
static int read_list(struct parser *p)
{
    p->at++;
    if (next(p) == ']') {
        p->at++;
        return 0;
    }
    for (;;) {
        size_t v = 0;
        if (read_number(p, &v))
            return -1;
        if (v > 1) {
            p->at--;
            return fail(p, "0 or 1");
        }
        if (add(p, v == 1))
            return -1;
        char c = next(p);
        if (c != ',' && c != ']')
            return fail(p, "',' or ']'");
        p->at++;
        if (c == ']')
            return 0;
    }
}

/* Repeats the entries after from, so that each occurs n times. */
static int repeat(struct parser *p, size_t from, size_t n)
{
    size_t length = p->n - from;
    if (n == 0)
        p->n = from;
    for (size_t k = 1; k < n && length > 0; k++)
        for (size_t i = 0; i < length; i++)
            if (add(p, p->entries[from + i]))
                return -1;
    return 0;
}

static int read_sum(struct parser *p, int depth)
{
    for (;;) {
        size_t from = p->n, n = 0;
        char c = next(p);
        if (c == '(' && depth == MAX_DEPTH)
            return fail(p, "fewer nested parentheses");
        if (c == '(') {
            p->at++;
            if (read_sum(p, depth + 1))
                return -1;
            if (next(p) != ')')
                return fail(p, "')'");
            p->at++;
        } else if (c != '[') {
            return fail(p, "'[' or '('");
        } else if (read_list(p)) {
            return -1;
        }
        while (next(p) == '*') {
            p->at++;
            if (read_number(p, &n) || repeat(p, from, n))
                return -1;
        }
        if (next(p) != '+')
            return 0;
        p->at++;
    }
}

static int read_every(struct parser *p, struct pp_layer_set *out)
{
    size_t n;
    if (read_number(p, &n))
        return -1;
    if (next(p))
        return fail(p, "the end");
    if (n == 0)
        return pp_fail(p->err, PP_EXIT_INPUT, "'%.100s' must be positive",
                       p->text);
    for (size_t i = 0; i < p->n_layers; i += n)
        pp_layer_set_add(out, i);
    return 0;
}

int pp_moe_frequency(const char *text, size_t n_layers,
                     struct pp_layer_set *out, struct pp_err *err)
{
    struct parser p = {
        .text = text, .at = text, .n_layers = n_layers, .err = err};
    memset(out, 0, sizeof *out);
    if (n_layers > PP_SET_LAYERS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the model has %zu layers; a list of layers with "
                       "experts is limited to %d",
                       n_layers, PP_SET_LAYERS);
    if (isdigit((unsigned char)next(&p)))
        return read_every(&p, out);
    if (read_sum(&p, 0))
        return -1;
    if (next(&p))
        return fail(&p, "'+', '*' or the end");
    if (p.n != n_layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.100s' is for %zu layers, not %zu", text, p.n,
                       n_layers);
    for (size_t i = 0; i < n_layers; i++)
        if (p.entries[i])
            pp_layer_set_add(out, i);
    return 0;
}
