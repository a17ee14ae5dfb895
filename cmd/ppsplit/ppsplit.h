/* SPDX-License-Identifier: MIT */
/* ppsplit - one run of the program, from its options to the plan. The planning
 * itself is in lib/split. */
#ifndef PP_CMD_PPSPLIT_H
#define PP_CMD_PPSPLIT_H

#include <stdint.h>

#include "manifest/manifest.h"
#include "split/split_hybrid.h"
#include "split/split_joint.h"
#include "split/split_plan.h"
#include "split/split_torchtitan.h"
#include "tool.h"

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

struct split_job {
    struct tool t;
    /* Options. 0 or NULL: not given, unless a comment says otherwise. */
    const char *source, *units; /* source: the model, or units */
    int64_t seq_len, tokens, n_images, image_patches, n_clips, clip_rows;
    int64_t undivided; /* the default length before it was rounded up, or 0 */
    const struct pp_precision *precision;
    int device; /* 1: cpu, 2: cuda */
    bool mtp;
    const char *moe_layer_freq;
    const char *freeze;  /* names of parts and units */
    struct pp_lora lora; /* rank 0: no adapters */
    int64_t n_ranks, n_chunks, encoder_ranks;
    struct pp_mesh mesh; /* pp is n_ranks */
    /* Encoders with meshes and ranks of their own, by --encoder-mesh; their pp
     * add up to encoder_ranks. dp 0: an encoder has none. */
    struct pp_mesh encoders[PP_MAX_ENCODERS];
    struct split_encoder_mesh {
        const char *name; /* of the encoder; NULL: the only one */
        struct pp_mesh mesh;
        bool shared;           /* on the language model's ranks */
    } meshes[PP_MAX_ENCODERS]; /* as given */
    size_t n_meshes;
    /* Or all of them on the language model's ranks in another division:
     * mesh.encoder_tp, and the sizes as given. */
    struct pp_mesh shared;
    int zero; /* index of the word of --zero */
    enum pp_placement placement;
    const char *rank_speed, *costs_file, *kind;
    const char *trainer_name; /* of the option */
    const struct pp_trainer *trainer;
    const char *gpu, *machine_file; /* gpu: a name of pp_machines */
    double flops;                   /* operations a second; 0: unknown */
    double link[2];    /* bytes a second, in a node and between nodes */
    int64_t node;      /* ranks of a node */
    bool search_order; /* kind is auto */
    int64_t n_microbatches;
    size_t memory_bytes;
    int objective;               /* enum pp_objective_number */
    enum pp_recompute recompute; /* one mode for all units */
    const char *recompute_list;  /* per stage */
    bool recompute_auto;
    enum split_method method;
    bool has_method;
    const char *layers, *fqns, *layout, *pattern;
    const char *type;                    /* the regex of type:REGEX */
    int64_t input_weight, output_weight; /* -1: not given */
    int64_t layers_per_stage, first, last;
    int64_t encoder_layers; /* -1: not given */
    enum pp_stages_kind stages_kind;
    enum pp_stages_round round;
    bool account_embedding, account_loss;
    bool table, models, json;
    enum split_export export;
    const char *compare, *svg; /* kinds; a file */
    const char *combine;       /* "vision=plan1.json,language=plan2.json" */
    const char *edges[PP_MAX_ENCODERS]; /* of --combine, as given */
    size_t n_edges;
    bool given; /* source is that of manifests, which have the split ... */
    uint64_t given_params; /* ... and so many parameters */

    /* The problem, made from the options. */
    struct pp_arena arena;
    struct pp_model model;
    size_t n_units, n_stages;  /* n_stages: of one copy of the weights */
    struct pp_profile profile; /* of costs_file, a GPU or the given plan */
    bool has_profile;          /* the given plan has one */
    struct pp_machine machine; /* of these options, or of the given plan */
    bool has_machine;
    double peak;                    /* operations a second; 0: unknown */
    double *speeds;                 /* read from rank_speed */
    enum pp_recompute *stage_modes; /* read from recompute_list */
    const char *symbols;            /* the layout, expanded */
    struct pp_hybrid hybrid;        /* read from pattern */
    size_t *bounds; /* the split, if the method is not balanced */
    struct pp_split_request request;

