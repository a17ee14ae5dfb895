/* SPDX-License-Identifier: MIT */
/* batch - fills the arrays of a microbatch from a packed bin. */
#include "run/execute/batch.h"

#include <string.h>

#include "model/unit_bytes.h"

int pp_batch_init(struct pp_batch *b, struct pp_device *d, size_t max_tokens,
                  size_t vocab, bool ahead, struct pp_err *err)
{
    bool is_host = pp_device_ops(d)->is_host;
    size_t n = max_tokens + 1;
    *b = (struct pp_batch){.vocab = (int32_t)vocab};
    b->logps = pp_device_alloc(is_host ? d : NULL, 1,
                               pp_batch_host_bytes(max_tokens, ahead),
                               "arrays of a microbatch", err);
    if (!b->logps)
        return -1;
    int32_t **arrays[] = {
        &b->positions,    &b->input_ids,  &b->scored_rows,
        &b->targets,      &b->cu_seqlens, &b->cu_seqlens_padded,
        &b->ids,          &b->labels,     &b->sequence,
        &b->order,        &b->next_ids,   &b->ahead_rows,
        &b->ahead_targets};
    size_t n_arrays = sizeof arrays / sizeof *arrays - (ahead ? 0 : 3);
    int32_t *at = (int32_t *)(b->logps + n);
    for (size_t i = 0; i < n_arrays; i++, at += n)
        *arrays[i] = at;
    b->keys = (struct pp_attention_keys *)at;
    return pp_sent_init(&b->sent, d, pp_batch_device_bytes(max_tokens, ahead),
                        err);
}

size_t pp_layout_room(const struct pp_env *env, const struct pp_slices *slices,
                      int slice, size_t room)
{
    const struct pp_backend b = pp_env_backend(env);
    const struct pp_mesh *x = pp_env_mesh(env);
    size_t rows = pp_rank_rows(
        x, &b, pp_slice_room(slices, room, pp_mesh_slice_grain(x), slice));
    bool fixed = pp_env_ep(env) > 1 || env->shard.mesh.expert_capacity > 0;
    return fixed ? rows * pp_env_tp(env) : 0;
}

void pp_batch_finish(struct pp_batch *b)
{
    pp_device_free(NULL, b->logps);
    pp_sent_finish(&b->sent);
    *b = (struct pp_batch){0};
}

/* A part of a sequence. The sequence is rows [start, end) of a bin, the first n
 * of them real; the part is rows [from, to). */
struct rows {
    uint32_t sequence;
    int32_t start, n, end, from, to;
};

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* A view in the making. */
struct view {
    struct pp_batch *b;
    const struct pp_bin *bin;
    const struct pp_batch_part *part;
    struct pp_microbatch *mb;
    int32_t end; /* of the slice, in the bin */
    int32_t bad; /* an id that is not a token, once one is found */
};

/* Returns where slice q of the bin begins. */
static int32_t slice_begin(const struct view *v, int q)
{
    size_t grain = v->part->grain ? v->part->grain : 1;
    return (int32_t)pp_slice_begin(&v->part->slices, v->bin->tokens, grain, q);
}

static int32_t word_here(const struct view *v, int32_t id)
{
    return pp_word_here(v->part->first_word, v->part->n_words, id);
}

/* Reports whether an id is a token, and notes one that is not. */
static bool is_token(struct view *v, int32_t id)
{
    bool is = id >= 0 && id < v->b->vocab;
    v->bad = is ? v->bad : id;
    return is;
}

enum { NO_TARGET = -1 };

static void score_row(struct view *v, int32_t row, int32_t target)
{
    struct pp_scored_rows *s = &v->mb->scored;
    v->b->scored_rows[s->n] = row;
    v->b->targets[s->n++] = target;
}

/* Writes what row `at`, of position t of the bin, has for multi-token
 * prediction. */
static bool look_ahead(struct view *v, int32_t t, int32_t real_end, int32_t at)
{
    struct pp_scored_rows *s = &v->mb->ahead.scored;
    const int32_t *labels = v->bin->labels;
    v->b->next_ids[at] =
        t + 1 < real_end ? word_here(v, v->bin->input_ids[t + 1]) : -1;
    if (t + 2 >= real_end || labels[t + 2] == PP_LABEL_IGNORE)
        return true;
    v->b->ahead_rows[s->n] = at;
    v->b->ahead_targets[s->n++] = word_here(v, labels[t + 2]);
    return is_token(v, labels[t + 2]);
}

