/* SPDX-License-Identifier: MIT */
/* tensor - what pprun needs to know of one parameter tensor: its name and shape
 * in files, its first values, and how tensor-parallel ranks divide it. Every
 * part of a model fills entries of this table; all that handles weights reads
 * them. */
#ifndef PP_MODEL_TENSOR_H
#define PP_MODEL_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of the longest fully qualified name or tensor name, with its NUL. */
#define PP_FQN_TEXT 96

/* The names of a generator's units and tensors begin with it, and the
 * connector's go on with the other. */
#define PP_GENERATOR_PREFIX "generator."
#define PP_CONNECTOR_PREFIX "connector."

/* The most sizes of a tensor in a file, and parts of its rows. */
enum { PP_TENSOR_DIMS = 5, PP_TENSOR_SEGMENTS = 3 };

enum pp_tensor_init {
    PP_INIT_NORMAL,
    PP_INIT_RESIDUAL,  /* normal, divided by the root of the number of sums that
                          a token passes: two for each layer (GPT-2) */
    PP_INIT_BY_INPUTS, /* uniform, up to 1 / the root of its columns */
    PP_INIT_ONES,
    PP_INIT_ZEROS,
    PP_INIT_VALUE /* all are `value` */
};

/* Tensor-parallel ranks divide nothing, as with norms, whose gradients
 * are then sums over these ranks; the rows of a product's outputs; the columns
 * of its inputs. */
enum pp_tensor_split { PP_SPLIT_NONE, PP_SPLIT_ROWS, PP_SPLIT_COLUMNS };

/* Shapes are (rows, cols) row-major, cols 1 for a vector: a product has as many
 * outputs as rows. They are Hugging Face's unless the file has the transpose.
 */
struct pp_tensor_info {
    char name[PP_FQN_TEXT]; /* "model.norm.weight"; "": the model has no such
                               tensor, or has it in another form */
    size_t rows, cols;
    int n_dims;                       /* in the file, without a stack */
    size_t inner[PP_TENSOR_DIMS - 1]; /* with more than two: the sizes of a row,
                                         as a convolution has */
    enum pp_tensor_init init;
    double value;
    enum pp_tensor_split split;
    size_t n_parts; /* what is divided is never cut inside one of these equal
                       parts, such as the rows of a head; 1 if nothing is */
    /* The rows of each part that ranks divide by itself, as queries, keys and
       values are: each has n_parts. All 0: the rows are one. */
    size_t segments[PP_TENSOR_SEGMENTS];
    bool frozen;     /* it has no gradient and no optimizer state */
    bool by_load;    /* frozen, but a step may change it by the tokens of each
                        expert: the bias of a router */
    bool transposed; /* the file has (cols, rows) */
    bool mapped;     /* frozen, and it stays in its file as it is: it is not
                        among the weights in memory */
    const char *tied_to; /* NULL, or the tensor that has its values */
    size_t n_equal;      /* in a table of a unit: 0, or the tensors that the row
                            stands for. They have a number each, which is '%' in the
                            name: "model.layers.0.mlp.experts.%.up_proj.weight" */
    bool stacks;         /* in such a row: files have its tensors as one, with
                            n_equal as its first size and no '%' in its name */
    size_t stack, number; /* of such a tensor: how many the file's has, and the
                             number of this one; else 0 */
    size_t of_rows, first_row; /* of some rows of the file's tensor: how many it
                                  has, and the first of these; else 0 */
};

/* Reports whether a step may change the tensor. Then gradients and optimizer
 * states have room for it. */
static inline bool pp_tensor_changes(const struct pp_tensor_info *t)
{
    return !t->frozen || t->by_load;
}

/* The tensors of a unit are the rows of its table. Rows of several tensors come
 * last and have as many tensors each: the tensors of number 0 follow each other
 * in the order of the rows, then the tensors of number 1, and so on. So the
 * matrices of one expert are adjacent, and every tensor has a slot, which is
 * its row if no row stands for several. */

/* Returns the number of slots of a table of n rows. */
size_t pp_table_slots(const struct pp_tensor_info *table, size_t n);

/* Returns the number of rows that stand for one tensor each, and so the first
 * slot of the others. */
size_t pp_table_single(const struct pp_tensor_info *table, size_t n);

/* Sets *t to the tensor in a slot. Returns false if the model has none there.
 */
bool pp_table_at(const struct pp_tensor_info *table, size_t n, size_t slot,
                 struct pp_tensor_info *t);

/* Takes the names of tensors that no step changes. */
void pp_table_keep_changing(struct pp_tensor_info *table, size_t n);

/* Says of all tensors that ranks do not divide them. */
void pp_table_undivide(struct pp_tensor_info *table, size_t n);

/* Returns the number of the tensor in a slot, in the order of files: that of
 * slots, but the tensors that a file has as one follow each other. */
size_t pp_table_order(const struct pp_tensor_info *table, size_t n,
                      size_t slot);

/* Some consecutive elements of a piece. */
struct pp_range {
    size_t first, n;
};

/* Ranks that all hold the same rows of single tensors. They may divide the
 * optimizer's state (ZeRO-1) and whole tensors of the other rows: rank i has
 * share i mod ep of these, each of which has 1 / ep of their numbers, and the
 * ranks with the same share divide its state. */
struct pp_holders {
    size_t n, index; /* the ranks, and the number of this one */
    size_t ep;       /* divides n and the tensors of a row; 0 is 1 */
    bool whole_state;
    /* For pp_owned_most: the tensors of the other rows are not divided into
     * pieces. All ranks hold every piece of them: rank t of
     * holder i is number i tp + t. */
    bool over_tp;
};

