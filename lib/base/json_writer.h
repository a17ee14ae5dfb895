/* SPDX-License-Identifier: MIT */
/* json_writer - writes JSON to a stream, one member after the other.
 *
 * The caller chooses where lines break; the writer adds commas, quotes and
 * indents. key is NULL for the document itself and for items of an array. Write
 * errors stay in the stream, see ferror(3). lib/manifest reads JSON. */
#ifndef PP_BASE_JSON_WRITER_H
#define PP_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Lines of an object or array. An empty one is {} or []. */
enum pp_json_lines {
    PP_JSON_INLINE, /* everything on one line */
    PP_JSON_BROKEN, /* a line for each member and for the closing bracket */
    PP_JSON_HUGGED  /* a line for each member, the bracket after the last */
};

/* Set f, indent and compact; zero the rest, which is private. */
struct pp_json_writer {
    FILE *f;
    int indent;   /* spaces at the start of a line, for each open bracket */
    bool compact; /* no spaces after ',' and ':' */
    bool line;
    int depth;
    struct {
        char close;
        bool any;
        enum pp_json_lines lines;
    } open[8]; /* nesting may be as deep as this */
};

/* Begin a document, which is an object: on one line, or on a line for each
 * member, with two spaces in front. finish closes it and ends the line. */
struct pp_json_writer pp_json_line(FILE *f);
struct pp_json_writer pp_json_lines(FILE *f);
void pp_json_finish(struct pp_json_writer *w);

void pp_json_object(struct pp_json_writer *w, const char *key,
                    enum pp_json_lines lines);
void pp_json_array(struct pp_json_writer *w, const char *key,
                   enum pp_json_lines lines);

/* Closes the innermost object or array. */
void pp_json_end(struct pp_json_writer *w);

/* Starts a new line before the next member. */
void pp_json_break(struct pp_json_writer *w);

void pp_json_string(struct pp_json_writer *w, const char *key, const char *s);
void pp_json_bool(struct pp_json_writer *w, const char *key, bool v);
void pp_json_int(struct pp_json_writer *w, const char *key, int64_t v);
void pp_json_uint(struct pp_json_writer *w, const char *key, uint64_t v);

/* Writes the shortest decimal that reads back as v, or null if v is not
 * finite. */
void pp_json_real(struct pp_json_writer *w, const char *key, double v);

/* Writes a value that the caller formats, such as "%.3f". */
void pp_json_format(struct pp_json_writer *w, const char *key, const char *fmt,
                    ...) __attribute__((format(printf, 3, 4)));

#endif
