/* SPDX-License-Identifier: MIT */
/* fuzz_outline - plans models of unknown architectures. Of the bytes, the first
 * line is a config.json, and each other line is a tensor: its name and sizes.
 * The model is refused with one line, or has a table of finite costs.
 *
 * If the configuration is that of a model that is trained, its own tensors with
 * other letters in their names have to give a table with the parameters of the
 * model, layer by layer. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "manifest/config_json.h"
#include "manifest/outline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST_TENSORS = 3000, MOST_DIMS = 8, PATH_TEXT = 64 };

/* Tensors and the memory of their sizes. */
struct tensors {
    struct pp_arena arena;
    struct pp_shape *at;
    size_t n;
};

static void check_error(const struct pp_err *err)
{
    if (err->code != PP_EXIT_INPUT || !*err->text || strchr(err->text, '\n'))
        abort();
}

static int file_of(const char *text, size_t n, char path[PATH_TEXT])
{
    int fd = memfd_create("config.json", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        abort();
    snprintf(path, PATH_TEXT, "/proc/self/fd/%d", fd);
    return fd;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct pp_shape *)a)->name,
                  ((const struct pp_shape *)b)->name);
}

/* Sorts tensors by name, and keeps one of each name, as a file has. */
static void sort(struct tensors *t)
{
    size_t kept = 0;
    if (t->n)
        qsort(t->at, t->n, sizeof *t->at, by_name);
    for (size_t i = 0; i < t->n; i++)
        if (!i || by_name(&t->at[kept - 1], &t->at[i]))
            t->at[kept++] = t->at[i];
    t->n = kept;
}

static void add(struct tensors *t, const char *name, const uint64_t *dims,
                int n_dims, bool is_buffer)
{
    uint64_t *own = pp_arena_alloc(&t->arena, MOST_DIMS, sizeof *own);
    memcpy(own, dims, (size_t)n_dims * sizeof *own);
    t->at[t->n++] = (struct pp_shape){pp_arena_strdup(&t->arena, name), n_dims,
                                      own, is_buffer};
}

/* Reads lines of a name and sizes; '!' in front of a name makes it a buffer. */
static void read_lines(struct tensors *t, char *text)
{
    for (char *line = text, *end; line && t->n < MOST_TENSORS; line = end) {
        uint64_t dims[MOST_DIMS];
        int n_dims = 0;
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        char *at = line + strcspn(line, " ");
        char *sizes = *at ? at + 1 : at;
        *at = '\0';
        while (n_dims < MOST_DIMS && *sizes >= '0' && *sizes <= '9') {
            dims[n_dims++] = strtoull(sizes, &sizes, 10) % 1000000;
            sizes += *sizes == ' ';
        }
        if (*line)
            add(t, line + (*line == '!'), dims, n_dims, *line == '!');
    }
    sort(t);
}

static void check_table(const struct pp_model *m)
{
    if (!m->table || m->table->n != m->n_layers + 3 || !m->n_layers)
        abort();
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        const struct pp_unit_row *r = &m->table->rows[i];
        bool fine = r->fqn && *r->fqn && isfinite(r->per_any_pair) &&
                    r->costs.fwd_flops[0] >= 0 && r->costs.fwd_flops[1] >= 0 &&
                    isfinite(r->costs.fwd_flops[0]) &&
                    isfinite(r->costs.fwd_flops[1]);
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            fine &= r->divided[b] >= 0 &&
                    r->costs.act_bytes[b] >= r->divided[b] &&
                    isfinite(r->costs.act_bytes[b]);
        if (!fine || r->experts > r->costs.params || r->whole > r->costs.params)
            abort();
    }
}

/* Gives a word its letters in another order, which depends on the word alone.
 * Digits stay where they are. */
