/* SPDX-License-Identifier: MIT */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "version.h"

enum { MAX_OPTIONS = 96 };

static const struct tool_option common[] = {
    {'o', "output", "FILE", "write to FILE (beside it, then renamed)"},
    {'q', "quiet", NULL, "no progress and no notes"},
    {'v', "verbose", NULL, "say more on stderr"},
    {'V', "version", NULL, "print version and build facts"},
    {'h', "help", NULL, "print this help"},
    {0},
};

static void print_options(const struct tool_option *o)
{
    for (; o->id; o++) {
        char left[64];
        int n = 0;
        if (o->id < TOOL_LONG)
            n = snprintf(left, sizeof left, "  -%c%s", o->id,
                         o->name ? ", " : "");
        else
            n = snprintf(left, sizeof left, "      ");
        if (o->name)
            n += snprintf(left + n, sizeof left - (size_t)n, "--%s", o->name);
        if (o->arg)
            snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
        printf(strlen(left) > 28 ? "%s\n%-30s%s\n" : "%-30s%s%s\n", left,
               strlen(left) > 28 ? "" : o->help,
               strlen(left) > 28 ? o->help : "");
    }
}

static void print_help(const struct tool *t)
{
    printf("usage: %s %s\n\n%s\n\n", t->name, t->synopsis, t->summary);
    print_options(t->options);
    print_options(common);
    printf("\nSee %s(1).\n", t->name);
}

static void print_version(const struct tool *t)
{
    printf("%s %s\n%s%s%s\n", t->name, PP_VERSION, PP_BUILD_FACTS,
           t->facts ? ", " : "", t->facts ? t->facts : "");
}

/* Fills the getopt forms of one table; long options return their index in
 * ids, so that an id above 255 survives. */
static void add_options(const struct tool_option *o, char *letters,
                        struct option *longs, int *n_longs)
{
    char *s = letters + strlen(letters);
    for (; o->id; o++) {
        if (o->id < TOOL_LONG) {
            *s++ = (char)o->id;
            if (o->arg)
                *s++ = ':';
        }
        if (o->name && *n_longs < MAX_OPTIONS - 1)
            longs[(*n_longs)++] = (struct option){
                o->name, o->arg ? required_argument : no_argument, NULL, o->id};
    }
    *s = '\0';
}

static int next_option(struct tool *t, int argc, char **argv)
{
    char letters[2 * MAX_OPTIONS + 2] = ":";
    struct option longs[MAX_OPTIONS] = {0};
    int n = 0;
    add_options(t->options, letters, longs, &n);
    add_options(common, letters, longs, &n);
    opterr = 0;
    int at = optind ? optind : 1;
    int c = getopt_long(argc, argv, letters, longs, NULL);
    if (c == ':')
        tool_usage(t, "option '%s' needs an argument", argv[optind - 1]);
    else if (c == '?' && optopt > 0 && optopt < TOOL_LONG && argv[at][1] != '-')
        tool_usage(t, "unknown option '-%c'", optopt);
    else if (c == '?')
        tool_bad_option(t, argv[optind - 1], longs, optopt > 0);
    return c;
}

int tool_option(struct tool *t, int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN);
    for (;;) {
        int c = next_option(t, argc, argv);
        switch (c) {
        case -1:
            return TOOL_END;
        case '?':
        case ':':
            return TOOL_STOP;
        case 'h':
            print_help(t);
            return TOOL_STOP;
        case 'V':
            print_version(t);
            return TOOL_STOP;
        case 'q':
            t->quiet = true;
            break;
        case 'v':
            t->verbose++;
            break;
        case 'o':
            t->output = optarg;
            break;
        default:
            return c;
        }
    }
}

