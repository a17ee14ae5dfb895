/* SPDX-License-Identifier: MIT */
#include "run/parameters/stored.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "model/lora.h"
#include "model/parts.h"
#include "model/vision.h"

enum { FP8_BLOCK = 128, MX_BLOCK = 32, SHAPE_TEXT = 24 * PP_MAX_DIMS };

/* --- names --- */

/* Finds a tensor of a model with an encoder under another name that
 * transformers writes or wrote: its beginning differs. */
static const struct pp_tensor *find_renamed(const struct pp_tensors *t,
                                            const struct pp_vision *v,
                                            const char *name)
{
    static const struct {
        bool merges; /* Qwen's, else LLaVA's */
        const char *begin, *other;
    } names[] = {
        {false, "vision_tower.vision_model.", "vision_tower."},
        {true, "visual.", "model.visual."},
        {true, "model.", "model.language_model."},
        {true, "audio_tower.", "model.audio_tower."},
        {true, "", "thinker."}, /* in a whole Qwen2.5-Omni */
    };
    const struct pp_tensor *x = NULL;
    char other[PP_FQN_TEXT + 32];
    for (size_t i = 0; i < sizeof names / sizeof *names && !x; i++) {
        size_t n = strlen(names[i].begin);
        if (names[i].merges != pp_vision_merges(v) ||
            strncmp(name, names[i].begin, n) != 0)
            continue;
        snprintf(other, sizeof other, "%s%s", names[i].other, name + n);
        x = pp_tensors_find(t, other);
    }
    return x;
}

/* Finds a tensor of a model whose names begin with `prefix` under a name
 * without what the family may leave out. */
static const struct pp_tensor *find_without(const struct pp_tensors *t,
                                            const struct pp_model *m,
                                            const char *prefix,
                                            const char *name)
{
    const char *optional = pp_family_of(m->architecture)->names->optional;
    size_t n = optional ? strlen(optional) : 0, before = strlen(prefix);
    char other[PP_FQN_TEXT];
    if (!n || strncmp(name, prefix, before) ||
        strncmp(name + before, optional, n))
        return NULL;
    snprintf(other, sizeof other, "%s%s", prefix, name + before + n);
    return pp_tensors_find(t, other);
}

static const struct pp_tensor *find_values(const struct pp_tensors *t,
                                           const struct pp_model *m,
                                           const char *name)
{
    const struct pp_tensor *x = pp_tensors_find(t, name);
    const char *base = pp_lora_base_name(name);
    if (x || !m)
        return x;
    if (base)
        return find_values(t, m, base);
    x = find_without(t, m, "", name);
    if (!x && m->generator)
        x = find_without(t, m->generator, PP_GENERATOR_PREFIX, name);
    for (size_t k = 0; !x && k < pp_model_n_encoders(m); k++)
        x = find_renamed(t, &m->encoders[k], name);
    if (!x && m->tied && !strcmp(name, pp_embedding_name(m)))
        x = pp_tensors_find(t, pp_head_name(m));
    return x;
}

static const struct pp_tensor *find_suffixed(const struct pp_tensors *t,
                                             const char *name, const char *end)
{
    char longer[PP_FQN_TEXT + 16];
    snprintf(longer, sizeof longer, "%s%s", name, end);
    return pp_tensors_find(t, longer);
}

bool pp_stored_find(struct pp_stored *out, const struct pp_tensors *t,
                    const struct pp_model *m, const char *name)
{
    *out = (struct pp_stored){.values = find_values(t, m, name)};
    if (out->values && !strcmp(out->values->dtype_name, "F8_E4M3")) {
        out->as = PP_STORED_FP8;
        out->scales = find_suffixed(t, name, "_scale_inv");
    }
    if (out->values || !m)
        return out->values;
    out->as = PP_STORED_MXFP4;
    out->values = find_suffixed(t, name, "_blocks");
    out->scales = find_suffixed(t, name, "_scales");
    return out->values;
}

