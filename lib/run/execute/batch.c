/* SPDX-License-Identifier: MIT */
/* batch - fills the arrays of a microbatch from a packed bin. */
#include "run/execute/batch.h"

#include <string.h>

#include "model/unit_bytes.h"

/* Arrays of a microbatch that a GPU's kernels read. */
#define N_SENT 10

int pp_batch_init(struct pp_batch *b, struct pp_device *d, size_t max_tokens,
                  size_t vocab, struct pp_err *err)
{
    bool is_host = pp_device_ops(d)->is_host;
    size_t n = max_tokens + 1;
    *b = (struct pp_batch){.vocab = (int32_t)vocab, .device = d};
    b->logps =
        pp_device_alloc(is_host ? d : NULL, 1, pp_batch_host_bytes(max_tokens),
                        "arrays of a microbatch", err);
    if (!b->logps)
        return -1;
    int32_t **arrays[] = {&b->positions, &b->input_ids,  &b->scored_rows,
                          &b->targets,   &b->cu_seqlens, &b->cu_seqlens_padded,
                          &b->ids,       &b->labels,     &b->sequence,
                          &b->order};
    int32_t *at = (int32_t *)(b->logps + n);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, at += n)
        *arrays[i] = at;
    b->keys = (struct pp_attention_keys *)at;
    if (is_host)
        return 0;
    size_t bytes = pp_batch_device_bytes(max_tokens);
    b->host_ids = pp_device_alloc(NULL, 1, bytes, "token ids", err);
    b->device_ids =
        b->host_ids ? pp_device_alloc(d, 1, bytes, "token ids", err) : NULL;
    return b->device_ids ? 0 : -1;
}

size_t pp_slice_room(const struct pp_env *env, int n_slices, size_t room)
{
    const struct pp_backend b = pp_env_backend(env);
    size_t n = (size_t)n_slices;
    size_t rows = pp_rank_rows(pp_env_mesh(env), &b, (room + n - 1) / n);
    return pp_env_ep(env) > 1 ? rows * pp_env_tp(env) : 0;
}

void pp_batch_finish(struct pp_batch *b)
{
    pp_device_free(NULL, b->logps);
    pp_device_free(NULL, b->host_ids);
    pp_device_free(b->device, b->device_ids);
    *b = (struct pp_batch){0};
}

static bool is_token(const struct pp_batch *b, int32_t id)
{
    return id >= 0 && id < b->vocab;
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

static int32_t word_here(const struct pp_batch_part *part, int32_t id)
{
    return pp_word_here(part->first_word, part->n_words, id);
}

enum { NO_TARGET = -1 };

static void score_row(struct pp_batch *b, struct pp_microbatch *mb, int32_t row,
                      int32_t target)
{
    b->scored_rows[mb->n_scored] = row;
    b->targets[mb->n_scored++] = target;
}

/* Writes the rows of mb from `at` on. Returns false, with the id in *bad, if an
 * id is not a token. */
static bool view_rows(struct pp_batch *b, const struct pp_bin *bin,
                      const struct rows *r, const struct pp_batch_part *part,
                      int32_t at, struct pp_microbatch *mb, int32_t *bad)
{
    int32_t real_end = r->start + r->n;
    for (int32_t t = r->from; t < r->to; t++, at++) {
        b->positions[at] = t < real_end ? t - r->start : 0;
        b->input_ids[at] =
            t < real_end ? word_here(part, bin->input_ids[t]) : -1;
        if (t < real_end && !is_token(b, *bad = bin->input_ids[t]))
            return false;
        if (part->score_ends && t + 1 == real_end)
            score_row(b, mb, at, NO_TARGET);
        if (part->score_ends || t + 1 >= real_end ||
            bin->labels[t + 1] == PP_LABEL_IGNORE)
            continue;
        int32_t target =
            part->score_all ? bin->input_ids[t + 1] : bin->labels[t + 1];
        if (!is_token(b, *bad = target))
            return false;
        score_row(b, mb, at, word_here(part, target));
    }
    return true;
}

/* Appends the rows that have a next token but no label for it. */
static bool score_others(struct pp_batch *b, const struct pp_bin *bin,
                         const struct pp_batch_part *part,
                         struct pp_microbatch *mb, int32_t *bad)
{
    for (size_t i = 0; i < mb->n_sequences; i++) {
        int32_t of = b->sequence[i], start = bin->cu_seqlens_padded[of];
        int32_t n = bin->cu_seqlens[of + 1] - bin->cu_seqlens[of];
        int32_t first = b->cu_seqlens_padded[i];
        int32_t end = first + b->cu_seqlens[i + 1] - b->cu_seqlens[i];
        for (int32_t at = first; at < end; at++) {
            int32_t next = b->positions[at] + 1;
            if (next >= n || bin->labels[start + next] != PP_LABEL_IGNORE)
                continue;
            if (!is_token(b, *bad = bin->input_ids[start + next]))
                return false;
            score_row(b, mb, at, word_here(part, *bad));
        }
    }
    return true;
}

static int fail_token(const struct pp_batch *b, size_t bin, int32_t bad,
                      struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "packed data: bin %zu: id '%d' is not in the vocabulary of "
                   "%d",
                   bin, bad, b->vocab);
}

