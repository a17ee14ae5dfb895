/* SPDX-License-Identifier: MIT */
/* collective - sums and exchanges between the ranks of a group, over the
 * messages of any transport.
 *
 * A sum adds the values of member 0, 1, 2 and so on in this order, each on one
 * rank alone, so every member gets the same bits every time. Every message is
 * received by a receive that is posted before its sender can block, so
 * collectives make progress at any channel depth. All members call the same
 * functions in the same order; a group of one exchanges nothing.
 *
 * With parts, member i has the values at[i] .. at[i + 1] - 1 of a buffer; all
 * members pass the same n + 1 numbers. With NULL the parts are as equal as
 * pp_part_begin makes them. A large sum moves 2 (n - 1) / n of its bytes from
 * each rank and to it, the least possible (Patarasuk and Yuan, "Bandwidth
 * Optimal All-reduce Algorithms for Clusters of Workstations", 2009). */
#ifndef PP_COMM_COLLECTIVE_H
#define PP_COMM_COLLECTIVE_H

#include <stddef.h>

#include "base/err.h"
#include "base/group.h"
#include "comm/comm.h"

/* Queues y = a + b for n values. y may be a or b. Returns 0 or a code. */
typedef int pp_sum_fn(void *y, const void *a, const void *b, size_t n,
                      void *stream);

/* The means of a rank to exchange values. All is borrowed. */
struct pp_collective {
    struct pp_comm *comm;
    struct pp_group group;
    enum pp_direction direction; /* no other messages use it meanwhile */
    size_t value_bytes;
    pp_sum_fn *sum;
    void *stream; /* argument of sum */
    void *room;   /* (room_values) for received values, where the messages
                     are; room_values >= group.n */
    size_t room_values;
    size_t grain;      /* parts are multiples of it; 0: 1 */
    bool by_transport; /* values are floats, and the transport may add them in
                          an order of its own */
};

/* A buffer with a part for each member. */
struct pp_values {
    void *buf;
    const size_t *at; /* or NULL */
    size_t n;
    size_t turn; /* without at: the member, modulo the group's n, that has part
                    0; others follow */
};

/* Replaces this member's part of buf (total values) by the sum over the
 * members. Leaves the other parts as they are. */
int pp_reduce_scatter(const struct pp_collective *c, void *buf,
                      const size_t *at, size_t total,
                      struct pp_err *err) PP_MUST_USE;

/* Fills the other members' parts of buf with their values. */
int pp_all_gather(const struct pp_collective *c, void *buf, const size_t *at,
                  size_t total, struct pp_err *err) PP_MUST_USE;

/* Replaces the total values of buf by their sums over the members. */
int pp_all_reduce(const struct pp_collective *c, void *buf, size_t total,
                  struct pp_err *err) PP_MUST_USE;

/* The same for n buffers, with as few operations as the room allows. */
int pp_reduce_scatter_many(const struct pp_collective *c,
                           const struct pp_values *v, size_t n,
                           struct pp_err *err) PP_MUST_USE;
int pp_all_gather_many(const struct pp_collective *c, const struct pp_values *v,
                       size_t n, struct pp_err *err) PP_MUST_USE;
int pp_all_reduce_many(const struct pp_collective *c, const struct pp_values *v,
                       size_t n, struct pp_err *err) PP_MUST_USE;

/* Begins to send n values to the next member around the group, and to receive
 * as many from the one before. Two may be under way; they end in order.
 * pp_pass_wait returns when all but the newest keep are done. */
int pp_pass_begin(const struct pp_collective *c, void *in, const void *out,
                  size_t n, struct pp_err *err) PP_MUST_USE;
int pp_pass_wait(const struct pp_collective *c, int keep,
                 struct pp_err *err) PP_MUST_USE;

/* Part i of a buffer has the values begin[i] .. end[i] - 1. */
struct pp_parts {
    const size_t *begin, *end;
};

/* Sends part i of out to member i, and receives its part for this member as
 * part i of in. The parts of both are known on both sides. The own part is not
 * copied. begin returns before parts have arrived or left; wait, when all
 * have. */
int pp_all_to_all_begin(const struct pp_collective *c, void *in,
                        struct pp_parts in_parts, const void *out,
                        struct pp_parts out_parts,
                        struct pp_err *err) PP_MUST_USE;
int pp_all_to_all_wait(const struct pp_collective *c,
                       struct pp_err *err) PP_MUST_USE;
int pp_all_to_all(const struct pp_collective *c, void *in, const size_t *in_at,
                  const void *out, const size_t *out_at,
                  struct pp_err *err) PP_MUST_USE;

#endif
