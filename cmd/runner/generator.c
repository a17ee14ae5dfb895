/* SPDX-License-Identifier: MIT */
/* generator - a generator behind the language model: reads its model,
 * refuses what pprun does not do with it, and finds its ranks and weights. */

#include "base/file.h"
#include "manifest/config_json.h"
#include "cost/workloads.h"
#include "model/layout.h"
#include "runner/runner.h"
#include "run/checkpoint/files.h"
#include "tool_manifest.h"

static const struct pp_component *generator_of(const struct runner *p)
{
    return &p->manifest.components[p->manifest.n_components - 1];
}

/* Names what excludes a generator in this run; NULL: nothing. */
static const char *excluded(const struct runner *p)
{
    const struct runner_options *o = &p->options;
    return p->job.objective              ? "--objective"
           : p->job.generate.n           ? "--generate"
           : p->job.record.layers        ? "--profile"
           : o->shapes == PP_MESSAGE_MAX ? "--message-size max"
                                         : NULL;
}

int runner_read_generator(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    struct pp_model *g = &p->generator;
    if (!pp_plan_generates(pp_manifest_plan(&p->manifest))) {
        if (pp_setting_given(&p->job.settings, PP_OWNER_LOSS, "generator"))
            return pp_fail(err, PP_EXIT_INPUT,
                           "/components: no generator, so --loss generator "
                           "has no effect; plan with ppsplit --combine");
        return 0;
    }
    const struct pp_component *c = generator_of(p);
    size_t at = p->manifest.n_components - 1;
    if (pp_model_read(c->source, g, err) ||
        tool_generator_runs(g, at, c->source, err))
        return -1;
    if (excluded(p))
        return pp_fail(err, PP_EXIT_INPUT,
                       "/components/%zu: '%s' is a generator, which pprun does "
                       "not train with %s",
                       at, c->name, excluded(p));
    g->reads = p->model.hidden;
    p->model.generator = g;
    struct pp_mesh x = c->apart ? c->mesh : p->manifest.mesh;
    x.encoder_tp = 0;
    return pp_mesh_check(&x, g, 0, err)
               ? pp_fail_at(err, "/components/%zu: ", at)
               : 0;
}

/* Reports whether ranks of both meshes divide rows, tensors and state alike and
 * exchange alike what attention needs, and the rows of one follow the rows of
 * the other. */
static bool are_alike(const struct pp_mesh *a, const struct pp_mesh *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->cp == b->cp &&
           a->ep == b->ep && a->cp_exchange == b->cp_exchange &&
           a->order == 0 && b->order == 0;
}

void runner_join_generator(struct pp_layout *l)
{
    if (!l->generates)
        return;
    struct pp_layout_component *g = &l->components[l->n_components - 1];
    struct pp_layout_component *x = g - 1;
    if (!are_alike(&x->mesh, &g->mesh))
        return;
    x->mesh.pp += g->mesh.pp;
    l->n_components--;
    l->generates = false;
}

/* Checks that the generator's ranks can divide every sequence. */
static int check_sequences(const struct runner *p, const struct pp_mesh *x,
                           const char *dir, const struct pp_packed *data)
{
    int32_t sharers = (int32_t)pp_mesh_sharers(x);
    int32_t chunks = x->cp > 1 ? 2 * x->cp : 1;
    for (size_t i = 0; i < data->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(data, i, &b);
        for (uint32_t s = 1; s <= b.n_sequences; s++)
            if (b.cu_seqlens_padded[s] % sharers ||
                b.cu_seqlens_padded[s] % chunks)
                return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                               "%s: bin %zu: the padded length of sequence %u "
                               "does not divide by the generator's ranks; "
                               "pad it anew with pppack --realign %s --cp %d "
                               "--tp %d, or a multiple",
                               dir, i, s - 1, dir, x->cp, x->tp);
    }
    return 0;
}

int runner_check_generator_data(const struct runner *p, const char *dir,
                                const struct pp_packed *data)
{
    struct pp_err *err = &p->tool->err;
    if (!p->model.generator)
        return 0;
    if (!pp_packed_has_generator(data))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: has no tokens for the generator; pack JSON Lines "
                       "with generator_ids",
                       dir);
    if (data->generator_vocab > p->generator.vocab)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: token id '%u' is not in the generator's vocabulary "
                       "of %zu",
                       dir, data->generator_vocab - 1, p->generator.vocab);
    if (data->max_seqlen > pp_model_longest(&p->generator))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: sequences have up to %u positions, but the "
                       "generator has %zu",
                       dir, data->max_seqlen, pp_model_longest(&p->generator));
    const struct pp_component *c = generator_of(p);
    if (!c->apart || are_alike(&c->mesh, &p->manifest.mesh))
        return 0;
    if (data->cp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: sequences have context-parallel ranks of their "
                       "own, which a generator with another mesh cannot "
                       "follow; pack with pppack --cp-sizes fixed",
                       dir);
    return check_sequences(p, &c->mesh, dir, data);
}

int runner_open_generator(struct runner *p, const char *path)
{
    char dir[PP_PATH_TEXT], file[PP_PATH_TEXT];
    struct pp_err *err = &p->tool->err;
    if (!p->model.generator)
        return 0;
    if (pp_path(dir, err, "%s/generator", path))
        return -1;
    if (!pp_file_is_dir(dir) &&
        pp_path(dir, err, "%s", generator_of(p)->source))
        return -1;
    if (!pp_file_is_dir(dir) || !pp_tensors_exist(dir))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' has no weights for the generator; give --weights "
                       "of a directory with generator/, or --init SEED",
                       dir);
    if (pp_tensors_add(p->weights, dir, PP_GENERATOR_PREFIX, err) ||
        pp_path(file, err, "%s/connector.safetensors", dir))
        return -1;
    if (pp_file_exists(file))
        return pp_tensors_add(p->weights, file,
                              PP_GENERATOR_PREFIX PP_CONNECTOR_PREFIX, err);
    tool_say(p->tool, TOOL_NOTE,
             "%s has no connector.safetensors: the connector begins at random",
             dir);
    return 0;
}
