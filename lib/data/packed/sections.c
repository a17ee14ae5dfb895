/* SPDX-License-Identifier: MIT */
/* sections - the table of sections of an index; finds them, and checks
 * every number against the others, in a few passes over the sequences. The
 * columns are not read; check.c compares the index with them. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"

const struct pp_element_type pp_element_types[PP_N_ELEMENTS] = {
    [PP_ELEMENT_U16] = {"u16", 2}, [PP_ELEMENT_U32] = {"u32", 4},
    [PP_ELEMENT_I32] = {"i32", 4}, [PP_ELEMENT_U64] = {"u64", 8},
    [PP_ELEMENT_F32] = {"f32", 4},
};

const char *const pp_scope_names[PP_N_SCOPES] = {"token", "sequence", "group",
                                                 "row",   "bin",      "item"};

const char *const pp_with_names[PP_N_WITH] = {"all data",    "groups", "ranks",
                                              "a generator", "images", "audio"};

#define STREAM_ROW(m, section, ...) \
    [PP_SECTION_##section + PP_SECTIONS_OF_STREAM * (m)] = {__VA_ARGS__}
#define STREAM_ROWS(m, name, with)                                             \
    STREAM_ROW(m, ITEM_STARTS, name ".starts", PP_SCOPE_BIN, PP_ELEMENT_U64,   \
               2, false, with),                                                \
        STREAM_ROW(m, CU_ITEMS, name ".cu_items", PP_SCOPE_SEQUENCE,           \
                   PP_ELEMENT_I32, 1, true, with),                             \
        STREAM_ROW(m, CU_ROWS, name ".cu_rows", PP_SCOPE_ITEM, PP_ELEMENT_I32, \
                   1, true, with),                                             \
        STREAM_ROW(m, GRIDS, name ".grids", PP_SCOPE_ITEM, PP_ELEMENT_U32, 3,  \
                   false, with)

const struct pp_section_row pp_sections[PP_N_SECTIONS] = {
    [PP_SECTION_STARTS] = {"starts", PP_SCOPE_BIN, PP_ELEMENT_U64, 3},
    [PP_SECTION_BINS] = {"bins", PP_SCOPE_BIN, PP_ELEMENT_U32, 6},
    [PP_SECTION_CU] = {"cu_seqlens", PP_SCOPE_SEQUENCE, PP_ELEMENT_I32, 1,
                       true},
    [PP_SECTION_CU_PADDED] = {"cu_seqlens_padded", PP_SCOPE_SEQUENCE,
                              PP_ELEMENT_I32, 1, true},
    [PP_SECTION_SOURCE] = {"source", PP_SCOPE_SEQUENCE, PP_ELEMENT_U32, 1},
    [PP_SECTION_START] = {"start", PP_SCOPE_SEQUENCE, PP_ELEMENT_U32, 1},
    [PP_SECTION_CU_GROUPS] = {"cu_groups", PP_SCOPE_GROUP, PP_ELEMENT_U32, 1,
                              true, PP_WITH_GROUPS},
    [PP_SECTION_RANKS] = {"ranks", PP_SCOPE_SEQUENCE, PP_ELEMENT_U16, 2, false,
                          PP_WITH_RANKS},
    [PP_SECTION_GENERATOR] = {"generator_scored", PP_SCOPE_BIN, PP_ELEMENT_U32,
                              1, false, PP_WITH_GENERATOR},
    STREAM_ROWS(PP_MODALITY_IMAGES, "images", PP_WITH_IMAGES),
    STREAM_ROWS(PP_MODALITY_AUDIO, "audio", PP_WITH_AUDIO),
};

/* The sections that code reads as structs. */
static_assert(sizeof(struct pp_packed_start) == 3 * 8, "starts");
static_assert(sizeof(struct pp_packed_record) == 6 * 4, "bins");
static_assert(sizeof(struct pp_rank_range) == 2 * 2, "ranks");
static_assert(sizeof(struct pp_item_start) == 2 * 8, "starts of items");
static_assert(sizeof(struct pp_grid) == 3 * 4, "grids");