/* Appends a part of a sequence; it may be empty. Its keys are those of the
 * whole sequence up to its last row, from row first_key on. */
static bool view_part(struct pp_batch *b, const struct pp_bin *bin,
                      const struct rows *r, const struct pp_batch_part *part,
                      int32_t first_key, struct pp_microbatch *mb, int32_t *bad)
{
    if (r->from >= r->to)
        return true;
    int32_t real = larger(smaller(r->to, r->start + r->n) - r->from, 0);
    int32_t before = real > 0 ? r->from - r->start : 0;
    size_t at = mb->n_sequences++;
    int32_t row = b->cu_seqlens_padded[at];
    b->cu_seqlens[at + 1] = b->cu_seqlens[at] + real;
    b->cu_seqlens_padded[at + 1] = row + r->to - r->from;
    b->sequence[at] = (int32_t)r->sequence;
    b->keys[at] = (struct pp_attention_keys){first_key, before + real, before};
    return view_rows(b, bin, r, part, row, mb, bad);
}

static struct rows sequence_of(const struct pp_bin *bin, uint32_t i)
{
    return (struct rows){.sequence = i,
                         .start = bin->cu_seqlens_padded[i],
                         .n = bin->cu_seqlens[i + 1] - bin->cu_seqlens[i],
                         .end = bin->cu_seqlens_padded[i + 1]};
}

/* Appends the rows of sequence i that are in the slice; there may be none. */
static bool view_slice(struct pp_batch *b, const struct pp_bin *bin, uint32_t i,
                       const struct pp_batch_part *part,
                       struct pp_microbatch *mb, int32_t *bad)
{
    int32_t first = (int32_t)mb->first_row, end = first + (int32_t)mb->tokens;
    struct rows r = sequence_of(bin, i);
    r.from = larger(r.start, first);
    r.to = smaller(r.end, end);
    if (r.from > r.start && r.from < smaller(r.to, r.start + r.n))
        mb->context = (size_t)(r.from - r.start);
    /* The keys of the context come before those of the slice. */
    int32_t row = b->cu_seqlens_padded[mb->n_sequences];
    int32_t key = mb->n_sequences ? row + (int32_t)mb->context : 0;
    return view_part(b, bin, &r, part, key, mb, bad);
}

/* Appends the two chunks of sequence i of a context-parallel rank, and lists
 * where the ranks have the keys of the sequence. */
static bool view_chunks(struct pp_batch *b, const struct pp_bin *bin,
                        uint32_t i, const struct pp_batch_part *part,
                        struct pp_microbatch *mb, int32_t *bad)
{
    struct rows r = sequence_of(bin, i);
    int32_t last = 2 * part->n_ranks - 1, start = r.start;
    int32_t length = (r.end - start) / (last + 1);
    const int32_t chunks[] = {part->rank, last - part->rank};
    for (int k = 0; k < 2; k++) {
        r.from = start + chunks[k] * length;
        r.to = r.from + length;
        if (!view_part(b, bin, &r, part, start, mb, bad))
            return false;
    }
    int32_t of_rank = (int32_t)mb->tokens, first = start / part->n_ranks;
    for (int32_t chunk = 0; chunk <= last; chunk++) {
        bool low = chunk < part->n_ranks;
        int32_t rank = low ? chunk : last - chunk;
        int32_t from = rank * of_rank + first + (low ? 0 : length);
        for (int32_t t = 0; t < length; t++)
            b->order[start + chunk * length + t] = from + t;
    }
    return true;
}

int pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                  const struct pp_batch_part *part, struct pp_microbatch *mb,
                  struct pp_err *err)
{
    struct pp_bin v = {0};
    if (part->bin != PP_NO_BIN)
        pp_packed_bin(p, part->bin, &v);
    if (part->bin != PP_NO_BIN && p->index_only) {
        pp_packed_tokens(p, part->bin, b->ids, b->labels);
        v.input_ids = b->ids;
        v.labels = b->labels;
    }
    int n = part->n_slices;
    size_t grain = part->grain ? part->grain : 1;
    size_t first = pp_slice_begin(v.tokens, grain, part->slice, n);
    size_t end = pp_slice_begin(v.tokens, grain, part->slice + 1, n);
    int32_t bad;
    *mb = (struct pp_microbatch){
        .tokens =
            part->n_ranks > 1 ? v.tokens / (size_t)part->n_ranks : end - first,
        .cu_seqlens = b->cu_seqlens,
        .cu_seqlens_padded = b->cu_seqlens_padded,
        .positions = b->positions,
        .input_ids = b->input_ids,
        .scored_rows = b->scored_rows,
        .targets = b->targets,
        .predicts = part->score_ends ? 0 : 1,
        .sequence = b->sequence,
        .first_row = first,
        .n_before = (size_t)part->slice,
        .continues = part->slice + 1 < part->n_slices,
    };
    for (uint32_t i = 0; i < v.n_sequences; i++)
        if (part->n_ranks > 1 ? !view_chunks(b, &v, i, part, mb, &bad)
                              : !view_slice(b, &v, i, part, mb, &bad))
            return fail_token(b, part->bin, bad, err);
    mb->n_labelled = mb->n_scored;
    if (part->score_all && !part->score_ends &&
        !score_others(b, &v, part, mb, &bad))
        return fail_token(b, part->bin, bad, err);
    if (part->n_ranks > 1 || part->n_slices > 1) {
        mb->keys = b->keys;
        mb->key_rows = part->n_ranks > 1 ? v.tokens : mb->tokens + mb->context;
        mb->order = part->n_ranks > 1 ? b->order : NULL;
        mb->n_whole = part->n_ranks > 1 ? v.n_sequences : 0;
        mb->whole_cu = v.cu_seqlens;
        mb->whole_cu_padded = v.cu_seqlens_padded;
    }
    return 0;
}

int pp_batch_send(struct pp_batch *b, struct pp_microbatch *mb,
                  struct pp_err *err)
{
    const int32_t *keys = (const int32_t *)mb->keys;
    const struct {
        const int32_t **at;
        size_t n; /* integers */
    } arrays[N_SENT] = {
        {&mb->cu_seqlens, mb->n_sequences + 1},
        {&mb->cu_seqlens_padded, mb->n_sequences + 1},
        {&mb->positions, mb->tokens},
        {&mb->input_ids, mb->tokens},
        {&mb->scored_rows, mb->n_scored},
        {&mb->targets, mb->n_scored},
        {&keys, keys ? 3 * mb->n_sequences : 0},
        {&mb->order, mb->order ? mb->key_rows : 0},
        {&mb->whole_cu, mb->n_whole ? mb->n_whole + 1 : 0},
        {&mb->whole_cu_padded, mb->n_whole ? mb->n_whole + 1 : 0},
    };
    size_t used = 0;
    if (!b->device_ids)
        return 0;
    for (int i = 0; i < N_SENT; i++) {
        if (!arrays[i].n)
            continue;
        memcpy(b->host_ids + used, *arrays[i].at,
               arrays[i].n * sizeof **arrays[i].at);
        *arrays[i].at = b->device_ids + used;
        used += arrays[i].n;
    }
    mb->keys = (const struct pp_attention_keys *)keys;
    return b->device->ops->put(b->device, b->device_ids, b->host_ids,
                               used * sizeof *b->host_ids, err);
}
