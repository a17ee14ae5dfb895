/* SPDX-License-Identifier: MIT */
/* json_build - adding members to an object under construction.
 *
 * jansson's setters take NULL for a value or a container that could not be
 * allocated and report it, so a writer goes straight on and asks once. */
#include "manifest/sections.h"

int pp_put(json_t *object, const char *key, json_t *takes)
{
    return json_object_set_new(object, key, takes);
}

int pp_put_text(json_t *object, const char *key, const char *s,
                struct pp_err *err)
{
    json_t *value = json_string(s);
    if (!value) {
        /* Either memory or UTF-8: only the second passes unchecked. */
        value = json_string_nocheck(s);
        if (value) {
            json_decref(value);
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%.*s' is not UTF-8", key,
                           PP_VALUE_QUOTE, s);
        }
    }
    return pp_put(object, key, value);
}

int pp_put_costs(json_t *object, uint64_t params, const double fwd_flops[2],
                 const double act_bytes[PP_N_SAVED_BLOCKS], double out_bytes)
{
    json_t *flops = json_array(), *act = json_array();
    int bad = pp_put(object, "params", json_integer((json_int_t)params));
    for (int i = 0; i < 2; i++)
        bad |= json_array_append_new(flops, json_real(fwd_flops[i]));
    for (int i = 0; i < PP_N_SAVED_BLOCKS; i++)
        bad |= json_array_append_new(act, json_real(act_bytes[i]));
    bad |= pp_put(object, "fwd_flops", flops);
    bad |= pp_put(object, "act_bytes", act);
    bad |= pp_put(object, "out_bytes", json_real(out_bytes));
    return bad;
}

json_t *pp_written(json_t *value, int bad, struct pp_err *err)
{
    if (!bad && value)
        return value;
    json_decref(value);
    pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return NULL;
}