/* Returns whether a set is such data. */
static bool is_with(const struct pp_packed *p, enum pp_with with)
{
    switch (with) {
    case PP_WITH_GROUPS:
        return p->n_groups != p->n_sequences;
    case PP_WITH_RANKS:
        return p->cp > 0;
    case PP_WITH_GENERATOR:
        return pp_packed_has_generator(p);
    case PP_WITH_IMAGES:
        return pp_stream_exists(&p->streams[PP_MODALITY_IMAGES]);
    case PP_WITH_AUDIO:
        return pp_stream_exists(&p->streams[PP_MODALITY_AUDIO]);
    default:
        return true;
    }
}

/* Returns how many bins, sequences ... a set has. Items and rows are of one
 * modality. */
static uint64_t count_of(const struct pp_packed *p, enum pp_scope scope,
                         enum pp_modality m)
{
    const uint64_t n[PP_N_SCOPES] = {
        [PP_SCOPE_TOKEN] = p->n_positions,
        [PP_SCOPE_SEQUENCE] = p->n_sequences,
        [PP_SCOPE_GROUP] = p->n_groups,
        [PP_SCOPE_ROW] = p->streams[m].n_rows,
        [PP_SCOPE_BIN] = p->n_bins,
        [PP_SCOPE_ITEM] = p->streams[m].n,
    };
    return n[scope];
}

/* Returns the modality of a section; images if it is of none. */
static enum pp_modality modality_of(const struct pp_section_row *s)
{
    return s->with == PP_WITH_AUDIO ? PP_MODALITY_AUDIO : PP_MODALITY_IMAGES;
}

/* Makes the entry of a section, without its offset; n is 0 if the set has no
 * such section. */
static struct pp_packed_array section_entry(const struct pp_packed *p,
                                            int section)
{
    const struct pp_section_row *s = &pp_sections[section];
    struct pp_packed_array a = {
        .scope = s->scope, .type = s->type, .width = s->width};
    memcpy(a.name, s->name, strlen(s->name));
    if (is_with(p, s->with))
        a.n = count_of(p, s->scope, modality_of(s)) +
              (s->is_sums ? p->n_bins : 0);
    return a;
}

uint64_t pp_section_bytes(const struct pp_packed *p, int section)
{
    return section_entry(p, section).n * pp_sections[section].width *
           pp_element_types[pp_sections[section].type].bytes;
}

/* Makes the entry of a file, without its checksum. */
static struct pp_packed_array file_entry(const struct pp_packed *p, int file)
{
    const char *name = pp_packed_name(file);
    enum pp_modality m = PP_MODALITY_IMAGES;
    struct pp_packed_array a = {
        .width = 1,
        .type = pp_packed_is_int(file) ? PP_ELEMENT_I32 : PP_ELEMENT_F32};
    memcpy(a.name, name, strlen(name));
    if (file >= PP_PACKED_ROWS) {
        m = (enum pp_modality)(file - PP_PACKED_ROWS);
        a.scope = PP_SCOPE_ROW;
        a.width = p->streams[m].width;
    } else if (file >= PP_PACKED_COLUMNS) {
        a.scope = pp_columns[file - PP_PACKED_COLUMNS].scope;
        a.width = (uint32_t)pp_column_width(file - PP_PACKED_COLUMNS, p->top_k);
    }
    a.n = count_of(p, (enum pp_scope)a.scope, m);
    return a;
}

#define FIELD(name) NAMED(name, name)
#define NAMED(name, field)                              \
    {                                                   \
#name, offsetof(struct pp_packed_header, name), \
            offsetof(struct pp_packed, field),          \
            sizeof((struct pp_packed *)0)->field        \
    }
const struct pp_header_field pp_header_fields[PP_N_HEADER_FIELDS] = {
    FIELD(n_bins),
    FIELD(n_sequences),
    FIELD(n_groups),
    FIELD(n_inputs),
    FIELD(n_tokens),
    FIELD(n_positions),
    NAMED(epoch_seed, epoch.seed),
    NAMED(epoch_block, epoch.block),
    FIELD(capacity),
    FIELD(align),
    FIELD(max_tokens),
    FIELD(max_seqlen),
    FIELD(vocab),
    FIELD(generator_vocab),
    FIELD(cp),
    FIELD(max_rank_tokens),
    FIELD(kind),
    FIELD(bytes),
    FIELD(top_k),
    FIELD(input),
    NAMED(images, streams[PP_MODALITY_IMAGES]),
    NAMED(audio, streams[PP_MODALITY_AUDIO]),
    FIELD(origin),
};

