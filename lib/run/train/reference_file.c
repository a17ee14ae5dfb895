/* SPDX-License-Identifier: MIT */
#include "run/train/reference_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"

enum { PATH_TEXT = 4096 };

/* Before the values, in the order of bytes of the machine: little-endian. */
struct file_header {
    uint64_t first, end, checksum;
};

static int path_of(const struct pp_reference_file *f, const char *dir,
                   char path[PATH_TEXT], struct pp_err *err)
{
    int n = snprintf(path, PATH_TEXT, "%s/reference-%016" PRIx64, dir, f->key);
    return n < PATH_TEXT
               ? 0
               : pp_fail(err, PP_EXIT_INPUT, "%s: is too long for a path", dir);
}

/* Maps the file, and returns whether it is intact and has the places. */
static bool open_file(const struct pp_reference_file *f, const char *dir,
                      const void **data, size_t *bytes, struct file_header *h)
{
    struct pp_err none = {0};
    char path[PATH_TEXT];
    *data = NULL;
    if (path_of(f, dir, path, &none) || !pp_file_exists(path) ||
        pp_file_map(path, data, bytes, &none))
        return false;
    if (*bytes != sizeof *h + f->n * sizeof *f->values)
        return false;
    memcpy(h, *data, sizeof *h);
    return h->first <= f->first && f->end <= h->end &&
           h->checksum == pp_checksum_of((const char *)*data + sizeof *h,
                                         *bytes - sizeof *h);
}

bool pp_reference_read(const struct pp_reference_file *f, const char *dir)
{
    const void *data;
    struct file_header h;
    size_t bytes = 0;
    bool has = open_file(f, dir, &data, &bytes, &h);
    if (has)
        memcpy(f->values, (const char *)data + sizeof h, bytes - sizeof h);
    pp_file_unmap(data, bytes);
    return has;
}

int pp_reference_write(const struct pp_reference_file *f, const char *dir,
                       struct pp_err *err)
{
    size_t bytes = f->n * sizeof *f->values;
    struct file_header h;
    struct pp_output o;
    const void *data;
    char path[PATH_TEXT];
    size_t there = 0;
    bool has = open_file(f, dir, &data, &there, &h);
    pp_file_unmap(data, there);
    if (has)
        return 0;
    h = (struct file_header){f->first, f->end,
                             pp_checksum_of(f->values, bytes)};
    if (path_of(f, dir, path, err))
        return -1;
    if (pp_output_open(&o, path, err))
        return -1;
    /* A failed write is found at the end. */
    (void)!fwrite(&h, sizeof h, 1, o.f);
    (void)!fwrite(f->values, 1, bytes, o.f);
    return pp_output_commit(&o, err);
}
