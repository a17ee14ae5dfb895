/* SPDX-License-Identifier: MIT */
/* generate - --generate: gives the sequences of the data room for new
 * tokens, and writes them as rollouts, which pppack reads. */
#include <stdlib.h>

#include "base/json_writer.h"
#include "base/num.h"
#include "ppscore.h"

/* Checks that the model has positions for the new tokens of every prompt. */
static int check_longest(const struct runner *p)
{
    size_t most = pp_model_longest(&p->model);
    int n = (int)p->job.generate.n;
    for (size_t i = 0; i < p->data.n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(&p->data, i, &b);
        for (uint32_t s = 0; s < b.n_sequences; s++) {
            int32_t given = b.cu_seqlens[s + 1] - b.cu_seqlens[s];
            if ((size_t)given + (size_t)n > most)
                return pp_fail(
                    &p->tool->err, PP_EXIT_INPUT,
                    "--generate: bin %zu: sequence %u has %d tokens; "
                    "with '%d' more it is longer than the %zu "
                    "positions of the model",
                    i, s, given, n, most);
        }
    }
    return 0;
}

static void take_drawn(void *ctx, const struct pp_token_place *at,
                       const double *values, size_t n)
{
    struct runner *p = ctx;
    size_t width = pp_job_score_width(&p->job), most = p->job.generate.n;
    for (size_t i = 0; i < n; i++, values += width) {
        size_t k = at[i].sequence;
        ppscore_of(p)->drawn[k * most + ppscore_of(p)->n_drawn[k]++] =
            (struct ppscore_drawn){(int32_t)values[1], values[2]};
    }
}

int ppscore_generate_prepare(struct runner *p)
{
    struct ppscore *o = ppscore_of(p);
    struct pp_err *err = &p->tool->err;
    if (o->stop_id >= (int64_t)p->model.vocab)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--stop-id: '%d' is not in the vocabulary of %zu",
                       (int)o->stop_id, p->model.vocab);
    if (check_longest(p))
        return -1;
    /* Ranks that divide sequences have two parts of each. */
    const struct pp_mesh *mesh = &p->manifest.mesh;
    int parts = mesh->cp > 1 ? 2 * mesh->cp : 1;
    if (pp_packed_extend(&p->data, (uint32_t)o->generate,
                         (uint32_t)(parts * mesh->tp), &o->extended, err))
        return -1;
    p->job.data = &o->extended;
    p->job.scored = take_drawn;
    p->job.generate.samples = o->sample >= 0;
    p->job.generate.seed = (uint64_t)o->sample;
    p->job.generate.stop = (int32_t)o->stop_id;
    return 0;
}

int ppscore_generate_open(struct runner *p)
{
    struct ppscore *s = ppscore_of(p);
    size_t n;
    if (pp_mul(s->extended.n_bins, p->job.generate.n, &n, &p->tool->err))
        return -1;
    s->drawn = calloc(n, sizeof *s->drawn);
    s->n_drawn = calloc(s->extended.n_bins, sizeof *s->n_drawn);
    return s->drawn && s->n_drawn
               ? 0
               : pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
}

/* A sequence of the data, and its number among the sequences of all bins. */
struct prompt {
    uint32_t source, start;
    size_t number;
};

static int in_input_order(const void *va, const void *vb)
{
    const struct prompt *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static void write_prompt(const struct runner *p, const struct prompt *s)
{
    FILE *f = p->tool->out;
    struct pp_bin b;
    const struct ppscore_drawn *drawn =
        ppscore_of(p)->drawn + s->number * p->job.generate.n;
    uint32_t n = ppscore_of(p)->n_drawn[s->number];
    pp_packed_bin(&ppscore_of(p)->extended, s->number, &b);
    struct pp_json_writer w = pp_json_line(f);
    pp_json_uint(&w, "sequence", s->source);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    pp_json_array(&w, "prompt", PP_JSON_INLINE);
    size_t n_given = (size_t)b.cu_seqlens[1] - p->job.generate.n;
    for (size_t t = 0; t < n_given; t++)
        pp_json_int(&w, NULL, b.input_ids[t]);
    pp_json_end(&w);
    pp_json_array(&w, "response", PP_JSON_INLINE);
    for (uint32_t t = 0; t < n; t++)
        pp_json_int(&w, NULL, drawn[t].id);
    pp_json_end(&w);
    pp_json_array(&w, "logprobs", PP_JSON_INLINE);
    for (uint32_t t = 0; t < n; t++)
        pp_json_real(&w, NULL, drawn[t].logprob);
    pp_json_end(&w);
    pp_json_finish(&w);
}

int ppscore_generate_write(struct runner *p)
{
    size_t n = p->data.n_sequences, k = 0;
    struct prompt *prompts = calloc(n + 1, sizeof *prompts);
    if (!prompts)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < p->data.n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(&p->data, i, &b);
        for (uint32_t s = 0; s < b.n_sequences; s++, k++)
            prompts[k] = (struct prompt){b.source[s], b.start[s], k};
    }
    qsort(prompts, n, sizeof *prompts, in_input_order);
    for (size_t i = 0; i < n; i++)
        write_prompt(p, &prompts[i]);
    free(prompts);
    return 0;
}

void ppscore_generate_free(struct ppscore *s)
{
    pp_packed_finish(&s->extended);
    free(s->drawn);
    free(s->n_drawn);
}
