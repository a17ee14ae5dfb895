/* SPDX-License-Identifier: MIT */
/* test_weights - fills parameters from a seed and from tensors. */
#include "on_host.h"
#include "scratch.h"
#include "tap.h"

#include <unistd.h>

#include "run/parameters/weights.h"

static const struct pp_model tiny = {
    .architecture = PP_QWEN2,
    .hidden = 8,
    .intermediate = 12,
    .n_layers = 2,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 4,
    .vocab = 500,
    .init_range = 0.02,
    .tied = true,
    .qkv_bias = true,
};
enum { N_UNITS = 5, HEAD = 4 };

static struct pp_parameters make(const struct pp_model *m, size_t first,
                                 size_t n, size_t element_bytes)
{
    struct pp_parameters p;
    struct pp_err err = {0};
    struct pp_unit_range r = {0, first, n, 0};
    if (pp_parameters_init(&p, m, &r, 1,
                           element_bytes == 4 ? &floats : &doubles, 0, &err))
        give_up("%s", err.text);
    return p;
}

static void init(struct pp_parameters *p, const struct pp_model *m,
                 uint64_t seed)
{
    struct pp_err err = {0};
    if (pp_weights_init(p, m, seed, &err))
        give_up("%s", err.text);
}

static bool all_equal(const struct pp_parameter *t, float x)
{
    for (size_t i = 0; i < t->n; i++)
        if (((const float *)t->w)[i] != x)
            return false;
    return true;
}

static void test_values(void)
{
    struct pp_parameters p = make(&tiny, 0, N_UNITS, sizeof(float));
    init(&p, &tiny, 7);
    ok(all_equal(pp_parameters_find(&p, 0, 1, PP_P_NORM1), 1), "norms are 1");
    ok(all_equal(pp_parameters_find(&p, 0, 1, PP_P_K_BIAS), 0), "biases are 0");
    const struct pp_parameter *e = &p.at[0];
    double sum = 0, squares = 0;
    for (size_t i = 0; i < e->n; i++) {
        double x = ((const float *)e->w)[i];
        sum += x;
        squares += x * x;
    }
    /* The bounds are more than four standard errors of 4000 draws. */
    ok(fabs(sum / (double)e->n) < 0.0015, "matrices have mean 0");
    double deviation = sqrt(squares / (double)e->n);
    ok(deviation > 0.019 && deviation < 0.021,
       "matrices have the deviation of the model");
    ok(memcmp(pp_parameters_find(&p, 0, 1, PP_P_Q)->w,
              pp_parameters_find(&p, 0, 2, PP_P_Q)->w, 64 * sizeof(float)) != 0,
       "layers differ");
    ok(!memcmp(e->w, pp_parameters_find(&p, 0, HEAD, 0)->w,
               e->n * sizeof(float)),
       "a tied head is the embedding");

    struct pp_parameters other = make(&tiny, 0, N_UNITS, sizeof(float));
    init(&other, &tiny, 8);
    ok(memcmp(p.at[0].w, other.at[0].w, 64) != 0, "seeds differ");
    struct pp_parameters wide = make(&tiny, 0, N_UNITS, sizeof(double));
    init(&wide, &tiny, 7);
    bool same = true;
    for (size_t i = 0; i < e->n; i++)
        same = same &&
               ((const float *)e->w)[i] == (float)((double *)wide.at[0].w)[i];
    ok(same, "double rounds to float");
    pp_parameters_finish(&wide);
    pp_parameters_finish(&other);
    pp_parameters_finish(&p);
}

