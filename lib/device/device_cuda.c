/* SPDX-License-Identifier: MIT */
/* device_cuda - a GPU as a device. A handle has one stream for kernels and
 * copies, so that they run in order. Other handles of a rank and the streams of
 * a transport need events. */
#include "device/device.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "cublas.h"
#include "cuda_stream.h"

/* Size of each of the two page-locked buffers that the function put uses for
 * its copies, in turn. A copy from other memory "might be synchronous" (CUDA
 * Runtime API, API synchronization behavior): the driver may wait for the
 * stream first, or still read the memory when it returns. */
#define STAGED_BYTES ((size_t)16 << 20)

struct gpu {
    struct pp_device base;
    int own, n_gpus; /* index of this GPU, number of GPUs of the machine */
    unsigned char *staged[2];
    cudaEvent_t copied[2]; /* a full buffer is free again */
    int turn;              /* the buffer that put fills */
    size_t n_staged;       /* bytes of it that copies may still read */
    struct pp_cublas cublas;
    struct pp_cuda_stream stream;
};

static int check_cuda(cudaError_t rc, const char *what, struct pp_err *err)
{
    return rc == cudaSuccess ? 0
                             : pp_fail(err, PP_EXIT_SYSTEM, "CUDA: %s: %s",
                                       what, cudaGetErrorString(rc));
}

static cudaStream_t own_stream(const struct pp_device *d)
{
    return ((const struct gpu *)d)->stream.stream;
}

static int count_gpus(int *n, struct pp_err *err)
{
    cudaError_t rc = cudaGetDeviceCount(n);
    if (rc != cudaSuccess)
        return pp_fail(err, PP_EXIT_SYSTEM, "no GPU can be used: %s",
                       cudaGetErrorString(rc));
    return *n > 0 ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "there is no GPU");
}

static int cuda_check(int n_ranks, struct pp_err *err)
{
    struct pp_cublas cublas;
    char why[200];
    int n;
    (void)n_ranks; /* ranks may share a GPU */
    if (count_gpus(&n, err))
        return -1;
    if (pp_cublas_open(&cublas, why, sizeof why))
        return pp_fail(err, PP_EXIT_SYSTEM, "cuBLAS cannot be loaded: %s", why);
    pp_cublas_close(&cublas);
    return 0;
}

static int create_event(void **event, unsigned flags, struct pp_err *err)
{
    cudaEvent_t created = NULL;
    if (check_cuda(cudaEventCreateWithFlags(&created, flags), "event", err))
        return -1;
    *event = created;
    return 0;
}

static void event_close(void *event)
{
    if (event)
        cudaEventDestroy(event);
}

static void cuda_close(struct pp_device *d)
{
    struct gpu *g = (struct gpu *)d;
    if (!g)
        return;
    if (g->stream.stream)
        cudaStreamSynchronize(g->stream.stream);
    for (int i = 0; i < 2; i++) {
        if (g->staged[i])
            cudaFreeHost(g->staged[i]);
        event_close(g->copied[i]);
    }
    pp_cuda_stream_close(&g->stream);
    pp_cublas_close(&g->cublas);
    free(g);
}

static int open_staging(struct gpu *g, struct pp_err *err)
{
    for (int i = 0; i < 2; i++) {
        void *staged = NULL, *event = NULL;
        if (check_cuda(
                cudaHostAlloc(&staged, STAGED_BYTES, cudaHostAllocDefault),
                "page-locked memory", err) ||
            create_event(&event, cudaEventDisableTiming, err)) {
            if (staged)
                cudaFreeHost(staged);
            return -1;
        }
        g->staged[i] = staged;
        g->copied[i] = event;
    }
    return 0;
}

