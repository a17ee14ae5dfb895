/* SPDX-License-Identifier: MIT */
/* Offsets of buffers, in row order by best fit, as an allocator would assign
 * them at run time. Planning them before step 0 costs nothing later and shows
 * early if memory is too small. */
#include "schedule/memory/memory.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/sort.h"

struct free_block {
    size_t offset, bytes;
};

struct free_blocks { /* by ascending offset, never adjacent */
    struct free_block *at;
    size_t n, capacity;
    size_t top; /* end of the arena so far */
};

/* Takes the smallest hole that fits, else extends the arena. The last hole is
 * used for that if it reaches the end. */
static size_t take_block(struct free_blocks *h, size_t bytes)
{
    size_t best = h->n;
    for (size_t i = 0; i < h->n; i++)
        if (h->at[i].bytes >= bytes &&
            (best == h->n || h->at[i].bytes < h->at[best].bytes))
            best = i;
    if (best == h->n) {
        size_t last = h->n - 1;
        bool open =
            h->n > 0 && h->at[last].offset + h->at[last].bytes == h->top;
        size_t offset = open ? h->at[last].offset : h->top;
        h->n -= open;
        h->top = offset + bytes;
        return offset;
    }
    size_t offset = h->at[best].offset;
    h->at[best].offset += bytes;
    h->at[best].bytes -= bytes;
    if (h->at[best].bytes == 0) {
        for (size_t i = best + 1; i < h->n; i++)
            h->at[i - 1] = h->at[i];
        h->n--;
    }
    return offset;
}

/* Returns a block to the list of holes. The list never overflows, because live
 * buffers separate the holes. */
static void return_block(struct free_blocks *h, size_t offset, size_t bytes)
{
    size_t i = h->n;
    while (i > 0 && h->at[i - 1].offset > offset)
        i--;
    bool joins_left =
        i > 0 && h->at[i - 1].offset + h->at[i - 1].bytes == offset;
    bool joins_right = i < h->n && offset + bytes == h->at[i].offset;
    if (joins_left && joins_right) {
        h->at[i - 1].bytes += bytes + h->at[i].bytes;
        for (size_t k = i + 1; k < h->n; k++)
            h->at[k - 1] = h->at[k];
        h->n--;
    } else if (joins_left) {
        h->at[i - 1].bytes += bytes;
    } else if (joins_right) {
        h->at[i].offset = offset;
        h->at[i].bytes += bytes;
    } else {
        for (size_t k = h->n++; k > i; k--)
            h->at[k] = h->at[k - 1];
        h->at[i] = (struct free_block){offset, bytes};
    }
}

/* Reports whether the buffer lives for the whole step. */
static bool is_lasting(const struct pp_buffer *b)
{
    return b->kind == PP_BUF_WORKSPACE || b->kind == PP_BUF_RING;
}

/* Fills the order of n buffers by first position, and large before small at one
 * position, else as they are. Buffers that last come before all others: they
 * would divide the room of the others for ever. */
static void sort_by_first(const struct pp_memory *m, struct pp_sort_key *keys)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct pp_buffer *b = &m->buffers[i];
        keys[i] = (struct pp_sort_key){.high = is_lasting(b) ? 0 : b->first + 1,
                                       .low = ~(uint64_t)b->bytes,
                                       .item = i};
    }
    pp_sort_keys(keys, keys + m->n, m->n);
}

static void sort_by_last(const struct pp_memory *m, struct pp_sort_key *keys)
{
    for (size_t i = 0; i < m->n; i++)
        keys[i] = (struct pp_sort_key){.low = m->buffers[i].last, .item = i};
    pp_sort_keys(keys, keys + m->n, m->n);
}

/* Bytes of the live buffers. */
struct live_bytes {
    size_t all, kind[PP_N_BUFFER_KINDS];
    size_t messages; /* in whole cache lines */
};

static bool is_message(enum pp_buffer_kind kind)
{
    return kind == PP_BUF_OUTPUT || kind == PP_BUF_INPUT ||
           kind == PP_BUF_DOUTPUT || kind == PP_BUF_DINPUT ||
           kind == PP_BUF_RING;
}

static void raise_peaks(struct pp_memory *m, const struct live_bytes *l,
                        size_t place)
{
    if (l->all > m->peak_bytes) {
        m->peak_bytes = l->all;
        m->peak_place = place;
        m->message_bytes = l->messages;
    }
    for (int k = 0; k < PP_N_BUFFER_KINDS; k++)
        if (l->kind[k] > m->peak_by_kind[k])
            m->peak_by_kind[k] = l->kind[k];
}

static void place_buffers(struct pp_memory *m, const struct pp_sort_key *first,
                          const struct pp_sort_key *last, struct free_blocks *h)
{
    struct live_bytes live = {0};
    for (size_t i = 0, gone = 0; i < m->n; i++) {
        struct pp_buffer *b = &m->buffers[first[i].item];
        for (; gone < m->n && last[gone].low < b->first; gone++) {
            const struct pp_buffer *old = &m->buffers[last[gone].item];
            live.all -= old->bytes;
            live.kind[old->kind] -= old->bytes;
            if (is_message(old->kind))
                live.messages -= pp_line_bytes(old->bytes);
            if (old->bytes)
                return_block(h, old->offset, pp_line_bytes(old->bytes));
        }
        live.all += b->bytes;
        live.kind[b->kind] += b->bytes;
        if (is_message(b->kind))
            live.messages += pp_line_bytes(b->bytes);
        raise_peaks(m, &live, b->first);
        if (b->bytes)
            b->offset = take_block(h, pp_line_bytes(b->bytes));
    }
    m->arena_bytes = pp_line_bytes(h->top); /* never empty */
    for (size_t i = 0; i < m->n; i++)
        if (m->buffers[i].kind == PP_BUF_WORKSPACE)
            m->workspace_bytes += pp_line_bytes(m->buffers[i].bytes);
}

int pp_memory_place(struct pp_memory *m, struct pp_err *err)
{
    struct free_blocks h = {0};
    /* Each with room to sort. */
    struct pp_sort_key *first = pp_calloc(2 * m->n + 1, sizeof *first);
    struct pp_sort_key *last = pp_calloc(2 * m->n + 1, sizeof *last);
    size_t total = 0;
    int rc = 0;
    h.at = pp_calloc(m->n + 2, sizeof *h.at);
    /* If the sum over all buffers does not overflow, no sum below does. */
    for (size_t i = 0; i < m->n && !rc; i++) {
        if (__builtin_add_overflow(total, m->buffers[i].bytes, &total) ||
            __builtin_add_overflow(total, PP_LINE_BYTES, &total))
            rc = pp_fail(err, PP_EXIT_SYSTEM, "buffers are too large");
    }
    if (!rc) {
        sort_by_first(m, first);
        sort_by_last(m, last);
        place_buffers(m, first, last, &h);
    }
    free(first);
    free(last);
    free(h.at);
    return rc;
}
