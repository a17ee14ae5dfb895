/* SPDX-License-Identifier: MIT */
/* routes - files of the experts that routers chose for the tokens of packed
 * data. pp-routing(5) has the byte layout.
 *
 * A place is a bin, a layer among the layers with experts, and a position of
 * the bin. It has top_k experts, the best first, or PP_NO_EXPERT as often. Many
 * threads may read or write one file. */
#ifndef PP_DATA_ROUTES_H
#define PP_DATA_ROUTES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

enum { PP_NO_EXPERT = UINT16_MAX };

struct pp_packed;

/* The data and the routers that a file is for. */
struct pp_routes_shape {
    uint32_t n_experts, n_layers, top_k; /* n_layers: layers with experts */
    uint64_t n_bins, n_positions;
    uint64_t data; /* pp_packed_sequences; 0 in a file: any */
};

struct pp_routes {
    struct pp_routes_shape shape;
    const uint16_t *experts; /* NULL: it is closed */
    const void *map;
    size_t map_bytes;
    const char *path; /* borrowed */
};

/* Fills the shape for these data; the sizes of the model become 0. */
int pp_routes_of(const struct pp_packed *p, struct pp_routes_shape *s,
                 struct pp_err *err) PP_MUST_USE;

/* Reads n bytes in memory as a file. Fails with PP_EXIT_INPUT if they are not
 * one, or are damaged: a place has distinct experts below n_experts, or none.
 * The result points into the bytes. */
int pp_routes_parse(const void *data, size_t n, struct pp_routes *r,
                    struct pp_err *err) PP_MUST_USE;

/* Maps and reads a file. Fails with PP_EXIT_INPUT, also if it has another shape
 * than *want. */
int pp_routes_open(const char *path, const struct pp_routes_shape *want,
                   struct pp_routes *r, struct pp_err *err) PP_MUST_USE;
void pp_routes_close(struct pp_routes *r);

/* Returns the number of the first expert at a place. The positions of a bin
 * follow each other. first is the bin's first position among the positions of
 * all bins, and tokens the number of its positions. */
static inline size_t pp_routes_place(const struct pp_routes_shape *s,
                                     uint64_t first, size_t tokens,
                                     size_t layer, size_t position)
{
    return s->top_k * (s->n_layers * first + layer * tokens + position);
}

/* A file that is being written. A zeroed struct is closed. */
struct pp_routes_output {
    struct pp_routes_shape shape;
    const char *path;  /* borrowed until commit or abort */
    struct pp_tmp tmp; /* it has no path in processes that only joined */
    int fd;            /* valid if path is not NULL */
};

/* Makes a file without any expert, beside its place, where nothing but a
 * regular file may be (PP_EXIT_INPUT). Other processes join it by the path of
 * tmp, with the same shape, and write to it too. */
int pp_routes_create(struct pp_routes_output *o, const char *path,
                     const struct pp_routes_shape *shape,
                     struct pp_err *err) PP_MUST_USE;
int pp_routes_join(struct pp_routes_output *o, const char *path,
                   const char *tmp, const struct pp_routes_shape *shape,
                   struct pp_err *err) PP_MUST_USE;

/* Writes n numbers of experts from place number `at` on. */
int pp_routes_write(const struct pp_routes_output *o, size_t at,
                    const uint16_t *experts, size_t n,
                    struct pp_err *err) PP_MUST_USE;

/* Completes the file when nobody writes any more, and moves it to its place. If
 * that fails, it aborts. */
int pp_routes_commit(struct pp_routes_output *o,
                     struct pp_err *err) PP_MUST_USE;

/* Closes the file, and removes it if this process made it. */
void pp_routes_abort(struct pp_routes_output *o);

#endif
