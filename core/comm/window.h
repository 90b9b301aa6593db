/* comm/window.h - sums in memory that the devices of all ranks see (tessera/draft/window.h): one operation of the
 * backend, without messages. */
#ifndef TSR_COMM_WINDOW_H
#define TSR_COMM_WINDOW_H

#include "comm/coder.h"
#include "tessera/draft/window.h"

/* Bytes of the rows on the wire: larger sums go through messages. */
#define TSR_COMM_WINDOW_MOST (UINT64_C(512) << 10)

/* The sums of a coder, or those of one site if their codes differ by site. */
struct tsr_comm_window_sums {
    const struct tsr_comm_coder *coder;
    uint64_t cols, row_bytes; /* row_bytes: of a rank's numbers; 0: they go through messages */
    uint32_t site;
    bool     any_site;
    void    *loaded; /* NULL: not yet, or the backend does not add them */
};

struct tsr_comm_window {
    bool                                met; /* the ranks have been asked */
    struct tsr_window                   w;
    const struct tsr_backend_window_v1 *table;
    void                               *self;
    uint64_t                            turn; /* sums so far */
    struct tsr_comm_window_sums        *sums;
    uint64_t                            n_sums, cap_sums, at; /* at: where the next one is likely */
};

struct tsr_comm_group;

/* A rank whose numbers are in the host's memory: the others need not wait for its device. */
tsr_status tsr_comm_window_decline(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                                   uint32_t site, uint64_t rows, uint64_t cols,
                                   struct tsr_err *err);
/* x's sum, if the ranks have a window for it; else *done is false and nothing has happened. */
tsr_status tsr_comm_window_sum(struct tsr_comm_group *g, const struct tsr_comm_coder *c,
                               uint32_t site, const struct tsr_backend_v1 *backend, void *self,
                               const struct tsr_tensor *x, bool *done, struct tsr_err *err);
/* Before the transport closes. */
void tsr_comm_window_end(struct tsr_comm_window *w);

#endif
