/* SPDX-License-Identifier: MIT */
/* pppack_manifest - --manifest: the plan that the data are packed for. What it
 * says of costs, lanes and microbatches is taken from it, and what was packed
 * is written into it. */
#include "pppack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/packed.h"
#include "manifest/stage_costs.h"
#include "version.h"

static bool is_stream(const struct pack_job *j)
{
    return !strcmp(j->manifest_name, "-");
}

/* What is not asked for otherwise comes from the mesh and the schedule. */
static int take_defaults(struct pack_job *j)
{
    const struct pp_manifest *m = &j->manifest;
    if (j->dp == 0)
        j->dp = m->mesh.dp;
    if (j->balance == PACK_BALANCE_NONE || j->parts)
        return 0;
    if (j->bins_multiple == 1 && m->has_schedule)
        j->bins_multiple = j->dp * m->schedule.n_microbatches;
    if (j->balance != PACK_BALANCE_FLOPS)
        return 0;
    pp_model_cost(&m->model, &j->per_token, &j->per_pair);
    if (j->per_token > 0 || j->per_pair > 0)
        return 0;
    return pp_fail(&j->t.err, PP_EXIT_INPUT,
                   "%s: the units have no fwd_flops, which --balance flops "
                   "needs; ppsplit writes them",
                   j->manifest_name);
}

int pack_manifest_read(struct pack_job *j)
{
    struct pp_err *err = &j->t.err;
    if (j->manifest_name) {
        FILE *f = is_stream(j) ? stdin : fopen(j->manifest_name, "re");
        if (!f)
            return pp_fail(err, PP_EXIT_INPUT, "%s: %s", j->manifest_name,
                           strerror(errno));
        int rc = pp_manifest_read(
            f, is_stream(j) ? "standard input" : j->manifest_name, &j->manifest,
            err);
        if (!is_stream(j))
            fclose(f);
        if (rc != 0 || take_defaults(j) != 0)
            return -1;
    }
    if (j->dp == 0)
        j->dp = 1;
    /* Each lane gets as many. */
    if (j->balance != PACK_BALANCE_NONE && j->bins_multiple == 1 && !j->parts)
        j->bins_multiple = j->dp;
    return 0;
}

static int set_data(struct pack_job *j)
{
    struct pp_packed p;
    if (pp_packed_open(j->t.output, &p, &j->t.err) != 0)
        return -1;
    struct pp_manifest_data data = {.path = j->t.output,
                                    .checksum = p.checksum,
                                    .n_bins = p.n_bins,
                                    .n_sequences = p.n_sequences,
                                    .capacity = p.capacity,
                                    .align = p.align,
                                    .max_tokens = p.max_tokens};
    int rc = pp_manifest_set_data(&j->manifest, &data, &j->t.err);
    pp_packed_finish(&p);
    return rc;
}

/* Beside the manifest, then in its place. */
static int replace(struct pack_job *j)
{
    struct pp_err *err = &j->t.err;
    size_t n = strlen(j->manifest_name) + sizeof ".tmp";
    char *tmp = malloc(n);
    FILE *f = NULL;
    int rc = -1;
    if (!tmp)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    snprintf(tmp, n, "%s.tmp", j->manifest_name);
    f = fopen(tmp, "we");
    if (!f)
        pp_fail_errno(err, "%s", tmp);
    else if (pp_manifest_write(&j->manifest, f, err) == 0) {
        rc = fflush(f) != 0 || ferror(f) ? pp_fail_errno(err, "%s", tmp) : 0;
    }
    if (f && fclose(f) != 0 && rc == 0)
        rc = pp_fail_errno(err, "%s", tmp);
    if (rc == 0 && rename(tmp, j->manifest_name) != 0)
        rc = pp_fail_errno(err, "%s", j->manifest_name);
    if (f && rc != 0)
        remove(tmp);
    free(tmp);
    return rc;
}

int pack_manifest_write(struct pack_job *j, int argc, char **argv)
{
    struct pp_err *err = &j->t.err;
    if (set_data(j) != 0)
        return -1;
    char *args = tool_command(argc, argv);
    if (!args)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc =
        pp_manifest_add_history(&j->manifest, "pppack", PP_VERSION, args, err);
    free(args);
    if (rc != 0)
        return -1;
    return is_stream(j) ? pp_manifest_write(&j->manifest, stdout, err)
                        : replace(j);
}