bool pp_stored_may_lack(const struct pp_tensors *t, const char *name)
{
    static const char *const parts[] = {PP_GENERATOR_PREFIX PP_CONNECTOR_PREFIX,
                                        PP_LORA_MARK};
    const char *part = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        part = strstr(name, parts[i]) ? parts[i] : part;
    for (size_t i = 0; part && i < pp_tensors_n(t); i++)
        if (strstr(pp_tensors_at(t, i)->name, part))
            return false;
    return part;
}

/* --- shapes and types --- */

static void format_shape(const struct pp_tensor *t, char buf[SHAPE_TEXT])
{
    int n = snprintf(buf, SHAPE_TEXT, "[");
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(buf + n, (size_t)(SHAPE_TEXT - n), "%s%" PRIu64,
                      i ? ", " : "", t->dims[i]);
    snprintf(buf + n, (size_t)(SHAPE_TEXT - n), "]");
}

static int check_shape(const struct pp_tensor *t, const struct pp_tensor *want,
                       struct pp_err *err)
{
    char got[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (t->n_dims == want->n_dims &&
        !memcmp(t->dims, want->dims, (size_t)t->n_dims * sizeof *t->dims))
        return 0;
    format_shape(t, got);
    format_shape(want, expected);
    return pp_fail(err, PP_EXIT_INPUT, "'%s' is %s, expected %s", t->name, got,
                   expected);
}

static int check_float(const struct pp_tensor *t, struct pp_err *err)
{
    return t->dtype == PP_DTYPE_F64 || t->dtype == PP_DTYPE_F32 ||
                   t->dtype == PP_DTYPE_F16 || t->dtype == PP_DTYPE_BF16
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "'%s' is not of dtype F64, F32, F16 or BF16", t->name);
}

static int check_fp8(const struct pp_tensor_info *p, const struct pp_stored *x,
                     const struct pp_tensor *expected, struct pp_err *err)
{
    const struct pp_tensor *values = x->values;
    struct pp_tensor grid = {.n_dims = 2};
    for (int i = 0; i < 2; i++)
        grid.dims[i] = pp_divide_up(expected->dims[i], FP8_BLOCK);
    if (p->n_dims != 2 || p->stack || p->transposed)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' is of dtype F8_E4M3, but only matrices may be",
                       values->name);
    if (!x->scales)
        return pp_fail(err, PP_EXIT_INPUT,
                       "no tensor '%s_scale_inv', the scales of '%s'",
                       values->name, values->name);
    return check_shape(values, expected, err) ||
                   check_shape(x->scales, &grid, err) ||
                   check_float(x->scales, err)
               ? -1
               : 0;
}

static int check_bytes(const struct pp_tensor *t, struct pp_err *err)
{
    return strcmp(t->dtype_name, "U8")
               ? pp_fail(err, PP_EXIT_INPUT, "'%s' is not of dtype U8", t->name)
               : 0;
}

static int check_mxfp4(const struct pp_tensor_info *p,
                       const struct pp_stored *x, struct pp_err *err)
{
    const struct pp_tensor blocks = {
        .n_dims = 4, .dims = {p->stack, p->rows, p->cols / MX_BLOCK, 16}};
    const struct pp_tensor scales = {
        .n_dims = 3, .dims = {p->stack, p->rows, p->cols / MX_BLOCK}};
    if (!p->stack || p->n_dims != 2 || p->cols % MX_BLOCK)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' has blocks of MXFP4, but only experts whose "
                       "inputs are a multiple of %d may",
                       x->values->name, MX_BLOCK);
    if (!x->scales)
        return pp_fail(err, PP_EXIT_INPUT, "no tensor '%s_scales'", p->name);
    return check_shape(x->values, &blocks, err) ||
                   check_shape(x->scales, &scales, err) ||
                   check_bytes(x->values, err) || check_bytes(x->scales, err)
               ? -1
               : 0;
}

int pp_stored_check(const struct pp_tensor_info *p, const struct pp_stored *x,
                    struct pp_err *err)
{
    struct pp_tensor expected = {0};
    expected.n_dims = pp_tensor_file_sizes(p, expected.dims);
    switch (x->as) {
    case PP_STORED_FP8:
        return check_fp8(p, x, &expected, err);
    case PP_STORED_MXFP4:
        return check_mxfp4(p, x, err);
    default:
        return check_shape(x->values, &expected, err) ||
                       check_float(x->values, err)
                   ? -1
                   : 0;
    }
}

