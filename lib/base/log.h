/* SPDX-License-Identifier: MIT */
/* log - passes messages of the library to the tool.
 *
 * lib/ never prints. It calls the logger that its caller handed in, and the
 * tool decides whether to print the message. */
#ifndef PP_BASE_LOG_H
#define PP_BASE_LOG_H

enum pp_log_level { PP_LOG_WARNING, PP_LOG_NOTE, PP_LOG_DETAIL };

typedef void pp_log_fn(void *ctx, enum pp_log_level level, const char *text);

struct pp_log {
    pp_log_fn *emit; /* NULL: silent. May be called from any thread. */
    void *ctx;
};

/* Formats a message and passes it to log->emit. log may be NULL. */
void pp_log(const struct pp_log *log, enum pp_log_level level, const char *fmt,
            ...) __attribute__((format(printf, 3, 4)));

#endif
