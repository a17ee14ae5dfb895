/* SPDX-License-Identifier: MIT */
#include "schedule/draw/axis.h"

#include <math.h>
#include <stdio.h>

double pp_axis_step(double least)
{
    static const double steps[] = {1, 2, 5};
    double decade = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++)
        if (steps[i] * decade >= least)
            return steps[i] * decade;
    return 10 * decade;
}

int pp_axis_format(double v, char *text)
{
    static const char units[] = " kMGTPE";
    size_t u = 0;
    while (v >= 10000 && units[u + 1]) {
        v /= 1000;
        u++;
    }
    int n = snprintf(text, PP_AXIS_TEXT, "%.4g", v);
    if (u > 0)
        n += snprintf(text + n, (size_t)(PP_AXIS_TEXT - n), "%c", units[u]);
    return n;
}
