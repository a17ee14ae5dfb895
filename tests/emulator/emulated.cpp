/* SPDX-License-Identifier: MIT */
/* emulated - the coroutines of a block, and their barriers. */
#include "emulated.h"
#include "emulated_block.h"
#include "emulated_gate.h"
#include "emulated_wgmma.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <map>
#include <mutex>
#include <vector>

#define WARP 32
#define MAX_THREADS 1024
#define MAX_WORDS 8
#define ROWS 16 /* of a product of a warp */
#define COLUMNS 8
#define TERMS 16
/* Not a multiple of a page: stacks of all threads would share a few sets of the
 * cache. */
#define STACK (((size_t)128 << 10) + 320)
#define GUARD 256 /* bytes behind shared memory that must not change */
#define DEFAULT_SHARED ((size_t)48 << 10)
#define MOST_SHARED ((size_t)99 << 10) /* of sm_86, which runs sm_80's code */
#define MOST_SHARED_90 ((size_t)227 << 10)

dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char *pp_emulated_shared;
size_t pp_emulated_ends;

void pp_emulated_refuse(const char *why)
{
    fprintf(stderr, "emulated: %s\n", why);
    abort();
}

namespace
{
/* A byte, so that a warp's states are in one line of the cache. */
enum state : unsigned char { READY, AT_BLOCK, AT_WARP, AT_WORD, DONE };

/* A thread at AT_WORD waits until the bits in mask change. */
struct awaited {
    const uint64_t *word;
    uint64_t mask, value;
};

/* A copy to shared memory that is not yet complete. */
struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
    unsigned group;
};

#ifdef __x86_64__
typedef void *point; /* of a stack, which has the registers and the address */
#else
typedef ucontext_t point;
#endif

struct alignas(64) thread {
    point at;          /* where it waits, once it has begun */
    bool begun;        /* in this block */
    dim3 index;        /* its threadIdx in this launch */
    unsigned meetings; /* number of warp barriers that it has passed */
};

/* The words that lanes give each other at a barrier, by whether its number is
 * odd. The product of these words is made once, by the first lane that asks. */
struct warp {
    uint32_t words[2][WARP * MAX_WORDS];
    float product[2][ROWS * COLUMNS];
    unsigned multiplied[2]; /* number of the barrier, 0: none */
};

struct thread threads[MAX_THREADS];
enum state states[MAX_THREADS];
struct awaited awaits[MAX_THREADS];
int places[MAX_THREADS];      /* barrier at which a thread waits */
unsigned groups[MAX_THREADS]; /* number of copy groups that it has closed */
std::vector<struct copy> copies[MAX_THREADS];
std::map<const void *, size_t> allowed; /* dynamic shared memory of a kernel */
std::mutex allowed_lock;
struct warp warps[MAX_THREADS / WARP];
char *stacks;
unsigned made;           /* number of stacks that have a point */
point idle[MAX_THREADS]; /* stacks on which no thread runs */
unsigned n_idle;
point scheduler;
const pp_emulated_body *body;
unsigned current;
unsigned step; /* from one thread to the next in the order of this block */

#ifdef __x86_64__
/* Keeps this point in *here and continues at `there`. Threads do little between
 * two barriers: with setjmp(3) this takes most of the time of a kernel, and
 * with the compiler's own jumps, after which the processor mispredicts every
 * return, twice the time. */
extern "C" void pp_emulated_switch(point *here, const point *there);
asm(R"(
    .pushsection .text
    .type pp_emulated_switch, @function
pp_emulated_switch:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov (%rsi), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
    .size pp_emulated_switch, . - pp_emulated_switch
    .popsection
)");

