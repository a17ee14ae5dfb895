/* SPDX-License-Identifier: MIT */
/* tool - messages, progress, output files and the end of a run. */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

int tool_usage(struct tool *t, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->misused |= t->err.code == PP_EXIT_OK;
    return pp_fail(&t->err, PP_EXIT_INPUT, "%s", text);
}

int tool_input(struct tool *t, const char **name)
{
    *name = optind < t->argc ? t->argv[optind] : "-";
    if (t->argc - optind > 1)
        return tool_usage(t, "unexpected operand '%s'", t->argv[optind + 1]);
    if (!strcmp(*name, "-") && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "a manifest is expected");
    return 0;
}

FILE *tool_open_input(struct tool *t, const char **name)
{
    if (!strcmp(*name, "-")) {
        *name = "standard input";
        return stdin;
    }
    FILE *f = fopen(*name, "re");
    if (!f)
        pp_fail(&t->err, PP_EXIT_INPUT, "%s: %s", *name, strerror(errno));
    return f;
}

void tool_close_input(FILE *f)
{
    if (f != stdin)
        fclose(f);
}

/* The program's open outputs, except stdout. */
struct tool_file {
    struct pp_output output;
    struct tool_file *next;
};

/* Adds an entry for an output file. */
static struct tool_file *add_file(struct tool *t)
{
    struct tool_file *file = pp_calloc(1, sizeof *file);
    file->next = t->files;
    t->files = file;
    return file;
}

/* Removes an entry from the list, and the file unless it is in its place. */
static void drop_file(struct tool_file **at)
{
    struct tool_file *file = *at;
    *at = file->next;
    pp_output_abort(&file->output);
    free(file);
}

FILE *tool_open(struct tool *t, const char *name)
{
    if (!name || !strcmp(name, "-"))
        return stdout;
    struct tool_file *file = add_file(t);
    if (pp_output_open(&file->output, name, &t->err) == 0)
        return file->output.f;
    drop_file(&t->files);
    return NULL;
}

void tool_take(struct tool *t, FILE *f, const char *name)
{
    struct tool_file *file = add_file(t);
    file->output = (struct pp_output){.f = f, .path = name};
    t->out = f;
}

static void flush_stdout(struct tool *t)
{
    bool failed = ferror(stdout) != 0;
    errno = EIO;
    if (fflush(stdout) != 0 || failed)
        pp_fail_errno(&t->err, "writing standard output failed");
}

int tool_close(struct tool *t, FILE *f)
{
    struct tool_file **at = &t->files;
    int rc = 0;
    while (*at && (*at)->output.f != f)
        at = &(*at)->next;
    if (f == stdout)
        flush_stdout(t);
    else if (*at && t->err.code == PP_EXIT_OK)
        rc = pp_output_commit(&(*at)->output, &t->err);
    if (*at)
        drop_file(at);
    return rc == 0 && t->err.code == PP_EXIT_OK ? 0 : -1;
}

FILE *tool_output(struct tool *t)
{
    if (!t->out)
        t->out = tool_open(t, t->output);
    return t->out;
}

void tool_erase(struct tool *t)
{
    if (t->progress_shown)
        fputs("\r\033[K", stderr);
    t->progress_shown = false;
}

void tool_keep(struct tool *t)
{
    if (t->progress_shown)
        fputc('\n', stderr);
    t->progress_shown = false;
}

/* Returns whether this level is said, and erases the progress line if so. */
static bool says(struct tool *t, enum tool_level level)
{
    if ((t->quiet && level != TOOL_WARNING) ||
        (level == TOOL_DETAIL && !t->verbose))
        return false;
    tool_erase(t);
    return true;
}

void tool_say(struct tool *t, enum tool_level level, const char *fmt, ...)
{
    va_list ap;
    if (!says(t, level))
        return;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", t->name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

void tool_say_row(struct tool *t, enum tool_level level, const char *row)
{
    if (says(t, level))
        fprintf(stderr, "%s\n", row);
}

int tool_columns(int terminal, int otherwise)
{
    struct winsize size;
    bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : otherwise;
}

/* Returns how many bytes of UTF-8 text fit on one line. The last column stays
 * free, because a line that wraps cannot be erased. Parts with two spaces
 * between them are not cut. */
static int one_line(const char *text, int columns)
{
    int n = 0, whole = 0;
    for (int used = 0; text[n]; n++) {
        bool is_first_byte = (text[n] & 0xc0) != 0x80;
        if (is_first_byte && ++used >= columns)
            return whole ? whole : n;
        if (!strncmp(text + n, "  ", 2))
            whole = n;
    }
    return n;
}

void tool_progress(struct tool *t, const char *fmt, ...)
{
    if (t->quiet || !isatty(STDERR_FILENO))
        return;
    double time = pp_clock();
    if (time - t->progress_time < 0.1)
        return;
    t->progress_time = time;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tool_erase(t);
    fprintf(stderr, "%.*s", one_line(text, tool_columns(STDERR_FILENO, 80)),
            text);
    fflush(stderr);
    t->progress_shown = true;
}

/* Names the option that would help, if the error has a setting of its name. */
static void print_remedy(const struct tool *t)
{
    const char *name = t->err.setting;
    if (name && tool_find_option(t, name, strlen(name)) >= 0)
        fprintf(stderr, t->err.value[0] ? "; try --%s %s" : "; see --%s", name,
                t->err.value);
}

void tool_tell(struct tool *t)
{
    tool_erase(t);
    if (!t->told) {
        fprintf(stderr, "%s: %s", t->name, t->err.text);
        print_remedy(t);
        fputc('\n', stderr);
        if (t->misused)
            fprintf(stderr, "try '%s --help'\n", t->name);
    }
    t->told = true;
}

int tool_finish(struct tool *t)
{
    tool_erase(t);
    /* Standard output is checked even if nothing was written to it. */
    bool is_stdout = !t->out || t->out == stdout;
    if (is_stdout)
        flush_stdout(t);
    else
        tool_close(t, t->out);
    while (t->files)
        drop_file(&t->files);
    if (is_stdout && fclose(stdout) != 0 && errno != EBADF)
        pp_fail_errno(&t->err, "writing standard output failed");
    if (t->err.code == PP_EXIT_OK)
        return t->status;
    tool_tell(t);
    return (int)t->err.code;
}

static bool needs_no_quotes(const char *s)
{
    return *s && s[strspn(s, "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_-+=./:,@%")] == '\0';
}

static void put_argument(FILE *f, const char *s)
{
    if (needs_no_quotes(s)) {
        fputs(s, f);
        return;
    }
    putc('\'', f);
    for (; *s; s++)
        if (*s == '\'')
            fputs("'\\''", f);
        else
            putc(*s, f);
    putc('\'', f);
}

char *tool_command(int argc, char *const *argv)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (int i = 1; f && i < argc; i++) {
        if (i > 1)
            putc(' ', f);
        put_argument(f, argv[i]);
    }
    if (!f || fclose(f))
        pp_out_of_memory();
    return text;
}
