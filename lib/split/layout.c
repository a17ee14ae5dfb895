/* SPDX-License-Identifier: MIT */
/* layout - Megatron-LM's layout strings. A layout is read twice: to count
 * its symbols, then to write them. Megatron-LM replaces text by regular
 * expressions, which accept more than its documentation, such as a count after
 * the count of a group. This reader accepts only what is documented. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "split/megatron.h"

struct layout_reader {
    const char *text;
    size_t at;
    char *out; /* NULL: only count */
    size_t n;  /* symbols so far */
    struct pp_err *err;
};

static char peek(struct layout_reader *r)
{
    while (r->text[r->at] == ',')
        r->at++;
    return r->text[r->at];
}

/* Fails at the character that peek returns. */
static int fail(struct layout_reader *r, const char *what)
{
    char c = peek(r), shown[8];
    if (c == '\0')
        return pp_fail(r->err, PP_EXIT_INPUT, "at the end: %s", what);
    if (isprint((unsigned char)c))
        snprintf(shown, sizeof shown, "'%c'", c);
    else
        snprintf(shown, sizeof shown, "0x%02x", (unsigned char)c);
    return pp_fail(r->err, PP_EXIT_INPUT, "character %zu, %s: %s", r->at + 1,
                   shown, what);
}

/* Repeats the last length symbols, so that they are there count times. */
static int repeat(struct layout_reader *r, size_t length, size_t count)
{
    if (length > 0 && count > PP_LAYOUT_SYMBOLS / length)
        return fail(r, "too many symbols");
    size_t start = r->n - length, total = length * count;
    if (start + total > PP_LAYOUT_SYMBOLS)
        return fail(r, "too many symbols");
    if (r->out && length > 0)
        for (size_t i = length; i < total; i++)
            r->out[start + i] = r->out[start + i - length];
    r->n = start + total;
    return 0;
}

/* Reads "*N" after the text of the last length symbols. */
static int read_count(struct layout_reader *r, size_t length)
{
    size_t count = 0;
    r->at++;
    if (!isdigit((unsigned char)peek(r)))
        return fail(r, "a '*' needs a number");
    while (isdigit((unsigned char)peek(r))) {
        if (count <= PP_LAYOUT_SYMBOLS)
            count = 10 * count + (size_t)(r->text[r->at] - '0');
        r->at++;
    }
    if (peek(r) == '*')
        return fail(r, "only one count is allowed");
    return repeat(r, length, count);
}

static int read_symbol(struct layout_reader *r)
{
    char c = peek(r);
    if (!strchr("EtmL|", c))
        return fail(r, "must be one of E t m L |");
    if (r->n == PP_LAYOUT_SYMBOLS)
        return fail(r, "too many symbols");
    if (r->out)
        r->out[r->n] = c;
    r->n++;
    r->at++;
    return peek(r) == '*' ? read_count(r, 1) : 0;
}

static int read_group(struct layout_reader *r)
{
    size_t start = r->n;
    char c;
    r->at++;
    if (peek(r) == ')')
        return fail(r, "the group is empty");
    while ((c = peek(r)) != ')') {
        if (c == '\0')
            return fail(r, "a ')' is missing");
        if (c == '(')
            return fail(r, "groups cannot be nested");
        if (read_symbol(r))
            return -1;
    }
    r->at++;
    if (peek(r) != '*')
        return fail(r, "a group needs a count (*N)");
    return read_count(r, r->n - start);
}

static int read_layout(struct layout_reader *r)
{
    char c;
    r->at = r->n = 0;
    while ((c = peek(r)))
        if (c == '(' ? read_group(r) : read_symbol(r))
            return -1;
    return 0;
}

int pp_layout_expand(const char *layout, struct pp_arena *a,
                     const char **symbols, struct pp_err *err)
{
    struct layout_reader r = {.text = layout, .err = err};
    if (read_layout(&r))
        return -1;
    /* The largest size: r.n is too small if a count of 0 removed symbols. */
    char *out = pp_arena_alloc(a, PP_LAYOUT_SYMBOLS + 1, 1);
    r.out = out;
    if (read_layout(&r))
        return -1;
    out[r.n] = '\0';
    *symbols = out;
    return 0;
}

size_t pp_layout_n_stages(const char *symbols)
{
    size_t n = 1;
    for (; *symbols; symbols++)
        n += *symbols == '|';
    return n;
}

void pp_layout_counts(const char *symbols, size_t *counts)
{
    size_t stage = 0;
    counts[0] = 0;
    for (; *symbols; symbols++) {
        if (*symbols == '|')
            counts[++stage] = 0;
        counts[stage] += *symbols == 't';
    }
}