uint64_t pp_packed_sum(const struct pp_packed_header *index, size_t bytes)
{
    size_t at = offsetof(struct pp_packed_header, index_bytes);
    return pp_checksum_of((const char *)index + at, bytes - at);
}

/* Returns how many sections a set has. */
static int count_sections(const struct pp_packed *p)
{
    int n = 0;
    for (int s = 0; s < PP_N_SECTIONS; s++)
        n += pp_section_bytes(p, s) > 0;
    return n;
}

size_t pp_packed_head_bytes(const struct pp_packed *p, int n_files)
{
    return sizeof(struct pp_packed_header) +
           (size_t)(count_sections(p) + n_files) *
               sizeof(struct pp_packed_array);
}

void pp_packed_put_header(const struct pp_packed *p,
                          const uint64_t offset[PP_N_SECTIONS + 1],
                          const bool has[PP_PACKED_N_FILES],
                          const uint64_t sums[PP_PACKED_N_FILES],
                          struct pp_packed_header *h)
{
    struct pp_packed_array *a = (struct pp_packed_array *)(h + 1);
    memcpy(h->magic, PP_PACKED_MAGIC, sizeof h->magic);
    h->version = PP_PACKED_VERSION;
    h->index_bytes = offset[PP_N_SECTIONS];
    for (int i = 0; i < PP_N_HEADER_FIELDS; i++)
        memcpy((char *)h + pp_header_fields[i].at,
               (const char *)p + pp_header_fields[i].in_set,
               pp_header_fields[i].bytes);
    for (int s = 0; s < PP_N_SECTIONS; s++) {
        if (!offset[s])
            continue;
        *a = section_entry(p, s);
        a++->offset = offset[s];
    }
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        if (!has[f])
            continue;
        *a = file_entry(p, f);
        a++->checksum = sums[f];
    }
    h->n_arrays = (uint32_t)(a - (struct pp_packed_array *)(h + 1));
    h->checksum = pp_packed_sum(h, h->index_bytes);
}

static int fail_index(struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: %s", what);
}

static int check_header(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    size_t bytes = p->map_bytes[PP_PACKED_INDEX];
    if (bytes < sizeof h->magic ||
        memcmp(h->magic, PP_PACKED_MAGIC, sizeof h->magic) != 0)
        return fail_index(err, "not the index of a packed directory");
    if (bytes < offsetof(struct pp_packed_header, checksum))
        return fail_index(err, "cut short");
    if (h->version > PP_PACKED_VERSION)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: version '%u' needs a newer pptools, this one "
                       "reads %d",
                       h->version, PP_PACKED_VERSION);
    if (h->version < PP_PACKED_VERSION)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: version '%u' is not read any more; pack the "
                       "data anew",
                       h->version);
    if (bytes < sizeof *h ||
        h->n_arrays > (bytes - sizeof *h) / sizeof(struct pp_packed_array))
        return fail_index(err, "cut short");
    if (h->index_bytes != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: has '%zu' bytes, but its header says %llu",
                       bytes, (unsigned long long)h->index_bytes);
    if (pp_packed_sum(h, bytes) != h->checksum)
        return fail_index(err, "wrong checksum: the file is damaged");
    return 0;
}

static int check_stream_figures(const struct pp_packed *p, enum pp_modality m,
                                struct pp_err *err)
{
    static const struct pp_packed_stream none;
    const struct pp_packed_stream *s = &p->streams[m];
    if (!s->width && !memcmp(s, &none, sizeof none))
        return 0;
    if (!s->width || s->modality != m || !s->merge || s->merge > INT16_MAX ||
        s->token >= p->vocab || !s->n || s->n > UINT32_MAX || !s->n_rows ||
        s->n_rows > INT64_MAX / s->width || s->capacity > INT32_MAX ||
        s->class_out > (m == PP_MODALITY_IMAGES))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the header's %s are impossible",
                       pp_modality_words(m).items);
    return 0;
}

