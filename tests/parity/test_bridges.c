/* SPDX-License-Identifier: MIT */
/* test_bridges - components on meshes of their own, on their own ranks or on
 * the same: for every line of a table, each gradient, loss and norm of the
 * ranks is that of one rank that holds everything. bridges.txt has the columns;
 * its lines of other suites are skipped. */
#include <dirent.h>
#include <malloc.h>

#include "bridge_subject.h"
#include "model/frozen.h"
#include "model/vision.h"
#include "schedule/check/check.h"
#include "schedule/kinds/kind.h"
#include "run/execute/image_places.h"

enum {
    STEPS = 3,
    MOST_STAGES = 8,
    MOST_UNITS = 16,
    MOST_TENSORS = 128,
};

/* A gradient below this is compared as if it had this norm. */
#define SMALL 1e-3

/* --- who makes and who takes --- */

enum { MOST_MAKERS = 5, MOST_TAKERS = 16 };

/* Counts the faults of a division of images: both sides of the bridge count the
 * same features, all of them, and the patches of makers are alike. */
static int count_faults(const struct subject *s, struct pp_image_work w)
{
    size_t of[MOST_MAKERS][MOST_TAKERS + 1], from[MOST_MAKERS + 1], sum = 0;
    size_t patches[MOST_MAKERS] = {0}, all = 0, features = 0, last = 0;
    const struct pp_packed_stream *stream = &s->data.streams[w.modality];
    int faults = 0;
    struct pp_image_walk walk;
    w.makes = true;
    for (w.maker = 0; w.maker < w.n_makers; w.maker++) {
        pp_image_bounds(&w, &s->m, of[w.maker]);
        sum += of[w.maker][pp_image_takers(&w)];
        faults += of[w.maker][pp_image_takers(&w)] !=
                  pp_image_rows_of_rank(&w, &s->m, PP_ROWS_FEATURES);
    }
    w.makes = false;
    for (w.taker = 0; w.taker < pp_image_takers(&w); w.taker++) {
        w.lane = w.taker / w.cp / w.tp;
        pp_image_bounds(&w, &s->m, from);
        for (size_t k = 0; k < w.n_makers; k++)
            faults +=
                from[k + 1] - from[k] != of[k][w.taker + 1] - of[k][w.taker];
    }
    pp_image_walk_begin(&walk, &w);
    for (size_t lane = 0; lane < w.n_lanes; lane++) {
        pp_image_walk_open(&walk, lane);
        while (pp_image_walk_next(&walk)) {
            faults += walk.maker < last || walk.maker >= w.n_makers;
            last = walk.maker;
            patches[last] += walk.patches;
            all += walk.patches;
            features += pp_image_rows(&s->m.encoders[w.encoder], walk.patches,
                                      PP_ROWS_FEATURES);
        }
    }
    for (size_t k = 0; k < w.n_makers; k++)
        faults += patches[k] > all / w.n_makers + stream->max_item ||
                  patches[k] > pp_items_most(&s->data, w.modality, w.n_makers,
                                             w.n_lanes);
    size_t most = 0;
    for (size_t k = 0; k < w.n_makers; k++)
        most = patches[k] > most ? patches[k] : most;
    if (w.first + w.n_lanes <= BINS) { /* as plans take their time */
        struct pp_item_share share = pp_items_largest_of(
            &s->data, w.modality, w.first, w.n_lanes, w.n_makers);
        faults += (size_t)share.rows != most;
    }
    return faults + (sum != features);
}

static void divisions(const struct subject *s, const char *name, size_t encoder)
{
    const enum pp_modality modality =
        pp_vision_modality(&s->m.encoders[encoder]);
    int faults = 0, n = 0;
    for (size_t code = 0; code < 4 * MOST_MAKERS * 4; code++)
        for (uint64_t at = 0; at < BINS; at++, n++) {
            const struct pp_image_work w = {.packed = &s->data,
                                            .encoder = encoder,
                                            .modality = modality,
                                            .first = at,
                                            .end = BINS,
                                            .n_lanes = 1 + code % 4,
                                            .n_makers =
                                                1 + code / 4 % MOST_MAKERS,
                                            .tp = 1 + code / 20 % 2,
                                            .cp = 1 + code / 40};
            faults += count_faults(s, w);
        }
    ok(faults == 0,
       "%s: in %d divisions all %s are made by someone, evenly, and both "
       "sides agree",
       name, n, pp_modality_words(modality).items);
}

