/* SPDX-License-Identifier: MIT */
/* fuzz_manifest - reads any bytes as a manifest. It is refused with one line,
 * or written and read again to the same text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char *text_of(const struct pp_manifest *m, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    if (!f)
        abort();
    pp_manifest_write(m, f);
    if (fclose(f))
        abort();
    return text;
}

/* Returns false if the text is refused. The message must be one line. */
static bool parse(const char *text, size_t n, struct pp_manifest *m)
{
    struct pp_err err = {0};
    if (!pp_manifest_parse(text, n, "fuzz", m, &err))
        return true;
    if (err.code != PP_EXIT_INPUT || !*err.text || strchr(err.text, '\n'))
        abort();
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pp_manifest m, again;
    if (!parse((const char *)data, n, &m))
        return 0;
    size_t n_once, n_twice;
    char *once = text_of(&m, &n_once);
    if (!parse(once, n_once, &again))
        abort();
    char *twice = text_of(&again, &n_twice);
    if (n_once != n_twice || memcmp(once, twice, n_once))
        abort();
    free(once);
    free(twice);
    pp_manifest_finish(&m);
    pp_manifest_finish(&again);
    return 0;
}
