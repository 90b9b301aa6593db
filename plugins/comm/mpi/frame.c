/* frame.c - the wire format: a head and the payload, written here and checked against the request. */
#include "group.h"
#include "tessera/crc32c.h"

#include <stddef.h>
#include <string.h>

#define FRAME_MAGIC 0x4d525354u /* "TSRM" */

void mpi_frame_write(const struct mpi *s, struct mpi_part *p, const void *src)
{
    struct mpi_frame f = { .magic = FRAME_MAGIC,
                           .kind = p->kind,
                           .from = (uint16_t)s->rank,
                           .sequence = p->sequence,
                           .bytes = p->bytes,
                           .epoch = s->epoch,
                           .to = p->peer };
    if (p->bytes)
        memcpy(p->frame + sizeof f, src, p->bytes);
    f.payload_crc = tsr_crc32c_by(s->crc_level, 0, p->frame + sizeof f, p->bytes);
    memcpy(p->frame, &f, sizeof f);
    f.crc = tsr_crc32c_by(s->crc_level, 0, p->frame, offsetof(struct mpi_frame, crc));
    memcpy(p->frame, &f, sizeof f);
}

static tsr_status refuse(struct mpi *s, const struct mpi_part *p, const char *what,
                         struct tsr_err *err)
{
    s->refused++;
    return tsr_fail(err, TSR_E_DEVICE,
                    "mpi: rank %u received %s from rank %u (message %llu); it was refused", s->rank,
                    what, p->peer, (unsigned long long)p->sequence);
}

tsr_status mpi_frame_read(struct mpi *s, struct mpi_part *p, uint64_t got, struct tsr_err *err)
{
    static const char *const names[] = { "nothing", "a message", "all_gather", "all_to_all" };
    struct mpi_frame         f;
    if (got < sizeof f)
        return refuse(s, p, "a damaged frame", err);
    memcpy(&f, p->frame, sizeof f);
    if (f.magic != FRAME_MAGIC ||
        f.crc != tsr_crc32c_by(s->crc_level, 0, p->frame, offsetof(struct mpi_frame, crc)) ||
        f.from != p->peer || f.to != s->rank || f.sequence != p->sequence)
        return refuse(s, p, "a damaged frame", err);
    if (f.epoch != s->epoch)
        return refuse(s, p, "a frame of another epoch", err);
    if (f.kind != p->kind || f.bytes != p->bytes)
        return tsr_fail(err, TSR_E_DEVICE,
                        "mpi: rank %u started %s of %llu bytes where rank %u sent %s of %llu; all "
                        "ranks must start the same operations in the same order",
                        s->rank, names[p->kind], (unsigned long long)p->bytes, p->peer,
                        names[f.kind <= MPI_KIND_ALL_TO_ALL ? f.kind : 0],
                        (unsigned long long)f.bytes);
    if (got != sizeof f + p->bytes ||
        f.payload_crc != tsr_crc32c_by(s->crc_level, 0, p->frame + sizeof f, p->bytes))
        return refuse(s, p, "damaged bytes", err);
    if (p->bytes)
        memcpy(p->dst, p->frame + sizeof f, p->bytes);
    if (p->peer != s->rank)
        s->received += p->bytes;
    return TSR_OK;
}
