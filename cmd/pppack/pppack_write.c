/* SPDX-License-Identifier: MIT */
/* pppack_write - writes the packed directory, its parts, the manifest and other
 * formats, and does --check. */
#include "pppack.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/num.h"
#include "data/packed.h"
#include "manifest/config_json.h"
#include "cost/stage_costs.h"
#include "model/vision.h"
#include "version.h"

static void show_written(void *ctx, size_t bins)
{
    struct pack_job *j = ctx;
    /* The tokens of these bins may leave memory. */
    pp_documents_release(&j->docs);
    tool_progress(&j->t, "writing: bin %zu of %zu", bins, j->bins.n_bins);
}

/* Returns DIR or DIR/PART, which the caller frees. */
static char *name_directory(const struct pack_job *j)
{
    size_t n = strlen(j->t.output) + (j->part ? strlen(j->part) : 0) + 2;
    char *s = malloc(n);
    if (s)
        snprintf(s, n, "%s%s%s", j->t.output, j->part ? "/" : "",
                 j->part ? j->part : "");
    return s;
}

int pack_write(struct pack_job *j)
{
    const struct pp_packed_content content = {
        .ids = j->docs.ids,
        .labels = j->docs.labels,
        .pieces = j->pieces.piece,
        .n_bins = j->bins.n_bins,
        .first = j->bins.first,
        .items = j->bins.items,
        .n_inputs = j->n_documents,
        .capacity = j->capacity,
        .align = j->align,
        .row_capacity = {pack_row_limit(j, PP_MODALITY_IMAGES),
                         pack_row_limit(j, PP_MODALITY_AUDIO)},
        .epoch = j->epoch,
        .docs = &j->docs,
        .first_document = j->first_document,
        .counts = j->pieces.counts,
        .ranks = j->ranks,
        .cp = (uint32_t)j->cp,
        .progress = show_written,
        .ctx = j,
    };
    if (j->bins.n_bins == 0 && j->n_documents > 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "there is nothing to pack: all '%zu' documents are "
                       "empty or too long, and dropped",
                       j->n_documents);
    if (j->bins.n_bins == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "there is nothing to pack");
    char *dir = name_directory(j);
    if (!dir)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_packed_write(dir, &content, &j->t.err);
    free(dir);
    return rc;
}

int pack_parse_shares(struct pack_job *j)
{
    double sum = 0;
    if (pp_parse_reals(j->parts_wanted, "--split", 0, 1e9, j->shares,
                       PACK_MAX_SHARES, &j->n_shares, &j->t.err))
        return -1;
    for (size_t i = 0; i < j->n_shares && i < PACK_MAX_SHARES; i++)
        sum += j->shares[i];
    if (j->n_shares > PACK_MAX_SHARES || sum <= 0)
        return tool_usage(
            &j->t,
            "--split: '%s' must be one to three positive numbers, such as "
            "98,1,1",
            j->parts_wanted);
    return 0;
}

/* Returns the first document of part k by Megatron's rule: the sum of the
 * earlier shares of 1, times the number of documents, rounded to even. */
static size_t part_boundary(const struct pack_job *j, size_t k)
{
    double whole = 0, sum = 0;
    for (size_t i = 0; i < j->n_shares; i++)
        whole += j->shares[i];
    for (size_t i = 0; i < k; i++)
        sum += j->shares[i] / whole;
    size_t at = (size_t)nearbyint(sum * (double)j->docs.n);
    return at < j->docs.n ? at : j->docs.n;
}

int pack_each_part(struct pack_job *j, int (*act)(struct pack_job *))
{
    static const char *const names[PACK_MAX_SHARES] = {"train", "valid",
                                                       "test"};
    if (pp_packed_is(j->t.output))
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: is a packed directory; --split needs a directory "
                       "for the parts",
                       j->t.output);
    if (mkdir(j->t.output, 0777) != 0 && errno != EEXIST)
        return pp_fail_errno(&j->t.err, "%s: cannot create", j->t.output);
    for (size_t k = 0; k < j->n_shares; k++) {
        j->part = names[k];
        j->first_document = part_boundary(j, k);
        j->n_documents = part_boundary(j, k + 1) - j->first_document;
        if (j->shares[k] > 0 && j->n_documents == 0)
            tool_say(&j->t, TOOL_NOTE,
                     "%s/%s: not written, since it has no documents",
                     j->t.output, j->part);
        if (j->n_documents == 0)
            continue;
        if (act(j) != 0)
            return -1;
        pp_bins_finish(&j->bins);
        pp_pieces_finish(&j->pieces);
    }
    return 0;
}

