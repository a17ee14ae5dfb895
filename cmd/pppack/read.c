/* SPDX-License-Identifier: MIT */
/* read - reads documents, or their lengths, from files and standard input, and
 * columns for them. */
#include "pppack.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/num.h"
#include "data/packed/packed.h"
#include "data/readers.h"

static void show_read(void *ctx, size_t line, size_t bytes)
{
    struct pack_input *in = ctx;
    char size[32];
    if (line % 256)
        return;
    pp_format_size(bytes, size);
    tool_progress(in->t, "%s: %zu lines, %s", in->name, line, size);
}

static void show_skipped(void *ctx, const char *error)
{
    struct pack_input *in = ctx;
    tool_say(in->t, TOOL_NOTE, "skipped: %s", error);
}

static int read_documents(struct pack_input *in, FILE *f)
{
    size_t longest = in->o->capacity - in->o->capacity % in->o->align;
    struct pp_jsonl reader = {
        .name = in->name,
        .bytes = in->o->input.bytes,
        .allow_empty = in->o->input.drop_empty,
        .streams = {in->o->items.image_token < 0
                        ? NULL
                        : &in->streams[PP_MODALITY_IMAGES],
                    in->o->items.audio_token < 0
                        ? NULL
                        : &in->streams[PP_MODALITY_AUDIO]},
        .longest = in->o->input.oversize == PP_OVERSIZE_ERROR ? longest : 0,
        .skip_bad = (size_t)in->o->input.skip_bad,
        .skipped = show_skipped,
        .progress = show_read,
        .ctx = in,
    };
    return pp_jsonl_read(&reader, f, &in->docs, &in->t->err);
}

static int read_indexed(struct pack_input *in, const char *name,
                        size_t prefix_bytes)
{
    char *prefix = pp_strdup(name);
    prefix[prefix_bytes] = '\0';
    tool_progress(in->t, "reading %s", prefix);
    const struct pp_indexed_options o = {
        .allow_empty = in->o->input.drop_empty,
        .modes = in->o->input.has_modes ? in->o->input.modes : NULL,
    };
    int rc = pp_indexed_read(prefix, &o, &in->docs, &in->t->err);
    free(prefix);
    return rc;
}

static int read_packed(struct pack_input *in, const char *dir)
{
    struct pp_packed p;
    if (!pp_packed_is(dir))
        return pp_fail(&in->t->err, PP_EXIT_INPUT,
                       "%s: is a directory, but not a packed one; name files",
                       dir);
    if (pp_packed_open(dir, &p, &in->t->err) != 0)
        return -1;
    tool_progress(in->t, "reading %s", dir);
    int rc = pp_packed_check_files(&p, &in->t->err);
    if (rc == 0 && pp_packed_documents(&p, &in->docs, &in->t->err))
        rc = pp_fail_at(&in->t->err, "%s: ", dir);
    pp_packed_finish(&p);
    return rc;
}

