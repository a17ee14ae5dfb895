/* SPDX-License-Identifier: MIT */
/* packed_format - the bytes of a packed directory's index as structs, and what
 * packed*.c share. For these files only.
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
#include "data/packed.h"

#define PP_PACKED_MAGIC "PPPACK\0" /* 8 bytes with the final zero */
/* An index has the first version that has all of its fields, so that older
 * readers read what they can. */
#define PP_PACKED_VERSION 9

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the index is mapped in place: little endian machines only");

enum pp_packed_file {
    PP_PACKED_INDEX,
    PP_PACKED_INPUT_IDS,
    PP_PACKED_LABELS,
    PP_PACKED_COLUMNS, /* plus an enum pp_column */
    PP_PACKED_ROWS = PP_PACKED_COLUMNS + PP_N_COLUMNS, /* of the first stream;
                                                          the next follows */
};
static_assert(PP_PACKED_ROWS + PP_N_MODALITIES == PP_PACKED_N_FILES, "files");

/* Returns whether a file is a column of lists. */
static inline bool pp_packed_is_list(int file)
{
    return file >= PP_PACKED_COLUMNS && file < PP_PACKED_ROWS &&
           pp_columns[file - PP_PACKED_COLUMNS].is_list;
}

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

/* Returns the name of a file of the packed directory. */
const char *pp_packed_name(int file);

/* Returns the scope of a file's elements. */
static inline enum pp_scope pp_packed_scope(int file)
{
    if (file >= PP_PACKED_ROWS)
        return PP_SCOPE_ROW;
    return file < PP_PACKED_COLUMNS
               ? PP_SCOPE_TOKEN
               : pp_columns[file - PP_PACKED_COLUMNS].scope;
}

/* A stream in the header: the items of one modality. */
struct pp_packed_items {
    uint64_t n_items, n_rows;
    uint64_t bins, cu_items, cu_rows, grids; /* offsets */
    uint32_t width, token, merge, row_capacity;
    uint32_t max_items, max_rows, max_item, modality;
};
static_assert(sizeof(struct pp_packed_items) == 80, "pp-images(5)");

struct pp_packed_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t checksum; /* see pp_packed_sum */
    uint64_t index_bytes;
    uint64_t n_bins, n_sequences, n_inputs, n_tokens, n_positions;
    uint32_t capacity, align, max_tokens, max_seqlen, vocab, n_columns;
    /* Offsets of the sections from the start of the file. */
    uint64_t columns, bins, cu_seqlens, cu_seqlens_padded, source, start;
    /* Version 1 ends here. The next five sections are optional: 0 if absent. */
    uint64_t first_group, cu_groups, token_files[3];
    uint64_t n_groups;
    uint32_t kind, reserved_files;
    struct pp_packed_input {
        uint64_t sequences, tokens, n_empty, n_dropped, dropped_tokens,
            n_truncated, truncated_tokens, n_split, n_skipped;
    } input;
    /* Version 2 ends here. */
    uint64_t epoch_seed;
    uint32_t epoch_block, reserved; /* 0: all epochs have one order */
    /* Version 3 ends here. Version 4 has images. */
    struct pp_packed_items stream;
    /* Version 4 ends here. Version 5 has context-parallel ranks. Version 6 has
     * audio in place of images, and no such ranks. */
    uint64_t ranks; /* offset */
    uint32_t cp, max_rank_tokens;
    /* Versions 5 and 6 end here. Version 7 has images, then audio, and no such
     * ranks. Version 8 is version 4, but images have a feature of a class token
     * each. */
    struct pp_packed_items audio;
    /* Versions 7 and 8 end here. Version 9 has a generator's tokens, and
     * streams or ranks if their fields are not 0. */
    uint64_t generator_scored; /* offset */
    uint32_t generator_vocab, class_out;
};
static_assert(sizeof(struct pp_packed_header) == 480, "pp-pack(5)");

/* Bytes of the headers of versions 1 to 4, and of 5 and 6. */
enum {
    PP_PACKED_HEADER_1 = 144,
    PP_PACKED_HEADER_2 = 272,
    PP_PACKED_HEADER_3 = 288,
    PP_PACKED_HEADER_4 = 368,
    PP_PACKED_HEADER_5 = 384,
    PP_PACKED_HEADER_7 = 464
};
static_assert(offsetof(struct pp_packed_header, stream) == PP_PACKED_HEADER_3,
              "pp-pack(5)");
