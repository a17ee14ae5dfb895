/* SPDX-License-Identifier: MIT */
/* pppack_read - reads documents, or their lengths, from files and standard
 * input. */
#include "pppack.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "data/packed.h"
#include "data/readers.h"

static void show_read(void *ctx, size_t line, size_t bytes)
{
    struct pack_job *j = ctx;
    char size[32];
    if (line % 256)
        return;
    pp_format_size(bytes, size);
    tool_progress(&j->t, "%s: %zu lines, %s", j->name, line, size);
}

static void show_skipped(void *ctx, const char *error)
{
    struct pack_job *j = ctx;
    tool_say(&j->t, TOOL_NOTE, "skipped: %s", error);
}

static int read_documents(struct pack_job *j, FILE *f)
{
    size_t longest = j->capacity - j->capacity % j->align;
    struct pp_jsonl reader = {
        .name = j->name,
        .bytes = j->bytes,
        .allow_empty = j->drop_empty,
        .streams = {j->image_token < 0 ? NULL : &j->streams[PP_MODALITY_IMAGES],
                    j->audio_token < 0 ? NULL : &j->streams[PP_MODALITY_AUDIO]},
        .longest = j->oversize == PP_OVERSIZE_ERROR ? longest : 0,
        .skip_bad = (size_t)j->skip_bad,
        .skipped = show_skipped,
        .progress = show_read,
        .ctx = j,
    };
    return pp_jsonl_read(&reader, f, &j->docs, &j->t.err);
}

int pack_parse_modes(struct pack_job *j, const char *s)
{
    char list[1024], *rest = list, *word;
    if (snprintf(list, sizeof list, "%s", s) >= (int)sizeof list)
        return tool_usage(&j->t, "--modes: '%s' is too long", s);
    j->has_modes = true;
    while ((word = strsep(&rest, ","))) {
        int64_t mode;
        if (pp_parse_int(word, "--modes", INT8_MIN, INT8_MAX, &mode,
                         &j->t.err) != 0)
            return -1;
        j->modes[(uint8_t)mode] = true;
    }
    return 0;
}

static int read_indexed(struct pack_job *j, const char *name,
                        size_t prefix_bytes)
{
    char *prefix = strndup(name, prefix_bytes);
    if (!prefix)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    tool_progress(&j->t, "reading %s", prefix);
    const struct pp_indexed_options o = {
        .allow_empty = j->drop_empty,
        .modes = j->has_modes ? j->modes : NULL,
    };
    int rc = pp_indexed_read(prefix, &o, &j->docs, &j->t.err);
    free(prefix);
    return rc;
}

static int read_packed(struct pack_job *j, const char *dir)
{
    struct pp_packed p;
    if (!pp_packed_is(dir))
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: is a directory, but not a packed one; name files",
                       dir);
    if (pp_packed_open(dir, &p, &j->t.err) != 0)
        return -1;
    tool_progress(&j->t, "reading %s", dir);
    int rc = pp_packed_check_files(&p, &j->t.err);
    if (rc == 0 && pp_packed_documents(&p, &j->docs, &j->t.err))
        rc = pp_fail_at(&j->t.err, "%s: ", dir);
    pp_packed_finish(&p);
    return rc;
}

/* Reads a file or standard input, line by line. */
static int read_lines(struct pack_job *j, const char *name)
{
    bool in = !strcmp(name, "-");
    FILE *f = in ? stdin : fopen(name, "re");
    j->name = in ? "standard input" : name;
    if (!f)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: %s", name,
                       strerror(errno));
    int rc = j->from_lengths ? pp_lengths_read(j->name, f, &j->docs, show_read,
                                               j, &j->t.err)
                             : read_documents(j, f);
    if (!in)
        fclose(f);
    return rc;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static int read_input(struct pack_job *j, const char *name)
{
    bool drop = j->drop_empty;
    size_t prefix_bytes;
    if (!strcmp(name, "-") || j->bytes || j->from_lengths)
        return read_lines(j, name);
    if (pp_indexed_is_name(name, &prefix_bytes))
        return read_indexed(j, name, prefix_bytes);
    if (pp_file_is_dir(name))
        return read_packed(j, name);
    if (ends_with(name, ".npy"))
        return pp_npy_read(name, drop, &j->docs, &j->t.err);
    if (ends_with(name, ".safetensors"))
        return pp_safetensors_read(name, drop, &j->docs, &j->t.err);
    return read_lines(j, name);
}

/* Returns whether names[i] is the .bin of an .idx among the n names: *.bin
 * *.idx and PREFIX.* must read each pair once. */
static bool is_other_half(char **names, size_t n, size_t i)
{
    size_t length = strlen(names[i]);
    if (!ends_with(names[i], ".bin"))
        return false;
    for (size_t k = 0; k < n; k++)
        if (strlen(names[k]) == length &&
            !memcmp(names[k], names[i], length - 4) &&
            !strcmp(names[k] + length - 4, ".idx"))
            return true;
    return false;
}

