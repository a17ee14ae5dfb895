/* SPDX-License-Identifier: MIT */
/* ppsplit - one run of the program, from its options to the plan. The planning
 * itself is in lib/split. */
#ifndef PP_CMD_PPSPLIT_H
#define PP_CMD_PPSPLIT_H

#include "mesh/kinds.h"
#include "planner/planner.h"
#include "split/hybrid.h"
#include "split/torchtitan.h"

enum split_method {
    SPLIT_BALANCED,
    SPLIT_JOINT,
    SPLIT_UNIFORM,
    SPLIT_WEIGHTS,
    SPLIT_LAYERS,
    SPLIT_FQNS,
    SPLIT_LAYOUT,
    SPLIT_MEGATRON,
    SPLIT_PARAMETERS,
    SPLIT_TYPE,
    SPLIT_COLOSSALAI,
    SPLIT_COLOSSALAI_LEGACY,
    SPLIT_AUTOMODEL,
    SPLIT_UNIFORM_UNITS
};

/* Forms to print instead of a manifest. */
enum split_export {
    SPLIT_EXPORT_NONE,
    SPLIT_EXPORT_MEGATRON,
    SPLIT_EXPORT_TORCHTITAN,
    SPLIT_EXPORT_TORCHTITAN_OUTPUT,
    SPLIT_EXPORT_DEEPSPEED,
    SPLIT_EXPORT_FQNS
};

/* The options that planner.h does not have. 0 or NULL: not given. */
struct split_options {
    const char *units; /* a table of units instead of a model */
    int64_t tokens, sequences, global_batch;
    struct pp_item_counts
        items[PP_MAX_ENCODERS]; /* images, and clips of audio */
    int device;                 /* 1: cpu, 2: cuda */
    const char *freeze;         /* names of parts and units */
    struct pp_lora lora;        /* rank 0: no adapters */
    int64_t n_ranks, n_chunks, encoder_ranks;
    int64_t
        head_stages; /* that divide the head, beside n_chunks on each rank */
    /* Meshes of encoders. pp of encoders with ranks of their own adds up to
     * encoder_ranks. */
    struct split_encoder_mesh {
        const char *name; /* of the encoder; NULL: the only one */
        struct pp_mesh mesh;
        bool shared; /* on the language model's ranks */
    } meshes[PP_MAX_ENCODERS];
    size_t n_meshes;
    /* Or all encoders on the language model's ranks in another division:
     * mesh.encoder_tp, and the sizes as given. */
    struct pp_mesh shared;
    int zero; /* index of the word of --zero */
    enum pp_placement placement;
    const char *rank_speed, *costs_file, *kind;
    bool search_order; /* kind is auto */
    double flops;      /* operations a second */
    int64_t n_microbatches;
    enum pp_recompute recompute; /* one mode for all units */
    const char *recompute_list;  /* per stage */
    enum pp_recompute *sets;     /* that it names */
    size_t n_sets;
    bool recompute_auto, models;
    enum split_export export;
    const char *compare, *svg;          /* kinds; a file */
    const char *combine;                /* "vision=a.json,language=b.json" */
    const char *edges[PP_MAX_ENCODERS]; /* of --combine */
    size_t n_edges;
};

/* --method and the options of methods. */
struct split_rule {
    enum split_method method;
    bool has_method;
    const char *layers, *fqns, *layout, *pattern;
    const char *type;                    /* the regex of type:REGEX */
    const char *kinds;                   /* the list of joint:KINDS */
    int64_t input_weight, output_weight; /* -1: not given */
    int64_t layers_per_stage, first, last;
    int64_t encoder_layers; /* -1: not given */
    enum pp_stages_kind stages_kind;
    enum pp_stages_round round;
    bool account_embedding, account_loss;
};

struct split_job {
    struct planner p; /* the first member */
    struct split_options o;
    struct split_rule rule;

    /* The problem, made from the options. */
    struct pp_mesh encoders[PP_MAX_ENCODERS]; /* dp 0: no ranks of its own */
    int64_t undivided; /* the default length before it was rounded up, or 0 */
    bool given;        /* source is the source of manifests, which have the
                          split */
    uint64_t given_params;          /* and so many parameters */
    double *given_flops;            /* and operations of each unit in F for a
                                       token */
    size_t n_units, n_stages;       /* n_stages: of one copy of the weights */
    struct pp_profile profile;      /* of costs_file, a GPU or the given plan */
    double *speeds;                 /* read from rank_speed */
    enum pp_recompute *stage_modes; /* read from recompute_list */
    const char *symbols;            /* the layout, expanded */
    struct pp_hybrid hybrid;        /* read from pattern */
    size_t *bounds; /* the split, if the method is not balanced */

    struct pp_mesh_kinds kinds; /* of --compare and the method joint */
};

/* The most ranks, and the most stages. */
enum { SPLIT_MAX_RANKS = 65536 };

extern const struct tool_option split_options[];

extern const char *const split_method_names[];
extern const char *const split_export_names[];

/* Reads the command line and checks which options go together. Returns 0, or -1
 * if the run is over: help was printed, or j->p.t.err is filled. */
int split_read_options(struct split_job *j, int argc, char **argv) PP_MUST_USE;

