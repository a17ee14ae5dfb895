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

#include "data/cursor.h"
#include "data/packed.h"

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

/* An array of integers from min on, or of 0, 1, false and true with max 1. */
static int scan_integers(struct pp_cursor *s, int32_t min, int32_t max,
                         const char *what, int32_t *out, size_t *n,
                         struct pp_err *err)
{
    size_t i = 0;
    if (pp_cursor_take(s, '[', err) != 0)
        return -1;
    if (pp_cursor_try(s, ']')) {
        *n = 0;
        return 0;
    }
    do {
        if (pp_cursor_int32(s, min, max, what, &out[i++], err) != 0)
            return -1;
    } while (pp_cursor_try(s, ','));
    *n = i;
    return pp_cursor_take(s, ']', err);
}

static int scan_text(struct pp_cursor *s, struct line *l, struct pp_err *err)
{
    size_t n = 0;
    /* Decoded in place of the ids, as bytes, then widened from the end. */
    unsigned char *text = (unsigned char *)l->ids;
    if (pp_cursor_string(s, text, &n, err) != 0)
        return -1;
    for (size_t i = n; i-- > 0;)
        l->ids[i] = text[i];
    l->ids[n] = PP_BYTES_END;
    l->n_ids = n + 1;
    return 0;
}

static int once(bool *seen, const char *key, struct pp_err *err)
{
    if (*seen)
        return pp_fail(err, PP_EXIT_INPUT, "'%s' appears twice", key);
    *seen = true;
    return 0;
}

static int scan_member(struct pp_cursor *s, const char *key, bool bytes,
                       struct line *l, struct pp_err *err)
{
    if (!strcmp(key, bytes ? "text" : "input_ids")) {
        if (once(&l->has_ids, key, err) != 0)
            return -1;
        return bytes ? scan_text(s, l, err)
                     : scan_integers(s, 0, INT32_MAX - 1, "a token id", l->ids,
                                     &l->n_ids, err);
    }
    if (!strcmp(key, "labels"))
        return once(&l->has_labels, key, err) != 0
                   ? -1
                   : scan_integers(s, PP_LABEL_IGNORE, INT32_MAX - 1, "a label",
                                   l->labels, &l->n_labels, err);
    if (!strcmp(key, "loss_mask"))
        return once(&l->has_mask, key, err) != 0
                   ? -1
                   : scan_integers(s, 0, 1, "0 or 1", l->mask, &l->n_mask, err);
    return pp_cursor_skip(s, err);
}

static int scan_object(struct pp_cursor *s, bool bytes, struct line *l,
                       struct pp_err *err)
{
    char key[64];
    if (pp_cursor_take(s, '{', err) != 0)
        return -1;
    if (!pp_cursor_try(s, '}')) {
        do {
            if (pp_cursor_key(s, key, sizeof key, err) != 0 ||
                pp_cursor_take(s, ':', err) != 0 ||
                scan_member(s, key, bytes, l, err) != 0)
                return -1;
        } while (pp_cursor_try(s, ','));
        if (pp_cursor_take(s, '}', err) != 0)
            return -1;
    }
    return pp_cursor_end(s, err);
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

static int read_line(struct pp_jsonl *j, const char *text, size_t n,
                     struct scratch *scratch, struct pp_documents *d,
                     struct pp_err *err)
{
    struct pp_cursor s = {.p = text, .end = text + n};
    struct line l = {.labels = scratch->labels, .mask = scratch->mask};
    if (pp_cursor_blank(&s))
        return 0;
    /* One more than the characters: the end of document. */
    l.ids = pp_documents_room(d, n + 1, err);
    if (!l.ids || scan_object(&s, j->bytes, &l, err) != 0)
        return -1;
    if (!l.has_ids)
        return pp_fail(err, PP_EXIT_INPUT,
                       j->bytes ? "no 'text' (--bytes packs text)"
                                : "no 'input_ids' (text needs --bytes)");
    bool own = l.has_labels || l.has_mask;
    if (own && make_labels(&l, err) != 0)
        return -1;
    if (l.n_ids == 0 && !j->allow_empty)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "'input_ids' is empty (--empty drop leaves such lines out)");
    return pp_documents_add(d, l.n_ids, own ? l.labels : NULL, err);
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

int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err)
{
    char *text = NULL;
    size_t room = 0, line = 0, bytes = 0;
    struct scratch scratch = {0};
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&text, &room, f)) >= 0) {
        line++;
        bytes += (size_t)n;
        rc = grow_scratch(&scratch, (size_t)n, err);
        if (rc == 0)
            rc = read_line(j, text, (size_t)n, &scratch, d, err);
        if (rc != 0)
            pp_fail_at(err, "%s: line %zu: ", j->name, line);
        else if (j->progress)
            j->progress(j->ctx, line, bytes);
    }
    if (rc == 0 && !feof(f))
        rc = pp_fail_read(err, j->name);
    free(scratch.labels);
    free(scratch.mask);
    free(text);
    return rc;
}
