/* SPDX-License-Identifier: MIT */
/* fuzz_profile - reads any bytes as a profile. It is refused with one line, or
 * written and read again to the same text, unless it is a plain table. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/profile_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char *text_of(const struct pp_profile *p, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    if (!f)
        abort();
    pp_profile_write(f, p);
    if (fclose(f))
        abort();
    return text;
}

/* Returns false if the text is refused, or a table. The message must be one
 * line. */
static bool parse(const char *text, size_t n, struct pp_arena *a,
                  struct pp_profile *p)
{
    struct pp_err err = {0};
    bool table = pp_profile_is_table(text, n);
    if (!(table ? pp_profile_parse_table : pp_profile_parse)(text, n, "fuzz", a,
                                                             p, &err))
        return !table;
    if (err.code != PP_EXIT_INPUT || !*err.text || strchr(err.text, '\n'))
        abort();
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_arena a = {0};
    struct pp_profile p, again;
    if (parse((const char *)data, n, &a, &p)) {
        size_t n_once, n_twice;
        char *once = text_of(&p, &n_once);
        if (!parse(once, n_once, &a, &again))
            abort();
        char *twice = text_of(&again, &n_twice);
        if (n_once != n_twice || memcmp(once, twice, n_once))
            abort();
        free(once);
        free(twice);
    }
    pp_arena_finish(&a);
    return 0;
}
