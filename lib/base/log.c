/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void pp_log(const struct pp_log *log, enum pp_log_level level, const char *fmt,
            ...)
{
    if (!log || !log->emit)
        return;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log->emit(log->ctx, level, text);
}
