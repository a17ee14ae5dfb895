/* SPDX-License-Identifier: MIT */
/* write - writes the packed directory, its parts, the manifest and other
 * formats, and does --check. */
#include "pppack.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "data/packed/packed.h"
#include "manifest/config_json.h"
#include "cost/step.h"
#include "model/vision.h"
#include "tool_manifest.h"

static void show_written(void *ctx, size_t bins)
{
    struct pack_job *j = ctx;
    /* The tokens of these bins may leave memory. */
    pp_documents_release(&j->in->docs);
    tool_progress(j->t, "writing: bin %zu of %zu", bins, j->bins.n_bins);
}

/* Returns DIR or DIR/PART, which the caller frees. */
static char *name_directory(const struct pack_job *j)
{
    size_t n = strlen(j->t->output) + (j->part ? strlen(j->part) : 0) + 2;
    char *s = pp_calloc(n, 1);
    snprintf(s, n, "%s%s%s", j->t->output, j->part ? "/" : "",
             j->part ? j->part : "");
    return s;
}

int pack_write(struct pack_job *j)
{
    const struct pp_packed_content content = {
        .ids = j->in->docs.ids,
        .labels = j->in->docs.labels,
        .pieces = j->pieces.piece,
        .n_bins = j->bins.n_bins,
        .first = j->bins.first,
        .items = j->bins.items,
        .n_inputs = j->n_documents,
        .capacity = j->capacity,
        .align = j->o->align,
        .row_capacity = {pack_row_limit(j->in, PP_MODALITY_IMAGES),
                         pack_row_limit(j->in, PP_MODALITY_AUDIO)},
        .epoch = j->epoch,
        .docs = &j->in->docs,
        .first_document = j->first_document,
        .counts = j->pieces.counts,
        .ranks = j->ranks,
        .cp = (uint32_t)j->o->mesh.cp,
        .progress = show_written,
        .ctx = j,
    };
    if (j->bins.n_bins == 0 && j->n_documents > 0)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "there is nothing to pack: all '%zu' documents are "
                       "empty or too long, and dropped",
                       j->n_documents);
    if (j->bins.n_bins == 0)
        return pp_fail(&j->t->err, PP_EXIT_INPUT, "there is nothing to pack");
    char *dir = name_directory(j);
    int rc = pp_packed_write(dir, &content, &j->t->err);
    free(dir);
    return rc;
}

/* Returns the first document of part k by Megatron's rule: the sum of the
 * earlier shares of 1, times the number of documents, rounded to even. */
static size_t part_boundary(const struct pack_job *j, size_t k)
{
    double whole = 0, sum = 0;
    for (size_t i = 0; i < j->o->n_shares; i++)
        whole += j->o->shares[i];
    for (size_t i = 0; i < k; i++)
        sum += j->o->shares[i] / whole;
    size_t at = (size_t)nearbyint(sum * (double)j->in->docs.n);
    return at < j->in->docs.n ? at : j->in->docs.n;
}

int pack_each_part(struct pack_job *j, int (*act)(struct pack_job *))
{
    static const char *const names[PACK_MAX_SHARES] = {"train", "valid",
                                                       "test"};
    if (pp_packed_is(j->t->output))
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "%s: is a packed directory; --split needs a directory "
                       "for the parts",
                       j->t->output);
    if (mkdir(j->t->output, 0777) != 0 && errno != EEXIST)
        return pp_fail_errno(&j->t->err, "%s: cannot create", j->t->output);
    for (size_t k = 0; k < j->o->n_shares; k++) {
        j->part = names[k];
        j->first_document = part_boundary(j, k);
        j->n_documents = part_boundary(j, k + 1) - j->first_document;
        if (j->o->shares[k] > 0 && j->n_documents == 0)
            tool_say(j->t, TOOL_NOTE,
                     "%s/%s: not written, since it has no documents",
                     j->t->output, j->part);
        if (j->n_documents == 0)
            continue;
        if (act(j) != 0)
            return -1;
        pp_bins_finish(&j->bins);
        pp_pieces_finish(&j->pieces);
    }
    return 0;
}

