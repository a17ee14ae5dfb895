/* SPDX-License-Identifier: MIT */
/* outcome - how a kernel with a fault ends on the emulated device, and the
 * functions of a program that has no streams. */
#ifndef PP_TESTS_OUTCOME_H
#define PP_TESTS_OUTCOME_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated_gate.h"

enum outcome { RIGHT, WRONG, REFUSED, NOT_LAUNCHED };

void pp_emulated_enter(void)
{
}

void pp_emulated_leave(void)
{
}

void pp_emulated_queue(void *, const void *, void (*run)(void *), void *arg)
{
    run(arg);
}

/* Runs a kernel in a process of its own, which a refusal ends. */
template <class RUN> static enum outcome outcome_in_process(RUN run)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 2);
        _exit(run());
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    return WIFSIGNALED(status) ? REFUSED : (enum outcome)WEXITSTATUS(status);
}

#endif
