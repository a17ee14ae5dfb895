/* SPDX-License-Identifier: MIT */
/* ppsched - the options and the plan of one run, shared by its files. */
#ifndef PP_CMD_PPSCHED_H
#define PP_CMD_PPSCHED_H

#include "base/err.h"
#include "base/json_writer.h"
#include "data/packed/packed.h"
#include "manifest/manifest.h"
#include "cost/step.h"
#include "cost/trainer.h"
#include "model/precision.h"
#include "model/rank_bytes.h"
#include "schedule/bound/bound.h"
#include "schedule/check/mend.h"
#include "schedule/draw/draw.h"
#include "schedule/files/import.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"
#include "schedule/draw/svg.h"
#include "tool.h"

enum ppsched_color {
    PPSCHED_COLOR_AUTO, /* on a terminal */
    PPSCHED_COLOR_ON,
    PPSCHED_COLOR_OFF
};

enum { PPSCHED_DEPTH_AUTO = -2 };

/* The aims of -s auto, as --minimize counts them. */
enum ppsched_aim {
    PPSCHED_TIME,  /* of a step */
    PPSCHED_SPAN,  /* from a rank's first action to its last */
    PPSCHED_MEMORY /* of the fullest rank, among steps as short as any found */
};

/* The times that options give: of a message, by the lower stage of a boundary;
 * and of REDUCE_GRAD, of UNSHARD and of a copy, by stage. */
enum ppsched_time {
    PPSCHED_COMM,
    PPSCHED_REDUCE,
    PPSCHED_UNSHARD,
    PPSCHED_COPY,
    PPSCHED_N_TIMES
};

struct ppsched_options {
    const char *kind;   /* -s, or NULL */
    int n_microbatches; /* -m; 0: not given */
    int global_batch;   /* sequences of all microbatches; 0: not given */
    int n_ranks;        /* -p; 0: the manifest's */
    int n_chunks;       /* -c; 0: not given */
    const char *placement;
    int group;
    const char *slices; /* --slices, or NULL */
    int depth;          /* -1: not given; or PPSCHED_DEPTH_AUTO */
    double seconds;     /* auto: seconds of search */
    int seed;
    bool whole_backward;
    int minimize; /* auto: enum ppsched_aim */
    bool has_cost;
    double cost[4];                    /* F, I, W, message */
    const char *time[PPSCHED_N_TIMES]; /* --comm and so on, or NULL */
    size_t copy_rate;                  /* --copy-rate in bytes a second, or 0 */
    const char *offload;               /* --offload, or NULL */
    double pair_cost;      /* time of a pair over the sum of its two */
    const char *without;   /* --without-rank, or NULL */
    const char *import;    /* --import, or NULL */
    const char *dialect;   /* --dialect, or NULL */
    bool lenient;          /* with import: allow empty cells anywhere */
    const char *semantics; /* --semantics, or NULL */
    const char *export;    /* --export, or NULL */
    const char *data;
    int step;      /* with data: from 1 */
    int seq_len;   /* 0: not given */
    size_t memory; /* of a rank in bytes; 0: no limit */
    int64_t slots; /* of a rank; 0: no limit */
    int objective; /* enum pp_objective_number */
    bool list, check, json, stats, timeline;
    const char *svg, *trace; /* files, or NULL */
    const char *compare;     /* kinds, or NULL */
    const char *overlay;     /* a trace, or NULL */
    int width; /* columns of -t (0: no limit) or pixels of --svg (0: as needed)
                */
    bool ascii;
    enum ppsched_color color;
};

/* Reports if -s is auto, which searches instead of following a rule. */
bool ppsched_is_auto(const struct ppsched_options *o);

/* Reports if --without-rank is each. */
bool ppsched_is_each(const struct ppsched_options *o);

extern const struct tool_option ppsched_option_table[];

/* Reads the command line into *o. Returns 0, or -1 if the run is over: help was
 * printed, or t->err is set. */
int ppsched_read_options(struct tool *t, struct ppsched_options *o, int argc,
                         char **argv) PP_MUST_USE;

/* Times that options give; all other costs are inner's. */
struct ppsched_given {
    struct pp_costs inner;
    double *time[PPSCHED_N_TIMES]; /* or NULL */
    const struct pp_slices *slices;
};

/* The costs of actions, the memory of stages, and their sources. */
struct ppsched_costs {
    struct pp_costs costs;
    bool literal;
    struct pp_literal_costs literals;
    const struct pp_graph *graph;
    const struct pp_plan_stage *stages;
    struct pp_step step;
    size_t max_tokens, max_seqlen; /* of the largest microbatch, and of the
                                      longest sequence */
    struct pp_plan_data data;      /* of the data, or the manifest's */
    struct pp_backend backend;
    bool sized;                   /* the stages have sizes in bytes */
    struct pp_stage_bytes *sizes; /* of the slices of stages
                                     (pp_slice_bytes) */
    struct ppsched_given given;
    const struct pp_precision *precision;
};

