/* SPDX-License-Identifier: MIT */
/* data - opens the packed data of a run, and checks that it is for the
 * model and the objective. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cost/step.h"
#include "data/readers.h"
#include "runner/runner.h"
#include "run/checkpoint/files.h"
#include "run/execute/image_batch.h"

int runner_match_data(const struct runner *p)
{
    const struct pp_plan_data *d = &p->manifest.data;
    const char *dir = p->options.data ? p->options.data : d->path;
    const struct pp_plan_data is =
        pp_plan_data_of(pp_manifest_plan(&p->manifest), &p->data, dir);
    const struct {
        const char *name;
        uint64_t planned, found;
    } sizes[] = {
        {"n_bins", d->n_bins, is.n_bins},
        {"capacity", d->capacity, is.capacity},
        {"max_tokens", d->max_tokens, is.max_tokens},
        {"max_images", d->items[0].n, is.items[0].n},
        {"max_patches", d->items[0].rows, is.items[0].rows},
        {"max_clips", d->items[1].n, is.items[1].n},
        {"max_clip_rows", d->items[1].rows, is.items[1].rows},
    };
    struct pp_err *err = &p->tool->err;
    if (!p->manifest.has_data)
        return 0;
    if (p->data.checksum != d->checksum)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: is not the data that the manifest was made for; "
                       "run ppsched --data again",
                       dir);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].planned != sizes[i].found)
            return pp_fail(err, PP_EXIT_INPUT,
                           "/data/%s: '%" PRIu64 "', but '%s' has %" PRIu64
                           "; run ppsched --data again",
                           sizes[i].name, sizes[i].planned, dir,
                           sizes[i].found);
    return 0;
}

/* Returns whether the model's directory has a tokenizer. */
static bool has_tokenizer(const char *source)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "vocab.json"};
    char path[PP_PATH_TEXT];
    struct pp_err ignored = {0};
    const char *slash = strrchr(source, '/');
    int n = pp_file_is_dir(source) ? (int)strlen(source)
            : slash                ? (int)(slash - source)
                                   : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (pp_path(path, &ignored, "%.*s/%s", n ? n : 1, n ? source : ".",
                    names[i]) == 0 &&
            pp_file_exists(path))
            return true;
    return false;
}

/* Refuses data of another kind than the objective's. */
static int check_kind(const struct runner *p, const char *dir,
                      enum pp_data_kind kind)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_objective *o =
        pp_objectives[p->job.settings.objective.number];
    if (kind == o->kind || o->any_kind)
        return 0;
    if (p->job.objective)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: holds %s, and --objective %s "
                       "needs %s",
                       dir, pp_data_kinds[kind], o->name,
                       pp_data_kinds[o->kind]);
    if (kind == PP_DATA_PAIRS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: holds preference pairs, and --objective sft would "
                       "train on the rejected answers too; pack the chosen "
                       "ones as documents",
                       dir);
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: holds rollouts, and --objective sft would train on bad "
                   "ones too; pack the good ones as documents",
                   dir);
}

static unsigned columns_of(const struct pp_packed *data)
{
    struct pp_bin b;
    unsigned bits = 0;
    pp_packed_bin(data, 0, &b);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        bits |= b.columns[c] ? pp_column_bit((enum pp_column)c) : 0;
    return bits;
}

unsigned runner_columns(const struct runner *p, const struct pp_packed *data)
{
    return columns_of(data) | (p->job.reference == PP_REFERENCE_BASE
                                   ? pp_column_bit(PP_COLUMN_REF_LOGPROBS)
                                   : 0);
}

/* Refuses a column that the base computes. */
static int check_given(const struct runner *p, const char *dir,
                       const struct pp_packed *data)
{
    static const enum pp_column both[] = {PP_COLUMN_REF_LOGPROBS,
                                          PP_COLUMN_REF_LOGPS};
    for (int i = 0; p->job.reference == PP_REFERENCE_BASE && i < 2; i++)
        if (columns_of(data) & pp_column_bit(both[i]))
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "%s: has the column %s; run without --reference "
                           "base",
                           dir, pp_columns[both[i]].name);
    return 0;
}