/* Checks that the parts that a set can have fit each other. */
static int check_parts(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_stream *images = &p->streams[PP_MODALITY_IMAGES];
    const struct pp_packed_stream *audio = &p->streams[PP_MODALITY_AUDIO];
    bool has_images = pp_stream_exists(images);
    bool has_audio = pp_stream_exists(audio);
    if (has_images && has_audio && images->token == audio->token)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: token '%" PRIu32
                       "' cannot stand for both images and audio",
                       audio->token);
    if (p->cp == 1 || p->cp > PP_MOST_SIZED_RANKS ||
        !p->cp != !p->max_rank_tokens ||
        (uint64_t)p->max_rank_tokens * p->cp > p->capacity)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%u' context-parallel ranks of at most %u "
                       "positions are impossible",
                       p->cp, p->max_rank_tokens);
    if (p->cp && (has_images || has_audio))
        return fail_index(err, "sequences with ranks of their own cannot have "
                               "images or audio");
    if (pp_packed_has_generator(p) && p->kind != PP_DATA_DOCUMENTS)
        return fail_index(err, "only plain documents can have a generator");
    return 0;
}

/* Takes the fields of the header. */
static int read_header(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    for (int i = 0; i < PP_N_HEADER_FIELDS; i++)
        memcpy((char *)p + pp_header_fields[i].in_set,
               (const char *)h + pp_header_fields[i].at,
               pp_header_fields[i].bytes);
    p->checksum = h->checksum;
    p->origin = h->origin ? h->origin : h->checksum;
    if (h->origin)
        pp_raise(&p->capacity, p->max_tokens);
    if (!p->n_bins || p->n_sequences > UINT32_MAX ||
        p->n_groups > p->n_sequences || p->n_bins > p->n_groups ||
        p->n_inputs > UINT32_MAX || p->n_positions > INT64_MAX || !p->align ||
        p->capacity > INT32_MAX || p->align > INT32_MAX ||
        p->vocab > INT32_MAX || p->generator_vocab > INT32_MAX ||
        h->kind >= PP_DATA_N_KINDS || p->bytes > 1 ||
        p->top_k > PP_LONGEST_LIST || p->epoch.block > p->n_bins)
        return fail_index(err, "the header's counts are impossible");
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (check_stream_figures(p, (enum pp_modality)m, err) != 0)
            return -1;
    return check_parts(p, err);
}

/* Returns the entry of that name in the table of arrays, or NULL. */
static const struct pp_packed_array *find_entry(const struct pp_packed *p,
                                                const char *name)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_array *a = (const void *)(h + 1);
    for (uint32_t i = 0; i < h->n_arrays; i++)
        if (!strncmp(a[i].name, name, sizeof a->name))
            return &a[i];
    return NULL;
}

const struct pp_packed_array *pp_packed_column(const struct pp_packed *p,
                                               int file)
{
    return find_entry(p, pp_packed_name(file));
}

/* Fails unless the entry of an array is the expected one, but for its place and
 * checksum. */
static int check_entry(const struct pp_packed_array *got,
                       const struct pp_packed_array *want, struct pp_err *err)
{
    if (got->scope == want->scope && got->type == want->type &&
        got->n == want->n && got->width == want->width)
        return 0;
    return pp_fail(
        err, PP_EXIT_INPUT,
        "index: '%s' must have '%" PRIu64 "' times %" PRIu32 " %s, for each %s",
        want->name, want->n, want->width, pp_element_types[want->type].name,
        pp_scope_names[want->scope]);
}

