/* SPDX-License-Identifier: MIT */
/* verify - --verify: makes the runs to compare, and prints the result. */

#include "base/json_writer.h"
#include "data/packed/packed.h"
#include "model/model.h"
#include "pprun.h"
#include "run/verify/verify.h"
#include "schedule/ir/schedule.h"

/* Limits of --shrink: tokens of the largest microbatch (fewer if there are many
 * microbatches) and sequences. */
enum { MAX_SLOTS = 48, MIN_SLOTS = 8, ALL_SLOTS = 2048, MAX_SEQUENCES = 5 };

/* Number of learning rates to try. With smaller ones rounding dominates. */
enum { MAX_TRIES = 3 };

/* State of one --verify. */
struct verify {
    struct runner *p;
    struct pp_verify v;
    struct pp_packed single, eval_single; /* sequences of the first step and of
                                             --eval, one in each bin */
    struct pp_arena arena;
    struct pp_graph graph; /* the same stages on one rank */
    struct pp_schedule one, one_forward;
};

/* Replaces *at by the first n_bins bins of *set in memory, or by synthetic bins
 * with --shrink. */
static int take_bins(struct runner *p, const struct pp_packed *set,
                     size_t n_bins, const struct pp_synthetic_data *likeness,
                     struct pp_packed *at)
{
    struct pp_packed taken = {0};
    struct pp_err *err = &p->tool->err;
    if (p->options.shrink
            ? pp_packed_synthetic(set, n_bins, likeness, &taken, err)
            : pp_packed_take(set, n_bins, &taken, err))
        return -1;
    pp_packed_finish(at);
    *at = taken;
    return 0;
}

/* Its vocabulary stays, as the ids of synthetic data do. */
static void shrink_generator(struct runner *p)
{
    const struct pp_mesh *x =
        &p->manifest.components[p->manifest.n_components - 1].mesh;
    size_t tp = (size_t)x->tp, vocab = p->generator.vocab;
    bool exchanges = x->cp > 1 && x->cp_exchange == PP_CP_A2A;
    pp_model_synthetic(&p->generator, tp, exchanges ? (size_t)x->cp * tp : 1);
    p->generator.vocab = vocab;
    p->generator.reads = p->model.hidden;
}

int pprun_verify_prepare(struct runner *p)
{
    struct pp_job *j = &p->job;
    size_t tp = (size_t)j->mesh.tp, cp = (size_t)j->mesh.cp;
    bool exchanges = cp > 1 && j->mesh.cp_exchange == PP_CP_A2A;
    j->optim.optimizer = PP_SGD_OPTIMIZER;
    j->optim.steps = PP_VERIFY_STEPS;
    j->optim.clip = j->optim.weight_decay = 0;
    j->optim.warmup = 0;
    j->eval_at_start = false;
    j->optim.schedule = PP_LR_CONSTANT;
    if (p->options.shrink)
        pp_model_synthetic(&p->model, tp, exchanges ? cp * tp : 1);
    if (p->options.shrink && p->model.generator)
        shrink_generator(p);
    size_t n = pp_job_microbatches(j) * (size_t)j->accumulate;
    size_t slots = ALL_SLOTS / n;
    const struct pp_synthetic_data likeness = {
        .tokens = (uint32_t)(slots > MAX_SLOTS   ? MAX_SLOTS
                             : slots < MIN_SLOTS ? MIN_SLOTS
                                                 : slots),
        .max_sequences = MAX_SEQUENCES,
        .vocab = (uint32_t)p->model.vocab,
        .align = (uint32_t)(tp * (cp > 1 ? 2 * cp : 1)),
        .seed = j->seed,
    };
    if (take_bins(p, j->data, n, &likeness, &p->data))
        return -1;
    j->data = &p->data;
    if (!j->eval)
        return 0;
    /* One more than a pass has: empty microbatches fill the second pass. */
    n = pp_job_microbatches(j) + 1;
    n = n < j->eval->n_bins ? n : j->eval->n_bins;
    return take_bins(p, j->eval, n, &likeness, &p->eval);
}

/* Makes the schedule of one rank: the same stages, one microbatch, forward and
 * backward through all. */
