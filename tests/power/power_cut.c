/* SPDX-License-Identifier: MIT */
/* power_cut - what a disk may hold after a power cut, from a record of
 * record_writes.
 *
 * usage: power_cut RECORD SCRATCH DIR DRAWS KEEP
 *
 * The record is cut after each operation. A change of a name is on the disk
 * for certain if its directory was synced later, and a content if its file was.
 * Each other change may have been lost, whatever became of those before and
 * after it; a rename is lost or done as a whole. So each cut leaves many disks:
 * all changes lost, none, one, all but one, and DRAWS random choices. A content
 * that was not synced is empty, cut short or filled with zeros.
 *
 * On each disk DIR must have a checkpoint no older than the last one whose save
 * had ended, each step-N of DIR must agree with its checksums, and the next run
 * must be able to remove what is unfinished. KEEP of the
 * disks stay as SCRATCH/0, SCRATCH/1, ..., with their least step in
 * SCRATCH/steps. */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"

enum { TEXT = PP_PATH_TEXT, MOST = 1 << 16 };

struct node {
    enum { DIRECTORY, REGULAR, LINK } kind;
    char *target;
};

/* A name in a directory becomes that of a node, or of none (-1). */
struct change {
    int dir, node;
    char *name;
};

struct op {
    struct change changes[2];
    int n_changes;
    int synced_dir; /* or -1 */
    int node;       /* whose content this is, or -1 */
    int opened;     /* the node that is opened to write, or -1 */
    bool synced, closed;
    char *data;
    size_t bytes;
    int64_t ended;  /* the newest save that had ended before this operation */
    int durable_at; /* the changes are on the disk from this operation on */
};

struct record {
    struct node *nodes; /* node 0 is the root */
    int n_nodes;
    struct op *ops;
    int n;
};

static void die(const char *what, const char *which)
{
    fprintf(stderr, "power_cut: %s '%s'\n", what, which);
    exit(3);
}