/* --- values --- */

/* Four bits of exponent, three of mantissa. There is no infinity. */
static float of_e4m3(unsigned char byte)
{
    uint32_t bits = (byte & 0x7fu) << 20, sign = (byte & 0x80u) << 24;
    float size;
    /* With the bias of fp32 subnormal numbers are normal, which the product
     * makes of them. */
    memcpy(&size, &bits, sizeof size);
    size = bits == 0x7f << 20 ? NAN : size * 0x1p120F;
    memcpy(&bits, &size, sizeof bits);
    bits |= sign;
    memcpy(&size, &bits, sizeof size);
    return size;
}

/* Two bits of exponent, one of mantissa. */
static float of_e2m1(unsigned bits)
{
    static const float sizes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return bits & 8 ? -sizes[bits & 7] : sizes[bits & 7];
}

static void set_value(void *out, uint64_t i, size_t value_bytes, float x)
{
    if (value_bytes == sizeof(double))
        ((double *)out)[i] = x;
    else
        ((float *)out)[i] = x;
}

/* Reads the columns of one row that share a scale at a time. */
static int read_fp8(const struct pp_stored *x, uint64_t first, uint64_t n,
                    size_t value_bytes, void *out, struct pp_err *err)
{
    const unsigned char *bytes = x->values->data;
    uint64_t cols = x->values->dims[1], grid = x->scales->dims[1];
    for (uint64_t i = 0; i < n;) {
        uint64_t row = (first + i) / cols, col = (first + i) % cols;
        uint64_t end = (col / FP8_BLOCK + 1) * FP8_BLOCK;
        uint64_t run = (end < cols ? end : cols) - col;
        float scale;
        if (pp_tensor_read_f32(x->scales,
                               row / FP8_BLOCK * grid + col / FP8_BLOCK, 1,
                               &scale, err))
            return -1;
        for (run = run < n - i ? run : n - i; run > 0; run--, i++)
            set_value(out, i, value_bytes, of_e4m3(bytes[first + i]) * scale);
    }
    return 0;
}

static void read_mxfp4(const struct pp_stored *x, uint64_t first, uint64_t n,
                       size_t value_bytes, void *out)
{
    const unsigned char *bytes = x->values->data, *scales = x->scales->data;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        unsigned two = bytes[at / 2];
        float value = of_e2m1(at % 2 ? two >> 4 : two & 15);
        set_value(out, i, value_bytes,
                  ldexpf(value, scales[at / MX_BLOCK] - 127));
    }
}

int pp_stored_read(const struct pp_stored *x, uint64_t first, uint64_t n,
                   size_t value_bytes, void *out, struct pp_err *err)
{
    if (x->as == PP_STORED_FP8)
        return read_fp8(x, first, n, value_bytes, out, err);
    if (x->as == PP_STORED_MXFP4) {
        read_mxfp4(x, first, n, value_bytes, out);
        return 0;
    }
    return value_bytes == sizeof(double)
               ? pp_tensor_read_f64(x->values, first, n, out, err)
               : pp_tensor_read_f32(x->values, first, n, out, err);
}

size_t pp_stored_mapped(const struct pp_tensors *t, const struct pp_model *m,
                        struct pp_unit_id u, size_t tp)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, table), sum = 0;
    for (size_t i = 0; i < n; i++) {
        const struct pp_tensor_info *p = &table[i];
        struct pp_stored x;
        if (!p->mapped ||
            !pp_stored_find(&x, t, m, p->tied_to ? p->tied_to : p->name))
            continue;
        uint64_t bytes = x.values->bytes + (x.scales ? x.scales->bytes : 0);
        sum += (size_t)((double)bytes * (double)pp_tensor_most(p, tp) /
                        (double)pp_tensor_elements(p));
    }
    return sum;
}