static_assert(offsetof(struct pp_packed_header, audio) == PP_PACKED_HEADER_5,
              "pp-pack(5)");
static_assert(offsetof(struct pp_packed_header, generator_scored) ==
                  PP_PACKED_HEADER_7,
              "pp-pack(5)");

/* Versions with streams beside the tokens, and the one with a generator. */
enum {
    PP_PACKED_IMAGES = 4,
    PP_PACKED_AUDIO = 6,
    PP_PACKED_BOTH = 7,
    PP_PACKED_CLASS = 8,
    PP_PACKED_GENERATOR = 9
};

/* Returns the bytes of the header of a version, which exists. */
uint32_t pp_packed_header_bytes(uint32_t version);

/* Returns how many streams an index has. */
static inline int pp_packed_n_streams(const struct pp_packed_header *h)
{
    switch (h->version) {
    case PP_PACKED_BOTH:
        return 2;
    case PP_PACKED_GENERATOR:
        return (h->stream.width > 0) + (h->audio.width > 0);
    case PP_PACKED_IMAGES:
    case PP_PACKED_AUDIO:
    case PP_PACKED_CLASS:
        return 1;
    default:
        return 0;
    }
}

/* Returns stream i of an index. Audio is the second one beside images. */
static inline struct pp_packed_items *
pp_packed_items(struct pp_packed_header *h, int i)
{
    return i ? &h->audio : &h->stream;
}

enum { PP_COLUMN_INT32, PP_COLUMN_FLOAT32 };

/* A column: the file of this name has n elements of one type, in packed
 * order. */
struct pp_packed_column {
    char name[32]; /* zero-padded */
    uint32_t scope, dtype;
    uint64_t n, checksum;
    uint32_t width;    /* of a list: elements per position; else 0 */
    uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct pp_packed_column) == 64, "pp-pack(5)");

/* Returns the entry of a file in the table of columns, or NULL. */
const struct pp_packed_column *pp_packed_column(const struct pp_packed *p,
                                                int file);

/* The entry of a directory that was realigned: it has no file, and its checksum
 * is that of the first directory's index. */
#define PP_PACKED_ORIGIN "origin"

struct pp_packed_record {
    uint64_t first_sequence; /* its cu arrays begin at first_sequence + bin */
    uint64_t first_position; /* in the token columns */
    uint32_t n_sequences, tokens, real, scored, n_groups, max_seqlen;
};
static_assert(sizeof(struct pp_packed_record) == 40, "pp-pack(5)");

/* The items of a bin. Its cu_rows begin at first_item + bin. */
struct pp_packed_item_record {
    uint64_t first_item, first_row; /* of all bins */
};
static_assert(sizeof(struct pp_packed_item_record) == 16, "pp-pack(5)");
static_assert(sizeof(struct pp_grid) == 12, "pp-pack(5)");

/* Returns the kind of all checksums in an index of that version. */
static inline enum pp_checksum_kind pp_packed_checksum_kind(uint32_t version)
{
    return version < 3 ? PP_CHECKSUM_FNV1A64 : PP_CHECKSUM_XXH3;
}

/* Returns the checksum of an index: of the bytes after it, or before version 3
 * of the file with those eight bytes as zeros. */
uint64_t pp_packed_sum(const struct pp_packed_header *index, size_t bytes);

/* The sections of an open index: elements of pp_packed.sections. */
enum {
    PP_SECTION_BINS,
    PP_SECTION_CU,
    PP_SECTION_CU_PADDED,
    PP_SECTION_SOURCE,
    PP_SECTION_START,
    PP_SECTION_COLUMNS,
    PP_SECTION_FIRST_GROUP, /* this and the next are NULL without groups */
    PP_SECTION_CU_GROUPS,
    PP_SECTION_RANKS,     /* NULL unless the sequences have ranks */
    PP_SECTION_GENERATOR, /* scored labels of each bin, or NULL */
    /* The sections of a stream; those of the next modality follow. NULL without
     * the stream. */
    PP_SECTION_ITEM_BINS,
    PP_SECTION_CU_ITEMS,
    PP_SECTION_CU_ROWS,
    PP_SECTION_GRIDS,
    PP_SECTIONS_OF_STREAM = PP_SECTION_GRIDS + 1 - PP_SECTION_ITEM_BINS,
    PP_N_SECTIONS =
        PP_SECTION_ITEM_BINS + PP_SECTIONS_OF_STREAM * PP_N_MODALITIES,
};
static_assert(sizeof((struct pp_packed *)0)->sections ==
                  PP_N_SECTIONS * sizeof(void *),
              "sections");

