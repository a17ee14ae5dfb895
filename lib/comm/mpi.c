/* SPDX-License-Identifier: MIT */
#include "comm/mpi.h"

#include <dlfcn.h>

int pp_mpi_open(const char *module, const struct pp_mpi **out,
                struct pp_err *err)
{
    /* Parts of Open MPI's own look for its symbols among the program's. Nor is
     * it unloaded: its threads may still be there. */
    void *library = dlopen(module, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!library)
        return pp_fail(err, PP_EXIT_SYSTEM, "MPI: %s", dlerror());
    const struct pp_mpi *m = dlsym(library, PP_MPI_SYMBOL);
    int abi = m ? m->abi : 0;
    dlclose(library);
    if (!m)
        return pp_fail(err, PP_EXIT_SYSTEM, "MPI: '%s' is no module of pprun",
                       module);
    if (abi != PP_MPI_ABI)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "MPI: '%s' is of version '%d', and this pprun needs %d: "
                       "build it anew",
                       module, abi, PP_MPI_ABI);
    *out = m;
    return 0;
}
