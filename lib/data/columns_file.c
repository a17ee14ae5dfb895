/* SPDX-License-Identifier: MIT */
/* columns_file - documents from a .safetensors file whose tensors are ids,
 * cu_seqlens and columns. */
#include <stdlib.h>
#include <string.h>

#include "data/arrays.h"
#include "data/safetensors.h"
#include "data/token_type.h"

static const struct {
    const char *name;
    unsigned type;
} types[] = {
    {"BOOL", PP_TOKEN_U8}, {"U8", PP_TOKEN_U8},   {"I8", PP_TOKEN_I8},
    {"U16", PP_TOKEN_U16}, {"I16", PP_TOKEN_I16}, {"U32", PP_TOKEN_U32},
    {"I32", PP_TOKEN_I32}, {"U64", PP_TOKEN_U64}, {"I64", PP_TOKEN_I64},
    {"F32", PP_TOKEN_F32}, {"F64", PP_TOKEN_F64},
};

struct file {
    const char *path;
    struct pp_tensors *tensors;
};

static int find(void *ctx, const char *name, struct pp_array *out,
                struct pp_err *err)
{
    const struct file *f = ctx;
    const struct pp_tensor *t = pp_tensors_find(f->tensors, name);
    size_t i = 0;
    if (!t)
        return 0;
    while (i < sizeof types / sizeof *types &&
           strcmp(types[i].name, t->dtype_name) != 0)
        i++;
    if (i == sizeof types / sizeof *types || t->n_dims < 1 ||
        t->n_dims > PP_ARRAY_MAX_DIMS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s': %s of %d dimensions is not an array that can "
                       "be packed",
                       f->path, name, t->dtype_name, t->n_dims);
    *out = (struct pp_array){.type = types[i].type,
                             .n_dims = t->n_dims,
                             .n = (size_t)t->n,
                             .data = t->data};
    for (int k = 0; k < t->n_dims; k++)
        out->dims[k] = (size_t)t->dims[k];
    return 1;
}

int pp_columns_file_read(const char *path, bool allow_empty,
                         struct pp_documents *d, struct pp_err *err)
{
    struct file f = {.path = path};
    if (pp_tensors_open(path, &f.tensors, err) != 0)
        return -1;
    int rc = pp_arrays_read(path, find, &f, allow_empty, d, err);
    pp_tensors_close(f.tensors);
    return rc;
}