/* Finds the sections, which must be in order and without a gap. */
static int find_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const size_t head =
        sizeof *h + h->n_arrays * sizeof(struct pp_packed_array);
    uint64_t offset[PP_N_SECTIONS + 1];
    offset[PP_N_SECTIONS] =
        pp_packed_lay_out(p, 0, PP_N_SECTIONS, head, offset);
    if (offset[PP_N_SECTIONS] != h->index_bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: has '%" PRIu64
                       "' bytes, but its sections need %" PRIu64,
                       h->index_bytes, offset[PP_N_SECTIONS]);
    for (int s = 0; s < PP_N_SECTIONS; s++) {
        const struct pp_packed_array want = section_entry(p, s);
        const struct pp_packed_array *got = find_entry(p, want.name);
        if (!got != !offset[s])
            return pp_fail(err, PP_EXIT_INPUT, "index: %s '%s'",
                           got ? "cannot have" : "has no", want.name);
        if (!got)
            continue;
        if (check_entry(got, &want, err) != 0)
            return -1;
        if (got->offset != offset[s])
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: '%s' must begin at byte %" PRIu64
                           ", not '%" PRIu64 "'",
                           want.name, offset[s], got->offset);
        p->sections[s] = (const char *)h + got->offset;
    }
    return 0;
}

/* Returns whether the set must have, may have, or cannot have a column. */
enum presence { REQUIRED, OPTIONAL, IMPOSSIBLE };
static enum presence presence_of(const struct pp_packed *p, int file)
{
    if (file >= PP_PACKED_ROWS)
        return pp_stream_exists(&p->streams[file - PP_PACKED_ROWS])
                   ? REQUIRED
                   : IMPOSSIBLE;
    if (pp_packed_is_generator(file))
        return pp_packed_has_generator(p) ? REQUIRED : IMPOSSIBLE;
    if (file < PP_PACKED_COLUMNS)
        return REQUIRED;
    return pp_packed_has_generator(p) ||
                   (pp_columns[file - PP_PACKED_COLUMNS].is_list && !p->top_k)
               ? IMPOSSIBLE
               : OPTIONAL;
}

/* Checks the entries of the columns. */
static int check_columns(const struct pp_packed *p, struct pp_err *err)
{
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        const struct pp_packed_array want = file_entry(p, f);
        const struct pp_packed_array *got = find_entry(p, want.name);
        enum presence presence = presence_of(p, f);
        if (presence != OPTIONAL && !got != (presence == IMPOSSIBLE))
            return pp_fail(err, PP_EXIT_INPUT, "index: %s '%s'",
                           got ? "cannot have" : "has no", want.name);
        if (!got)
            continue;
        if (check_entry(got, &want, err) != 0)
            return -1;
        if (got->offset)
            return pp_fail(err, PP_EXIT_INPUT, "index: '%s' must be a file",
                           want.name);
    }
    return 0;
}

/* Fails at a name that is there twice, and at a section that is not known:
 * programs that skip it would misread the others. An unknown column is
 * skipped. */
static int check_names(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_array *a = (const void *)(h + 1);
    for (uint32_t i = 0; i < h->n_arrays; i++) {
        bool known = !a[i].offset;
        for (int s = 0; s < PP_N_SECTIONS; s++)
            known |= !strncmp(a[i].name, pp_sections[s].name, sizeof a->name);
        if (!known)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: section '%.32s' needs a newer pptools",
                           a[i].name);
        if (find_entry(p, a[i].name) != &a[i])
            return pp_fail(err, PP_EXIT_INPUT, "index: has two arrays '%.32s'",
                           a[i].name);
    }
    return 0;
}

int pp_packed_find_sections(struct pp_packed *p, struct pp_err *err)
{
    if (check_header(p, err) != 0 || read_header(p, err) != 0 ||
        check_names(p, err) != 0 || find_sections(p, err) != 0)
        return -1;
    return check_columns(p, err);
}

static int fail_index_bin(size_t b, struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: bin %zu: %s", b, what);
}

/* Checks the cu arrays of one bin. Differences are in 64 bits, since the arrays
 * may still hold any value. */