static void join(char out[TEXT], const char *dir, const char *name)
{
    struct pp_err err = {0};
    if (pp_path(out, &err, "%s/%s", dir, name))
        die("cannot use", dir);
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        die("no memory for", "a table");
    return p;
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* --- the changes of a record --- */

/* Returns the node of a name in a directory after the first n operations, of
 * which those with chosen[i] happened; or all, if chosen is NULL. */
static int look(const struct record *r, int n, const bool *chosen, int dir,
                const char *name)
{
    for (int i = n; i-- > 0;)
        for (int k = r->ops[i].n_changes; k-- > 0;) {
            const struct change *c = &r->ops[i].changes[k];
            if ((!chosen || chosen[i]) && c->dir == dir &&
                !strcmp(c->name, name))
                return c->node;
        }
    return -1;
}

/* Finds the directory of a path before operation n, and its last name. */
static int parent_of(const struct record *r, int n, const char *path,
                     char last[TEXT])
{
    int dir = 0;
    for (const char *slash; dir >= 0 && (slash = strchr(path, '/')) != NULL;
         path = slash + 1) {
        snprintf(last, TEXT, "%.*s", (int)(slash - path), path);
        dir = look(r, n, NULL, dir, last);
    }
    if (dir < 0)
        die("the record has no directory of", path);
    snprintf(last, TEXT, "%s", path);
    return dir;
}

static int node_of(const struct record *r, int n, const char *path)
{
    char last[TEXT];
    if (!strcmp(path, "."))
        return 0;
    int dir = parent_of(r, n, path, last), node = look(r, n, NULL, dir, last);
    if (node < 0)
        die("the record has no", path);
    return node;
}

static void change(struct record *r, const char *path, int node)
{
    struct op *o = &r->ops[r->n];
    char last[TEXT];
    int dir = parent_of(r, r->n, path, last);
    o->changes[o->n_changes++] = (struct change){dir, node, strdup(last)};
}

static int new_node(struct record *r, int kind, const char *target)
{
    r->nodes[r->n_nodes].kind = kind;
    r->nodes[r->n_nodes].target = strdup(target);
    return r->n_nodes++;
}

/* Adds the meaning of an operation. */
static void add(struct record *r, const char *name, const char *path,
                const char *other)
{
    struct op *o = &r->ops[r->n];
    if (!strcmp(name, "mkdir")) {
        change(r, path, new_node(r, DIRECTORY, ""));
    } else if (!strcmp(name, "create")) {
        change(r, path, new_node(r, REGULAR, ""));
    } else if (!strcmp(name, "symlink")) {
        change(r, path, new_node(r, LINK, other));
    } else if (!strcmp(name, "remove")) {
        change(r, path, -1);
    } else if (!strcmp(name, "rename")) {
        int node = node_of(r, r->n, path);
        change(r, path, -1);
        change(r, other, node);
    } else if (!strcmp(name, "exchange")) {
        int a = node_of(r, r->n, path), b = node_of(r, r->n, other);
        change(r, path, b);
        change(r, other, a);
    } else if (!strcmp(name, "sync-dir")) {
        o->synced_dir = node_of(r, r->n, path);
    } else if (!strcmp(name, "open")) {
        o->opened = node_of(r, r->n, path);
    } else if (!strcmp(name, "empty")) {
        o->opened = o->node = node_of(r, r->n, path);
    } else if (!strcmp(name, "sync") || !strcmp(name, "close")) {
        o->node = node_of(r, r->n, path);
        o->synced = !strcmp(name, "sync");
        o->closed = !o->synced;
    } else {
        die("the record has an operation", name);
    }
}

/* A save has ended when the next one begins. */
static void note_saves(struct record *r, int64_t *running, int64_t *ended,
                       const char *name, const char *path)
{
    char stem[TEXT];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    r->ops[r->n].ended = *ended;
    if (strcmp(name, "mkdir") != 0 || n < 4 ||
        strcmp(base + n - 4, ".tmp") != 0)
        return;
    snprintf(stem, TEXT, "%.*s", (int)(n - 4), base);
    if (pp_ckpt_parse_name(stem) < 0)
        return;
    r->ops[r->n].ended = *ended = *running;
    *running = pp_ckpt_parse_name(stem);
}

static void find_durable(struct record *r)
{
    for (int i = 0; i < r->n; i++) {
        struct op *o = &r->ops[i];
        o->durable_at = INT32_MAX;
        for (int j = i + 1; j < r->n && o->durable_at == INT32_MAX; j++)
            for (int k = 0; k < o->n_changes; k++)
                if (r->ops[j].synced_dir == o->changes[k].dir)
                    o->durable_at = j;
    }
}

static void read_record(struct record *r, const char *path)
{
    char name[64], a[TEXT], b[TEXT];
    long long bytes;
    int64_t running = -1, ended = -1;
    FILE *f = fopen(path, "r");
    if (!f)
        die("cannot read", path);
    r->nodes = room(MOST, sizeof *r->nodes);
    r->ops = room(MOST, sizeof *r->ops);
    r->n_nodes = 1;
    while (fscanf(f, "%63s %lld %4095s %4095s", name, &bytes, a, b) == 4) {
        struct op *o = &r->ops[r->n];
        o->node = o->synced_dir = o->opened = -1;
        o->bytes = (size_t)bytes;
        o->data = room(o->bytes, 1);
        if (getc(f) != '\n' || fread(o->data, 1, o->bytes, f) != o->bytes ||
            r->n + 1 == MOST)
            die("cannot read", path);
        note_saves(r, &running, &ended, name, a);
        add(r, name, a, b);
        r->n++;
    }
    fclose(f);
    find_durable(r);
}

/* --- a disk --- */

struct disk {
    const struct record *r;
    int n;              /* operations before the cut */
    const bool *chosen; /* which of them happened */
    uint64_t random;    /* chooses the contents that were not synced */
    uint64_t hash;      /* of all names and contents */
    bool written;       /* on a file system, not only hashed */
};

static void add_hash(struct disk *d, const void *data, size_t n)
{
    d->hash = d->hash * 0x9e3779b97f4a7c15u ^ pp_checksum_of(data, n);
}

/* Finds the synced content of a file, or NULL, and a newer one that was perhaps
 * written in part, or NULL. A file that is open is on its way to the content
 * that it has next. */
static void contents_of(const struct disk *d, int node,
                        const struct op **synced, const struct op **newer)
{
    int writers = 0;
    *synced = *newer = NULL;
    for (int i = 0; i < d->r->n && (i < d->n || writers > 0); i++) {
        const struct op *o = &d->r->ops[i];
        writers += o->opened == node;
        writers -= o->node == node && o->closed;
        if (o->node != node)
            continue;
        bool same = *synced && (*synced)->bytes == o->bytes &&
                    memcmp((*synced)->data, o->data, o->bytes) == 0;
        if (i < d->n && o->synced) {
            *synced = o;
            *newer = NULL;
        } else if (!same) {
            *newer = o;
        }
        if (i >= d->n)
            return;
    }
}

/* Returns the synced content of a file, the newer one, half of that, or zeros.
 * The caller frees it. */
static char *content_of(struct disk *d, int node, size_t *bytes)
{
    const struct op *synced, *newer;
    contents_of(d, node, &synced, &newer);
    uint64_t how = newer ? draw(&d->random) % 4 : 0;
    const struct op *o = how ? newer : synced;
    char *data = room(o ? o->bytes : 0, 1);
    *bytes = o ? how == 2 ? o->bytes / 2 : o->bytes : 0;
    if (o && how < 3)
        memcpy(data, o->data, *bytes);
    return data;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0)
        die("cannot write", path);
}

