/* SPDX-License-Identifier: MIT */
/* patterns - the linear program of Gilmore and Gomory, solved by the
 * revised simplex method with an explicit inverse. Gilmore and Gomory, "A
 * linear programming approach to the cutting-stock problem", Operations
 * Research 9, 1961.
 *
 * The program minimises the number of bins over all patterns; each class gets
 * at least its demand. The dual of a class is the weight of its sequences. A
 * pattern that weighs more than 1 improves the solution: first the known ones
 * are searched, then a knapsack problem finds the heaviest of all. */
#include "pack/patterns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* TINY: below it a number is 0. SHIFT: demands are larger by up to this, so
 * that amounts seldom tie; duals do not change by that. */
#define TINY 1e-9
#define SHIFT 1e-6

/* MOST_VALUES: in the table of the knapsack. PATTERNS: taken from one table. */
enum { MOST_VALUES = 1 << 22, PATTERNS = 8 };

/* Returns the most sequences of class c in a pattern. */
static uint32_t most_in_bin(const struct pp_pattern_program *p, size_t c)
{
    uint32_t fit = p->capacity / p->length[c];
    return p->demand[c] < fit ? p->demand[c] : fit;
}

/* Returns the rows of the knapsack's table: a class has one for each power of
 * two below its number of sequences. */
static size_t count_value_rows(const struct pp_pattern_program *p)
{
    size_t rows = 1;
    for (size_t c = 0; c < p->n; c++)
        for (uint32_t left = most_in_bin(p, c), k = 1; left; k *= 2, rows++)
            left -= k < left ? k : left;
    return rows;
}

static void begin_pattern(struct pp_pattern_program *p)
{
    pp_array_reserve(&p->first, &p->first_capacity, p->n_patterns + 2,
                     sizeof *p->first);
    if (p->n_patterns == 0)
        p->first[0] = 0;
    p->first[p->n_patterns + 1] = p->first[p->n_patterns];
    p->n_patterns++;
}

/* Adds sequences to the last pattern. */
static void add_part(struct pp_pattern_program *p, size_t c, uint32_t count)
{
    size_t *end = &p->first[p->n_patterns];
    pp_array_reserve(&p->parts, &p->parts_capacity, *end + 1, sizeof *p->parts);
    p->parts[(*end)++] = (struct pp_pattern_part){(uint32_t)c, count};
}

void pp_pattern_program_init(struct pp_pattern_program *p,
                             const struct pp_classes *classes,
                             uint32_t capacity, uint64_t work)
{
    size_t n = classes->n;
    *p =
        (struct pp_pattern_program){.n = n, .capacity = capacity, .work = work};
    p->length = pp_calloc(n, sizeof *p->length);
    p->demand = pp_calloc(n, sizeof *p->demand);
    p->row_class = pp_calloc(n, sizeof *p->row_class);
    p->class_row = pp_calloc(n, sizeof *p->class_row);
    p->basis = pp_calloc(n, sizeof *p->basis);
    p->inverse = pp_calloc(n * n, sizeof *p->inverse);
    p->amount = pp_calloc(n, sizeof *p->amount);
    p->dual = pp_calloc(n, sizeof *p->dual);
    p->column = pp_calloc(n, sizeof *p->column);
    for (size_t c = 0; c < n; c++) {
        p->length[c] = classes->length[c];
        p->demand[c] = classes->count[c];
        begin_pattern(p);
        add_part(p, c, 1);
    }
    p->value_rows = count_value_rows(p);
    if (p->value_rows * ((size_t)p->capacity + 1) > MOST_VALUES)
        p->work = 0;
    else
        p->value = pp_calloc(p->value_rows * ((size_t)p->capacity + 1),
                             sizeof *p->value);
}

void pp_pattern_program_finish(struct pp_pattern_program *p)
{
    free(p->length);
    free(p->demand);
    free(p->row_class);
    free(p->class_row);
    free(p->basis);
    free(p->inverse);
    free(p->amount);
    free(p->dual);
    free(p->column);
    free(p->first);
    free(p->parts);
    free(p->value);
    *p = (struct pp_pattern_program){0};
}

static void spend(struct pp_pattern_program *p, uint64_t work)
{
    p->work -= work < p->work ? work : p->work;
}

