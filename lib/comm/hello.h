/* SPDX-License-Identifier: MIT */
/* hello - the messages with which a rank joins a job, and the proof that both
 * sides know the job's secret.
 *
 *   rank   -> rank 0   call     a random number
 *   rank 0 -> rank     answer   a random number and a proof
 *   rank   -> rank 0   hello    who it is, and a proof
 *   rank 0 -> rank     welcome  when all ranks have joined or one is refused
 *
 * A proof is a keyed hash of both numbers and of the message, so it is worth
 * nothing in another connection. The key is made from the secret and the job's
 * number. Without a secret a proof still tells jobs apart, but anyone can make
 * it. Nothing is encrypted, and later messages carry no proof: this keeps out
 * programs that can reach the port, not those that can change packets.
 *
 * All ranks run the same program on the same kind of machine, so numbers have
 * the host's byte order. Private to rendezvous*.c. */
#ifndef PP_COMM_HELLO_H
#define PP_COMM_HELLO_H

#include <stdbool.h>

#include "comm/rendezvous.h"

enum { PP_NONCE_BYTES = 32, PP_PROOF_BYTES = 32, PP_HELLO_WHY = 400 };

struct pp_call {
    char magic[8]; /* has the version of these messages */
    unsigned char nonce[PP_NONCE_BYTES];
};

struct pp_answer {
    char magic[8];
    unsigned char nonce[PP_NONCE_BYTES];
    unsigned char proof[PP_PROOF_BYTES];
};

struct pp_hello {
    int32_t rank, size, is_monitor;
    int32_t failed; /* exit status if the rank cannot start; see why */
    unsigned char process[PP_NONCE_BYTES]; /* random; the same in both of its
                                              connections */
    char version[32];
    char host[PP_RENDEZVOUS_HOST];
    char why[PP_HELLO_WHY];
    unsigned char proof[PP_PROOF_BYTES]; /* last */
};

struct pp_welcome {
    int32_t refused, local;
    int32_t yours; /* the receiver is the rank that is refused */
    char why[PP_HELLO_WHY];
};

/* The state of one connection. */
struct pp_greeting {
    unsigned char key[PP_PROOF_BYTES];
    struct pp_call call;
    struct pp_answer answer;
};

/* Prepares for the secret and the number of a job. Fails if the system has no
 * random numbers. */
int pp_greeting_init(struct pp_greeting *g,
                     const struct pp_rendezvous_place *place,
                     struct pp_err *err) PP_MUST_USE;

/* Fills bytes with random numbers. */
void pp_hello_random(void *bytes, size_t n);

/* A rank makes a call, and checks rank 0's answer in g->answer. */
void pp_greeting_call(struct pp_greeting *g);
bool pp_answer_has_magic(const struct pp_greeting *g);
bool pp_answer_is_proven(const struct pp_greeting *g);

/* Rank 0 answers the call in g->call. Returns false if it is not a call. */
bool pp_greeting_answer(struct pp_greeting *g);

/* A rank adds the proof to its hello, and rank 0 checks it. A hello that it
 * accepts has printable text and a documented exit status. */
void pp_hello_prove(const struct pp_greeting *g, struct pp_hello *h);
bool pp_hello_accept(const struct pp_greeting *g, struct pp_hello *h);

/* Fills a hello without its proof. */
void pp_hello_fill(const struct pp_rendezvous_place *p, struct pp_hello *h);

/* Returns the status if a rank may end with it for this reason, or
 * PP_EXIT_SYSTEM. */
enum pp_exit pp_hello_status(int32_t status);

#endif