/* --- runs --- */

/* Whole gradients by name, as the first run has them. */
struct whole {
    char name[PP_FQN_TEXT];
    double *g;
    size_t n;
    bool seen;
};

struct result {
    double loss[STEPS], norm[STEPS];
    struct whole *whole; /* (MOST_TENSORS) */
    size_t *n_whole;
    bool keeps; /* fills them */
    double worst;
    char at[PP_FQN_TEXT];
    pthread_mutex_t lock;
};

struct sizes {
    int pp, tp, cp, dp;
};

/* A line of the table. */
struct topology {
    char suite[16], model[16], kind[16], freeze[32];
    int depth;
    struct sizes encoder[PP_MAX_ENCODERS]; /* zeros: there is none */
    struct sizes language;
    int zero;
};

/* Returns the rows of all encoders. */
static int encoder_rows(const struct topology *t)
{
    return t->encoder[0].pp + t->encoder[1].pp;
}

/* Returns the stages of the language model. */
static int language_stages(const struct topology *t)
{
    const struct pp_kind *k = pp_kind_find(t->kind);
    return t->language.pp * (k->chain ? k->n_chunks : 1);
}

/* Returns the row of a stage. */
static int row_of(const struct topology *t, int stage)
{
    bool v = pp_kind_find(t->kind)->v;
    int at = encoder_rows(t);
    return stage < at
               ? stage
               : at + pp_placement_row(v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP,
                                       t->language.pp, stage - at);
}

static int ranks_of(struct sizes x)
{
    return x.pp * x.tp * x.cp * x.dp;
}

static int keep(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    (void)err;
    struct result *to = ctx;
    to->loss[r->step - 1] = r->loss;
    to->norm[r->step - 1] = r->grad_norm;
    return 0;
}

static void keep_whole(struct result *r, const struct pp_parameter *p)
{
    struct whole *w = &r->whole[(*r->n_whole)++];
    snprintf(w->name, sizeof w->name, "%s", p->info.name);
    w->n = p->n;
    w->g = malloc(p->n * sizeof *w->g);
    memcpy(w->g, p->g, p->n * sizeof *w->g);
}

/* Compares a gradient, or a piece of it. */
static void compare(struct result *r, const struct pp_parameter *p)
{
    struct whole *w = r->whole;
    while (w < r->whole + *r->n_whole && strcmp(w->name, p->info.name))
        w++;
    double off = 0, all = 0;
    struct pp_run run;
    if (w == r->whole + *r->n_whole || w->n != pp_tensor_elements(&p->info)) {
        r->worst = INFINITY;
        return;
    }
    w->seen = true;
    for (size_t i = 0; i < w->n; i++)
        all += w->g[i] * w->g[i];
    for (size_t at = 0;
         pp_piece_run(&p->piece, (struct pp_range){0, p->n}, at, &run);
         at += run.n)
        for (size_t i = 0; i < run.n; i++) {
            double d = ((const double *)p->g)[run.at + i] - w->g[run.whole + i];
            off += d * d;
        }
    off = sqrt(off) / (sqrt(all) + SMALL);
    if (!(off <= r->worst)) {
        r->worst = isnan(off) ? INFINITY : off;
        snprintf(r->at, sizeof r->at, "%s", p->info.name);
    }
}

static int inspect(void *ctx, const struct pp_inspection *at,
                   struct pp_err *err)
{
    (void)err;
    struct result *r = ctx;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; at->updates == 0 && i < at->params->n; i++) {
        const struct pp_parameter *p = &at->params->at[i];
        if (p->g && r->keeps)
            keep_whole(r, p);
        else if (p->g)
            compare(r, p);
    }
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* Divides units `base` to `end` among n stages from stage `at` on. */
static void divide_part(struct pp_unit_range *stages, int at, int n,
                        size_t base, size_t end)
{
    for (int k = 0; k < n; k++) {
        size_t from = base + (end - base) * (size_t)k / (size_t)n;
        size_t to = base + (end - base) * (size_t)(k + 1) / (size_t)n;
        stages[at + k] = (struct pp_unit_range){at + k, from, to - from, 0};
    }
}

/* Divides the units of each component among its stages; those of the language
 * model have those of encoders without any, of both or of the second one. A cut
 * in the second of two moves to its end. */
