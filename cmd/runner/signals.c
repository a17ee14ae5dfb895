/* SPDX-License-Identifier: MIT */
/* signals - what ends a process, and what it says at its end. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/runner.h"

/* mpirun sends SIGTERM to all ranks when one is lost. One second is enough to
 * print which rank was lost. */
static void end_soon(int number)
{
    (void)number;
    alarm(1);
}

static void end_now(int number)
{
    (void)number;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}

void runner_handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void runner_end_soon(void)
{
    runner_handle(SIGALRM, end_now);
    runner_handle(SIGTERM, end_soon);
}

void runner_tell(const char *text)
{
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1 && write(STDERR_FILENO, text, strlen(text)) < 0)
        alarm(0); /* there is no one to tell */
}

/* end_by_force prints it. It is global because a signal handler reads it. */
static struct {
    atomic_flag ends;
    char text[768];
} forced = {.ends = ATOMIC_FLAG_INIT};

static void end_by_force(int number)
{
    (void)number;
    runner_tell(forced.text);
    _exit(PP_EXIT_SYSTEM);
}

void runner_must_end(const char *name, const char *why)
{
    enum { SECONDS = 20 };
    signal(SIGTERM, SIG_IGN);
    if (atomic_flag_test_and_set(&forced.ends))
        return;
    snprintf(forced.text, sizeof forced.text,
             "%s: ended by force, because something did not end within %d s "
             "after: %s\n",
             name, SECONDS, why);
    runner_handle(SIGALRM, end_by_force);
    alarm(SECONDS);
}
