/* SPDX-License-Identifier: MIT */
/* scratch - makes a directory for a test and removes it with its files.
 *
 * The functions are defined in the header on purpose, as in tap.h. */
#ifndef PP_TESTS_SCRATCH_H
#define PP_TESTS_SCRATCH_H

#include <ftw.h>

#include "tap.h"

#define SCRATCH_TEXT 32 /* bytes of a scratch directory's name */

/* Makes the directory and puts its name into dir, or ends the test. */
static void scratch_make(char dir[SCRATCH_TEXT])
{
    snprintf(dir, SCRATCH_TEXT, "/tmp/pp-test.XXXXXX");
    if (!mkdtemp(dir))
        give_up("%s cannot be made", dir);
}

static int scratch_remove_one(const char *path, const struct stat *st, int type,
                              struct FTW *place)
{
    (void)st;
    (void)type;
    (void)place;
    return remove(path);
}

static void scratch_remove(const char *dir)
{
    ok(nftw(dir, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0,
       "%s is removed", dir);
}

#endif
