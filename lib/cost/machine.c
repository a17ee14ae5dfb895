/* SPDX-License-Identifier: MIT */
#include "cost/machine.h"

#include <math.h>
#include <string.h>

#define MIB 1048576.0
/* The context of CUDA and its libraries take about 1 GiB of a GPU's memory, the
 * buffers of communicators as much. */
#define RESERVE (2048 * MIB)
#define MEMORY(mib) ((mib)*MIB - RESERVE)

/* The start of a collective or message, and a hop over NVLink, PCIe and a
 * network (NCCL's tuning.cc, protocol Simple). */
#define START 8.4e-6
#define NVLINK(size, gb)       \
    {                          \
        size, (gb)*1e9, 3.4e-6 \
    }
#define PCIE(size, gb)         \
    {                          \
        size, (gb)*1e9, 5.7e-6 \
    }
#define NETWORK(gb)        \
    {                      \
        0, (gb)*1e9, 14e-6 \
    }

/* Peaks and bandwidths of memory are those of data sheets: NVIDIA A100 (2021),
 * H100 and H200 (2024), DGX B200 and B300, GB200, H20, L40S (2023), RTX PRO
 * 6000 Blackwell; AMD Instinct MI300X, MI325X and MI355X. Those that state
 * products with sparsity are halved. Memory is what nvidia-smi shows, or the
 * data sheet for AMD, less a reserve. Links of a node are the bandwidth of
 * rings in published runs of nccl-tests (NVIDIA nccl issues 212, 1374, 1442,
 * 1639; Azure AI benchmarking guide; S. Bekman, "Machine Learning
 * Engineering"), and a card of 400 Gbit/s reaches 48 GB/s. */
const struct pp_machine pp_machines[] = {
    {"a100",
     312e12,
     19.5e12,
     9.7e12,
     0.869,
     MEMORY(81920),
     2.039e12,
     {NVLINK(8, 230), NETWORK(24)},
     2},
    {"a100-40",
     312e12,
     19.5e12,
     9.7e12,
     0.869,
     MEMORY(40960),
     1.555e12,
     {NVLINK(8, 230), NETWORK(24)},
     2},
    {"h100",
     989.4e12,
     67e12,
     34e12,
     0.803,
     MEMORY(81559),
     3.35e12,
     {NVLINK(8, 365), NETWORK(48)},
     2},
    {"h100-pcie",
     756e12,
     51e12,
     26e12,
     0.75,
     MEMORY(81559),
     2e12,
     {PCIE(8, 40), NETWORK(24)},
     2},
    {"h200",
     989.4e12,
     67e12,
     34e12,
     0.803,
     MEMORY(143771),
     4.8e12,
     {NVLINK(8, 365), NETWORK(48)},
     2},
    {"h800",
     989.4e12,
     67e12,
     34e12,
     0.803,
     MEMORY(81559),
     3.35e12,
     {NVLINK(8, 165), NETWORK(48)},
     2},
    {"h20",
     148e12,
     44e12,
     1e12,
     0.8,
     MEMORY(97871),
     4e12,
     {NVLINK(8, 365), NETWORK(48)},
     2},
    {"b200",
     2250e12,
     75e12,
     37e12,
     0.776,
     MEMORY(183359),
     8e12,
     {NVLINK(8, 675), NETWORK(48)},
     2},
    {"b300",
     2250e12,
     75e12,
     1.2e12,
     0.786,
     MEMORY(275040),
     8e12,
     {NVLINK(8, 675), NETWORK(96)},
     2},
    {"gb200",
     2500e12,
     80e12,
     40e12,
     0.729,
     MEMORY(189471),
     8e12,
     {NVLINK(72, 680), NETWORK(48)},
     2},
    {"l40s",
     362e12,
     91.6e12,
     1.4e12,
     0.75,
     MEMORY(46068),
     864e9,
     {PCIE(8, 28), NETWORK(24)},
     2},
    {"rtx-pro-6000",
     504e12,
     125e12,
     1.9e12,
     0.75,
     MEMORY(97887),
     1.6e12,
     {PCIE(8, 28), NETWORK(24)},
     2},
    {"mi300x",
     1307.4e12,
     163.4e12,
     81.7e12,
     0.514,
     MEMORY(196608),
     5.3e12,
     {NVLINK(8, 313), NETWORK(48)},
     2},
    {"mi325x",
     1307.4e12,
     163.4e12,
     81.7e12,
     0.604,
     MEMORY(262144),
     6e12,
     {NVLINK(8, 313), NETWORK(48)},
     2},
    {"mi355x",
     2500e12,
     157.3e12,
     78.6e12,
     0.626,
     MEMORY(294912),
     8e12,
     {NVLINK(8, 374), NETWORK(48)},
     2},
    {NULL, 0, 0, 0, 0, 0, 0, {{0, 0, 0}}, 0},
};