static int make_one(struct verify *y, struct pp_err *err)
{
    const struct pp_graph *planned = y->p->job.schedule->graph;
    int n = planned->n_stages / planned->n_copies;
    if (pp_graph_chain(&y->arena, 1, n, PP_PLACEMENT_LOOP, &y->graph, err))
        return -1;
    y->graph.tied[0] = planned->tied[0];
    y->graph.tied[1] = planned->tied[1];
    for (int s = 0; s < n; s++) { /* two encoders are branches */
        y->graph.stages[s].frozen = planned->stages[s].frozen;
        y->graph.stages[s].inputs = planned->stages[s].inputs;
        y->graph.stages[s].n_inputs = planned->stages[s].n_inputs;
    }
    if (pp_graph_connect(&y->arena, &y->graph, err))
        return -1;
    pp_schedule_init(&y->one, &y->graph, "one", 1);
    for (int i = 0; i < 2 * n; i++) {
        const struct pp_action a = {.peer = -1,
                                    .op = i < n ? PP_F : PP_B,
                                    .stage = i < n ? i : 2 * n - 1 - i};
        pp_schedule_add(&y->one, 0, a);
    }
    pp_schedule_trim(&y->one);
    if (pp_lower(&y->one, err))
        return -1;
    pp_schedule_forward_only(&y->one, &y->one_forward);
    return 0;
}

/* Makes the job that of one rank with the bins of the pipeline. */
static void take_bins_of_plan(const struct verify *y)
{
    struct pp_job *j = &y->p->job;
    const struct pp_mesh planned = j->mesh;
    size_t n = pp_job_microbatches(j) * (size_t)j->accumulate;
    j->schedule = &y->one;
    j->mesh = (struct pp_mesh){.pp = 1,
                               .expert_capacity = planned.expert_capacity,
                               .expert_drop = planned.expert_drop};
    j->components.n_components = 0;
    j->recompute = NULL; /* the reference keeps all activations */
    j->forward = &y->one_forward;
    j->accumulate = (int)n;
    j->slot_limit = 0;
}

/* Makes the job a job of one rank, which computes sequence by sequence, unless
 * what experts drop depends on the sequences beside it. */
static void take_one(const struct verify *y)
{
    struct pp_job *j = &y->p->job;
    take_bins_of_plan(y);
    if (j->mesh.expert_capacity > 0)
        return;
    j->data = &y->single;
    j->eval = j->eval ? &y->eval_single : NULL;
    j->accumulate = (int)y->single.n_bins;
}

/* Parts of sums of tensor-parallel ranks are added in the plan too, so they
 * stay. Whole experts on them add up other parts. */
static void take_exact(const struct verify *y)
{
    struct pp_job *j = &y->p->job;
    const struct pp_mesh planned = j->mesh;
    take_bins_of_plan(y);
    j->mesh.tp = planned.tp;
    j->mesh.experts_over_tp = planned.experts_over_tp;
    j->eval = NULL;
}

/* Makes one of the runs. p->job is that of the run meanwhile. */
static int run_variant(struct verify *y, enum pp_verify_run which, double lr,
                       int64_t steps)
{
    struct runner *p = y->p;
    const struct pp_job planned = p->job;
    struct pp_job *j = &p->job;
    enum pp_exit status;
    static const char *const words[] = {
        [PP_VERIFY_REFERENCE] = "one rank in fp64 ...",
        [PP_VERIFY_TWIN] = "one rank in fp32 ...",
        [PP_VERIFY_PIPELINE] = "the pipeline ...",
        [PP_VERIFY_SHAKEN] = "one rank in fp64, perturbed ...",
        [PP_VERIFY_WIDE] = "the pipeline in fp64 ...",
        [PP_VERIFY_EXACT] = "one rank with the same bins ...",
    };
    if (which == PP_VERIFY_EXACT)
        take_exact(y);
    else if (which != PP_VERIFY_PIPELINE && which != PP_VERIFY_WIDE)
        take_one(y);
    bool as_planned = which == PP_VERIFY_PIPELINE || which == PP_VERIFY_EXACT;
    j->digests = y->v.exact && as_planned;
    if (!as_planned) {
        j->device = &pp_device_cpu;
        j->kernels = runner_cpu_kernels(p, which != PP_VERIFY_TWIN);
    }
    struct pp_verify_job ctx = {&y->v, which, j->data,
                                j->kernels->element_bytes};
    j->optim.lr = lr;
    j->optim.steps = steps;
    j->eval_every = 1;
    j->report = pp_verify_report;
    j->inspect = pp_verify_inspect;
    /* The rows of a sequence on several ranks have no common sum. */
    j->output = pp_mesh_sharers(&p->manifest.mesh) > 1 ||
                        planned.components.n_components || p->model.generator
                    ? NULL
                    : pp_verify_output;
    j->stop = NULL;
    j->check_files = NULL; /* runner_check_data has done it */
    j->ctx = &ctx;
    tool_progress(p->tool, "%s", words[which]);
    int rc = runner_threads(p, &status);
    p->job = planned;
    return rc;
}