static void test_splits(void)
{
    struct pp_parameters whole = make(&tiny, 0, N_UNITS, sizeof(float));
    init(&whole, &tiny, 7);
    bool same = true;
    for (size_t first = 0; first < N_UNITS; first++) {
        struct pp_parameters p =
            make(&tiny, first, N_UNITS - first, sizeof(float));
        init(&p, &tiny, 7);
        for (size_t i = 0; i < p.n; i++) {
            struct pp_parameter *t =
                pp_parameters_find(&whole, 0, p.at[i].unit, p.at[i].slot);
            same = same && !memcmp(t->w, p.at[i].w, t->n * sizeof(float));
        }
        pp_parameters_finish(&p);
    }
    ok(same, "every split gets the same values");
    pp_parameters_finish(&whole);
}

/* Writes the tensors of p as F64, without skip, and bend with another shape. */
static void write_tensors(const char *path, const struct pp_parameters *p,
                          const char *skip_name, const char *bend)
{
    struct pp_tensor_spec specs[64];
    size_t n = 0;
    struct pp_err err = {0};
    struct pp_tensor_writer *w;
    static double data[8192];
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (t->tied_copy || !strcmp(t->info.name, skip_name))
            continue;
        specs[n] = (struct pp_tensor_spec){t->info.name,
                                           PP_DTYPE_F64,
                                           t->info.n_dims,
                                           {t->info.rows, t->info.cols}};
        if (!strcmp(t->info.name,
                    bend)) { /* the same bytes with two dimensions */
            specs[n].n_dims = 2;
            specs[n].dims[0] = t->info.cols;
            specs[n].dims[1] = t->info.rows;
        }
        n++;
    }
    int rc = pp_tensor_writer_open(path, specs, n, &w, &err);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (t->tied_copy || !strcmp(t->info.name, skip_name))
            continue;
        for (size_t k = 0; k < t->n; k++)
            data[k] = ((const float *)t->w)[k];
        rc = pp_tensor_writer_put(w, data, t->n * sizeof *data, &err);
    }
    if (rc || pp_tensor_writer_close(w, &err))
        give_up("%s", err.text);
}

/* Loads the file and returns the message, "" if there is none. */
static struct pp_err load(const char *path, const struct pp_model *m,
                          struct pp_parameters *p)
{
    struct pp_err err = {0};
    struct pp_tensors *t = NULL;
    int rc = pp_tensors_open(path, &t, &err);
    if (rc == 0)
        rc = pp_weights_load(p, m, t, &err);
    if ((rc != 0) != (err.code != PP_EXIT_OK))
        pp_fail(&err, PP_EXIT_SYSTEM, "a status of %d and no error", rc);
    pp_tensors_close(t);
    return err;
}

static void test_load(const char *path)
{
    struct pp_parameters p = make(&tiny, 0, N_UNITS, sizeof(float));
    struct pp_parameters q = make(&tiny, 0, N_UNITS, sizeof(float));
    init(&p, &tiny, 3);
    write_tensors(path, &p, "", "");
    struct pp_err err = load(path, &tiny, &q);
    is_str(err.text, "", "loads the file");
    bool same = true;
    for (size_t i = 0; i < p.n; i++)
        same = same && !memcmp(p.at[i].w, q.at[i].w, p.at[i].n * sizeof(float));
    ok(same, "every value is the same, also in the tied head");

    struct pp_model untied = tiny;
    untied.tied = false;
    struct pp_parameters u = make(&untied, 0, N_UNITS, sizeof(float));
    err = load(path, &untied, &u);
    is_str(err.text, "no tensor 'lm_head.weight'",
           "an untied head must be there");
    is_int(err.code, PP_EXIT_INPUT, "it is an input error");

    write_tensors(path, &p, "model.layers.1.self_attn.k_proj.bias", "");
    err = load(path, &tiny, &q);
    is_str(err.text, "no tensor 'model.layers.1.self_attn.k_proj.bias'",
           "names a missing tensor");
    write_tensors(path, &p, "", "model.layers.0.mlp.up_proj.weight");
    err = load(path, &tiny, &q);
    is_str(err.text,
           "'model.layers.0.mlp.up_proj.weight' is [8, 12], expected [12, 8]",
           "names another shape");
    write_tensors(path, &p, "", "model.norm.weight");
    err = load(path, &tiny, &q);
    is_str(err.text, "'model.norm.weight' is [1, 8], expected [8]",
           "vectors have one dimension");
    pp_parameters_finish(&u);
    pp_parameters_finish(&q);
    pp_parameters_finish(&p);
}