void pp_machine_names(const char *names[])
{
    size_t n = 0;
    for (; pp_machines[n].gpu; n++)
        names[n] = pp_machines[n].gpu;
    names[n] = NULL;
}

const struct pp_machine *pp_machine_find(const char *name)
{
    const struct pp_machine *m = pp_machines;
    while (m->gpu && strcmp(m->gpu, name))
        m++;
    return m->gpu ? m : NULL;
}

double pp_machine_peak(const struct pp_machine *m, const char *dtype)
{
    return !strcmp(dtype, "bf16")   ? m->bf16
           : !strcmp(dtype, "fp64") ? m->fp64
                                    : m->fp32;
}

/* Returns the number of the domain of a level that has a rank. */
static int64_t domain_of(const struct pp_machine_level *l, int rank)
{
    return l->size ? rank / l->size : 0;
}

struct pp_link pp_machine_message(const struct pp_machine *m, int from, int to)
{
    const struct pp_machine_level *l = m->levels, *end = l + m->n_levels;
    if (from == to)
        return (struct pp_link){0, 0};
    while (l < end && domain_of(l, from) != domain_of(l, to))
        l++;
    return l < end ? (struct pp_link){START + l->latency, 1 / l->bandwidth}
                   : (struct pp_link){0, 0};
}

struct pp_link pp_machine_rows(const struct pp_machine *m,
                               const struct pp_layout *l, int from, int to)
{
    struct pp_link slowest = {0, 0};
    struct pp_place p = {.component = pp_layout_component(l, from),
                         .row = from};
    const struct pp_group row = pp_layout_group(l, &p, PP_GROUP_ROW);
    for (int i = 0; i < row.n && m->n_levels; i++) {
        int rank = pp_group_rank(&row, i);
        pp_layout_find(l, rank, &p);
        const struct pp_group partners = pp_layout_partners(l, &p, to);
        for (int k = 0; k < partners.n; k++)
            slowest = pp_link_slower(
                slowest,
                pp_machine_message(m, rank, pp_group_rank(&partners, k)));
    }
    return slowest;
}

/* A group in a level: the domains with a member, and the members of the domain
 * that has most. */
struct pp_group_span {
    int domains, members;
};

/* Returns the group with its ranks ascending, if it has all of its axes: then
 * their order does not matter. */
static struct pp_group ascending(struct pp_group g)
{
    if (g.step != 1 || g.n != g.size[0] * g.size[1] * g.size[2])
        return g;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < 2; k++)
            if (g.stride[k] > g.stride[k + 1]) {
                int size = g.size[k], stride = g.stride[k];
                g.size[k] = g.size[k + 1];
                g.stride[k] = g.stride[k + 1];
                g.size[k + 1] = size;
                g.stride[k + 1] = stride;
            }
    return g;
}

static struct pp_group_span span_of(const struct pp_machine_level *l,
                                    const struct pp_group *of)
{
    struct pp_group_span s = {0, 0};
    const struct pp_group g = ascending(*of);
    int64_t last = -1;
    for (int i = 0, n = 0; i < g.n; i++) {
        int64_t domain = domain_of(l, pp_group_rank(&g, i));
        n = domain == last ? n + 1 : 1;
        s.domains += domain != last;
        s.members = n > s.members ? n : s.members;
        last = domain;
    }
    return s;
}

struct pp_link pp_machine_ring(const struct pp_machine *m,
                               const struct pp_group *g)
{
    struct pp_link x = {START, 0};
    struct pp_group_span below = {g->n, 1};
    if (g->n < 2 || m->n_levels == 0)
        return (struct pp_link){0, 0};
    for (size_t k = 0; k < m->n_levels && below.domains > 1; k++) {
        const struct pp_machine_level *l = &m->levels[k];
        const struct pp_group_span s = span_of(l, g);
        if (s.domains < below.domains)
            x.per_byte = fmax(x.per_byte, 1 / (l->bandwidth * below.members));
        x.seconds += (below.domains - s.domains) * l->latency;
        below = s;
    }
    return x;
}

struct pp_link pp_machine_all_to_all(const struct pp_machine *m,
                                     const struct pp_group *g)
{
    struct pp_link x = {START, 0};
    int below = 1;
    if (g->n < 2 || m->n_levels == 0)
        return (struct pp_link){0, 0};
    for (size_t k = 0; k < m->n_levels && below < g->n; k++) {
        const struct pp_machine_level *l = &m->levels[k];
        int members = span_of(l, g).members;
        /* The port of a network has all that leaves the levels below; links of
         * the lowest level have what stays in it. */
        double away = k == 0 ? members - 1 : g->n - below;
        x.per_byte = fmax(x.per_byte, away / g->n / l->bandwidth);
        if (members > below)
            x.seconds = fmax(x.seconds, START + l->latency);
        below = members;
    }
    return x;
}