/* Takes the split of a manifest, a file name or "-", for -t, --export and
 * --svg. */
int split_take_given(struct split_job *j, const char *name) PP_MUST_USE;

/* Finds the placement of a manifest's stages, and how many of the first ones
 * are of encoders on ranks of their own, in which case the others are so many
 * on each rank. Sets placement and n_chunks. */
int split_find_placement(struct split_job *j, const struct pp_manifest *m,
                         int *apart) PP_MUST_USE;

/* Takes the split of --combine: a component of each manifest, and its mesh. */
int split_combine(struct split_job *j) PP_MUST_USE;

/* Returns whether --combine names a generator. split_add_generator then prints
 * the plan that it joins. */
bool split_generates(const struct split_job *j);
int split_add_generator(struct split_job *j) PP_MUST_USE;

/* Counts the connector in the plan of a generator, whose document is left as it
 * is. */
int split_connect(struct split_job *j, const struct pp_manifest *language,
                  struct pp_manifest *g) PP_MUST_USE;

/* Reads a manifest with a model and stages, and no generator. hint: the end of
 * a message. */
int split_read_manifest(struct split_job *j, const char *name, const char *hint,
                        struct pp_manifest *m) PP_MUST_USE;

/* Takes the first mode of n stages for all if they have the same. */
void split_join_modes(struct split_job *j, size_t n);

/* Takes what the split was made for, unless options say otherwise: sizes of
 * sequences and images, schedule, types and the units that are not trained. */
void split_take_assumptions(struct split_job *j, const struct pp_manifest *m);

/* Checks the options of methods and placements. */
int split_check_methods(struct split_job *j) PP_MUST_USE;

/* Reads --costs into profile, --rank-speed into speeds, and a list of
 * --recompute into stage_modes. Each does nothing without its option. */
int split_read_costs(struct split_job *j) PP_MUST_USE;
/* Takes how uneven the work of experts is from the loads of a profile, and
 * scales the seconds of layers, which have the work of the fullest rank of the
 * run. */
int split_use_loads(struct split_job *j,
                    const struct pp_profile *p) PP_MUST_USE;
/* Finds how uneven the work of experts is in the given plan. */
void split_take_loads(struct split_job *j);
int split_read_speeds(struct split_job *j) PP_MUST_USE;
int split_read_modes(struct split_job *j) PP_MUST_USE;

/* Reads the layout, a string or a JSON list of lists, into symbols. */
int split_read_layout(struct split_job *j) PP_MUST_USE;

/* Reads --fqns, a JSON list of lists of names, into bounds. */
int split_read_fqns(struct split_job *j) PP_MUST_USE;

/* Reads --lora. */
int split_read_lora(struct tool *t, const struct tool_option *o,
                    const char *arg) PP_MUST_USE;

/* Sets the adapters of the model, and the roles of its units from --freeze and
 * --lora, for a model whose units are known. */
int split_set_roles(struct split_job *j) PP_MUST_USE;

/* Reads --edge into edges. */
int split_read_edge(struct tool *t, const struct tool_option *o,
                    const char *arg) PP_MUST_USE;

/* Reads --encoder-mesh into meshes. */
int split_read_encoder_mesh(struct tool *t, const struct tool_option *o,
                            const char *arg) PP_MUST_USE;

/* Reports whether the method or the export is for language models alone. */
bool split_needs_text(const struct split_job *j);

/* Sets the encoder's images in the model. Refuses options that only a language
 * model has, or only a model with an encoder. */
int split_set_images(struct split_job *j) PP_MUST_USE;

/* Sets n_chunks if -c does not but the method does, and the layers that have
 * experts if the configuration does not. */
int split_set_chunks(struct split_job *j) PP_MUST_USE;

/* Sets bounds by the method; NULL for balanced. */
int split_set_bounds(struct split_job *j) PP_MUST_USE;

/* Plans the best of the kinds and orders of the method joint, and adds its
 * order to a manifest, with what it was chosen from. */
int split_plan_joint(struct split_job *j) PP_MUST_USE;
int split_set_order(struct split_job *j, struct pp_arena *a,
                    struct pp_manifest *m) PP_MUST_USE;

/* Prints the kinds that were planned. */
void split_print_kinds(const struct split_job *j, FILE *f);

/* Compares kinds: prints a table, and draws a picture with --svg. */
int split_compare(struct split_job *j) PP_MUST_USE;

/* Draws cost and memory of the ranks to the file of --svg. */
int split_draw(struct split_job *j) PP_MUST_USE;

/* Sets the profile from the machine or --flops, for a mesh that is set. */
int split_set_seconds(struct split_job *j) PP_MUST_USE;

/* Prints the table for people. */
int split_print_table(const struct split_job *j, FILE *f,
                      struct pp_err *err) PP_MUST_USE;

/* Prints the plan in the form of another system, and notes the choices that the
 * form does not hold. */
int split_print_export(struct split_job *j, FILE *f,
                       struct pp_err *err) PP_MUST_USE;

/* Prints the models that are known, and the values of their configurations that
 * are refused. */
int split_print_models(struct split_job *j) PP_MUST_USE;

#endif