/* Makes the point at which a stack begins with a function. */
void make_point(point *at, char *stack, void (*begin)(void))
{
    /* As at a call: the address of the caller, which does not exist, is at a
     * multiple of 16 plus 8. */
    uintptr_t top = ((uintptr_t)stack + STACK) & ~(uintptr_t)15;
    void **words = (void **)top - 8;
    memset(words, 0, 8 * sizeof *words);
    words[6] = (void *)begin;
    *at = words;
}
#else
void pp_emulated_switch(point *here, const point *there)
{
    swapcontext(here, there);
}

void make_point(point *at, char *stack, void (*begin)(void))
{
    getcontext(at);
    at->uc_stack.ss_sp = stack;
    at->uc_stack.ss_size = STACK;
    makecontext(at, begin, 0);
}
#endif

/* Makes thread i the current one. Returns where it continues, or an idle stack
 * where it begins. */
const point *enter_thread(unsigned i)
{
    struct thread *t = &threads[i];
    current = i;
    threadIdx = t->index;
    if (t->begun)
        return &t->at;
    t->begun = true;
    return &idle[--n_idle];
}

/* Returns whether the lane after the current thread, in the order of this
 * block, is ready. */
inline bool is_next_ready()
{
    unsigned next = current + step;
    return next / WARP == current / WARP && states[next] == READY;
}

/* Leaves this thread: for the next lane if that is ready, else for the
 * scheduler. */
inline void pause(enum state state, int place)
{
    struct thread *t = &threads[current];
    states[current] = state;
    places[current] = place;
    pp_emulated_switch(&t->at, is_next_ready() ? enter_thread(current + step)
                                               : &scheduler);
}

/* Runs threads on a stack, one after the other. A thread that does not wait
 * leaves its stack to the next lane: few stacks stay in the cache. */
void run_threads()
{
    for (;;) {
        body->run();
        if (!copies[current].empty())
            pp_emulated_refuse("a thread ends before its copies");
        pp_emulated_products_leave(current);
        states[current] = DONE;
        point *mine = &idle[n_idle++];
        if (!is_next_ready())
            pp_emulated_switch(mine, &scheduler);
        else if (const point *next = enter_thread(current + step); next != mine)
            pp_emulated_switch(mine, next);
    }
}

bool all_at(unsigned first, unsigned end, enum state state)
{
    for (unsigned i = first; i < end; i++)
        if (states[i] != state && states[i] != DONE)
            return false;
    return true;
}

void release_threads(unsigned first, unsigned end, enum state state)
{
    const int *met = NULL;
    bool gone = false;
    for (unsigned i = first; i < end; i++) {
        gone |= states[i] == DONE;
        if (states[i] != state)
            continue;
        if (met && *met != places[i])
            pp_emulated_refuse("threads wait at different barriers");
        met = &places[i];
    }
    if (met && gone && state == AT_WARP)
        pp_emulated_refuse("a warp waits for lanes that have ended");
    for (unsigned i = first; i < end; i++)
        if (states[i] == state)
            states[i] = READY;
}

/* Returns whether all lanes of a warp wait at one barrier of it. */
bool has_met(unsigned first)
{
    unsigned char others = 0;
    int elsewhere = 0;
    for (unsigned i = first; i < first + WARP; i++) {
        others |= states[i] ^ AT_WARP;
        elsewhere |= places[i] ^ places[first];
    }
    return !others && !elsewhere;
}

/* Runs thread i, and those that follow it without the scheduler. */
void resume_thread(unsigned i)
{
    pp_emulated_switch(&scheduler, enter_thread(i));
}

/* Returns item i of n, or of the reversed order. */
unsigned in_order(unsigned i, unsigned n, bool backwards)
{
    return backwards ? n - 1 - i : i;
}

bool is_ready(unsigned i)
{
    const struct awaited *a = &awaits[i];
    if (states[i] == AT_WORD && (*a->word & a->mask) != a->value)
        states[i] = READY;
    return states[i] == READY;
}

/* Runs a warp until its lanes have ended or wait for the block. Returns whether
 * any of them ran. */
