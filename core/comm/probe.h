/* comm/probe.h - alpha and beta of every pair of ranks, measured. */
#ifndef TSR_COMM_PROBE_H
#define TSR_COMM_PROBE_H

#include "comm/predict.h"
#include "comm/world.h"

#define TSR_COMM_HOST 64

/* From each rank to each other, and where the ranks are. */
struct tsr_comm_map {
    uint32_t              ranks;
    struct tsr_comm_path *path;  /* [from * ranks + to]; the diagonal is zero */
    char (*host)[TSR_COMM_HOST]; /* [ranks] */
};

/* Probes pair by pair, so that no two pairs disturb each other: messages of 1 byte to 4 MiB (while they
 * take less than 0.1 s) and an answer of one byte; the median of a few. The time of an answer counts as
 * half of the round-trip latency. All ranks call it and get the same map. deadline_us: of one wait, which
 * lasts as long as the other pairs take. [worker] */
tsr_status tsr_comm_probe_pairs(struct tsr_comm_map *m, const struct tsr_comm_port *p,
                                uint32_t rank, uint32_t ranks, uint64_t deadline_us,
                                struct tsr_err *err);
void       tsr_comm_map_free(struct tsr_comm_map *m);

/* Rank and rank count from the launcher of processes (mpirun). False: no launcher started this process. */
bool tsr_comm_launched(uint32_t *rank, uint32_t *ranks);

#endif