/* Fails if steps after the first cannot be judged. */
static int check_later(struct verify *y, bool calm)
{
    return calm || y->p->job.device->is_host
               ? 0
               : pp_fail(&y->p->tool->err, PP_EXIT_INPUT,
                         "--verify: on this model fp32 rounding errors grow "
                         "too large within %d steps, and fp64 needs --device "
                         "cpu",
                         PP_VERIFY_STEPS);
}

/* Makes the later steps in fp64, if fp32 is not exact enough. */
static int run_wide(struct verify *y, double lr)
{
    if (run_variant(y, PP_VERIFY_SHAKEN, lr, PP_VERIFY_STEPS))
        return -1;
    if (y->v.element_bytes == sizeof(double))
        return 0;
    y->v.later = PP_VERIFY_WIDE;
    return run_variant(y, PP_VERIFY_WIDE, lr, PP_VERIFY_STEPS);
}

static int run_all(struct verify *y)
{
    struct pp_err *err = &y->p->tool->err;
    if (run_variant(y, PP_VERIFY_REFERENCE, 0, 1))
        return -1;
    double lr = pp_verify_lr(&y->v);
    bool calm = false;
    if (lr == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--verify: no token of the first step is scored: there "
                       "is nothing to compare");
    for (int i = 0; i < MAX_TRIES && !calm; i++) {
        lr /= i ? 8 : 1;
        if (run_variant(y, PP_VERIFY_REFERENCE, lr, PP_VERIFY_STEPS) ||
            run_variant(y, PP_VERIFY_TWIN, lr, PP_VERIFY_STEPS))
            return -1;
        calm = pp_verify_is_calm(&y->v);
    }
    if (check_later(y, calm) ||
        run_variant(y, PP_VERIFY_PIPELINE, lr, PP_VERIFY_STEPS) ||
        (y->v.exact && run_variant(y, PP_VERIFY_EXACT, lr, 1)) ||
        (!calm && run_wide(y, lr)) || pp_verify_judge(&y->v, err))
        return -1;
    /* Rounding errors of another order of sums, as tensor-parallel ranks have,
     * can grow more than the twin's. In fp64 they stay small, and a
     * fault stays. */
    if (!pp_verify_differs_later(&y->v) || y->v.later == PP_VERIFY_WIDE ||
        !y->p->job.device->is_host)
        return 0;
    return run_wide(y, lr) || pp_verify_judge(&y->v, err) ? -1 : 0;
}

static const char *verdict(struct pp_verify_error e)
{
    return e.error <= e.bound ? "ok" : "DIFFERS";
}

/* Returns the names of the components of a pipeline rank, or NULL. */
static const char *components_of(const struct verify *y, int rank)
{
    const char *const *names = y->p->manifest.row_names;
    return names ? names[rank] : NULL;
}

