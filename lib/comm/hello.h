/* SPDX-License-Identifier: MIT */
/* hello - the messages with which a rank joins a job, and the proof that both
 * sides know the job's secret.
 *
 *   rank   -> rank 0   call     a random number
 *   rank 0 -> rank     answer   a random number and a proof
 *   rank   -> rank 0   hello    who it is, where it listens, and a proof
 *   rank 0 -> rank     welcome  when all ranks have joined or one is refused
 *
 * A rank that has joined connects to its parent (tree.h) with the same three
 * messages, and the parent accepts it with a byte.
 *
 * A proof is a keyed hash of both numbers and of the message, so it is worth
 * nothing in another connection. The key is made from the secret and the job's
 * number; that of a parent also from its rank and from a random number of the
 * welcome, so no rank of another run of the job can connect. Without a secret a
 * proof still tells jobs apart, but anyone can make it. Nothing is encrypted,
 * and later messages carry no proof: this keeps out programs that can reach the
 * port, not those that can change packets.
 *
 * All ranks run the same program on the same kind of machine, so numbers have
 * the host's byte order. Private to rendezvous*.c. */
#ifndef PP_COMM_HELLO_H
#define PP_COMM_HELLO_H

#include <netinet/in.h>
#include <stdbool.h>

#include "comm/rendezvous.h"

enum { PP_NONCE_BYTES = 32, PP_PROOF_BYTES = 32, PP_HELLO_WHY = 400 };

/* The address at which a rank listens; family 0 if it does not. */
union pp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct pp_first_call {
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
    union pp_address listens;              /* for its children */
    char version[32];
    char host[PP_RENDEZVOUS_HOST];
    char why[PP_HELLO_WHY];
    unsigned char proof[PP_PROOF_BYTES]; /* last */
};

struct pp_welcome {
    int32_t refused, local;
    int32_t yours; /* the receiver is the rank that is refused */
    unsigned char session[PP_NONCE_BYTES]; /* random; the same for all ranks */
    union pp_address parent;               /* where the parent listens */
    char why[PP_HELLO_WHY];
};

/* The state of one connection. */
struct pp_greeting {
    unsigned char key[PP_PROOF_BYTES];
    struct pp_first_call call;
    struct pp_answer answer;
};

/* Prepares for the secret and the number of a job. Fails if the system has no
 * random numbers. */
int pp_greeting_init(struct pp_greeting *g,
                     const struct pp_rendezvous_place *place,
                     struct pp_err *err) PP_MUST_USE;

/* Makes it one for a connection to a parent. */
void pp_greeting_of_parent(struct pp_greeting *g,
                           const unsigned char session[PP_NONCE_BYTES],
                           int parent);

/* Fills bytes with random numbers. */
void pp_hello_random(void *bytes, size_t n);

/* A rank makes a call, and checks the answer in g->answer. */
void pp_greeting_call(struct pp_greeting *g);
bool pp_answer_has_magic(const struct pp_greeting *g);
bool pp_answer_is_proven(const struct pp_greeting *g);

/* Rank 0 or a parent answers the call in g->call. Returns false if it is not a
 * call. */
bool pp_greeting_answer(struct pp_greeting *g);

/* A rank adds the proof to its hello, and the other side checks it. A hello
 * that it accepts has printable text and a documented exit status. */
void pp_hello_prove(const struct pp_greeting *g, struct pp_hello *h);
bool pp_hello_accept(const struct pp_greeting *g, struct pp_hello *h);

/* Fills a hello without its proof. */
void pp_hello_fill(const struct pp_rendezvous_place *p, struct pp_hello *h);

/* Adds the reason why the rank cannot start. */
void pp_hello_set_failed(struct pp_hello *h, const struct pp_err *why);

/* Returns the status if a rank may end with it for this reason, or
 * PP_EXIT_SYSTEM. */
enum pp_exit pp_hello_status(int32_t status);

#endif
