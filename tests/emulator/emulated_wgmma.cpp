/* SPDX-License-Identifier: MIT */
/* emulated_wgmma - asynchronous products of warpgroups, and what they may read.
 * Each warp computes its 16 of the 64 rows. */
#include "emulated.h"
#include "emulated_block.h"
#include "emulated_wgmma.h"

#include <string.h>

#include <vector>

#define WARP 32
#define WARPS 4 /* of a warpgroup */
#define TERMS 16
#define ROWS 16  /* of a warp */
#define PIECE 16 /* bytes of shared memory that are copied at once */

namespace
{
/* The fields of a descriptor, in bytes. */
struct tile {
    size_t at, leading, stride;
    bool by_rows;
};

/* The operands of a warp's product: values, and where the right one and the
 * left one are. */
struct operands {
    struct pp_emulated_product of;
    unsigned group;
    std::vector<uint16_t> a, b; /* (ROWS, TERMS), (n, TERMS) */
    std::vector<float> product; /* (ROWS, n) */
};

/* A lane's part of sums whose products are not complete. */
struct sums {
    float *at;
    std::vector<float> value;
    unsigned group; /* of the last product */
};

/* Registers of which a product was made, as they were at the last fence. */
struct seen {
    const void *at;
    std::vector<unsigned char> bytes;
    bool fenced;
};

struct piece {
    size_t at, end;
};

struct lane {
    unsigned groups; /* closed ones */
    unsigned issued; /* products */
    bool fenced;     /* since the last wait */
    std::vector<struct sums> open;
    std::vector<struct seen> registers;
    std::vector<struct piece> landed; /* copies since the last proxy_fence */
};

struct warp {
    std::vector<struct operands> open;
    std::vector<struct pp_emulated_product> issued;
};

std::vector<struct lane> lanes;
std::vector<struct warp> warps;
std::vector<bool> readable; /* pieces of shared memory, by products */
bool used;                  /* lanes and warps, by this block */

struct lane *current_lane()
{
    used = true;
    return &lanes[pp_emulated_current()];
}

struct tile decode(uint64_t d, bool by_rows)
{
    const uint64_t fields = 0x3fff;
    struct tile t = {(size_t)(d & fields) * 16, (size_t)(d >> 16 & fields) * 16,
                     (size_t)(d >> 32 & fields) * 16, by_rows};
    if (d >> 62 != 1 ||
        d & ~(fields | fields << 16 | fields << 32 | (uint64_t)3 << 62))
        pp_emulated_refuse("a descriptor is not of 128-byte permutation");
    if (t.at % 1024 / 128 || (by_rows && t.at % 1024) || t.stride % 1024 ||
        (by_rows && t.leading % 1024))
        pp_emulated_refuse("a tile does not begin at a multiple of 1024 bytes");
    if (!by_rows && t.at % 128 + TERMS * 2 > 128)
        pp_emulated_refuse("a product reads beyond the columns of its panel");
    return t;
}

/* Reads the number of a term in a row of A, or in a column of B. */
uint16_t read_element(const struct tile *t, size_t row, size_t term)
{
    size_t at = t->at;
    if (t->by_rows)
        at += row / 64 * t->leading + term / 8 * t->stride + term % 8 * 128 +
              row % 64 * 2;
    else
        at += row / 8 * t->stride + row % 8 * 128 + term * 2;
    at ^= (at >> 7 & 7) << 4;
    if (at / PIECE >= readable.size())
        pp_emulated_refuse("a product reads beyond its shared memory");
    if (!readable[at / PIECE])
        pp_emulated_refuse("a product reads a copy without a fence for it");
    uint16_t bits;
    memcpy(&bits, pp_emulated_shared + at, sizeof bits);
    return bits;
}

std::vector<uint16_t> read_tile(uint64_t d, bool by_rows, size_t first,
                                size_t rows)
{
    struct tile t = decode(d, by_rows);
    std::vector<uint16_t> x(rows * TERMS);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = read_element(&t, first + i / TERMS, i % TERMS);
    return x;
}

/* Reads A (ROWS, TERMS) from the registers of all lanes. */
std::vector<uint16_t> read_fragments(const uint32_t *all)
{
    std::vector<uint16_t> x(ROWS * TERMS);
    for (size_t i = 0; i < x.size(); i++) {
        size_t row = i / TERMS, k = i % TERMS;
        uint32_t word =
            all[(row % 8 * 4 + k % 8 / 2) * 4 + row / 8 + k / 8 * 2];
        x[i] = (uint16_t)(k % 2 ? word >> 16 : word);
    }
    return x;
}

size_t first_row(unsigned thread)
{
    return (size_t)(thread / WARP % WARPS) * ROWS;
}

bool same(const struct pp_emulated_product *x,
          const struct pp_emulated_product *y)
{
    return x->n == y->n && !x->registers == !y->registers && x->a == y->a &&
           x->b == y->b && x->by_rows == y->by_rows && x->add == y->add;
}

float number(uint16_t bits)
{
    return __bfloat162float(__nv_bfloat16{bits});
}

/* Every sum ascends in its terms. */
void multiply(struct operands *x)
{
    size_t n = (size_t)x->of.n;
    std::vector<float> column(n);
    float *b = column.data();
    x->product.assign(ROWS * n, 0);
    for (size_t k = 0; k < TERMS; k++) {
        for (size_t j = 0; j < n; j++)
            b[j] = number(x->b[j * TERMS + k]);
        for (size_t row = 0; row < ROWS; row++) {
            float a = number(x->a[row * TERMS + k]);
            float *c = &x->product[row * n];
            for (size_t j = 0; j < n; j++)
                c[j] += a * b[j];
        }
    }
}

/* The first lane of a warp at a product reads the operands of all, and
 * multiplies them. */
const struct operands *operands_of(const struct pp_emulated_product *p,
                                   const uint32_t *all)
{
    unsigned thread = pp_emulated_current();
    struct lane *l = current_lane();
    struct warp *w = &warps[thread / WARP];
    if (l->issued == w->issued.size()) {
        for (unsigned i = 0; i < WARPS; i++) {
            const struct warp *o = &warps[thread / WARP / WARPS * WARPS + i];
            if (l->issued < o->issued.size() && !same(&o->issued[l->issued], p))
                pp_emulated_refuse("the warps of a group differ in a product");
        }
        w->issued.push_back(*p);
        w->open.push_back(
            {*p,
             l->groups,
             p->registers ? read_fragments(all)
                          : read_tile(p->a, false, first_row(thread), ROWS),
             read_tile(p->b, p->by_rows, 0, (size_t)p->n),
             {}});
        multiply(&w->open.back());
    }
    l->issued++;
    return &w->open.back();
}

/* Refuses registers that have changed since the last fence. Those of the first
 * product of all are not known at its fence. */
void check_fence(struct lane *l, const void *at, size_t bytes)
{
    for (const struct seen &s : l->registers)
        if (s.at == at && s.bytes.size() == bytes) {
            if (s.fenced && memcmp(s.bytes.data(), at, bytes) != 0)
                pp_emulated_refuse("registers of a product change after the "
                                   "fence");
            return;
        }
    l->registers.push_back({at, std::vector<unsigned char>(bytes), false});
}

bool is_poison(const struct sums *s)
{
    for (size_t i = 0; i < s->value.size(); i++) {
        uint32_t word;
        memcpy(&word, s->at + i, sizeof word);
        if (word != UINT32_MAX)
            return false;
    }
    return true;
}

/* Returns the sums at c, which begin here if no product of them is open. */
struct sums *sums_at(struct lane *l, float *c, size_t n, bool add)
{
    for (struct sums &s : l->open)
        if (s.at == c) {
            if (s.value.size() != n || !is_poison(&s))
                pp_emulated_refuse("sums of a product change before the wait");
            if (!add)
                s.value.assign(n, 0);
            return &s;
        }
    if (add)
        check_fence(l, c, n * sizeof *c);
    l->open.push_back(
        {c, add ? std::vector<float>(c, c + n) : std::vector<float>(n), 0});
    memset(c, 0xff, n * sizeof *c);
    return &l->open.back();
}

void add_terms(struct sums *s, const struct operands *x)
{
    unsigned lane = pp_emulated_current() % WARP;
    size_t n = (size_t)x->of.n, size = s->value.size();
    const float *product = x->product.data();
    float *value = s->value.data();
    for (size_t i = 0; i < size; i++) {
        size_t row = lane / 4 + i % 4 / 2 * 8;
        value[i] += product[row * n + i / 4 * 8 + lane % 4 * 2 + i % 2];
    }
}

/* Refuses operands in shared memory that are not what they were. */
void check_unchanged(const struct operands *x, unsigned thread)
{
    const struct pp_emulated_product *p = &x->of;
    if (read_tile(p->b, p->by_rows, 0, (size_t)p->n) != x->b ||
        (!p->registers &&
         read_tile(p->a, false, first_row(thread), ROWS) != x->a))
        pp_emulated_refuse("operands of a product change before the wait");
}
} // namespace

