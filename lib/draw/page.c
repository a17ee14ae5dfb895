/* SPDX-License-Identifier: MIT */
#include "draw/page.h"

#include <math.h>
#include <string.h>

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

void pp_svg_number(FILE *f, double v)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.2f", v);
    while (text[n - 1] == '0')
        n--;
    if (text[n - 1] == '.')
        n--;
    text[n] = '\0';
    fputs(strcmp(text, "-0") ? text : "0", f);
}

void pp_svg_escape(FILE *f, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc((unsigned char)*s < ' ' ? ' ' : *s, f);
        }
}

void pp_svg_text(FILE *f, const char *class, double x, double y,
                 const char *text)
{
    fprintf(f, "<text class=\"%s\" x=\"", class);
    pp_svg_number(f, x);
    fputs("\" y=\"", f);
    pp_svg_number(f, y);
    fputs("\">", f);
    pp_svg_escape(f, text);
    fputs("</text>\n", f);
}

void pp_svg_begin(FILE *f, double width, double height)
{
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", f);
    pp_svg_number(f, width);
    fputs("\" height=\"", f);
    pp_svg_number(f, height);
    fputs("\" viewBox=\"0 0 ", f);
    pp_svg_number(f, width);
    fputs(" ", f);
    pp_svg_number(f, height);
    fputs("\" role=\"img\">\n<title>", f);
}

void pp_svg_style_begin(FILE *f)
{
    fputs("<style>\n"
          "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',"
          "sans-serif;font-size:11px;fill:#24292f}\n"
          ".bg{fill:#ffffff}.h{font-size:14px;font-weight:600}"
          ".m{fill:#57606a}.e{text-anchor:end}.c{text-anchor:middle}\n"
          ".l{fill:#eceff2}.g{stroke:#8c959f;stroke-opacity:.3;fill:none}"
          ".s{fill:#d3dae1;stroke:#7d8793;stroke-width:.7}.p{fill:#24292f}"
          ".k{stroke:#cf222e;stroke-dasharray:5 3;fill:none}"
          ".u{stroke:#8250df;stroke-width:1.5;stroke-dasharray:2 3;fill:none}"
          ".x{stroke:#57606a;stroke-opacity:.55;stroke-width:.8;fill:none}\n",
          f);
}

void pp_svg_style_dark(FILE *f)
{
    fputs("@media screen and (prefers-color-scheme:dark){\n"
          "text{fill:#d7dde3}.bg{fill:#14181d}.m{fill:#98a2ad}"
          ".l{fill:#232a31}.s{fill:#3c4650;stroke:#8b97a3}.p{fill:#e6ebf0}"
          ".k{stroke:#ff7b72}.u{stroke:#bc8cff}.x{stroke:#98a2ad}",
          f);
}

void pp_svg_style_end(FILE *f)
{
    fputs("}\n</style>\n", f);
}