static void divide(const struct pp_model *m, const struct topology *t,
                   struct pp_unit_range *stages)
{
    size_t n = pp_model_n_units(m), end = pp_component_first(m, PP_LANGUAGE);
    size_t second = pp_component_first(m, 1);
    int at = encoder_rows(t), n_stages = at + language_stages(t);
    divide_part(stages, 0, t->encoder[0].pp, 0, second);
    divide_part(stages, t->encoder[0].pp, t->encoder[1].pp, second, end);
    divide_part(stages, at, language_stages(t),
                t->encoder[1].pp ? end
                : at             ? second
                                 : 0,
                n);
    for (int s = at + 1; s < n_stages; s++)
        if (stages[s].first > second && stages[s].first < end) {
            stages[s - 1].n += end - stages[s].first;
            stages[s].n -= end - stages[s].first;
            stages[s].first = end;
        }
}

/* Lists the inputs of a stage: the ends of encoders, if it has the embedding;
 * and the stage before, unless it begins with a component. Returns how many. */
static int list_inputs(const struct pp_model *m,
                       const struct pp_unit_range *stages, int s,
                       int inputs[PP_MAX_ENCODERS + 1])
{
    size_t vision = pp_component_first(m, PP_LANGUAGE), base = stages[s].first;
    bool embeds = base <= vision && vision < base + stages[s].n;
    bool begins = s == 0;
    int n = 0;
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        size_t end = pp_component_first(m, k + 1);
        int from = 0;
        begins |= base == end && end <= vision;
        while (stages[from].first + stages[from].n < end)
            from++;
        if (embeds && from < s && (n == 0 || inputs[n - 1] != from))
            inputs[n++] = from;
    }
    if (!begins && (n == 0 || inputs[n - 1] != s - 1))
        inputs[n++] = s - 1;
    return n;
}

static int build(const struct pp_model *m, const struct topology *t,
                 const struct pp_unit_range *stages, struct pp_arena *a,
                 struct pp_graph *g, struct pp_err *err)
{
    int rows = encoder_rows(t) + t->language.pp;
    int n = encoder_rows(t) + language_stages(t), ranks = ranks_of(t->language);
    int(*inputs)[PP_MAX_ENCODERS + 1] =
        pp_arena_alloc(a, (size_t)n, sizeof *inputs);
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        ranks += ranks_of(t->encoder[k]);
    *g = (struct pp_graph){.n_stages = n,
                           .n_rows = rows,
                           .tied = {-1, -1},
                           .replicas = ranks > rows,
                           .resident = t->zero == 3 ? 1 : 0};
    g->stages = pp_arena_alloc(a, (size_t)n, sizeof *g->stages);
    if (!inputs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < n; s++) {
        g->stages[s].row = row_of(t, s);
        g->stages[s].n_inputs = list_inputs(m, stages, s, inputs[s]);
        g->stages[s].inputs = inputs[s];
        g->stages[s].frozen = true;
        for (size_t u = 0; u < stages[s].n; u++)
            g->stages[s].frozen &=
                pp_unit_role(m, pp_model_unit(m, stages[s].first + u)) !=
                PP_ROLE_TRAINED;
    }
    return pp_graph_connect(a, g, err);
}

static struct pp_mesh mesh_of(const struct topology *t, struct sizes x)
{
    return (struct pp_mesh){.pp = x.pp,
                            .dp = x.dp,
                            .tp = x.tp,
                            .cp = x.cp,
                            .ep = 1,
                            .whole_state = t->zero == 0,
                            .divided_weights = t->zero == 3,
                            .resident = t->zero == 3 ? 1 : 0};
}

/* Returns the components, one behind the other. */
static struct pp_layout layout_of(const struct topology *t)
{
    struct pp_layout l = {.n_components = 0};
    int rank = 0, row = 0;
    for (size_t k = 0; k <= PP_MAX_ENCODERS; k++) {
        struct sizes x = k < PP_MAX_ENCODERS ? t->encoder[k] : t->language;
        if (x.pp)
            l.components[l.n_components++] = (struct pp_layout_component){
                mesh_of(t, x), .first_rank = rank, .first_row = row};
        rank += ranks_of(x);
        row += x.pp;
    }
    /* The second encoder is on the ranks of the language model. */
    if (!t->encoder[1].pp)
        l.components[l.n_components - 1].mesh.encoder_tp = t->encoder[1].tp;
    return l;
}

