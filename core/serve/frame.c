#include "serve/frame.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC         0x31535254u /* "TRS1" */
#define PIECE         65536u
#define WRITE_LIMIT_S 30 /* without a byte taken, where the descriptor does not block */
/* An answer is at most a line of a batch (batch/entry.h). */
#define LENGTH_MOST (80u << 20)

struct head {
    uint32_t magic, kind;
    uint64_t id;
    uint32_t status, length;
};

static int put(int fd, const void *data, size_t n)
{
    const char *p = data;
    int         left = WRITE_LIMIT_S;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w > 0) {
            p += w;
            n -= (size_t)w;
            left = WRITE_LIMIT_S;
        } else if (w < 0 && errno == EAGAIN) {
            struct pollfd wait = { .fd = fd, .events = POLLOUT };
            if (left-- == 0)
                return ETIMEDOUT;
            (void)poll(&wait, 1, 1000);
        } else if (w < 0 && errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int tsr_serve_frame_write(int fd, const struct tsr_serve_frame *f)
{
    struct head h = { MAGIC, f->kind, f->id, f->status, f->length };
    int         e = put(fd, &h, sizeof h);
    return e ? e : put(fd, f->payload, f->length);
}

int tsr_serve_frames_fill(struct tsr_serve_frames *in, int fd)
{
    if (in->used) {
        memmove(in->v, in->v + in->used, in->n - in->used);
        in->n -= in->used;
        in->used = 0;
    }
    if (in->cap - in->n < PIECE) {
        size_t cap = 2 * in->cap + 2 * (size_t)PIECE;
        char  *v = realloc(in->v, cap);
        if (!v)
            return ENOMEM;
        in->v = v;
        in->cap = cap;
    }
    ssize_t n = read(fd, in->v + in->n, PIECE);
    if (n < 0)
        return errno == EINTR ? EAGAIN : errno;
    in->n += (size_t)n;
    return n ? 0 : EPIPE;
}

bool tsr_serve_frames_next(struct tsr_serve_frames *in, struct tsr_serve_frame *f, bool *wrong)
{
    struct head h;
    *wrong = false;
    if (in->n - in->used < sizeof h)
        return false;
    memcpy(&h, in->v + in->used, sizeof h);
    if (h.magic != MAGIC || h.length > LENGTH_MOST) {
        *wrong = true;
        return false;
    }
    if (in->n - in->used - sizeof h < h.length)
        return false;
    *f = (struct tsr_serve_frame){ .magic = h.magic,
                                   .kind = h.kind,
                                   .id = h.id,
                                   .status = h.status,
                                   .length = h.length,
                                   .payload = in->v + in->used + sizeof h };
    in->used += sizeof h + h.length;
    return true;
}

void tsr_serve_frames_free(struct tsr_serve_frames *in)
{
    free(in->v);
    memset(in, 0, sizeof *in);
}
