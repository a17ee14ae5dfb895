/* SPDX-License-Identifier: MIT */
#include "run/execute/replay.h"

#include "run/execute/exec.h"

/* The real tokens of sequence i of the microbatch that a router sees: their
 * rows there, and the position of the first one in the bin. */
struct real_run {
    size_t row, n, position;
};

static struct real_run run_of(const struct pp_replay *r, size_t i)
{
    const struct pp_microbatch *mb = &r->rows->of;
    const struct pp_real_tokens real = {mb->n_sequences, mb->cu_seqlens,
                                        mb->cu_seqlens_padded, r->routed.begin};
    const struct pp_token_range at =
        pp_real_range(&real, i, r->routed.end - r->routed.begin);
    int32_t first = r->columns.cu_seqlens_padded[mb->sequence[i]];
    size_t n = at.end - at.begin, row = r->routed.begin + at.begin;
    return (struct real_run){at.begin, n,
                             n ? (size_t)(first + mb->positions[row]) : 0};
}

static size_t choice_at(const struct pp_replay *r,
                        const struct pp_routes_shape *s, size_t layer,
                        size_t position)
{
    return pp_routes_place(s, r->columns.first_position, r->columns.tokens,
                           layer, position);
}

static int give(void *ctx, size_t layer, int32_t *experts, struct pp_err *err)
{
    const struct pp_replay *r = ctx;
    const struct pp_routes *from = r->given;
    size_t K = from->shape.top_k;
    for (size_t i = 0; i < (r->routed.end - r->routed.begin) * K; i++)
        experts[i] = -1;
    for (size_t i = 0; i < r->rows->of.n_sequences; i++) {
        const struct real_run at = run_of(r, i);
        const uint16_t *e =
            from->experts + choice_at(r, &from->shape, layer, at.position);
        for (size_t k = 0; k < at.n * K; k++) {
            if (e[k] == PP_NO_EXPERT)
                return pp_fail(err, PP_EXIT_INPUT,
                               "%s: bin '%zu' has no experts for position %zu; "
                               "record a run that goes through all data",
                               from->path, r->bin, at.position + k / K);
            experts[at.row * K + k] = e[k];
        }
    }
    return 0;
}

/* Writes one run of rows, a part at a time. */
static int take_run(const struct pp_replay *r, const struct real_run *at,
                    size_t layer, const struct pp_routing *chosen,
                    struct pp_err *err)
{
    const struct pp_routes_output *to = r->taken;
    uint16_t part[512];
    enum { PART = sizeof part / sizeof *part };
    size_t K = to->shape.top_k, used = 0;
    size_t place = choice_at(r, &to->shape, layer, at->position);
    const int32_t *row = chosen->row + at->row * K;
    for (size_t k = 0; k < at->n * K; k++) {
        part[used++] = (uint16_t)chosen->expert[row[k]];
        if (used < PART && k + 1 < at->n * K)
            continue;
        if (pp_routes_write(to, place, part, used, err))
            return -1;
        place += used;
        used = 0;
    }
    return 0;
}

static int take(void *ctx, size_t layer, const struct pp_routing *chosen,
                struct pp_err *err)
{
    const struct pp_replay *r = ctx;
    for (size_t i = 0; i < r->rows->of.n_sequences; i++) {
        const struct real_run at = run_of(r, i);
        if (take_run(r, &at, layer, chosen, err))
            return -1;
    }
    return 0;
}

void pp_replay_attach(struct pp_replay *r, const struct pp_pass *p,
                      const struct pp_batch_part *part,
                      const struct pp_env *env, struct pp_host_microbatch *host)
{
    struct pp_microbatch *mb = &host->of;
    bool writes =
        pp_mesh_has_whole_experts(&env->shard.mesh) || env->place.tp == 0;
    if (part->bin == PP_NO_BIN || (!p->given && !p->taken))
        return;
    *r = (struct pp_replay){.given = p->given,
                            .taken = p->taken,
                            .bin = part->bin,
                            .rows = host,
                            .routed = pp_env_routed(env, mb->tokens)};
    pp_packed_bin(p->packed, part->bin, &r->columns);
    mb->experts.given = p->given ? give : NULL;
    mb->experts.chosen = p->taken && writes ? take : NULL;
    mb->experts.ctx = r;
}