int pack_export(const struct pack_options *o)
{
    struct pp_packed p;
    if (pp_packed_open(o->t->argv[optind], &p, &o->t->err) != 0)
        return -1;
    const struct pp_packed_ranks ranks = {
        .cp = tool_given(o->t, "cp") ? (uint32_t)o->mesh.cp : 0,
        .dp = tool_given(o->t, "dp") ? (uint32_t)o->mesh.dp : 0,
    };
    int rc = pp_packed_check_files(&p, &o->t->err);
    if (rc == 0)
        rc = strcmp(o->export_to, "megatron")
                 ? pp_packed_export_safetensors(&p, &ranks, o->t->output,
                                                &o->t->err)
                 : pp_packed_export_megatron(&p, o->t->output, &o->t->err);
    pp_packed_finish(&p);
    return rc;
}

int pack_realign(const struct pack_options *o)
{
    struct pp_packed p;
    if (!o->t->output)
        o->t->output = o->realign;
    if (pp_packed_open(o->realign, &p, &o->t->err) != 0)
        return -1;
    char *folder = pack_spill_folder(o);
    int rc = pp_packed_check_files(&p, &o->t->err);
    const struct pp_realignment how = {.align = o->align,
                                       .row = o->row,
                                       .spill = folder,
                                       .spill_bytes = PACK_SPILL_BYTES};
    if (rc == 0 && pp_packed_realign(&p, &how, o->t->output, &o->t->err) != 0)
        rc = pp_fail_at(&o->t->err, "%s: ", o->realign);
    pp_packed_finish(&p);
    free(folder);
    return rc == 0 ? pack_report(o, o->t->output, false) : -1;
}

int pack_check(const struct pack_options *o)
{
    struct pp_packed p;
    if (pp_packed_open(o->check, &p, &o->t->err) != 0)
        return -1;
    int rc = pp_packed_check(&p, &o->t->err);
    if (rc == 0)
        tool_say(o->t, TOOL_DETAIL, "%s: %zu bins, consistent", o->check,
                 p.n_bins);
    pp_packed_finish(&p);
    return rc;
}

/* --manifest: the plan that the data are for. Costs, data-parallel ranks and
 * microbatches are taken from it, and the data section is added to it. */

/* Returns what a row of an encoder costs. */
static double cost_of_item_row(const struct pp_manifest *m, size_t encoder)
{
    const struct pp_item_counts items = m->microbatch.items[encoder];
    struct pp_plan_model units = m->model;
    double rows = (double)items.n * (double)items.rows;
    double length = (double)m->microbatch.seq_len, per_token, per_pair;
    units.units += m->components[encoder].first_unit;
    units.n_units = m->components[encoder].n_units;
    pp_model_cost(&units, &per_token, &per_pair);
    return rows > 0 ? length * (per_token + per_pair * (length + 1) / 2) / rows
                    : 0;
}

/* Finds what a token, a pair and a row of each encoder cost. Tokens are tokens
 * of the language model, and of a generator behind it. */
static void find_costs(struct pack_input *in)
{
    const struct pp_manifest *m = &in->manifest;
    struct pp_plan_model language = m->model;
    size_t n = pp_plan_encoders(pp_manifest_plan(m));
    size_t first =
        n ? m->components[pp_plan_language(pp_manifest_plan(m))].first_unit : 0;
    language.units += first;
    language.n_units -= first;
    pp_model_cost(&language, &in->per_token, &in->per_pair);
    for (int k = 0; k < PP_N_MODALITIES; k++) {
        enum pp_modality of = (enum pp_modality)k;
        for (size_t e = 0; e < n; e++)
            if (pp_plan_modality(pp_manifest_plan(m), e, of) == of)
                in->per_row[k] = cost_of_item_row(m, e);
        if (tool_given(in->t, "patch-cost"))
            in->per_row[k] = in->o->balance.patch_cost * in->per_token;
    }
}

