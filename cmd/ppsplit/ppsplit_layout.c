/* SPDX-License-Identifier: MIT */
/* --layout: Megatron's layout, as a string, or as a list of lists of the layer
 * types' names. Both become the same symbols. */
#include <string.h>
#include <strings.h>

#include "data/scan.h"
#include "split/split_megatron.h"
#include "ppsplit.h"

struct reader {
    struct split_job *j;
    struct pp_scan scan;
    char *out; /* symbols */
    size_t n;
};

/* A layer type: blanks around it and case mean nothing. */
static int read_type(struct reader *r)
{
    static const char *const names[] = {"embedding", "decoder", "mtp", "loss"};
    static const char symbols[] = "EtmL";
    static const char blanks[] = " \t\n\r\f\v";
    const char *text;
    struct pp_err *err = &r->j->t.err;
    if (pp_scan_string(&r->scan, &r->j->arena, &text, err))
        return -1;
    const char *word = text + strspn(text, blanks);
    size_t length = strlen(word);
    while (length > 0 && strchr(blanks, word[length - 1]))
        length--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length &&
            !strncasecmp(names[i], word, length)) {
            r->out[r->n++] = symbols[i];
            return 0;
        }
    return pp_fail(err, PP_EXIT_INPUT,
                   "--layout: '%s' is not embedding, decoder, mtp or loss",
                   text);
}

static int read_list(struct reader *r)
{
    struct pp_err *err = &r->j->t.err;
    size_t n = 0;
    int more, inner;
    if (pp_scan_expect(&r->scan, '[', err))
        return -1;
    while ((more = pp_scan_more(&r->scan, ']', &n, err)) > 0) {
        size_t item = 0;
        if (n > 1)
            r->out[r->n++] = '|';
        if (pp_scan_expect(&r->scan, '[', err))
            return -1;
        while ((inner = pp_scan_more(&r->scan, ']', &item, err)) > 0)
            if (read_type(r))
                return -1;
        if (inner)
            return -1;
    }
    return more || pp_scan_end(&r->scan, err) ? -1 : 0;
}

int split_read_layout(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    size_t n = strlen(j->layout);
    if (j->layout[0] != '[') {
        if (pp_layout_expand(j->layout, &j->arena, &j->symbols, err))
            return pp_fail_at(err, "--layout: ");
        return 0;
    }
    /* A symbol takes the place of more than one character. */
    struct reader r = {
        .j = j,
        .scan = {.text = j->layout, .n = n, .name = "--layout"},
        .out = pp_arena_alloc(&j->arena, n + 1, 1),
    };
    if (!r.out)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    j->symbols = r.out;
    return read_list(&r);
}
