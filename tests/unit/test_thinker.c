/* SPDX-License-Identifier: MIT */
/* test_thinker - reads a Qwen2.5-Omni as it is released, whose thinker is a
 * part of it, and writes the configuration of the thinker. */
#include "manifest/config_json.h"
#include "on_host.h"
#include "run/parameters/weights.h"
#include "scratch.h"

enum { MOST_TENSORS = 256, NAME = 160, MOST_TEXT = 1 << 14 };

/* Names that released files have beside those of the thinker. */
static const char *const others[] = {"talker.codec_head.weight",
                                     "token2wav.code2wav_bigvgan_model.x"};
enum { N_OTHERS = sizeof others / sizeof *others };

struct renamed {
    const char *what, *begin, *other;
};

static struct pp_err err;

static void need(int rc)
{
    if (rc)
        give_up("%s", err.text);
}

/* --- config.json --- */

static void write_text(const char *path, const char *begin, const char *text,
                       const char *end)
{
    FILE *f = fopen(path, "w");
    need(!f || fprintf(f, "%s%s%s", begin, text, end) < 0 || fclose(f));
}

/* Compares what a checkpoint has of a file with that of the thinker's own. */
static void gives_thinker(const char *path, const char *want, const char *what)
{
    struct pp_model m;
    char *text = NULL;
    need(pp_model_read(path, &m, &err) ||
         pp_config_text(path, "float64", &text, &err));
    is_str(text, want, what);
    free(text);
}

static void configurations(const char *golden, const char *dir)
{
    static const char class[] = "Qwen2_5OmniThinkerForConditionalGeneration";
    static const char released[] =
        "Qwen2OmniNaViTThinkerForConditionalGeneration";
    char path[64], *text = NULL, *want, other[MOST_TEXT];
    snprintf(path, sizeof path, "%s/config.json", dir);
    need(pp_config_text(golden, "float64", &want, &err) ||
         pp_config_text(golden, "bfloat16", &text, &err));
    ok(strstr(want, "\n  \"dtype\": \"float64\"") &&
           strstr(text, "\n  \"dtype\": \"bfloat16\""),
       "the thinker gets its dtype");
    write_text(path,
               "{\"architectures\": [\"Qwen2_5OmniModel\"], \"model_type\": "
               "\"qwen2_5_omni\", \"dtype\": \"bfloat16\", "
               "\"talker_config\": {}, \"thinker_config\": ",
               text, "}");
    gives_thinker(path, want, "a whole model gives that of its thinker");
    char *at = strstr(text, class);
    snprintf(other, sizeof other, "%.*s%s%s", (int)(at ? at - text : 0), text,
             released, at ? at + strlen(class) : "");
    write_text(path, "", other, "");
    gives_thinker(path, want,
                  "a released thinker gets the class that "
                  "transformers has");
    write_text(path,
               "{\"model_type\": \"qwen2_5_omni\", \"thinker_config\": ", other,
               "}");
    gives_thinker(path, want, "and so does one of a whole model");
    free(text);
    free(want);
}

/* --- names --- */

/* Writes the tensors of a model under other names, and those of other parts.
 * Leaves out tensor number `without`. */
static void rename_all(const struct pp_tensors *t, const struct renamed *r,
                       size_t n, size_t without, const char *path)
{
    static char names[MOST_TENSORS][NAME];
    struct pp_tensor_spec specs[MOST_TENSORS];
    struct pp_tensor_writer *w;
    const float zeros[N_OTHERS] = {0};
    size_t n_specs = 0;
    for (size_t i = 0; i < pp_tensors_n(t); i++) {
        const struct pp_tensor *x = pp_tensors_at(t, i);
        if (i == without)
            continue;
        snprintf(names[n_specs], NAME, "%s", x->name);
        for (size_t k = 0; k < n; k++)
            if (!strncmp(x->name, r[k].begin, strlen(r[k].begin)))
                snprintf(names[n_specs], NAME, "%s%s", r[k].other,
                         x->name + strlen(r[k].begin));
        specs[n_specs] =
            (struct pp_tensor_spec){names[n_specs], x->dtype, x->n_dims, {0}};
        memcpy(specs[n_specs++].dims, x->dims, sizeof x->dims);
    }
    for (size_t i = 0; i < N_OTHERS; i++)
        specs[n_specs++] =
            (struct pp_tensor_spec){others[i], PP_DTYPE_F32, 1, {1}};
    need(pp_tensor_writer_open(path, specs, n_specs, &w, &err));
    for (size_t i = 0; i < pp_tensors_n(t); i++)
        if (i != without)
            need(pp_tensor_writer_put(w, pp_tensors_at(t, i)->data,
                                      pp_tensors_at(t, i)->bytes, &err));
    need(pp_tensor_writer_put(w, zeros, sizeof zeros, &err) ||
         pp_tensor_writer_close(w, &err));
}