static int play(const struct subject *x, const struct pp_model *m,
                const struct topology *t, const struct pp_unit_range *stages,
                const struct pp_schedule *s, struct result *out,
                struct pp_err *err)
{
    struct pp_schedule forward = {0};
    pp_schedule_forward_only(s, &forward);
    struct pp_job job = {
        .model = m,
        .schedule = s,
        .forward = &forward,
        .stages = stages,
        .mesh = mesh_of(t, t->language),
        .kernels = &pp_kernels_f64,
        .data = &x->data,
        .weights = x->weights,
        .weights_path = "golden",
        .optim = {.optimizer = PP_ADAMW_OPTIMIZER,
                  .lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .clip = 1,
                  .steps = STEPS},
        .accumulate = 1,
        .inspect = inspect,
        .report = keep,
        .ctx = out,
    };
    if (encoder_rows(t))
        job.components = layout_of(t);
    else
        job.mesh.encoder_tp = t->encoder[0].tp;
    int rc = small_ranks(&job, err);
    pp_schedule_finish(&forward);
    return rc;
}

static bool run(const struct subject *x, const struct topology *t,
                struct result *out)
{
    struct pp_arena a = {0};
    struct pp_graph graph = {0};
    struct pp_schedule s = {0};
    struct pp_err err = {0};
    struct pp_model m = x->m;
    struct pp_unit_range stages[MOST_STAGES];
    bool frozen[MOST_UNITS];
    enum pp_role roles[MOST_UNITS];
    int microbatches = BINS / t->language.dp;
    const struct pp_kind_options o = {.n_microbatches = microbatches};
    pthread_mutex_init(&out->lock, NULL);
    out->worst = 0;
    out->at[0] = '\0';
    pp_freeze_idle(&m, frozen);
    bool good = !strcmp(t->freeze, "-") ||
                !pp_freeze_units(&m, t->freeze, frozen, &err);
    pp_model_roles(&m, frozen, roles);
    m.roles = roles;
    divide(&m, t, stages);
    good = good && !build(&m, t, stages, &a, &graph, &err) &&
           (pp_schedule_init(&s, &graph, t->kind, microbatches), true);
    s.channel_depth = t->depth;
    good = good && !pp_kind_emit(pp_kind_find(t->kind), &s, &o, &err) &&
           !pp_lower(&s, &err) && !pp_check(&s, &err) &&
           !play(x, &m, t, stages, &s, out, &err);
    if (!good)
        printf("# %s\n", err.text);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
    pthread_mutex_destroy(&out->lock);
    return good;
}

/* --- the table --- */

static double distance(const double *got, const double *want)
{
    double worst = 0;
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(got[i] - want[i]) / fabs(want[i]);
        worst = isnan(off) ? INFINITY : fmax(worst, off);
    }
    return worst;
}

static void print_sizes(char text[64], const char *name, struct sizes x)
{
    snprintf(text, 64, "%s pp %d tp %d cp %d dp %d, ", name, x.pp, x.tp, x.cp,
             x.dp);
}

static void check(const struct subject *x, const struct topology *t)
{
    struct whole whole[MOST_TENSORS] = {{.n = 0}};
    size_t n = 0, seen = 0;
    struct topology one = *t;
    struct result want = {.whole = whole, .n_whole = &n, .keeps = true};
    struct result got = {.whole = whole, .n_whole = &n};
    const struct sizes none = {0, 0, 0, 0}, single = {1, 1, 1, 1};
    one.encoder[0] = one.encoder[1] = none;
    one.language = single;
    one.zero = 1;
    strcpy(one.kind, "gpipe");
    bool good = run(x, &one, &want) && run(x, t, &got);
    double off =
        fmax(distance(got.loss, want.loss), distance(got.norm, want.norm));
    char second[64] = "";
    if (t->encoder[1].dp)
        print_sizes(second, "second", t->encoder[1]);
    char first_of[64], language[64];
    print_sizes(first_of, "encoder", t->encoder[0]);
    print_sizes(language, "language", t->language);
    ok(good && got.worst <= 1e-12 && off <= 1e-12,
       "%s %s, depth %d, frozen %s: %s%s%szero %d: gradients %.2g off at %s, "
       "losses and norms %.2g",
       t->model, t->kind, t->depth, t->freeze, first_of, second, language,
       t->zero, got.worst, got.at, off);
    for (size_t i = 0; i < n; i++) {
        seen += whole[i].seen;
        free(whole[i].g);
    }
    ok(n > 0 && seen == n, "  all %zu gradients were compared", n);
}

