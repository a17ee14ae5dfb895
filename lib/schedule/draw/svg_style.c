/* SPDX-License-Identifier: MIT */
/* Blue forward, teal backward, red input gradient, yellow weight gradient,
 * violet reduction. Any two differ at any shade for all common kinds of colour
 * blindness. Dark text is readable on all of them, so there is one colour of
 * text. */
#include "schedule/draw/svg_row.h"

#include <math.h>
#include <string.h>

enum { LINE = 20, SWATCH = 14 };

/* Width of a character of the legend's text, with some reserve, as the font is
 * the viewer's. */
static const double character = 5.7;

/* The first and the last shade, red green blue. */
static const unsigned char ends[PP_SVG_KINDS][2][3] = {
    [PP_F] = {{0xb5, 0xd4, 0xf4}, {0x4f, 0x94, 0xd8}},
    [PP_B] = {{0x8b, 0xd9, 0xcf}, {0x23, 0x9c, 0x91}},
    [PP_I] = {{0xf7, 0xb8, 0xa8}, {0xd8, 0x69, 0x4e}},
    [PP_W] = {{0xfb, 0xe0, 0x8a}, {0xe0, 0xa9, 0x2e}},
    [PP_SVG_COLLECTIVE] = {{0x9d, 0x86, 0xc0}, {0x5d, 0x3f, 0x8c}},
};

static const char names[PP_SVG_KINDS][PP_SVG_SHADES][3] = {
    [PP_F] = {"f0", "f1", "f2", "f3", "f4", "f5"},
    [PP_B] = {"b0", "b1", "b2", "b3", "b4", "b5"},
    [PP_I] = {"i0", "i1", "i2", "i3", "i4", "i5"},
    [PP_W] = {"w0", "w1", "w2", "w3", "w4", "w5"},
    [PP_SVG_COLLECTIVE] = {"r0", "r1", "r2", "r3", "r4", "r5"},
};

const char *pp_svg_class(int kind, int shade)
{
    return names[kind][shade];
}

/* Writes the shades. A single one lies between the ends. On a dark background
 * all are a little darker. */
static void print_colors(FILE *f, int n_shades, double brightness)
{
    for (int kind = 0; kind < PP_SVG_KINDS; kind++)
        for (int s = 0; s < n_shades; s++) {
            double t = n_shades > 1 ? (double)s / (n_shades - 1) : 0.4;
            unsigned c[3];
            for (int i = 0; i < 3; i++)
                c[i] = (unsigned)lround(
                    brightness * (ends[kind][0][i] +
                                  t * (ends[kind][1][i] - ends[kind][0][i])));
            fprintf(f, ".%s{fill:#%02x%02x%02x}", names[kind][s], c[0], c[1],
                    c[2]);
        }
    fputc('\n', f);
}

void pp_svg_style(FILE *f, int n_shades, double font)
{
    pp_svg_style_begin(f);
    fprintf(f,
            ".d path{stroke:#ffffff;stroke-width:.7}"
            ".n text{font-size:%.3gpx;fill:#10151a;text-anchor:middle}"
            ".n .t{font-size:7px}\n",
            font);
    print_colors(f, n_shades, 1);
    pp_svg_style_dark(f);
    fputs(".d path{stroke:#14181d}.n text{fill:#0b0e12}\n", f);
    print_colors(f, n_shades, .88);
    pp_svg_style_end(f);
}

/* The place of the legend's next item. */
struct pen {
    FILE *f;
    double left, right, x, y;
};

/* Begins a new line if a swatch and a text do not fit on this one. */
static void place(struct pen *p, double swatch, const char *text)
{
    double width = swatch + 6 + character * (double)strlen(text);
    if (p->x > p->left && p->x + width > p->right) {
        p->x = p->left;
        p->y += LINE;
    }
}

static void say(struct pen *p, double swatch, const char *text)
{
    if (p->f)
        fprintf(p->f, "<text class=\"m\" x=\"%.4g\" y=\"%.4g\">%s</text>\n",
                p->x + swatch + (swatch > 0 ? 6 : 0), p->y + 11, text);
    p->x += swatch + 24 + character * (double)strlen(text);
}

static void colors(struct pen *p, const struct pp_svg_legend *l, int kind,
                   const char *text)
{
    double width = SWATCH * l->n_shades;
    place(p, width, text);
    for (int s = 0; s < l->n_shades && p->f; s++)
        fprintf(p->f,
                "<rect class=\"%s\" x=\"%.4g\" y=\"%.4g\" width=\"%d\" "
                "height=\"14\"/>\n",
                names[kind][s], p->x + s * SWATCH, p->y, SWATCH);
    say(p, width, text);
}

/* Draws a shape inside 24 by 14 pixels at the pen. */
static void shape(struct pen *p, const char *svg, const char *text)
{
    place(p, 24, text);
    if (p->f)
        fprintf(p->f, "<g transform=\"translate(%.4g,%.4g)\">%s</g>\n", p->x,
                p->y, svg);
    say(p, 24, text);
}

static void marks(struct pen *p, const struct pp_svg_legend *l)
{
    if (l->pairs)
        shape(p,
              "<path class=\"f0\" d=\"M0 0H24V7H0z\"/>"
              "<path class=\"b0\" d=\"M0 7H24V14H0z\"/>",
              "pair, run as one");
    if (l->memory)
        shape(p, "<path class=\"s\" d=\"M0 14V9H8V3H16V9H24V14z\"/>",
              l->memory_text);
    if (l->memory)
        shape(p, "<circle class=\"p\" cx=\"18\" cy=\"7\" r=\"2\"/>", "peak");
    if (l->limit)
        shape(p, "<path class=\"k\" d=\"M0 7H24\"/>", "limit");
    if (l->messages)
        shape(p, "<path class=\"x\" d=\"M0 2L24 12\"/>", "message");
    if (l->bound)
        shape(p, "<path class=\"u\" d=\"M12 0V14\"/>", "lower bound");
}

double pp_svg_legend(FILE *f, const struct pp_svg_legend *l, double x, double y,
                     double right)
{
    static const char *const texts[] = {[PP_F] = "forward",
                                        [PP_B] = "backward",
                                        [PP_I] = "input gradient",
                                        [PP_W] = "weight gradient",
                                        [PP_SVG_COLLECTIVE] = "collective"};
    struct pen p = {f, x, right, x, y};
    char shades[80];
    for (int kind = 0; kind < PP_SVG_KINDS; kind++)
        if (l->kinds[kind])
            colors(&p, l, kind,
                   kind == PP_SVG_COLLECTIVE && l->copies ? "collective or copy"
                                                          : texts[kind]);
    if (l->n_chunks > 1) {
        snprintf(shades, sizeof shades,
                 "lighter to darker: first to last of a rank's %d stages",
                 l->n_chunks);
        place(&p, 0, shades);
        say(&p, 0, shades);
    }
    if (l->label[0]) {
        place(&p, 0, l->label);
        say(&p, 0, l->label);
    }
    marks(&p, l);
    return p.y + LINE - y;
}