struct ppsched {
    struct tool *tool;
    struct ppsched_options options;
    struct pp_manifest manifest;
    const char *name;         /* the manifest's name in messages, or NULL */
    struct pp_schedule built; /* with -s */
    struct pp_import import;  /* with --import */
    struct pp_faults faults;  /* of the file */
    struct pp_edit edits[PP_MOST_EDITS]; /* that make the file valid */
    int n_edits;
    struct pp_schedule *schedule;
    const int *copy;   /* with --without-rank, while it searches: the route of
                          each microbatch */
    double most_slots; /* of a rank, if there is no --memory; 0: no limit */
    const char *data;  /* packed data with the sizes of microbatches: --data, or
                          the manifest's; or NULL */
    struct pp_packed packed; /* the data, open */
    struct ppsched_costs costs;
};

/* Returns the most features that a rank of an encoder makes in an action. */
size_t ppsched_most_features(const struct ppsched *p, size_t encoder);

/* Returns the mesh of the ranks that play a row. */
struct pp_mesh ppsched_mesh(const struct ppsched *p, int row);

/* Returns the trainer of the plan. */
const struct pp_trainer *ppsched_trainer(const struct ppsched *p);

/* Opens the data and fills p->costs from the options, the manifest and the
 * data, once. Needs stages and a number of microbatches. */
int ppsched_open_costs(struct ppsched *p) PP_MUST_USE;

/* Makes the costs those of the order of the schedule, if it has one: a search
 * begins without. */
void ppsched_order_costs(struct ppsched *p);

/* Opens the data, if there are any, once. */
int ppsched_open_data(struct ppsched *p) PP_MUST_USE;

/* Returns the tokens of the largest microbatch. */
size_t ppsched_most_tokens(const struct ppsched *p);

/* Fills the sizes of n microbatches of a step, from 1 on: from the data, or as
 * assumed. */
void ppsched_measure(const struct ppsched *p, struct pp_step *x, int step,
                     int n);

/* Sets the slices of the manifest's graph by --slices, or to as many as
 * usual. */
int ppsched_set_slices(struct ppsched *p, int usual) PP_MUST_USE;

void ppsched_costs_finish(struct ppsched_costs *c);

/* Returns the most slots that a rank keeps alive. A slice is its part of one.
 */
double ppsched_slots(const struct ppsched *p, int rank);

/* A rank's memory. */
struct ppsched_bytes {
    size_t peak;              /* bytes of buffers that live at once */
    size_t peak_place;        /* action of the peak, in the row */
    size_t host;              /* bytes of the host */
    struct pp_rank_bytes all; /* all that the rank allocates */
};

/* Returns the bytes that --memory leaves a rank for activations. */
double ppsched_activation_limit(const struct ppsched *p, int rank);

/* Plans the memory of every rank into out (one per rank), unless it is NULL.
 * Fails if a rank is above --memory. */
int ppsched_memory(struct ppsched *p, struct ppsched_bytes *out) PP_MUST_USE;

/* Reads --import. Its schedule becomes p->schedule, unchecked, with messages
 * added if it has none. Without a manifest its stages become p->manifest's. */
int ppsched_import(struct ppsched *p, bool has_manifest) PP_MUST_USE;

/* The name of the file of --import in messages. */
const char *ppsched_import_name(const struct ppsched *p);

/* Prints p->faults but the last, which becomes the error. Their places are
 * columns of the file, or places in the rows. Returns -1. */
int ppsched_refuse_faults(struct ppsched *p, bool in_rows);

/* If p->schedule deadlocks, prints the circle of waits of a file and draws the
 * part that runs for -t. messages: it has messages. */
int ppsched_tell_stuck(struct ppsched *p, bool messages) PP_MUST_USE;

/* Prints what --check --json has of a file that is not valid, and turns the
 * error of the run into its exit status. Does nothing after other errors. */
void ppsched_refused_json(struct ppsched *p);

/* Returns true if --check judges the messages of a CSV file by PyTorch's
 * transport, because no --semantics is given. */
bool ppsched_by_pytorch(const struct ppsched *p);

/* Checks p->schedule by the transport of PyTorch's pipelining, which has a FIFO
 * for each directed pair of ranks, without tags. The error says how to get
 * messages that pass. */
int ppsched_check_by_pytorch(const struct ppsched *p,
                             struct pp_err *err) PP_MUST_USE;

/* Checks p->schedule under --semantics, or with channels of its depth. With
 * --semantics all, ppsched_verdict looks for deadlocks instead. */
int ppsched_prove(struct ppsched *p) PP_MUST_USE;

/* Prints the verdict of --check, after ppsched_prove. With --semantics all it
 * prints one for each, and sets the exit status to 1 if one is a deadlock. */
