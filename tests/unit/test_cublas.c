/* SPDX-License-Identifier: MIT */
/* test_cublas - tests the message if cuBLAS is missing. It replaces dlopen and
 * dlerror, so that no library is found. */
#include <stdio.h>
#include <string.h>

#include "cublas.h"
#include "tap.h"

/* The linker uses these functions in place of the C library's. */
void *__wrap_dlopen(const char *name, int flags);
char *__wrap_dlerror(void);

/* Name of the last library asked for. */
static char asked[64], text[128];

void *__wrap_dlopen(const char *name, int flags)
{
    (void)flags;
    snprintf(asked, sizeof asked, "%s", name);
    return NULL;
}

char *__wrap_dlerror(void)
{
    snprintf(text, sizeof text, "%s: no such file", asked);
    return text;
}

int main(void)
{
    struct pp_cublas c;
    char why[200], little[20];
    ok(pp_cublas_open(&c, why, sizeof why) && !c.library, "opening fails");
    is_str(why, "libcublas.so.13: no such file; libcublas.so.12: no such file",
           "both that were tried are named");
    ok(pp_cublas_open(&c, little, sizeof little) &&
           !strcmp(little, "libcublas.so.13: no"),
       "as far as there is room");
    pp_cublas_close(&c);
    return done();
}
