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

/* Reads a name, and returns where it begins. */
static const char *take_name(struct scan *s, char name[NAME_TEXT])
{
    const char *start = s->at;
    size_t n = strspn(start, PP_NAME_CHARACTERS);
    n = n < NAME_TEXT ? n : NAME_TEXT - 1;
    memcpy(name, start, n);
    name[n] = '\0';
    s->at += n;
    return start;
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

/* Returns the entry of a list for the layer; at: the key where it does not
 * change. */
static const json_t *entry(struct pp_formulas *f, const char *key,
                           const char *at)
{
    const json_t *list = find(f, key);
    if (f->n_layers && list && json_array_size(list) != f->n_layers && !f->bad)
        f->bad = at;
    return json_array_get(list, f->layer);
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
        f->from = NULL;
        return *function == 's'   ? sqrt(x)
               : *function == 'f' ? floor(x)
                                  : ceil(x / step) * step;
    }
    const char *at = take_name(s, key);
    if (take(s, ","))
        take_name(s, word);
    take(s, ")");
    f->from = NULL;
    const json_t *v = find(f, key);
    if (!strcmp(function, "type")) {
        const char *list =
            find(f, "layer_types") ? "layer_types" : "layers_block_type";
        return is_word(entry(f, list, list), key);
    }
    if (!strcmp(function, "mlp"))
        return is_word(entry(f, "mlp_layer_types", "mlp_layer_types"), key);
    if (!strcmp(function, "at")) {
        x = number(json_is_array(v) ? entry(f, key, at) : v);
        f->bad = v && isnan(x) && !f->bad ? at : f->bad;
        return x;
    }
    return !strcmp(function, "is")
               ? is_word(json_array_get(v, f->layer), word) || is_word(v, word)
           : !strcmp(function, "count")  ? entries(v)
           : !strcmp(function, "letter") ? letter(f, key)
           : !strcmp(function, "has")    ? v != NULL
           : !strcmp(function, "null")
               ? json_is_null(json_object_get(f->config->value, key))
               : is_in(f, key, word);
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
    const char *text = defined(f->own, name, &n), *outer = f->inside;
    text = text ? text : defined(f->common, name, &n);
    if (!strcmp(name, "l"))
        return (double)f->layer;
    if (text && text != outer && f->depth < DEEPEST) {
        f->inside = text;
        double x = pp_formula(f, text, n);
        f->inside = outer;
        return x;
    }
    const json_t *v = find(f, name);
    double x = number(v);
    f->from = name;
    if (v && isnan(x) && !f->bad)
        f->bad = name;
    if (isnan(x) && !f->missing[0])
        snprintf(f->missing, sizeof f->missing, "%.63s", name);
    return x;
}

bool pp_formula_holds(struct pp_formulas *f, const char *name)
{
    return fabs(pp_formula_of(f, name)) > 0;
}

static bool truth(double x)
{
    return fabs(x) > 0; /* false if it is not set */
}

/* Returns the value of the name that begins at `at`, which stays. */
static double value_of(struct pp_formulas *f, const char *name, const char *at)
{
    double x = pp_formula_of(f, name);
    f->from = f->from == name ? at : f->from;
    f->bad = f->bad == name ? at : f->bad;
    return x;
}

static double unary(struct scan *s)
{
    char name[NAME_TEXT];
    bool negates = take(s, "!");
    if (negates || take(s, "-")) {
        double x = unary(s);
        s->f->from = NULL;
        return negates ? !truth(x) : -x;
    }
    if (take(s, "(")) {
        double x = ternary(s);
        take(s, ")");
        return x;
    }
    const char *at = take_name(s, name);
    if (take(s, "("))
        return call(s, name);
    s->f->from = NULL;
    return isdigit((unsigned char)*name) ? strtod(name, NULL)
                                         : value_of(s->f, name, at);
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
            double y = binary(s, level + 1);
            bool divides = strchr("/%", operators[i].text[0]);
            if (divides && fabs(y) <= 0 && !s->f->bad)
                s->f->bad = s->f->from;
            x = apply(i, x, y);
            s->f->from = NULL;
            i = 0;
        } else {
            i++;
        }
    return x;
}

/* Checks a key that is a condition by itself. */
static void check_flag(struct pp_formulas *f)
{
    char key[NAME_TEXT];
    struct scan s = {f, f->from, NULL};
    if (!f->from || (f->bad && f->bad != f->from))
        return;
    take_name(&s, key);
    const json_t *v = find(f, key);
    f->bad_flag = v && !json_is_boolean(v);
    f->bad = f->bad_flag ? f->from : f->bad;
}

static double ternary(struct scan *s)
{
    struct pp_formulas *f = s->f;
    double x = binary(s, 0);
    while (take(s, "|")) {
        const char *from = f->from, *bad = f->bad;
        double other = ternary(s);
        if (!isnan(x)) {
            f->from = from;
            f->bad = bad;
        }
        x = isnan(x) ? other : x;
        f->missing[0] = isnan(x) ? f->missing[0] : '\0';
    }
    if (!take(s, "?"))
        return x;
    check_flag(f);
    /* The key of the other one of the two does not matter. */
    const char *bad = f->bad;
    double yes = ternary(s);
    const char *from = f->from, *bad_of_yes = f->bad;
    f->bad = bad;
    take(s, ":");
    double no = ternary(s);
    f->from = truth(x) ? from : f->from;
    f->bad = truth(x) ? bad_of_yes : f->bad;
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
