/* SPDX-License-Identifier: MIT */
/* pppack_read - documents, or their lengths, from files and standard input. */
#include "pppack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "data/indexed.h"
#include "data/jsonl.h"
#include "data/lengths.h"

static void show_read(void *ctx, size_t line, size_t bytes)
{
    struct pack_job *j = ctx;
    char size[32];
    if (line % 256)
        return;
    pp_format_size(bytes, size);
    tool_progress(&j->t, "%s: %zu lines, %s", j->name, line, size);
}

static int read_documents(struct pack_job *j, FILE *f)
{
    struct pp_jsonl reader = {
        .name = j->name,
        .bytes = j->bytes,
        .allow_empty = j->drop_empty,
        .progress = show_read,
        .ctx = j,
    };
    return pp_jsonl_read(&reader, f, &j->docs, &j->t.err);
}

static int read_indexed(struct pack_job *j, const char *name,
                        size_t prefix_bytes)
{
    char *prefix = strndup(name, prefix_bytes);
    if (!prefix)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    tool_progress(&j->t, "reading %s", prefix);
    int rc = pp_indexed_read(prefix, j->drop_empty, &j->docs, &j->t.err);
    free(prefix);
    return rc;
}

static int read_input(struct pack_job *j, const char *name)
{
    bool in = !strcmp(name, "-");
    size_t prefix_bytes;
    if (!in && !j->bytes && !j->from_lengths &&
        pp_indexed_named(name, &prefix_bytes))
        return read_indexed(j, name, prefix_bytes);
    FILE *f = in ? stdin : fopen(name, "re");
    j->name = in ? "standard input" : name;
    if (!f)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: %s", name,
                       strerror(errno));
    int rc = j->from_lengths ? pp_lengths_read(j->name, f, &j->docs, show_read,
                                               j, &j->t.err)
                             : read_documents(j, f);
    if (!in)
        fclose(f);
    return rc;
}

/* Whether names[i] is the .bin of an .idx among the n names: *.bin *.idx and
 * PREFIX.* mean each pair once. */
static bool is_other_half(char **names, int n, int i)
{
    size_t length = strlen(names[i]);
    if (length < 4 || strcmp(names[i] + length - 4, ".bin") != 0)
        return false;
    for (int k = 0; k < n; k++)
        if (strlen(names[k]) == length &&
            !memcmp(names[k], names[i], length - 4) &&
            !strcmp(names[k] + length - 4, ".idx"))
            return true;
    return false;
}

int pack_read(struct pack_job *j, int argc, char **argv)
{
    if (optind == argc)
        return read_input(j, "-");
    for (int i = optind; i < argc; i++)
        if (!is_other_half(argv + optind, argc - optind, i - optind) &&
            read_input(j, argv[i]) != 0)
            return -1;
    return 0;
}
