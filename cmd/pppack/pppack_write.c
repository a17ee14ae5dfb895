/* SPDX-License-Identifier: MIT */
/* pppack_write - what pppack makes of bins on the disk: the packed directory,
 * its parts, and other formats; and whether a directory is what it says. */
#include "pppack.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_export.h"
#include "data/packed_write.h"

static void show_written(void *ctx, size_t bins)
{
    struct pack_job *j = ctx;
    /* What was read for these bins may leave memory. */
    pp_documents_release(&j->docs);
    tool_progress(&j->t, "writing: bin %zu of %zu", bins, j->bins.n_bins);
}

/* DIR, or DIR/PART; to be freed. */
static char *name_directory(const struct pack_job *j)
{
    size_t n = strlen(j->t.output) + (j->part ? strlen(j->part) : 0) + 2;
    char *s = malloc(n);
    if (s)
        snprintf(s, n, "%s%s%s", j->t.output, j->part ? "/" : "",
                 j->part ? j->part : "");
    return s;
}

int pack_write(struct pack_job *j)
{
    const struct pp_packed_content content = {
        .ids = j->index_only ? NULL : j->docs.ids,
        .labels = j->docs.labels,
        .pieces = j->pieces.piece,
        .n_bins = j->bins.n_bins,
        .first = j->bins.first,
        .items = j->bins.items,
        .n_inputs = j->n_documents,
        .capacity = j->capacity,
        .align = j->align,
        .docs = &j->docs,
        .first_document = j->first_document,
        .counts = j->pieces.counts,
        .progress = show_written,
        .ctx = j,
    };
    if (j->bins.n_bins == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "there is nothing to pack");
    char *dir = name_directory(j);
    if (!dir)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc = pp_packed_write(dir, &content, &j->t.err);
    free(dir);
    return rc;
}

int pack_parse_shares(struct pack_job *j)
{
    const char *s = j->parts_wanted;
    double sum = 0;
    while (*s && j->n_shares < PACK_MAX_SHARES) {
        char text[32];
        size_t n = strcspn(s, ",");
        if (n >= sizeof text)
            break;
        memcpy(text, s, n);
        text[n] = '\0';
        double *share = &j->shares[j->n_shares++];
        if (pp_parse_real(text, "--split", 0, 1e9, share, &j->t.err) != 0)
            return -1;
        sum += *share;
        s += n + (s[n] == ',');
    }
    if (*s || sum <= 0)
        return tool_usage(&j->t,
                          "--split: '%s' is not one to three shares of a whole",
                          j->parts_wanted);
    return 0;
}

/* The first document of the part behind the shares up to k: Megatron's rule,
 * the sum of the shares of 1 times the documents, rounded to even. */
static size_t boundary(const struct pack_job *j, size_t k)
{
    double whole = 0, sum = 0;
    for (size_t i = 0; i < j->n_shares; i++)
        whole += j->shares[i];
    for (size_t i = 0; i < k; i++)
        sum += j->shares[i] / whole;
    size_t at = (size_t)nearbyint(sum * (double)j->docs.n);
    return at < j->docs.n ? at : j->docs.n;
}

int pack_each_part(struct pack_job *j, int (*act)(struct pack_job *))
{
    static const char *const names[PACK_MAX_SHARES] = {"train", "valid",
                                                       "test"};
    if (pp_packed_is(j->t.output))
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: is a packed directory, and parts go beside each "
                       "other in one",
                       j->t.output);
    if (mkdir(j->t.output, 0777) != 0 && errno != EEXIST)
        return pp_fail_errno(&j->t.err, "%s: cannot create", j->t.output);
    for (size_t k = 0; k < j->n_shares; k++) {
        j->part = names[k];
        j->first_document = boundary(j, k);
        j->n_documents = boundary(j, k + 1) - j->first_document;
        if (j->shares[k] > 0 && j->n_documents == 0)
            tool_say(&j->t, PP_LOG_NOTE, "%s/%s: no document is left for it",
                     j->t.output, j->part);
        if (j->n_documents == 0)
            continue;
        if (act(j) != 0)
            return -1;
        pp_bins_finish(&j->bins);
        pp_pieces_finish(&j->pieces);
    }
    return 0;
}

/* The file is written beside its place; a device is no file to be replaced. */
static int export_safetensors(struct pack_job *j, const struct pp_packed *p)
{
    const char *path = j->t.output;
    struct stat st;
    size_t n = strlen(path) + sizeof ".tmp";
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return pp_packed_export_safetensors(p, path, &j->t.err);
    char *tmp = malloc(n);
    if (!tmp)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    snprintf(tmp, n, "%s.tmp", path);
    int rc = pp_packed_export_safetensors(p, tmp, &j->t.err);
    if (rc == 0 && rename(tmp, path) != 0)
        rc = pp_fail_errno(&j->t.err, "%s", path);
    free(tmp);
    return rc;
}

int pack_export(struct pack_job *j, const char *dir)
{
    struct pp_packed p;
    if (pp_packed_open(dir, &p, &j->t.err) != 0)
        return -1;
    int rc = strcmp(j->export_to, "megatron")
                 ? export_safetensors(j, &p)
                 : pp_packed_export_megatron(&p, j->t.output, &j->t.err);
    pp_packed_finish(&p);
    return rc;
}

int pack_check(struct pack_job *j)
{
    struct pp_packed p;
    if (pp_packed_open(j->check, &p, &j->t.err) != 0)
        return -1;
    int rc = pp_packed_check(&p, &j->t.err);
    if (rc != 0)
        pp_fail_at(&j->t.err, "%s: ", j->check);
    else
        tool_say(&j->t, PP_LOG_DETAIL, "%s: %zu bins, consistent", j->check,
                 p.n_bins);
    pp_packed_finish(&p);
    return rc;
}
