/* SPDX-License-Identifier: MIT */
/* tool - messages, progress, output files and the end of a run. */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

int tool_input(struct tool *t, int argc, char **argv, const char **name)
{
    *name = "-";
    if (argc - optind > 1)
        return tool_usage(t, "unexpected operand '%s'", argv[optind + 1]);
    if (argc - optind == 1)
        *name = argv[optind];
    if (!strcmp(*name, "-") && isatty(STDIN_FILENO))
        return tool_usage(t, "standard input is a terminal; "
                             "a manifest is expected");
    return 0;
}

int tool_open(struct tool *t, const char *name, struct pp_output *file)
{
    if (name && strcmp(name, "-") != 0)
        return pp_output_open(file, name, &t->err);
    *file = (struct pp_output){.f = stdout};
    return 0;
}

static void flush_stdout(struct tool *t)
{
    bool failed = ferror(stdout) != 0;
    errno = EIO;
    if (fflush(stdout) != 0 || failed)
        pp_fail_errno(&t->err, "writing standard output failed");
}

int tool_close(struct tool *t, struct pp_output *file)
{
    if (file->f == stdout)
        flush_stdout(t);
    else if (t->err.code != PP_EXIT_OK)
        pp_output_abort(file);
    else if (pp_output_commit(file, &t->err) != 0)
        return -1;
    *file = (struct pp_output){0};
    return t->err.code == PP_EXIT_OK ? 0 : -1;
}

FILE *tool_output(struct tool *t)
{
    if (!t->out && tool_open(t, t->output, &t->file) == 0)
        t->out = t->file.f;
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

void tool_say(struct tool *t, enum tool_level level, const char *fmt, ...)
{
    if ((t->quiet && level != TOOL_WARNING) ||
        (level == TOOL_DETAIL && !t->verbose))
        return;
    va_list ap;
    va_start(ap, fmt);
    tool_erase(t);
    fprintf(stderr, "%s: ", t->name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
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
    const struct tool_option *o;
    for (int k = 0; t->err.setting && (o = tool_nth_option(t, k)); k++)
        if (o->name && !strcmp(o->name, t->err.setting))
            fprintf(stderr, t->err.value[0] ? "; try --%s %s" : "; see --%s",
                    o->name, t->err.value);
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
        tool_close(t, &t->file);
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

/* Writes s quoted for a shell to d, unless d is NULL. Returns the length. */
static size_t quote_argument(const char *s, char *d)
{
    size_t n = 0;
    if (needs_no_quotes(s)) {
        n = strlen(s);
        if (d)
            memcpy(d, s, n);
        return n;
    }
#define PUT(c) ((void)(d ? (void)(d[n] = (c)) : (void)0), n++)
    PUT('\'');
    for (; *s; s++) {
        if (*s == '\'') {
            PUT('\'');
            PUT('\\');
            PUT('\'');
        }
        PUT(*s);
    }
    PUT('\'');
#undef PUT
    return n;
}

char *tool_command(int argc, char **argv)
{
    size_t n = 1;
    for (int i = 1; i < argc; i++)
        n += quote_argument(argv[i], NULL) + 1;
    char *s = malloc(n), *d = s;
    if (!s)
        return NULL;
    for (int i = 1; i < argc; i++) {
        if (i > 1)
            *d++ = ' ';
        d += quote_argument(argv[i], d);
    }
    *d = '\0';
    return s;
}
