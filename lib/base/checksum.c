/* SPDX-License-Identifier: MIT */
#include "base/checksum.h"

#include <sys/mman.h>
#include <xxhash.h>

uint64_t pp_checksum_of(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

int pp_checksum_begin(struct pp_checksum_sum *s, struct pp_err *err)
{
    s->state = XXH3_createState();
    if (!s->state)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    XXH3_64bits_reset(s->state);
    return 0;
}

void pp_checksum_add(struct pp_checksum_sum *s, const void *data, size_t n)
{
    XXH3_64bits_update(s->state, data, n);
}

uint64_t pp_checksum_value(const struct pp_checksum_sum *s)
{
    return XXH3_64bits_digest(s->state);
}

void pp_checksum_finish(struct pp_checksum_sum *s)
{
    XXH3_freeState(s->state);
    s->state = NULL;
}

enum {
    PART_BYTES = 1 << 20,  /* fits the cache */
    AHEAD_BYTES = 1 << 24, /* that the system reads ahead */
};

/* Asks the system to read the n bytes from `from` on that are in the file. */
static void read_ahead(char *file, size_t bytes, size_t from, size_t n)
{
    if (from < bytes)
        madvise(file + from, n < bytes - from ? n : bytes - from,
                MADV_WILLNEED);
}

int pp_checksum_map(const void *data, size_t n, bool (*stop)(void *ctx),
                    void *ctx, uint64_t *out, struct pp_err *err)
{
    char *file = (char *)(uintptr_t)data; /* madvise(2) changes nothing in it */
    struct pp_checksum_sum sum = {0};
    if (pp_checksum_begin(&sum, err))
        return -1;
    read_ahead(file, n, 0, AHEAD_BYTES);
    for (size_t i = 0; i < n && !(stop && stop(ctx)); i += PART_BYTES) {
        size_t part = n - i < PART_BYTES ? n - i : PART_BYTES;
        read_ahead(file, n, i + AHEAD_BYTES, PART_BYTES);
        pp_checksum_add(&sum, file + i, part);
        madvise(file + i, part, MADV_DONTNEED);
    }
    *out = pp_checksum_value(&sum);
    pp_checksum_finish(&sum);
    return 0;
}
