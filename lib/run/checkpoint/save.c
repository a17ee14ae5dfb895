/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/save.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/thread.h"
#include "run/checkpoint/agree.h"
#include "run/checkpoint/files.h"
#include "run/checkpoint/shards.h"
#include "run/checkpoint/sums.h"

enum phase { PHASE_DATA, PHASE_SUMS, PHASE_COMMIT };

struct pp_saving {
    struct pp_ckpt c;
    struct pp_ckpt_state state;
    char tmp[PP_PATH_TEXT];
    struct pp_shards shards;
    struct pp_exchange exchange, turn;
    uint64_t *sums; /* (n_files) a file has one owner; 0 at the other ranks */
    uint64_t *all;  /* (ranks, n_files) */
    int owner;      /* rank 0's descriptor (files.h), or -1 */
    bool background, complete;

    enum phase phase;
    bool joinable;
    pthread_t thread;
    /* The thread has the fields above while the phase is not idle. */
    pthread_mutex_t lock; /* of these: */
    pthread_cond_t changed;
    bool written, idle;
    int rc; /* of this rank's work in the phase, and its error */
    struct pp_err err;
};

/* Files that transformers looks for beside weights and config.json. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
};

/* A folder beside them: the chat templates of a model that has several. */
#define TEMPLATES "additional_chat_templates"

/* Files that a checkpoint has of its own. */
static const char *const own[] = {"config.json", PP_CKPT_SUMS};

/* The ends of names of weights, of their indexes, and of what must not stand
 * beside other weights. */
static const char *const weights[] = {
    ".safetensors",
    ".index.json",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".npz",
    ".distcp",
    ".tflite",
    ".tmp",
    "adapter_config.json",
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static bool ends_like_weights(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < LENGTH(weights); i++) {
        size_t k = strlen(weights[i]);
        if (n >= k && !strcmp(name + n - k, weights[i]))
            return true;
    }
    return false;
}

/* Returns whether a file of a model's directory is one to copy. Names that a
 * list of checksums cannot hold are none. */
static bool is_extra(const char *path, const char *name)
{
    struct stat st;
    for (const char *p = name; *p; p++)
        if (iscntrl((unsigned char)*p))
            return false;
    return *name != '.' && !is_among(name, own, LENGTH(own)) &&
           !ends_like_weights(name) && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A copy of companions: the folders that they come from and go to. */
struct copies {
    const char *folder, *to; /* NULL: they are only read */
    const char *below;       /* a folder in both, with a slash, or "" */
    bool whole;              /* the folder is a model's: all of its files */
    struct pp_ckpt_sums *sums;
};

/* Copies a file if it is a companion. */
static int copy_file(const struct copies *c, const char *file,
                     struct pp_err *err)
{
    char from[PP_PATH_TEXT], to[PP_PATH_TEXT], name[PP_PATH_TEXT];
    uint64_t sum;
    if (pp_path(name, err, "%s%s", c->below, file) ||
        pp_path(from, err, "%s/%s", c->folder, name) ||
        pp_path(to, err, "%s/%s", c->to ? c->to : "", name))
        return -1;
    if (is_among(file, companions, LENGTH(companions))
            ? !pp_file_exists(from)
            : !c->whole || !is_extra(from, file))
        return 0;
    return pp_file_copy(from, c->to ? to : NULL, &sum, err) ||
                   (c->to && pp_ckpt_sums_add(c->sums, name, sum, err))
               ? -1
               : 0;
}

static int copy_files(const struct copies *c, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    struct dirent **files;
    if (pp_path(path, err, "%s/%s", c->folder, c->below))
        return -1;
    int rc = 0, n = scandir(path, &files, NULL, by_name);
    if (n < 0) /* a folder that has gone */
        return errno == ENOENT ? 0 : pp_fail_errno(err, "%s", path);
    for (int i = 0; i < n; i++) {
        rc = rc ? rc : copy_file(c, files[i]->d_name, err);
        free(files[i]);
    }
    free(files);
    return rc;
}

/* Copies the folder of chat templates, if there is one. */
static int copy_templates(struct copies c, struct pp_err *err)
{
    char from[PP_PATH_TEXT], to[PP_PATH_TEXT];
    c.below = TEMPLATES "/";
    c.whole = true;
    if (pp_path(from, err, "%s/" TEMPLATES, c.folder) ||
        pp_path(to, err, "%s/" TEMPLATES, c.to ? c.to : ""))
        return -1;
    if (!pp_file_is_dir(from))
        return 0;
    return (c.to && pp_dir_make(to, err)) || copy_files(&c, err) ||
                   (c.to && pp_file_sync(to, err))
               ? -1
               : 0;
}

/* A folder with a config.json may have anything else. */
int pp_ckpt_copy_companions(const char *source, const char *to,
                            struct pp_ckpt_sums *sums, struct pp_err *err)
{
    char folder[PP_PATH_TEXT];
    const char *slash = strrchr(source, '/');
    struct copies c = {folder, to, "", pp_file_is_dir(source), sums};
    if (c.whole ? pp_path(folder, err, "%s", source)
                : pp_path(folder, err, "%.*s",
                          slash ? (int)(slash - source) + 1 : 1,
                          slash ? source : "."))
        return -1;
    return copy_files(&c, err) || copy_templates(c, err) ? -1 : 0;
}

int pp_ckpt_check_source(const char *source, struct pp_err *err)
{
    return pp_ckpt_copy_companions(source, NULL, NULL, err);
}

/* Called by rank 0 alone. */
static int make_directories(const struct pp_ckpt *c, const char *tmp,
                            int *owner, struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT], generator[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) ||
        pp_path(generator, err, "%s/generator", tmp) ||
        pp_ckpt_begin(c->dir, tmp, owner, err) ||
        (c->generator_config && pp_dir_make(generator, err)))
        return -1;
    return c->weights_only ? 0 : pp_dir_make(optimizer, err);
}