static int check_lengths(const struct pp_packed *p, size_t b,
                         const struct pp_packed_record *r, struct pp_err *err)
{
    const struct pp_packed_start *at = p->sections[PP_SECTION_STARTS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const int32_t *padded = p->sections[PP_SECTION_CU_PADDED];
    cu += at[b].first_sequence + b;
    padded += at[b].first_sequence + b;
    int64_t longest = 0;
    if (cu[0] != 0 || padded[0] != 0)
        return fail_index_bin(b, err, "cu_seqlens must begin with 0");
    for (uint32_t i = 0; i < r->n_sequences; i++) {
        int64_t length = (int64_t)cu[i + 1] - cu[i];
        int64_t padded_length = (int64_t)padded[i + 1] - padded[i];
        if (length < 1 || padded_length < length || padded_length > INT32_MAX)
            return fail_index_bin(
                b, err,
                "cu_seqlens must rise and stay inside cu_seqlens_padded");
        if (p->align > 1 && (uint32_t)padded_length % p->align != 0)
            return fail_index_bin(
                b, err, "a sequence's positions are no multiple of align");
        longest = padded_length > longest ? padded_length : longest;
    }
    if ((uint32_t)cu[r->n_sequences] != r->real ||
        (uint32_t)padded[r->n_sequences] != r->tokens ||
        longest != r->max_seqlen)
        return fail_index_bin(b, err,
                              "cu_seqlens does not match the bin's counts");
    return 0;
}

/* Checks that a bin's groups are not empty and cover its sequences. */
static int check_groups(const struct pp_packed *p, size_t b,
                        const struct pp_packed_record *r, struct pp_err *err)
{
    const struct pp_packed_start *at = p->sections[PP_SECTION_STARTS];
    const uint32_t *cu = p->sections[PP_SECTION_CU_GROUPS];
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    if (!cu)
        return r->n_groups == r->n_sequences
                   ? 0
                   : fail_index_bin(b, err,
                                    "must have as many groups as sequences");
    cu += at[b].first_group + b;
    source += at[b].first_sequence;
    for (uint32_t g = 0; g < r->n_groups; g++)
        if (cu[g + 1] <= cu[g])
            return fail_index_bin(b, err, "cu_groups must rise");
    if (cu[0] != 0 || cu[r->n_groups] != r->n_sequences)
        return fail_index_bin(b, err,
                              "cu_groups does not match the bin's counts");
    for (uint32_t g = 0; g < r->n_groups; g++)
        for (uint32_t i = cu[g] + 1; i < cu[g + 1]; i++)
            if (source[i] != source[i - 1])
                return fail_index_bin(b, err,
                                      "a group must be of one document");
    return 0;
}

static int check_bin_records(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_start *at = p->sections[PP_SECTION_STARTS];
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    struct pp_packed_start next = {0, 0, 0};
    uint64_t tokens = 0;
    uint32_t max_tokens = 0, max_seqlen = 0;
    for (size_t b = 0; b < p->n_bins; b++, r++) {
        if (memcmp(&at[b], &next, sizeof next) != 0)
            return fail_index_bin(b, err,
                                  "must begin where the previous bin ends");
        if (r->n_sequences < 1 ||
            r->n_sequences > p->n_sequences - next.first_sequence ||
            r->tokens > p->capacity || r->real < r->n_sequences ||
            r->scored > r->real - r->n_sequences ||
            r->n_groups > r->n_sequences ||
            r->n_groups > p->n_groups - next.first_group)
            return fail_index_bin(b, err, "impossible counts");
        if (check_lengths(p, b, r, err) != 0 || check_groups(p, b, r, err) != 0)
            return -1;
        next.first_sequence += r->n_sequences;
        next.first_position += r->tokens;
        next.first_group += r->n_groups;
        tokens += r->real;
        pp_raise(&max_tokens, r->tokens);
        pp_raise(&max_seqlen, r->max_seqlen);
    }
    if (next.first_sequence != p->n_sequences ||
        next.first_position != p->n_positions ||
        next.first_group != p->n_groups || tokens != p->n_tokens ||
        max_tokens != p->max_tokens || max_seqlen != p->max_seqlen)
        return fail_index(err, "the bins do not match the header's counts");
    return 0;
}

/* Sequences are sorted if a table of all documents up to the last one would
 * have so many elements for each of them: the index says how many there are. */
enum { SPARSE = 64 };

/* Counts about the documents that are packed. */
struct packed_inputs {
    uint32_t *end; /* token after the last packed one of each; 0: absent */
    size_t n;      /* elements of end */
    uint64_t n_packed;
};

/* Checks that sources are documents and that starts are inside the longest
 * possible document. Counts the elements that in->end needs. */
static int check_starts(const struct pp_packed *p, struct packed_inputs *in,
                        struct pp_err *err)
{
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    const uint32_t *start = p->sections[PP_SECTION_START];
    uint32_t last = 0;
    for (size_t i = 0; i < p->n_sequences; i++) {
        if (source[i] >= p->n_inputs)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: source '%u' must be below %zu",
                           i, source[i], p->n_inputs);
        if (start[i] >= p->n_tokens)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: start '%u' must be below the "
                           "number of tokens",
                           i, start[i]);
        last = source[i] > last ? source[i] : last;
    }
    in->n = (size_t)last + 1;
    return 0;
}

