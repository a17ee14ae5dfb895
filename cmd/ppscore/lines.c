/* SPDX-License-Identifier: MIT */
/* lines - keeps the scores of tokens, which come in the
 * order of the bins, and writes them in that of the input. They are in a file,
 * so that memory does not grow with the data. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/json_writer.h"
#include "base/num.h"
#include "ppscore.h"

/* The pages of the file that this process holds are at most about this much. */
enum { HELD_BYTES = 1 << 20, PAGE_BYTES = 4096 };

/* Counts bytes that were read or written, and gives their pages back now and
 * then: the file keeps what they have. */
static void let_go(struct ppscore_scores *s, size_t bytes)
{
    s->held += bytes;
    if (s->held < HELD_BYTES)
        return;
    s->held = 0;
    (void)madvise(s->map, s->bytes, MADV_DONTNEED);
}

/* Opens a file without a name beside the result, or in the directory for
 * temporary files if that is standard output. */
static int open_unnamed(const char *path, char dir[PATH_MAX])
{
    const char *temporary = getenv("TMPDIR");
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!path || !strcmp(path, "-"))
        snprintf(dir, PATH_MAX, "%s", temporary ? temporary : "/tmp");
    else
        snprintf(dir, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                 slash ? path : ".");
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    /* Some file systems cannot do this. */
    char name[PATH_MAX + 16];
    snprintf(name, sizeof name, "%s/ppscore.XXXXXX", dir);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

/* Reserves and maps the file: a full disk is an error now, not a signal
 * later. */
static int map_unnamed(struct runner *p, size_t bytes)
{
    struct ppscore_scores *s = &ppscore_of(p)->scores;
    char dir[PATH_MAX];
    int fd = open_unnamed(p->tool->output, dir);
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (!code) {
        s->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        code = s->map == MAP_FAILED ? errno : 0;
    }
    if (fd >= 0)
        close(fd);
    if (code) {
        s->map = NULL;
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                       "%s: no room for %zu bytes of scores: %s", dir, bytes,
                       strerror(code));
    }
    s->bytes = bytes;
    return 0;
}

/* Finds the length of every sequence of the input: a long one may be in several
 * pieces. */
static void find_lengths(const struct pp_packed *data, uint64_t *length)
{
    for (size_t b = 0; b < data->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(data, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            uint64_t *to = &length[bin.source[i]];
            uint32_t end = bin.start[i] + (uint32_t)(bin.cu_seqlens[i + 1] -
                                                     bin.cu_seqlens[i]);
            *to = end > *to ? end : *to;
        }
    }
}

int ppscore_lines_open(struct runner *p)
{
    struct ppscore_scores *s = &ppscore_of(p)->scores;
    size_t n = p->data.n_inputs, at = 0, values;
    if (pp_mul(p->data.n_positions, pp_job_score_width(&p->job), &values,
               &p->tool->err) ||
        map_unnamed(p, (n + 1 + values) * sizeof(double)))
        return -1;
    s->first = s->map;
    s->values = (double *)(s->first + n + 1);
    find_lengths(&p->data, s->first);
    for (size_t i = 0; i <= n; i++) {
        size_t length = s->first[i];
        s->first[i] = at;
        at += length;
    }
    let_go(s, HELD_BYTES);
    pp_packed_release(&p->data);
    return 0;
}

void ppscore_lines_close(struct ppscore *s)
{
    if (s->scores.map)
        munmap(s->scores.map, s->scores.bytes);
}

/* Returns the values of a token. */
static double *values_of(const struct runner *p, uint64_t token)
{
    return ppscore_of(p)->scores.values + token * pp_job_score_width(&p->job);
}

/* Returns the place of the ids among the values of a token. The logits follow
 * them. */
static size_t first_id(const struct runner *p)
{
    return 1 + p->job.entropy;
}

static bool is_before(struct pp_token_place a, struct pp_token_place b)
{
    return a.sequence != b.sequence ? a.sequence < b.sequence
                                    : a.position < b.position;
}

void ppscore_scored(void *ctx, const struct pp_token_place *at,
                    const double *values, size_t n)
{
    struct runner *p = ctx;
    struct ppscore_scores *s = &ppscore_of(p)->scores;
    size_t width = pp_job_score_width(&p->job);
    for (size_t k = 0; k < n; k++, values += width) {
        double *to = values_of(p, s->first[at[k].sequence] + at[k].position);
        bool is_far = k == 0 || at[k].sequence != at[k - 1].sequence;
        let_go(s, width * sizeof *values + is_far * PAGE_BYTES);
        memcpy(to, values, width * sizeof *values);
        /* 0 is for tokens without a score, and -0 for a reward of 0. */
        if (p->model.scores && *to == 0)
            *to = -0.0;
        for (size_t i = 0; i < p->job.top_k; i++)
            to[first_id(p) + i] += 1;
        if (isfinite(*values) || (s->has_bad && is_before(s->bad, at[k])))
            continue;
        s->has_bad = true;
        s->bad = at[k];
        s->bad_value = *values;
    }
}