static int cuda_open(int local_rank, struct pp_device **out, struct pp_err *err)
{
    char why[200];
    int n;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    g->base.ops = &pp_device_cuda;
    g->base.allocated = PP_CUDA_WORKSPACE_BYTES + PP_CUDA_PARTIAL_BYTES;
    g->base.stream = &g->stream;
    if (count_gpus(&n, err) ||
        check_cuda(cudaSetDevice(local_rank % n), "GPU", err))
        goto out;
    g->n_gpus = n;
    g->own = local_rank % n;
    if (pp_cublas_open(&g->cublas, why, sizeof why) ||
        pp_cuda_stream_open(&g->stream, &g->cublas, why, sizeof why)) {
        pp_fail(err, PP_EXIT_SYSTEM, "GPU %d: %s", local_rank % n, why);
        goto out;
    }
    if (open_staging(g, err))
        goto out;
    *out = &g->base;
    return 0;
out:
    cuda_close(&g->base);
    return -1;
}

static int cuda_branch(struct pp_device *d, struct pp_device **out,
                       struct pp_err *err)
{
    cudaStream_t created = NULL;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    const struct gpu *from = (const struct gpu *)d;
    *g = (struct gpu){.base = {.ops = d->ops, .stream = &g->stream},
                      .own = from->own,
                      .n_gpus = from->n_gpus};
    if (check_cuda(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking),
                   "stream", err)) {
        free(g);
        return -1;
    }
    g->stream.stream = created;
    *out = &g->base;
    return 0;
}

static int cuda_zero(struct pp_device *d, void *p, size_t bytes,
                     struct pp_err *err)
{
    return check_cuda(cudaMemsetAsync(p, 0, bytes, own_stream(d)), "zero", err);
}

static void *cuda_alloc(struct pp_device *d, size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    if (cudaMemsetAsync(p, 0, bytes, own_stream(d)) == cudaSuccess)
        return p;
    cudaFree(p);
    return NULL;
}

static void cuda_free(struct pp_device *d, void *p)
{
    (void)d;
    cudaFree(p);
}

static void *cuda_alloc_host(struct pp_device *d, size_t bytes)
{
    void *p = NULL;
    (void)d;
    if (cudaHostAlloc(&p, bytes, cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

static void cuda_free_host(struct pp_device *d, void *p)
{
    (void)d;
    cudaFreeHost(p);
}

static int cuda_wait(struct pp_device *d, struct pp_err *err)
{
    d->waits++;
    if (check_cuda(cudaStreamSynchronize(own_stream(d)), "kernels", err))
        return -1;
    ((struct gpu *)d)->n_staged = 0;
    return 0;
}

static cudaStream_t stream_or_own(const struct pp_device *d, void *stream)
{
    return stream ? stream : own_stream(d);
}

static int event_record(struct pp_device *d, void *event, void *stream,
                        struct pp_err *err)
{
    return check_cuda(cudaEventRecord(event, stream_or_own(d, stream)), "event",
                      err);
}

/* Turns to the other buffer, and waits until it is free. */
static int turn_buffers(struct gpu *g, struct pp_err *err)
{
    g->turn = 1 - g->turn;
    g->n_staged = 0;
    g->base.waits++;
    return check_cuda(cudaEventSynchronize(g->copied[g->turn]), "kernels", err);
}

static int cuda_put(struct pp_device *d, void *to, const void *from,
                    size_t bytes, struct pp_err *err)
{
    struct gpu *g = (struct gpu *)d;
    for (size_t done = 0, n; done < bytes; done += n) {
        if (g->n_staged == STAGED_BYTES && turn_buffers(g, err))
            return -1;
        size_t room = STAGED_BYTES - g->n_staged, left = bytes - done;
        unsigned char *at = g->staged[g->turn] + g->n_staged;
        n = left < room ? left : room;
        memcpy(at, (const char *)from + done, n);
        if (check_cuda(cudaMemcpyAsync((char *)to + done, at, n,
                                       cudaMemcpyHostToDevice, own_stream(d)),
                       "copy to the GPU", err))
            return -1;
        g->n_staged += pp_round_up(n, 64);
        if (g->n_staged == STAGED_BYTES &&
            event_record(d, g->copied[g->turn], NULL, err))
            return -1;
    }
    return 0;
}

static int cuda_get(struct pp_device *d, void *to, const void *from,
                    size_t bytes, struct pp_err *err)
{
    if (check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                                   own_stream(d)),
                   "copy from the GPU", err))
        return -1;
    return cuda_wait(d, err);
}

static int cuda_copy(struct pp_device *d, void *to, const void *from,
                     size_t bytes, struct pp_err *err)
{
    return check_cuda(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own_stream(d)),
        "copy", err);
}