/* Writes everything but shards. Called by rank 0 alone. */
static int write_rest(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                      const char *tmp, const struct pp_shards *shards,
                      const uint64_t *shard_sums, struct pp_err *err)
{
    struct pp_ckpt_sums sums = {0};
    int rc = -1;
    const char *config =
        c->params->adapts ? "adapter_config.json" : "config.json";
    if (pp_ckpt_sums_put(&sums, tmp, config, c->config_text,
                         strlen(c->config_text), err) ||
        (c->generator_config &&
         pp_ckpt_sums_put(&sums, tmp, "generator/config.json",
                          c->generator_config, strlen(c->generator_config),
                          err)) ||
        (c->source && pp_ckpt_copy_companions(c->source, tmp, &sums, err)) ||
        pp_shards_write_indexes(shards, tmp, &sums, err))
        goto out;
    for (int i = 0; i < shards->n_files; i++)
        if (pp_ckpt_sums_add(&sums, pp_shards_at(shards, i).name, shard_sums[i],
                             err))
            goto out;
    if (c->weights_only || pp_ckpt_state_write(tmp, s, &sums, err) == 0)
        rc = pp_ckpt_sums_write(&sums, tmp, err);
out:
    pp_ckpt_sums_finish(&sums);
    return rc;
}

static int put_in_place(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                        const char *tmp, struct pp_err *err)
{
    char optimizer[PP_PATH_TEXT], generator[PP_PATH_TEXT];
    if (pp_path(optimizer, err, "%s/optimizer", tmp) ||
        pp_path(generator, err, "%s/generator", tmp) ||
        (!c->weights_only && pp_file_sync(optimizer, err)) ||
        (c->generator_config && pp_file_sync(generator, err)) ||
        pp_file_sync(tmp, err) || pp_ckpt_commit(c->dir, tmp, s->step, err))
        return -1;
    return pp_ckpt_prune(c->dir, s->step, c->keep, err);
}

/* --- the work of a rank in a phase --- */