/* Writes the rows of the microbatch from `at` on. Returns false if an id is not
 * a token, as do the functions below. */
static bool view_rows(struct view *v, const struct rows *r, int32_t at)
{
    const struct pp_batch_part *part = v->part;
    const struct pp_bin *bin = v->bin;
    int32_t real_end = r->start + r->n;
    for (int32_t t = r->from; t < r->to; t++, at++) {
        bool is_real = t < real_end;
        v->b->positions[at] = is_real ? t - r->start : 0;
        v->b->input_ids[at] = is_real ? word_here(v, bin->input_ids[t]) : -1;
        if (is_real && !is_token(v, bin->input_ids[t]))
            return false;
        if (part->ahead && !look_ahead(v, t, real_end, at))
            return false;
        if (part->score_ends && t + 1 == real_end)
            score_row(v, at, NO_TARGET);
        if (part->score_ends || t + 1 >= real_end ||
            bin->labels[t + 1] == PP_LABEL_IGNORE)
            continue;
        int32_t target =
            part->score_all ? bin->input_ids[t + 1] : bin->labels[t + 1];
        if (!is_token(v, target))
            return false;
        score_row(v, at, word_here(v, target));
    }
    return true;
}

/* Appends the rows that have a next token but no label for it. */
static bool score_others(struct view *v)
{
    const struct pp_batch *b = v->b;
    const struct pp_bin *bin = v->bin;
    for (size_t i = 0; i < v->mb->n_sequences; i++) {
        int32_t of = b->sequence[i], start = bin->cu_seqlens_padded[of];
        int32_t n = bin->cu_seqlens[of + 1] - bin->cu_seqlens[of];
        int32_t first = b->cu_seqlens_padded[i];
        int32_t end = first + b->cu_seqlens[i + 1] - b->cu_seqlens[i];
        for (int32_t at = first; at < end; at++) {
            int32_t next = b->positions[at] + 1;
            if (next >= n || bin->labels[start + next] != PP_LABEL_IGNORE)
                continue;
            if (!is_token(v, bin->input_ids[start + next]))
                return false;
            score_row(v, at, word_here(v, bin->input_ids[start + next]));
        }
    }
    return true;
}

/* Appends a part of a sequence; it may be empty. Its keys are the keys of the
 * whole sequence up to its last row, from row first_key on. */
static bool view_part(struct view *v, const struct rows *r, int32_t first_key)
{
    struct pp_batch *b = v->b;
    if (r->from >= r->to)
        return true;
    int32_t real = larger(smaller(r->to, r->start + r->n) - r->from, 0);
    int32_t before = real > 0 ? r->from - r->start : 0;
    size_t at = v->mb->n_sequences++;
    int32_t row = b->cu_seqlens_padded[at];
    b->cu_seqlens[at + 1] = b->cu_seqlens[at] + real;
    b->cu_seqlens_padded[at + 1] = row + r->to - r->from;
    b->sequence[at] = (int32_t)r->sequence;
    b->keys[at] = (struct pp_attention_keys){first_key, before + real, before};
    return view_rows(v, r, row);
}

static struct rows sequence_of(const struct pp_bin *bin, uint32_t i)
{
    return (struct rows){.sequence = i,
                         .start = bin->cu_seqlens_padded[i],
                         .n = bin->cu_seqlens[i + 1] - bin->cu_seqlens[i],
                         .end = bin->cu_seqlens_padded[i + 1]};
}

/* The context-parallel ranks that share sequences. */
struct sharing {
    int32_t ranks, rank; /* of this rank, among them */
    int32_t of_rank;     /* rows of a rank, of the context too */
    int32_t key;         /* of the next sequence, among the rows of all */
    int32_t *order;      /* of the keys */
};

/* Lists where the ranks have the keys of a part of a sequence. */
static void list_keys(const struct rows *r, struct sharing *s)
{
    int32_t last = 2 * s->ranks - 1, length = (r->to - r->from) / (last + 1);
    int32_t first = s->key / s->ranks;
    for (int32_t chunk = 0; chunk <= last; chunk++) {
        bool low = chunk < s->ranks;
        int32_t rank = low ? chunk : last - chunk;
        int32_t from = rank * s->of_rank + first + (low ? 0 : length);
        for (int32_t t = 0; t < length; t++)
            s->order[s->key + chunk * length + t] = from + t;
    }
    s->key += r->to - r->from;
}

