/* SPDX-License-Identifier: MIT */
/* plan - the units of a model with their costs, in stages on the ranks of a
 * mesh. Pure.
 *
 * lib/manifest reads and writes plans as documents. The other files of this
 * folder compute what the actions of a plan take. */
#ifndef PP_COST_PLAN_H
#define PP_COST_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/modality.h"
#include "cost/machine.h"
#include "model/cost.h"
#include "model/layout.h"
#include "model/lora.h"
#include "model/mesh.h"
#include "model/profile.h"
#include "model/unit_bytes.h"
#include "schedule/ir/graph.h"

/* Costs of a unit in a stage that recomputes. */
struct pp_plan_mode {
    enum pp_recompute recompute; /* none: this is no mode */
    double recompute_flops[2];   /* added to the cost of I; see pp_unit_costs */
    double act_bytes[PP_N_SAVED_BLOCKS];
    double workspace_bytes; /* per token, within one F, I or B */
};

/* The sets of recomputation that the stages of a plan have at most. */
enum { PP_MOST_MODES = 8 };

/* Costs and sizes of one unit, as coefficients. */
struct pp_plan_unit {
    const char *fqn;
    struct pp_unit_costs costs;
    double state_bytes;  /* weights, gradients and optimizer of one rank, if the
                            model has has_state */
    double weight_bytes; /* the weights among them; 0: unknown */
    double mapped_bytes; /* of files that a rank reads in place, beside them */
    enum pp_role role;   /* a frozen unit is not trained */
    double frozen_flops; /* of fwd_flops: W lacks them (pp_flops) */
    struct pp_workspace workspace; /* for each row of a rank; without what a
                                      mode recomputes */
    /* The modes that stages use, in rising order of their bits. */
    struct pp_plan_mode modes[PP_MOST_MODES];
};

/* Adapters, if there are any. */
struct pp_plan_lora {
    bool there;
    struct pp_lora of;
};

struct pp_plan_model {
    const char *source; /* path of the model directory or config.json */
    const char *architecture;
    const char *dtype;   /* byte counts assume it: "fp32" */
    bool gpu;            /* byte counts assume a GPU, not the CPU */
    const char *trainer; /* bytes and times assume it (trainer.h); NULL: pprun
                          */
    int estimated;       /* enum pp_estimated */
    bool tied;
    const char *ahead; /* the unit of the layer for multi-token
                          prediction, the first after the norm; NULL:
                          there is none */
    bool has_state;    /* units have state_bytes */
    uint64_t params;   /* tied ones count once */
    bool has_frozen;   /* some units are frozen */
    struct pp_plan_lora lora;
    size_t image_merge;       /* patches of a feature of images of any size; 0:
                                 all have one size, and a patch is a feature */
    bool class_feature;       /* an image has one more, of a class token */
    size_t feature_layers;    /* hidden states that make a feature; 0: 1 */
    size_t n_tensors, rotary; /* what the tables of a rank depend on; 0 if they
                                 are not known */
    size_t widened; /* elements that a product reads of mapped weights at a
                       time; 0: nothing is mapped */
    struct pp_plan_unit *units;
    size_t n_units;
};

/* One stage: units first_unit .. first_unit + n_units - 1 of the model. The
 * sums are over its units, under its recomputation. rank and inputs are in the
 * graph. */
struct pp_plan_stage {
    size_t first_unit, n_units;
    enum pp_recompute recompute;
    struct pp_unit_costs costs; /* out_bytes: of the last unit; of an empty
                                   stage's input */
    double recompute_flops[2];
    double workspace_bytes; /* the largest of its units' */
    double state_bytes;     /* if the model has has_state */
    double fixed_bytes; /* that another trainer holds whatever the rank computes
                         */
};

/* Returns the costs of a unit that a set changes, or NULL. */
const struct pp_plan_mode *pp_plan_mode(const struct pp_plan_unit *u,
                                        enum pp_recompute r);

