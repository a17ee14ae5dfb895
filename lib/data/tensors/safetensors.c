/* SPDX-License-Identifier: MIT */
/* safetensors - sets of tensors: one file, or the shards of an index, sorted by
 * name. */
#include "data/tensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/foreign.h"
#include "base/vec.h"
#include "data/scan.h"

static const char index_suffix[] = ".index.json";
static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

/* A mapped file. */
struct shard {
    const char *name; /* spelled as in the index */
    const void *map;
    size_t map_bytes;
};

struct pp_tensors {
    struct pp_arena arena;
    struct pp_tensor_list list;
    struct shard *shards;
    size_t n_shards, shard_capacity;
    struct pp_tensors *added; /* whose files hold tensors of this one; or NULL
                               */
};

/* One entry of the index: a tensor and its shard. */
struct index_entry {
    const char *tensor;
    size_t shard;
};

struct index_map {
    struct index_entry *items;
    size_t n, capacity;
};

/* Maps one file and appends its tensors. */
static int map_shard(struct pp_tensors *t, const char *path, struct shard *s,
                     struct pp_err *err)
{
    if (pp_file_map(path, &s->map, &s->map_bytes, err))
        return -1;
    return pp_safetensors_parse(path, s->map, s->map_bytes, &t->arena, &t->list,
                                err);
}

static int compare_names(const void *a, const void *b)
{
    const struct pp_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int sort_tensors(struct pp_tensors *t, const char *path,
                        struct pp_err *err)
{
    struct pp_tensor *items = t->list.items;
    if (t->list.n > 0)
        qsort(items, t->list.n, sizeof *items, compare_names);
    for (size_t i = 1; i < t->list.n; i++)
        if (!strcmp(items[i - 1].name, items[i].name))
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' occurs twice", path,
                           items[i].name);
    return 0;
}

static int open_single(struct pp_tensors *t, const char *path,
                       struct pp_err *err)
{
    t->shards = pp_calloc(1, sizeof *t->shards);
    t->n_shards = t->shard_capacity = 1;
    t->shards[0].name = path;
    if (map_shard(t, path, &t->shards[0], err))
        return -1;
    return sort_tensors(t, path, err);
}

/* Returns whether a shard's path stays inside the directory of its index. Links
 * may lead out: a download cache consists of links. */
static bool is_inside(const char *path)
{
    if (*path == '\0' || *path == '/')
        return false;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += n + (p[n] == '/');
    }
    return true;
}

/* Finds the number of the shard of that name; adds a new one. */
static int shard_number(struct pp_tensors *t, const char *path,
                        const char *name, size_t *number, struct pp_err *err)
{
    /* An index lists shards in runs, so the last one is likely. */
    for (size_t i = t->n_shards; i-- > 0;)
        if (!strcmp(t->shards[i].name, name)) {
            *number = i;
            return 0;
        }
    if (!is_inside(name))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not in the directory of the index", path,
                       name);
    pp_array_reserve(&t->shards, &t->shard_capacity, t->n_shards + 1,
                     sizeof *t->shards);
    *number = t->n_shards;
    t->shards[t->n_shards++] = (struct shard){.name = name};
    return 0;
}

/* Reads {"tensor": "shard", ...}. */
static int read_weight_map(struct pp_tensors *t, struct pp_scan *s,
                           struct index_map *map, struct pp_err *err)
{
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '{', err))
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0) {
        struct index_entry p;
        const char *shard;
        if (pp_scan_key(s, &t->arena, &p.tensor, err) ||
            pp_scan_string(s, &t->arena, &shard, err) ||
            shard_number(t, s->name, shard, &p.shard, err))
            return -1;
        PP_VEC_PUSH(map, p);
    }
    return more;
}

static int read_index(struct pp_tensors *t, struct pp_scan *s,
                      struct index_map *map, struct pp_err *err)
{
    const char *key;
    size_t n = 0;
    int more;
    bool found = false;
    if (pp_scan_expect(s, '{', err))
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0) {
        if (pp_scan_key(s, &t->arena, &key, err))
            return -1;
        if (strcmp(key, "weight_map")) {
            if (pp_scan_skip(s, err))
                return -1;
            continue;
        }
        if (found)
            return pp_scan_fail(s, err, "repeated '%s'", key);
        found = true;
        if (read_weight_map(t, s, map, err))
            return -1;
    }
    if (more || pp_scan_end(s, err))
        return -1;
    if (!found)
        return pp_fail(err, PP_EXIT_INPUT, "%s: no 'weight_map'", s->name);
    return 0;
}

static int compare_placed(const void *a, const void *b)
{
    const struct index_entry *x = a, *y = b;
    return strcmp(x->tensor, y->tensor);
}

/* Checks that every tensor of the index is in its shard, and that none is named
 * twice. Tensors that only a shard names are kept. */
