/* SPDX-License-Identifier: MIT */
/* microbatch_section - "microbatch" of a manifest: what the split was made
 * for. */
#include "manifest/sections.h"

static const char *const microbatch_keys[] = {
    "tokens", "seq_len", "images", "image_patches", NULL,
};

/* Images are there with their size, or not at all. */
static int read_images(const struct pp_value *at, struct pp_assumed *mb)
{
    struct pp_value some;
    if (!pp_value_find(at, "images", &some) &&
        !pp_value_find(at, "image_patches", &some))
        return 0;
    if (pp_value_get_int(at, "images", 1, PP_MAX_TOKENS, &mb->n_images))
        return -1;
    return pp_value_get_int(at, "image_patches", 1, PP_MAX_TOKENS,
                            &mb->image_patches);
}

int pp_read_microbatch_section(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_assumed *mb = &m->microbatch;
    if (!m->has_model)
        return pp_value_fail(at, "there is no model that it is for");
    if (pp_value_object(at, microbatch_keys) ||
        pp_value_get_int(at, "tokens", 1, PP_MAX_TOKENS, &mb->tokens) ||
        pp_value_get_int(at, "seq_len", 1, PP_MAX_TOKENS, &mb->seq_len) ||
        read_images(at, mb))
        return -1;
    m->has_microbatch = true;
    return 0;
}

json_t *pp_write_microbatch_section(const struct pp_assumed *mb,
                                    struct pp_err *err)
{
    json_t *o = json_object();
    int bad = pp_put(o, "tokens", json_integer(mb->tokens));
    bad |= pp_put(o, "seq_len", json_integer(mb->seq_len));
    if (mb->n_images) {
        bad |= pp_put(o, "images", json_integer(mb->n_images));
        bad |= pp_put(o, "image_patches", json_integer(mb->image_patches));
    }
    return pp_written(o, bad, err);
}