/* Returns the rows of sequence i that are in the slice; there may be none. */
static struct rows rows_in_slice(const struct view *v, uint32_t i)
{
    struct rows r = sequence_of(v->bin, i);
    r.from = larger(r.start, (int32_t)v->mb->slice.first_row);
    r.to = smaller(r.end, v->end);
    return r;
}

/* Appends what this rank has of the rows of sequence i that are in the slice:
 * its two chunks, or all of them. */
static bool view_sequence(struct view *v, uint32_t i, struct sharing *s)
{
    const struct rows all = rows_in_slice(v, i);
    int32_t last = 2 * s->ranks - 1, length = (all.to - all.from) / (last + 1);
    /* The keys of the context come before the keys of the slice. */
    bool continues = all.from > all.start;
    int32_t first_key =
        s->key - (continues ? (int32_t)v->mb->slice.context : 0);
    if (all.from >= all.to)
        return true;
    if (s->ranks == 1) {
        s->key += all.to - all.from;
        return view_part(v, &all, first_key);
    }
    const int32_t chunks[] = {s->rank, last - s->rank};
    for (int k = 0; k < 2; k++) {
        struct rows r = all;
        r.from = all.from + chunks[k] * length;
        r.to = r.from + length;
        if (!view_part(v, &r, first_key))
            return false;
    }
    list_keys(&all, s);
    return true;
}

/* Room for the arrays of spans: behind the rows of a rank, which are at most
 * half of the rows that the arrays of a microbatch have room for. A span has
 * fewer bounds than rows. */
struct span_arrays {
    int32_t *cu, *cu_padded, *whole_cu, *whole_cu_padded;
    int32_t *order;
};

/* Takes room for the span's arrays, and fills its bounds. Its parts begin at
 * first_part. */
static void take_bounds(const struct pp_batch *b, struct span_arrays *at,
                        size_t first_part, struct pp_cp_span *s)
{
    size_t n = s->n_sequences;
    for (size_t i = 0; i <= n; i++) {
        size_t k = first_part + i;
        at->cu[i] = b->cu_seqlens[k] - b->cu_seqlens[first_part];
        at->cu_padded[i] =
            b->cu_seqlens_padded[k] - b->cu_seqlens_padded[first_part];
    }
    s->cu_seqlens = at->cu;
    s->cu_seqlens_padded = at->cu_padded;
    s->keys.whole_cu = at->whole_cu;
    s->keys.whole_cu_padded = at->whole_cu_padded;
    s->keys.of = s->ranks > 1 ? b->keys + first_part : NULL;
    s->keys.n = (size_t)s->ranks * s->tokens;
    s->keys.order = s->ranks > 1 ? at->order : NULL;
    at->cu += n + 1;
    at->cu_padded += n + 1;
    at->whole_cu += s->keys.n_whole + 1;
    at->whole_cu_padded += s->keys.n_whole + 1;
    at->order += s->ranks > 1 ? s->keys.n : 0;
}

/* Adds the bounds of a part of a sequence on all ranks. */
static void add_whole(const struct rows *r, int32_t *cu, int32_t *cu_padded,
                      size_t *n)
{
    size_t k = (*n)++;
    cu[k + 1] = cu[k] + larger(smaller(r->to, r->start + r->n) - r->from, 0);
    cu_padded[k + 1] = cu_padded[k] + r->to - r->from;
}

/* Appends the sequences [first, end) of the bin, which are on as many ranks
 * each, as a span. */
static bool view_span(struct view *v, uint32_t first, uint32_t end,
                      struct span_arrays *at)
{
    const struct pp_bin *bin = v->bin;
    int n = bin->ranks[first].n, rank = v->part->rank;
    size_t first_part = v->mb->n_sequences;
    struct pp_cp_span s = {.ranks = n,
                           .first = rank / n * n,
                           .first_row =
                               (size_t)v->b->cu_seqlens_padded[first_part]};
    for (uint32_t i = first; i < end; i++) {
        const struct rows r = sequence_of(bin, i);
        if (pp_range_has(bin->ranks[i], rank))
            s.tokens += (size_t)((r.end - r.start) / n);
    }
    struct sharing of = {n, rank - s.first, (int32_t)s.tokens, 0, at->order};
    at->whole_cu[0] = at->whole_cu_padded[0] = 0;
    for (uint32_t i = first; i < end; i++) {
        if (!pp_range_has(bin->ranks[i], rank))
            continue;
        const struct rows r = rows_in_slice(v, i);
        add_whole(&r, at->whole_cu, at->whole_cu_padded, &s.keys.n_whole);
        if (!view_sequence(v, i, &of))
            return false;
    }
    s.n_sequences = v->mb->n_sequences - first_part;
    if (!s.n_sequences)
        return true;
    take_bounds(v->b, at, first_part, &s);
    v->b->spans[v->mb->n_spans++] = s;
    return true;
}

