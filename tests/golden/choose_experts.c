/* SPDX-License-Identifier: MIT */
/* choose_experts - writes a choice of experts by the rule of scripts/gen-routed
 * for packed data, as pprun --record-routing does.
 *
 * usage: choose_experts DIR EXPERTS LAYERS K FILE */
#include <stdio.h>
#include <stdlib.h>

#include "data/packed/packed.h"
#include "data/routes.h"

static uint16_t expert(const struct pp_routes_shape *s, size_t sequence,
                       size_t t, size_t layer, size_t j)
{
    return (uint16_t)((7 * sequence + 3 * t + t * t + 5 * layer + j) %
                      s->n_experts);
}

/* Writes the experts of a layer for every token of a bin. */
static int write_bin(const struct pp_routes_output *o, const struct pp_bin *b,
                     size_t layer, struct pp_err *err)
{
    const struct pp_routes_shape *s = &o->shape;
    for (uint32_t i = 0; i < b->n_sequences; i++) {
        size_t n = (size_t)(b->cu_seqlens[i + 1] - b->cu_seqlens[i]);
        for (size_t t = 0; t < n; t++) {
            uint16_t chosen[16];
            size_t at = (size_t)b->cu_seqlens_padded[i] + t;
            for (size_t j = 0; j < s->top_k; j++)
                chosen[j] = expert(s, b->source[i], b->start[i] + t, layer, j);
            if (pp_routes_write(
                    o,
                    pp_routes_place(s, b->first_position, b->tokens, layer, at),
                    chosen, s->top_k, err))
                return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct pp_packed p = {0};
    struct pp_routes_output o = {0};
    struct pp_err err = {0};
    if (argc != 6)
        return 2;
    int rc = pp_packed_open(argv[1], &p, &err);
    struct pp_routes_shape shape = {0};
    if (rc == 0)
        rc = pp_routes_of(&p, &shape, &err);
    if (rc == 0) {
        shape.n_experts = (uint32_t)atoi(argv[2]);
        shape.n_layers = (uint32_t)atoi(argv[3]);
        shape.top_k = (uint32_t)atoi(argv[4]);
        rc = pp_routes_create(&o, argv[5], &shape, &err);
    }
    for (size_t bin = 0; rc == 0 && bin < p.n_bins; bin++) {
        struct pp_bin b;
        pp_packed_bin(&p, bin, &b);
        for (size_t l = 0; rc == 0 && l < shape.n_layers; l++)
            rc = write_bin(&o, &b, l, &err);
    }
    if (rc == 0)
        rc = pp_routes_commit(&o, &err);
    if (rc)
        fprintf(stderr, "choose_experts: %s\n", err.text);
    pp_routes_abort(&o);
    pp_packed_finish(&p);
    return rc ? 1 : 0;
}