/* Returns a hash of a token of a document. */
static uint64_t hash_place(uint32_t source, uint32_t at)
{
    uint64_t x = ((uint64_t)source << 32 | at) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* Returns whether the sequences of each document cover its tokens from 0 on,
 * each once: then every start but 0 is the end of a sequence of the same
 * document, and every end but the last is a start. Sums of hashes compare the
 * two multisets, since sorting ten million sequences takes seconds. Counts the
 * documents. */
static bool covers_inputs(const struct pp_packed *p, struct packed_inputs *in)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    const uint32_t *start = p->sections[PP_SECTION_START];
    uint64_t sum = 0, n_begun = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t b = 0, s = 0; b < p->n_bins; b++)
            for (uint32_t i = 0; i < r[b].n_sequences; i++, s++) {
                const int32_t *at = cu + s + b;
                uint64_t end = (uint64_t)start[s] + (uint32_t)(at[1] - at[0]);
                uint32_t *last = &in->end[source[s]];
                if (end > UINT32_MAX)
                    return false;
                if (pass == 0) {
                    *last = end > *last ? (uint32_t)end : *last;
                    n_begun += start[s] == 0;
                    sum += start[s] ? hash_place(source[s], start[s]) : 0;
                } else if (end == *last) {
                    *last = 0;
                    in->n_packed++;
                } else {
                    sum -= hash_place(source[s], (uint32_t)end);
                }
            }
    return sum == 0 && n_begun == in->n_packed;
}

/* A run of one input's tokens. */
struct input_run {
    uint32_t source, start, length;
};

static int compare_runs(const void *va, const void *vb)
{
    const struct input_run *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

/* Checks runs in order, to name the document that is not covered. Counts the
 * documents. */
static int check_runs(const struct input_run *runs, size_t n,
                      uint64_t *n_packed, struct pp_err *err)
{
    *n_packed = 0;
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0 && runs[i].source == runs[i - 1].source;
        *n_packed += !same;
        uint64_t end =
            same ? (uint64_t)runs[i - 1].start + runs[i - 1].length : 0;
        if (runs[i].start < end)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: input '%u' is packed twice", runs[i].source);
        if (runs[i].start > end)
            return pp_fail(
                err, PP_EXIT_INPUT,
                "index: input '%u': tokens before position %u are missing",
                runs[i].source, runs[i].start);
        if ((uint64_t)runs[i].start + runs[i].length > UINT32_MAX)
            return fail_index(err, "a document is too long");
    }
    return 0;
}

/* Does the work of pp_packed_check_cover. */
static int check_sorted(const struct pp_packed *p, uint64_t *n_packed,
                        struct pp_err *err)
{
    size_t bytes, s = 0;
    struct pp_bin bin;
    if (pp_mul(p->n_sequences, sizeof(struct input_run), &bytes, err) != 0)
        return -1;
    struct input_run *runs = malloc(bytes);
    if (!runs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_packed_bin(p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            runs[s++] =
                (struct input_run){bin.source[i], bin.start[i], (uint32_t)n};
        }
    }
    qsort(runs, s, sizeof *runs, compare_runs);
    int rc = check_runs(runs, s, n_packed, err);
    free(runs);
    return rc;
}

int pp_packed_check_cover(const struct pp_packed *p, struct pp_err *err)
{
    uint64_t n_packed;
    return check_sorted(p, &n_packed, err);
}

