/* SPDX-License-Identifier: MIT */
/* free_port - finds a TCP port of this machine that is free now. */
#ifndef PP_TESTS_FREE_PORT_H
#define PP_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, n) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        abort();
    close(fd);
    return ntohs(a.sin_port);
}

#endif
