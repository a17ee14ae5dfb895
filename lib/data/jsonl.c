/* SPDX-License-Identifier: MIT */
/* jsonl - documents from JSON Lines.
 *
 * A scanner of its own: a general JSON library would build a value per token.
 * Every token takes at least one character of its line, so the line's length
 * bounds all arrays and the loops need no checks of room. */
#include "data/jsonl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "data/packed.h"
#include "data/scan.h"

/* What one line holds. */
struct line {
    int32_t *ids, *labels, *mask; /* room for every character of the line */
    size_t n_ids, n_labels, n_mask;
    bool has_ids, has_labels, has_mask;
};

/* Scratch that grows with the longest line. */
struct scratch {
    int32_t *labels, *mask;
    size_t room;
};

/* An array of 0, 1, false and true. */
static int scan_mask(struct pp_scan *s, int32_t *out, size_t *n,
                     struct pp_err *err)
{
    int more;
    *n = 0;
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', n, err)) > 0) {
        int32_t *m = &out[*n - 1];
        bool word;
        if (pp_scan_bool(s, &word))
            *m = word;
        else if (pp_scan_int32(s, 0, 1, "0 or 1", m, err) != 0)
            return -1;
    }
    return more;
}

static int scan_text(struct pp_scan *s, struct line *l, struct pp_err *err)
{
    size_t n = 0;
    /* Decoded in place of the ids, as bytes, then widened from the end. */
    unsigned char *text = (unsigned char *)l->ids;
    if (pp_scan_text(s, (char *)text, s->n, &n, err) != 0)
        return -1;
    for (size_t i = n; i-- > 0;)
        l->ids[i] = text[i];
    l->ids[n] = PP_BYTES_END;
    l->n_ids = n + 1;
    return 0;
}

static int once(const struct pp_scan *s, bool *seen, const char *key,
                struct pp_err *err)
{
    if (*seen)
        return pp_scan_fail(s, err, "repeated '%s'", key);
    *seen = true;
    return 0;
}

static int scan_member(struct pp_scan *s, const char *key, bool bytes,
                       struct line *l, struct pp_err *err)
{
    if (!strcmp(key, bytes ? "text" : "input_ids")) {
        if (once(s, &l->has_ids, key, err) != 0)
            return -1;
        return bytes ? scan_text(s, l, err)
                     : pp_scan_int32s(s, 0, INT32_MAX - 1, "a token id", l->ids,
                                      &l->n_ids, err);
    }
    if (!strcmp(key, "labels"))
        return once(s, &l->has_labels, key, err) != 0
                   ? -1
                   : pp_scan_int32s(s, PP_LABEL_IGNORE, INT32_MAX - 1,
                                    "a label", l->labels, &l->n_labels, err);
    if (!strcmp(key, "loss_mask"))
        return once(s, &l->has_mask, key, err) != 0
                   ? -1
                   : scan_mask(s, l->mask, &l->n_mask, err);
    return pp_scan_skip(s, err);
}

/* A key into buf, which is left empty for one that does not fit. */
static int scan_key(struct pp_scan *s, char *buf, size_t size,
                    struct pp_err *err)
{
    size_t n = 0;
    if (pp_scan_text(s, buf, size, &n, err) != 0)
        return -1;
    buf[n < size && !memchr(buf, '\0', n) ? n : 0] = '\0';
    return pp_scan_expect(s, ':', err);
}

static int scan_object(struct pp_scan *s, bool bytes, struct line *l,
                       struct pp_err *err)
{
    char key[16];
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '{', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0)
        if (scan_key(s, key, sizeof key, err) != 0 ||
            scan_member(s, key, bytes, l, err) != 0)
            return -1;
    return more ? -1 : pp_scan_end(s, err);
}

/* Puts the labels that the line stands for into l->labels. */
static int make_labels(struct line *l, struct pp_err *err)
{
    if (l->has_labels && l->n_labels != l->n_ids)
        return pp_fail(err, PP_EXIT_INPUT, "'%zu' labels for %zu tokens",
                       l->n_labels, l->n_ids);
    if (l->has_mask && l->n_mask != l->n_ids)
        return pp_fail(err, PP_EXIT_INPUT,
                       "loss_mask of '%zu' elements for %zu tokens", l->n_mask,
                       l->n_ids);
    for (size_t i = 0; l->has_labels && i < l->n_labels; i++)
        if (l->labels[i] < 0 && l->labels[i] != PP_LABEL_IGNORE)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%d' is not a label (from 0 on, or %d)",
                           l->labels[i], PP_LABEL_IGNORE);
    if (!l->has_labels)
        memcpy(l->labels, l->ids, l->n_ids * sizeof *l->labels);
    for (size_t i = 0; l->has_mask && i < l->n_mask; i++)
        if (!l->mask[i])
            l->labels[i] = PP_LABEL_IGNORE;
    return 0;
}

static int add_line(const struct pp_jsonl *j, struct line *l,
                    struct pp_documents *d, struct pp_err *err)
{
    bool own = l->has_labels || l->has_mask;
    if (!l->has_ids)
        return pp_fail(err, PP_EXIT_INPUT,
                       j->bytes ? "no 'text' (--bytes packs text)"
                                : "no 'input_ids' (text needs --bytes)");
    if (own && make_labels(l, err) != 0)
        return -1;
    if (l->n_ids == 0 && !j->allow_empty)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "'input_ids' is empty (--empty drop leaves such lines out)");
    return pp_documents_add(d, l->n_ids, own ? l->labels : NULL, err);
}

static int grow_scratch(struct scratch *s, size_t n, struct pp_err *err)
{
    if (n + 1 <= s->room)
        return 0;
    size_t room = n + n / 2 + 1024;
    free(s->labels);
    free(s->mask);
    s->labels = calloc(room, sizeof *s->labels);
    s->mask = calloc(room, sizeof *s->mask);
    s->room = room;
    if (!s->labels || !s->mask) {
        s->room = 0;
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    return 0;
}

/* The scanner says where a line is wrong; other errors are placed here. */
static int read_line(const struct pp_jsonl *j, struct pp_scan *s,
                     struct scratch *scratch, struct pp_documents *d,
                     struct pp_err *err)
{
    struct line l = {0};
    if (pp_scan_peek(s) < 0)
        return 0;
    if (grow_scratch(scratch, s->n, err) != 0)
        goto at;
    l.labels = scratch->labels;
    l.mask = scratch->mask;
    /* One more than the characters: the end of document. */
    l.ids = pp_documents_room(d, s->n + 1, err);
    if (!l.ids)
        goto at;
    if (scan_object(s, j->bytes, &l, err) != 0)
        return -1;
    if (add_line(j, &l, d, err) == 0)
        return 0;
at:
    return pp_fail_at(err, "%s: line %zu: ", j->name, s->lines_before + 1);
}

int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err)
{
    char *text = NULL;
    size_t room = 0, line = 0, bytes = 0;
    struct scratch scratch = {0};
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&text, &room, f)) >= 0) {
        struct pp_scan s = {.text = text,
                            .n = (size_t)n - (text[n - 1] == '\n'),
                            .name = j->name,
                            .lines_before = line};
        line++;
        bytes += (size_t)n;
        rc = read_line(j, &s, &scratch, d, err);
        if (rc == 0 && j->progress)
            j->progress(j->ctx, line, bytes);
    }
    if (rc == 0 && !feof(f))
        rc = pp_fail_read(err, j->name);
    free(scratch.labels);
    free(scratch.mask);
    free(text);
    return rc;
}
