/* report/internal.h - parts of the report: reading results, text, axes, plots. */
#ifndef TSR_REPORT_INTERNAL_H
#define TSR_REPORT_INTERNAL_H

#include "report/report.h"

#include <stdbool.h>

/* ---- reading: a member that is missing or of another type reads as nothing --------------- */

const json_t *report_get(const json_t *o, const char *key);
double        report_real(const json_t *o, const char *key); /* NaN: no finite number */
const char   *report_str(const json_t *o, const char *key);  /* "": no string */
/* Some item of the list has this member, not null. */
bool report_any(const json_t *list, const char *key);
/* "compare", "compare[2]", ... */
bool report_is_step(const char *key, const char *step);

/* ---- text ------------------------------------------------------------------------------ */

void report_text(struct tsr_writer *w, const char *s); /* escaped */
void report_json_text(struct tsr_writer *w,
                      const json_t      *v); /* the same of a string, which may contain a NUL
                                              * character */

#define REPORT_NUMBER 48
/* `digits` decimals, a typographic minus sign, "+" if `sign`; an en dash for NaN. */
const char *report_fixed(char out[REPORT_NUMBER], double v, int digits, bool sign);
/* Three significant digits, powers of ten as such: 0.0123, 1.2e-7 as 1.2 x 10^-7. */
const char *report_short(char out[REPORT_NUMBER], double v);
void        report_grouped(char out[REPORT_NUMBER], uint64_t v); /* 1,234,567 */
/* A table cell; a dash for a missing number. */
void report_cell(struct tsr_writer *w, double v, int digits);
/* "+0.0312" over "[0.0293, 0.0331]", times factor; `mean`: key of the first. */
void report_interval_cell(struct tsr_writer *w, const json_t *d, const char *mean, double factor,
                          int digits, bool sign);
void report_p_cell(struct tsr_writer *w, double p); /* 1e-12 and less as such */
/* Class of a verdict's colour. */
const char *report_verdict_class(const char *quality);
/* Any value as nested tables. */
void report_value(struct tsr_writer *w, const json_t *v, unsigned depth);
/* A value as YAML on one line: {use: gptq, bits: 3}. */
void report_flow(struct tsr_writer *w, const json_t *v);
/* "title . key value . key value" of an object of scalars; NULL: nothing. */
void report_facts(struct tsr_writer *w, const char *title, const json_t *o);

/* ---- axes ------------------------------------------------------------------------------ */

struct report_axis {
    double low, high; /* data */
    double from, to;  /* user units of the drawing */
    bool   log;
};
/* Finite ends with room around [low, high], which may be one point; log: low > 0. */
void report_axis_fit(struct report_axis *a, double low, double high, bool log, double from,
                     double to);
/* Never outside [from, to]; NaN goes to `from`. */
double report_axis_at(const struct report_axis *a, double v);

#define REPORT_TICKS 16u
/* At most about `want` round values inside the axis, ascending; returns how many. */
unsigned report_axis_ticks(const struct report_axis *a, unsigned want, double tick[REPORT_TICKS]);
void     report_axis_label(char out[REPORT_NUMBER], const struct report_axis *a, const double *tick,
                           unsigned n, unsigned i);

/* ---- drawing --------------------------------------------------------------------------- */

#define REPORT_WIDTH 440.0 /* of every drawing, in user units */
#define REPORT_EM    12.0  /* size of its text */

void report_figure_open(struct tsr_writer *w, double height, const char *title);
/* note: meaning of the marks; NULL: none. */
void report_figure_close(struct tsr_writer *w, const char *note);

enum report_anchor { REPORT_START, REPORT_MIDDLE, REPORT_END };
void report_label(struct tsr_writer *w, double x, double y, enum report_anchor anchor,
                  const char *cls, const char *text);
void report_line(struct tsr_writer *w, const char *cls, double x1, double y1, double x2, double y2);
/* Begins an SVG file of a chart of two series, `ours` and `peer`; the end is </svg>. */
void report_file_head(struct tsr_writer *w, const char *title, double width, double height);
/* One entry of a legend, inside the drawing so that a standalone SVG file has it: a sample of a line, with
 * the dash pattern `dash` ("": as the class has it) and `mark`, the class of its points (NULL: none). */
#define REPORT_LEGEND 15.0 /* from row to row */
void report_legend(struct tsr_writer *w, double x, double y, const char *cls, const char *dash,
                   const char *mark, const char *text);
/* Lines at the ticks with their numbers: across for x, from below; for y, from the left. */
void report_grid_x(struct tsr_writer *w, const struct report_axis *x, unsigned want, double top,
                   double bottom);
void report_grid_y(struct tsr_writer *w, const struct report_axis *y, unsigned want, double left,
                   double right);
/* About how wide a text is, and the text cut to that width with an ellipsis. */
double report_text_width(const char *s);
void   report_text_cut(char *out, size_t cap, const char *s, double width);

struct report_box {
    double x1, y1, x2, y2;
};
/* Places a label next to (x, y) where it meets no box of taken[*n] and stays in `frame`; adds its box.
 * false: no free place. taken has room for one more. */
bool report_place(struct report_box *taken, uint64_t *n, const struct report_box *frame, double x,
                  double y, const char *text, double *at_x, double *at_y,
                  enum report_anchor *anchor);

#define REPORT_PEER_POINTS 64u /* boxes in a chart of two programs: a point and a name each */

/* ---- plots: each writes a figure, or nothing if the results lack its data ---------------- */

/* Of the vertical axis; WRONG: of the first task of shares, the share of wrong answers. */
enum report_quality { REPORT_KL, REPORT_DELTA, REPORT_WRONG };
enum report_against { REPORT_BITS, REPORT_BYTES, REPORT_DECODE };
void report_plot_quality(struct tsr_writer *w, const json_t *compare, enum report_quality what,
                         enum report_against against);
void report_plot_spread(struct tsr_writer *w, const json_t *compare);
void report_plot_speed(struct tsr_writer *w, const json_t *compare, const char *phase,
                       const char *title);
/* One table of indicators: layers across, a panel for each width. */
void report_plot_indicator(struct tsr_writer *w, const json_t *indicators, const json_t *table);
/* Bits of each layer in every arm and quantize step of the results in which layers differ. */
void report_plot_bits(struct tsr_writer *w, const json_t *results);

/* All sweeps of the results. */
void report_plot_sweeps(struct tsr_writer *w, const json_t *results);

/* ---- sections --------------------------------------------------------------------------- */

void report_compare(struct tsr_writer *w, const json_t *compare);
/* What each arm is, and the conditions that it meets. */
void report_arms(struct tsr_writer *w, const json_t *compare);
/* Named tasks of a comparison; nothing without them. */
void report_tasks(struct tsr_writer *w, const json_t *compare);
/* The "section" of a step that a plugin brings (tessera/step.h). */
void report_section(struct tsr_writer *w, const json_t *section);
void report_indicators(struct tsr_writer *w, const json_t *indicators);
void report_sweep(struct tsr_writer *w, const json_t *sweep);
void report_outliers(struct tsr_writer *w, const json_t *outliers);

#endif