static struct pp_parameters load(const struct pp_model *m,
                                 const struct pp_tensors *t)
{
    struct pp_parameters p;
    const struct pp_unit_range all = {0, 0, pp_model_n_units(m), 0};
    need(pp_parameters_init(&p, m, &all, 1, &floats, 0, &err) ||
         pp_weights_load(&p, m, t, &err));
    return p;
}

static void reads(const struct pp_model *m, const struct pp_tensors *golden,
                  const struct renamed *r, size_t n, const char *path)
{
    struct pp_tensors *t;
    const char *first;
    rename_all(golden, r, n, SIZE_MAX, path);
    need(pp_tensors_open(path, &t, &err));
    ok(!pp_weights_check(m, t, &err), "%s: no tensor is missing %s", r->what,
       err.text);
    size_t left = pp_weights_unused(m, t, &first);
    ok(left == N_OTHERS && !strcmp(first, others[0]),
       "  only those of other parts are left");
    struct pp_parameters want = load(m, golden), got = load(m, t);
    size_t same = 0, values = 0;
    for (size_t i = 0; i < want.n; i++) {
        same +=
            !memcmp(want.at[i].w, got.at[i].w, want.at[i].n * sizeof(float));
        for (size_t k = 0; k < want.at[i].n; k++)
            values += ((const float *)got.at[i].w)[k] != 0;
    }
    ok(want.n == pp_tensors_n(golden) && same == want.n && values > 20000,
       "  all %zu tensors have their values", want.n);
    pp_parameters_finish(&want);
    pp_parameters_finish(&got);
    pp_tensors_close(t);
}

/* Each tensor is needed, and its name is said. */
static void needs_all(const struct pp_model *m, const struct pp_tensors *golden,
                      const struct renamed *r, const char *path)
{
    size_t named = 0, n = pp_tensors_n(golden);
    for (size_t i = 0; i < n; i += 7) {
        struct pp_err missing = {0};
        struct pp_tensors *t;
        char want[NAME + 16];
        snprintf(want, sizeof want, "no tensor '%s'",
                 pp_tensors_at(golden, i)->name);
        rename_all(golden, r, 1, i, path);
        need(pp_tensors_open(path, &t, &err));
        if (pp_weights_check(m, t, &missing) && !strcmp(missing.text, want))
            named++;
        else
            printf("# %s: %s\n", want, missing.text);
        pp_tensors_close(t);
    }
    is_int((long long)named, (long long)(n + 6) / 7,
           "a tensor that is missing is named");
}

int main(void)
{
    static const struct renamed whole[] = {
        {"a whole model", "", "thinker."},
    };
    static const struct renamed nested[] = {
        {"modules of transformers 5", "model.", "model.language_model."},
        {NULL, "visual.", "model.visual."},
        {NULL, "audio_tower.", "model.audio_tower."},
    };
    const char *source = getenv("SRCDIR");
    char golden[4096], dir[SCRATCH_TEXT], path[64];
    struct pp_model m;
    struct pp_tensors *t = NULL;
    snprintf(golden, sizeof golden, "%.4000s/tests/golden/qwen2.5-omni",
             source ? source : ".");
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    configurations(golden, dir);
    need(pp_model_read(golden, &m, &err) || pp_tensors_open(golden, &t, &err));
    reads(&m, t, whole, 1, path);
    reads(&m, t, nested, 3, path);
    needs_all(&m, t, whole, path);
    pp_tensors_close(t);
    scratch_remove(dir);
    return done();
}
