/* SPDX-License-Identifier: MIT */
/* test_memory_available - limits of machines and of control groups, as files of
 * /proc and /sys say them. */
#include "scratch.h"
#include "tap.h"

#include <stdint.h>
#include <sys/stat.h>

#include "base/memory_available.h"

#define KIB 1024

/* Files in place of those of the system. */
struct file {
    const char *name, *text;
};

static const struct trial {
    const char *what, *of;
    size_t bytes;
    struct file files[8];
} trials[] = {
    {"nothing is known", "", SIZE_MAX, {{NULL, NULL}}},
    {"a machine, with its swap",
     "this machine",
     110 * KIB,
     {{"proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 100 kB\nSwapFree: 10 "
                       "kB\n"}}},
    {"a group of version 2 without a limit",
     "this machine",
     100 * KIB,
     {{"proc/meminfo", "MemAvailable: 100 kB\n"},
      {"proc/self/cgroup", "0::/job/step\n"},
      {"sys/fs/cgroup/job/step/memory.max", "max\n"},
      {"sys/fs/cgroup/job/step/memory.current", "5000\n"}}},
    {"a limit of the group above",
     "its cgroup '/job'",
     9000 - (5000 - 700 - 300),
     {{"proc/meminfo", "MemAvailable: 100 kB\n"},
      {"proc/self/cgroup", "0::/job/step\n"},
      {"sys/fs/cgroup/job/step/memory.max", "max\n"},
      {"sys/fs/cgroup/job/memory.max", "9000\n"},
      {"sys/fs/cgroup/job/memory.current", "5000\n"},
      {"sys/fs/cgroup/job/memory.stat", "anon 4000\ninactive_file 700\n"
                                        "active_file 300\n"}}},
    {"a container that sees its own group as the topmost",
     "its cgroup '/'",
     4000,
     {{"proc/meminfo", "MemAvailable: 100 kB\n"},
      {"proc/self/cgroup", "0::/host/name\n"},
      {"sys/fs/cgroup/memory.max", "9000\n"},
      {"sys/fs/cgroup/memory.current", "5000\n"}}},
    {"a group of version 1",
     "its cgroup '/slurm/job'",
     0,
     {{"proc/meminfo", "MemAvailable: 100 kB\n"},
      {"proc/self/cgroup", "5:devices:/\n4:memory:/slurm/job\n0::/\n"},
      {"sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "3000\n"},
      {"sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "5000\n"},
      {"sys/fs/cgroup/memory/slurm/job/memory.stat",
       "inactive_file 9\ntotal_inactive_file 1000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}}},
};

static void put(const char *root, const struct file *f)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, f->name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *to = fopen(path, "w");
    if (!to || fputs(f->text, to) < 0 || fclose(to))
        exit(3);
}

int main(void)
{
    char root[SCRATCH_TEXT + 24], dir[SCRATCH_TEXT];
    scratch_make(dir);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct trial *t = &trials[i];
        snprintf(root, sizeof root, "%s/%zu", dir, i);
        mkdir(root, 0700);
        for (size_t k = 0; k < 8 && t->files[k].name; k++)
            put(root, &t->files[k]);
        struct pp_available_memory room = pp_available_memory(root);
        is_int((long long)room.bytes, (long long)t->bytes, t->what);
        is_str(room.of, t->of, "it is named");
    }
    ok(pp_available_memory("").bytes > 1 << 20, "this machine has some");
    scratch_remove(dir);
    return done();
}
