/* SPDX-License-Identifier: MIT */
/* test_emulated_barriers - barriers between a part of the threads of a block on
 * the emulated device: one warp passes rows on to two others, which take turns
 * to report, and the same kernel with one fault each. */
#define PP_ELEMENT_BF16
#include "attention_barriers.cuh"

#include "outcome.h"
#include "tap.h"

#define STEPS 7
#define READERS 2
#define BLOCK ((READERS + 1) * PP_WARP)
#define BOTH (READERS * PP_WARP) /* threads of the readers */
#define NUMBERS (STEPS * PP_WARP)

enum fault {
    NONE,
    NOT_INITIALISED,
    NO_WAIT_FOR_ROOM,
    NO_WAIT_FOR_ROW,
    OTHER_PARITY,
    ONE_ARRIVAL_LESS,
    NO_TURNS,
    ONE_TURN_MORE,
    OTHER_NUMBER,
    OTHER_REGISTERS,
};

struct ring {
    uint64_t rows[2], room[2];
    float at[2][PP_WARP];
    int reports;
};

template <enum fault FAULT>
static __device__ void write_rows(struct ring *r, const float *in)
{
    int lane = (int)threadIdx.x % PP_WARP;
    for (int n = 0; n < STEPS; n++) {
        unsigned parity = (unsigned)n / 2 & 1;
        if (FAULT != NO_WAIT_FOR_ROOM)
            phase_wait(&r->room[n % 2], parity ^ (FAULT != OTHER_PARITY));
        r->at[n % 2][lane] = in[n * PP_WARP + lane];
        if (FAULT != ONE_ARRIVAL_LESS || n < 3 || lane != 5)
            phase_arrive(&r->rows[n % 2]);
    }
}

/* Reports the row, and which report of the block it is. */
template <enum fault FAULT>
static __device__ void report(struct ring *r, float *out, int n, float x)
{
    int lane = (int)threadIdx.x % PP_WARP;
    int reader = (int)threadIdx.x / PP_WARP - 1;
    if (FAULT != NO_TURNS)
        turn_wait(1 + reader, FAULT == OTHER_NUMBER && lane ? BLOCK : BOTH);
    float *to = out + (reader * STEPS + n) * 2 * PP_WARP;
    to[lane] = x;
    to[PP_WARP + lane] = (float)r->reports;
    __syncwarp();
    if (lane == 0)
        r->reports++;
    bool last = reader == READERS - 1 && n == STEPS - 1;
    if (FAULT != NO_TURNS && (!last || FAULT == ONE_TURN_MORE))
        turn_pass(2 - reader, BOTH);
}

/* out (READERS, STEPS, 2, PP_WARP): reversed rows, and numbers of reports. */
template <enum fault FAULT>
static __global__ void relay(float *out, const float *in)
{
    PP_TILES_IN_SHARED(shared);
    struct ring *r = (struct ring *)shared;
    int warp = (int)threadIdx.x / PP_WARP, lane = (int)threadIdx.x % PP_WARP;
    for (int i = 0; i < 2 && threadIdx.x == 0 && FAULT != NOT_INITIALISED;
         i++) {
        phase_init(&r->rows[i], PP_WARP);
        phase_init(&r->room[i], BOTH);
    }
    if (threadIdx.x == 0)
        r->reports = 0;
    __syncthreads();
    if (warp == 0) {
        shrink_registers<FAULT == OTHER_REGISTERS ? 30 : 40>();
        write_rows<FAULT>(r, in);
        return;
    }
    grow_registers<240>();
    if (warp == READERS && FAULT != NO_TURNS)
        turn_pass(1, BOTH);
    for (int n = 0; n < STEPS; n++) {
        if (FAULT != NO_WAIT_FOR_ROW)
            phase_wait(&r->rows[n % 2], (unsigned)n / 2 & 1);
        float x = r->at[n % 2][PP_WARP - 1 - lane];
        phase_arrive(&r->room[n % 2]);
        report<FAULT>(r, out, n, x);
    }
}

static bool is_relayed(const float *out, const float *in)
{
    for (int i = 0; i < READERS * NUMBERS; i++) {
        int reader = i / NUMBERS, n = i % NUMBERS / PP_WARP, lane = i % PP_WARP;
        const float *at = out + (reader * STEPS + n) * 2 * PP_WARP + lane;
        if (at[0] != in[n * PP_WARP + PP_WARP - 1 - lane] ||
            at[PP_WARP] != (float)(n * READERS + reader))
            return false;
    }
    return true;
}

/* Runs two blocks, in which warps run in opposite orders. The second is the one
 * that counts. */
template <enum fault FAULT> static enum outcome outcome_of(void)
{
    return outcome_in_process([]() {
        static float in[NUMBERS], out[2 * READERS * NUMBERS];
        for (int i = 0; i < NUMBERS; i++)
            in[i] = (float)(i * i + 1);
        for (int blocks = 1; blocks <= 2; blocks++) {
            if (PP_LAUNCH(relay<FAULT>, (unsigned)blocks, BLOCK,
                          sizeof(struct ring), NULL, out, in))
                return NOT_LAUNCHED;
            if (!is_relayed(out, in))
                return WRONG;
        }
        return RIGHT;
    });
}

#define EXPECT(fault, want) is_int(outcome_of<fault>(), want, #fault)

int main(void)
{
    EXPECT(NONE, RIGHT);
    EXPECT(NOT_INITIALISED, REFUSED);
    EXPECT(NO_WAIT_FOR_ROOM, REFUSED);
    EXPECT(NO_WAIT_FOR_ROW, REFUSED);
    EXPECT(OTHER_PARITY, REFUSED);
    EXPECT(ONE_ARRIVAL_LESS, REFUSED);
    EXPECT(NO_TURNS, WRONG);
    EXPECT(ONE_TURN_MORE, REFUSED);
    EXPECT(OTHER_NUMBER, REFUSED);
    EXPECT(OTHER_REGISTERS, REFUSED);
    return done();
}
