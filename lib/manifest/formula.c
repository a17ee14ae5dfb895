/* SPDX-License-Identifier: MIT */
#include "manifest/formula.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, NAME_TEXT = 64 };

/* A formula, and how much of it is read. */
struct scan {
    struct pp_formulas *f;
    const char *at, *end;
};

const char *pp_formula_word(const char *text, size_t *n)
{
    text += strspn(text, " \n");
    *n = strcspn(text, " \n");
    return *n ? text : NULL;
}

static double ternary(struct scan *s);

static bool take(struct scan *s, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

/* Reads a name: letters, digits, '_' and '.'. */
static void take_name(struct scan *s, char name[NAME_TEXT])
{
    size_t n = 0;
    while (s->at < s->end && n + 1 < NAME_TEXT &&
           (isalnum((unsigned char)*s->at) || *s->at == '_' || *s->at == '.'))
        name[n++] = *s->at++;
    name[n] = '\0';
}

/* Returns the keys of a single layer in per_layer_config, whose numbers may
 * begin with zeros; NULL: it has none. */
static const json_t *of_layer(const struct pp_formulas *f, const char *key)
{
    const json_t *all = json_object_get(f->config->value, "per_layer_config");
    const json_t *own = NULL;
    for (int digits = 1; all && !own && digits <= 4; digits++) {
        char number[24];
        snprintf(number, sizeof number, "%0*zu", digits, f->layer);
        own = json_object_get(all, number);
    }
    return json_object_get(own, key) ? own : NULL;
}

/* Returns the member of a configuration, or NULL if it is not set. */
static const json_t *find(const struct pp_formulas *f, const char *key)
{
    const json_t *own = of_layer(f, key);
    const json_t *at = own ? own : f->config->value;
    while (at) {
        char part[NAME_TEXT] = "";
        size_t n = strcspn(key, ".");
        memcpy(part, key, n);
        at = json_object_get(at, part);
        if (json_is_null(at))
            return NULL;
        if (!key[n])
            return at;
        key += n + 1;
    }
    return NULL;
}

static double number(const json_t *v)
{
    return json_is_boolean(v)  ? (double)json_boolean_value(v)
           : json_is_number(v) ? json_number_value(v)
                               : (double)NAN;
}

static double entry(const struct pp_formulas *f, const char *key)
{
    const json_t *list = find(f, key);
    return number(json_is_array(list) ? json_array_get(list, f->layer) : list);
}

static bool is_in(const struct pp_formulas *f, const char *key,
                  const char *first)
{
    const json_t *list = find(f, key);
    double layer = (double)f->layer + strtod(first, NULL);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (fabs(number(json_array_get(list, i)) - layer) <= 0)
            return true;
    return false;
}

static double entries(const json_t *list)
{
    return json_is_array(list) ? (double)json_array_size(list) : (double)NAN;
}

/* Returns the letter of the layer in a text. */
static double letter(const struct pp_formulas *f, const char *key)
{
    const json_t *text = find(f, key);
    return json_is_string(text) && f->layer < json_string_length(text)
               ? (double)json_string_value(text)[f->layer]
               : (double)NAN;
}

static bool is_word(const json_t *v, const char *word)
{
    return json_is_string(v) && !strcmp(json_string_value(v), word);
}

static bool has_type(const struct pp_formulas *f, const char *key,
                     const char *word)
{
    return is_word(json_array_get(find(f, key), f->layer), word);
}

/* Reads the arguments of a function, the last ones of a formula. */
static double call(struct scan *s, const char *function)
{
    char key[NAME_TEXT], word[NAME_TEXT] = "";
    struct pp_formulas *f = s->f;
    double x = NAN, step = 1;
    if (!strcmp(function, "floor") || !strcmp(function, "up") ||
        !strcmp(function, "sqrt")) {
        x = ternary(s);
        step = take(s, ",") ? ternary(s) : 1;
        take(s, ")");
        return *function == 's'   ? sqrt(x)
               : *function == 'f' ? floor(x)
                                  : ceil(x / step) * step;
    }
    take_name(s, key);
    if (take(s, ","))
        take_name(s, word);
    take(s, ")");
    return !strcmp(function, "type")
               ? has_type(f,
                          find(f, "layer_types") ? "layer_types"
                                                 : "layers_block_type",
                          key)
           : !strcmp(function, "mlp") ? has_type(f, "mlp_layer_types", key)
           : !strcmp(function, "is")
               ? has_type(f, key, word) || is_word(find(f, key), word)
           : !strcmp(function, "count")  ? entries(find(f, key))
           : !strcmp(function, "letter") ? letter(f, key)
           : !strcmp(function, "has")    ? find(f, key) != NULL
           : !strcmp(function, "null")
               ? json_is_null(json_object_get(f->config->value, key))
           : !strcmp(function, "in") ? is_in(f, key, word)
                                     : entry(f, key);
}

/* Finds a definition in a list. */
static const char *defined(const char *list, const char *name, size_t *n)
{
    size_t length = strlen(name);
    while (list && (list = pp_formula_word(list, n))) {
        if (*n > length && !memcmp(list, name, length) && list[length] == '=') {
            *n -= length + 1;
            return list + length + 1;
        }
        list += *n;
    }
    return NULL;
}

double pp_formula_of(struct pp_formulas *f, const char *name)
{
    size_t n;
    const char *text = defined(f->own, name, &n);
    text = text ? text : defined(f->common, name, &n);
    if (!strcmp(name, "l"))
        return (double)f->layer;
    if (text && f->depth < DEEPEST)
        return pp_formula(f, text, n);
    double x = number(find(f, name));
    if (isnan(x) && !f->missing[0])
        snprintf(f->missing, sizeof f->missing, "%.63s", name);
    return x;
}

const char *pp_formula_key(struct pp_formulas *f, const char *name,
                           char key[NAME_TEXT])
{
    size_t n;
    const char *text = defined(f->own, name, &n);
    text = text ? text : defined(f->common, name, &n);
    struct scan s = {f, text, text ? text + n : NULL};
    for (; s.at < s.end; s.at++) {
        take_name(&s, key);
        if (*key && find(f, key))
            return key;
    }
    return NULL;
}

bool pp_formula_holds(struct pp_formulas *f, const char *name)
{
    return fabs(pp_formula_of(f, name)) > 0;
}

static bool truth(double x)
{
    return fabs(x) > 0; /* false if it is not set */
}

static double unary(struct scan *s)
{
    char name[NAME_TEXT];
    if (take(s, "!"))
        return !truth(unary(s));
    if (take(s, "-"))
        return -unary(s);
    if (take(s, "(")) {
        double x = ternary(s);
        take(s, ")");
        return x;
    }
    take_name(s, name);
    if (isdigit((unsigned char)*name))
        return strtod(name, NULL);
    return take(s, "(") ? call(s, name) : pp_formula_of(s->f, name);
}

static const struct {
    const char *text;
    int level;
} operators[] = {
    {"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<=", 2}, {">=", 2}, {"<", 2},
    {">", 2},  {"+", 3},  {"-", 3},  {"*", 4},  {"/", 4},  {"%", 4},
};

static double apply(size_t op, double a, double b)
{
    const double results[] = {truth(a) || truth(b),
                              truth(a) && truth(b),
                              fabs(a - b) <= 0,
                              fabs(a - b) > 0,
                              a <= b,
                              a >= b,
                              a<b, a>
                                  b,
                              a + b,
                              a - b,
                              a * b,
                              a / b,
                              fmod(a, b)};
    return results[op];
}

/* Reads operators of this level and of higher ones, from left to right. */
static double binary(struct scan *s, int level)
{
    double x = level > 4 ? unary(s) : binary(s, level + 1);
    for (size_t i = 0; level <= 4 && i < sizeof operators / sizeof *operators;)
        if (operators[i].level == level && take(s, operators[i].text)) {
            x = apply(i, x, binary(s, level + 1));
            i = 0;
        } else {
            i++;
        }
    return x;
}

static double ternary(struct scan *s)
{
    double x = binary(s, 0);
    while (take(s, "|")) {
        double other = ternary(s);
        x = isnan(x) ? other : x;
        s->f->missing[0] = isnan(x) ? s->f->missing[0] : '\0';
    }
    if (!take(s, "?"))
        return x;
    double yes = ternary(s);
    take(s, ":");
    double no = ternary(s);
    return truth(x) ? yes : no;
}

double pp_formula(struct pp_formulas *f, const char *text, size_t n)
{
    struct scan s = {f, text, text + n};
    f->depth++;
    double x = ternary(&s);
    f->depth--;
    return x;
}