/* Returns whether names[i] is a NAME.COLUMN.npy whose NAME.npy is among the n
 * names: it is read with that. */
static bool is_companion(char **names, size_t n, size_t i)
{
    if (!ends_with(names[i], ".npy"))
        return false;
    for (size_t k = 0; k < n; k++) {
        size_t base = strlen(names[k]) - strlen(".npy");
        const char *rest = names[i] + base;
        if (k != i && ends_with(names[k], ".npy") &&
            strlen(names[i]) > base + 5 && !memcmp(names[k], names[i], base) &&
            *rest == '.' && strchr(rest + 1, '.') == strrchr(rest + 1, '.'))
            return true;
    }
    return false;
}

static int read_all(struct pack_job *j, char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_other_half(names, n, i) && !is_companion(names, n, i) &&
            read_input(j, names[i]) != 0)
            return -1;
    return 0;
}

/* Returns the pattern that matches only this name; the caller frees it. */
static char *escape(const char *name)
{
    char *s = malloc(2 * strlen(name) + 1), *to = s;
    for (; s && *name; name++) {
        if (strchr("*?[\\", *name))
            *to++ = '\\';
        *to++ = *name;
    }
    if (s)
        *to = '\0';
    return s;
}

/* Adds the files of an operand: those that match it, or itself if it is no
 * pattern or if a file has that name. */
static int expand(struct pack_job *j, const char *name, glob_t *g)
{
    char *pattern = pp_file_exists(name) ? escape(name) : strdup(name);
    if (!pattern)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc =
        glob(pattern, GLOB_NOMAGIC | (g->gl_pathc ? GLOB_APPEND : 0), NULL, g);
    free(pattern);
    if (rc == GLOB_NOMATCH)
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: no file matches", name);
    return rc ? pp_fail(&j->t.err, PP_EXIT_SYSTEM, "%s: cannot be expanded",
                        name)
              : 0;
}

int pack_choose_spill(struct pack_job *j)
{
    enum { SPILL_BYTES = 64 << 20 };
    j->spill = strdup(j->t.output ? j->t.output : P_tmpdir "/");
    if (!j->spill)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    size_t n = strlen(j->spill);
    while (n > 1 && j->spill[n - 1] == '/' && j->t.output)
        j->spill[--n] = '\0';
    char *slash = strrchr(j->spill, '/');
    if (slash)
        slash[slash == j->spill] = '\0';
    j->docs.spill = slash ? j->spill : ".";
    j->docs.spill_bytes = SPILL_BYTES;
    return 0;
}

/* Prepares the documents and the streams to read. */
static int prepare(struct pack_job *j)
{
    if (j->from_lengths)
        return 0;
    if (pack_choose_spill(j) != 0)
        return -1;
    j->docs.forget_ids = !j->t.output;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        j->docs.items[m].forget = !j->t.output;
    j->streams[PP_MODALITY_IMAGES] =
        (struct pp_jsonl_stream){.token = (uint32_t)j->image_token,
                                 .merge = (uint32_t)j->merge,
                                 .patch = (uint32_t)j->patch,
                                 .class_out = j->class_out};
    j->streams[PP_MODALITY_AUDIO] = (struct pp_jsonl_stream){
        .token = (uint32_t)j->audio_token, .merge = PP_AUDIO_MERGE};
    return 0;
}

/* Takes a size from the processor, and compares it with the option, if that is
 * given. */
static int take_size(struct pack_job *j, const char *option, uint32_t found,
                     uint32_t *size)
{
    bool given = tool_given(&j->t, option);
    if (found && given && found != *size)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--%s: '%" PRIu32 "' is not the %s_size of %s, %" PRIu32,
                       option, *size, option, j->processor, found);
    *size = found ? found : *size;
    return 0;
}

/* Reads how pixels of images become patches. */
static int read_processor(struct pack_job *j)
{
    struct pp_jsonl_stream *images = &j->streams[PP_MODALITY_IMAGES];
    if (!j->processor)
        return 0;
    images->map = &j->images.map;
    if (pp_processor_read(j->processor, &j->images, &j->t.err) ||
        take_size(j, "patch", j->images.patch, &images->patch) ||
        take_size(j, "merge", j->images.merge, &images->merge))
        return -1;
    images->frames = j->images.frames;
    return 0;
}

int pack_read(struct pack_job *j, int argc, char **argv)
{
    glob_t g = {0};
    char in[] = "-", *only_in[] = {in};
    int rc = prepare(j);
    if (rc == 0)
        rc = read_processor(j);
    for (int i = optind; i < argc && rc == 0; i++)
        rc = expand(j, argv[i], &g);
    if (rc == 0)
        rc = optind == argc ? read_all(j, only_in, 1)
                            : read_all(j, g.gl_pathv, g.gl_pathc);
    globfree(&g);
    return rc;
}
