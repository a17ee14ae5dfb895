/* SPDX-License-Identifier: MIT */
/* test_tower - compares an encoder and its projector with transformers: the
 * features of images or clips, and the gradient of every weight. The encoders
 * are LLaVA's (scripts/gen-llava) and that of audio of Qwen2.5-Omni
 * (scripts/gen-omni). */
#include "rig.h"

#include "data/tensors/safetensors.h"
#include "manifest/config_json.h"
#include "model/vision.h"
#include "omni_model.h"
#include "run/parameters/weights.h"

enum { MAX_UNITS = 8 };

struct tower {
    const char *name;
    struct pp_model m, encoder;
    struct packing items; /* images or clips */
    struct pp_tensors *golden;
    struct pp_unit_id unit[MAX_UNITS];
    struct rig rig[MAX_UNITS];
    size_t n;
};

static struct values read_golden(const struct tower *t,
                                 const struct pp_kernels *k, const char *name)
{
    struct pp_err err = {0};
    const struct pp_tensor *x = pp_tensors_find(t->golden, name);
    struct values v = values_new(k, x ? x->n : 0, 0);
    double *at = x ? malloc(x->n * sizeof *at) : NULL;
    if (!at || pp_tensor_read_f64(x, 0, x->n, at, &err))
        give_up("%s: %s", name, x ? err.text : "is missing");
    for (size_t i = 0; i < v.n; i++)
        set(&v, i, at[i]);
    free(at);
    return v;
}

/* Compares the elements of `part` from `at` on, or copies there. */
static bool near_golden(const struct tower *t, const struct rig *r, size_t at,
                        const char *name, double bound)
{
    struct values want = read_golden(t, r->env.kernels, name);
    struct values got = {.at = (char *)r->g.at + at * r->g.bytes,
                         .n = want.n,
                         .bytes = r->g.bytes};
    bool same = values_near(&got, &want, bound, 1, name);
    values_free(&want);
    return same;
}

/* Returns whether a tensor of a unit that trains has no gradient. */
static bool is_fixed(const struct pp_tensor_info *t)
{
    return strstr(t->name, "bos_eos") != NULL;
}

/* Visits the tensors of a unit: loads them, or compares their gradients.
 * Returns whether all are near. */
static bool visit(struct tower *t, size_t i, bool load, double bound)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    struct rig *r = &t->rig[i];
    size_t n = pp_unit_params(&t->m, t->unit[i], table), at = 0;
    bool same = n > 0;
    for (size_t slot = 0; slot < n; slot++) {
        char name[PP_FQN_TEXT + 8];
        size_t elements = pp_tensor_elements(&table[slot]);
        if (!table[slot].name[0])
            continue;
        snprintf(name, sizeof name, "%s%.95s", load ? "" : "grad.",
                 table[slot].name);
        if (!load && is_fixed(&table[slot])) {
            same = same && !pp_tensors_find(t->golden, name);
        } else if (load) {
            struct values w = read_golden(t, r->env.kernels, name);
            same = same && w.n == elements;
            memcpy((char *)r->w.at + at * w.bytes, w.at, w.n * w.bytes);
            values_free(&w);
        } else {
            same = near_golden(t, r, at, name, bound) && same;
        }
        at += elements;
    }
    return same;
}

static void set_patches(struct tower *t, const struct pp_kernels *k)
{
    struct values p = read_golden(t, k, "patches");
    for (size_t i = 0; i < p.n; i++)
        t->rig[0].pixels[i] = (float)get(&p, i);
    values_free(&p);
    if (!t->m.encoders[0].chunk)
        return;
    struct values frames = read_golden(t, k, "frames");
    for (size_t i = 0; i < frames.n; i++)
        t->rig[0].n_frames[i] = (int32_t)get(&frames, i);
    rig_list_kinds(&t->rig[0]);
    values_free(&frames);
}

/* Lists the units that run, and binds a rig to each. */
static void make(struct tower *t, const struct pp_kernels *k)
{
    bool all = true;
    t->encoder = pp_vision_tower(&t->m, 0);
    t->n = 0;
    for (size_t i = 0; i < pp_component_first(&t->m, PP_LANGUAGE); i++) {
        struct pp_unit_id u = pp_model_unit(&t->m, i);
        bool last = u.kind == PP_UNIT_PROJECTOR;
        if (!pp_unit_runs(&t->m, u))
            continue;
        t->unit[t->n] = u;
        rig_init(&t->rig[t->n], last ? &t->m : &t->encoder, u.kind, k,
                 &t->items, 0);
        all = visit(t, t->n++, true, 0) && all;
    }
    ok(t->n == (pp_vision_hears(&t->m.encoders[0]) ? 4 : 5) && all,
       "%s, %s: what is before the layers, two of them, projector", t->name,
       k->name);
    set_patches(t, k);
}

static void finish(struct tower *t)
{
    for (size_t i = 0; i < t->n; i++)
        rig_finish(&t->rig[i]);
}

static void fill_from(struct values *to, const struct values *from)
{
    if (to->n != from->n)
        give_up("%zu elements, not %zu", from->n, to->n);
    memcpy(to->at, from->at, to->n * to->bytes);
}

/* Runs forward, and returns whether the features are near the golden ones. */
static bool forward(struct tower *t, double bound)
{
    struct rig *last = &t->rig[t->n - 1];
    struct values want = read_golden(t, last->env.kernels, "features");
    for (size_t i = 0; i < t->n; i++) {
        if (i)
            fill_from(&t->rig[i].x, &t->rig[i - 1].y);
        rig_forward(&t->rig[i]);
    }
    bool same = values_near(&last->y, &want, bound, 1, "features");
    values_free(&want);
    return same;
}

