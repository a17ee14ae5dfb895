/* SPDX-License-Identifier: MIT */
/* thread_channel - the messages from one thread to another in one direction.
 *
 * No message is stored: a send and a receive post their addresses, and the rank
 * that comes second copies from the one to the other. So depth bounds posts,
 * not memory. Ranks wait on condition variables, because there may be more
 * ranks than cores. With devices, a message counts as received when its copy is
 * queued; peer_copy.h orders the copy.
 *
 * After *aborted is set no copy begins, and every call ends without a wait. */
#ifndef PP_COMM_THREAD_CHANNEL_H
#define PP_COMM_THREAD_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/peer_copy.h"

struct pp_thread_send {
    const void *buf;
    size_t bytes;
    struct pp_peer_copy_source peer_copy;
};

struct pp_thread_receive {
    void *buf;
    size_t bytes, sent_bytes; /* sent_bytes: of the message, once received */
    struct pp_peer_copy_target peer_copy;
};

struct pp_thread_channel {
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t changed; /* sent, posted, received, copying, or aborted */
    const atomic_bool *aborted;
    struct pp_thread_send *sends;       /* ring of max(depth, 1) */
    struct pp_thread_receive *receives; /* ring of n_receives */
    uint32_t depth, n_receives;
    size_t sent, posted, received; /* sends, receives, and copied messages */
    bool copying; /* a rank copies the message number `received` */

    size_t released; /* sender: messages whose copies its stream waits for */
    size_t awaited;  /* receiver: messages that it has waited for */
    struct pp_peer_copy_end receiver; /* zeroed without a device */
};

/* Results of the functions below, besides 0 and -1 with *err filled. */
enum { PP_CHANNEL_ABORTED = 1, PP_CHANNEL_WRONG_SIZE };

/* The caller sets the rings and counts of *ch before. */
void pp_thread_channel_init(struct pp_thread_channel *ch);
void pp_thread_channel_finish(struct pp_thread_channel *ch);

/* The functions of struct pp_transport, for the sender. e is its device, or
 * NULL. */
int pp_thread_channel_send(struct pp_thread_channel *ch,
                           const struct pp_peer_copy_end *e, const void *buf,
                           size_t bytes, struct pp_err *err) PP_MUST_USE;
int pp_thread_channel_send_wait(struct pp_thread_channel *ch,
                                const struct pp_peer_copy_end *e, size_t keep,
                                struct pp_err *err) PP_MUST_USE;

/* The functions of struct pp_transport, for the receiver. e is its device, or
 * NULL. Functions that wait return PP_CHANNEL_WRONG_SIZE at a message of
 * another size; it is receive number `awaited`. */
int pp_thread_channel_recv(struct pp_thread_channel *ch,
                           const struct pp_peer_copy_end *e, void *buf,
                           size_t bytes, struct pp_err *err) PP_MUST_USE;
int pp_thread_channel_recv_wait(struct pp_thread_channel *ch,
                                const struct pp_peer_copy_end *e, size_t keep,
                                struct pp_err *err) PP_MUST_USE;
int pp_thread_channel_probe(struct pp_thread_channel *ch,
                            size_t *bytes) PP_MUST_USE;

/* Wakes the ranks that wait, after an abort. */
void pp_thread_channel_wake(struct pp_thread_channel *ch);

/* Waits until no rank copies a message of the channel. */
void pp_thread_channel_wait_for_copy(struct pp_thread_channel *ch);

/* Drops the receives whose message was not sent. The receiver calls it. */
void pp_thread_channel_drop(struct pp_thread_channel *ch);

#endif