static size_t count_symbol(const char *symbols, char c)
{
    size_t n = 0;
    for (; *symbols; symbols++)
        n += *symbols == c;
    return n;
}

static int check_ends(const char *symbols, struct pp_err *err)
{
    char first = symbols[strspn(symbols, "|")], last = '\0';
    for (const char *s = symbols; *s; s++)
        last = *s == '|' ? last : *s;
    if (first == '\0')
        return pp_fail(err, PP_EXIT_INPUT, "the embedding E is missing");
    if (first != 'E')
        return pp_fail(err, PP_EXIT_INPUT,
                       "the first symbol is '%c', but must be the embedding E",
                       first);
    if (last != 'L')
        return pp_fail(err, PP_EXIT_INPUT,
                       "the last symbol is '%c', but must be the loss L", last);
    return 0;
}

static int check_numbers(const char *symbols, const struct pp_layout_check *c,
                         struct pp_err *err)
{
    static const char once[] = "EL";
    for (int i = 0; i < 2; i++) {
        size_t n = count_symbol(symbols, once[i]);
        if (n != 1)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%c' occurs %zu times, but must occur once",
                           once[i], n);
    }
    size_t layers = count_symbol(symbols, 't');
    if (layers != c->n_layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'t' occurs %zu times, but the model has %zu layers",
                       layers, c->n_layers);
    size_t mtp = count_symbol(symbols, 'm');
    if (mtp != c->n_mtp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'m' occurs %zu times, but the model has %zu layers for "
                       "multi-token prediction",
                       mtp, c->n_mtp);
    return 0;
}

/* Checks the places of layers for multi-token prediction, in Megatron-LM's
 * order. */
static int check_mtp(const char *symbols, struct pp_layout_check *c,
                     struct pp_err *err)
{
    const char *first = strchr(symbols, 'm');
    size_t n_stages = pp_layout_n_stages(symbols), stage = 0;
    if (!first)
        return 0;
    if (strchr(first, 't'))
        return pp_fail(err, PP_EXIT_INPUT, "a 't' comes after an 'm'");
    for (const char *s = symbols; s < first; s++)
        stage += *s == '|';
    /* Check every 'm': the first may be in the last chunk, and a later one
     * not. */
    size_t at = stage;
    for (const char *s = first; *s; s++) {
        at += *s == '|';
        if (*s == 'm' && at + c->n_ranks < n_stages)
            return pp_fail(err, PP_EXIT_INPUT,
                           "an 'm' is not in the last chunk of its rank");
    }
    if (strcspn(first, "|") < strlen(first) &&
        strchr(first + strcspn(first, "|"), 'm'))
        return pp_fail(err, PP_EXIT_INPUT, "'m' is in more than one stage");
    if (stage % c->n_ranks == 0 && c->n_ranks > 1)
        return pp_fail(err, PP_EXIT_INPUT, "an 'm' is on the first rank");
    return 0;
}

int pp_layout_check(const char *symbols, struct pp_layout_check *c,
                    struct pp_err *err)
{
    size_t n = pp_layout_n_stages(symbols);
    if (n % c->n_ranks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages do not divide by %zu ranks", n, c->n_ranks);
    if (c->n_chunks > 0 && n / c->n_ranks != c->n_chunks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu stages are %zu chunks on each rank, not %zu", n,
                       n / c->n_ranks, c->n_chunks);
    c->n_chunks = n / c->n_ranks;
    if (check_ends(symbols, err) || check_numbers(symbols, c, err))
        return -1;
    return check_mtp(symbols, c, err);
}

/* Writes "", "t", "tt", "t*3", ... Returns the length. */
static size_t format_layers(char *out, size_t n)
{
    if (n > 2)
        return (size_t)sprintf(out, "t*%zu", n);
    return (size_t)sprintf(out, "%.*s", (int)n, "tt");
}

const char *pp_layout_format(struct pp_arena *a, const size_t *counts,
                             size_t n_stages)
{
    enum { STAGE_TEXT = 64 };
    char *out = pp_arena_alloc(a, n_stages + 1, STAGE_TEXT);
    size_t n = 0, run;
    out[n++] = 'E';
    for (size_t s = 0; s < n_stages; s += run) {
        /* The first and the last stage are not part of a group. */
        for (run = 1; s > 0 && s + run + 1 < n_stages; run++)
            if (counts[s + run] != counts[s])
                break;
        if (run > 2)
            out[n++] = '(';
        else
            run = 1;
        n += format_layers(out + n, counts[s]);
        out[n++] = s + run < n_stages ? '|' : 'L';
        if (run > 2)
            n += (size_t)sprintf(out + n, ")*%zu,", run);
    }
    out[n] = '\0';
    return out;
}