    struct pp_split_plan plan;
    struct pp_split_joint joint; /* of the method joint */
};

/* The most ranks, and the most stages. */
enum { SPLIT_MAX_RANKS = 65536 };

extern const struct tool_option split_options[];

/* Rows of options that ppmesh has too. Its job begins with a struct split_job.
 */
extern const char *const split_dtype_words[];
int split_parse_dtype(struct tool *t, const struct tool_option *o,
                      const char *arg) PP_MUST_USE;
int split_parse_links(struct tool *t, const struct tool_option *o,
                      const char *arg) PP_MUST_USE;
int split_parse_memory(struct tool *t, const struct tool_option *o,
                       const char *arg) PP_MUST_USE;
int split_parse_cp_exchange(struct tool *t, const struct tool_option *o,
                            const char *arg) PP_MUST_USE;
#define SPLIT_AT(member) TOOL_AT(struct split_job, member)
#define SPLIT_SEQ_LEN                                                          \
    {                                                                          \
        0, "seq-len", "N", "tokens of a sequence (4096, or the model's most)", \
            SPLIT_AT(seq_len), 1, INT32_MAX,                                   \
            .counts = true, .also = "seq-length sequence-length"               \
    }
#define SPLIT_DTYPE                                                     \
    {                                                                   \
        0, "dtype", "TYPE", "fp32, fp64 or bf16 (as config.json says)", \
            .words = split_dtype_words, .parse = split_parse_dtype      \
    }
#define SPLIT_MTP                                                        \
    {                                                                    \
        0, "mtp", NULL, "include the layers for multi-token prediction", \
            SPLIT_AT(mtp)                                                \
    }
#define SPLIT_MOE_LAYER_FREQ                           \
    {                                                  \
        0, "moe-layer-freq", "FREQ",                   \
            "layers with experts, as for Megatron-LM", \
            SPLIT_AT(moe_layer_freq)                   \
    }
#define SPLIT_CP_EXCHANGE                                                   \
    {                                                                       \
        0, "cp-exchange", "HOW",                                            \
            "of keys and values: gather (default), a2a or ring",            \
            .words = pp_cp_exchange_names, .parse = split_parse_cp_exchange \
    }
#define SPLIT_MACHINE                                                 \
    {                                                                 \
        0, "machine", "FILE", "the same of a machine in a JSON file", \
            SPLIT_AT(machine_file), .excludes = "gpu"                 \
    }
#define SPLIT_NODE                                                            \
    {                                                                         \
        0, "node", "N", "ranks of a node (as --gpu or --machine says, or 8)", \
            SPLIT_AT(node), 1, INT32_MAX, .needs = "gpu|machine|link"         \
    }
#define SPLIT_MEMORY                                           \
    {                                                          \
        0, "memory", "SIZE", "limit of a rank, such as 80GiB", \
            .parse = split_parse_memory                        \
    }
#define SPLIT_OBJECTIVE                                           \
    {                                                             \
        0, "objective", "NAME", "that trains, as of pprun (sft)", \
            SPLIT_AT(objective), .words = pp_objective_names      \
    }
extern const char *const split_method_names[];
extern const char *const split_export_names[];

/* Reads the command line and checks which options go together. Returns 0, or -1
 * if the run is over: help was printed, or j->t.err is filled. */
int split_read_options(struct split_job *j, int argc, char **argv) PP_MUST_USE;

/* Reads the model, and compares weights beside its configuration with it. */
int split_read_model(struct split_job *j) PP_MUST_USE;

/* Takes the split of a manifest, a file name or "-", for -t, --export and
 * --svg. */
int split_take_given(struct split_job *j, const char *name) PP_MUST_USE;

/* Takes the split of --combine: a component of each manifest, and its mesh. */
int split_combine(struct split_job *j) PP_MUST_USE;

/* Returns whether --combine names a generator. split_add_generator then prints
 * the plan that it joins. */
bool split_generates(const struct split_job *j);
int split_add_generator(struct split_job *j, int argc, char **argv) PP_MUST_USE;

/* Counts the connector in the plan of a generator, whose document is left as it
 * is. */
int split_connect(struct split_job *j, const struct pp_manifest *language,
                  struct pp_manifest *g) PP_MUST_USE;