/* Writes what the released weights of GPT-2 have: names without their prefix,
 * transposed matrices, no head, and a buffer. */
static void write_released(const char *path, const struct pp_parameters *p)
{
    struct pp_tensor_spec specs[64] = {{"h.0.attn.bias", PP_DTYPE_F32, 1, {1}}};
    size_t n = 1;
    struct pp_err err = {0};
    struct pp_tensor_writer *w;
    static float data[8192];
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_tensor_info *t = &p->at[i].info;
        if (p->at[i].tied_copy)
            continue;
        specs[n] = (struct pp_tensor_spec){
            t->name + strlen("transformer."), PP_DTYPE_F32, t->n_dims, {0}};
        pp_tensor_file_sizes(t, specs[n++].dims);
    }
    int rc = pp_tensor_writer_open(path, specs, n, &w, &err) ||
             pp_tensor_writer_put(w, data, sizeof *data, &err);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (t->tied_copy)
            continue;
        size_t rows = t->info.transposed ? t->info.rows : 1;
        pp_transpose(data, t->w, rows, t->n / rows, sizeof *data);
        rc = pp_tensor_writer_put(w, data, t->n * sizeof *data, &err);
    }
    if (rc || pp_tensor_writer_close(w, &err))
        give_up("%s", err.text);
}

static double spread(const struct pp_parameter *t)
{
    double squares = 0;
    for (size_t i = 0; i < t->n; i++)
        squares += pow((double)((const float *)t->w)[i], 2);
    return sqrt(squares / (double)t->n);
}

static void test_gpt2(const char *path)
{
    struct pp_model m = tiny;
    m.architecture = PP_GPT2;
    m.n_kv_heads = m.n_heads;
    m.max_position = 16;
    m.o_bias = m.mlp_bias = true;
    m.intermediate = 200;
    struct pp_parameters p = make(&m, 0, N_UNITS, sizeof(float));
    struct pp_parameters q = make(&m, 0, N_UNITS, sizeof(float));
    init(&p, &m, 3);
    double up = spread(pp_parameters_find(&p, 0, 1, PP_P_UP));
    double down = spread(pp_parameters_find(&p, 0, 1, PP_P_DOWN));
    ok(down > 0.45 * up && down < 0.55 * up,
       "the last product of two layers begins at half");
    write_released(path, &p);
    struct pp_err err = load(path, &m, &q);
    is_str(err.text, "", "loads the released names");
    bool same = true;
    for (size_t i = 0; i < p.n; i++)
        same = same && !memcmp(p.at[i].w, q.at[i].w, p.at[i].n * sizeof(float));
    ok(same, "every value is the same, also where the file has the transpose");
    struct pp_tensors *t = NULL;
    const char *first;
    ok(pp_tensors_open(path, &t, &err) == 0 &&
           pp_weights_check(&m, t, &err) == 0 &&
           pp_weights_unused(&m, t, &first) == 0,
       "no tensor is missing or left over");
    pp_tensors_close(t);
    m.intermediate = 100;
    struct pp_parameters other = make(&m, 0, N_UNITS, sizeof(float));
    err = load(path, &m, &other);
    is_str(err.text, "'h.0.mlp.c_fc.weight' is [8, 200], expected [8, 100]",
           "names another shape as the file has it");
    pp_parameters_finish(&other);
    pp_parameters_finish(&q);
    pp_parameters_finish(&p);
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[64];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/w.safetensors", dir);
    test_values();
    test_splits();
    test_load(path);
    test_gpt2(path);
    scratch_remove(dir);
    return done();
}
