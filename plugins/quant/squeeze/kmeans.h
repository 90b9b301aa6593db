/* kmeans.h - exact weighted k-means of numbers on a line.
 *
 * Clusters of an optimal solution are runs of the sorted numbers, so the optimum over all
 * partitions is a shortest path: D[j][i] = min over m of D[j-1][m] + cost(m, i), where cost(m, i)
 * is the weighted squared distance of points m..i-1 to their mean.  cost obeys the quadrangle
 * inequality, so the best m grows with i and with j, and one layer takes O(n log n) steps
 * (Wu, Optimal Quantization by Matrix Searching, J. Algorithms 12, 1991; Gronlund et al.,
 * Fast Exact k-Means, 2017). */
#ifndef TSR_SQUEEZE_KMEANS_H
#define TSR_SQUEEZE_KMEANS_H

#include <stdint.h>

/* Work space for up to cap points and k centres; all arrays are in the caller's memory. */
struct kmeans {
    uint64_t  cap, n;
    uint32_t  k;
    double   *x, *w;          /* [n] distinct values, ascending; weights, positive */
    double   *s0, *s1, *s2;   /* [n+1] sums of w, w*x, w*x^2 from the middle on   */
    double   *shorter, *cost; /* [n+1] layers j-1 and j of D                      */
    uint32_t *split;          /* [k][n+1] best m of every layer                   */
};

/* Bytes that kmeans_place() needs, 0 if that does not fit 64 bits.  cap is below 2^31. */
uint64_t kmeans_bytes(uint64_t cap, uint32_t k);
/* Lays the arrays out in memory, which is aligned for doubles. */
void kmeans_place(struct kmeans *m, void *memory, uint64_t cap, uint32_t k);

/* The centres of the best partition of x[0..n) into at most k clusters, ascending; fewer if there
 * are fewer points.  Returns their number, 0 if stop(arg) returned nonzero (called once a layer).
 * n is at least 1. */
uint32_t kmeans_solve(struct kmeans *m, double *centre, int32_t (*stop)(void *arg), void *arg);

#endif
