/* SPDX-License-Identifier: MIT */
/* log - how the library says something without printing it.
 *
 * lib/ never writes to a stream. Where a note is worth making it calls the
 * logger that its caller handed in; the tool decides what becomes of it. */
#ifndef PP_BASE_LOG_H
#define PP_BASE_LOG_H

enum pp_log_level { PP_LOG_WARNING, PP_LOG_NOTE, PP_LOG_DETAIL };

typedef void pp_log_fn(void *ctx, enum pp_log_level level, const char *text);

struct pp_log {
    pp_log_fn *emit; /* NULL: silent. May be called from any thread. */
    void *ctx;
};

/* Formats and passes on. log may be NULL. */
void pp_log(const struct pp_log *log, enum pp_log_level level, const char *fmt,
            ...) __attribute__((format(printf, 3, 4)));

#endif
