/* SPDX-License-Identifier: MIT */
/* test_file - output files: commit, abort, several owners, killed owners. */
#include "scratch.h"
#include "tap.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

static int count_files(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static int write_text(const char *path, const char *text, struct pp_err *err)
{
    struct pp_output o;
    if (pp_output_open(&o, path, err))
        return -1;
    fputs(text, o.f);
    return pp_output_commit(&o, err);
}

static void is_content(const char *path, const char *want)
{
    char got[16] = "";
    FILE *f = fopen(path, "r");
    if (f)
        got[fread(got, 1, sizeof got - 1, f)] = '\0';
    if (f)
        fclose(f);
    is_str(got, want, "the file has the text");
}

static void test_replace(const char *dir, const char *path)
{
    struct pp_err err = {0};
    struct pp_output a, b;
    is_int(write_text(path, "one", &err), 0, "writes a new file");
    is_content(path, "one");
    ok(!pp_output_open(&a, path, &err) && !pp_output_open(&b, path, &err),
       "two outputs have one place");
    is_int(count_files(dir), 3, "each has its own file");
    fputs("a", a.f);
    fputs("b", b.f);
    is_content(path, "one");
    is_int(pp_output_commit(&a, &err), 0, "the first commits");
    is_content(path, "a");
    is_int(pp_output_commit(&b, &err), 0, "the second commits");
    is_content(path, "b");
    is_int(pp_output_open(&a, path, &err), 0, "opens again");
    pp_output_abort(&a);
    is_content(path, "b");
    is_int(count_files(dir), 1, "an abort leaves no other file");
    pp_output_abort(&a);
    ok(true, "a closed output may be aborted");
}

static void test_errors(const char *dir)
{
    char path[SCRATCH_TEXT + 16], want[SCRATCH_TEXT + 64];
    struct pp_err err = {0};
    struct pp_output o;
    snprintf(path, sizeof path, "%s/no/file", dir);
    snprintf(want, sizeof want, "%s: No such file or directory", path);
    is_int(pp_output_open(&o, path, &err), -1, "a missing directory");
    is_str(err.text, want, "the message names the output");
    is_int(err.code, PP_EXIT_SYSTEM, "it is a system error");
    err = (struct pp_err){0};
    is_int(write_text("/dev/null", "x", &err), 0, "a device is written");
    is_int(write_text("/dev/full", "x", &err), -1, "a full device");
    is_str(err.text, "writing /dev/full failed: No space left on device",
           "is reported");
}

/* A killed owner leaves its file. The next one with the same place removes it;
 * one with another place does not. */
static void test_killed(const char *dir, const char *path)
{
    char other[SCRATCH_TEXT + 16];
    struct pp_err err = {0};
    struct pp_output o;
    pid_t child = fork();
    if (child == 0) {
        if (pp_output_open(&o, path, &err))
            _exit(1);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    is_int(count_files(dir), 2, "a killed owner leaves its file");
    snprintf(other, sizeof other, "%s/other", dir);
    is_int(write_text(other, "x", &err), 0, "writes another file");
    is_int(count_files(dir), 3, "which removes nothing");
    is_int(write_text(path, "new", &err), 0, "writes the same file");
    is_int(count_files(dir), 2, "which removes what was left");
    is_content(path, "new");
}

static void remove_dir(const char *dir)
{
    rmdir(dir);
}

static void test_directory(const char *dir, const char *path)
{
    struct pp_err err = {0};
    struct pp_tmp a, b;
    pid_t child = fork();
    if (child == 0) {
        if (pp_tmp_make(&a, path, remove_dir, &err))
            _exit(1);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    int before = count_files(dir);
    ok(!pp_tmp_make(&a, path, remove_dir, &err) && pp_file_is_dir(a.path),
       "makes a directory");
    is_int(count_files(dir), before, "removes that of a killed owner");
    ok(!pp_tmp_make(&b, path, remove_dir, &err) && pp_file_is_dir(a.path),
       "leaves that of a live owner");
    rmdir(a.path);
    rmdir(b.path);
    pp_tmp_finish(&a);
    pp_tmp_finish(&b);
}

/* Reads lines from a pipe that gets the text in two parts. */
static void test_lines(void)
{
    struct pp_err err = {0};
    int ends[2];
    char *line;
    size_t n;
    if (pipe(ends) || write(ends[1], "a\n\nlo", 5) != 5)
        return;
    struct pp_lines l = {.f = fdopen(ends[0], "r"), .name = "t"};
    ok(pp_lines_next(&l, &line, &n, &err) == 1 && !strcmp(line, "a") &&
           n == 1 && pp_lines_next(&l, &line, &n, &err) == 1 && n == 0,
       "lines are there before the end of the stream");
    bool written = write(ends[1], "ng\nx\0y\nlast", 12) == 12;
    close(ends[1]);
    ok(written && pp_lines_next(&l, &line, &n, &err) == 1 &&
           !strcmp(line, "long") && n == 4,
       "a line in two parts");
    ok(pp_lines_next(&l, &line, &n, &err) == 1 && n == 2 &&
           !memcmp(line, "x", 2) && l.n == 4,
       "a line ends behind a zero byte");
    ok(pp_lines_next(&l, &line, &n, &err) == 1 && !strcmp(line, "y") &&
           pp_lines_next(&l, &line, &n, &err) == 1 && !strcmp(line, "last") &&
           pp_lines_next(&l, &line, &n, &err) == 0,
       "the last line needs no newline");
    pp_lines_finish(&l);
    fclose(l.f);
    ok(err.code == PP_EXIT_OK, "no error");
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[SCRATCH_TEXT + 8];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/out", dir);
    test_replace(dir, path);
    test_errors(dir);
    test_killed(dir, path);
    test_directory(dir, path);
    scratch_remove(dir);
    test_lines();
    return done();
}