/* Reads a file or standard input, line by line. */
static int read_lines(struct pack_input *in, const char *name)
{
    FILE *f = tool_open_input(in->t, &name);
    in->name = name;
    if (!f)
        return -1;
    int rc = in->o->input.from_lengths
                 ? pp_lengths_read(in->name, f, &in->docs, show_read, in,
                                   &in->t->err)
                 : read_documents(in, f);
    tool_close_input(f);
    return rc;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static int read_input(struct pack_input *in, const char *name)
{
    bool drop = in->o->input.drop_empty;
    size_t prefix_bytes;
    if (!strcmp(name, "-") || in->o->input.bytes || in->o->input.from_lengths)
        return read_lines(in, name);
    if (pp_indexed_is_name(name, &prefix_bytes))
        return read_indexed(in, name, prefix_bytes);
    if (pp_file_is_dir(name))
        return read_packed(in, name);
    if (ends_with(name, ".npy"))
        return pp_npy_read(name, drop, &in->docs, &in->t->err);
    if (ends_with(name, ".safetensors"))
        return pp_safetensors_read(name, drop, &in->docs, &in->t->err);
    return read_lines(in, name);
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

static int read_all(struct pack_input *in, char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_other_half(names, n, i) && !is_companion(names, n, i) &&
            read_input(in, names[i]) != 0)
            return -1;
    return 0;
}

/* Returns the pattern that matches only this name; the caller frees it. */
static char *escape(const char *name)
{
    char *s = pp_calloc(2 * strlen(name) + 1, 1), *to = s;
    for (; *name; name++) {
        if (strchr("*?[\\", *name))
            *to++ = '\\';
        *to++ = *name;
    }
    return s;
}

/* Adds the files of an operand: the files that match it, or itself if it is no
 * pattern or if a file has that name. */
static int expand(struct pack_input *in, const char *name, glob_t *g)
{
    char *pattern = pp_file_exists(name) ? escape(name) : pp_strdup(name);
    int rc =
        glob(pattern, GLOB_NOMAGIC | (g->gl_pathc ? GLOB_APPEND : 0), NULL, g);
    free(pattern);
    if (rc == GLOB_NOMATCH)
        return pp_fail(&in->t->err, PP_EXIT_INPUT, "%s: no file matches", name);
    return rc ? pp_fail(&in->t->err, PP_EXIT_SYSTEM, "%s: cannot be expanded",
                        name)
              : 0;
}

char *pack_spill_folder(const struct pack_options *o)
{
    char *path = pp_strdup(o->t->output ? o->t->output : P_tmpdir "/");
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/' && o->t->output)
        path[--n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = '\0';
    else if (n > 0)
        strcpy(path, ".");
    return path;
}

/* Prepares the documents and the streams to read. */
static void prepare(struct pack_input *in)
{
    if (in->o->input.from_lengths)
        return;
    in->docs.spill = in->spill = pack_spill_folder(in->o);
    in->docs.spill_bytes = PACK_SPILL_BYTES;
    in->docs.forget_ids = !in->t->output;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        in->docs.items[m].forget = !in->t->output;
    in->streams[PP_MODALITY_IMAGES] =
        (struct pp_jsonl_stream){.token = (uint32_t)in->o->items.image_token,
                                 .merge = (uint32_t)in->o->items.merge,
                                 .patch = (uint32_t)in->o->items.patch,
                                 .class_out = in->o->items.class_out};
    in->streams[PP_MODALITY_AUDIO] = (struct pp_jsonl_stream){
        .token = (uint32_t)in->o->items.audio_token, .merge = PP_AUDIO_MERGE};
}

/* Takes a size from the processor, and compares it with the option, if that is
 * given. */
static int take_size(struct pack_input *in, const char *option, uint32_t found,
                     uint32_t *size)
{
    bool given = tool_given(in->t, option);
    if (found && given && found != *size)
        return pp_fail(&in->t->err, PP_EXIT_INPUT,
                       "--%s: '%" PRIu32 "' is not the %s_size of %s, %" PRIu32,
                       option, *size, option, in->o->items.processor, found);
    *size = found ? found : *size;
    return 0;
}

/* Reads how pixels of images become patches. */
static int read_processor(struct pack_input *in)
{
    struct pp_jsonl_stream *images = &in->streams[PP_MODALITY_IMAGES];
    if (!in->o->items.processor)
        return 0;
    images->map = &in->images.map;
    if (pp_processor_read(in->o->items.processor, &in->images, &in->t->err) ||
        take_size(in, "patch", in->images.patch, &images->patch) ||
        take_size(in, "merge", in->images.merge, &images->merge))
        return -1;
    images->frames = in->images.frames;
    return 0;
}

/* Adds the columns of --add-column and --advantages to the documents. */
static int add_columns(struct pack_input *in)
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

int pack_read(struct pack_input *in)
{
    glob_t g = {0};
    char dash[] = "-", *only_dash[] = {dash};
    prepare(in);
    int rc = read_processor(in);
    for (int i = optind; i < in->t->argc && rc == 0; i++)
        rc = expand(in, in->t->argv[i], &g);
    if (rc == 0)
        rc = optind == in->t->argc ? read_all(in, only_dash, 1)
                                   : read_all(in, g.gl_pathv, g.gl_pathc);
    globfree(&g);
    return rc ? -1 : add_columns(in);
}