/* If the machine does not support direct copies, they go through host memory.
 * Each peer GPU gets a context, which takes memory there. */
static void enable_peer_access(struct pp_device *d, int n_ranks)
{
    const struct gpu *g = (const struct gpu *)d;
    for (int other = 0; other < n_ranks && other < g->n_gpus; other++)
        if (other != g->own &&
            cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess)
            cudaGetLastError(); /* clears the error: this is no failure */
}

static int count_processors(struct pp_device *d)
{
    int n = 0;
    if (cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount,
                               ((const struct gpu *)d)->own) == cudaSuccess)
        return n;
    cudaGetLastError(); /* clears the error: this is no failure */
    return 0;
}

/* Blocks of kernels begin in the order of the kernels. Without a priority a
 * message would wait until all blocks of the product before it have begun. */
static int stream_open(struct pp_device *d, void **stream, struct pp_err *err)
{
    cudaStream_t created = NULL;
    int lowest = 0, highest = 0;
    (void)d; /* the stream is on the calling thread's GPU */
    if (check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                   "stream", err) ||
        check_cuda(cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking,
                                                highest),
                   "stream", err))
        return -1;
    *stream = created;
    return 0;
}

static void stream_close(struct pp_device *d, void *stream)
{
    (void)d;
    cudaStreamDestroy(stream);
}

static int event_open(struct pp_device *d, void **event, struct pp_err *err)
{
    (void)d;
    return create_event(event, cudaEventDisableTiming, err);
}

static int timer_open(struct pp_device *d, void **timer, struct pp_err *err)
{
    (void)d;
    return create_event(timer, cudaEventDefault, err);
}

static int wait_event(struct pp_device *d, void *stream, void *event,
                      struct pp_err *err)
{
    return check_cuda(cudaStreamWaitEvent(stream_or_own(d, stream), event, 0),
                      "event", err);
}

static int stream_copy(struct pp_device *d, void *stream, void *to,
                       const void *from, size_t bytes, struct pp_err *err)
{
    return check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                                      stream_or_own(d, stream)),
                      "copy between ranks", err);
}

static int stream_is_done(struct pp_device *d, void *stream, bool *done,
                          struct pp_err *err)
{
    cudaError_t rc = cudaStreamQuery(stream_or_own(d, stream));
    *done = rc == cudaSuccess;
    if (rc != cudaErrorNotReady)
        return check_cuda(rc, "stream", err);
    cudaGetLastError(); /* clears it, or the next launch would report it */
    return 0;
}

static int cuda_elapsed(struct pp_device *d, void *from, void *to,
                        double *seconds, struct pp_err *err)
{
    float ms = 0;
    (void)d;
    if (check_cuda(cudaEventElapsedTime(&ms, from, to), "event", err))
        return -1;
    *seconds = 1e-3 * (double)ms;
    return 0;
}

static const struct pp_stream_ops cuda_streams = {
    .alloc = cuda_alloc,
    .free = cuda_free,
    .enable_peer_access = enable_peer_access,
    .processors = count_processors,
    .open = stream_open,
    .close = stream_close,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .wait_event = wait_event,
    .copy = stream_copy,
    .is_done = stream_is_done,
};

const struct pp_device_ops pp_device_cuda = {
    .name = "cuda",
    .streams = &cuda_streams,
    .check = cuda_check,
    .open = cuda_open,
    .branch = cuda_branch,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .put = cuda_put,
    .get = cuda_get,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .wait = cuda_wait,
    .timer_open = timer_open,
    .elapsed = cuda_elapsed,
};