int tool_usage(struct tool *t, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pp_fail(&t->err, PP_EXIT_INPUT, "%s\ntry '%s --help'", text,
                   t->name);
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

int tool_open(struct tool *t, const char *name, struct tool_file *file)
{
    *file = (struct tool_file){.name = name};
    if (!name || !strcmp(name, "-")) {
        file->f = stdout;
        return 0;
    }
    /* A device or a pipe cannot be replaced by a rename: write it directly. */
    struct stat st;
    bool special = stat(name, &st) == 0 && !S_ISREG(st.st_mode);
    size_t n = strlen(name) + 5;
    file->tmp = special ? NULL : malloc(n);
    if (file->tmp)
        snprintf(file->tmp, n, "%s.tmp", name);
    const char *path = file->tmp ? file->tmp : name;
    file->f = fopen(path, "w");
    if (file->f)
        return 0;
    pp_fail_errno(&t->err, "%s", path);
    free(file->tmp);
    file->tmp = NULL;
    return -1;
}

int tool_close(struct tool *t, struct tool_file *file)
{
    /* An error of an earlier write may have left no errno behind. */
    bool failed = ferror(file->f) != 0;
    errno = EIO;
    if (fflush(file->f) != 0 || (file->f != stdout && fclose(file->f) != 0) ||
        failed)
        pp_fail_errno(&t->err, "writing %s failed",
                      file->f == stdout ? "standard output" : file->name);
    if (file->tmp && t->err.code != PP_EXIT_OK)
        remove(file->tmp);
    else if (file->tmp && rename(file->tmp, file->name) != 0)
        pp_fail_errno(&t->err, "%s", file->name);
    free(file->tmp);
    *file = (struct tool_file){0};
    return t->err.code == PP_EXIT_OK ? 0 : -1;
}

FILE *tool_output(struct tool *t)
{
    struct tool_file file;
    if (t->out)
        return t->out;
    if (tool_open(t, t->output, &file))
        return NULL;
    t->out_tmp = file.tmp;
    return t->out = file.f;
}

void tool_erase(struct tool *t)
{
    if (t->progress_shown)
        fputs("\r\033[K", stderr);
    t->progress_shown = false;
}

void tool_say(struct tool *t, enum pp_log_level level, const char *fmt, ...)
{
    if ((t->quiet && level != PP_LOG_WARNING) ||
        (level == PP_LOG_DETAIL && !t->verbose))
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

/* How many bytes of text stay on one line of so many columns, the last of
 * which is left free: what has been broken is not erased. */
static int one_line(const char *text, int columns)
{
    int n = 0;
    for (int used = 0; text[n]; n++) {
        bool begins = (text[n] & 0xc0) != 0x80; /* a character, in UTF-8 */
        if (begins && ++used >= columns)
            break;
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

void tool_tell(struct tool *t)
{
    tool_erase(t);
    if (!t->told)
        fprintf(stderr, "%s: %s\n", t->name, t->err.text);
    t->told = true;
}

int tool_finish(struct tool *t)
{
    tool_erase(t);
    /* Standard output is checked also where nothing has been written. */
    struct tool_file out = {t->out ? t->out : stdout, t->output, t->out_tmp};
    bool is_stdout = out.f == stdout;
    tool_close(t, &out);
    if (is_stdout && fclose(stdout) != 0 && errno != EBADF)
        pp_fail_errno(&t->err, "writing standard output failed");
    if (t->err.code == PP_EXIT_OK)
        return t->status;
    tool_tell(t);
    return (int)t->err.code;
}

static bool is_plain(const char *s)
{
    return *s && s[strspn(s, "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_-+=./:,@%")] == '\0';
}

/* Writes s quoted for a shell; with d NULL only counts. */
static size_t quote(const char *s, char *d)
{
    size_t n = 0;
    if (is_plain(s)) {
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
        n += quote(argv[i], NULL) + 1;
    char *s = malloc(n), *d = s;
    if (!s)
        return NULL;
    for (int i = 1; i < argc; i++) {
        if (i > 1)
            *d++ = ' ';
        d += quote(argv[i], d);
    }
    *d = '\0';
    return s;
}
