/* SPDX-License-Identifier: MIT */
/* fuzz_ckpt_sums - reads any bytes as the list of a checkpoint's checksums, as
 * they are and behind a first line that is right. It is refused with a reason,
 * or every name stays inside the checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "run/checkpoint/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void parse(const char *text, size_t n)
{
    struct pp_ckpt_sums s = {0};
    struct pp_err err = {0};
    if (pp_ckpt_sums_parse("list", text, n, &s, &err)) {
        if (err.code == PP_EXIT_OK || !*err.text)
            abort();
    } else {
        for (size_t i = 0; i < s.n; i++)
            if (!*s.at[i].name || *s.at[i].name == '/' ||
                !strcmp(s.at[i].name, "..") ||
                !strncmp(s.at[i].name, "../", 3) ||
                strstr(s.at[i].name, "/../"))
                abort();
    }
    pp_ckpt_sums_finish(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char first[64];
    int m = snprintf(first, sizeof first,
                     "# XXH3 of the other lines = %016" PRIx64 "\n",
                     pp_checksum_of(data, n));
    char *text = malloc((size_t)m + n);
    if (!text)
        return 0;
    memcpy(text, data, n);
    parse(text, n);
    memcpy(text, first, (size_t)m);
    memcpy(text + m, data, n);
    parse(text, (size_t)m + n);
    free(text);
    return 0;
}
