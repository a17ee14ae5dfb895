/* SPDX-License-Identifier: MIT */
/* test_pack_alloc - fails the nth allocation, for every n, while documents are
 * read, packed, written and checked. The status must be 3, and nothing may be
 * left on the disk. AddressSanitizer finds leaks.
 *
 * The linker's --wrap redirects the calls of libpp to this file. */
#include <dirent.h>

#include "data/readers.h"
#include "data/packed.h"
#include "pack/pack_patterns.h"
#include "scratch.h"
#include "tap.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

/* Allocations that still succeed; all of them if negative. */
static struct {
    long until;
} heap = {-1};

static bool refuse(void)
{
    if (heap.until == 0)
        return true;
    heap.until -= heap.until > 0;
    return false;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

static char text[] = "{\"input_ids\":[1,2,3,4,5,6,7]}\n"
                     "{\"input_ids\":[1,2,3],\"labels\":[4,5,6]}\n"
                     "{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2,3]}\n"
                     "{\"input_ids\":[9,2],\"images\":[[[[0.5]]]]}\n";

struct work {
    FILE *in;
    const char *dir, *rule;
    struct pp_documents docs;
    struct pp_pieces pieces;
    struct pp_bins bins;
    struct pp_packed packed;
};

/* Raises the number of bins in the way of the rule. */
static int raise_bins(struct work *w, struct pp_err *err)
{
    return strcmp(w->rule, "next-fit")
               ? pp_bins_multiple(&w->bins, w->pieces.padded, 4, 0, 5, err)
               : pp_bins_multiple_by_popping(&w->bins, 5, 1, err);
}

static int pack_two(const struct work *w, struct pp_err *err)
{
    const struct pp_pack_size sizes[] = {
        {w->pieces.padded, 4}, {w->pieces.rows[PP_MODALITY_IMAGES], 1}};
    struct pp_bins bins;
    if (pp_pack_sizes(sizes, 2, w->pieces.n, &bins, err) != 0)
        return -1;
    pp_bins_finish(&bins);
    return 0;
}

/* Reads the images again: into memory, and as documents. */
static int read_again(const struct work *w, struct pp_err *err)
{
    struct pp_packed taken;
    struct pp_documents again = {0};
    if (pp_packed_take(&w->packed, w->packed.n_bins, &taken, err) != 0)
        return -1;
    pp_packed_finish(&taken);
    int rc = pp_packed_documents(&w->packed, &again, err);
    pp_documents_finish(&again);
    return rc;
}

static int balance(struct work *w, struct pp_err *err)
{
    uint64_t cost[16];
    for (size_t i = 0; i < w->pieces.n; i++)
        cost[i] = i + 1;
    if (pp_bins_balance(&w->bins, w->pieces.padded, cost, 4, NULL, 0, 0, err) !=
        0)
        return -1;
    return pp_bins_deal(&w->bins, cost, 1, w->bins.n_bins, err);
}

static int pack(struct work *w, struct pp_err *err)
{
    const struct pp_jsonl_stream images = {9, 1, 1, false};
    struct pp_jsonl j = {.name = "in", .streams = {&images}};
    size_t bound;
    if (pp_jsonl_read(&j, w->in, &w->docs, err) != 0 ||
        pp_pieces_make(
            &w->docs,
            &(struct pp_piece_options){
                .capacity = 4, .align = 2, .oversize = PP_OVERSIZE_SPLIT},
            &w->pieces, err) != 0 ||
        pack_two(w, err) != 0 ||
        pp_packer_find(w->rule)->pack(w->pieces.padded, w->pieces.n, 4,
                                      &w->bins, err) != 0 ||
        raise_bins(w, err) != 0 || balance(w, err) != 0 ||
        pp_bins_shuffle(&w->bins, 1, err) != 0 ||
        pp_pack_lower_bound(w->pieces.padded, w->pieces.n, 4, &bound, err) != 0)
        return -1;
    struct pp_packed_content c = {.ids = w->docs.ids,
                                  .labels = w->docs.labels,
                                  .pieces = w->pieces.piece,
                                  .n_bins = w->bins.n_bins,
                                  .first = w->bins.first,
                                  .items = w->bins.items,
                                  .n_inputs = w->docs.n,
                                  .capacity = 4,
                                  .align = 2,
                                  .docs = &w->docs,
                                  .counts = w->pieces.counts};
    if (pp_packed_write(w->dir, &c, err) != 0 ||
        pp_packed_open(w->dir, &w->packed, err) != 0)
        return -1;
    return pp_packed_check(&w->packed, err) ? -1 : read_again(w, err);
}

static int try(const char *dir, const char *rule, long until,
               struct pp_err *err)
{
    struct work w = {.dir = dir, .rule = rule};
    w.in = fmemopen(text, sizeof text - 1, "r");
    *err = (struct pp_err){0};
    heap.until = until;
    int rc = pack(&w, err);
    heap.until = -1;
    pp_packed_finish(&w.packed);
    pp_bins_finish(&w.bins);
    pp_pieces_finish(&w.pieces);
    pp_documents_finish(&w.docs);
    fclose(w.in);
    return rc;
}

/* Fails allocations of the linear program. No rule has as few bins, so that it
 * also dives. */
static int try_patterns(long until, struct pp_err *err)
{
    static const uint32_t lengths[] = {370, 330, 300, 410, 310, 280,
                                       450, 290, 260, 350, 340, 310};
    enum { N = sizeof lengths / sizeof *lengths };
    struct pp_bins b;
    size_t bound = 4;
    *err = (struct pp_err){0};
    if (pp_pack_none(lengths, N, 1, &b, err) != 0)
        return -1;
    heap.until = until;
    int rc = pp_pack_by_patterns(lengths, N, 1000, N, &bound, &b, err);
    heap.until = -1;
    if (rc == 0)
        is_int((long long)b.n_bins, 4, "the program finds four bins");
    pp_bins_finish(&b);
    return rc;
}

/* Returns true if the directory has more than "packed". */
static bool has_leftovers(const char *base)
{
    bool found = false;
    DIR *d = opendir(base);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        found |= e->d_name[0] != '.' && strcmp(e->d_name, "packed") != 0;
    if (d)
        closedir(d);
    return found;
}

int main(void)
{
    char base[SCRATCH_TEXT], dir[64];
    scratch_make(base);
    snprintf(dir, sizeof dir, "%s/packed", base);
    for (const struct pp_packer *p = pp_packers; p->name; p++) {
        struct pp_err err;
        long n = 0, wrong = 0, left = 0;
        for (; try(dir, p->name, n, &err) != 0 && n < 1000; n++) {
            wrong += err.code != PP_EXIT_SYSTEM;
            left += has_leftovers(base);
        }
        ok(n > 20 && n < 1000, "%s: %ld allocations", p->name, n);
        is_int(wrong, 0, "a failed one is the machine's fault");
        is_int(left, 0, "nothing half-written is left");
    }
    struct pp_err err;
    long n = 0, wrong = 0;
    for (; try_patterns(n, &err) != 0 && n < 1000; n++)
        wrong += err.code != PP_EXIT_SYSTEM;
    ok(n > 20 && !wrong, "the linear program: %ld allocations", n);
    scratch_remove(base);
    return done();
}
