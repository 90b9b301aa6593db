/* row.h - one row of weights: its table, its codes, its outliers. */
#ifndef TSR_SQUEEZE_ROW_H
#define TSR_SQUEEZE_ROW_H

#include "kmeans.h"

#define MAX_TABLE 256 /* 8 bits */

/* Work space of one row, laid out in a call's scratch. */
struct row {
    uint64_t      cols, outliers;
    uint32_t      k;      /* entries of the table */
    float        *w;      /* [cols] the weights; -0 is stored as 0 */
    double       *column; /* [cols] sensitivity by column, if it is the same for all rows */
    double       *s;      /* [cols] sensitivity of this row's weights, largest 1 */
    uint64_t     *order;  /* [cols] ordered weight << 32 | column, ascending */
    uint64_t     *spare;  /* [cols] */
    uint8_t      *codes;  /* [cols] */
    uint8_t      *out;    /* [cols] 1: stored in addition to the codes */
    double        table[MAX_TABLE];
    uint32_t      n_table; /* entries found, ascending; fewer if the row has fewer values */
    struct kmeans km;
};

/* Scratch for rows of cols weights; 0 if that does not fit 64 bits.  cols is below 2^31. */
uint64_t row_bytes(uint64_t cols, uint32_t k);
void     row_place(struct row *r, void *memory, uint64_t cols, uint32_t k, uint64_t outliers);

/* Makes s the sample weights of SqueezeLLM's k-means: raw values scaled to a largest of 1, exact
 * zeros get weight 0 unless they count; all ones if every weight is 0. */
void row_weigh(struct row *r, int count_zeros);

/* Finds table and outliers for w and s.  Without outliers the table is the global minimum of sum s
 * (w - nearest entry)^2; with them the function alternately improves outliers and table, so that
 * the sum over the others never grows.  Returns 0 if stop(arg) requested it. */
int row_solve(struct row *r, int32_t (*stop)(void *arg), void *arg);

/* Codes of all weights: the nearest of the n ascending entries, the upper of two as near. */
void row_encode(struct row *r, const double *entry, uint32_t n);

#endif
