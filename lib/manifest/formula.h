/* SPDX-License-Identifier: MIT */
/* formula - expressions over the keys of a config.json, in which tables of
 * models state shapes, operations and conditions. Private to lib/manifest.
 *
 * A formula has numbers, names, ( ), and by falling precedence ! - * / % + -
 * < <= > >= == != && || and c ? a : b. a | b is a, or b if a is not set. There
 * are no blanks. A name is one of a list of definitions, `l`, the number of the
 * layer, or a key of the configuration, where a dot steps into an object; true
 * is 1. Within its own definition a name is a key. per_layer_config may have
 * other values for a layer. A key that is absent or null is not set, nor is a
 * number made of it; as a condition it is false. Functions: type(w), mlp(w) the
 * entry of the layer in layer_types (layers_block_type), in mlp_layer_types, is
 * the word w is(key,w)        the text of a key, or the entry of its list, is w
 *   has(key)         the key is set
 *   null(key)        it is there, but null
 *   in(key,n)        a list has the number of the layer, where the first is n
 *   count(key)       the entries of a list
 *   letter(key)      the code of the layer's letter in a text
 *   at(key)          the entry of a list for the layer; a number stands for all
 *   floor(x), up(x,n)  x rounded down; up to a multiple of n
 *   sqrt(x)          its root
 */
#ifndef PP_MANIFEST_FORMULA_H
#define PP_MANIFEST_FORMULA_H

#include "manifest/json.h"

/* Definitions: words "name=formula" with blanks between them; other words are
 * passed over. */
struct pp_formulas {
    const struct pp_value *config; /* borrowed, as all */
    const char *own, *common;      /* own ones come first */
    size_t layer;
    size_t n_layers;  /* lists must have so many entries; 0: any number */
    char missing[64]; /* the first key that is not set; callers clear it */
    /* Names in definitions, which end where no name goes on, or NULL. The key
     * that has the value of the last formula, and the first key that a value
     * follows from although it is no number, or a list of another length:
     * callers clear it. */
    const char *from, *bad;
    bool bad_flag;      /* bad decides about '?', but is not true or false */
    const char *inside; /* the definition that is read */
    int depth;
};

/* Returns the value of a formula of n characters, or NaN if it is not set. */
double pp_formula(struct pp_formulas *f, const char *text, size_t n);

/* Returns the value of a name, and whether a name holds. */
double pp_formula_of(struct pp_formulas *f, const char *name);
bool pp_formula_holds(struct pp_formulas *f, const char *name);

/* The characters of a name. */
#define PP_NAME_CHARACTERS                             \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV" \
    "WXYZ0123456789_."

/* Finds the next word of a text: *n characters. Returns NULL at the end. */
const char *pp_formula_word(const char *text, size_t *n);

#endif