static void print_table(const struct verify *y, const char *hint)
{
    const struct pp_verify *v = &y->v;
    FILE *f = y->p->tool->out;
    const char *title = components_of(y, 0) ? "  components" : "";
    fprintf(f, "%-24s %14s %14s %9s %9s\n", "", "found", "expected", "error",
            "bound");
    for (int i = 0; i < v->n_scalars; i++) {
        const struct pp_verify_scalar *s = &v->scalars[i];
        fprintf(f, "%-24s %14.8g %14.8g %9.1e %9.1e %s\n", s->name, s->found,
                s->expected, s->e.error, s->e.bound, verdict(s->e));
    }
    fprintf(f, "\n%-48s %5s %4s %9s %9s %9s %9s%s\n", "parameter", "stage",
            "rank", "gradient", "bound", "weights", "bound", title);
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        const char *names = components_of(y, r->rank);
        fprintf(f, "%-48s %5d %4d %9.1e %9.1e %9.1e %9.1e%s%s %s\n", r->name,
                r->stage, r->rank, r->gradient.error, r->gradient.bound,
                r->weights.error, r->weights.bound, names ? "  " : "",
                names ? names : "", r->worst <= 1 ? "ok" : "DIFFERS");
    }
    if (v->later == PP_VERIFY_WIDE)
        fprintf(f, "\nweights and the loss of step 5 are from the same plan in "
                   "fp64: on this model\nfp32 rounding errors grow too "
                   "large\n");
    if (v->same)
        fprintf(f, "\nthe same: %zu tensors\n", v->n_rows);
    else
        fprintf(f, "\nnot the same: %s\n", hint);
}

static void print_verdict_json(const struct verify *y, const char *hint)
{
    const struct pp_verify *v = &y->v;
    struct pp_json_writer w = {.f = y->p->tool->out, .indent = 1};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_bool(&w, "same", v->same);
    pp_json_string(&w, "hint", hint);
    pp_json_break(&w);
    pp_json_string(&w, "later_steps",
                   v->later == PP_VERIFY_WIDE ? "fp64" : "as planned");
    pp_json_break(&w);
    pp_json_array(&w, "scalars", PP_JSON_HUGGED);
    for (int i = 0; i < v->n_scalars; i++) {
        const struct pp_verify_scalar *s = &v->scalars[i];
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_string(&w, "name", s->name);
        pp_json_real(&w, "found", s->found);
        pp_json_real(&w, "expected", s->expected);
        pp_json_real(&w, "error", s->e.error);
        pp_json_real(&w, "bound", s->e.bound);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_break(&w);
    pp_json_array(&w, "parameters", PP_JSON_HUGGED);
    for (size_t i = 0; i < v->n_rows; i++) {
        const struct pp_verify_row *r = &v->rows[i];
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_string(&w, "name", r->name);
        pp_json_int(&w, "stage", r->stage);
        pp_json_int(&w, "rank", r->rank);
        if (components_of(y, r->rank))
            pp_json_string(&w, "components", components_of(y, r->rank));
        pp_json_real(&w, "gradient_error", r->gradient.error);
        pp_json_real(&w, "gradient_bound", r->gradient.bound);
        pp_json_real(&w, "weights_error", r->weights.error);
        pp_json_real(&w, "weights_bound", r->weights.bound);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_finish(&w);
}

int pprun_verify(struct runner *p)
{
    struct verify y = {.p = p};
    struct pp_err *err = &p->tool->err;
    char hint[PP_VERIFY_HINT_TEXT];
    const struct pp_layout layout = pp_job_layout(&p->job);
    int rc = -1;
    if (pp_packed_unpack(&p->data, &y.single, err) ||
        (p->job.eval && pp_packed_unpack(&p->eval, &y.eval_single, err)) ||
        pp_verify_init(&y.v, &p->model, p->job.schedule->graph, &p->data,
                       p->job.kernels->element_bytes, &layout, err) ||
        make_one(&y, err))
        goto out;
    y.v.recompute = p->job.recompute;
    y.v.objective = p->job.objective != NULL;
    y.v.offloads = pp_schedule_copies(p->job.schedule);
    y.v.generator_weight = p->job.settings.generator_weight;
    y.v.exact = p->manifest.mesh.cp_exact;
    y.v.exact_gradients =
        p->manifest.mesh.cp == 1 || p->manifest.mesh.cp_exchange == PP_CP_A2A;
    if (run_all(&y))
        goto out;
    tool_erase(p->tool);
    pp_verify_hint(&y.v, hint);
    if (pprun_of(p)->options.json)
        print_verdict_json(&y, hint);
    else
        print_table(&y, hint);
    p->tool->status = y.v.same ? PP_EXIT_OK : PP_EXIT_NO;
    rc = 0;
out:
    pp_verify_finish(&y.v);
    pp_packed_finish(&y.single);
    pp_packed_finish(&y.eval_single);
    pp_schedule_finish(&y.one);
    pp_schedule_finish(&y.one_forward);
    pp_arena_finish(&y.arena);
    return rc;
}
