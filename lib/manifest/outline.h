/* SPDX-License-Identifier: MIT */
/* outline - a model that pprun does not train, as a table of units: from its
 * config.json and a description of its family, or else from the names and
 * shapes of its tensors.
 *
 * Parameters are exact. Operations are the operations of products: a token
 * takes every matrix of a unit, of experts top_k of all; attention takes pairs,
 * and states of linear attention what their chunks take. Saved activations are
 * estimated from the sizes of the products. */
#ifndef PP_MANIFEST_OUTLINE_H
#define PP_MANIFEST_OUTLINE_H

#include "base/arena.h"
#include "model/model.h"
#include "model/tensor.h"

/* A tensor of the files of a model; tensors are in the order of names. */
struct pp_shape {
    const char *name; /* as in the file */
    int n_dims;
    const uint64_t *dims; /* without the dimensions of packing */
    bool is_buffer;       /* its numbers are not floating-point */
};

/* Reads the model at path, a config.json or its directory, as a table, whose
 * memory is in a. shapes: n tensors of its files, which are read if nobody has
 * described the family; n may be 0. encoders: with its encoder of images, if
 * that is described, in front of the language model. Fails with PP_EXIT_INPUT,
 * file and JSON pointer if the family is not described and there are no shapes,
 * and if a key is missing; with *why, if the file cannot be read, or if
 * pp_model_read knows the model and has failed so. */
int pp_outline_read(const char *path, const struct pp_shape *shapes, size_t n,
                    bool encoders, const struct pp_err *why, struct pp_arena *a,
                    struct pp_model *m, struct pp_err *err) PP_MUST_USE;

/* A described family. Words between blanks are definitions of formulas, names
 * of parts, and tensors: name(rows,cols) is NAME.weight of that shape, and
 * name(rows,cols;c) has NAME.bias of `rows` numbers, too, where the formula c
 * holds; with '!' behind it the name stands as it is. @c behind a tensor or a
 * part says that it is there where c holds. */
struct pp_outline_family {
    const char *model_type;
    const char *architecture; /* NULL: it is within other models alone */
    const char *layer;        /* of a layer */
    const char *ends;         /* outside of layers; NULL: as in a Llama */
};

/* Without a model_type it ends them. */
extern const struct pp_outline_family pp_outline_families[];

/* A described encoder of images, with its projector. Formulas read
 * vision_config, to which belong the whole configuration ("whole") and the
 * width of the language model ("text_hidden"). A patch, a layer and the
 * projector are the units. */
struct pp_outline_tower {
    const char *model_type, *architecture; /* of the whole model */
    const char *type; /* of vision_config, if it says so; NULL: any */
    const char *sizes;
    const char *names[3]; /* of the units; the number of a layer follows */
    const char *patches, *layer, *projector;
};

/* Without a model_type it ends them. */
extern const struct pp_outline_tower pp_outline_towers[];

/* Parts of several families. */
struct pp_outline_part {
    const char *name, *words;
};
extern const struct pp_outline_part pp_outline_parts[];

#endif
