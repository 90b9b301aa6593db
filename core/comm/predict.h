/* comm/predict.h - how long a sum will take, from the speed of the codec and of the link. */
#ifndef TSR_COMM_PREDICT_H
#define TSR_COMM_PREDICT_H

#include "comm/coder.h"

/* Seconds for each number, on this machine under its current load: coding, and decoding or adding. */
struct tsr_comm_speed {
    double encode, decode;
};

/* A message of n bytes arrives alpha + n / rate seconds after it was sent; rate (bytes/s) covers
 * everything that one rank sends. */
struct tsr_comm_path {
    double alpha, rate;
};

/* Best of `rounds` for an instance of the coder on made-up numbers.  [worker] */
tsr_status tsr_comm_measure(const struct tsr_comm_coder *c, uint64_t rows, uint64_t cols,
                            uint32_t rounds, struct tsr_comm_speed *v, struct tsr_err *err);

/* Seconds of one sum: the steps of a group, piece by piece, with one processor for each rank and one
 * outgoing wire. The messages of a hop leave one after the other and travel concurrently: rate counts all
 * of them, alpha counts once. The planner's meshes (plan/cost/latency.h) take their times from here. Of c,
 * only what wire bytes need is used: iface->wire_bytes, algorithm, ranks, coupled, piece, self. */
tsr_status tsr_comm_predict(const struct tsr_comm_coder *c, const struct tsr_comm_speed *v,
                            const struct tsr_comm_path *p, uint64_t rows, uint64_t cols,
                            double *seconds, struct tsr_err *err);

/* Least squares of y = alpha + x / rate, alpha >= 0; relative errors have equal weight. False: fewer than
 * two sizes, or time that does not grow with the size. */
bool tsr_comm_fit(const double *x, const double *y, uint64_t n, struct tsr_comm_path *p);

#endif