/* Reads a manifest with a model and stages, and no generator. hint: the end of
 * a message. */
struct pp_manifest;
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

/* Sets the encoder's images in the model. Refuses options that only a language
 * model has, or only a model with an encoder. */
int split_set_images(struct split_job *j) PP_MUST_USE;

/* Sets n_chunks if -c does not but the method does, and the layers that have
 * experts if the configuration does not. */
int split_set_chunks(struct split_job *j) PP_MUST_USE;

/* Sets bounds by the method; NULL for balanced. */
int split_set_bounds(struct split_job *j) PP_MUST_USE;

/* Plans with the method joint, and sets placement and n_chunks. */
int split_plan_jointly(struct split_job *j) PP_MUST_USE;

/* Prints the best split of each schedule that the method joint tried. */
void split_print_tried(const struct split_job *j, FILE *f);

/* Adds the order that the method joint found, and what it was chosen from. */
int split_set_order(const struct split_job *j, struct pp_arena *a,
                    struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* Compares kinds: prints a table, and draws a picture with --svg. */
int split_compare(struct split_job *j) PP_MUST_USE;

/* Draws cost and memory of the ranks to the file of --svg. */
int split_draw(struct split_job *j) PP_MUST_USE;

/* Returns true if times are seconds, not operations. */
bool split_has_seconds(const struct split_job *j);

/* Makes the machine of --gpu, --machine, --node and --link; takes its memory
 * where no option says otherwise. */
int split_choose_machine(struct split_job *j) PP_MUST_USE;

/* Sets the profile from the machine or --flops, for a mesh that is set. */
int split_set_seconds(struct split_job *j) PP_MUST_USE;

/* Returns the ranks that play a pipeline rank of an encoder with a mesh of its
 * own, and all pipeline ranks. */
int64_t split_encoder_group(const struct split_job *j, size_t encoder);
int64_t split_n_ranks(const struct split_job *j);

/* Computes the seconds of a step of a plan with all of its messages,
 * collectives and the update: the step of ppsched --stats for the manifest of
 * the plan. It is infinite if the plan is not simulated. */
int split_step_seconds(const struct split_job *j,
                       const struct pp_split_plan *plan, double *seconds,
                       struct pp_err *err) PP_MUST_USE;

/* The tokens a second of all ranks for a step of that many seconds, and the
 * useful operations over the peak; 0 if the peak is unknown. */
struct split_speed {
    double tokens, mfu;
};
struct split_speed split_speed_of(const struct split_job *j, double step,
                                  int64_t n_microbatches);

/* Writes a time without its unit, at most 10 characters. */
void split_format_time(const struct split_job *j, double time, char buf[32]);

/* Prints the table for people. */
int split_print_table(const struct split_job *j, FILE *f,
                      struct pp_err *err) PP_MUST_USE;

/* Prints the plan in the form of another system, and notes the choices that the
 * form does not hold. */
int split_print_export(struct split_job *j, FILE *f,
                       struct pp_err *err) PP_MUST_USE;

/* Print the split as a layout of Megatron-LM, as the names of each stage's
 * units, one stage on a line, both without a newline at the end; as boundaries.
 */
int split_print_layout(const struct split_job *j, FILE *f,
                       struct pp_err *err) PP_MUST_USE;
void split_print_names(const struct split_job *j, FILE *f);
void split_print_bounds(const struct split_job *j, FILE *f);

/* Names what is estimated of the costs, or returns NULL. */
const char *split_estimates(const struct split_job *j);

/* Prints the models that are known, and the values of their configurations that
 * are refused. */
int split_print_models(struct split_job *j) PP_MUST_USE;

/* Fills an empty manifest with a plan. */
int split_fill_manifest(const struct split_job *j,
                        const struct pp_split_plan *plan, struct pp_arena *a,
                        struct pp_manifest *m, struct pp_err *err) PP_MUST_USE;

/* Prints the manifest; command is its line of history. */
int split_print_manifest(struct split_job *j, const char *command, FILE *f,
                         struct pp_err *err) PP_MUST_USE;

/* Notes what pprun cannot run of a plan. Sets the slices of m's graph to the
 * slices of --schedule. */
void split_say_runs(struct split_job *j, struct pp_manifest *m);

#endif
