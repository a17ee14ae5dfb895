/* SPDX-License-Identifier: MIT */
/* format - the bytes of a packed directory's index as structs, and what
 * the files of packed share. For these files only.
 *
 * pp-pack(5) is the reference. All numbers are little endian, and every section
 * begins at a multiple of 8, so that a mapped index is used in place. */
#ifndef PP_DATA_PACKED_FORMAT_H
#define PP_DATA_PACKED_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "data/documents.h"
#include "data/packed/packed.h"

#define PP_PACKED_MAGIC "PPPACK\0" /* 8 bytes with the final zero */
#define PP_PACKED_VERSION 10       /* the only one that is read */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the index is mapped in place: little endian machines only");

enum pp_packed_file {
    PP_PACKED_INDEX,
    PP_PACKED_INPUT_IDS,
    PP_PACKED_LABELS,
    PP_PACKED_COLUMNS, /* plus an enum pp_column */
    PP_PACKED_ROWS = PP_PACKED_COLUMNS + PP_N_COLUMNS /* plus a modality */
};
static_assert(PP_PACKED_ROWS + PP_N_MODALITIES == PP_PACKED_N_FILES, "files");

/* Returns whether a file is a column of a generator's tokens. */
static inline bool pp_packed_is_generator(int file)
{
    return file == PP_PACKED_COLUMNS + PP_COLUMN_GENERATOR_IDS ||
           file == PP_PACKED_COLUMNS + PP_COLUMN_GENERATOR_LABELS;
}

/* Returns whether the elements of a file are int32; others are float. */
static inline bool pp_packed_is_int(int file)
{
    return file < PP_PACKED_COLUMNS || pp_packed_is_generator(file);
}

/* The header of an index. */
struct pp_packed_header {
    char magic[8];
    uint32_t version, n_arrays;
    uint64_t checksum; /* of all bytes after it */
    uint64_t index_bytes;
    uint64_t n_bins, n_sequences, n_groups, n_inputs, n_tokens, n_positions;
    uint64_t epoch_seed;
    uint32_t epoch_block, capacity, align, max_tokens, max_seqlen, vocab;
    uint32_t generator_vocab, cp, max_rank_tokens, kind, bytes, top_k;
    struct pp_input_counts input;
    struct pp_packed_stream images, audio; /* zeros: there are none */
    uint64_t origin;                       /* 0: the set is its own */
};
static_assert(sizeof(struct pp_packed_header) == 336, "pp-pack(5)");

/* The fields of the header from n_bins on, and the same fields of a set. */
enum { PP_N_HEADER_FIELDS = 23 };
extern const struct pp_header_field {
    const char *name;
    size_t at, in_set, bytes;
} pp_header_fields[PP_N_HEADER_FIELDS];

/* An array of the set: a section of the index, or a column, the file of this
 * name. It has n times `width` elements. */
struct pp_packed_array {
    char name[32]; /* zero-padded */
    uint32_t scope, type;
    uint64_t n;
    uint64_t offset;   /* of a section, in the index; 0: a column */
    uint64_t checksum; /* of a column */
    uint32_t width;
    uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct pp_packed_array) == 72, "pp-pack(5)");

/* The types of elements. */
enum pp_element {
    PP_ELEMENT_U16,
    PP_ELEMENT_U32,
    PP_ELEMENT_I32,
    PP_ELEMENT_U64,
    PP_ELEMENT_F32,
    PP_N_ELEMENTS
};

extern const struct pp_element_type {
    const char *name;
    unsigned bytes;
} pp_element_types[PP_N_ELEMENTS];

