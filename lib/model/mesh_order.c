/* SPDX-License-Identifier: MIT */
/* mesh_order - the order of the axes of a mesh, as a number and as text. */
#include <stdio.h>
#include <string.h>

#include "model/mesh.h"

/* 4 x 3 x 2 orders. Digit i of the number, in a base that falls from 4, counts
 * the unused axes before axis i. */
enum { N_ORDERS = 24 };

void pp_mesh_axes(const struct pp_mesh *x, enum pp_axis axes[PP_N_AXES])
{
    bool used[PP_N_AXES] = {false};
    int rest = x->order, orders = N_ORDERS;
    for (int i = 0; i < PP_N_AXES; i++) {
        orders /= PP_N_AXES - i;
        int skip = rest / orders, a = 0;
        rest %= orders;
        while (used[a] || skip > 0)
            skip -= !used[a++];
        used[a] = true;
        axes[i] = (enum pp_axis)a;
    }
}

void pp_mesh_write_order(const struct pp_mesh *x, char text[PP_MESH_ORDER_TEXT])
{
    static const char names[PP_N_AXES][3] = {"tp", "cp", "dp", "pp"};
    enum pp_axis axes[PP_N_AXES];
    pp_mesh_axes(x, axes);
    snprintf(text, PP_MESH_ORDER_TEXT, "%s-%s-%s-%s", names[axes[0]],
             names[axes[1]], names[axes[2]], names[axes[3]]);
}

bool pp_mesh_read_order(struct pp_mesh *x, const char *text)
{
    struct pp_mesh tried = *x;
    char name[PP_MESH_ORDER_TEXT];
    for (tried.order = 0; tried.order < N_ORDERS; tried.order++) {
        pp_mesh_write_order(&tried, name);
        if (!strcmp(name, text)) {
            x->order = tried.order;
            return true;
        }
    }
    return false;
}