uint32_t shared_address(const void *at)
{
    return (uint32_t)((const unsigned char *)at - pp_emulated_shared);
}

void proxy_fence(void)
{
    struct lane *l = current_lane();
    for (const struct piece &p : l->landed)
        for (size_t i = p.at / PIECE; i * PIECE < p.end; i++)
            readable[i] = true;
    l->landed.clear();
}

void wgmma_fence(void)
{
    struct lane *l = current_lane();
    pp_emulate_warp(-100);
    l->fenced = true;
    for (struct seen &s : l->registers) {
        memcpy(s.bytes.data(), s.at, s.bytes.size());
        s.fenced = true;
    }
}

void wgmma_commit(void)
{
    pp_emulate_warp(-101);
    current_lane()->groups++;
}

void pp_emulate_wgmma(float *c, const struct pp_emulated_product *p)
{
    const uint32_t none[4] = {};
    struct lane *l = current_lane();
    const uint32_t *all =
        pp_emulate_exchange(p->registers ? p->registers : none, 4);
    if (!l->fenced)
        pp_emulated_refuse("a product without a fence since the last wait");
    if (p->registers)
        check_fence(l, p->registers, 4 * sizeof *p->registers);
    struct sums *s = sums_at(l, c, (size_t)p->n / 2, p->add);
    add_terms(s, operands_of(p, all));
    s->group = l->groups;
}

