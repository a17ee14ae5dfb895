/* SPDX-License-Identifier: MIT */
/* replay - gives the routers of a microbatch the experts that a file has, or
 * writes the experts that they chose to a file. Positions of the bin are the
 * key, so that the ranks and slices that have them do not matter. */
#ifndef PP_RUN_EXECUTE_REPLAY_H
#define PP_RUN_EXECUTE_REPLAY_H

#include <stdbool.h>

#include "data/routes.h"
#include "run/execute/batch.h"

/* All is borrowed. */
struct pp_replay {
    const struct pp_routes *given;        /* or NULL */
    const struct pp_routes_output *taken; /* or NULL */
    size_t bin;
    struct pp_bin columns; /* of it */
    const struct pp_host_microbatch *rows;
    struct pp_token_range routed; /* of the rows that a router sees */
};

struct pp_pass;

/* If the pass replays or records, makes *r the source or the sink of *host, the
 * rows of a part, on a rank whose routers see some of them. Of
 * the ranks whose routers see the same rows only one writes. The forward fails
 * with PP_EXIT_INPUT if a token has no experts. */
void pp_replay_attach(struct pp_replay *r, const struct pp_pass *p,
                      const struct pp_batch_part *part,
                      const struct pp_env *env,
                      struct pp_host_microbatch *host);

#endif