static void write_node(struct disk *d, int node, const char *path);

static void write_dir(struct disk *d, int node, const char *path)
{
    char below[TEXT];
    if (d->written && mkdir(path, 0777) != 0)
        die("cannot make", path);
    for (int i = 0; i < d->n; i++)
        for (int k = 0; d->chosen[i] && k < d->r->ops[i].n_changes; k++) {
            const struct change *c = &d->r->ops[i].changes[k];
            bool newest = c->dir == node && c->node >= 0;
            for (int j = i; newest && j < d->n; j++)
                for (int l = j == i ? k + 1 : 0;
                     d->chosen[j] && l < d->r->ops[j].n_changes; l++)
                    newest = newest &&
                             (d->r->ops[j].changes[l].dir != node ||
                              strcmp(d->r->ops[j].changes[l].name, c->name));
            if (!newest)
                continue;
            add_hash(d, c->name, strlen(c->name) + 1);
            join(below, path, c->name);
            write_node(d, c->node, below);
        }
    add_hash(d, "end", 3);
}

static void write_node(struct disk *d, int node, const char *path)
{
    const struct node *n = &d->r->nodes[node];
    size_t bytes;
    if (n->kind == DIRECTORY) {
        write_dir(d, node, path);
    } else if (n->kind == LINK) {
        add_hash(d, n->target, strlen(n->target));
        if (d->written && symlink(n->target, path) != 0)
            die("cannot make", path);
    } else {
        char *data = content_of(d, node, &bytes);
        add_hash(d, data, bytes);
        if (d->written)
            write_file(path, data, bytes);
        free(data);
    }
}

/* --- the promise --- */

struct asked {
    const char *scratch, *dir;
    int draws, keep;
    int64_t n_disks, n_kept, n_bad;
    uint64_t *seen; /* hashes of disks, open addressing */
    FILE *steps;
};

enum { SEEN = 1 << 20 };

static bool is_new(struct asked *a, uint64_t hash)
{
    size_t at = hash % SEEN;
    while (a->seen[at] && a->seen[at] != hash)
        at = (at + 1) % SEEN;
    bool fresh = a->seen[at] != hash;
    a->seen[at] = hash;
    return fresh;
}

static bool is_whole(const char *path, struct pp_err *why)
{
    struct pp_ckpt_state s;
    return !pp_ckpt_verify(path, NULL, 0, 1, why) &&
           !pp_ckpt_state_read(path, &s, why);
}

/* Returns the step of the checkpoint that a run resumes from, or -1. */
static int64_t find(const char *dir)
{
    struct pp_err err = {0};
    char *path;
    if (pp_ckpt_find(dir, &path, &err) || !path)
        return -1;
    int64_t step = pp_ckpt_parse_name(strrchr(path, '/') + 1);
    free(path);
    return step;
}

/* Checks a disk. Returns false, and says why, if a checkpoint is lost or is not
 * what its name says. */
static bool keeps_promise(const struct asked *a, const char *disk,
                          int64_t ended, struct pp_err *why)
{
    char dir[PP_PATH_TEXT], path[PP_PATH_TEXT];
    int64_t *steps;
    size_t n;
    if (pp_path(dir, why, "%s/%s", disk, a->dir) ||
        pp_ckpt_list(dir, &steps, &n, why))
        return false;
    bool good = true;
    for (size_t i = 0; good && i < n; i++)
        good = pp_path(path, why, "%s/" PP_CKPT_NAME, dir, steps[i]) == 0 &&
               is_whole(path, why);
    free(steps);
    if (!good)
        return false;
    int64_t step = find(dir);
    if (step < ended)
        pp_fail(why, PP_EXIT_INPUT,
                "step %" PRId64 " was saved, and step %" PRId64 " is found",
                ended, step);
    return step >= ended;
}

