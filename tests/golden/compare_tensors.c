/* SPDX-License-Identifier: MIT */
/* compare_tensors - compares the numbers of two safetensors files.
 *
 *   compare_tensors TOLERANCE FLOOR GOT WANT [PATTERN]
 *
 * A tensor agrees if |got - want| <= TOLERANCE |want| + FLOOR in the Euclidean
 * norm. FLOOR is for tensors that are truly zero. The number of tensors, their
 * names and their shapes must be the same. With a pattern of glob(7), only the
 * tensors of WANT with such names are compared, one at least. Prints the worst
 * tensors. The status is 0 if all agree, 1 if not, 2 for a mistake. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/tensors/safetensors.h"

enum { BLOCK = 1024, SHOWN = 5 };

struct verdict {
    const char *name;
    double difference, norm, excess; /* above 1 it disagrees */
};

static int same_shape(const struct pp_tensor *a, const struct pp_tensor *b)
{
    return a->n_dims == b->n_dims &&
           !memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->n_dims);
}

static int compare(const struct pp_tensor *got, const struct pp_tensor *want,
                   double tolerance, double floor, struct verdict *v,
                   struct pp_err *err)
{
    double g[BLOCK], w[BLOCK], difference = 0, norm = 0;
    for (uint64_t at = 0; at < want->n; at += BLOCK) {
        uint64_t n = want->n - at < BLOCK ? want->n - at : BLOCK;
        if (pp_tensor_read_f64(got, at, n, g, err) != 0 ||
            pp_tensor_read_f64(want, at, n, w, err) != 0)
            return -1;
        for (uint64_t i = 0; i < n; i++) {
            difference += (g[i] - w[i]) * (g[i] - w[i]);
            norm += w[i] * w[i];
        }
    }
    v->name = want->name;
    v->difference = sqrt(difference);
    v->norm = sqrt(norm);
    v->excess = v->difference / (tolerance * v->norm + floor);
    if (isnan(v->excess)) /* a NaN, or no tolerance at all and no difference */
        v->excess = v->difference == 0 ? 0 : INFINITY;
    return 0;
}

static int worst_first(const void *a, const void *b)
{
    double x = ((const struct verdict *)a)->excess;
    double y = ((const struct verdict *)b)->excess;
    return (x < y) - (x > y);
}

/* Returns 0 if all agree, 1 if not, -1 on an error. */
static int compare_all(const struct pp_tensors *got,
                       const struct pp_tensors *want, double tolerance,
                       double floor, const char *pattern, struct pp_err *err)
{
    size_t all = pp_tensors_n(want), n = 0;
    int status = !pattern && pp_tensors_n(got) != all;
    if (status)
        printf("%zu tensors, expected %zu\n", pp_tensors_n(got), all);
    struct verdict *v = calloc(all + 1, sizeof *v);
    if (!v)
        return pp_fail_errno(err, "comparing");
    for (size_t k = 0; k < all; k++) {
        const struct pp_tensor *w = pp_tensors_at(want, k);
        if (pattern && fnmatch(pattern, w->name, 0))
            continue;
        size_t i = n++;
        const struct pp_tensor *g = pp_tensors_find(got, w->name);
        v[i].name = w->name;
        if (!g || !same_shape(g, w)) {
            printf("%s: %s\n", w->name, g ? "another shape" : "missing");
            v[i].excess = INFINITY;
        } else if (compare(g, w, tolerance, floor, &v[i], err) != 0) {
            free(v);
            return -1;
        }
        if (!(v[i].excess <= 1))
            status = 1;
    }
    if (pattern && n == 0) {
        printf("no tensor '%s'\n", pattern);
        status = 1;
    }
    qsort(v, n, sizeof *v, worst_first);
    for (size_t i = 0; i < n && i < SHOWN; i++)
        printf("%-50s off by %.3e of %.3e (%.2f of what is allowed)\n",
               v[i].name, v[i].difference, v[i].norm, v[i].excess);
    free(v);
    return status;
}

/* Opens files as the library does, or a directory with an adapter. */
static int open_tensors(const char *path, struct pp_tensors **out,
                        struct pp_err *err)
{
    char adapter[4096];
    snprintf(adapter, sizeof adapter, "%s/adapter_model.safetensors", path);
    return pp_tensors_open(pp_file_exists(adapter) ? adapter : path, out, err);
}

int main(int argc, char **argv)
{
    struct pp_err err = {0};
    struct pp_tensors *got = NULL, *want = NULL;
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "usage: compare_tensors TOLERANCE FLOOR GOT WANT "
                        "[PATTERN]\n");
        return 2;
    }
    int status = -1;
    if (open_tensors(argv[3], &got, &err) == 0 &&
        open_tensors(argv[4], &want, &err) == 0)
        status =
            compare_all(got, want, strtod(argv[1], NULL), strtod(argv[2], NULL),
                        argc == 6 ? argv[5] : NULL, &err);
    if (status < 0)
        fprintf(stderr, "compare_tensors: %s\n", err.text);
    pp_tensors_close(got);
    pp_tensors_close(want);
    return status < 0 ? 2 : status;
}