static int check_inputs(const struct pp_packed *p, struct packed_inputs *in,
                        struct pp_err *err)
{
    if (check_starts(p, in, err) != 0)
        return -1;
    if (in->n / SPARSE > p->n_sequences)
        return check_sorted(p, &in->n_packed, err);
    in->end = calloc(in->n, sizeof *in->end);
    if (!in->end)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    bool covered = covers_inputs(p, in);
    free(in->end);
    in->end = NULL;
    return covered ? 0 : check_sorted(p, &in->n_packed, err);
}

/* Checks that all tokens and documents are packed or counted as left out. */
static int check_input_counts(const struct pp_packed *p, uint64_t n_packed,
                              struct pp_err *err)
{
    const struct pp_input_counts *in = &p->input;
    uint64_t tokens, inputs;
    if (__builtin_add_overflow(p->n_tokens, in->dropped_tokens, &tokens) ||
        __builtin_add_overflow(tokens, in->truncated_tokens, &tokens) ||
        tokens != in->tokens)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the input has '%" PRIu64 "' tokens, but %" PRIu64
                       " are packed, dropped or cut off",
                       in->tokens, tokens);
    if (__builtin_add_overflow(n_packed, in->n_dropped, &inputs) ||
        __builtin_add_overflow(inputs, in->n_empty, &inputs) ||
        inputs != p->n_inputs)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the input has '%zu' documents, but %" PRIu64
                       " are packed, dropped or empty",
                       p->n_inputs, inputs);
    if (in->n_dropped > in->dropped_tokens ||
        (in->dropped_tokens && !in->n_dropped) ||
        (in->truncated_tokens && !in->n_truncated) || in->n_split > n_packed)
        return fail_index(err, "the counts of the input are impossible");
    return 0;
}

/* Checks the ranks of the sequences of a bin. */
static int check_ranges(const struct pp_packed *p, size_t b, struct pp_err *err)
{
    struct pp_bin bin;
    pp_packed_bin(p, b, &bin);
    const int32_t *cu = bin.cu_seqlens_padded;
    for (uint32_t i = 0; i < bin.n_sequences; i++) {
        struct pp_rank_range r = bin.ranks[i];
        if (!r.n || p->cp % r.n || r.first % r.n || r.first >= p->cp)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: sequence %u cannot be on '%u' of "
                           "%u context-parallel ranks from %u on",
                           b, i, r.n, p->cp, r.first);
        if (i > 0 && r.n > bin.ranks[i - 1].n)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: sequence %u on '%u' ranks must "
                           "precede those on fewer",
                           b, i, r.n);
        if ((cu[i + 1] - cu[i]) % (2 * r.n))
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: the '%d' positions of sequence %u "
                           "are not a multiple of 2 x %u context-parallel "
                           "ranks",
                           b, cu[i + 1] - cu[i], i, r.n);
    }
    return 0;
}

static int check_ranks(const struct pp_packed *p, struct pp_err *err)
{
    for (size_t b = 0; p->cp && b < p->n_bins; b++)
        if (check_ranges(p, b, err) != 0)
            return -1;
    if (p->cp && pp_packed_most_rank_tokens(p) != p->max_rank_tokens)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%u' is not the most positions of a "
                       "context-parallel rank",
                       p->max_rank_tokens);
    return 0;
}

static int check_generator(const struct pp_packed *p, struct pp_err *err)
{
    const uint32_t *scored = p->sections[PP_SECTION_GENERATOR];
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    for (size_t b = 0; scored && b < p->n_bins; b++)
        if (scored[b] > r[b].real - r[b].n_sequences)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: a generator cannot have '%" PRIu32
                           "' scored labels",
                           b, scored[b]);
    return 0;
}

int pp_packed_check_sections(const struct pp_packed *p, struct pp_err *err)
{
    struct packed_inputs in = {0};
    if (check_bin_records(p, err) != 0 || check_inputs(p, &in, err) != 0 ||
        check_input_counts(p, in.n_packed, err) != 0)
        return -1;
    if (pp_packed_check_streams(p, err) != 0 || check_generator(p, err) != 0)
        return -1;
    return check_ranks(p, err);
}
