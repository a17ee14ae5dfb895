/* SPDX-License-Identifier: MIT */
/* tool_fault - ends a program whose mapped file was cut short, or cannot be
 * read, with a message that names the file. Without a handler the program ends
 * with SIGBUS and no message. The handler looks the file up in /proc/self/maps,
 * so that no list of mappings has to be kept. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

/* The handler's state. It is global because a signal handler has no argument
 * for it. */
static struct {
    _Atomic(const char *) name; /* of the program */
    atomic_flag told;
} fault_state = {"", ATOMIC_FLAG_INIT};

/* Reads a hexadecimal number, and moves *s behind it. */
static uintptr_t read_hex(const char **s)
{
    uintptr_t n = 0;
    for (;; ++*s) {
        char c = **s;
        if (c >= '0' && c <= '9')
            n = n << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            n = n << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return n;
    }
}

/* Returns the file in a line of /proc/self/maps if the line is that of the
 * address, else NULL. */
static const char *file_at(const char *line, uintptr_t address)
{
    const char *s = line;
    uintptr_t begin = read_hex(&s);
    uintptr_t end = *s == '-' ? (s++, read_hex(&s)) : 0;
    s = strchr(line, '/');
    return s && address >= begin && address < end ? s : NULL;
}

/* Finds the file that is mapped at the address. */
static const char *find_file(uintptr_t address, char *line, size_t room)
{
    char text[1024];
    const char *found = NULL;
    size_t used = 0;
    ssize_t n;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found && (n = read(fd, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < n && !found; i++) {
            bool ends = text[i] == '\n';
            if (!ends && used + 1 < room)
                line[used++] = text[i];
            line[used] = '\0';
            if (ends) {
                found = file_at(line, address);
                used = 0;
            }
        }
    if (fd >= 0)
        close(fd);
    return found;
}

static void put_text(const char *s)
{
    size_t n = strlen(s);
    while (n > 0) {
        ssize_t k = write(STDERR_FILENO, s, n);
        if (k <= 0)
            return;
        s += k;
        n -= (size_t)k;
    }
}

static void take_fault(int number, siginfo_t *info, void *context)
{
    char line[4096 + 128];
    (void)context;
    while (atomic_flag_test_and_set(&fault_state.told))
        pause(); /* another thread ends the program */
    const char *file = info->si_code > 0 ? find_file((uintptr_t)info->si_addr,
                                                     line, sizeof line)
                                         : NULL;
    if (!file) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    if (isatty(STDERR_FILENO))
        put_text("\r\033[K");
    put_text(fault_state.name);
    put_text(": ");
    put_text(file);
    put_text(": was cut short, or cannot be read, while it was in use\n");
    _exit(PP_EXIT_SYSTEM);
}

void tool_catch_faults(const char *name)
{
    struct sigaction action = {.sa_sigaction = take_fault,
                               .sa_flags = SA_SIGINFO};
    fault_state.name = name;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
