/* cli/bench/comm.h - `tessera bench comm`: sums over ranks, by size, codec and algorithm. */
#ifndef TSR_CLI_BENCH_COMM_H
#define TSR_CLI_BENCH_COMM_H

#include "cli/cli.h"
#include "comm/internal.h"

#include <pthread.h>
#include <stdatomic.h>

struct bench_comm_options {
    const char *transport, *codecs, *rows; /* lists: codecs by ';', rows by ',' */
    const char *link; /* "4,370000": us and MB/s of a link to predict for; "": none */
    int64_t     ranks, cols, repeats;
};

#define BENCH_COMM_WAYS  24u
#define BENCH_COMM_SIZES 24u

/* What is measured: a codec and an algorithm, or the ring. */
struct bench_comm_way {
    struct tsr_comm_coder coder;
    const char           *codec, *algorithm; /* borrowed; "ring" has a BF16 coder */
    bool                  ring, calibrated;  /* calibrated here, on made-up numbers */
};

struct bench_comm_result {
    double   us, predicted_us; /* predicted 0: the ring */
    double   there_us;         /* predicted over the link that was given */
    uint64_t bytes;            /* that a rank sends */
};

/* One size. */
struct bench_comm_size {
    uint64_t                 rows;
    struct tsr_comm_path     path;
    uint32_t                 chosen; /* way */
    struct bench_comm_result result[BENCH_COMM_WAYS];
};

struct bench_comm {
    struct tsr_cli                  *cli;
    const struct bench_comm_options *o;
    struct tsr_comm_path             there; /* rate 0: no link was given */
    struct tsr_registry             *registry;
    uint32_t                         ranks;
    uint64_t                         cols;
    char                            *codecs; /* `way[].codec` point into it */
    struct bench_comm_way            way[BENCH_COMM_WAYS];
    uint32_t                         n_ways;
    struct bench_comm_size           size[BENCH_COMM_SIZES];
    uint32_t                         n_sizes;
    /* one size at work */
    struct bench_comm_size *at;
    struct tsr_comm_world   world;
    struct tsr_comm_group  *group[TSR_COMM_MAX_RANKS];
    pthread_barrier_t       barrier;
    _Atomic uint64_t awake; /* ranks that came out of the barrier before a sum, all sums together */
    double           took[TSR_COMM_MAX_RANKS];
    _Atomic bool     failed;
    struct tsr_errbuf why;
    pthread_mutex_t   lock; /* of why */
};

/* One sum as a ring of pieces: reduce-scatter, then all-gather; the baseline for BF16 without a Tessera
 * codec. c: a plain BF16 coder; scratch: 4 * rows * cols bytes. */
tsr_status bench_comm_ring(struct tsr_comm_group *g, const struct tsr_comm_coder *c, float *x,
                           uint64_t n, unsigned char *scratch, struct tsr_err *err);

/* comm_print.c */
tsr_status bench_comm_print(const struct bench_comm *b, struct tsr_err *err);

/* [setup] */
tsr_status bench_comm(struct tsr_cli *c, const struct bench_comm_options *o, struct tsr_err *err);

#endif
