/* SPDX-License-Identifier: MIT */
/* workloads - the sizes of microbatches, of which the costs of actions follow:
 * tokens and attended pairs, and as much for each encoder.
 *
 * The costs of an encoder's units are given per token and attended pair of the
 * language model, for the items that the plan assumed (model/vision.h). So its
 * items in the data are counted as the tokens and pairs with as many. */
#ifndef PP_MANIFEST_WORKLOADS_H
#define PP_MANIFEST_WORKLOADS_H

#include "base/modality.h"
#include "manifest/manifest.h"

/* The size of a microbatch, or of a slice of it. Units of an encoder take its
 * own tokens and pairs: those with as many items, on the rank that has most
 * rows, as the plan assumes. If its items are not counted they are the same. */
struct pp_workload {
    double tokens, pairs;
    struct {
        double tokens, pairs;
    } items[PP_MAX_ENCODERS];
};

/* Returns that of tokens and pairs with as many items as the plan assumes. */
struct pp_workload pp_workload_of(double tokens, double pairs);

/* Several of them. Those of an encoder whose items are not counted are NULL. */
struct pp_workloads {
    double *tokens, *pairs;
    struct {
        double *tokens, *pairs;
    } items[PP_MAX_ENCODERS];
};

struct pp_workload pp_workloads_at(const struct pp_workloads *l, size_t i);

/* Makes room for n of them, zeroed, with the items of so many encoders. */
int pp_workloads_init(struct pp_workloads *l, size_t n, size_t n_encoders,
                      struct pp_err *err) PP_MUST_USE;
void pp_workloads_finish(struct pp_workloads *l);

/* Returns whether the last component is a generator. */
bool pp_plan_generates(const struct pp_manifest *m);

/* Returns the number of the language model's component, the last one but for a
 * generator; 0 without components. */
size_t pp_plan_language(const struct pp_manifest *m);

/* Returns the encoders of the plan, the components before the language model,
 * up to PP_MAX_ENCODERS. */
size_t pp_plan_encoders(const struct pp_manifest *m);

/* Returns the encoder that has a unit; PP_MAX_ENCODERS: none has. */
size_t pp_plan_encoder_of(const struct pp_manifest *m, size_t unit);

/* Returns how many encoders have their items counted: all, if the plan says
 * which items its costs are for. */
size_t pp_plan_counted(const struct pp_manifest *m);

/* Returns what an encoder takes. Of two, the first takes images and the second
 * audio; one takes what the data have. */
enum pp_modality pp_plan_modality(const struct pp_manifest *m, size_t encoder,
                                  enum pp_modality of_data);

/* The items of an encoder in a sequence of the plan, and the rows of each. */
struct pp_plan_items {
    int64_t n, rows;
};
struct pp_plan_items pp_plan_items(const struct pp_manifest *m, size_t encoder);

/* Return the rows that make a feature. pp_plan_merge_any returns 0 if all items
 * have one size (pp_vision_merge_any). */
size_t pp_plan_merge(const struct pp_manifest *m, size_t encoder);
size_t pp_plan_merge_any(const struct pp_manifest *m, size_t encoder);

/* Returns the hidden states of an encoder that make a feature. */
size_t pp_plan_states(const struct pp_manifest *m, size_t encoder);

/* Returns the items that the plan assumed, and the ranks that divide them. */
struct pp_vision pp_plan_vision(const struct pp_manifest *m, size_t encoder);

/* Returns how many ranks divide the items of a bin if all bins are alike, and
 * sets how many bins one of them has the items of. */
size_t pp_plan_item_ranks(const struct pp_manifest *m, size_t encoder,
                          double *bins);

/* Sets what units of an encoder take for so many rows on the rank that has
 * most, and the sum of the squares of those of each item. They change nothing
 * if the plan has no items for the encoder. Windows and chunks count as whole
 * items do. */
void pp_workloads_set_items(struct pp_workloads *l, size_t i,
                            const struct pp_manifest *m, size_t encoder,
                            double rows, double squares);

#endif