/* Appends all spans of a bin. Sequences on more ranks come first. */
static bool view_spans(struct view *v)
{
    const struct pp_batch *b = v->b;
    const struct pp_bin *bin = v->bin;
    size_t n = v->mb->tokens;
    struct span_arrays at = {b->positions + n, b->input_ids + n,
                             b->scored_rows + n, b->targets + n, b->order};
    for (uint32_t i = 0, end; i < bin->n_sequences; i = end) {
        for (end = i;
             end < bin->n_sequences && bin->ranks[end].n == bin->ranks[i].n;)
            end++;
        if (!view_span(v, i, end, &at))
            return false;
    }
    return true;
}

/* Finds the tokens of earlier slices in the sequence that continues in the
 * slice, and lists where ranks have their keys. */
static void view_context(struct view *v, struct sharing *s)
{
    const struct pp_batch_part *part = v->part;
    struct pp_slice *slice = &v->mb->slice;
    struct rows r = {0};
    for (uint32_t i = 0; i < v->bin->n_sequences && !slice->context; i++) {
        r = rows_in_slice(v, i);
        if (r.from > r.start && r.from < smaller(r.to, r.start + r.n))
            slice->context = (size_t)(r.from - r.start);
    }
    v->mb->keys.n += slice->context;
    s->of_rank = (int32_t)v->mb->keys.n / s->ranks;
    for (int q = 0; q < part->slice && slice->context && s->ranks > 1; q++) {
        r.from = larger(r.start, slice_begin(v, q));
        r.to = slice_begin(v, q + 1);
        if (r.from < r.to)
            list_keys(&r, s);
    }
    s->key = (int32_t)slice->context;
}

/* Appends the rows of a rank that shares all sequences, or has all of them. */
static bool view_shared(struct view *v)
{
    struct pp_batch *b = v->b;
    struct pp_key_rows *k = &v->mb->keys;
    struct sharing s = {.ranks = larger(v->part->n_ranks, 1),
                        .rank = v->part->rank,
                        .order = b->order};
    /* As for spans: behind the rows of a rank. */
    int32_t *cu = b->scored_rows + v->mb->tokens;
    int32_t *cu_padded = b->targets + v->mb->tokens;
    bool divided = s.ranks > 1;
    k->n = (size_t)v->end - v->mb->slice.first_row;
    view_context(v, &s);
    if (divided)
        cu[0] = cu_padded[0] = 0;
    for (uint32_t i = 0; i < v->bin->n_sequences; i++) {
        const struct rows r = rows_in_slice(v, i);
        if (divided && r.from < r.to)
            add_whole(&r, cu, cu_padded, &k->n_whole);
        if (!view_sequence(v, i, &s))
            return false;
    }
    k->of = b->keys;
    k->order = divided ? b->order : NULL;
    k->whole_cu = cu;
    k->whole_cu_padded = cu_padded;
    return true;
}

/* Returns a microbatch without rows, whose arrays are b's. */
static struct pp_microbatch empty_view(const struct view *of)
{
    const struct pp_batch *b = of->b;
    const struct pp_bin *v = of->bin;
    const struct pp_batch_part *part = of->part;
    size_t first = (size_t)slice_begin(of, part->slice);
    return (struct pp_microbatch){
        .tokens = part->slices.n > 1 ? ((size_t)of->end - first) /
                                           (size_t)larger(part->n_ranks, 1)
                  : part->n_ranks > 1
                      ? pp_bin_rank_tokens(v, part->n_ranks, part->rank)
                      : v->tokens,
        .cu_seqlens = b->cu_seqlens,
        .cu_seqlens_padded = b->cu_seqlens_padded,
        .positions = b->positions,
        .input_ids = b->input_ids,
        .sequence = b->sequence,
        .scored = {.rows = b->scored_rows,
                   .targets = b->targets,
                   .predicts = part->score_ends ? 0 : 1},
        .ahead = {.next_ids = b->next_ids,
                  .scored = {.rows = b->ahead_rows,
                             .targets = b->ahead_targets}},
        .slice = {.first_row = first,
                  .real = part->slices.n > 1 && v->n_sequences
                              ? (size_t)v->cu_seqlens[v->n_sequences]
                              : 0,
                  .n_before = (size_t)part->slice,
                  .continues = part->slice + 1 < part->slices.n},
    };
}

