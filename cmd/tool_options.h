/* SPDX-License-Identifier: MIT */
/* tool_options - the options of a program as one table.
 *
 * The command line is read with the table. --help, the checks of which options
 * go together, and the scripts for shell completion are made from it. */
#ifndef PP_CMD_TOOL_OPTIONS_H
#define PP_CMD_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct tool;

/* The C type of the variable that an option sets. */
enum tool_type {
    TOOL_NOTHING, /* no variable: parse does everything */
    TOOL_FLAG,    /* bool, set to true */
    TOOL_INT,     /* int, or an enum without negative values */
    TOOL_INT64,   /* int64_t */
    TOOL_REAL,    /* double */
    TOOL_SIZE,    /* size_t: positive bytes, which may have a unit */
    TOOL_TEXT     /* const char *, set to the argument */
};

/* One option. An entry with nothing but a group begins a group of --help. The
 * last group is "Output", which the common option -o joins. A zeroed entry ends
 * the table.
 *
 * needs and excludes hold conditions. A condition is NAME, which holds if the
 * option was given, or NAME=WORD, which holds if its variable has that word. */
struct tool_option {
    char letter;      /* 0: none */
    const char *name; /* without dashes */
    const char *arg;  /* the argument's name in --help; NULL for a flag */
    const char *help; /* one line, lower case; NULL hides the option */
    size_t at;        /* the variable's offset in what tool->base points to */
    enum tool_type type; /* TOOL_AT sets both */
    double min, max;     /* range of a number; a real one without a largest,
                            HUGE_VAL, may also be "none", and is then that */
    bool counts;         /* an integer may end in K, M or G, powers of 1024 */
    /* The words allowed, ending with NULL, or a function that lists at most
     * TOOL_MAX_WORDS of them. A text is set to the word, an int to its index,
     * a flag to true unless it is the first word. With parse they only serve
     * the completion. */
    const char *const *words;
    void (*list)(const char *words[]);
    /* Reads the argument instead. Returns 0, -1 with tool->err filled, or 1 if
     * the run is over. */
    int (*parse)(struct tool *t, const struct tool_option *o, const char *arg);
    const char *also; /* synonyms, separated by blanks */
    bool optional;    /* the argument may be left out: parse gets NULL */
    /* Conditions that must hold, separated by blanks. '|' separates
     * alternatives; one that begins with '?' is not named in the message. */
    const char *needs;
    const char *excludes; /* conditions that must not hold */
    const char *group;
};

enum { TOOL_MAX_WORDS = 32 };

/* The members at and type for a member of struct type. */
#define TOOL_AT(type, member) \
    offsetof(type, member), TOOL_TYPE(((type *)0)->member)
#define TOOL_TYPE(x) \
    _Generic((x), bool         \
             : TOOL_FLAG, int  \
             : TOOL_INT, unsigned \
             : TOOL_INT, int64_t  \
             : TOOL_INT64, double \
             : TOOL_REAL, size_t \
             : TOOL_SIZE, const char * : TOOL_TEXT)

/* Reads the command line into the variables. Returns 0 with optind at the first
 * operand, or -1 if the run is over: help was printed, or t->err is filled.
 * Then return tool_finish(t). From this call on, a file that grows beyond its
 * limit is an error like a full disk. */
int tool_read_options(struct tool *t, int argc, char **argv) PP_MUST_USE;

/* Sets the variable of an option as its entry says, whether or not it has
 * parse. */
int tool_set(struct tool *t, const struct tool_option *o,
             const char *arg) PP_MUST_USE;

/* Checks what options need and exclude. */
int tool_check_options(struct tool *t) PP_MUST_USE;

/* Returns true if the option of that name was given. */
bool tool_given(const struct tool *t, const char *name);

/* Entry k of the tool's tables and then of the common one; NULL at the end. */
const struct tool_option *tool_nth_option(const struct tool *t, int k);

/* Returns the place of the option whose name has n bytes, or -1. */
int tool_find_option(const struct tool *t, const char *name, size_t n);

/* Reports whether an option is one that all programs have. */
bool tool_is_common(const struct tool_option *o);

/* A part of a text, and functions that divide one. The whole of NULL is empty.
 * next removes the part before the separator from rest and returns it: an empty
 * one at the end. */
struct tool_part {
    const char *s;
    size_t n;
};
struct tool_part tool_whole(const char *s);
struct tool_part tool_next_part(struct tool_part *rest, char separator);

/* The name of an option in messages: "-m", or "--depth" if it has no letter. */
struct tool_spelling {
    char text[48];
};
struct tool_spelling tool_spell(const struct tool_option *o);

/* The words of an option, or NULL. buffer is used if a function lists them. */
const char *const *tool_words_of(const struct tool_option *o,
                                 const char *buffer[TOOL_MAX_WORDS]);

/* Returns the index of the word s that an option was given, or -1 with a usage
 * error that lists the words. Case does not matter, and some names of other
 * systems are accepted: bfloat16, Interleaved1F1B. */
int tool_word(struct tool *t, const char *option, const char *s,
              const char *const *words);

/* Records what is wrong with a long option as it was typed: it takes no
 * argument, it is the beginning of several, or it is unknown, with the option
 * that was probably meant. Returns -1. */
int tool_bad_option(struct tool *t, const char *typed, bool takes_none);

/* Prints the help: what is NULL for the everyday options, "all" for all, or the
 * beginning of a group's name in any case. Returns -1 with a usage error if no
 * group begins so. */
int tool_print_help(struct tool *t, const char *what) PP_MUST_USE;

/* Fails if a condition of the table, or the list of everyday options, names an
 * option that is not in the table. */
int tool_check_table(struct tool *t) PP_MUST_USE;

/* --completion SHELL, a hidden option with which the build makes the scripts:
 * prints the one for bash, zsh or fish. Checks the table first. */
int tool_print_completion(struct tool *t, const char *shell) PP_MUST_USE;

#endif