static const char *read_sizes(const char *at, struct sizes *x)
{
    int n = 0;
    return at && sscanf(at, "%d %d %d %d%n", &x->pp, &x->tp, &x->cp, &x->dp,
                        &n) == 4
               ? at + n
               : NULL;
}

/* Reads the groups of sizes of a line, with a bar behind each, and zero. */
static bool read_groups(const char *at, struct topology *t)
{
    struct sizes x[PP_MAX_ENCODERS + 1] = {{0}};
    size_t n = 0;
    for (; n < PP_MAX_ENCODERS + 1 && strchr(at, '|'); n++) {
        at = read_sizes(at, &x[n]);
        at = at ? strchr(at, '|') : NULL;
        if (!at++)
            return false;
    }
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        t->encoder[k] = k + 1 < n ? x[k] : (struct sizes){0};
    t->language = n ? x[n - 1] : x[0];
    return n > 1 && sscanf(at, "%d", &t->zero) == 1;
}

static bool read_line(FILE *f, struct topology *t)
{
    char line[256];
    while (fgets(line, sizeof line, f)) {
        int n = 0;
        if (line[0] == '#')
            continue;
        if (sscanf(line, "%15s %15s %15s %d %31s %n", t->suite, t->model,
                   t->kind, &t->depth, t->freeze, &n) != 5 ||
            !read_groups(line + n, t))
            give_up("line '%s' of the table", line);
        return true;
    }
    return false;
}

/* --- cycles --- */

/* The resources that a process may lose in each run. */
struct held {
    size_t bytes;
    int threads, files;
};

static int count_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static struct held held_now(void)
{
    return (struct held){mallinfo2().uordblks, count_entries("/proc/self/task"),
                         count_entries("/proc/self/fd")};
}

/* Makes and ends meshes, groups and bridges n times in this process. */
static void cycles(const struct subject *x, int n)
{
    const struct topology t = {.model = "llava",
                               .kind = "1f1b",
                               .freeze = "-",
                               .depth = 1,
                               .encoder = {{1, 1, 1, 3}},
                               .language = {1, 1, 1, 2},
                               .zero = 1};
    size_t n_whole = 0;
    struct whole none;
    struct result r = {.whole = &none, .n_whole = &n_whole};
    struct held before = {0}, after;
    bool good = true;
    for (int i = -5; i < n && good; i++) {
        if (i == 0)
            before = held_now();
        good = run(x, &t, &r);
    }
    after = held_now();
    ok(good && after.bytes <= before.bytes + 4096,
       "%d cycles leave %lld more bytes", n,
       (long long)after.bytes - (long long)before.bytes);
    ok(after.threads == before.threads && after.files == before.files,
       "  and no threads (%d) or files (%d)", after.threads - before.threads,
       after.files - before.files);
}

enum { N_MODELS = 7 };
static const char *const models[N_MODELS] = {
    "llava",        "qwen2-vl",   "qwen2.5-vl",  "qwen2-audio",
    "qwen2.5-omni", "llava-full", "llava-layers"};

static int number_of(const char *model)
{
    for (int i = 0; i < N_MODELS; i++)
        if (!strcmp(model, models[i]))
            return i;
    give_up("no model '%s'", model);
}

int main(int argc, char **argv)
{
    const char *suite = argc > 2 ? argv[2] : "fast";
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    struct topology t;
    struct subject subjects[N_MODELS];
    int n = 0;
    if (!f)
        give_up("no table");
    for (int i = 0; i < N_MODELS; i++)
        open_subject(&subjects[i], models[i]);
    divisions(&subjects[0], models[0], 0);
    divisions(&subjects[1], models[1], 0);
    divisions(&subjects[3], models[3], 0);
    divisions(&subjects[4], models[4], 1);
    divisions(&subjects[5], models[5], 0);
    while (read_line(f, &t))
        if (!strcmp(t.suite, suite) && ++n % fewer() == 0)
            check(&subjects[number_of(t.model)], &t);
    cycles(&subjects[0], (strcmp(suite, "slow") ? 20 : 1000) / fewer());
    fclose(f);
    for (int i = 0; i < N_MODELS; i++)
        close_subject(&subjects[i]);
    return done();
}
