/* SPDX-License-Identifier: MIT */
/* mpi_module - MPI behind the types of comm/mpi.h. It is a shared object, which
 * the compiler of any MPI builds:
 *
 *     mpicc -shared -fPIC -Ilib -o pprun-mpi.so lib/comm/mpi_module.c
 */
#include "comm/mpi.h"

#include <mpi.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "mpi.h");
_Static_assert(sizeof(MPI_Message) <= sizeof(uintptr_t), "mpi.h");

/* The job is the only user of MPI_COMM_WORLD. To create another communicator,
 * all ranks would have to wait for each other. */
static const MPI_Comm world = MPI_COMM_WORLD;

/* No direction has this tag, and every MPI allows it. */
enum { UNUSED_TAG = 32000 };

static int module_start(struct pp_mpi_world *w)
{
    int provided, rc;
    rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_rank(world, &w->rank);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_size(world, &w->size);
    if (rc == MPI_SUCCESS)
        w->threads = provided >= MPI_THREAD_SERIALIZED;
    return rc;
}

static int module_finish(void)
{
    return MPI_Finalize();
}

/* Makes a type of the given bytes: blocks of most, and the rest. */
static int make_blocks(size_t bytes, size_t most, MPI_Datatype *type)
{
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int counts[2] = {(int)(bytes / most), (int)(bytes % most)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes - bytes % most)};
    int rc = MPI_Type_contiguous((int)most, MPI_BYTE, &types[0]);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Type_create_struct(2, counts, at, types, type);
    MPI_Type_free(&types[0]);
    return rc == MPI_SUCCESS ? MPI_Type_commit(type) : rc;
}

static int module_send(const void *buf, size_t bytes, size_t most, int to,
                       int tag, uintptr_t *request)
{
    MPI_Request r;
    MPI_Datatype blocks;
    int rc;
    if (bytes <= most) {
        rc = MPI_Issend(buf, (int)bytes, MPI_BYTE, to, tag, world, &r);
    } else {
        rc = make_blocks(bytes, most, &blocks);
        if (rc != MPI_SUCCESS)
            return rc;
        rc = MPI_Issend(buf, 1, blocks, to, tag, world, &r);
        MPI_Type_free(&blocks);
    }
    memcpy(request, &r, sizeof r);
    return rc;
}

static int module_probe(int from, int tag, bool *found, size_t *bytes,
                        uintptr_t *message)
{
    MPI_Message m;
    MPI_Status status;
    MPI_Count n;
    int flag = 0, rc = MPI_Improbe(from, tag, world, &flag, &m, &status);
    *found = rc == MPI_SUCCESS && flag;
    if (!*found)
        return rc;
    memcpy(message, &m, sizeof m);
    rc = MPI_Get_elements_x(&status, MPI_BYTE, &n);
    *bytes = (size_t)n;
    return rc;
}

static int module_recv(void *buf, size_t bytes, size_t most, uintptr_t *message,
                       uintptr_t *request)
{
    MPI_Request r;
    MPI_Message m;
    MPI_Datatype blocks;
    int rc;
    memcpy(&m, message, sizeof m);
    if (bytes <= most) {
        rc = MPI_Imrecv(buf, (int)bytes, MPI_BYTE, &m, &r);
    } else {
        rc = make_blocks(bytes, most, &blocks);
        if (rc != MPI_SUCCESS)
            return rc;
        rc = MPI_Imrecv(buf, 1, blocks, &m, &r);
        MPI_Type_free(&blocks);
    }
    memcpy(request, &r, sizeof r);
    return rc;
}

static int module_test(uintptr_t *request, bool *done)
{
    MPI_Request r;
    int flag = 0;
    memcpy(&r, request, sizeof r);
    int rc = MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
    memcpy(request, &r, sizeof r);
    *done = flag;
    return rc;
}

/* A search for a message that nobody sends makes MPI advance all messages. */
static int module_progress(void)
{
    int flag;
    return MPI_Iprobe(MPI_ANY_SOURCE, UNUSED_TAG, world, &flag,
                      MPI_STATUS_IGNORE);
}

static void module_error_text(int code, char *text, size_t room)
{
    char whole[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(code, whole, &n) != MPI_SUCCESS)
        n = 0;
    size_t used = (size_t)n < room ? (size_t)n : room - 1;
    memcpy(text, whole, used);
    text[used] = '\0';
}

extern __attribute__((visibility("default"))) const struct pp_mpi pp_mpi_module;
const struct pp_mpi pp_mpi_module = {.abi = PP_MPI_ABI,
                                     .start = module_start,
                                     .finish = module_finish,
                                     .send = module_send,
                                     .probe = module_probe,
                                     .recv = module_recv,
                                     .test = module_test,
                                     .progress = module_progress,
                                     .error_text = module_error_text};