/* The sections of an index: elements of pp_packed.sections. */
enum pp_section {
    PP_SECTION_STARTS,
    PP_SECTION_BINS,
    PP_SECTION_CU,
    PP_SECTION_CU_PADDED,
    PP_SECTION_SOURCE,
    PP_SECTION_START,
    PP_SECTION_CU_GROUPS,
    PP_SECTION_RANKS,
    PP_SECTION_GENERATOR,
    /* The sections of a stream; the sections of the next modality follow. */
    PP_SECTION_ITEM_STARTS,
    PP_SECTION_CU_ITEMS,
    PP_SECTION_CU_ROWS,
    PP_SECTION_GRIDS,
    PP_SECTIONS_OF_STREAM = PP_SECTION_GRIDS + 1 - PP_SECTION_ITEM_STARTS,
    PP_N_SECTIONS =
        PP_SECTION_ITEM_STARTS + PP_SECTIONS_OF_STREAM * PP_N_MODALITIES,
};
static_assert(sizeof((struct pp_packed *)0)->sections ==
                  PP_N_SECTIONS * sizeof(void *),
              "sections");

/* The data that have a section. */
enum pp_with {
    PP_WITH_ALL,
    PP_WITH_GROUPS, /* some have several sequences */
    PP_WITH_RANKS,
    PP_WITH_GENERATOR,
    PP_WITH_IMAGES,
    PP_WITH_AUDIO,
    PP_N_WITH
};

/* All that the code knows of a section: reading, checking, laying out, filling
 * in memory and counting memory follow from it. */
struct pp_section_row {
    const char *name;
    enum pp_scope scope;
    enum pp_element type;
    uint32_t width; /* elements of a bin, sequence ... */
    bool is_sums;   /* 0 and running sums for each bin: one more for a bin */
    enum pp_with with;
};
extern const struct pp_section_row pp_sections[PP_N_SECTIONS];
extern const char *const pp_scope_names[PP_N_SCOPES];
extern const char *const pp_with_names[PP_N_WITH];

/* Returns the number of a section of a modality. */
static inline int pp_section_of(enum pp_modality m, int section)
{
    return section + PP_SECTIONS_OF_STREAM * (int)m;
}

/* Returns the bytes of a section of a set: 0 if it has none. */
uint64_t pp_section_bytes(const struct pp_packed *p, int section);

/* Places the sections from first up to end one after the other, from offset
 * `at` on. An absent one has offset 0. Returns the end. */
uint64_t pp_packed_lay_out(const struct pp_packed *p, int first, int end,
                           uint64_t at, uint64_t offset[PP_N_SECTIONS]);

/* Elements of sections. */
struct pp_packed_start {
    uint64_t first_sequence; /* its cu arrays begin at first_sequence + bin */
    uint64_t first_position; /* in the token columns */
    uint64_t first_group;    /* its cu_groups begin at first_group + bin */
};

struct pp_packed_record {
    uint32_t n_sequences, tokens, real, scored, n_groups, max_seqlen;
};

struct pp_item_start {
    uint64_t first_item; /* its cu_rows begin at first_item + bin */
    uint64_t first_row;
};

/* Returns the name of a file of the packed directory. */
const char *pp_packed_name(int file);

/* Returns the entry of a file in the table of arrays, or NULL. */
const struct pp_packed_array *pp_packed_column(const struct pp_packed *p,
                                               int file);

/* Returns the checksum of an index of that many bytes. */
uint64_t pp_packed_sum(const struct pp_packed_header *index, size_t bytes);

/* Makes the header and the table of arrays of a set whose sections are filled,
 * and the checksum. offset is that of pp_fill_begin. `has` tells the files, and
 * sums are their checksums. */
void pp_packed_put_header(const struct pp_packed *p,
                          const uint64_t offset[PP_N_SECTIONS + 1],
                          const bool has[PP_PACKED_N_FILES],
                          const uint64_t sums[PP_PACKED_N_FILES],
                          struct pp_packed_header *h);

/* Returns the bytes of a header and its table, with that many files. */
size_t pp_packed_head_bytes(const struct pp_packed *p, int n_files);

/* Checks the header and the table of the mapped index, and finds its
 * sections. */
int pp_packed_find_sections(struct pp_packed *p,
                            struct pp_err *err) PP_MUST_USE;