/* Refuses data without a column. ppscore writes log-probabilities. */
static int fail_column(const struct runner *p, const char *dir,
                       const struct pp_packed *data, enum pp_column c)
{
    struct pp_err *err = &p->tool->err;
    const char *objective =
        pp_objective_names[p->job.settings.objective.number];
    const char *name = pp_columns[c].name;
    if (c == PP_COLUMN_ADVANTAGES)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: --objective %s needs the column %s: pppack -l %u "
                       "--advantages leave-one-out -o NEW %s makes it from "
                       "rewards",
                       dir, objective, name, data->capacity, dir);
    if (pp_columns[c].is_list)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: --objective %s needs the column %s: write FILE "
                       "with ppscore --top-k and the teacher's "
                       "weights, then pppack -l %u --add-column topk=FILE -o "
                       "NEW %s",
                       dir, objective, name, data->capacity, dir);
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: --objective %s needs the column %s: write FILE with "
                   "ppscore --logprobs, then pppack -l %u --add-column %s=FILE "
                   "-o NEW %s",
                   dir, objective, name, data->capacity, name, dir);
}

/* Checks that every last stage goes through all slices of a microbatch before
 * the next one: an objective scores whole microbatches. */
static int check_slices(const struct runner *p)
{
    const struct pp_schedule *s = &p->manifest.schedule;
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_action before = {.slice = (int16_t)(s->graph->slices.n - 1)};
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.op != PP_F || s->graph->stages[a.stage].n_outputs > 0)
                continue;
            if (a.slice == 0 ? before.slice + 1 < s->graph->slices.n
                             : a.microbatch != before.microbatch)
                return pp_fail(
                    &p->tool->err, PP_EXIT_INPUT,
                    "--objective %s needs a schedule whose last "
                    "stage goes through all slices of microbatch "
                    "%d before it begins microbatch %d",
                    pp_objective_names[p->job.settings.objective.number],
                    (int)before.microbatch, (int)a.microbatch);
            before = a;
        }
    }
    return 0;
}

/* Checks that no sequence is in pieces: a reward is one number. */
static int check_whole(const struct runner *p, const char *dir,
                       const struct pp_packed *data)
{
    for (size_t i = 0; data->kind == PP_DATA_DOCUMENTS && i < data->n_bins;
         i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        for (uint32_t s = 0; s < b.n_sequences; s++)
            if (b.start[s] > 0)
                return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                               "%s: sequence '%u' is in pieces, but has one "
                               "reward; pack with a larger -l",
                               dir, (unsigned)b.source[s]);
    }
    return 0;
}

/* Checks that the data has the columns of the objective, and that every bin has
 * whole pairs. */
static int check_objective(const struct runner *p, const char *dir,
                           const struct pp_packed *data)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_objective_options *o = &p->job.settings.objective;
    unsigned needs = pp_objective_needs(o), there = runner_columns(p, data);
    if (p->job.score)
        return p->model.scores ? check_whole(p, dir, data) : 0;
    if (check_kind(p, dir, data->kind) || check_given(p, dir, data))
        return -1;
    if (o->number == PP_OBJECTIVE_DPO && !o->reference_free &&
        !(there & pp_column_bit(PP_COLUMN_REF_LOGPS)))
        needs |= pp_column_bit(PP_COLUMN_REF_LOGPROBS);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (needs & ~there & pp_column_bit((enum pp_column)c))
            return fail_column(p, dir, data, (enum pp_column)c);
    for (size_t i = 0; pp_objective_in_pairs(o) && i < data->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        if (b.n_sequences != 2 * b.n_groups)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: bin %zu has a pair that is not whole", dir, i);
    }
    return p->job.objective ? check_slices(p) : 0;
}

/* Refuses bytes for a model whose vocabulary has other tokens. */
static int check_bytes(const struct runner *p, const char *dir,
                       const struct pp_packed *data)
{
    const char *source = p->manifest.model.source;
    if (!data->bytes || !has_tokenizer(source))
        return 0;
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "%s: holds bytes, but '%s' has a vocabulary of its own; "
                   "use scripts/tokenize and pack without --bytes",
                   dir, source);
}