void pp_pattern_program_begin(struct pp_pattern_program *p)
{
    size_t m = 0;
    for (size_t c = 0; c < p->n; c++) {
        p->dual[c] = p->demand[c] > 0;
        if (!p->demand[c])
            continue;
        p->class_row[c] = (uint32_t)m;
        p->row_class[m] = (uint32_t)c;
        p->amount[m] = p->demand[c] + SHIFT * pp_rng_uniform(1, c);
        p->basis[m++] = c;
    }
    p->n_rows = m;
    memset(p->inverse, 0, m * m * sizeof *p->inverse);
    for (size_t r = 0; r < m; r++)
        p->inverse[r * m + r] = 1;
}

/* Returns the weight of a pattern, or 0 if it has more sequences of a class
 * than are left. */
static double weigh(const struct pp_pattern_program *p, size_t pattern)
{
    double weight = 0;
    for (size_t k = p->first[pattern]; k < p->first[pattern + 1]; k++) {
        struct pp_pattern_part part = p->parts[k];
        if (part.count > p->demand[part.class])
            return 0;
        weight += p->dual[part.class] * part.count;
    }
    return weight;
}

/* Returns the known column that improves the solution most, or SIZE_MAX, and
 * its reduced cost. A dual below 0 is improved by the surplus of its row. */
static size_t find_known(struct pp_pattern_program *p, double *reduced)
{
    size_t found = SIZE_MAX;
    *reduced = -TINY;
    for (size_t k = 0; k < p->n_patterns; k++) {
        double cost = 1 - weigh(p, k);
        if (cost < *reduced) {
            *reduced = cost;
            found = k;
        }
    }
    for (size_t r = 0; r < p->n_rows; r++)
        if (p->dual[p->row_class[r]] < *reduced) {
            *reduced = p->dual[p->row_class[r]];
            found = ~r;
        }
    spend(p, p->first[p->n_patterns]);
    return found;
}

/* Computes the column of a pattern or a surplus in terms of the basis. */
static void transform(struct pp_pattern_program *p, size_t entering)
{
    size_t m = p->n_rows;
    bool surplus = entering >= p->n_patterns;
    for (size_t r = 0; r < m; r++) {
        const double *row = p->inverse + r * m;
        double sum = surplus ? -row[~entering] : 0;
        for (size_t k = surplus ? 0 : p->first[entering];
             !surplus && k < p->first[entering + 1]; k++)
            sum += row[p->class_row[p->parts[k].class]] * p->parts[k].count;
        p->column[r] = sum;
    }
}

/* Returns the row that leaves: the one that reaches 0 first; among equals the
 * one with the largest element. */
static size_t find_leaving(const struct pp_pattern_program *p)
{
    size_t leaving = SIZE_MAX;
    double least = INFINITY;
    for (size_t r = 0; r < p->n_rows; r++) {
        if (p->column[r] <= TINY)
            continue;
        double ratio = p->amount[r] / p->column[r];
        bool ties = leaving != SIZE_MAX && ratio <= least + TINY;
        if (ratio < least - TINY ||
            (ties && p->column[r] > p->column[leaving]) ||
            leaving == SIZE_MAX) {
            least = ratio < least ? ratio : least;
            leaving = r;
        }
    }
    return leaving;
}

/* Exchanges a column of the basis. Returns false if none may leave. */
static bool pivot(struct pp_pattern_program *p, size_t entering, double reduced)
{
    size_t m = p->n_rows;
    transform(p, entering);
    size_t leaving = find_leaving(p);
    if (leaving == SIZE_MAX)
        return false;
    double *restrict from = p->inverse + leaving * m;
    double scale = 1 / p->column[leaving];
    for (size_t k = 0; k < m; k++)
        from[k] *= scale;
    p->amount[leaving] *= scale;
    for (size_t r = 0; r < m; r++) {
        double times = p->column[r], *restrict to = p->inverse + r * m;
        if (r == leaving || fabs(times) < TINY)
            continue;
        for (size_t k = 0; k < m; k++)
            to[k] -= times * from[k];
        p->amount[r] -= times * p->amount[leaving];
        p->amount[r] = p->amount[r] < 0 ? 0 : p->amount[r];
        spend(p, m);
    }
    for (size_t k = 0; k < m; k++)
        p->dual[p->row_class[k]] += reduced * from[k];
    p->basis[leaving] = entering;
    return true;
}

/* Returns the weight of all sequences: the number of bins. */
static double weigh_demand(const struct pp_pattern_program *p)
{
    double sum = 0;
    for (size_t c = 0; c < p->n; c++)
        sum += p->dual[c] * p->demand[c];
    return sum;
}

/* Solves the knapsack problem: the heaviest set of sequences that fits. Row 0
 * of the table is 0; each other row adds so many sequences of a class. */