/* Checks the header of the mapped index and finds its sections. */
int pp_packed_find_sections(struct pp_packed *p,
                            struct pp_err *err) PP_MUST_USE;

/* Checks the numbers of all sections but the columns. */
int pp_packed_check_sections(const struct pp_packed *p,
                             struct pp_err *err) PP_MUST_USE;

/* Finds the section of n elements at offset `at` of the index. */
int pp_packed_find_section(struct pp_packed *p, int which, uint64_t at,
                           uint64_t n, size_t size,
                           struct pp_err *err) PP_MUST_USE;

/* Finds the generator's section, and checks its counts. */
int pp_packed_find_generator(struct pp_packed *p,
                             struct pp_err *err) PP_MUST_USE;
int pp_packed_check_generator(const struct pp_packed *p,
                              struct pp_err *err) PP_MUST_USE;

/* Fills p->streams from the header, and finds their sections. */
int pp_packed_find_streams(struct pp_packed *p, struct pp_err *err) PP_MUST_USE;

/* Checks the numbers of the sections of the streams. */
int pp_packed_check_streams(const struct pp_packed *p,
                            struct pp_err *err) PP_MUST_USE;

/* Raises *most to n. */
static inline void pp_raise(uint32_t *most, uint32_t n)
{
    *most = n > *most ? n : *most;
}

/* Fills the sections of a stream: bin by bin, sequence by sequence. `next` is
 * what follows; zero it. */
struct pp_item_cursor {
    struct pp_packed_item_record *records;
    int32_t *cu_items, *cu_rows; /* all elements are 0 */
    struct pp_grid *grids;
    struct pp_packed_stream *totals; /* n, n_rows and the maxima are raised */
    struct {
        size_t bin, sequence; /* of all bins */
        uint32_t items, rows; /* of the bin so far */
    } next;
};

/* Begins with stream i of an index, whose maxima and rows are not known before
 * the end. */
void pp_item_begin(struct pp_item_cursor *c, struct pp_packed_header *h, int i,
                   struct pp_packed_stream *totals);
void pp_item_end(const struct pp_item_cursor *c, struct pp_packed_items *s);

void pp_item_open_bin(struct pp_item_cursor *c);
void pp_item_close_bin(struct pp_item_cursor *c);

/* Sorts the sequences and checks that the tokens of each document are packed
 * from the first on, and once. */
int pp_packed_check_cover(const struct pp_packed *p,
                          struct pp_err *err) PP_MUST_USE;

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

/* Returns how many sequences a piece has: more than one if it is a group. */
uint32_t pp_piece_n_parts(const struct pp_packed_content *c,
                          const struct pp_piece *q);

/* Returns sequence k of a piece. */
struct pp_part pp_piece_part(const struct pp_packed_content *c,
                             const struct pp_piece *q, uint32_t k);

/* Adds the items that a sequence with these ids has of the cursor's modality.
 * Its placeholders must be those of the items (pp_items_check_places). */
int pp_item_add_part(struct pp_item_cursor *c,
                     const struct pp_packed_content *content,
                     const struct pp_part *p, const int32_t *ids,
                     struct pp_err *err) PP_MUST_USE;

/* Attaches the items of sequence i of bin b to the last sequence of d. */
int pp_packed_load_items(const struct pp_packed *p, size_t b, uint32_t i,
                         struct pp_documents *d,
                         struct pp_err *err) PP_MUST_USE;

/* Gives `out`, whose sequences are those of the first n_bins bins of p, their
 * items. After the last bin comes the first. */
int pp_packed_copy_items(const struct pp_packed *p, size_t n_bins,
                         struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* Returns how many modalities have items in the content, and these. */
int pp_packed_content_streams(const struct pp_packed_content *c,
                              enum pp_modality of[PP_N_MODALITIES]);

/* Returns whether the content has the column of that file. */
bool pp_packed_content_has(const struct pp_packed_content *c, int file);

/* Builds the whole index in memory, which the caller frees. sums are the
 * checksums of the files. Returns NULL with *err filled on failure. */
struct pp_packed_header *
pp_packed_make_index(const struct pp_packed_content *c,
                     const uint64_t sums[PP_PACKED_N_FILES],
                     struct pp_err *err) PP_MUST_USE;

#endif
