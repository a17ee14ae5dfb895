/* SPDX-License-Identifier: MIT */
/* emulated_barriers - barriers in shared memory, whose word has the number of
 * complete phases, the threads that are awaited in each phase and those that
 * have not arrived; and numbered barriers. */
#include "emulated_barriers.h"
#include "emulated.h"
#include "emulated_block.h"

#define COUNT_AT 32
#define LEFT_AT 48
#define FIELD 0xffff
#define NUMBERED 16

namespace
{
/* A numbered barrier: the threads that meet, and how often they have met. */
struct numbered {
    int threads, arrived;
    uint64_t met;
};

struct numbered numbered[NUMBERED];

/* Takes a thread's arrival. The phase ends with the last one. */
void arrive(int id, int threads)
{
    if (id < 1 || id >= NUMBERED || threads % 32 || threads <= 0)
        pp_emulated_refuse("a barrier that no GPU has");
    struct numbered *b = &numbered[id];
    if (b->arrived && b->threads != threads)
        pp_emulated_refuse("threads meet at a barrier with other numbers");
    b->threads = threads;
    if (++b->arrived < threads)
        return;
    b->arrived = 0;
    b->met++;
}

uint64_t field(uint64_t word, int at)
{
    return word >> at & FIELD;
}

void check_initialised(uint64_t word)
{
    if (!field(word, LEFT_AT) || field(word, COUNT_AT) == FIELD)
        pp_emulated_refuse("a barrier that nobody initialised");
}
} // namespace

void phase_init(uint64_t *barrier, unsigned count)
{
    if (!count || count >= FIELD || (uintptr_t)barrier % sizeof *barrier)
        pp_emulated_refuse("a barrier that no GPU has");
    *barrier = (uint64_t)count << COUNT_AT | (uint64_t)count << LEFT_AT;
}

void phase_arrive(uint64_t *barrier)
{
    uint64_t word = *barrier, count = field(word, COUNT_AT);
    check_initialised(word);
    word -= (uint64_t)1 << LEFT_AT;
    if (!field(word, LEFT_AT))
        word = count << LEFT_AT | count << COUNT_AT | (uint32_t)(word + 1);
    *barrier = word;
}

void phase_wait(uint64_t *barrier, unsigned parity)
{
    check_initialised(*barrier);
    pp_emulated_wait_while(barrier, 1, parity);
}

void turn_wait(int id, int threads)
{
    uint64_t before = numbered[id].met;
    pp_emulate_warp(-200);
    arrive(id, threads);
    pp_emulated_wait_while(&numbered[id].met, UINT64_MAX, before);
}

void turn_pass(int id, int threads)
{
    pp_emulate_warp(-201);
    arrive(id, threads);
}

void pp_emulate_registers(int n)
{
    pp_emulate_warp(-202);
    if (n < 24 || n > 256 || n % 8)
        pp_emulated_refuse("a number of registers that no GPU has");
}

void pp_emulated_barriers_begin(void)
{
    memset(numbered, 0, sizeof numbered);
}

void pp_emulated_barriers_end(void)
{
    for (const struct numbered &b : numbered)
        if (b.arrived)
            pp_emulated_refuse("a block ends with arrivals at a barrier");
}
