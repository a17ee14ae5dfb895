/* SPDX-License-Identifier: MIT */
/* ppsched - what its files share: the options, and one run's plan. */
#ifndef PP_CMD_PPSCHED_H
#define PP_CMD_PPSCHED_H

#include "data/packed.h"
#include "manifest/manifest.h"
#include "manifest/stage_costs.h"
#include "model/precision.h"
#include "schedule/bound/bound.h"
#include "schedule/csv/csv.h"
#include "schedule/draw/draw.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"
#include "schedule/draw/svg.h"
#include "tool.h"

enum ppsched_color {
    PPSCHED_COLOR_AUTO, /* on a terminal */
    PPSCHED_COLOR_ON,
    PPSCHED_COLOR_OFF
};

struct ppsched_options {
    const char *kind;   /* -s, or NULL */
    int n_microbatches; /* -m; 0: not given */
    int n_ranks;        /* -p; 0: the manifest's */
    int n_chunks;       /* -c; 0: not given */
    const char *placement;
    int group;
    int slices;     /* 0: not given */
    int depth;      /* -1: not given */
    double seconds; /* auto: of search */
    int seed;
    bool whole_backward, minimize_span;
    bool has_cost;
    double cost[4];        /* F, I, W, message */
    const char *comm;      /* --comm, or NULL */
    double pair_cost;      /* of a pair, as a part of its two */
    const char *csv;       /* --csv, or NULL */
    const char *dialect;   /* of csv, or NULL */
    bool lenient;          /* with csv: empty cells anywhere */
    const char *semantics; /* --semantics, or NULL */
    const char *export;    /* --export, or NULL */
    const char *data;
    int step;    /* with data: from 1 */
    int seq_len; /* 0: not given */
    bool has_memory, memory_is_slots;
    size_t memory;
    bool list, check, stats, timeline;
    const char *svg, *trace; /* files, or NULL */
    const char *compare;     /* kinds, or NULL */
    const char *overlay;     /* a trace, or NULL */
    int width;               /* of -t: columns, 0: no limit; of --svg: pixels,
                                0: what fits */
    bool ascii;
    enum ppsched_color color;
};

/* Whether -s is auto, which is searched for and not made by a rule. */
bool ppsched_is_auto(const struct ppsched_options *o);

extern const struct tool_option ppsched_option_table[];

/* Reads the command line into *o. Returns 0, or -1 when the run is over: help
 * was printed, or t->err is set. */
int ppsched_read_options(struct tool *t, struct ppsched_options *o, int argc,
                         char **argv) PP_MUST_USE;

/* --comm over other costs. */
struct ppsched_messages {
    struct pp_costs inner;
    double *time; /* by the lower stage of a boundary */
    int n_slices;
};

/* What actions cost and what stages keep, and from where it is known. */
struct ppsched_costs {
    struct pp_costs costs;
    bool literal;
    struct pp_literal_costs literals;
    const struct pp_graph *graph;
    const struct pp_manifest_stage *stages;
    struct pp_stage_costs stage;
    double *tokens, *pairs;       /* per microbatch and slice */
    bool sized;                   /* the stages know how much they keep */
    struct pp_stage_bytes *sizes; /* per stage, for the largest microbatch, or
                                     slice of it */
    struct ppsched_messages messages;
    const struct pp_precision *precision;
};

struct ppsched {
    struct tool *tool;
    struct ppsched_options options;
    struct pp_manifest manifest;
    const char *name;         /* the manifest's, for messages; or NULL */
    struct pp_schedule built; /* with -s */
    struct pp_csv csv;        /* with --csv */
    struct pp_schedule *schedule;
    const char *data; /* packed data that tell how long microbatches are, or
                         NULL: --data, or what the manifest names */
    struct pp_packed packed; /* those */
    struct ppsched_costs costs;
};

/* Fills p->costs from the options, the manifest and the packed data. */
int ppsched_costs_init(struct ppsched *p) PP_MUST_USE;
void ppsched_costs_finish(struct ppsched_costs *c);

/* Lets p->costs take the times of messages from --comm. */
int ppsched_messages_init(struct ppsched *p) PP_MUST_USE;

/* What a rank keeps alive at most: microbatches on a stage, slices of them
 * counted by their part. */
double ppsched_slots(const struct ppsched *p, int rank);

/* A rank's buffers: what lives at once, and what is allocated for it. */
struct ppsched_bytes {
    size_t peak, arena;
    size_t peak_place; /* in the row */
};

/* What --memory, in bytes, leaves a rank for what it keeps of microbatches. */
double ppsched_room(const struct ppsched *p, int rank);

