/* group.h - transport between the processes of an MPI job (`mpirun -n 4 tessera ...`): shared by its files.
 *
 * Every message is one MPI message: a head {magic, kind, sequence, size, epoch, CRCs} and the payload,
 * copied into memory of this plugin, so that a rank that gave up waiting may free its buffers. Nothing
 * blocks: MPI_Isend, MPI_Irecv and MPI_Test, under a deadline. Tags separate the groups of one job; a
 * second tag announces that a rank aborted. One thread at a time enters MPI. MPI_Init waits for the other
 * processes of the job, as MPI specifies. */
#ifndef TSR_COMM_MPI_GROUP_H
#define TSR_COMM_MPI_GROUP_H

#include "tessera/transport.h"

#include <mpi.h>
#include <stdbool.h>

#define MPI_MAX_REQUESTS  256u
#define MPI_LAST_WORDS_US 100000u /* of operations that are given up */

enum { MPI_KIND_MESSAGE = 1, MPI_KIND_GATHER = 2, MPI_KIND_ALL_TO_ALL = 3 };

struct mpi_frame {
    uint32_t magic;
    uint16_t kind, from;
    uint64_t sequence, bytes, epoch;
    uint32_t to, payload_crc;
    uint32_t zero, crc; /* of the preceding bytes */
};

struct mpi_opts {
    int64_t first, stride, tag;
};

struct mpi_part {
    MPI_Request    handle;
    unsigned char *frame; /* head and payload */
    void          *dst;   /* incoming */
    uint64_t       bytes, sequence;
    uint32_t       peer;
    uint16_t       kind;
    bool           out, done;
};

struct mpi_request {
    struct mpi_request *prev, *next;
    uint64_t            size; /* of this allocation */
    uint32_t            n, open;
    struct mpi_part     part[];
};

struct mpi_link {
    uint64_t out, in; /* sequences */
    bool     broken;
};

struct mpi {
    const struct tsr_host *host;
    int                    first, stride, tag;
    uint32_t               rank, ranks, n_requests;
    uint64_t               epoch, size;
    uint64_t               sent, received, refused;
    struct mpi_request    *requests;
    MPI_Request            news; /* a rank aborted */
    int                    news_from;
    uint32_t               aborted; /* 1 + that rank */
    unsigned               crc_level;
    struct mpi_link        link[];
};

/* ---- library.c ---------------------------------------------------------- */

/* Between the two this thread alone may call MPI. */
void mpi_enter(void);
void mpi_leave(void);
/* MPI up, for several threads, its errors returned.  [entered] */
tsr_status  mpi_start(struct tsr_err *err);
const char *mpi_text(int code); /* of an error, valid until this thread's next call */
uint64_t    mpi_now_us(void);
void        mpi_nap(unsigned round); /* between two polls, longer as rounds increase */

/* ---- frame.c ------------------------------------------------------------ */

/* The frame of p, which goes out, with p->bytes at src. */
void mpi_frame_write(const struct mpi *s, struct mpi_part *p, const void *src);
/* The received `got` bytes, checked against the request p; the payload goes to p->dst. */
tsr_status mpi_frame_read(struct mpi *s, struct mpi_part *p, uint64_t got, struct tsr_err *err);

/* ---- request.c; all of it between mpi_enter and mpi_leave --------------- */

/* TSR_E_CANCELLED where a rank has aborted the group. */
tsr_status mpi_hear(struct mpi *s, struct tsr_err *err);
/* *out: a request of up to `parts` messages of at most `bytes`, in the list of s; NULL with TSR_OK: too
 * many are outstanding. */
tsr_status mpi_request_new(struct mpi *s, void *stream, uint32_t parts, uint64_t bytes,
                           struct mpi_request **out, struct tsr_err *err);
/* One more message of r on its way: to peer, from src, or from peer, to dst. */
tsr_status mpi_part_start(struct mpi *s, struct mpi_request *r, bool out, uint16_t kind,
                          uint32_t peer, const void *src, void *dst, uint64_t bytes,
                          struct tsr_err *err);
/* Tests whether p of r has ended; p->done and r->open hold the result. */
tsr_status mpi_part_test(struct mpi *s, struct mpi_request *r, struct mpi_part *p,
                         struct tsr_err *err);
/* The end of r; messages that are open are given up. */
void mpi_request_release(struct mpi *s, struct mpi_request *r);

/* ---- group.c ------------------------------------------------------------ */

tsr_status mpi_create(const struct tsr_host *host, const void *opts,
                      const struct tsr_transport_world *world, void **self, struct tsr_err *err);
void       mpi_destroy(void *self);

/* The rank of the MPI job that is this rank of the group. */
static inline int mpi_rank_of(const struct mpi *s, uint32_t rank)
{
    return s->first + s->stride * (int)rank;
}

#endif
