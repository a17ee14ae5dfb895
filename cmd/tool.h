/* SPDX-License-Identifier: MIT */
/* tool - what the four programs share: options and --help from one table,
 * messages, progress, output files and the exit status. */
#ifndef PP_CMD_TOOL_H
#define PP_CMD_TOOL_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"

/* One option. A table of them ends with a zeroed entry and need not hold the
 * common ones (-h -V -q -v -o), which tool.c adds. */
struct tool_option {
    int id;           /* the short letter, or TOOL_LONG and up */
    const char *name; /* the long name, or NULL */
    const char *arg;  /* the argument's name in --help, or NULL */
    const char *help; /* one line, lower case */
};

enum { TOOL_LONG = 256 }; /* first id of options without a letter */
enum { TOOL_END = -1, TOOL_STOP = -2 };

/* State of one run of a tool. Zero it, set the first four members. */
struct tool {
    const char *name;                  /* "ppsched" */
    const char *synopsis;              /* "-s KIND -m N [options] [MANIFEST]" */
    const char *summary;               /* one sentence for --help */
    const struct tool_option *options; /* the tool's own */
    const char *facts;                 /* further build facts for -V, or NULL */

    bool quiet;
    int verbose;
    const char *output; /* -o, or NULL for stdout */

    struct pp_err err; /* the one message of a failed run */
    bool told;         /* which has been printed, or another process prints */
    FILE *out;
    char *out_tmp;
    bool progress_shown;
    double progress_time;
    int status; /* status of a run without error, e.g. PP_EXIT_NO */
};

/* The next option's id with optarg set, TOOL_END after the last (optind is
 * then the first operand), or TOOL_STOP when the run is over: help or version
 * was printed, or usage was wrong. After TOOL_STOP return tool_finish(t). From
 * the first call on, a file that grows beyond its limit is an error like a full
 * disk. */
int tool_option(struct tool *t, int argc, char **argv);

/* Records a usage error. Always returns -1. */
int tool_usage(struct tool *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The place in words, which end with NULL, of the word s that an option was
 * given; or -1 with a usage error that lists them. */
int tool_word(struct tool *t, const char *option, const char *s,
              const char *const *words);

/* Records what is wrong with a long option as it was typed: that it takes no
 * argument, that it is the beginning of several, or that it is unknown, with
 * the name that is most like it. Always returns -1. */
struct option;
int tool_bad_option(struct tool *t, const char *typed,
                    const struct option *longs, bool takes_none);

/* The name of the manifest operand at argv[optind], "-" when absent. Fails when
 * there are several, or when it is stdin and stdin is a terminal. */
int tool_input(struct tool *t, int argc, char **argv, const char **name);

/* Where data goes: stdout, or the file of -o, written beside it as FILE.tmp
 * and renamed by tool_finish. NULL with t->err set on failure. */
FILE *tool_output(struct tool *t);

/* A further file that a tool writes: beside its name as NAME.tmp, then renamed.
 * "-" is stdout, and a device or a pipe is written directly. */
struct tool_file {
    FILE *f;
    const char *name;
    char *tmp; /* NULL: written directly */
};

/* tool_close puts the file in its place, or removes it when t->err is set;
 * stdout it only flushes. Both return -1 with t->err set on failure. */
int tool_open(struct tool *t, const char *name,
              struct tool_file *file) PP_MUST_USE;
int tool_close(struct tool *t, struct tool_file *file);

/* A note for people on stderr: shown with -v (detail), unless -q (note). */
void tool_say(struct tool *t, enum pp_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* How wide the terminal of that descriptor is; otherwise where that is not
 * known. */
int tool_columns(int terminal, int otherwise);

/* A progress line on stderr: only on a terminal, at most ten a second, cut to
 * its width, overwritten by the next one and erased before any message. */
void tool_progress(struct tool *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Erases the progress line, before something else goes to the terminal. */
void tool_erase(struct tool *t);

/* Reports t->err now, where the end may come too late. */
void tool_tell(struct tool *t);

/* Reports t->err, commits or removes the output file, checks stdout. Returns
 * the status for main to return. */
int tool_finish(struct tool *t);

/* The command line as one string for the manifest's history: arguments that
 * need it are quoted for a shell. malloc'ed; NULL when out of memory. */
char *tool_command(int argc, char **argv);

#endif