/* Takes missing settings from the mesh and the schedule. */
static int take_defaults(struct pack_input *in)
{
    const struct pp_manifest *m = &in->manifest;
    if (in->dp == 0)
        in->dp = m->mesh.dp;
    if (in->o->balance.what == PACK_BALANCE_NONE || in->o->rule.parts)
        return 0;
    if (in->bins_multiple == 1 && m->has_schedule)
        in->bins_multiple = in->dp * m->schedule.n_microbatches;
    if (in->o->balance.what != PACK_BALANCE_FLOPS)
        return 0;
    find_costs(in);
    if (in->per_token > 0 || in->per_pair > 0)
        return 0;
    return pp_fail(&in->t->err, PP_EXIT_INPUT,
                   "%s: the units have no fwd_flops, which --balance flops "
                   "needs; make the plan with ppsplit",
                   in->o->manifest_name);
}

int pack_manifest_read(struct pack_input *in)
{
    in->dp = in->o->mesh.dp;
    in->bins_multiple = in->o->rule.bins_multiple;
    const char *name = in->o->manifest_name;
    if (name &&
        (tool_read_manifest(in->t, &name, &in->manifest) || take_defaults(in)))
        return -1;
    if (in->dp == 0)
        in->dp = 1;
    /* Each data-parallel rank gets the same number of bins. */
    if (in->o->balance.what != PACK_BALANCE_NONE && in->bins_multiple == 1 &&
        !in->o->rule.parts)
        in->bins_multiple = in->dp;
    return 0;
}

/* Fails if the model cannot take the items of a modality. */
static int check_items(struct pack_input *in, const struct pp_model *model,
                       enum pp_modality m)
{
    const struct pp_items *items = &in->docs.items[m];
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
    return pp_vision_check_images(model, &set, &in->t->err);
}

int pack_check_streams(struct pack_input *in)
{
    if (!in->docs.items[PP_MODALITY_IMAGES].n ||
        !in->docs.items[PP_MODALITY_AUDIO].n ||
        pp_plan_encoders(pp_manifest_plan(&in->manifest)) == PP_MAX_ENCODERS)
        return 0;
    return pp_fail(&in->t->err, PP_EXIT_INPUT,
                   "%s: the documents have images and audio, but the plan does "
                   "not have an encoder for each",
                   in->o->manifest_name);
}

int pack_check_images(struct pack_input *in)
{
    struct pp_model model;
    if (!pp_documents_have_items(&in->docs))
        return 0;
    int rc = pp_model_read(in->manifest.model.source, &model, &in->t->err);
    for (int m = 0; m < PP_N_MODALITIES && rc == 0; m++)
        rc = check_items(in, &model, (enum pp_modality)m);
    return rc ? pp_fail_at(&in->t->err, "%s: ", in->o->manifest_name) : 0;
}

static int set_data(struct pack_input *in)
{
    struct pp_packed p;
    if (pp_packed_open(in->t->output, &p, &in->t->err) != 0)
        return -1;
    const struct pp_plan_data data =
        pp_plan_data_of(pp_manifest_plan(&in->manifest), &p, in->t->output);
    int rc = pp_manifest_set_data(&in->manifest, &data, &in->t->err);
    pp_packed_finish(&p);
    return rc;
}

int pack_manifest_write(struct pack_input *in)
{
    FILE *f = stdout;
    if (set_data(in) != 0 || (strcmp(in->o->manifest_name, "-") &&
                              !(f = tool_open(in->t, in->o->manifest_name))))
        return -1;
    return tool_write_manifest(in->t, &in->manifest, f) || tool_close(in->t, f)
               ? -1
               : 0;
}