/* Writes the ids or the logits of every token of a sequence as a list of
 * lists. */
static void write_lists(const struct runner *p, struct pp_json_writer *w,
                        size_t sequence, const char *name, bool are_ids)
{
    const uint64_t *first = ppscore_of(p)->scores.first + sequence;
    pp_json_array(w, name, PP_JSON_INLINE);
    for (uint64_t i = first[0]; i < first[1]; i++) {
        const double *x = values_of(p, i) + first_id(p);
        pp_json_array(w, NULL, PP_JSON_INLINE);
        for (size_t k = 0; *x > 0 && k < p->job.top_k; k++)
            if (are_ids)
                pp_json_int(w, NULL, (int64_t)x[k] - 1);
            else
                pp_json_real(w, NULL, x[p->job.top_k + k]);
        pp_json_end(w);
    }
    pp_json_end(w);
}

static void write_numbers(const struct runner *p, struct pp_json_writer *w,
                          size_t sequence, const char *name, size_t from)
{
    const uint64_t *first = ppscore_of(p)->scores.first + sequence;
    pp_json_array(w, name, PP_JSON_INLINE);
    for (uint64_t i = first[0]; i < first[1]; i++)
        pp_json_real(w, NULL, values_of(p, i)[from]);
    pp_json_end(w);
}

/* Writes the reward of every sequence of the line. */
static void write_rewards(const struct runner *p, struct pp_json_writer *w,
                          size_t sequence)
{
    const uint64_t *first = ppscore_of(p)->scores.first + sequence;
    pp_json_array(w, "rewards", PP_JSON_INLINE);
    for (uint64_t i = first[0]; i < first[1]; i++) {
        double x = *values_of(p, i);
        if (x != 0 || signbit(x))
            pp_json_real(w, NULL, x == 0 ? 0 : x);
    }
    pp_json_end(w);
}

/* A stream that adds what is written to a checksum, and passes it on. */
struct summed_stream {
    FILE *f; /* the stream */
    FILE *to;
    struct pp_checksum_sum sum;
};

static ssize_t write_summed(void *ctx, const char *data, size_t n)
{
    struct summed_stream *s = ctx;
    pp_checksum_add(&s->sum, data, n);
    return (ssize_t)fwrite(data, 1, n, s->to);
}

static int open_summed(struct summed_stream *s, FILE *to, struct pp_err *err)
{
    s->to = to;
    s->f = fopencookie(s, "w", (cookie_io_functions_t){.write = write_summed});
    return s->f ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

/* Returns the checksum of what was written since the sum began. */
static uint64_t sum_of(struct summed_stream *s)
{
    (void)fflush(s->f); /* an error stays in both streams */
    return pp_checksum_value(&s->sum);
}

/* Writes the line of a sequence, and its checksum as the last member. */
static int write_line(const struct runner *p, size_t sequence,
                      struct summed_stream *s, struct pp_err *err)
{
    struct pp_json_writer w = {.f = s->f};
    if (pp_checksum_begin(&s->sum, err))
        return -1;
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_uint(&w, "sequence", sequence);
    if (p->job.temperature > 0)
        pp_json_real(&w, "temperature", p->job.temperature);
    if (p->model.scores)
        write_rewards(p, &w, sequence);
    else
        write_numbers(p, &w, sequence, "logprobs", 0);
    if (p->job.entropy)
        write_numbers(p, &w, sequence, "entropy", 1);
    if (p->job.top_k) {
        write_lists(p, &w, sequence, "topk_ids", true);
        write_lists(p, &w, sequence, "topk_logits", false);
    }
    pp_json_format(&w, "xxh3", "\"%016" PRIx64 "\"", sum_of(s));
    pp_json_finish(&w);
    (void)fflush(s->f);
    pp_checksum_finish(&s->sum);
    return 0;
}

/* Writes the lines of all sequences that have tokens. */
static int write_lines(struct runner *p, FILE *f)
{
    struct ppscore_scores *s = &ppscore_of(p)->scores;
    struct summed_stream lines = {0};
    struct pp_err *err = &p->tool->err;
    size_t width = pp_job_score_width(&p->job) * sizeof(double);
    int rc = open_summed(&lines, f, err);
    for (size_t i = 0; rc == 0 && i < p->data.n_inputs; i++) {
        uint64_t n = s->first[i + 1] - s->first[i];
        if (n > 0)
            rc = write_line(p, i, &lines, err);
        let_go(s, n * width + sizeof *s->first);
    }
    if (lines.f)
        (void)fclose(lines.f);
    return rc;
}

int ppscore_lines_write(struct runner *p)
{
    struct ppscore_scores *s = &ppscore_of(p)->scores;
    if (s->has_bad)
        return pp_fail(
            &p->tool->err, PP_EXIT_SYSTEM,
            "sequence %" PRIu32 ": the %s of token %" PRIu32 " is %g",
            s->bad.sequence, p->model.scores ? "reward" : "log-probability",
            s->bad.position, fabs(s->bad_value));
    return write_lines(p, p->tool->out);
}