int pp_batch_view_bin(struct pp_batch *b, const struct pp_bin *bin, bool sized,
                      const struct pp_batch_part *part,
                      struct pp_host_microbatch *host, struct pp_err *err)
{
    struct pp_microbatch *mb = &host->of;
    struct view v = {b, bin, part, mb, .bad = 0};
    bool divided = part->n_ranks > 1;
    sized &= divided;
    v.end = slice_begin(&v, part->slice + 1);
    *mb = empty_view(&v);
    mb->spans = sized ? b->spans : NULL;
    bool good = sized ? view_spans(&v) : view_shared(&v);
    mb->scored.n_labelled = mb->scored.n;
    if (good && part->score_all && !part->score_ends)
        good = score_others(&v);
    if (!good)
        return pp_fail(err, PP_EXIT_INPUT,
                       "packed data: bin %zu: id '%d' is not in the vocabulary "
                       "of %d",
                       part->bin, v.bad, b->vocab);
    /* Whole sequences of one rank have their keys in their own rows. */
    if (!divided && part->slices.n == 1)
        mb->keys = (struct pp_key_rows){0};
    if (sized)
        mb->keys =
            (struct pp_key_rows){.n_whole = bin->n_sequences,
                                 .whole_cu = bin->cu_seqlens,
                                 .whole_cu_padded = bin->cu_seqlens_padded};
    return 0;
}

int pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                  const struct pp_batch_part *part,
                  struct pp_host_microbatch *host, struct pp_err *err)
{
    struct pp_bin v = {0};
    if (part->bin != PP_NO_BIN && part->generator)
        pp_packed_generator_bin(p, part->bin, &v);
    else if (part->bin != PP_NO_BIN)
        pp_packed_bin(p, part->bin, &v);
    return pp_batch_view_bin(b, &v, p->cp > 0, part, host, err);
}

/* Sends the keys of n_sequences. */
static void send_keys(struct pp_batch *b, struct pp_key_rows *k,
                      size_t n_sequences)
{
    const int32_t *keys = (const int32_t *)k->of;
    const struct pp_sent_array arrays[] = {
        {&keys, keys ? 3 * n_sequences : 0},
        {&k->order, k->order ? k->n : 0},
        {&k->whole_cu, k->n_whole ? k->n_whole + 1 : 0},
        {&k->whole_cu_padded, k->n_whole ? k->n_whole + 1 : 0},
    };
    pp_sent_add(&b->sent, arrays, sizeof arrays / sizeof *arrays);
    k->of = (const struct pp_attention_keys *)keys;
}

/* Sends the arrays of a span, which the host does not read. */
static void send_span(struct pp_batch *b, struct pp_cp_span *s)
{
    const struct pp_sent_array arrays[] = {
        {&s->cu_seqlens, s->n_sequences + 1},
        {&s->cu_seqlens_padded, s->n_sequences + 1},
    };
    pp_sent_add(&b->sent, arrays, sizeof arrays / sizeof *arrays);
    send_keys(b, &s->keys, s->n_sequences);
}

int pp_batch_send(struct pp_batch *b, const struct pp_host_microbatch *host,
                  struct pp_microbatch *mb, struct pp_err *err)
{
    *mb = host->of;
    mb->host = host;
    const struct pp_sent_array arrays[] = {
        {&mb->cu_seqlens, mb->n_sequences + 1},
        {&mb->cu_seqlens_padded, mb->n_sequences + 1},
        {&mb->positions, mb->tokens},
        {&mb->input_ids, mb->tokens},
        {&mb->sequence, mb->keys.n_whole ? mb->n_sequences : 0},
        {&mb->scored.rows, mb->scored.n},
        {&mb->scored.targets, mb->scored.n},
        {&mb->ahead.next_ids, mb->ahead.next_ids ? mb->tokens : 0},
        {&mb->ahead.scored.rows, mb->ahead.scored.n},
        {&mb->ahead.scored.targets, mb->ahead.scored.n},
    };
    pp_sent_add(&b->sent, arrays, sizeof arrays / sizeof *arrays);
    send_keys(b, &mb->keys, mb->n_sequences);
    for (size_t i = 0; b->sent.there && i < mb->n_spans; i++)
        send_span(b, &b->spans[i]);
    return pp_sent_put(&b->sent, err);
}