static double fill_table(struct pp_pattern_program *p, size_t *n_rows)
{
    size_t width = (size_t)p->capacity + 1, row = 0;
    memset(p->value, 0, width * sizeof *p->value);
    for (size_t c = 0; c < p->n; c++) {
        uint32_t left = most_in_bin(p, c);
        if (p->dual[c] <= TINY)
            continue;
        for (uint32_t k = 1; left; k *= 2, row++) {
            k = k < left ? k : left;
            left -= k;
            const double *restrict v = p->value + row * width;
            double *restrict to = p->value + (row + 1) * width;
            size_t shift = (size_t)k * p->length[c];
            double more = k * p->dual[c];
            memcpy(to, v, shift * sizeof *to);
            for (size_t at = 0; at + shift < width; at++) {
                double with = v[at] + more;
                to[at + shift] = v[at + shift] < with ? with : v[at + shift];
            }
            spend(p, width);
        }
    }
    *n_rows = row;
    return p->value[row * width + p->capacity];
}

/* Returns how many rows of the knapsack's table class c has. */
static uint32_t count_rows(const struct pp_pattern_program *p, size_t c)
{
    uint32_t rows = 0;
    if (p->dual[c] > TINY)
        for (uint32_t left = most_in_bin(p, c), k = 1; left; k *= 2, rows++)
            left -= k < left ? k : left;
    return rows;
}

/* Adds sequences of class c to the last pattern, as many as the table has in
 * the class's rows from row on, and takes their space. */
static void add_from_table(struct pp_pattern_program *p, size_t c, size_t row,
                           uint32_t steps, uint32_t *space)
{
    size_t width = (size_t)p->capacity + 1;
    uint32_t most = most_in_bin(p, c), taken = 0;
    for (uint32_t s = steps; s-- > 0;) {
        const double *v = p->value + (row + s) * width;
        uint32_t before = (UINT32_C(1) << s) - 1;
        uint32_t k = s + 1 < steps ? before + 1 : most - before;
        if (v[*space] != v[*space + width]) {
            taken += k;
            *space -= k * p->length[c];
        }
    }
    if (taken)
        add_part(p, c, taken);
}

/* Fills the space that the last pattern leaves with weightless sequences. */
static void add_weightless(struct pp_pattern_program *p, uint32_t space)
{
    for (size_t c = 0; c < p->n; c++) {
        uint32_t most = most_in_bin(p, c), fit = space / p->length[c];
        fit = fit < most ? fit : most;
        if (p->dual[c] > TINY || !fit)
            continue;
        space -= fit * p->length[c];
        add_part(p, c, fit);
    }
}

/* Adds the heaviest pattern of the knapsack's table, then the heaviest of
 * sequences that are longer than all of the last pattern, and so on. */
static void add_heaviest(struct pp_pattern_program *p, size_t row)
{
    size_t width = (size_t)p->capacity + 1, end = p->n;
    for (int k = 0; k < PATTERNS; k++) {
        size_t shortest = SIZE_MAX, shortest_row = row;
        uint32_t space = p->capacity;
        if (p->value[row * width + space] <= 1 + TINY)
            return;
        begin_pattern(p);
        for (size_t c = end, at = row; c-- > 0;) {
            uint32_t steps = count_rows(p, c), before = space;
            at -= steps;
            add_from_table(p, c, at, steps, &space);
            if (space < before && shortest == SIZE_MAX) {
                shortest = c;
                shortest_row = at;
            }
        }
        add_weightless(p, space);
        row = shortest_row;
        end = shortest;
    }
}

void pp_pattern_program_solve(struct pp_pattern_program *p, size_t n_bins,
                              enum pp_pack_answer *answer)
{
    double goal = (double)n_bins + PP_PATTERN_SLACK;
    *answer = PP_PACK_UNKNOWN;
    while (p->work) {
        double reduced;
        size_t entering = find_known(p, &reduced), rows;
        if (entering != SIZE_MAX) {
            if (!pivot(p, entering, reduced))
                return;
            continue;
        }
        double total = weigh_demand(p);
        *answer = PP_PACK_FOUND;
        if (total <= goal)
            return;
        double heaviest = fill_table(p, &rows);
        *answer = PP_PACK_IMPOSSIBLE;
        if (heaviest <= 1 + TINY || total / heaviest > goal)
            return;
        *answer = PP_PACK_UNKNOWN;
        add_heaviest(p, rows);
    }
}