int pack_export(struct pack_job *j, const char *dir)
{
    struct pp_packed p;
    if (pp_packed_open(dir, &p, &j->t.err) != 0)
        return -1;
    const struct pp_packed_ranks ranks = {
        .cp = tool_given(&j->t, "cp") ? (uint32_t)j->cp : 0,
        .dp = tool_given(&j->t, "dp") ? (uint32_t)j->dp : 0,
    };
    int rc = pp_packed_check_files(&p, &j->t.err);
    if (rc == 0)
        rc = strcmp(j->export_to, "megatron")
                 ? pp_packed_export_safetensors(&p, &ranks, j->t.output,
                                                &j->t.err)
                 : pp_packed_export_megatron(&p, j->t.output, &j->t.err);
    pp_packed_finish(&p);
    return rc;
}

int pack_realign(struct pack_job *j)
{
    struct pp_packed p;
    if (!j->t.output)
        j->t.output = j->realign;
    if (pp_packed_open(j->realign, &p, &j->t.err) != 0)
        return -1;
    int rc = pack_choose_spill(j);
    if (rc == 0)
        rc = pp_packed_check_files(&p, &j->t.err);
    const struct pp_realignment o = {.align = j->align,
                                     .row = j->row,
                                     .spill = j->docs.spill,
                                     .spill_bytes = j->docs.spill_bytes};
    if (rc == 0 && pp_packed_realign(&p, &o, j->t.output, &j->t.err) != 0)
        rc = pp_fail_at(&j->t.err, "%s: ", j->realign);
    pp_packed_finish(&p);
    return rc == 0 ? pack_report(j, j->t.output, false) : -1;
}

int pack_check(struct pack_job *j)
{
    struct pp_packed p;
    if (pp_packed_open(j->check, &p, &j->t.err) != 0)
        return -1;
    int rc = pp_packed_check(&p, &j->t.err);
    if (rc == 0)
        tool_say(&j->t, TOOL_DETAIL, "%s: %zu bins, consistent", j->check,
                 p.n_bins);
    pp_packed_finish(&p);
    return rc;
}

/* --manifest: the plan that the data are for. Costs, data-parallel ranks and
 * microbatches are taken from it, and the data section is added to it. */

static bool is_stream(const struct pack_job *j)
{
    return !strcmp(j->manifest_name, "-");
}

/* Returns what a row of an encoder costs. */
static double cost_of_item_row(const struct pp_manifest *m, size_t encoder)
{
    const struct pp_plan_items items =
        pp_plan_items(pp_manifest_plan(m), encoder);
    struct pp_plan_model units = m->model;
    double rows = (double)items.n * (double)items.rows;
    double length = (double)m->microbatch.seq_len, per_token, per_pair;
    units.units += m->components[encoder].first_unit;
    units.n_units = m->components[encoder].n_units;
    pp_model_cost(&units, &per_token, &per_pair);
    return rows > 0 ? length * (per_token + per_pair * (length + 1) / 2) / rows
                    : 0;
}

/* Finds what a token, a pair and a row of each encoder cost. Tokens are those
 * of the language model, and of a generator behind it. */
static void find_costs(struct pack_job *j)
{
    const struct pp_manifest *m = &j->manifest;
    struct pp_plan_model language = m->model;
    size_t n = pp_plan_encoders(pp_manifest_plan(m));
    size_t first =
        n ? m->components[pp_plan_language(pp_manifest_plan(m))].first_unit : 0;
    language.units += first;
    language.n_units -= first;
    pp_model_cost(&language, &j->per_token, &j->per_pair);
    for (int k = 0; k < PP_N_MODALITIES; k++) {
        enum pp_modality of = (enum pp_modality)k;
        for (size_t e = 0; e < n; e++)
            if (pp_plan_modality(pp_manifest_plan(m), e, of) == of)
                j->per_row[k] = cost_of_item_row(m, e);
        if (tool_given(&j->t, "patch-cost"))
            j->per_row[k] = j->patch_cost * j->per_token;
    }
}

/* Takes missing settings from the mesh and the schedule. */
static int take_defaults(struct pack_job *j)
{
    const struct pp_manifest *m = &j->manifest;
    if (j->dp == 0)
        j->dp = m->mesh.dp;
    if (j->balance == PACK_BALANCE_NONE || j->parts)
        return 0;
    if (j->bins_multiple == 1 && m->has_schedule)
        j->bins_multiple = j->dp * m->schedule.n_microbatches;
    if (j->balance != PACK_BALANCE_FLOPS)
        return 0;
    find_costs(j);
    if (j->per_token > 0 || j->per_pair > 0)
        return 0;
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "%s: the units have no fwd_flops, which --balance flops "
                   "needs; make the plan with ppsplit",
                   j->manifest_name);
}

