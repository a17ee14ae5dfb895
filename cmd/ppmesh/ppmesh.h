/* SPDX-License-Identifier: MIT */
/* ppmesh - one run of the program. The search is in lib/mesh. */
#ifndef PP_CMD_PPMESH_H
#define PP_CMD_PPMESH_H

#include "mesh/search.h"
#include "planner/planner.h"

/* Systems to print settings for. */
enum mesh_export {
    MESH_EXPORT_NONE,
    MESH_EXPORT_MEGATRON,
    MESH_EXPORT_TORCHTITAN,
    MESH_EXPORT_DEEPSPEED,
    MESH_EXPORT_SBATCH
};
extern const char *const mesh_export_names[];

struct mesh_job {
    struct planner split; /* the first member: shared options write to it */
    int64_t gpus, global_batch, top, row, plans;
    const char *fix, *svg;
    struct pp_mesh_fixed fixed;
    enum mesh_export export;
    bool stopped; /* by a signal */
    struct pp_mesh_found found;
};

/* Reads --fix into fixed. */
int mesh_read_fixed(struct mesh_job *j) PP_MUST_USE;

/* Plans a row. */
int mesh_take_row(struct mesh_job *j,
                  const struct pp_split_row *row) PP_MUST_USE;

/* Print the table for people, and the same as JSON. */
int mesh_print_table(struct mesh_job *j, FILE *f) PP_MUST_USE;
int mesh_print_json(struct mesh_job *j, FILE *f) PP_MUST_USE;

/* Draws step against memory of all meshes and plans to the file of --svg. */
int mesh_draw(struct mesh_job *j) PP_MUST_USE;

/* Prints the settings of a system for the row that was taken. */
int mesh_print_export(struct mesh_job *j, FILE *f) PP_MUST_USE;

/* The most a row differs from the first in its step to be marked as equal: the
 * model does not order such plans reliably. */
#define MESH_RESOLUTION 0.03

/* Writes a mesh: "tp2 cp2 pp8x3 dp2". */
enum { MESH_TEXT = 200 };
void mesh_format(const struct pp_split_row *row, char text[MESH_TEXT]);

/* Writes the recomputation of a row: "none", "selective" or by how many of its
 * stages. */
void mesh_format_modes(const struct pp_split_row *row, char text[MESH_TEXT]);

#endif