static void rename_word(char *word, size_t n)
{
    uint64_t state = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < n; i++)
        state = (state ^ (unsigned char)word[i]) * 0x100000001b3;
    for (size_t i = n; i > 1; i--) {
        char *a = &word[i - 1], *b = &word[(state >> 32) % i], c = *a;
        state = state * 6364136223846793005 + 1;
        if ((*a < '0' || *a > '9') && (*b < '0' || *b > '9')) {
            *a = *b;
            *b = c;
        }
    }
}

/* Renames all words between dots but weight and bias at the end. */
static void rename_tensor(char *name)
{
    size_t n;
    for (char *word = name; *word; word += n + (word[n] == '.')) {
        n = strcspn(word, ".");
        if (word[n] || (strcmp(word, "weight") && strcmp(word, "bias")))
            rename_word(word, n);
    }
}

static void own_tensors(const struct pp_model *m, struct tensors *t)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], one;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        size_t n = pp_unit_params(m, pp_model_unit(m, i), table);
        for (size_t slot = 0; slot < pp_table_slots(table, n); slot++) {
            uint64_t sizes[PP_TENSOR_DIMS];
            if (!pp_table_at(table, n, slot, &one) || one.tied_to ||
                (one.stack && one.number))
                continue;
            int n_sizes = pp_tensor_file_sizes(&one, sizes);
            rename_tensor(one.name);
            add(t, one.name, sizes, n_sizes, false);
        }
    }
    size_t n = t->n;
    sort(t);
    if (t->n != n)
        abort(); /* two words have become the same */
}

static void check_params(const struct pp_model *want, const struct pp_model *m)
{
    check_table(m);
    if (m->n_layers != want->n_layers ||
        pp_model_n_params(m) != pp_model_n_params(want))
        abort();
    for (size_t i = 0; i < m->n_layers; i++) {
        struct pp_unit_id u = {PP_UNIT_LAYER, i, PP_LANGUAGE};
        if (pp_unit_n_params(want, u) != m->table->rows[1 + i].costs.params)
            abort();
    }
}

/* Plans a model that is known as one that is not. */
static void plan_renamed(const char *text, const struct pp_model *known)
{
    char path[PATH_TEXT];
    struct tensors t = {0};
    struct pp_model m;
    struct pp_err why = {.code = PP_EXIT_INPUT, .text = "why"}, err = {0};
    json_t *config = json_loads(text, 0, NULL);
    if (!config) /* with numbers that only Python writes */
        return;
    json_object_set_new(config, "architectures", json_pack("[s]", "Unknown"));
    json_object_set_new(config, "model_type", json_string("unknown"));
    char *renamed = json_dumps(config, 0);
    int fd = file_of(renamed, strlen(renamed), path);
    t.at = calloc(pp_model_n_tensors(known) + 1, sizeof *t.at);
    if (!t.at)
        abort();
    own_tensors(known, &t);
    if (pp_outline_read(path, t.at, t.n, true, &why, &t.arena, &m, &err))
        abort();
    check_params(known, &m);
    close(fd);
    free(renamed);
    json_decref(config);
    free(t.at);
    pp_arena_finish(&t.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[PATH_TEXT];
    struct tensors t = {.at = calloc(MOST_TENSORS, sizeof *t.at)};
    struct pp_model m = {0};
    struct pp_err why = {0}, err = {0};
    char *text = strndup((const char *)data, n);
    if (!text || !t.at)
        abort();
    char *lines = strchr(text, '\n');
    if (lines)
        *lines++ = '\0';
    int fd = file_of(text, strlen(text), path);
    if (lines)
        read_lines(&t, lines);
    if (pp_model_read(path, &m, &why) == 0) {
        bool plain = !pp_model_has_encoder(&m) && !m.scores;
        if (plain && pp_model_n_tensors(&m) < MOST_TENSORS)
            plan_renamed(text, &m);
    } else if (pp_outline_read(path, t.at, t.n, true, &why, &t.arena, &m,
                               &err)) {
        check_error(&err);
    } else {
        check_table(&m);
    }
    close(fd);
    free(text);
    free(t.at);
    pp_arena_finish(&t.arena);
    return 0;
}
