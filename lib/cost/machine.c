/* SPDX-License-Identifier: MIT */
#include "cost/machine.h"

#include <math.h>
#include <string.h>

#define MIB 1048576.0
/* The context of CUDA and its libraries take about 1 GiB of a GPU's memory, the
 * buffers of communicators as much. */
#define RESERVE (2048 * MIB)

/* The start of a collective or message, and a hop over NVLink, PCIe and a
 * network (NCCL's tuning.cc, protocol Simple). Over NVLink 5 a hop is what
 * SimuMax measured on eight B200: an all-gather of all takes 87 us and the time
 * of its bytes, a reduce-scatter 82 us. */
#define START 8.4e-6
#define NVLINK 3.4e-6
#define NVLINK5 11e-6
#define PCIE 5.7e-6
#define NETWORK 14e-6

/* Peaks in T/s, the share of large products, memory in MiB and the TB/s that
 * copies in it reach, and the GB/s of a rank over the `hop` to others of its
 * node and through its card.
 */
#define GPU(name, bf16, fp32, fp64, share, mib, memory, size, near, hop, card) \
    {                                                                          \
        name, bf16##e12, fp32##e12, fp64##e12, share, (mib)*MIB - RESERVE,     \
            memory##e12, {{size, near##e9, hop}, {0, card##e9, NETWORK}}, 2    \
    }

/* Peaks are from data sheets: NVIDIA A100 (2021), H100 and H200 (2024), DGX
 * B200 and B300, GB200, GB300, H20, L40S (2023), RTX PRO 6000 Blackwell; AMD
 * Instinct MI300X, MI325X and MI355X. Peaks of products with sparsity are
 * halved. Memory is what nvidia-smi shows, or the data sheet for AMD and GB300,
 * less a reserve. Copies reach what the Azure AI benchmarking guide measured on
 * A100, H100 and H200 and SimuMax on B200, .79 to .87 and .67 of the data
 * sheet; B300, GB200 and GB300 are taken for a B200, the others for .85. Links
 * of a node are the bandwidth of rings in published runs of nccl-tests (NVIDIA
 * nccl issues 212, 1374, 1442, 1639; Azure AI benchmarking guide; S. Bekman,
 * "Machine Learning Engineering"), and a card of 400 Gbit/s reaches 48 GB/s.
 * The share is that of products in training: SimuMax's medians of 183 shapes on
 * an A100 and of 514 on a B200, .718 and .485, over what its shapes take of it;
 * B300, GB200 and GB300 have as much of their best product as a B200, AMD the
 * best product that Bekman found; the others are assumed. */
const struct pp_machine pp_machines[] = {
    GPU("a100", 312, 19.5, 9.7, .78, 81920, 1.61, 8, 230, NVLINK, 24),
    GPU("a100-40", 312, 19.5, 9.7, .78, 40960, 1.23, 8, 230, NVLINK, 24),
    GPU("h100", 989.4, 67, 34, .65, 81559, 2.9, 8, 365, NVLINK, 48),
    GPU("h100-pcie", 756, 51, 26, .65, 81559, 1.7, 8, 40, PCIE, 24),
    GPU("h200", 989.4, 67, 34, .65, 143771, 4.01, 8, 365, NVLINK, 48),
    GPU("h800", 989.4, 67, 34, .65, 81559, 2.9, 8, 165, NVLINK, 48),
    GPU("h20", 148, 44, 1, .8, 97871, 3.4, 8, 365, NVLINK, 48),
    GPU("b200", 2250, 75, 37, .53, 183359, 5.36, 8, 675, NVLINK5, 48),
    GPU("b300", 2250, 75, 1.2, .54, 275040, 5.36, 8, 675, NVLINK5, 96),
    GPU("gb200", 2500, 80, 40, .5, 189471, 5.36, 72, 680, NVLINK5, 48),
    GPU("gb300", 2500, 80, 1.3, .5, 266075, 5.36, 72, 680, NVLINK5, 96),
    GPU("l40s", 362, 91.6, 1.4, .65, 46068, .73, 8, 28, PCIE, 24),
    GPU("rtx-pro-6000", 504, 125, 1.9, .65, 97887, 1.36, 8, 28, PCIE, 24),
    GPU("mi300x", 1307.4, 163.4, 81.7, .514, 196608, 4.5, 8, 313, NVLINK, 48),
    GPU("mi325x", 1307.4, 163.4, 81.7, .604, 262144, 5.1, 8, 313, NVLINK, 48),
    GPU("mi355x", 2500, 157.3, 78.6, .626, 294912, 6.8, 8, 374, NVLINK, 48),
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
    return !strncmp(dtype, "bf16", 4) ? m->bf16
           : !strcmp(dtype, "fp64")   ? m->fp64
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
