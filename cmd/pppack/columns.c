/* SPDX-License-Identifier: MIT */
/* columns - does --add-column, columns from files of log-probabilities,
 * and --advantages. */
#include "pppack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "data/readers.h"

int pack_parse_column(struct pack_options *o, const char *s)
{
    static const enum pp_column takes[] = {
        PP_COLUMN_LOGPROBS, PP_COLUMN_PREV_LOGPROBS, PP_COLUMN_REF_LOGPROBS,
        PP_COLUMN_TOPK_IDS};
    size_t n = strcspn(s, "=");
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        bool is_list = pp_columns[takes[i]].is_list;
        const char *name = is_list ? "topk" : pp_columns[takes[i]].name;
        if (strlen(name) != n || strncmp(s, name, n) || !s[n] || !s[n + 1])
            continue;
        if (o->input.column_files[takes[i]])
            return tool_usage(o->t, "--add-column: '%s' is there twice", name);
        o->input.column_files[takes[i]] = s + n + 1;
        return 0;
    }
    return tool_usage(o->t,
                      "--add-column: '%s' must be logprobs, prev_logprobs, "
                      "ref_logprobs or topk, '=' and the name of a file",
                      s);
}

int pack_add_columns(struct pack_input *in)
{
    if (in->o->input.baseline >= 0 &&
        pp_documents_add_advantages(
            &in->docs, (enum pp_baseline)in->o->input.baseline, &in->t->err))
        return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        const char *name = in->o->input.column_files[c];
        if (!name)
            continue;
        FILE *f = fopen(name, "re");
        if (!f)
            return pp_fail(&in->t->err, PP_EXIT_INPUT, "%s: %s", name,
                           strerror(errno));
        tool_progress(in->t, "reading %s", name);
        int rc = pp_columns[c].is_list
                     ? pp_top_k_scores_read(name, f, &in->docs, &in->t->err)
                     : pp_token_scores_read(name, f, (enum pp_column)c,
                                            &in->docs, &in->t->err);
        fclose(f);
        if (rc)
            return -1;
    }
    return 0;
}
