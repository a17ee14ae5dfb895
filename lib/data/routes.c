/* SPDX-License-Identifier: MIT */
#include "data/routes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/num.h"
#include "data/packed/packed.h"

#define MAGIC "PPROUTE" /* 8 bytes with the final zero */
enum { VERSION = 1 };

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the file is mapped in place: little endian machines only");

struct header {
    char magic[8];
    uint64_t checksum; /* XXH3 of all bytes after it */
    uint32_t version, n_experts, n_layers, top_k;
    uint64_t n_bins, n_positions, data;
};
static_assert(sizeof(struct header) == 56, "pp-routing(5)");

/* The bytes before the part that the checksum covers. */
enum { UNSUMMED = offsetof(struct header, version) };

int pp_routes_of(const struct pp_packed *p, struct pp_routes_shape *s,
                 struct pp_err *err)
{
    *s = (struct pp_routes_shape){.n_bins = p->n_bins,
                                  .n_positions = p->n_positions};
    return pp_packed_sequences(p, &s->data, err);
}

/* Computes the number of experts in a file, and its bytes. */
static int sizes_of(const struct pp_routes_shape *s, size_t *n, size_t *bytes,
                    struct pp_err *err)
{
    if (pp_mul((size_t)s->n_layers * s->top_k, s->n_positions, n, err) ||
        pp_mul(*n, sizeof(uint16_t), bytes, err))
        return -1;
    *bytes += sizeof(struct header);
    return 0;
}

static uint64_t checksum_of(const void *data, size_t n)
{
    return pp_checksum_of((const char *)data + UNSUMMED, n - UNSUMMED);
}

static int read_header(const void *data, size_t n, struct pp_routes_shape *s,
                       size_t *n_experts, struct pp_err *err)
{
    struct header h;
    size_t bytes;
    struct pp_err overflow = {0};
    if (n < sizeof h || memcmp(data, MAGIC, sizeof h.magic) != 0)
        return pp_fail(err, PP_EXIT_INPUT, "is not a recording of routes");
    memcpy(&h, data, sizeof h);
    if (h.version != VERSION)
        return pp_fail(err, PP_EXIT_INPUT,
                       "version '%" PRIu32 "' is not this program's %d",
                       h.version, VERSION);
    *s = (struct pp_routes_shape){h.n_experts, h.n_layers,    h.top_k,
                                  h.n_bins,    h.n_positions, h.data};
    if (s->top_k < 1 || s->top_k > s->n_experts || s->n_experts > PP_NO_EXPERT)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%" PRIu32 "' experts of '%" PRIu32
                       "' for a token are impossible",
                       s->top_k, s->n_experts);
    if (sizes_of(s, n_experts, &bytes, &overflow) || bytes != n)
        return pp_fail(err, PP_EXIT_INPUT,
                       "has '%zu' bytes, which are not those of its header; "
                       "it may be cut",
                       n);
    return h.checksum == checksum_of(data, n)
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "is damaged: its checksum is not '%016" PRIx64 "'",
                         h.checksum);
}

/* Returns whether a place has distinct experts, or none. */
static bool is_choice(const uint16_t *experts, size_t k, size_t n_experts)
{
    for (size_t i = 0; i < k; i++) {
        bool none = experts[i] == PP_NO_EXPERT;
        if (none != (experts[0] == PP_NO_EXPERT) ||
            (!none && experts[i] >= n_experts))
            return false;
        for (size_t j = 0; !none && j < i; j++)
            if (experts[j] == experts[i])
                return false;
    }
    return true;
}

int pp_routes_parse(const void *data, size_t n, struct pp_routes *r,
                    struct pp_err *err)
{
    size_t n_experts;
    *r = (struct pp_routes){0};
    if (read_header(data, n, &r->shape, &n_experts, err))
        return -1;
    size_t k = r->shape.top_k;
    const uint16_t *experts =
        (const void *)((const char *)data + sizeof(struct header));
    for (size_t i = 0; i < n_experts; i += k)
        if (!is_choice(experts + i, k, r->shape.n_experts))
            return pp_fail(err, PP_EXIT_INPUT,
                           "place '%zu' does not have distinct experts below "
                           "%" PRIu32,
                           i / k, r->shape.n_experts);
    r->experts = experts;
    return 0;
}

/* Compares a number of a file with the one that is wanted. */
static int same(const char *what, uint64_t is, uint64_t want,
                struct pp_err *err)
{
    return is == want ? 0
                      : pp_fail(err, PP_EXIT_INPUT,
                                "has '%" PRIu64 "' %s, but the model has "
                                "%" PRIu64,
                                is, what, want);
}

static int check_routes(const struct pp_routes_shape *s,
                        const struct pp_routes_shape *want, struct pp_err *err)
{
    if (same("experts", s->n_experts, want->n_experts, err) ||
        same("layers with experts", s->n_layers, want->n_layers, err) ||
        same("experts for a token", s->top_k, want->top_k, err))
        return -1;
    if (s->n_bins != want->n_bins || s->n_positions != want->n_positions)
        return pp_fail(err, PP_EXIT_INPUT,
                       "is for data of '%" PRIu64 "' bins and '%" PRIu64
                       "' positions, and these have %" PRIu64 " and %" PRIu64,
                       s->n_bins, s->n_positions, want->n_bins,
                       want->n_positions);
    if (s->data == 0 || s->data == want->data)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "is for data whose sequences have the hash '%016" PRIx64
                   "', and these have %016" PRIx64,
                   s->data, want->data);
}

