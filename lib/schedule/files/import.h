/* SPDX-License-Identifier: MIT */
/* import - a schedule that is read from a file: its rows, and the stages that
 * they name.
 *
 * A reader fills the rows of a struct pp_import between pp_import_begin and
 * pp_import_complete. Readers of text are here and in csv.h; lib/manifest has
 * the reader of traces. */
#ifndef PP_SCHEDULE_FILES_IMPORT_H
#define PP_SCHEDULE_FILES_IMPORT_H

#include "base/err.h"
#include "schedule/ir/schedule.h"

/* The most rows of a file. */
enum { PP_IMPORT_ROWS = 1 << 24 };

/* A place in a file, counted from 1; 0: none. */
struct pp_text_place {
    size_t line, column;
};

struct pp_import {
    struct pp_arena arena;
    struct pp_graph graph; /* the file's; only its number of slices counts if
                              stages were given */
    struct pp_schedule schedule;
    /* Per row and action: the place of its text; in the arena. NULL if the
     * file's lines are nothing that a user reads. */
    struct pp_text_place **places;
    bool messages; /* the file has sends or receives */
    bool sharding; /* the file has UNSHARD, RESHARD or REDUCE_GRAD */
    bool pytorch;  /* the file is for PyTorch */
};

struct pp_import_options {
    const char *name;          /* the file's, which begins the messages */
    const struct pp_graph *on; /* the stages of a manifest; NULL: the file's */
    int n_rows;                /* with on, or from the user; 0: the file's */
    int n_microbatches;        /* 0: counted */
    bool lenient;              /* skip empty cells in any CSV file */
    struct pp_faults *faults;  /* takes all malformed cells of a CSV file, with
                                  the byte of the line as their place; NULL:
                                  none */
};

/* A function that reads text of n bytes. Fails with PP_EXIT_INPUT for malformed
 * text, and with PP_EXIT_NO for a rank without actions or a stage on no rank.
 * The actions are otherwise unchecked. With faults, malformed cells alone are
 * no failure: then c is empty, and faults are not. Finish c after success. */
typedef int (*pp_import_fn)(const char *text, size_t n,
                            const struct pp_import_options *o,
                            struct pp_import *c, struct pp_err *err);

/* Makes c an empty schedule of a kind. Fails if rows of another number are
 * wanted. Finish c in all cases from here on. */
int pp_import_begin(struct pp_import *c, const char *kind, size_t n_rows,
                    const struct pp_import_options *o,
                    struct pp_err *err) PP_MUST_USE;

/* Makes room for the places of n actions of a row. */
void pp_import_add_places(struct pp_import *c, int row, size_t n);

/* Makes the graph, a chain for each of graph.n_copies, unless one was given,
 * fills the peers of messages and counts slices and microbatches. */
int pp_import_complete(struct pp_import *c, const struct pp_import_options *o,
                       struct pp_err *err) PP_MUST_USE;

/* Frees; accepts a zeroed struct. */
void pp_import_finish(struct pp_import *c);

/* Reports if the text has the characters of Megatron's orders alone. */
bool pp_is_orders(const char *text, size_t n);

/* Reads the orders of Megatron-LM (megatron/core/pipeline_parallel), as Python
 * prints them. Either a list for each rank, k for the forward of chunk k - 1
 * and -k for its backward, each of the next microbatch, or the schedule table
 * of all ranks, a pair (microbatch, chunk) for each forward. The ranks run a
 * table with Megatron's warmup, so o must have rows. Chunk c of rank r is stage
 * c times ranks + r. */
int pp_orders_parse(const char *text, size_t n,
                    const struct pp_import_options *o, struct pp_import *c,
                    struct pp_err *err) PP_MUST_USE;

#endif
