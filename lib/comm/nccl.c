/* SPDX-License-Identifier: MIT */
/* nccl - opens NCCL and finds its functions. */
#include "comm/nccl.h"

#include <dlfcn.h>

#ifdef PP_NCCL_HEADER
#include <nccl.h>
_Static_assert(sizeof(ncclUniqueId) == sizeof(struct pp_nccl_id), "nccl.h");
_Static_assert((int)ncclInvalidArgument == PP_NCCL_INVALID_ARGUMENT, "nccl.h");
_Static_assert((int)ncclInvalidUsage == PP_NCCL_INVALID_USAGE, "nccl.h");
_Static_assert((int)ncclRemoteError == PP_NCCL_REMOTE_ERROR, "nccl.h");
_Static_assert((int)ncclInProgress == PP_NCCL_IN_PROGRESS, "nccl.h");
_Static_assert((int)ncclInt8 == PP_NCCL_INT8, "nccl.h");
_Static_assert((int)ncclFloat32 == PP_NCCL_FLOAT, "nccl.h");
_Static_assert((int)ncclSum == PP_NCCL_SUM, "nccl.h");
_Static_assert(NCCL_CONFIG_UNDEF_INT == PP_NCCL_UNDEFINED, "nccl.h");
#define SAME(ours, theirs)                                  \
    _Static_assert(offsetof(struct pp_nccl_config, ours) == \
                       offsetof(ncclConfig_t, theirs),      \
                   "nccl.h")
SAME(version, version);
SAME(blocking, blocking);
SAME(cga_cluster_size, cgaClusterSize);
SAME(max_ctas, maxCTAs);
SAME(net_name, netName);
SAME(split_share, splitShare);
#endif

static int find_functions(struct pp_nccl *n, struct pp_err *err)
{
    const struct {
        const char *name;
        void *at;
    } functions[] = {
        {"ncclGetVersion", &n->get_version},
        {"ncclGetUniqueId", &n->get_unique_id},
        {"ncclCommInitRankConfig", &n->init},
        {"ncclCommFinalize", &n->finalize},
        {"ncclCommDestroy", &n->destroy},
        {"ncclCommAbort", &n->abort},
        {"ncclCommGetAsyncError", &n->async_error},
        {"ncclGetErrorString", &n->error_text},
        {"ncclGetLastError", &n->last_error},
        {"ncclSend", &n->send},
        {"ncclRecv", &n->recv},
        {"ncclReduce", &n->reduce},
        {"ncclGroupStart", &n->group_start},
        {"ncclGroupEnd", &n->group_end},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(n->library, functions[i].name);
        if (!f)
            return pp_fail(err, PP_EXIT_SYSTEM,
                           "NCCL: the library has no function '%s'",
                           functions[i].name);
        *(void **)functions[i].at = f;
    }
    return 0;
}

int pp_nccl_open(const char *library, struct pp_nccl *n, struct pp_err *err)
{
    *n = (struct pp_nccl){0};
    /* It stays loaded, because threads of NCCL may still wait for ranks that
     * never come. */
    n->library = dlopen(library ? library : "libnccl.so.2",
                        RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!n->library)
        return pp_fail(err, PP_EXIT_SYSTEM, "NCCL: %s", dlerror());
    if (find_functions(n, err)) {
        pp_nccl_close(n);
        return -1;
    }
    int rc = n->get_version(&n->version);
    if (rc)
        pp_fail(err, PP_EXIT_SYSTEM, "NCCL: cannot get its version: %s",
                n->error_text(rc));
    else if (n->version < PP_NCCL_OLDEST)
        pp_fail(err, PP_EXIT_SYSTEM,
                "NCCL: version '%d.%d.%d' is too old; 2.18 is needed",
                n->version / 10000, n->version / 100 % 100, n->version % 100);
    else
        return 0;
    pp_nccl_close(n);
    return -1;
}

void pp_nccl_close(struct pp_nccl *n)
{
    if (n->library)
        dlclose(n->library);
    *n = (struct pp_nccl){0};
}