bool run_warp(unsigned first, unsigned end, bool backwards)
{
    bool moved = false;
    for (;;) {
        bool ready = false;
        for (unsigned i = 0; i < end - first; i++) {
            unsigned lane = first + in_order(i, end - first, backwards);
            if (is_ready(lane)) {
                resume_thread(lane);
                i = in_order(current - first, end - first, backwards);
                ready = moved = true;
            }
        }
        if (!ready)
            return moved;
        if (has_met(first))
            memset(states + first, READY, WARP * sizeof *states);
        else if (all_at(first, end, AT_WARP))
            release_threads(first, end, AT_WARP);
    }
}

void run_block(unsigned n, size_t shared, bool backwards)
{
    pp_emulated_products_begin(n, shared);
    pp_emulated_barriers_begin();
    step = backwards ? -1u : 1;
    for (unsigned i = 0; i < n; i++) {
        states[i] = READY;
        threads[i].begun = false;
        threads[i].meetings = groups[i] = 0;
    }
    for (unsigned i = 0; i < n / WARP; i++)
        warps[i].multiplied[0] = warps[i].multiplied[1] = 0;
    while (!all_at(0, n, DONE)) {
        bool moved = false;
        for (unsigned i = 0; i < n / WARP; i++) {
            unsigned warp = in_order(i, n / WARP, backwards);
            moved |= run_warp(warp * WARP, (warp + 1) * WARP, backwards);
        }
        if (all_at(0, n, AT_BLOCK))
            release_threads(0, n, AT_BLOCK);
        else if (!moved)
            pp_emulated_refuse(
                "some threads wait at a barrier that others never reach");
    }
    pp_emulated_products_end();
    pp_emulated_barriers_end();
}
} // namespace

void pp_emulated_wait_while(const uint64_t *word, uint64_t mask, uint64_t value)
{
    awaits[current] = {word, mask, value};
    if ((*word & mask) == value)
        pause(AT_WORD, 0);
}

unsigned pp_emulated_current(void)
{
    return current;
}

void pp_emulate_barrier(int place)
{
    pause(AT_BLOCK, place);
}

void pp_emulate_warp(int place)
{
    pause(AT_WARP, place);
}

/* Exchanges n words. The compiler knows n where this is called. */
static inline const uint32_t *exchange(const uint32_t *mine, int n)
{
    struct thread *t = &threads[current];
    uint32_t *words = warps[current / WARP].words[++t->meetings % 2];
    memcpy(words + current % WARP * (unsigned)n, mine,
           (size_t)n * sizeof *words);
    pause(AT_WARP, -n);
    return words;
}

const uint32_t *pp_emulate_exchange(const uint32_t *mine, int n)
{
    return n == 1 ? exchange(mine, 1) : exchange(mine, n);
}

uint32_t pack_bf16(float low, float high)
{
    return __float2bfloat16(low).bits | (uint32_t)__float2bfloat16(high).bits
                                            << 16;
}

/* Returns half `which` of a word as a number. */
static float half_of(uint32_t word, int which)
{
    return __bfloat162float(
        __nv_bfloat16{(uint16_t)(which ? word >> 16 : word)});
}

typedef float columns __attribute__((vector_size(COLUMNS * sizeof(float))));

/* Multiplies A (ROWS, TERMS) by B (TERMS, COLUMNS), of which the lanes have the
 * words (32, 6). Every sum ascends in its terms. */
static void multiply(float *c, const uint32_t *all)
{
    columns b[TERMS];
    for (unsigned k = 0; k < TERMS; k++)
        for (unsigned j = 0; j < COLUMNS; j++)
            b[k][j] = half_of(all[(j * 4 + k % 8 / 2) * 6 + 4 + k / 8], k % 2);
    for (unsigned row = 0; row < ROWS / 2; row++) {
        columns upper = {}, lower = {};
        for (unsigned k = 0; k < TERMS; k++) {
            const uint32_t *a = all + (row * 4 + k % 8 / 2) * 6 + k / 8 * 2;
            upper += half_of(a[0], k % 2) * b[k];
            lower += half_of(a[1], k % 2) * b[k];
        }
        memcpy(c + row * COLUMNS, &upper, sizeof upper);
        memcpy(c + (row + ROWS / 2) * COLUMNS, &lower, sizeof lower);
    }
}

void mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const uint32_t *all = exchange(mine, 6);
    unsigned lane = current % WARP, meeting = threads[current].meetings;
    struct warp *w = &warps[current / WARP];
    float *product = w->product[meeting % 2];
    if (w->multiplied[meeting % 2] != meeting) {
        multiply(product, all);
        w->multiplied[meeting % 2] = meeting;
    }
    for (unsigned i = 0; i < 4; i++)
        c[i] +=
            product[(lane / 4 + i / 2 * 8) * COLUMNS + lane % 4 * 2 + i % 2];
}

/* Returns the address that a lane gave. */
static const uint16_t *row_of(const uint32_t *all, unsigned lane)
{
    const uint16_t *row;
    memcpy(&row, all + lane * 2, sizeof row);
    return row;
}

/* Gives every lane the row addresses of all. A lane checks the 8 rows of the
 * matrix whose address it has: they are aligned to 16 bytes and in different
 * banks. */
static const uint32_t *exchange_rows(const void *row)
{
    uint32_t mine[2];
    memcpy(mine, &row, sizeof row);
    const uint32_t *all = exchange(mine, 2);
    unsigned banks = 0, first = current % WARP / 8 * 8;
    for (unsigned i = first; i < first + 8; i++) {
        uintptr_t at = (uintptr_t)row_of(all, i);
        if (at % 16 != 0)
            pp_emulated_refuse("a misaligned row of a matrix load");
        banks |= 1u << at / 16 % 8;
    }
    if (banks != 0xff)
        pp_emulated_refuse("a matrix load has bank conflicts");
    return all;
}

/* Begins a copy. The destination is NaN until a wait for the copy. */
static void begin_copy(void *shared, const void *from, bool there, size_t bytes)
{
    if ((uintptr_t)shared % bytes != 0 || (uintptr_t)from % bytes != 0)
        pp_emulated_refuse("a copy to or from a misaligned address");
    memset(shared, 0xff, bytes);
    pp_emulated_copy_began(shared, bytes);
    copies[current].push_back(
        {shared, there ? from : NULL, bytes, groups[current]});
}

void copy_begin(void *shared, const void *from, bool there)
{
    begin_copy(shared, from, there, 16);
}

void copy_word_begin(void *shared, const void *from, bool there)
{
    begin_copy(shared, from, there, 4);
}

void copy_commit(void)
{
    groups[current]++;
}

void pp_emulate_copy_wait(unsigned keep)
{
    std::vector<struct copy> later;
    for (const struct copy &c : copies[current]) {
        if (c.group + keep >= groups[current]) {
            later.push_back(c);
            continue;
        }
        if (c.from)
            memcpy(c.to, c.from, c.bytes);
        else
            memset(c.to, 0, c.bytes);
        pp_emulated_copy_ended(c.to, c.bytes);
    }
    copies[current].swap(later);
}

void load_matrices(uint32_t r[4], const void *row)
{
    const uint32_t *rows = exchange_rows(row);
    unsigned lane = current % WARP;
    for (unsigned j = 0; j < 4; j++)
        memcpy(&r[j], row_of(rows, j * 8 + lane / 4) + lane % 4 * 2,
               sizeof r[j]);
}

void load_transposed(uint32_t r[4], const void *row)
{
    const uint32_t *rows = exchange_rows(row);
    unsigned lane = current % WARP;
    for (unsigned j = 0; j < 4; j++)
        r[j] = row_of(rows, j * 8 + lane % 4 * 2)[lane / 4] |
               (uint32_t)row_of(rows, j * 8 + lane % 4 * 2 + 1)[lane / 4] << 16;
}

