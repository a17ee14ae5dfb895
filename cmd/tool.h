/* SPDX-License-Identifier: MIT */
/* tool - what all programs share: messages, progress, output files and the
 * exit status. Options are in tool_options.h. */
#ifndef PP_CMD_TOOL_H
#define PP_CMD_TOOL_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "model/rank_bytes.h"
#include "tool_options.h"

/* State of one run of a program. Zero it, then set the first group. */
struct tool {
    const char *name;     /* "ppsched" */
    const char *synopsis; /* "-s KIND -m N [options] [MANIFEST]" */
    const char *summary;  /* one sentence for --help */
    const char *everyday; /* options that --help shows, separated by blanks */
    const struct tool_option *options; /* the program's own */
    const struct tool_option *shared;  /* that follow them, or NULL */
    void *base;                        /* the struct that options write to */
    const char *facts;                 /* more build facts for -V, or NULL */

    int argc; /* the command line; operands are at argv[optind] and behind */
    char **argv;
    bool quiet;
    bool verbose;
    const char *output; /* -o, or NULL for stdout */
    uint64_t given[2];  /* a bit for each entry of both option tables */
    /* An option that was given a size without a unit, and the size. */
    const struct tool_option *bare;
    const char *bare_size;

    struct pp_err err; /* the one message of a failed run */
    bool misused;      /* err is about the usage: hint to --help */
    bool told;         /* err was printed, or another process prints it */
    FILE *out;
    struct tool_file *files; /* open outputs; tool_finish leaves none behind */
    bool progress_shown;
    double progress_time;
    int status; /* exit status of a run without error, such as PP_EXIT_NO */
};

/* Reports whether the option at place k of the tables was given. */
static inline bool tool_is_given(const struct tool *t, int k)
{
    return t->given[k / 64] >> k % 64 & 1;
}

/* Records a usage error, which ends in a hint to --help. Returns -1. */
int tool_usage(struct tool *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets *name to the manifest operand, or "-" if there is none. Fails if there
 * are several, or if stdin is to be read and is a terminal. */
int tool_input(struct tool *t, const char **name) PP_MUST_USE;

/* Opens an input; "-" is stdin, and becomes "standard input", its name in
 * messages. NULL with t->err filled on failure. */
FILE *tool_open_input(struct tool *t, const char **name) PP_MUST_USE;
void tool_close_input(FILE *f);

/* Returns the stream for the program's data: stdout, or the file of -o, which
 * tool_finish puts in its place. NULL with t->err filled on failure. */
FILE *tool_output(struct tool *t);

/* Opens another output file; "-" is stdout. The name is borrowed. NULL with
 * t->err filled on failure. tool_finish removes the file unless tool_close has
 * put it in its place. */
FILE *tool_open(struct tool *t, const char *name) PP_MUST_USE;

/* Takes a file that is written in its place as the stream for the program's
 * data. */
void tool_take(struct tool *t, FILE *f, const char *name);

/* Puts the file in its place, or removes it if t->err is filled. stdout is only
 * flushed. Returns -1 with t->err filled on failure. */
int tool_close(struct tool *t, FILE *f);

enum tool_level { TOOL_WARNING, TOOL_NOTE, TOOL_DETAIL };

/* Prints a note on stderr: details only with -v, notes unless -q. */
void tool_say(struct tool *t, enum tool_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints a row of a table in the same way, but without the program's name: a
 * table has 80 columns. */
void tool_say_row(struct tool *t, enum tool_level level, const char *row);

/* Returns the width of the terminal behind a descriptor, or otherwise if it is
 * unknown. */
int tool_columns(int terminal, int otherwise);

/* Shows a progress line on stderr if that is a terminal: at most ten times a
 * second and cut to its width. The next line or message replaces it. */
void tool_progress(struct tool *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Tables and text for people have at most this many columns. */
enum { TOOL_COLUMNS = 80 };

/* Prints text with line breaks between words, and one at the end. */
void tool_paragraph(FILE *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints a label and beside it text, all of whose lines begin in the column
 * after indent columns. */
void tool_entry(FILE *f, int indent, const char *label, const char *text);

/* A choice of a plan that some forms of --export cannot hold. */
enum { TOOL_CHOICE = 96 };
struct tool_choice {
    unsigned held; /* bits of the forms that hold it */
    /* Returns whether the plan has the choice, with its name and value in
     * text. */
    bool (*made)(const void *plan, char text[TOOL_CHOICE]);
};

/* Notes the choices of the plan that a form, one bit, does not hold. The table
 * ends with made NULL. */
void tool_note_lost(struct tool *t, const char *form, unsigned bit,
                    const struct tool_choice *choices, const void *plan);

/* Write the titles of a table of memory by purpose, and the row of a rank, each
 * in 77 columns and without a newline; in 84 if some rank has mapped bytes. */
enum { TOOL_MEMORY_ROW = 88 };
void tool_memory_titles(bool mapped, char buf[TOOL_MEMORY_ROW]);
void tool_memory_row(int rank, const struct pp_rank_bytes *b,
                     char buf[TOOL_MEMORY_ROW]);

/* Prints the memory of a rank as an object of a list of JSON. */
void tool_memory_json(struct pp_json_writer *w, const struct pp_rank_bytes *b);

/* Leaves the progress line on the terminal. */
void tool_keep(struct tool *t);

/* Erases the progress line before other text goes to the terminal. */
void tool_erase(struct tool *t);

/* From now on, ends the program with PP_EXIT_SYSTEM and a message if it reads a
 * mapped file that was cut short. name begins the message and is borrowed. */
void tool_catch_faults(const char *name);

/* Prints t->err now, for a process that may not live until tool_finish. */
void tool_tell(struct tool *t);

/* Prints t->err, commits or removes the output file, removes the other outputs
 * that are open, and checks stdout. Returns the exit status. */
int tool_finish(struct tool *t);

/* Returns the command line as one string for the manifest's history, with
 * arguments quoted for a shell if they need it. The caller frees it. */
char *tool_command(int argc, char *const *argv);

#endif