/* Checks the ranks of sequences that have some of their own. One rank takes all
 * of them. */
static int check_ranges(const struct runner *p, const char *dir,
                        const struct pp_packed *data)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    struct pp_err *err = &p->tool->err;
    if (!data->cp || x->cp == 1 || p->job.generate.n)
        return 0;
    if (pp_packed_check_mesh(data, x->cp, err))
        return pp_fail_at(err, "%s: ", dir);
    if (p->manifest.graph.slices.n > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: sequences with ranks of their own are not divided "
                       "into slices; pack with pppack --cp-sizes fixed",
                       dir);
    if (pp_mesh_is_exact(x))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: sequences with ranks of their own cannot be exact "
                       "('cp_exact' of the mesh); pack with pppack --cp-sizes "
                       "fixed",
                       dir);
    return 0;
}

enum { PADDING_TEXT = 64 };

/* Returns the options of pppack that pad for the mesh, in text. */
static const char *padding_of(const struct runner *p, char text[PADDING_TEXT])
{
    const struct pp_mesh *x = &p->manifest.mesh;
    int n = 0;
    text[0] = '\0';
    if (x->cp > 1)
        n = snprintf(text, PADDING_TEXT, " --cp %d", x->cp);
    if (x->tp > 1)
        snprintf(text + n, PADDING_TEXT - (size_t)n, " --tp %d", x->tp);
    return text;
}

/* Checks that context-parallel ranks can divide every sequence. */
static int check_chunks(const struct runner *p, const char *dir,
                        const struct pp_packed *data)
{
    int cp = p->manifest.mesh.cp;
    char args[PADDING_TEXT];
    for (size_t i = 0; cp > 1 && i < data->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        for (uint32_t s = 0; s < b.n_sequences; s++)
            if (b.cu_seqlens_padded[s + 1] % (2 * cp))
                return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                               "%s: bin %zu: the padded length of sequence %u "
                               "is not a multiple of 2 x cp = %d; pad it anew "
                               "with pppack --realign %s%s",
                               dir, i, s, 2 * cp, dir, padding_of(p, args));
    }
    return 0;
}

/* Returns the tokens of the longest sequence, without padding, and where it is,
 * if they are more than `most`; otherwise 0. */
static size_t find_longer(const struct pp_packed *data, size_t most,
                          size_t *bin, uint32_t *sequence)
{
    size_t longest = 0;
    for (size_t i = 0; data->max_seqlen > most && i < data->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        for (uint32_t s = 0; s < b.n_sequences; s++) {
            size_t n = (size_t)(b.cu_seqlens[s + 1] - b.cu_seqlens[s]);
            if (n <= most || n <= longest)
                continue;
            longest = n;
            *bin = i;
            *sequence = s;
        }
    }
    return longest;
}

/* Checks that the model has positions to the end of every sequence, and notes
 * that it was not made for so many. */
static int check_positions(const struct runner *p, const char *dir,
                           const struct pp_packed *data)
{
    size_t most = pp_model_longest(&p->model), bin, n;
    uint32_t sequence;
    if ((n = find_longer(data, most, &bin, &sequence)))
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "%s: bin %zu: sequence %u has '%zu' tokens, but the "
                       "model has %zu positions; pack with pppack -l %zu "
                       "--oversize split",
                       dir, bin, sequence, n, most, most);
    if ((n = find_longer(data, p->model.max_position, &bin, &sequence)))
        tool_say(p->tool, TOOL_NOTE,
                 "%s: sequences have up to %zu tokens, more than the model's "
                 "max_position_embeddings '%zu'",
                 dir, n, p->model.max_position);
    return 0;
}

/* Returns whether tensor-parallel ranks can divide the rows of each
 * context-parallel one. */
static bool rows_divide(const struct pp_mesh *x, const struct pp_bin *b)
{
    for (int k = 0; b->ranks && k < x->cp; k++)
        if (pp_bin_rank_tokens(b, x->cp, k) % (uint32_t)x->tp)
            return false;
    return true;
}