namespace
{
struct launch {
    dim3 grid, block;
    size_t shared;
    const pp_emulated_body *kernel;
};

/* Poisons the thread-local data of the program itself, which is the first
 * object: shared arrays of kernels, and data of emulated_gpus.c that threads of
 * streams do not use. */
int poison_static(struct dl_phdr_info *of, size_t, void *)
{
    for (unsigned i = 0; i < of->dlpi_phnum; i++)
        if (of->dlpi_phdr[i].p_type == PT_TLS)
            memset(of->dlpi_tls_data, 0xff, of->dlpi_phdr[i].p_memsz);
    return 1;
}

/* Makes n stacks, or more. */
void make_stacks(unsigned n)
{
    if (!stacks)
        stacks = (char *)malloc(MAX_THREADS * STACK);
    if (!stacks)
        abort();
    for (; made < n; made++)
        make_point(&idle[n_idle++], stacks + made * STACK, run_threads);
}

void run_launch(void *arg)
{
    struct launch *l = (struct launch *)arg;
    dim3 grid = l->grid, block = l->block;
    unsigned n = block.x * block.y * block.z;
    size_t shared = l->shared;
    unsigned char untouched[GUARD];
    memset(untouched, 0xff, sizeof untouched);
    pp_emulated_enter();
    if (n % WARP)
        abort();
    make_stacks(n);
    pp_emulated_shared = (unsigned char *)aligned_alloc(
        1024, (shared + GUARD + 1023) & ~(size_t)1023);
    body = l->kernel;
    gridDim = grid;
    blockDim = block;
    for (unsigned i = 0; i < n; i++)
        threads[i].index =
            dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
    size_t blocks = (size_t)grid.x * grid.y * grid.z, ends = pp_emulated_ends;
    for (size_t at = 0; at < blocks; at++) {
        if (ends && at == ends && blocks > 2 * ends)
            at = blocks - ends;
        blockIdx =
            dim3((unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                 (unsigned)(at / grid.x / grid.y));
        memset(pp_emulated_shared, 0xff, shared + GUARD);
        dl_iterate_phdr(poison_static, NULL);
        run_block(n, shared, at % 2);
        if (memcmp(pp_emulated_shared + shared, untouched, GUARD))
            pp_emulated_refuse("a kernel writes beyond its shared memory");
    }
    free(pp_emulated_shared);
    pp_emulated_leave();
    delete l->kernel;
    delete l;
}
} // namespace

int pp_emulated_capability(void)
{
    const char *text = getenv("PP_EMULATED_CAPABILITY");
    return text ? atoi(text) : 80;
}

int pp_emulate_allow_shared(const void *kernel, int bytes)
{
    std::lock_guard<std::mutex> hold(allowed_lock);
    size_t most = pp_emulated_capability() == 90 ? MOST_SHARED_90 : MOST_SHARED;
    if (bytes < 0 || (size_t)bytes > most)
        return cudaErrorInvalidValue;
    allowed[kernel] = (size_t)bytes;
    return 0;
}

static bool may_share(const void *kernel, size_t bytes)
{
    std::lock_guard<std::mutex> hold(allowed_lock);
    auto found = allowed.find(kernel);
    return bytes <= (found == allowed.end() ? DEFAULT_SHARED : found->second);
}

int pp_emulate(void *stream, const void *kernel, dim3 grid, dim3 block,
               size_t shared, const pp_emulated_body *body)
{
    bool fits = grid.x && grid.y && grid.z && grid.x <= INT32_MAX &&
                grid.y <= UINT16_MAX && grid.z <= UINT16_MAX &&
                (size_t)block.x * block.y * block.z <= MAX_THREADS;
    if (fits && may_share(kernel, shared)) {
        pp_emulated_queue(stream, kernel, run_launch,
                          new launch{grid, block, shared, body});
        return 0;
    }
    delete body;
    return fits ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}