int ppsched_verdict(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Checks the schedule of --import, with the file's name in errors. Warns if it
 * is for PyTorch and has communication, but does not reduce gradients. */
int ppsched_import_check(struct ppsched *p) PP_MUST_USE;

/* Prints --export. With -s the cells are as PyTorch's class has them. */
int ppsched_export(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Fills p->manifest with stages without units, placed as the options say. */
int ppsched_abstract(struct ppsched *p) PP_MUST_USE;

/* Sets p->schedule: with -s it makes one, else it takes the one of the manifest
 * or the file. Then checks it and computes its costs. Everything that is shown
 * or written later has been checked here. */
int ppsched_prepare(struct ppsched *p) PP_MUST_USE;

/* A schedule simulated at its channel depth, with all that pictures show. */
struct ppsched_view {
    struct pp_sim sim;
    struct pp_messages messages;
    struct pp_memory_timeline *slots;
    struct pp_memory_timeline *bytes; /* NULL if sizes are unknown */
    double *limit; /* per rank, in bytes or slots like --memory; or NULL */
    double bound;  /* lower bound of the makespan; 0: unknown */
};

/* Fails if a rank is above --memory. Finish the view also after a failure. */
int ppsched_view_init(struct ppsched *p, struct ppsched_view *v) PP_MUST_USE;
/* Makes a view of measured spans. It takes sim. */
int ppsched_view_measured(struct ppsched *p, struct pp_sim *sim,
                          struct ppsched_view *v) PP_MUST_USE;
void ppsched_view_finish(struct ppsched *p, struct ppsched_view *v);

/* Returns the view as a panel of the picture, in bytes if they are known and
 * --memory is not in slots. */
struct pp_svg_panel ppsched_panel(const struct ppsched *p,
                                  const struct ppsched_view *v);

/* Draws -t. */
int ppsched_draw(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Writes the files of --svg and --trace. */
int ppsched_pictures(struct ppsched *p) PP_MUST_USE;

/* Returns the unit of simulated times, or NULL if they have none. */
const char *ppsched_unit(const struct ppsched *p);

/* Writes panels to the file of --svg. */
int ppsched_write_svg(struct ppsched *p, const struct pp_svg_panel *panels,
                      int n_panels, const char *unit) PP_MUST_USE;

/* Prints --compare, and with --svg draws the kinds that fit. */
int ppsched_compare(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Prints --overlay: with -t both timelines, then the table; with --svg it draws
 * both. */
int ppsched_overlay(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Returns the timeline's style by the options. */
struct pp_draw ppsched_way_to_draw(const struct ppsched *p, FILE *f);

/* Returns the bubble over the longest span, as papers on zero-bubble schedules
 * count it: a rank may begin the next step before the others end this one. */
double ppsched_span_bubble(const struct pp_sim *sim);

/* Returns the bytes of weights, gradients, moments and tables on a rank, for a
 * schedule on the stages of the manifest. */
size_t ppsched_fixed_bytes(const struct ppsched *p, const struct pp_schedule *s,
                           int rank);

/* Computes the makespan at the channel depth if each receive waits in its
 * place. */
int ppsched_strict(struct ppsched *p, double *makespan) PP_MUST_USE;

/* Computes the lower bound of the schedule's work on its placement, with
 * unbounded channels and within --memory. Backward is split if the schedule has
 * any I. reached is the schedule's makespan, where the bound stops. */
int ppsched_bound(struct ppsched *p, double reached,
                  struct pp_bound *b) PP_MUST_USE;

/* Fills p->built, lowered, with the best order that a search finds. */
int ppsched_auto(struct ppsched *p) PP_MUST_USE;

/* Replaces the manifest's stages and schedule by stages and schedule for the
 * ranks that --without-rank leaves. Fills p->built and the costs. */
int ppsched_reroute(struct ppsched *p) PP_MUST_USE;

/* Prints what --without-rank each has: the step and the memory without each of
 * the ranks. */
int ppsched_each(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Sets *yes if every rank keeps to --memory with schedule s, as far as bytes
 * are limited. ctx is a struct ppsched; p->schedule is not read. */
int ppsched_fits(void *ctx, const struct pp_schedule *s, bool *yes,
                 struct pp_err *err) PP_MUST_USE;

/* Chooses the channel depth of p->schedule, for --depth auto. Leaves a schedule
 * that does not run to ppsched_prove. */
int ppsched_choose_depth(struct ppsched *p) PP_MUST_USE;

/* Replaces s, which is lowered and without copies, by the fastest order that is
 * found with OFFLOADs and RELOADs and fits into --memory. */
int ppsched_offload(struct ppsched *p, struct pp_schedule *s,
                    struct pp_err *err) PP_MUST_USE;

/* Prints the lower bound of a schedule that was simulated, and the gap. */
void ppsched_print_bound(struct pp_json_writer *w, const struct pp_sim *sim,
                         const struct pp_bound *b);

/* Prints --stats. */
int ppsched_stats(struct ppsched *p, FILE *f) PP_MUST_USE;

#endif