static int check_weight_map(const struct pp_tensors *t, const char *path,
                            struct index_map *map, struct pp_err *err)
{
    if (map->n > 0)
        qsort(map->items, map->n, sizeof *map->items, compare_placed);
    for (size_t i = 0; i < map->n; i++) {
        const struct index_entry *p = &map->items[i];
        const struct shard *s = &t->shards[p->shard];
        const struct pp_tensor *x = pp_tensors_find(t, p->tensor);
        if (i > 0 && !strcmp(p[-1].tensor, p->tensor))
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' occurs twice", path,
                           p->tensor);
        /* The last tensor may be empty: then it is one past the end. */
        const char *at = x ? x->data : NULL, *begin = s->map;
        if (!at || at < begin || at > begin + s->map_bytes)
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not in '%s'", path,
                           p->tensor, s->name);
    }
    return 0;
}

static int open_shards(struct pp_tensors *t, const char *path,
                       struct pp_err *err)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash + 1 - path) : 0;
    for (size_t i = 0; i < t->n_shards; i++) {
        char *name =
            pp_arena_printf(&t->arena, "%.*s%s", dir, path, t->shards[i].name);
        if (map_shard(t, name, &t->shards[i], err))
            return -1;
    }
    return 0;
}

static int open_index(struct pp_tensors *t, const char *path,
                      struct pp_err *err)
{
    struct index_map map = {0};
    const void *text;
    size_t bytes;
    int rc = -1;
    if (pp_file_map(path, &text, &bytes, err))
        return -1;
    struct pp_scan s = {.text = text, .n = bytes, .name = path};
    if (read_index(t, &s, &map, err) == 0 && open_shards(t, path, err) == 0 &&
        sort_tensors(t, path, err) == 0)
        rc = check_weight_map(t, path, &map, err);
    free(map.items);
    pp_file_unmap(text, bytes);
    return rc;
}

/* Returns dir/name in the arena. */
static char *path_in_dir(struct pp_tensors *t, const char *dir,
                         const char *name)
{
    size_t n = strlen(dir);
    return pp_arena_printf(&t->arena, "%s%s%s", dir,
                           n > 0 && dir[n - 1] == '/' ? "" : "/", name);
}

static int open_set(struct pp_tensors *t, const char *path, struct pp_err *err)
{
    size_t n = strlen(path), m = strlen(index_suffix);
    if (!pp_file_is_dir(path)) {
        if (n >= m && !strcmp(path + n - m, index_suffix))
            return open_index(t, path, err);
        return open_single(t, path, err);
    }
    char *single = path_in_dir(t, path, single_name);
    char *index = path_in_dir(t, path, index_name);
    if (pp_file_exists(single))
        return open_single(t, single, err);
    if (pp_file_exists(index))
        return open_index(t, index, err);
    const char *instead = pp_foreign_dir(path);
    return instead ? pp_fail(err, PP_EXIT_INPUT, "%s: %s", path, instead)
                   : pp_fail(err, PP_EXIT_INPUT, "%s: no %s and no %s", path,
                             single_name, index_name);
}

int pp_tensors_open(const char *path, struct pp_tensors **out,
                    struct pp_err *err)
{
    struct pp_tensors *t = pp_calloc(1, sizeof *t);
    *out = NULL;
    if (open_set(t, path, err)) {
        pp_tensors_close(t);
        return -1;
    }
    *out = t;
    return 0;
}

int pp_tensors_add(struct pp_tensors *t, const char *path, const char *prefix,
                   struct pp_err *err)
{
    struct pp_tensors *more;
    if (pp_tensors_open(path, &more, err))
        return -1;
    more->added = t->added;
    t->added = more;
    for (size_t i = 0; i < more->list.n; i++) {
        struct pp_tensor x = more->list.items[i];
        x.name = pp_arena_printf(&t->arena, "%s%s", prefix, x.name);
        PP_VEC_PUSH(&t->list, x);
    }
    return sort_tensors(t, path, err);
}

size_t pp_tensors_n(const struct pp_tensors *t)
{
    return t->list.n;
}

const struct pp_tensor *pp_tensors_at(const struct pp_tensors *t, size_t i)
{
    return &t->list.items[i];
}

const struct pp_tensor *pp_tensors_find(const struct pp_tensors *t,
                                        const char *name)
{
    const struct pp_tensor key = {.name = name};
    if (t->list.n == 0)
        return NULL;
    return bsearch(&key, t->list.items, t->list.n, sizeof key, compare_names);
}

void pp_tensors_close(struct pp_tensors *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_shards; i++)
        pp_file_unmap(t->shards[i].map, t->shards[i].map_bytes);
    pp_tensors_close(t->added);
    free(t->shards);
    free(t->list.items);
    pp_arena_finish(&t->arena);
    free(t);
}

bool pp_tensors_exist(const char *dir)
{
    struct pp_tensors t = {0};
    char *single = path_in_dir(&t, dir, single_name);
    char *index = path_in_dir(&t, dir, index_name);
    bool exist = pp_file_exists(single) || pp_file_exists(index);
    pp_arena_finish(&t.arena);
    return exist;
}