/* Checks that tensor-parallel ranks can divide the rows of every microbatch. */
static int check_rows(const struct runner *p, const char *dir,
                      const struct pp_packed *data)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    uint32_t sharers = (uint32_t)pp_mesh_sharers(x);
    char args[PADDING_TEXT];
    if (p->job.generate.n) /* it makes bins of its own */
        return 0;
    for (size_t i = 0; x->tp > 1 && i < data->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        if (b.tokens % sharers || !rows_divide(x, &b))
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "%s: bin %zu: its %u tokens, padding included, are "
                           "not a multiple of %s = %u; pad it anew with "
                           "pppack --realign %s%s",
                           dir, i, b.tokens, x->cp > 1 ? "cp x tp" : "tp",
                           sharers, dir, padding_of(p, args));
    }
    return 0;
}

/* Refuses data without a scored token, of the language model or a generator: no
 * objective learns from them. A reward model scores whole sequences. */
static int check_scored(const struct runner *p, const char *dir,
                        const struct pp_packed *data)
{
    bool scored = pp_packed_scored(data, false) ||
                  (p->model.generator && pp_packed_scored(data, true));
    return p->job.score || p->model.scores || scored
               ? 0
               : pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "%s: none of its '%" PRIu64
                         "' tokens is scored; look at the masks and labels "
                         "of the documents, or pack with a larger -l",
                         dir, data->n_tokens);
}

static int open_packed(struct runner *p, const char *dir, struct pp_packed *out)
{
    struct pp_err *err = &p->tool->err;
    if (pp_packed_open(dir, out, err))
        return -1;
    if (out->n_bins == 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: contains no sequences", dir);
    if (pp_images_check(&p->model, out, err))
        return pp_fail_at(err, "%s: ", dir);
    if (out->vocab > p->model.vocab)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: token id '%u' is not in the model's vocabulary of "
                       "%zu",
                       dir, out->vocab - 1, p->model.vocab);
    if (check_ranges(p, dir, out) || check_chunks(p, dir, out) ||
        check_rows(p, dir, out) || check_objective(p, dir, out) ||
        check_bytes(p, dir, out) || runner_check_generator_data(p, dir, out))
        return -1;
    return check_positions(p, dir, out) || check_scored(p, dir, out) ? -1 : 0;
}

int runner_open_data(struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    const struct runner_options *o = &p->options;
    const char *dir = o->data ? o->data : m->has_data ? m->data.path : o->eval;
    if (!dir && o->shrink && !p->job.objective && !p->model.generator)
        return 0; /* --shrink generates data */
    if (!dir)
        return tool_usage(p->tool, "no data: give --data DIR");
    if (open_packed(p, dir, &p->data))
        return -1;
    p->job.data = &p->data;
    if (p->hooks->data(p))
        return -1;
    if (!o->eval)
        return 0;
    p->job.eval = &p->eval;
    return open_packed(p, o->eval, &p->eval);
}

/* --- damage --- */

/* Data of this size are read in a second or less, before the first step. */
static const size_t small_bytes = (size_t)256 << 20;

int runner_check_data(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    struct pp_file_checks files = {0};
    int rc = pp_packed_list_files(&p->data, &files, err) ||
                     pp_packed_list_files(&p->eval, &files, err)
                 ? -1
                 : 0;
    if (rc == 0 &&
        (p->options.verify || pp_file_checks_bytes(&files) <= small_bytes))
        rc = pp_file_checks_run(&files, err);
    else if (rc == 0)
        rc = pp_background_check_start(&files, &p->check, err);
    pp_file_checks_finish(&files);
    return rc;
}

int runner_check_files(void *ctx, bool end, struct pp_err *err)
{
    struct runner *p = ctx;
    if (!p->check || (!end && !pp_background_check_failed(p->check)))
        return 0;
    return pp_background_check_wait(p->check, err);
}

void runner_blame_data(struct runner *p)
{
    struct pp_err damage = {0};
    if (p->tool->err.code == PP_EXIT_INPUT &&
        runner_check_files(p, true, &damage))
        p->tool->err = damage;
}