/* Returns false, and says why, if the next run would leave something unfinished
 * there, which could also be in the way of its own checkpoints. */
static bool is_swept(const char *disk, const char *name, struct pp_err *why)
{
    char dir[TEXT];
    join(dir, disk, name);
    DIR *d = pp_file_is_dir(dir) && pp_ckpt_sweep(dir, why) == 0 ? opendir(dir)
                                                                 : NULL;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, ".tmp"))
            pp_fail(why, PP_EXIT_INPUT, "'%s' is left", e->d_name);
    if (d)
        closedir(d);
    return why->code == PP_EXIT_OK;
}

static void try_disk(struct asked *a, const struct record *r, int n,
                     const bool *chosen, uint64_t seed)
{
    char path[TEXT];
    int64_t ended = n < r->n ? r->ops[n].ended : r->ops[n - 1].ended;
    struct disk d = {.r = r, .n = n, .chosen = chosen, .random = seed};
    struct pp_err why = {0}, err = {0};
    write_dir(&d, 0, "");
    add_hash(&d, &ended, sizeof ended);
    if (!is_new(a, d.hash | 1))
        return;
    snprintf(path, TEXT, "%s/%" PRId64, a->scratch, a->n_kept);
    d = (struct disk){
        .r = r, .n = n, .chosen = chosen, .random = seed, .written = true};
    write_dir(&d, 0, path);
    a->n_disks++;
    bool good = keeps_promise(a, path, ended, &why);
    bool kept = good && a->n_kept < a->keep && d.hash % 64 == 0;
    good = good && (kept || is_swept(path, a->dir, &why));
    if (!good && a->n_bad++ < 10)
        printf("after %d operations, seed %" PRIu64 ": %s\n", n, seed,
               why.text);
    if (kept) {
        fprintf(a->steps, "%" PRId64 "\n", ended);
        a->n_kept++;
    } else if (pp_dir_remove(path, &err)) {
        die("cannot remove", path);
    }
}

/* Tries the disks that a cut after n operations may leave. */
static void cut_after(struct asked *a, const struct record *r, int n)
{
    bool *chosen = room((size_t)n, sizeof *chosen);
    int *open = room((size_t)n, sizeof *open), n_open = 0;
    for (int i = 0; i < n; i++) {
        chosen[i] = r->ops[i].durable_at < n;
        if (!chosen[i] && r->ops[i].n_changes > 0)
            open[n_open++] = i;
    }
    for (int all = 0; all < 2; all++) {
        for (int i = 0; i < n_open; i++)
            chosen[open[i]] = all;
        try_disk(a, r, n, chosen, (uint64_t)n + 1);
        for (int i = 0; i < n_open; i++) {
            chosen[open[i]] = !all;
            try_disk(a, r, n, chosen, (uint64_t)n + 1);
            chosen[open[i]] = all;
        }
    }
    uint64_t state = (uint64_t)n + 1;
    for (int k = 0; k < a->draws; k++) {
        uint64_t seed = draw(&state);
        for (int i = 0; i < n_open; i++)
            chosen[open[i]] = draw(&state) >> 33 & 1;
        try_disk(a, r, n, chosen, seed);
    }
    free(open);
    free(chosen);
}

int main(int argc, char **argv)
{
    struct record r = {0};
    char path[TEXT];
    if (argc < 6) {
        fprintf(stderr, "usage: power_cut RECORD SCRATCH DIR DRAWS KEEP\n");
        return 2;
    }
    struct asked a = {.scratch = argv[2],
                      .dir = argv[3],
                      .draws = atoi(argv[4]),
                      .keep = atoi(argv[5]),
                      .seen = room(SEEN, sizeof *a.seen)};
    read_record(&r, argv[1]);
    join(path, a.scratch, "steps");
    if ((mkdir(a.scratch, 0777), !(a.steps = fopen(path, "w"))))
        die("cannot write", path);
    for (int n = 1; n <= r.n; n++)
        cut_after(&a, &r, n);
    fclose(a.steps);
    printf("%d operations, %" PRId64 " disks, %" PRId64 " bad\n", r.n,
           a.n_disks, a.n_bad);
    return r.n > 0 && a.n_bad == 0 ? 0 : 1;
}