void pp_emulate_wgmma_wait(unsigned keep)
{
    unsigned thread = pp_emulated_current();
    struct lane *l = &lanes[thread];
    struct warp *w = &warps[thread / WARP];
    pp_emulate_warp(-102);
    l->fenced = false;
    std::vector<struct operands> unread;
    for (struct operands &x : w->open)
        if (x.group + keep >= l->groups)
            unread.push_back(std::move(x));
        else
            check_unchanged(&x, thread);
    w->open.swap(unread);
    std::vector<struct sums> later;
    for (const struct sums &s : l->open) {
        if (!is_poison(&s))
            pp_emulated_refuse("sums of a product change before the wait");
        if (s.group + keep >= l->groups)
            later.push_back(s);
        else
            memcpy(s.at, s.value.data(), s.value.size() * sizeof *s.at);
    }
    l->open.swap(later);
}

static void forget_block(void)
{
    for (struct lane &l : lanes) {
        l.groups = l.issued = 0;
        l.fenced = false;
        l.open.clear();
        l.registers.clear();
        l.landed.clear();
    }
    for (struct warp &w : warps) {
        w.open.clear();
        w.issued.clear();
    }
}

void pp_emulated_products_begin(unsigned n, size_t shared)
{
    if (used)
        forget_block();
    used = false;
    lanes.resize(n);
    warps.resize((n / WARP + WARPS - 1) / WARPS * WARPS);
    readable.assign((shared + PIECE - 1) / PIECE, false);
}

void pp_emulated_products_end(void)
{
    for (size_t i = 0; i < warps.size(); i++)
        if (warps[i].issued.size() != warps[i / WARPS * WARPS].issued.size())
            pp_emulated_refuse("the warps of a group differ in a product");
}

void pp_emulated_products_leave(unsigned thread)
{
    if (!lanes[thread].open.empty())
        pp_emulated_refuse("a thread ends before its products");
}

/* Only dynamic shared memory has operands. */
static bool is_dynamic(const void *to)
{
    return (uintptr_t)to - (uintptr_t)pp_emulated_shared <
           readable.size() * PIECE;
}

void pp_emulated_copy_began(const void *to, size_t bytes)
{
    size_t at = shared_address(to);
    for (size_t i = at / PIECE; is_dynamic(to) && i * PIECE < at + bytes; i++)
        readable[i] = false;
}

void pp_emulated_copy_ended(const void *to, size_t bytes)
{
    size_t at = shared_address(to);
    if (is_dynamic(to))
        current_lane()->landed.push_back({at, at + bytes});
}