/* Plans the memory of every rank into out (n_ranks, when not NULL). Refuses
 * what --memory does not allow, saying by how much. */
int ppsched_memory(struct ppsched *p, struct ppsched_bytes *out) PP_MUST_USE;

/* Reads --csv: its schedule, lowered where it has no messages, becomes
 * p->schedule, unchecked. Without a manifest its stages become p->manifest's.
 */
int ppsched_csv_read(struct ppsched *p, bool has_manifest) PP_MUST_USE;

/* Checks p->schedule: its channels at their depth, or what --semantics names.
 * With all, progress is left to ppsched_verdict. */
int ppsched_prove(struct ppsched *p) PP_MUST_USE;

/* Prints what --check says of a schedule that was proved; with --semantics all
 * a verdict for each, and the run's status is 1 where one is no. */
int ppsched_verdict(struct ppsched *p, FILE *f) PP_MUST_USE;

/* ppsched_prove of what was read, with the file's name; warns of a file with
 * communication that does not reduce gradients. */
int ppsched_csv_check(struct ppsched *p) PP_MUST_USE;

/* Prints --export: what -s makes, as PyTorch's class would, or what is there.
 */
int ppsched_csv_export(struct ppsched *p, FILE *f) PP_MUST_USE;

/* A manifest with stages that have no units, placed as the options say. */
int ppsched_abstract(struct ppsched *p) PP_MUST_USE;

/* Makes p->schedule with -s, or takes the one that is there, checks it, and
 * knows what it costs. Nothing is shown or written that has not been checked.
 */
int ppsched_prepare(struct ppsched *p) PP_MUST_USE;

/* A schedule played at its channel depth, and what pictures show of it. */
struct ppsched_view {
    struct pp_sim sim;
    struct pp_messages messages;
    struct pp_memory_timeline *slots;
    struct pp_memory_timeline *bytes; /* NULL: sizes are not known */
    double *limit; /* per rank, in bytes where they are known and the limit is
                      one of bytes, else in slots; NULL: none */
    double bound;  /* a makespan that no order goes below; 0: unknown */
};

/* Refuses what --memory does not allow. Finish it also after a failure. */
int ppsched_view_init(struct ppsched *p, struct ppsched_view *v) PP_MUST_USE;
/* The same of spans that were measured, in sim, which moves into the view. */
int ppsched_view_measured(struct ppsched *p, struct pp_sim *sim,
                          struct ppsched_view *v) PP_MUST_USE;
void ppsched_view_finish(struct ppsched *p, struct ppsched_view *v);

/* The view as a panel of the picture: bytes where they are known, unless the
 * limit is one of slots. */
struct pp_svg_panel ppsched_panel(const struct ppsched *p,
                                  const struct ppsched_view *v);

/* Draws -t. */
int ppsched_draw(struct ppsched *p, FILE *f) PP_MUST_USE;

/* Writes the files of --svg and --trace. */
int ppsched_pictures(struct ppsched *p) PP_MUST_USE;

/* The unit of simulated times, for pictures; NULL: they have none. */
const char *ppsched_unit(const struct ppsched *p);

/* Writes panels to the file of --svg. */
int ppsched_write_svg(struct ppsched *p, const struct pp_svg_panel *panels,
                      int n_panels, const char *unit) PP_MUST_USE;

/* Prints --compare, and with --svg draws the kinds that fit. */
int ppsched_compare(struct ppsched *p, FILE *f) PP_MUST_USE;

/* --overlay: prints how what was measured compares with the plan, with -t after
 * both were drawn, and with --svg draws them. */
int ppsched_overlay(struct ppsched *p, FILE *f) PP_MUST_USE;

/* The timeline's way to draw, by the options. */
struct pp_draw ppsched_way_to_draw(const struct ppsched *p, FILE *f);

/* The bubble as papers on zero-bubble schedules count it: a rank may begin the
 * next step before the others have ended this one. */
double ppsched_span_bubble(const struct pp_sim *sim);

/* Bytes of weights, gradients and moments on a rank. */
size_t ppsched_trained_bytes(const struct ppsched *p, int rank);

/* A makespan that no order of the schedule's work on its placement can go
 * below: with unbounded channels, within --memory where it is given. Backward
 * is split where the schedule has any I. */
int ppsched_bound(struct ppsched *p, struct pp_bound *b) PP_MUST_USE;

/* Fills p->built, lowered, with the best order that a search finds. */
int ppsched_auto(struct ppsched *p) PP_MUST_USE;

/* Prints --stats. */
int ppsched_stats(struct ppsched *p, FILE *f) PP_MUST_USE;

#endif
