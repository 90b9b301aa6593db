/* runtime/loader_internal.h - a load in progress: loader.c places the pieces that loader_work.c reads and
 * quantizes. */
#ifndef TSR_RUNTIME_LOADER_INTERNAL_H
#define TSR_RUNTIME_LOADER_INTERNAL_H

#include "model/pieces.h"
#include "quant/scheme_run.h"
#include "runtime/loader.h"

#include <pthread.h>

#define TSR_RUNTIME_LOADER_ROOMS   2u /* pieces in memory in stored form */
#define TSR_RUNTIME_LOADER_PACKERS 2u /* pieces that are quantized at the same time */
#define TSR_RUNTIME_LOADER_WAITING 8u /* packed pieces that are not placed yet */
#define TSR_RUNTIME_LOADER_NO_ROOM TSR_RUNTIME_LOADER_ROOMS

struct tsr_runtime_loader_part {
    struct tsr_model_layer_piece piece;
    uint64_t                     layer;
    uint8_t                     *cut;  /* [piece.n], 1: only this rank's part is read */
    uint64_t                     left; /* linears that are not placed yet */
    uint32_t                     room; /* room of its stored form, or TSR_RUNTIME_LOADER_NO_ROOM */
    bool                         packed;
};

struct tsr_loader {
    const struct tsr_model           *model;
    struct tsr_registry              *registry;
    struct tsr_runtime_progress      *progress; /* of the rank that loads; or NULL */
    struct tsr_scheme_run            *run;
    struct tsr_model_overlay         *overlay;
    struct tsr_engine_share           share; /* ranks 0: all */
    struct tsr_engine_source          source;
    struct tsr_runtime_loader_numbers numbers;
    struct tsr_runtime_loader_part   *part; /* of all layers, in order */
    struct tsr_model_piece_linear    *lin;  /* of all parts */
    uint8_t                          *cut;  /* likewise */
    uint64_t                          n;
    double                            fetched_s; /* when the linear that is being placed was
                                                  * fetched */
    pthread_t                         reader, packer[TSR_RUNTIME_LOADER_PACKERS];
    uint32_t                          packers; /* that were started */
    uint32_t                          packing; /* that have begun */
    bool                              reading, stop;
    pthread_mutex_t                   lock;
    pthread_cond_t                    changed;
    /* parts [0, placed) are on the device, [0, packed) quantized, [0, taken) were begun to be, [0, read)
     * were read */
    uint64_t read, taken, packed, placed;
    uint32_t at_work; /* packers with a part */
    double   work_s;  /* since when there is one */
    struct room {
        void *data; /* of the largest piece's bytes, or NULL */
        bool  taken;
    } room[TSR_RUNTIME_LOADER_ROOMS];
    uint64_t          now; /* bytes in host memory */
    tsr_status        status;
    struct tsr_errbuf err; /* of status */
};

/* The lock is held. */
void tsr_runtime_loader_count(struct tsr_loader *l, uint64_t more, uint64_t less);
/* Call with the lock held. The stored piece is no longer needed; after the last one the room is freed too. */
void  tsr_runtime_loader_leave_room(struct tsr_loader *l, struct tsr_runtime_loader_part *p);
void *tsr_runtime_loader_read(void *arg);
/* Two parts at a time: while one waits for its last rows, or for a CPU that reads or places, the other
 * continues. The first one uses the pool; the other works on its own thread. */
void *tsr_runtime_loader_pack(void *arg);

#endif