/* Returns the activations that a unit saves under a set, by block. */
const double *pp_plan_act_bytes(const struct pp_plan_unit *u,
                                enum pp_recompute r);

/* Adds the costs of u to the sums of a stage whose recompute is set. */
void pp_plan_stage_add(struct pp_plan_stage *s, const struct pp_plan_unit *u);

/* A component of a model that has several, such as an image encoder: n_units of
 * the model's units from first_unit on, and their ranks. Components may share
 * ranks. If they are apart, each has a mesh of its own on ranks of its own from
 * first_rank on; else they have the plan's. A generator is the last one and a
 * model of its own. */
struct pp_component {
    const char *name;
    size_t first_unit, n_units;
    int rank_offset, n_ranks; /* pipeline ranks: rows of the schedule */
    bool apart;
    struct pp_mesh mesh;
    int first_rank;
    const char *source; /* of a generator: the path of its model; else NULL */
    const char *behind; /* the language model, which it reads; else NULL */
};

/* The packed data that a plan is for. */
struct pp_plan_data {
    const char *path;
    uint64_t checksum;
    uint64_t n_bins, n_sequences;
    uint32_t capacity, align, max_tokens;
    /* For each encoder: the most items of a bin, and the most rows of them on a
     * rank; 0 rows if all items have the size that the plan assumes. */
    struct {
        uint32_t n, rows;
    } items[PP_MAX_ENCODERS];
};

/* A plan. All members are borrowed. */
struct pp_plan {
    const struct pp_plan_model *model;
    const struct pp_profile *profile; /* NULL: times are unknown */
    const struct pp_machine *machine; /* has the times of messages, if it has
                                         levels; NULL: the profile has them */
    const struct pp_default_microbatch
        *microbatch; /* zeroed: none is assumed */
    const struct pp_mesh *mesh;
    const struct pp_graph *graph;
    const struct pp_plan_stage *stages; /* graph->n_stages */
    const struct pp_component *components;
    size_t n_components; /* 0 if the model is not divided */
};

/* Returns the places of all ranks: of the components if they are apart, else of
 * the mesh. An encoder without ranks of its own is on the ranks of the language
 * model. */
struct pp_layout pp_plan_layout(struct pp_plan p);

/* Returns whether the last component is a generator. */
bool pp_plan_generates(struct pp_plan p);

/* Returns the number of the language model's component, the last one but for a
 * generator; 0 without components. */
size_t pp_plan_language(struct pp_plan p);

/* Returns the encoders of the plan, the components before the language model,
 * up to PP_MAX_ENCODERS. */
size_t pp_plan_encoders(struct pp_plan p);

/* Returns the encoder that has a unit; PP_MAX_ENCODERS: none has. */
size_t pp_plan_encoder_of(struct pp_plan p, size_t unit);

/* Returns how many encoders have their items counted: all, if the plan says
 * which items its costs are for. */
size_t pp_plan_counted(struct pp_plan p);

/* Returns what an encoder takes. Of two, the first takes images and the second
 * audio; one takes what the data have. */
enum pp_modality pp_plan_modality(struct pp_plan p, size_t encoder,
                                  enum pp_modality of_data);

/* Return the rows that make a feature. pp_plan_merge_any returns 0 if all items
 * have one size (pp_vision_merge_any). */
size_t pp_plan_merge(struct pp_plan p, size_t encoder);
size_t pp_plan_merge_any(struct pp_plan p, size_t encoder);

/* Returns the hidden states of an encoder that make a feature. */
size_t pp_plan_states(struct pp_plan p, size_t encoder);

/* Returns the items that the plan assumed, and the ranks that divide them. */
struct pp_image_load pp_plan_images(struct pp_plan p, size_t encoder);

/* Returns how many ranks divide the items of a bin if all bins are alike, and
 * sets how many bins one of them has the items of. */
size_t pp_plan_item_ranks(struct pp_plan p, size_t encoder, double *bins);

#endif