static void compare(struct tower *t, const struct pp_kernels *k, double bound)
{
    make(t, k);
    struct values dy = read_golden(t, k, "dy");
    ok(forward(t, bound), "%s, %s: the features", t->name, k->name);
    fill_from(&t->rig[t->n - 1].dy, &dy);
    for (size_t i = t->n; i-- > 0;) {
        char name[PP_FQN_TEXT];
        rig_backward(&t->rig[i]);
        if (i)
            fill_from(&t->rig[i - 1].dy, &t->rig[i].dx);
        pp_model_fqn(&t->m, t->unit[i], name);
        ok(visit(t, i, false, bound), "%s: gradients of %s", k->name, name);
    }
    finish(t);
    values_free(&dy);
}

/* The comparison sees an odd number of frames, and the ends of chunks. */
static void controls(struct tower *t)
{
    make(t, &pp_kernels_f64);
    t->rig[0].n_frames[2]++;
    rig_list_kinds(&t->rig[0]);
    ok(!forward(t, 1e-3), "%s: another frame gives other features", t->name);
    finish(t);
    t->m.encoders[0].chunk++;
    make(t, &pp_kernels_f64);
    ok(!forward(t, 1e-3), "%s: larger chunks give other features", t->name);
    finish(t);
    t->m.encoders[0].chunk--;
}

/* Weights that do not run are in files too, and have no gradient. */
static void idle_units(const struct tower *t)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t found = 0, gradients = 0;
    for (size_t i = 0; i < pp_component_first(&t->m, PP_LANGUAGE); i++) {
        struct pp_unit_id u = pp_model_unit(&t->m, i);
        size_t n = pp_unit_params(&t->m, u, table);
        for (size_t slot = 0; slot < n && !pp_unit_runs(&t->m, u); slot++) {
            char name[PP_FQN_TEXT + 8];
            snprintf(name, sizeof name, "grad.%.95s", table[slot].name);
            found += pp_tensors_find(t->golden, table[slot].name) != NULL;
            gradients += pp_tensors_find(t->golden, name) != NULL;
        }
    }
    ok(found == 18 && !gradients,
       "the last layer and the last norm have no gradients");
}

/* Plans add up what the tables list, and know which units do not run. */
static void sums(const struct tower *t)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    for (size_t i = 0; i < pp_component_first(&t->m, PP_LANGUAGE); i++) {
        struct pp_unit_id u = pp_model_unit(&t->m, i);
        size_t n = pp_unit_params(&t->m, u, table), elements = 0;
        bool trained = pp_unit_runs(&t->m, u), same = true;
        char name[PP_FQN_TEXT];
        for (size_t slot = 0; slot < n; slot++)
            if (table[slot].name[0]) {
                elements += pp_tensor_elements(&table[slot]);
                same = same && table[slot].frozen ==
                                   (!trained || is_fixed(&table[slot]));
            }
        pp_model_fqn(&t->m, u, name);
        ok(elements == pp_unit_n_params(&t->m, u),
           "%s: plans have the sum of its tensors", name);
        ok(same && (pp_unit_role(&t->m, u) == PP_ROLE_TRAINED) == trained,
           "  it is %s", trained ? "trained" : "frozen");
    }
}

/* Files have the names of released ones, or those of transformers 5. */
static void names(const char *dir, const struct tower *t)
{
    struct pp_tensors *saved;
    struct pp_err err = {0};
    const char *first;
    if (pp_tensors_open(dir, &saved, &err))
        give_up("%s", err.text);
    ok(!pp_weights_check(&t->m, saved, &err),
       "the model that transformers saved has all tensors %s", err.text);
    is_int((long long)pp_weights_unused(&t->m, saved, &first), 0,
           "and no other");
    pp_tensors_close(saved);
}

/* Opens the model and the golden of a folder, whose name goes to dir. */
static void open_golden(struct tower *t, char dir[4096])
{
    struct pp_err err = {0};
    const char *source = getenv("SRCDIR");
    char path[4200];
    snprintf(dir, 4096, "%.4000s/tests/golden/%s", source ? source : ".",
             t->name);
    snprintf(path, sizeof path, "%s/tower.safetensors", dir);
    if (pp_model_read(dir, &t->m, &err) ||
        pp_tensors_open(path, &t->golden, &err))
        give_up("%s", err.text);
}

static void llava(void)
{
    struct tower t = {.name = "llava", .items = {2, {5, 5}, {5, 5}}};
    char dir[4096];
    open_golden(&t, dir);
    compare(&t, &pp_kernels_f64, 1e-12);
    compare(&t, &pp_kernels_f32, 1e-4);
    idle_units(&t);
    sums(&t);
    names(dir, &t);
    pp_tensors_close(t.golden);
}

static void omni(void)
{
    struct tower t = {
        .name = "qwen2.5-omni",
        .items = {5, {4, 4, 10, 17, 8}, {4, 4, 10, 17, 8}},
    };
    char dir[4096];
    open_golden(&t, dir);
    keep_encoder(&t.m, "audio");
    compare(&t, &pp_kernels_f64, 1e-12);
    compare(&t, &pp_kernels_f32, 1e-4);
    controls(&t);
    sums(&t);
    pp_tensors_close(t.golden);
}

int main(void)
{
    llava();
    omni();
    return done();
}
