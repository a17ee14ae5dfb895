/* SPDX-License-Identifier: MIT */
/* test_invalid - each tests/invalid/CASE breaks the rule it is named after and
 * is refused with exactly the message in its file error. input.json is a
 * manifest, config.json a model, profile.json a profile, units.json a table of
 * units. */
#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "manifest/manifest.h"
#include "manifest/config_json.h"
#include "manifest/profile_json.h"
#include "manifest/units_json.h"
#include "tap.h"

/* If there are fewer cases, the directory is not the right one. */
#define AT_LEAST 120

/* The working directory is the case's, so that messages name plain files. */
static void read_case(struct pp_err *err)
{
    if (pp_file_exists("config.json")) {
        struct pp_model model;
        ok(pp_model_read("config.json", &model, err) == -1, "is refused");
        return;
    }
    if (pp_file_exists("units.json")) {
        struct pp_model model;
        struct pp_arena a = {0};
        ok(pp_units_read("units.json", &a, &model, err) == -1, "is refused");
        pp_arena_finish(&a);
        return;
    }
    if (pp_file_exists("profile.json")) {
        struct pp_arena a = {0};
        struct pp_profile p;
        ok(pp_profile_read("profile.json", &a, &p, err) == -1, "is refused");
        pp_arena_finish(&a);
        return;
    }
    struct pp_manifest m;
    FILE *f = fopen("input.json", "r");
    ok(f && pp_manifest_read(f, "input.json", &m, err) == -1, "is refused");
    if (f)
        fclose(f);
}

static void test_case(const char *name)
{
    char want[1024] = "";
    FILE *f = fopen("error", "r");
    size_t n = f ? fread(want, 1, sizeof want - 1, f) : 0;
    if (f)
        fclose(f);
    want[n ? n - 1 : 0] = 0;
    struct pp_err err = {0};
    read_case(&err);
    is_str(err.text, want, name);
    ok(err.code == PP_EXIT_INPUT && !strchr(err.text, '\n'),
       "status 2, one line");
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

int main(void)
{
    const char *source = getenv("SRCDIR");
    struct dirent **cases;
    if (!source || chdir(source) || chdir("tests/invalid"))
        return 1;
    int n = scandir(".", &cases, is_visible, alphasort);
    ok(n >= AT_LEAST, "%d cases", n);
    for (int i = 0; i < n; i++) {
        if (!chdir(cases[i]->d_name)) {
            test_case(cases[i]->d_name);
            if (chdir(".."))
                return 1;
        }
        free(cases[i]);
    }
    if (n >= 0)
        free(cases);
    return done();
}
