/* SPDX-License-Identifier: MIT */
#include "data/packed_tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/packed_sections.h"
#include "data/token_type.h"

static const struct pp_packed_header *header(const struct pp_packed *p)
{
    return p->map[PP_PACKED_INDEX];
}

static int check_file(const struct pp_packed_token_file *f, size_t i,
                      struct pp_err *err)
{
    if (!f->path[0] || !memchr(f->path, '\0', sizeof f->path))
        return pp_fail(err, PP_EXIT_INPUT, "index: token file %zu has no name",
                       i);
    if (f->type >= PP_TOKEN_N_TYPES || !pp_token_bytes(f->type))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: token file %zu has the unknown type '%" PRIu32
                       "'",
                       i, f->type);
    return 0;
}

int pp_packed_map_tokens(struct pp_packed *p,
                         const struct pp_packed_token_file *files, size_t n,
                         struct pp_err *err)
{
    p->token_files = calloc(n + 1, sizeof *p->token_files);
    if (!p->token_files)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct pp_token_map *m = &p->token_files[i];
        if (check_file(&files[i], i, err) != 0 ||
            pp_file_map(files[i].path, &m->data, &m->bytes, err) != 0)
            return -1;
        if (m->bytes != files[i].bytes)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: '%zu' bytes where the index says %" PRIu64,
                           files[i].path, m->bytes, files[i].bytes);
    }
    return 0;
}

void pp_packed_unmap_tokens(struct pp_packed *p)
{
    if (p->token_files)
        for (uint32_t i = 0; i < header(p)->n_token_files; i++)
            pp_file_unmap(p->token_files[i].data, p->token_files[i].bytes);
    free(p->token_files);
    p->token_files = NULL;
}

int pp_packed_check_tokens(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_token_file *f = p->sections[PP_SECTION_TOKEN_FILES];
    for (uint32_t i = 0; p->index_only && i < header(p)->n_token_files; i++) {
        const struct pp_token_map *m = &p->token_files[i];
        if (pp_fnv(PP_FNV_START, m->data, m->bytes) != f[i].checksum)
            return pp_fail(err, PP_EXIT_NO, "%s: its checksum is wrong",
                           f[i].path);
    }
    return 0;
}

/* The ids of sequence s, n of them, from its file. */
static void read_sequence(const struct pp_packed *p, size_t s, size_t n,
                          int32_t *out)
{
    uint32_t file = ((const uint32_t *)p->sections[PP_SECTION_TOKEN_FILE])[s];
    uint64_t at = ((const uint64_t *)p->sections[PP_SECTION_TOKEN_AT])[s];
    const struct pp_packed_token_file *f = p->sections[PP_SECTION_TOKEN_FILES];
    const char *data = p->token_files[file].data;
    pp_token_convert(f[file].type, data + at, n, out);
}

static void gather(const struct pp_packed *p, size_t b,
                   const struct pp_bin *bin, int32_t *ids, int32_t *labels)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    for (uint32_t i = 0; i < bin->n_sequences; i++) {
        int32_t at = bin->cu_seqlens_padded[i];
        int32_t end = bin->cu_seqlens_padded[i + 1];
        int32_t n = bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
        read_sequence(p, r[b].first_sequence + i, (size_t)n, ids + at);
        memcpy(labels + at, ids + at, (size_t)n * sizeof *ids);
        for (int32_t k = at + n; k < end; k++) {
            ids[k] = 0;
            labels[k] = PP_LABEL_IGNORE;
        }
    }
}

void pp_packed_tokens(const struct pp_packed *p, size_t b, int32_t *ids,
                      int32_t *labels)
{
    struct pp_bin bin;
    pp_packed_bin(p, b, &bin);
    if (p->index_only) {
        gather(p, b, &bin, ids, labels);
        return;
    }
    memcpy(ids, bin.input_ids, bin.tokens * sizeof *ids);
    memcpy(labels, bin.labels, bin.tokens * sizeof *labels);
}
