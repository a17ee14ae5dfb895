/* SPDX-License-Identifier: MIT */
/* err - how every fallible function of libpp reports, and the exit statuses.
 *
 * A fallible function returns 0, or -1 with *err filled. The caller owns the
 * struct and zeroes it once; the first error wins, so an error met while
 * cleaning up never hides its cause. */
#ifndef PP_BASE_ERR_H
#define PP_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#define PP_MUST_USE __attribute__((warn_unused_result))

/* The exit status of all four tools, and the code of an error. */
enum pp_exit {
    PP_EXIT_OK = 0,      /* done, or the answer is yes */
    PP_EXIT_NO = 1,      /* the answer is no */
    PP_EXIT_INPUT = 2,   /* the caller's mistake: usage, malformed input */
    PP_EXIT_SYSTEM = 3,  /* the machine's: I/O, memory, device, transport */
    PP_EXIT_STOPPED = 75 /* stopped early with a complete checkpoint */
};

/* The part of a run in which an error arose. A member counts if its bit is set
 * in known. With PP_ORIGIN_AGREED all ranks have failed, and know it. With
 * PP_ORIGIN_LOST the rank has ended or does not answer. */
enum {
    PP_ORIGIN_RANK = 1,
    PP_ORIGIN_STAGE = 2,
    PP_ORIGIN_MICROBATCH = 4,
    PP_ORIGIN_AGREED = 8,
    PP_ORIGIN_LOST = 16
};
struct pp_err_origin {
    unsigned known;
    int rank, stage, microbatch;
};

struct pp_err {
    enum pp_exit code; /* PP_EXIT_OK while nothing has failed */
    char text[480];    /* place and reason, without the program's name */
    struct pp_err_origin origin;
    /* The setting that the caller may change, such as "seq-len", and a value
     * that would do; NULL if there is none. The library knows no options: a
     * tool that has an option of this name adds it to the message. */
    const char *setting; /* static */
    char value[64];      /* "" if no value can be named */
};

/* Ends a text in an array of room bytes, and replaces control characters and
 * what is no UTF-8 by question marks: it may be from a file or another program,
 * and goes to a terminal. */
void pp_clean_text(char *text, size_t room);

/* Fills *err, with a cleaned text, unless it holds an error already. Always
 * returns -1, so that an error is one line:
 * return pp_fail(err, PP_EXIT_INPUT, "..."); */
int pp_fail(struct pp_err *err, enum pp_exit code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Like pp_fail, and says which setting the caller may change, and to what.
 * setting is static; value may be NULL. */
int pp_fail_setting(struct pp_err *err, enum pp_exit code, const char *setting,
                    const char *value, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds an origin to the error that *err holds, unless it has one of that kind.
 * bit is one of PP_ORIGIN_*. Returns -1. */
int pp_err_set_origin(struct pp_err *err, unsigned bit, int number);

/* Like pp_fail with PP_EXIT_SYSTEM, and ": strerror(errno)" appended. */
int pp_fail_errno(struct pp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Like pp_fail_errno, for a file that was opened but cannot be read. If it is a
 * directory or a standard input that is closed, the mistake is the caller's
 * (PP_EXIT_INPUT); otherwise it is the system's. */
int pp_fail_read(struct pp_err *err, const char *name);

/* Puts a place ("plan.json: ") in front of the error that *err holds. Does
 * nothing if there is none. Returns -1. */
int pp_fail_at(struct pp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* --- a list of faults of one input, to mend them all at once --- */

enum { PP_MAX_FAULTS = 24 };
#define PP_NO_PLACE ((size_t)-1)

struct pp_fault {
    int row;
    size_t place; /* in the row; PP_NO_PLACE: of the row as a whole */
    struct pp_err err;
};

struct pp_faults {
    struct pp_fault at[PP_MAX_FAULTS];
    size_t n; /* faults beyond PP_MAX_FAULTS count but are not kept */
};

/* Moves the error that *err holds to the list, and returns true: then the
 * caller goes on. Returns false if there is no list (f is NULL) or if the
 * system failed. */
bool pp_faults_take(struct pp_faults *f, int row, size_t place,
                    struct pp_err *err);

/* Sorts the faults kept by row and place. */
void pp_faults_sort(struct pp_faults *f);

#endif
