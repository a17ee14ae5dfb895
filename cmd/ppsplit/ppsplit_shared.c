/* SPDX-License-Identifier: MIT */
/* ppsplit_shared - reads the options that ppmesh has too. */
#include <string.h>

#include "base/num.h"
#include "ppsplit.h"

const char *const split_dtype_words[] = {"fp32", "fp64", "bf16", NULL};

int split_parse_dtype(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    struct split_job *j = t->base;
    int i = tool_word(t, "--dtype", arg, o->words);
    if (i >= 0)
        j->precision = pp_precision_find(o->words[i]);
    return i < 0 ? -1 : 0;
}

/* Reads one rate, or two with a comma. */
int split_parse_links(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    struct split_job *j = t->base;
    char *text = pp_arena_strdup(&j->arena, arg);
    char *second = strchr(text, ',');
    if (second)
        *second++ = '\0';
    j->link[1] = 0;
    return pp_parse_rate(text, tool_spell(o).text, &j->link[0], &t->err) ||
                   (second && pp_parse_rate(second, tool_spell(o).text,
                                            &j->link[1], &t->err))
               ? -1
               : 0;
}

int split_parse_memory(struct tool *t, const struct tool_option *o,
                       const char *arg)
{
    struct split_job *j = t->base;
    (void)o;
    return tool_memory(t, arg, &j->memory_bytes);
}

int split_parse_cp_exchange(struct tool *t, const struct tool_option *o,
                            const char *arg)
{
    struct split_job *j = t->base;
    int which = tool_word(t, "--cp-exchange", arg, o->words);
    j->mesh.cp_exchange = which < 0 ? PP_CP_GATHER : (enum pp_cp_exchange)which;
    return which < 0 ? -1 : 0;
}
