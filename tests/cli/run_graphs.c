/* SPDX-License-Identifier: MIT */
/* run_graphs MANIFESTS DATA - gives each line of MANIFESTS, a manifest without
 * a schedule, to ppsched, and what ppsched accepts to pprun, which trains a
 * step on DATA. pprun must do so, or refuse with status 2 and one line.
 *
 * Both programs are linked into this one, which forks for each run: nothing is
 * loaded again, so that thousands take seconds. The work directory is for its
 * files. Prints the numbers of plans. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

int ppsched_main(int argc, char **argv);
int pprun_main(int argc, char **argv);

enum { LONGEST_S = 60 };

static void redirect(const char *path, int to)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, to) < 0) {
        perror(path);
        _exit(99);
    }
    close(fd);
}

/* Runs a program in a child. Its messages go to "said". Returns its status, or
 * -1 after a signal. */
static int call(int (*program)(int, char **), char **argv, const char *out)
{
    int argc = 0, status;
    while (argv[argc])
        argc++;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        redirect(out, STDOUT_FILENO);
        redirect("said", STDERR_FILENO);
        alarm(LONGEST_S);
        exit(program(argc, argv));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("fork");
        exit(3);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Reads a small file. The text lasts until the next call. */
static const char *contents(const char *path, char text[4096])
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, 4095, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end && end > text && end[1] == '\0';
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(3);
    }
}

static const char *kind_of(size_t n, const char *manifest)
{
    static const char *const kinds[] = {"gpipe", "looped-bfs", "1f1b",
                                        "zb-h1", "seq1f1b",    "dualpipe",
                                        "auto",  "gpipe"};
    const char *kind = kinds[n % (sizeof kinds / sizeof *kinds)];
    bool is_auto = strcmp(kind, "auto") == 0;
    return !is_auto && strstr(manifest, "copy_of") ? "dualpipe" : kind;
}

enum outcome { NOT_PLANNED, RAN, REFUSED, WRONG };

static enum outcome try(size_t n, char *manifest, char *data)
{
    char kind[16], m[8], text[4096];
    const char *loss;
    snprintf(kind, sizeof kind, "%s", kind_of(n, manifest));
    snprintf(m, sizeof m, "%d", 2 + (int)((n + 1) % 3) * 2);
    char *plan[] = {"ppsched", "-q",        "-s",     kind,   "-m",
                    m,         "case.json", "--time", "0.01", NULL};
    if (strcmp(kind, "auto") != 0)
        plan[7] = NULL;
    write_file("case.json", manifest);
    int status = call(ppsched_main, plan, "plan.json");
    if (status == 1 || status == 2)
        return NOT_PLANNED;
    if (status == 0) {
        char *train[] = {"pprun",          "plan.json", "--data",  data,
                         "--init",         "1",         "--steps", "1",
                         "--blas-threads", "1",         NULL};
        status = call(pprun_main, train, "out");
        loss = strstr(contents("out", text), "\"loss\":");
        if (status == 0 && loss && strtod(loss + strlen("\"loss\":"), NULL) > 0)
            return RAN;
        if (status == 2 && is_one_line(contents("said", text)))
            return REFUSED;
    }
    printf("case %zu, %s: status %d: %s\n%s\n", n + 1, kind, status,
           contents("said", text), manifest);
    return WRONG;
}

/* Returns a copy of the next line, and moves *at behind it; NULL at the end. */
static char *next_line(const char **at, const char *end)
{
    const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop)
        return NULL;
    *at = stop + 1;
    return strndup(line, (size_t)(stop - line));
}

int main(int argc, char **argv)
{
    size_t counts[4] = {0}, n = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: run_graphs MANIFESTS DATA\n");
        return 2;
    }
    /* Mapped, since a fork would copy what maps memory of the process itself.
     */
    const void *text;
    size_t bytes;
    struct pp_err err = {0};
    if (pp_file_map(argv[1], &text, &bytes, &err)) {
        fprintf(stderr, "run_graphs: %s\n", err.text);
        return 3;
    }
    const char *at = text, *end = at + bytes;
    for (char *line; !counts[WRONG] && (line = next_line(&at, end)); n++) {
        counts[try(n, line, argv[2])]++;
        free(line);
    }
    pp_file_unmap(text, bytes);
    printf("%zu plans: %zu ran, %zu refused\n", n, counts[RAN],
           counts[REFUSED]);
    /* Both happen often, or the graphs are not random. */
    return counts[WRONG] || counts[RAN] <= n / 20 || counts[REFUSED] <= n / 20;
}