/* Reports whether a rank has the tensor in a slot of a table of n rows. */
bool pp_table_holds(const struct pp_tensor_info *table, size_t n, size_t slot,
                    const struct pp_holders *h);

/* Returns the range of its piece of `elements` whose optimizer state the rank
 * has: of pp_owned_range, or all. The rank holds the tensor. */
struct pp_range pp_table_owned(const struct pp_tensor_info *table, size_t n,
                               size_t slot, size_t elements,
                               const struct pp_holders *h);

/* Returns the number of tensors. */
size_t pp_table_tensors(const struct pp_tensor_info *table, size_t n);

/* Returns the turn of a tensor in a slot among the owners of its unit
 * (pp_owned_range). Tied tensors have the same owners. */
static inline size_t pp_tensor_turn(const struct pp_tensor_info *t, size_t slot)
{
    return t->tied_to ? 0 : slot;
}

/* Returns the number of elements. */
static inline size_t pp_tensor_elements(const struct pp_tensor_info *t)
{
    return t->rows * t->cols;
}

/* A rank holds runs of elements of a tensor: count[s] from offset[s] on for
 * each segment, and so on n times, each time stride elements further. On the
 * rank the runs follow each other without gaps, as a matrix (rows, cols). A
 * vector has cols 1. */
struct pp_tensor_piece {
    size_t rows, cols;
    size_t offset[PP_TENSOR_SEGMENTS], count[PP_TENSOR_SEGMENTS];
    size_t stride, n;
    bool replica; /* a rank with a lower number holds it too */
};

/* Reports whether a piece is one run. */
static inline bool pp_piece_is_run(const struct pp_tensor_piece *p)
{
    return p->n == 1 && !p->count[1];
}

/* Returns the element of the whole that an element of a piece is, and sets the
 * elements from there to the end of the run. */
size_t pp_piece_place(const struct pp_tensor_piece *p, size_t element,
                      size_t *left);

/* Returns the first element of a piece that lies at element `at` of the whole
 * or behind it; it may be more than the piece has. */
size_t pp_piece_behind(const struct pp_tensor_piece *p, size_t at);

static inline size_t pp_piece_elements(const struct pp_tensor_piece *p)
{
    return p->rows * p->cols;
}

/* Returns the piece of a rank among `size` tensor-parallel ranks. Their numbers
 * of parts differ by one at most; ranks hold replicas if parts are fewer than
 * ranks. The pieces that are not replicas cover each element once. */
struct pp_tensor_piece pp_tensor_piece(const struct pp_tensor_info *t,
                                       size_t size, size_t rank);

/* Returns the piece as it lies in the file: of the transpose, if the file has
 * that. */
struct pp_tensor_piece pp_tensor_in_file(const struct pp_tensor_info *t,
                                         const struct pp_tensor_piece *p);

/* Writes the transpose of in (rows, cols), whose elements have 2, 4 or 8 bytes.
 */
void pp_transpose(void *out, const void *in, size_t rows, size_t cols,
                  size_t element_bytes);

/* Returns the number of the sizes of the tensor in the file, and sets them. A
 * vector has a 1 behind its size. */
static inline int pp_tensor_file_sizes(const struct pp_tensor_info *t,
                                       uint64_t sizes[PP_TENSOR_DIMS])
{
    uint64_t *own = sizes + (t->stack > 0);
    sizes[0] = t->stack;
    own[t->transposed] = t->of_rows ? t->of_rows : t->rows;
    own[!t->transposed] = t->cols;
    for (int i = 1; t->n_dims > 2 && i < t->n_dims; i++)
        sizes[i] = t->inner[i - 1];
    return t->n_dims + (t->stack > 0);
}

/* Returns the elements before the tensor in the file's. If there are any, the
 * tensor before it in the model is there, too. */
static inline size_t pp_tensor_before(const struct pp_tensor_info *t)
{
    return (t->number * t->rows + t->first_row) * t->cols;
}

/* Returns the elements of the file's tensor. */
static inline size_t pp_tensor_in_all(const struct pp_tensor_info *t)
{
    size_t rows = t->of_rows ? t->of_rows : t->rows;
    return (t->stack ? t->stack : 1) * rows * t->cols;
}

/* Returns the elements of the largest of these pieces. */
size_t pp_tensor_most(const struct pp_tensor_info *t, size_t size);

/* A run of a range: element `whole` of the tensor and the n - 1 after it are
 * elements `at` and on of the range. */
struct pp_run {
    size_t whole, at, n;
};

/* Sets *r to the run of a range of a piece that begins at element `at` of the
 * range. Returns false at the end of the range. */
bool pp_piece_run(const struct pp_tensor_piece *p, struct pp_range range,
                  size_t at, struct pp_run *r);

/* Returns the range of a piece of n elements whose optimizer state a rank
 * holds, of `size` ranks that hold the same piece (ZeRO-1). It is whole blocks
 * of PP_SQUARES_BLOCK, so that sums of squares do not depend on the owners.
 * `turn` is the slot of the tensor in its unit: small tensors go to the ranks
 * in turn. */
struct pp_range pp_owned_range(size_t n, size_t turn, size_t size, size_t rank);

/* Returns the most elements of a unit's tensors, a table of n rows, that one of
 * these holders of any of `tp` pieces owns; h->index has no effect. Rows
 * without a name count nothing. */
size_t pp_owned_most(const struct pp_tensor_info *table, size_t n, size_t tp,
                     const struct pp_holders *h);

#endif
