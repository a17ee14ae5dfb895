/* SPDX-License-Identifier: MIT */
#include "base/memory_available.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Names are cut to lengths that fit. */
enum { DIR_TEXT = 2048, PATH_TEXT = DIR_TEXT + 32 };

/* Reads the number behind a key at the begin of a line, or with key "" the
 * first number of a file. Returns false if there is none. */
static bool read_number(const char *path, const char *key, uint64_t *to)
{
    FILE *f = fopen(path, "r");
    char line[256];
    size_t n = strlen(key);
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = !strncmp(line, key, n) && sscanf(line + n, "%" SCNu64, to) == 1;
    if (f)
        fclose(f);
    return found;
}

static void take_least(struct pp_available_memory *found, uint64_t limit,
                       uint64_t used, const char *of)
{
    uint64_t left = limit > used ? limit - used : 0;
    if (left >= found->bytes)
        return;
    found->bytes = (size_t)left;
    snprintf(found->of, sizeof found->of, "%s", of);
}

static void look_at_machine(const char *root, struct pp_available_memory *found)
{
    char path[PATH_TEXT];
    uint64_t available, swap = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_number(path, "MemAvailable:", &available))
        return;
    (void)read_number(path, "SwapFree:", &swap);
    take_least(found, (available + swap) * 1024, 0, "this machine");
}

static void look_at_address_space(const char *root,
                                  struct pp_available_memory *found)
{
    struct rlimit limit;
    char path[PATH_TEXT];
    uint64_t used = 0;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    (void)read_number(path, "VmSize:", &used);
    take_least(found, limit.rlim_cur, used * 1024, "ulimit -v");
}

/* The names of one version of control groups. */
static const struct version {
    const char *mounts[3]; /* where they may be */
    const char *limit, *used;
    const char *file_pages[2]; /* in memory.stat */
} versions[] = {
    {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL},
     "memory.max",
     "memory.current",
     {"inactive_file ", "active_file "}},
    {{"/sys/fs/cgroup/memory", NULL, NULL},
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

/* Looks at the control group in a directory; group is its name. */
static void look_at_group(const struct version *v, const char *dir,
                          const char *group, struct pp_available_memory *found)
{
    char path[PATH_TEXT], of[sizeof found->of];
    uint64_t limit, used = 0, pages;
    snprintf(path, sizeof path, "%s/%s", dir, v->limit);
    if (!read_number(path, "", &limit)) /* "max", or none */
        return;
    snprintf(path, sizeof path, "%s/%s", dir, v->used);
    (void)read_number(path, "", &used);
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    for (int k = 0; k < 2; k++)
        if (read_number(path, v->file_pages[k], &pages))
            used -= pages < used ? pages : used;
    snprintf(of, sizeof of, "its cgroup '%.120s'", *group ? group : "/");
    take_least(found, limit, used, of);
}

/* Looks at a control group and at the groups above it. In a container the name
 * may be the host's, and only the topmost directory is there. */
static void look_at_groups(const char *root, const struct version *v,
                           const char *group, struct pp_available_memory *found)
{
    char name[1024], dir[DIR_TEXT];
    for (int k = 0; v->mounts[k]; k++) {
        snprintf(name, sizeof name, "%s", strcmp(group, "/") ? group : "");
        for (bool top = false; !top;) {
            top = !*name;
            snprintf(dir, sizeof dir, "%s%s%s", root, v->mounts[k], name);
            look_at_group(v, dir, name, found);
            char *slash = strrchr(name, '/');
            *(slash ? slash : name) = '\0';
        }
    }
}

/* A line is NUMBER:CONTROLLERS:NAME; without controllers it is of version 2. */
static void look_at_cgroups(const char *root, struct pp_available_memory *found)
{
    char path[PATH_TEXT], line[1200];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (!*++controllers)
            look_at_groups(root, &versions[0], group, found);
        else if (!strcmp(controllers, "memory"))
            look_at_groups(root, &versions[1], group, found);
    }
    if (f)
        fclose(f);
}

struct pp_available_memory pp_available_memory(const char *root)
{
    struct pp_available_memory found = {.bytes = SIZE_MAX};
    look_at_machine(root, &found);
    look_at_cgroups(root, &found);
    look_at_address_space(root, &found);
    return found;
}