int pp_routes_open(const char *path, const struct pp_routes_shape *want,
                   struct pp_routes *r, struct pp_err *err)
{
    const void *map;
    size_t bytes;
    *r = (struct pp_routes){0};
    if (pp_file_map(path, &map, &bytes, err))
        return -1;
    if (pp_routes_parse(map, bytes, r, err) ||
        check_routes(&r->shape, want, err)) {
        pp_file_unmap(map, bytes);
        *r = (struct pp_routes){0};
        return pp_fail_at(err, "%s: ", path);
    }
    r->map = map;
    r->map_bytes = bytes;
    r->path = path;
    return 0;
}

void pp_routes_close(struct pp_routes *r)
{
    pp_file_unmap(r->map, r->map_bytes);
    *r = (struct pp_routes){0};
}

/* --- output --- */

static int write_at(const struct pp_routes_output *o, const void *data,
                    size_t n, size_t at, struct pp_err *err)
{
    const char *from = data;
    while (n > 0) {
        ssize_t done = pwrite(o->fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return pp_fail_errno(err, "writing %s failed", o->path);
        from += done;
        at += (size_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Writes places without experts, so that a full disk is found before the run
 * and a place that nobody writes has none. */
static int fill(const struct pp_routes_output *o, size_t bytes,
                struct pp_err *err)
{
    unsigned char none[4096];
    memset(none, UINT8_MAX, sizeof none);
    for (size_t at = sizeof(struct header), part; at < bytes; at += part) {
        part = bytes - at < sizeof none ? bytes - at : sizeof none;
        if (write_at(o, none, part, at, err))
            return -1;
    }
    return 0;
}

int pp_routes_create(struct pp_routes_output *o, const char *path,
                     const struct pp_routes_shape *shape, struct pp_err *err)
{
    size_t n, bytes;
    struct stat st;
    *o = (struct pp_routes_output){.shape = *shape};
    /* The rename at the end would replace a device or a FIFO. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return pp_fail(err, PP_EXIT_INPUT, "%s: not a regular file", path);
    if (shape->n_experts > PP_NO_EXPERT)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "%s: the format holds at most '%d' experts, not %" PRIu32, path,
            PP_NO_EXPERT, shape->n_experts);
    if (sizes_of(shape, &n, &bytes, err) ||
        pp_tmp_make(&o->tmp, path, NULL, err))
        return -1;
    o->path = path;
    o->fd = o->tmp.lock;
    if (fill(o, bytes, err) == 0)
        return 0;
    pp_routes_abort(o);
    return -1;
}

int pp_routes_join(struct pp_routes_output *o, const char *path,
                   const char *tmp, const struct pp_routes_shape *shape,
                   struct pp_err *err)
{
    *o = (struct pp_routes_output){.shape = *shape};
    int fd = open(tmp, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail_errno(err, "%s", tmp);
    o->path = path;
    o->fd = fd;
    return 0;
}

int pp_routes_write(const struct pp_routes_output *o, size_t at,
                    const uint16_t *experts, size_t n, struct pp_err *err)
{
    return write_at(o, experts, n * sizeof *experts,
                    sizeof(struct header) + at * sizeof *experts, err);
}

/* Writes the header. The checksum comes last. */
static int write_header(const struct pp_routes_output *o, struct pp_err *err)
{
    const struct pp_routes_shape *s = &o->shape;
    const struct header h = {.magic = MAGIC,
                             .version = VERSION,
                             .n_experts = s->n_experts,
                             .n_layers = s->n_layers,
                             .top_k = s->top_k,
                             .n_bins = s->n_bins,
                             .n_positions = s->n_positions,
                             .data = s->data};
    const void *map;
    size_t bytes;
    if (write_at(o, &h, sizeof h, 0, err) ||
        pp_file_map(o->tmp.path, &map, &bytes, err))
        return -1;
    uint64_t checksum = checksum_of(map, bytes);
    pp_file_unmap(map, bytes);
    return write_at(o, &checksum, sizeof checksum,
                    offsetof(struct header, checksum), err);
}

int pp_routes_commit(struct pp_routes_output *o, struct pp_err *err)
{
    int rc = write_header(o, err);
    if (rc == 0 && rename(o->tmp.path, o->path) != 0)
        rc = pp_fail_errno(err, "%s", o->path);
    if (rc) {
        pp_routes_abort(o);
        return -1;
    }
    pp_tmp_finish(&o->tmp);
    *o = (struct pp_routes_output){0};
    return 0;
}

void pp_routes_abort(struct pp_routes_output *o)
{
    if (o->tmp.path)
        unlink(o->tmp.path);
    else if (o->path)
        close(o->fd);
    pp_tmp_finish(&o->tmp);
    *o = (struct pp_routes_output){0};
}
