/* SPDX-License-Identifier: MIT */
/* lines - writes the lines of a run for a reader that may be slow,
 * stalled or gone. With --save such a reader never costs the checkpoint. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "pprun.h"
#include "run/checkpoint/ckpt.h"

/* The time that a stopped run waits for the reader, in all. mpirun reads no
 * more after SIGTERM, and kills the ranks a second later. */
static const double patience_seconds = 0.5;

static const char *output_name(const struct runner *p)
{
    return p->tool->out == stdout ? "standard output" : p->tool->output;
}

/* --- the file of step lines --- */

/* Opens the file and locks it. Devices and pipes need neither. */
static int open_log(struct runner *p)
{
    struct tool *t = p->tool;
    struct stat st;
    bool is_new = stat(t->output, &st) != 0;
    if (!is_new && !S_ISREG(st.st_mode))
        return tool_output(t) ? 0 : -1;
    int fd = open(t->output, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r+");
    if (!f)
        return pp_fail_errno(&t->err, "%s", t->output);
    tool_take(t, f, t->output);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pp_fail(&t->err, PP_EXIT_SYSTEM,
                       "%s: another run is writing its lines here", t->output);
    pprun_of(p)->lines.is_log = true;
    pprun_of(p)->lines.is_new = is_new;
    return 0;
}

int pprun_lines_open(struct runner *p)
{
    const char *name = p->tool->output;
    bool trains = p->job.optim.steps > 0 || pprun_of(p)->options.epochs > 0;
    if (!name || !strcmp(name, "-") || !trains || p->options.plan)
        return tool_output(p->tool) ? 0 : -1;
    return open_log(p);
}

/* Finds the end of the lines up to a step. Fails if the file has others. */
static int find_end(struct runner *p, int64_t last, off_t *end)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int64_t step;
    int rc = 0;
    *end = 0;
    while (rc == 0 && (n = getline(&line, &room, p->tool->out)) > 0) {
        bool whole = line[n - 1] == '\n';
        if (sscanf(line, "{\"step\": %" SCNd64, &step) != 1)
            rc = whole ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                                 "%s: has other lines than those of steps; "
                                 "give --output another name",
                                 p->tool->output)
                       : 0;
        else if (whole && step <= last)
            *end += n;
        else
            break;
    }
    free(line);
    return rc;
}

int pprun_lines_begin(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    struct pp_ckpt_state s = {0};
    off_t end = 0;
    if (!pprun_of(p)->lines.is_log)
        return 0;
    pprun_of(p)->lines.is_new = false;
    if (p->resume &&
        (pp_ckpt_state_read(p->resume, &s, err) || find_end(p, s.step, &end)))
        return -1;
    int fd = fileno(p->tool->out);
    if (ftruncate(fd, end) != 0 || lseek(fd, end, SEEK_SET) != end)
        return pp_fail_errno(err, "%s", p->tool->output);
    return 0;
}

/* --- writing --- */

/* Returns a descriptor of the output that does not block if it is a pipe or a
 * terminal. It needs an open file description of its own, because O_NONBLOCK
 * would surprise other processes that share this one. If that fails, a write
 * after poll rarely blocks. */
static int open_fd(FILE *f)
{
    int fd = fileno(f), own = -1;
    struct stat st;
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(fd)))
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return own >= 0 ? own : fd;
}

/* Returns true if the run is to end. Starts the time that is left to the reader
 * if the checkpoint is complete. */
static bool gives_up(struct runner *p, bool stop)
{
    struct pprun_lines *l = &pprun_of(p)->lines;
    if (!stop)
        return pprun_signalled() || p->others_stop;
    if (l->deadline == 0)
        l->deadline = pp_clock() + patience_seconds;
    return pp_clock() >= l->deadline;
}

/* Writes the waiting lines. Without a stop request it waits for the reader.
 * Keeps what the reader does not take. Returns -1 with errno on failure. */
static int drain(struct runner *p, bool stop)
{
    struct pprun_lines *l = &pprun_of(p)->lines;
    while (l->n > 0) {
        /* The signal may interrupt another thread. */
        struct pollfd at = {.fd = l->fd, .events = POLLOUT};
        if (poll(&at, 1, 20) <= 0) {
            if (gives_up(p, stop))
                return 0;
            continue;
        }
        ssize_t n = write(l->fd, l->text, l->n);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n > 0) {
            l->n -= (size_t)n;
            memmove(l->text, l->text + n, l->n);
        } else if (gives_up(p, stop)) {
            return 0;
        }
    }
    return 0;
}

int pprun_lines_write(struct runner *p, const char *line, size_t n, bool stop,
                      struct pp_err *err)
{
    struct pprun_lines *l = &pprun_of(p)->lines;
    if (l->failed) /* this may be why the run stops */
        return 0;
    l->stop |= stop;
    if (!l->text)
        l->fd = open_fd(p->tool->out);
    char *text = realloc(l->text, l->n + n);
    if (!text)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    l->text = text;
    memcpy(l->text + l->n, line, n);
    l->n += n;
    if (drain(p, stop) == 0)
        return 0;
    pp_fail_errno(&l->err, "writing %s failed", output_name(p));
    l->failed = true;
    if (p->job.save)
        return 0; /* pprun_stop_requested ends the run with a checkpoint */
    *err = l->err;
    return -1;
}

void pprun_lines_note(struct runner *p, const char *text)
{
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1)
        tool_say(p->tool, TOOL_NOTE, "%s", text);
}

static void note_lost(struct runner *p, const char *why)
{
    char text[sizeof pprun_of(p)->lines.err.text + 32];
    snprintf(text, sizeof text, "the last lines are lost: %s", why);
    pprun_lines_note(p, text);
}

int pprun_lines_finish(struct runner *p)
{
    struct pprun_lines *l = &pprun_of(p)->lines;
    bool stop = l->stop || pprun_signalled();
    if (!l->failed && drain(p, true)) {
        pp_fail_errno(&l->err, "writing %s failed", output_name(p));
        l->failed = true;
    }
    if (l->failed && !stop) {
        p->tool->err = l->err;
        return -1;
    }
    if (l->failed)
        note_lost(p, l->err.text);
    else if (l->n > 0)
        note_lost(p, "nothing reads them");
    return 0;
}

void pprun_lines_free(struct runner *p)
{
    struct pprun_lines *l = &pprun_of(p)->lines;
    if (l->is_new)
        unlink(p->tool->output);
    if (l->text && l->fd != fileno(p->tool->out))
        close(l->fd);
    free(l->text);
}