int pack_manifest_read(struct pack_job *j)
{
    struct pp_err *err = &j->t.err;
    if (j->manifest_name) {
        FILE *f = is_stream(j) ? stdin : fopen(j->manifest_name, "re");
        if (!f)
            return pp_fail(err, PP_EXIT_INPUT, "%s: %s", j->manifest_name,
                           strerror(errno));
        int rc = pp_manifest_read(
            f, is_stream(j) ? "standard input" : j->manifest_name, &j->manifest,
            err);
        if (!is_stream(j))
            fclose(f);
        if (rc != 0 || take_defaults(j) != 0)
            return -1;
    }
    if (j->dp == 0)
        j->dp = 1;
    /* Each data-parallel rank gets the same number of bins. */
    if (j->balance != PACK_BALANCE_NONE && j->bins_multiple == 1 && !j->parts)
        j->bins_multiple = j->dp;
    return 0;
}

/* Fails if the model cannot take the items of a modality. */
static int check_items(struct pack_job *j, const struct pp_model *model,
                       enum pp_modality m)
{
    const struct pp_items *items = &j->docs.items[m];
    const struct pp_item_kind *kind = &items->kind;
    struct pp_image_set set = {.n = items->n,
                               .modality = m,
                               .token = kind->token,
                               .patch_inputs = kind->width,
                               .merge = pp_modality_rows(m, kind->merge),
                               .class_out = kind->class_out};
    for (size_t i = 0; i < items->n; i++) {
        const struct pp_item *at = &items->at[i];
        set.n_patches += at->rows;
        if (at->rows > set.max_image)
            set.max_image = at->rows;
        if (at->grid.frames > set.max_frames)
            set.max_frames = at->grid.frames;
    }
    return pp_vision_check_images(model, &set, &j->t.err);
}

int pack_check_streams(struct pack_job *j)
{
    if (!j->docs.items[PP_MODALITY_IMAGES].n ||
        !j->docs.items[PP_MODALITY_AUDIO].n ||
        pp_plan_encoders(pp_manifest_plan(&j->manifest)) == PP_MAX_ENCODERS)
        return 0;
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "%s: the documents have images and audio, but the plan does "
                   "not have an encoder for each",
                   j->manifest_name);
}

int pack_check_images(struct pack_job *j)
{
    struct pp_model model;
    if (!pp_documents_have_items(&j->docs))
        return 0;
    int rc = pp_model_read(j->manifest.model.source, &model, &j->t.err);
    for (int m = 0; m < PP_N_MODALITIES && rc == 0; m++)
        rc = check_items(j, &model, (enum pp_modality)m);
    return rc ? pp_fail_at(&j->t.err, "%s: ", j->manifest_name) : 0;
}

/* Returns the modality of an encoder in packed data. */
static enum pp_modality modality_of(const struct pack_job *j,
                                    const struct pp_packed *p, size_t encoder)
{
    return pp_plan_modality(pp_manifest_plan(&j->manifest), encoder,
                            pp_packed_modality(p));
}

/* Returns the most rows that a rank of an encoder gets, or 0 if all items have
 * one size. */
static uint32_t most_rows(const struct pack_job *j, const struct pp_packed *p,
                          size_t encoder)
{
    const struct pp_layout l = pp_manifest_layout(&j->manifest);
    size_t lanes, makers = pp_layout_makers(&l, encoder, &lanes);
    return pp_plan_merge_any(pp_manifest_plan(&j->manifest), encoder)
               ? pp_items_most(p, modality_of(j, p, encoder), makers, lanes)
               : 0;
}

static int set_data(struct pack_job *j)
{
    struct pp_packed p;
    if (pp_packed_open(j->t.output, &p, &j->t.err) != 0)
        return -1;
    struct pp_manifest_data data = {
        .path = j->t.output,
        .checksum = p.checksum,
        .n_bins = p.n_bins,
        .n_sequences = p.n_sequences,
        .capacity = p.capacity,
        .align = p.align,
        .max_tokens = pp_packed_room(&p, j->manifest.mesh.cp),
        .max_images = p.streams[modality_of(j, &p, 0)].max_items,
        .max_patches = most_rows(j, &p, 0)};
    if (pp_plan_encoders(pp_manifest_plan(&j->manifest)) > 1) {
        data.max_clips = p.streams[modality_of(j, &p, 1)].max_items;
        data.max_clip_rows = most_rows(j, &p, 1);
    }
    int rc = pp_manifest_set_data(&j->manifest, &data, &j->t.err);
    pp_packed_finish(&p);
    return rc;
}

static int replace_manifest(struct pack_job *j)
{
    FILE *f = tool_open(&j->t, j->manifest_name);
    return f && pp_manifest_write(&j->manifest, f, &j->t.err) == 0
               ? tool_close(&j->t, f)
               : -1;
}

int pack_manifest_write(struct pack_job *j, int argc, char **argv)
{
    struct pp_err *err = &j->t.err;
    if (set_data(j) != 0)
        return -1;
    char *args = tool_command(argc, argv);
    if (!args)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc =
        pp_manifest_add_history(&j->manifest, "pppack", PP_VERSION, args, err);
    free(args);
    if (rc != 0)
        return -1;
    return is_stream(j) ? pp_manifest_write(&j->manifest, stdout, err)
                        : replace_manifest(j);
}
