/* SPDX-License-Identifier: MIT */
/* hello - makes and checks the messages of a rank that joins. */
#include "comm/hello.h"

#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(PP_PROOF_BYTES == crypto_auth_BYTES, "size of a proof");
_Static_assert(PP_PROOF_BYTES == crypto_auth_KEYBYTES, "size of a key");

static const char magic[8] = "pp-join3";

int pp_greeting_init(struct pp_greeting *g, const struct pp_rendezvous_place *p,
                     struct pp_err *err)
{
    crypto_generichash_state hash;
    memset(g, 0, sizeof *g);
    if (sodium_init() < 0)
        return pp_fail(err, PP_EXIT_SYSTEM, "no random numbers");
    crypto_generichash_init(&hash, NULL, 0, sizeof g->key);
    if (p->secret)
        crypto_generichash_update(&hash, p->secret, p->secret_bytes);
    crypto_generichash_update(&hash, (const unsigned char *)&p->job,
                              sizeof p->job);
    crypto_generichash_final(&hash, g->key, sizeof g->key);
    return 0;
}

void pp_greeting_of_parent(struct pp_greeting *g,
                           const unsigned char session[PP_NONCE_BYTES],
                           int parent)
{
    const int32_t rank = parent;
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, g->key, sizeof g->key, sizeof g->key);
    crypto_generichash_update(&hash, session, PP_NONCE_BYTES);
    crypto_generichash_update(&hash, (const unsigned char *)&rank, sizeof rank);
    crypto_generichash_final(&hash, g->key, sizeof g->key);
}

void pp_hello_random(void *bytes, size_t n)
{
    randombytes_buf(bytes, n);
}

/* Computes the proof of a message. The sender is part of it, so that the proof
 * of an answer is not one of a hello. */
static void make_proof(const struct pp_greeting *g, char sender,
                       const void *message, size_t bytes,
                       unsigned char proof[PP_PROOF_BYTES])
{
    crypto_auth_hmacsha512256_state s;
    crypto_auth_hmacsha512256_init(&s, g->key, sizeof g->key);
    crypto_auth_hmacsha512256_update(&s, (const unsigned char *)&sender, 1);
    crypto_auth_hmacsha512256_update(&s, g->call.nonce, sizeof g->call.nonce);
    crypto_auth_hmacsha512256_update(&s, g->answer.nonce,
                                     sizeof g->answer.nonce);
    crypto_auth_hmacsha512256_update(&s, message, bytes);
    crypto_auth_hmacsha512256_final(&s, proof);
}

void pp_greeting_call(struct pp_greeting *g)
{
    memcpy(g->call.magic, magic, sizeof magic);
    randombytes_buf(g->call.nonce, sizeof g->call.nonce);
}

bool pp_greeting_answer(struct pp_greeting *g)
{
    if (memcmp(g->call.magic, magic, sizeof magic) != 0)
        return false;
    memcpy(g->answer.magic, magic, sizeof magic);
    randombytes_buf(g->answer.nonce, sizeof g->answer.nonce);
    make_proof(g, '0', NULL, 0, g->answer.proof);
    return true;
}

bool pp_answer_has_magic(const struct pp_greeting *g)
{
    return memcmp(g->answer.magic, magic, sizeof magic) == 0;
}

bool pp_answer_is_proven(const struct pp_greeting *g)
{
    unsigned char proof[PP_PROOF_BYTES];
    make_proof(g, '0', NULL, 0, proof);
    return sodium_memcmp(proof, g->answer.proof, sizeof proof) == 0;
}

void pp_hello_prove(const struct pp_greeting *g, struct pp_hello *h)
{
    make_proof(g, 'r', h, offsetof(struct pp_hello, proof), h->proof);
}

bool pp_hello_accept(const struct pp_greeting *g, struct pp_hello *h)
{
    unsigned char proof[PP_PROOF_BYTES];
    make_proof(g, 'r', h, offsetof(struct pp_hello, proof), proof);
    if (sodium_memcmp(proof, h->proof, sizeof proof) != 0)
        return false;
    pp_clean_text(h->version, sizeof h->version);
    pp_clean_text(h->host, sizeof h->host);
    pp_clean_text(h->why, sizeof h->why);
    h->failed = h->failed ? (int32_t)pp_hello_status(h->failed) : 0;
    return true;
}

void pp_hello_set_failed(struct pp_hello *h, const struct pp_err *why)
{
    h->failed = (int32_t)why->code;
    snprintf(h->why, sizeof h->why, "%.390s", why->text);
}

void pp_hello_fill(const struct pp_rendezvous_place *p, struct pp_hello *h)
{
    *h = (struct pp_hello){.rank = p->rank, .size = p->size};
    snprintf(h->version, sizeof h->version, "%s", p->version);
    if (p->failure)
        pp_hello_set_failed(h, p->failure);
    if (gethostname(h->host, sizeof h->host - 1) != 0)
        snprintf(h->host, sizeof h->host, "unknown");
}

enum pp_exit pp_hello_status(int32_t status)
{
    return status == PP_EXIT_NO || status == PP_EXIT_INPUT
               ? (enum pp_exit)status
               : PP_EXIT_SYSTEM;
}
