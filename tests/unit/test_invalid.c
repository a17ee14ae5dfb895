/* SPDX-License-Identifier: MIT */
/* test_invalid - each directory of the first argument has a document and the
 * exact message that it is refused with, in the file error. A directory with an
 * empty message has a valid document. input.json is a manifest, config.json a
 * model, profile.json a profile, units.json a table of units. tests/invalid/run
 * makes the directories from a table. */
#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "manifest/manifest.h"
#include "manifest/config_json.h"
#include "manifest/profile_json.h"
#include "manifest/units_json.h"
#include "tap.h"

/* Reads the document in the working directory, so that messages name plain
 * files. Returns what the reader returns. */
static int read_document(struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_model model;
    int status;
    if (pp_file_exists("config.json")) {
        status = pp_model_read("config.json", &model, err);
    } else if (pp_file_exists("units.json")) {
        status = pp_units_read("units.json", &a, &model, err);
    } else if (pp_file_exists("profile.json")) {
        struct pp_profile p;
        const void *text;
        size_t n;
        status = pp_file_map("profile.json", &text, &n, err);
        if (!status) {
            status = pp_profile_parse(text, n, "profile.json", &a, &p, err);
            pp_file_unmap(text, n);
        }
    } else {
        struct pp_manifest m = {0};
        FILE *f = fopen("input.json", "r");
        status = f ? pp_manifest_read(f, "input.json", &m, err) : -1;
        pp_manifest_finish(&m);
        if (f)
            fclose(f);
    }
    pp_arena_finish(&a);
    return status;
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
    int status = read_document(&err);
    is_str(err.text, want, name);
    if (*want)
        ok(status == -1 && err.code == PP_EXIT_INPUT && !strchr(err.text, '\n'),
           "status 2, one line");
    else
        ok(status == 0, "is accepted");
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **cases;
    if (argc != 2 || chdir(argv[1]))
        return 1;
    int n = scandir(".", &cases, is_visible, alphasort);
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
