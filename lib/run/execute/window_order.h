/* SPDX-License-Identifier: MIT */
/* window_order - the order of an image's patches by windows.
 *
 * Most layers of Qwen2.5-VL (Bai et al., 2025) attend to windows of an image.
 * Its encoder has the patches of a window one behind the other, so that a
 * window is a sequence. The windows cover the image row by row; windows at its
 * right and lower edge may be smaller. Features go back to the order of the
 * image behind the encoder. Pure. */
#ifndef PP_RUN_EXECUTE_WINDOW_ORDER_H
#define PP_RUN_EXECUTE_WINDOW_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "data/items.h"

/* How patches form features and windows: the patches of a feature, and the
 * features of a window, each way. */
struct pp_window_sides {
    uint32_t merge;
    size_t window;
};

/* Writes the place of each feature of an image of one frame, which counts from
 * `first` on, and the end of each window, in patches of all features before it.
 * Returns the number of windows, at most that of the features. */
size_t pp_window_order(const struct pp_grid *g, const struct pp_window_sides *s,
                       int32_t first, int32_t *places, int32_t *ends);

#endif