/* Checks the numbers of all sections. */
int pp_packed_check_sections(const struct pp_packed *p,
                             struct pp_err *err) PP_MUST_USE;

/* Checks the numbers of the sections of the streams. */
int pp_packed_check_streams(const struct pp_packed *p,
                            struct pp_err *err) PP_MUST_USE;

/* Sorts the sequences and checks that the tokens of each document are packed
 * from the first on, and once. */
int pp_packed_check_cover(const struct pp_packed *p,
                          struct pp_err *err) PP_MUST_USE;

/* Raises *most to n. */
static inline void pp_raise(uint32_t *most, uint32_t n)
{
    *most = n > *most ? n : *most;
}

/* Fills the sections of a set bin by bin, sequence by sequence, item by item.
 * The same calls are made twice: they only count in the set, until
 * pp_fill_begin. The caller fills ranks, scored labels and ids. */
struct pp_packed_fill {
    struct pp_packed *set;   /* its counts are of what was added so far */
    void *at[PP_N_SECTIONS]; /* NULL: absent, or not yet */
    size_t bin, sequence;    /* the last ones */
};

struct pp_fill_sequence {
    uint32_t source, start, length, padded;
    bool is_member; /* of the group of the sequence before it */
};

void pp_fill_bin(struct pp_packed_fill *f);
void pp_fill_sequence(struct pp_packed_fill *f,
                      const struct pp_fill_sequence *q);
void pp_fill_item(struct pp_packed_fill *f, enum pp_modality m,
                  const struct pp_grid *g);

/* Allocates zeros: `head` bytes, the sections that were counted, and `tail`
 * bytes. Begins anew. offset, which may be NULL, gets the offsets of the
 * sections and of their end. Returns the block, which the caller frees, or
 * NULL. */
void *pp_fill_begin(struct pp_packed_fill *f, size_t head, size_t tail,
                    uint64_t offset[PP_N_SECTIONS + 1],
                    struct pp_err *err) PP_MUST_USE;

/* Returns the record of the last bin. */
static inline struct pp_packed_record *
pp_fill_record(const struct pp_packed_fill *f)
{
    return (struct pp_packed_record *)f->at[PP_SECTION_BINS] + f->bin;
}

/* Pieces between calls of progress. Each piece may bring a few mapped pages
 * into memory; the caller can release them in the call. */
enum { PP_PROGRESS_PIECES = 128 };

/* One sequence of a piece. */
struct pp_part {
    size_t at;       /* index of its first token in the documents' arrays */
    size_t sequence; /* its number in the documents */
    uint32_t start;  /* position of its first token in its document */
    uint32_t length, padded;
};

/* Returns how many sequences a piece has: more than one if they share a bin. */
uint32_t pp_piece_n_parts(const struct pp_packed_content *c,
                          const struct pp_piece *q);

/* Returns sequence k of a piece. */
struct pp_part pp_piece_part(const struct pp_packed_content *c,
                             const struct pp_piece *q, uint32_t k);

/* Attaches the items of sequence i of bin b to the last sequence of d. */
int pp_packed_load_items(const struct pp_packed *p, size_t b, uint32_t i,
                         struct pp_documents *d,
                         struct pp_err *err) PP_MUST_USE;

/* Gives `out`, whose sequences are the sequences of the first n_bins bins of p,
 * their items. After the last bin comes the first. */
int pp_packed_copy_items(const struct pp_packed *p, size_t n_bins,
                         struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* Sets the files that the content has. */
void pp_packed_content_files(const struct pp_packed_content *c,
                             bool has[PP_PACKED_N_FILES]);

/* Builds the whole index in memory, which the caller frees. sums are the
 * checksums of the files. Returns NULL with *err filled on failure. */
struct pp_packed_header *pp_packed_make_index(
    const struct pp_packed_content *c, const bool has[PP_PACKED_N_FILES],
    const uint64_t sums[PP_PACKED_N_FILES], struct pp_err *err) PP_MUST_USE;

#endif
