/* SPDX-License-Identifier: MIT */
/* Formats and parses actions. The parser accepts only what the formatter
 * writes. */
#include "schedule/ir/action.h"

#include <stdio.h>
#include <string.h>

static const char *const op_names[PP_N_OPS] = {
    [PP_F] = "F",
    [PP_B] = "B",
    [PP_I] = "I",
    [PP_W] = "W",
    [PP_SEND_F] = "SEND_F",
    [PP_RECV_F] = "RECV_F",
    [PP_SEND_B] = "SEND_B",
    [PP_RECV_B] = "RECV_B",
    [PP_REDUCE_GRAD] = "REDUCE_GRAD",
    [PP_UNSHARD] = "UNSHARD",
    [PP_RESHARD] = "RESHARD",
    [PP_OFFLOAD] = "OFFLOAD",
    [PP_RELOAD] = "RELOAD",
    [PP_SYNC_COPIES] = "SYNC_COPIES",
    [PP_SYNC_TIED] = "SYNC_TIED",
};

const char *pp_op_name(enum pp_op op)
{
    return op_names[op];
}

size_t pp_action_format(struct pp_action a, bool with_peer, char *buf)
{
    char *end = buf + PP_ACTION_TEXT, *p = buf;
    enum pp_op op = a.op;
#define ADD(...) (p += snprintf(p, (size_t)(end - p), __VA_ARGS__))
    if (pp_has_stage(op))
        ADD("%d", a.stage);
    ADD("%s", op_names[op]);
    if (pp_has_microbatch(op))
        ADD("%d", a.microbatch);
    if (pp_has_microbatch(op) && a.slice)
        ADD(".%d", a.slice);
    if (with_peer && (pp_is_message(op)))
        ADD("%c%d", pp_is_send(op) ? '>' : '<', a.peer);
#undef ADD
    return (size_t)(p - buf);
}

/* Reads a decimal number from 0 to max, without sign or leading zeros. */
static bool read_number(const char **p, const char *end, int32_t max,
                        int32_t *out)
{
    const char *s = *p;
    int64_t v = 0;
    while (s < end && *s >= '0' && *s <= '9' && v <= max)
        v = 10 * v + (*s++ - '0');
    size_t n = (size_t)(s - *p);
    if (n == 0 || v > max || (n > 1 && **p == '0'))
        return false;
    *p = s;
    *out = (int32_t)v;
    return true;
}

static bool read_op(const char **p, const char *end, uint8_t *op)
{
    const char *s = *p;
    while (s < end && ((*s >= 'A' && *s <= 'Z') || *s == '_'))
        s++;
    size_t n = (size_t)(s - *p);
    for (int i = 0; i < PP_N_OPS; i++) {
        if (strlen(op_names[i]) != n || memcmp(op_names[i], *p, n))
            continue;
        *op = (uint8_t)i;
        *p = s;
        return true;
    }
    return false;
}

static bool read_action(const char *p, const char *end, struct pp_action *a)
{
    int32_t slice = 0;
    bool numbered = p < end && *p >= '0' && *p <= '9';
    if (numbered && !read_number(&p, end, INT32_MAX, &a->stage))
        return false;
    if (!read_op(&p, end, &a->op) || numbered != pp_has_stage(a->op))
        return false;
    if (!pp_has_microbatch(a->op))
        return p == end;
    if (!read_number(&p, end, INT32_MAX, &a->microbatch))
        return false;
    if (p < end && *p == '.') {
        p++;
        if (!read_number(&p, end, INT16_MAX, &slice) || slice == 0)
            return false;
        a->slice = (int16_t)slice;
    }
    bool peer = p < end && ((*p == '>' && pp_is_send(a->op)) ||
                            (*p == '<' && pp_is_recv(a->op)));
    if (peer) {
        p++;
        if (!read_number(&p, end, INT32_MAX, &a->peer))
            return false;
    }
    return p == end;
}

int pp_action_parse(const char *text, size_t n, struct pp_action *a,
                    struct pp_err *err)
{
    *a = (struct pp_action){.stage = -1, .microbatch = -1, .peer = -1};
    if (n >= PP_ACTION_TEXT)
        return pp_fail(err, PP_EXIT_INPUT, "'%.20s...' is not an action", text);
    if (!read_action(text, text + n, a))
        return pp_fail(err, PP_EXIT_INPUT, "'%.*s' is not an action", (int)n,
                       text);
    return 0;
}
