/* SPDX-License-Identifier: MIT */
/* pppack_read - documents, or their lengths, from files and standard input. */
#include "pppack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
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

static int read_input(struct pack_job *j, const char *name)
{
    bool in = !strcmp(name, "-");
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

int pack_read(struct pack_job *j, int argc, char **argv)
{
    if (optind == argc)
        return read_input(j, "-");
    for (int i = optind; i < argc; i++)
        if (read_input(j, argv[i]) != 0)
            return -1;
    return 0;
}