static void announce(struct pp_saving *s, bool idle)
{
    pthread_mutex_lock(&s->lock);
    s->written = true;
    s->idle = idle;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The parameters may change before the disk has the data. */
static int write_data(struct pp_saving *s, struct pp_err *err)
{
    if (!s->written &&
        pp_shards_fill(&s->shards, &s->exchange, &s->turn, s->tmp, err))
        return -1;
    announce(s, false);
    return pp_shards_sync(&s->shards, s->tmp, err);
}

static int work(struct pp_saving *s, struct pp_err *err)
{
    const struct pp_ckpt *c = &s->c;
    switch (s->phase) {
    case PHASE_DATA:
        return write_data(s, err);
    case PHASE_SUMS:
        return (c->check && c->check(c->ctx, true, err)) ||
                       pp_shards_sum(&s->shards, s->tmp, s->sums, err)
                   ? -1
                   : 0;
    default:
        return c->comm->rank == 0 && (write_rest(c, &s->state, s->tmp,
                                                 &s->shards, s->sums, err) ||
                                      put_in_place(c, &s->state, s->tmp, err))
                   ? -1
                   : 0;
    }
}

static void *run_phase(void *ctx)
{
    struct pp_saving *s = ctx;
    s->rc = work(s, &s->err);
    announce(s, true);
    return NULL;
}

/* Begins the work of the phase. A failure is told at the end of the phase. */
static void start(struct pp_saving *s)
{
    s->idle = false;
    if (!s->background || (s->phase == PHASE_COMMIT && s->c.comm->rank > 0)) {
        run_phase(s);
        return;
    }
    /* The thread writes its own result, even before the next line. */
    s->joinable = pp_thread_start(&s->thread, run_phase, s, &s->err) == 0;
    if (!s->joinable) {
        s->rc = -1;
        announce(s, true);
    }
}

static void join(struct pp_saving *s)
{
    if (s->joinable)
        pthread_join(s->thread, NULL);
    s->joinable = false;
}

/* --- all ranks --- */

/* Returns whether a thread writes the data: not the data of a device with
 * queues. */
static bool is_by_thread(const struct pp_saving *s)
{
    return s->background && pp_device_ops(s->c.params->device)->is_host;
}

/* Prepares what needs no other rank. */
static int prepare(struct pp_saving *s, struct pp_err *err)
{
    const struct pp_ckpt *c = &s->c;
    if (pp_path(s->tmp, err, "%s/" PP_CKPT_NAME ".tmp", c->dir,
                s->state.step) ||
        pp_shards_init(&s->shards, c->model, c->params, c->shard_size,
                       c->save_bytes, err))
        return -1;
    /* A thread beside training sends nothing. */
    const struct pp_group alone = {.n = 1};
    bool exchanges = c->group.n > 0 && !is_by_thread(s);
    if (pp_exchange_init(&s->exchange, c->comm, c->params->device,
                         exchanges ? &c->group : &alone, PP_DIRECTION_DATA,
                         c->room, c->room_bytes, err) ||
        pp_exchange_init(&s->turn, c->comm, c->params->device,
                         exchanges && c->owners.n > 1 ? &c->owners : &alone,
                         PP_DIRECTION_WEIGHTS, c->room, c->room_bytes, err))
        return -1;
    if (c->weights_only)
        pp_shards_keep_weights(&s->shards);
    size_t n = (size_t)s->shards.n_files;
    s->sums = pp_try_calloc(n, sizeof *s->sums, err);
    s->all = pp_try_calloc(n * (size_t)c->comm->size, sizeof *s->all, err);
    if (!s->sums || !s->all)
        return -1;
    return c->comm->rank == 0 ? make_directories(c, s->tmp, &s->owner, err) : 0;
}

int pp_saving_begin(const struct pp_ckpt *c, const struct pp_ckpt_state *state,
                    bool background, struct pp_saving **out, struct pp_err *err)
{
    struct pp_saving *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return pp_give_up(c->comm, err);
    s->c = *c;
    s->state = *state;
    s->owner = -1;
    s->background = background;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int rc = pp_agree(c->comm, prepare(s, err), err);
    if (rc == 0)
        rc = pp_agree(c->comm, pp_shards_create(&s->shards, s->tmp, err), err);
    if (rc == 0 && background && !is_by_thread(s)) {
        s->written = true;
        rc = pp_agree(
            c->comm,
            pp_shards_fill(&s->shards, &s->exchange, &s->turn, s->tmp, err),
            err);
    }
    if (rc) {
        pp_saving_end(s);
        return -1;
    }
    start(s);
    *out = s;
    return 0;
}

void pp_saving_wait(struct pp_saving *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->written)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

bool pp_saving_is_idle(struct pp_saving *s)
{
    pthread_mutex_lock(&s->lock);
    bool idle = s->idle;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

/* Collective. Every rank gets the sums of all files. */
static int gather_sums(struct pp_saving *s, struct pp_err *err)
{
    struct pp_comm *comm = s->c.comm;
    size_t n = (size_t)s->shards.n_files;
    if (comm->ops->allgather(comm, s->sums, s->all, n * sizeof *s->sums, err))
        return -1;
    for (size_t i = 0; i < n * (size_t)comm->size; i++)
        s->sums[i % n] |= s->all[i];
    return 0;
}

int pp_saving_next(struct pp_saving *s, bool *done, struct pp_err *err)
{
    join(s);
    if (s->rc)
        *err = s->err;
    if (pp_agree(s->c.comm, s->rc, err) ||
        (s->phase == PHASE_SUMS && gather_sums(s, err)))
        return -1;
    *done = s->complete = s->phase == PHASE_COMMIT;
    if (!*done) {
        s->phase++;
        start(s);
    }
    return 0;
}

/* Removes the unfinished directory. If that fails, the next save removes it. */
static void discard(const char *dir)
{
    struct pp_err ignored = {0};
    int rc = pp_ckpt_discard(dir, &ignored);
    (void)rc;
}

void pp_saving_end(struct pp_saving *s)
{
    if (!s)
        return;
    join(s);
    if (s->owner >= 0 && !s->complete)
        discard(s->tmp);
    if (s->owner >= 0)
        close(s->owner);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pp_exchange_finish(&s->exchange);
    pp_exchange_finish(&s->turn);
    pp_shards_finish(&s->shards);
    free(s->all);
    free(s->sums);
    free(s);
}

int pp_ckpt_save(const struct pp_ckpt *c, const struct pp_ckpt_state *s,
                 struct pp_err *err)
{
    struct pp_saving *saving;
    bool done = false;
    int rc = pp_saving_begin(c, s, false, &saving, err);
    while (rc == 0 && !done)
        rc = pp_saving_next(saving, &done, err);
    pp_saving_end(saving);
    return rc;
}
