/* garble PROCESS SEED KIND - puts a wrong frame between two ranks of a group that runs over `local`.
 *
 * PROCESS is one of them, and all stand still meanwhile.  The memory that they share is reached through its file
 * descriptors.  Of all directions in which something was ever sent, SEED takes one; where nothing is on its
 * way there, the frame is put behind what was taken, else it replaces what is.  Says what it did.
 *
 *   noise     random bytes           sum     a head that does not have its CRC
 *   magic     another magic          length  another number of bytes, with the right CRC
 *   epoch     of an earlier run      again   one that was taken already
 *   payload   a right head, a payload that does not have its CRC
 *   words     right in every way, but for its payload, which is random
 *
 * Exit 1: nothing was sent so far, try again; 2: it cannot be done.
 */
#include "../../plugins/comm/local/frame.h"
#include "../../plugins/comm/local/ring.h"
#include "tessera/crc32c.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 256 /* directions */

static uint64_t state;
static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

struct direction {
    struct local_world *world;
    struct local_ring  *ring;
    uint64_t            capacity;
    uint32_t            from, to, world_number;
    struct frame        last; /* the newest whose head still lies in the ring */
};

static struct direction all[MOST];
static size_t           n;

static void copy_out(const struct direction *d, uint64_t at, void *to, size_t bytes)
{
    const unsigned char *data = (const unsigned char *)(d->ring + 1);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = data[(at + i) % d->capacity];
}

static uint32_t sum_of(const struct frame *f)
{
    return tsr_crc32c_by(tsr_crc32c_level(), 0, f, offsetof(struct frame, crc));
}

/* Heads begin anywhere; what has the magic and its sum is one. */
static int newest(struct direction *d)
{
    uint64_t end = atomic_load(&d->ring->written);
    uint64_t begin = end > d->capacity ? end - d->capacity : 0;
    int      found = 0;
    for (uint64_t at = begin; at + sizeof(struct frame) <= end; at++) {
        struct frame f;
        copy_out(d, at, &f, sizeof f);
        if (f.magic != FRAME_MAGIC || f.crc != sum_of(&f))
            continue;
        if (!found || f.sequence >= d->last.sequence)
            d->last = f;
        found = 1;
    }
    return found;
}

static void note_world(int fd, uint64_t bytes, uint32_t number)
{
    struct local_world *w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (w == MAP_FAILED)
        return;
    uint64_t capacity = atomic_load(&w->capacity);
    uint32_t ranks = 1;
    while (ranks <= LOCAL_MAX_RANKS && local_world_bytes(ranks, capacity) < bytes)
        ranks++;
    if (capacity == 0 || local_world_bytes(ranks, capacity) != bytes) {
        (void)munmap(w, bytes);
        return; /* nobody has joined, or it is no world of ours */
    }
    for (uint32_t from = 0; from < ranks; from++)
        for (uint32_t to = 0; to < ranks && n < MOST; to++) {
            all[n] = (struct direction){ .world = w,
                                         .ring = local_ring_of(w, ranks, capacity, from, to),
                                         .capacity = capacity,
                                         .from = from,
                                         .to = to,
                                         .world_number = number };
            n += from != to && newest(&all[n]);
        }
}

static int find_worlds(const char *process)
{
    char folder[64], path[400], target[256];
    (void)snprintf(folder, sizeof folder, "/proc/%.20s/fd", process);
    DIR *d = opendir(folder);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ssize_t len = readlink(path, target, sizeof target - 1);
        if (len <= 0)
            continue;
        target[len] = '\0';
        if (strncmp(target, "/memfd:tessera-ranks", 20) != 0)
            continue;
        struct stat s;
        int         fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fstat(fd, &s) == 0 && s.st_size > 0)
            note_world(fd, (uint64_t)s.st_size, (uint32_t)strtoul(e->d_name, NULL, 10));
        (void)close(fd);
    }
    (void)closedir(d);
    return 0;
}

/* The frame of a kind behind d->last, to buf; its bytes, or 0 for an unknown kind. */
static size_t make(const struct direction *d, const char *kind, unsigned char *buf, size_t room)
{
    struct frame f = d->last;
    size_t       payload = f.bytes < room - sizeof f - 4 ? (size_t)f.bytes : room - sizeof f - 4;
    f.sequence++;
    for (size_t i = 0; i < room; i++)
        buf[i] = (unsigned char)draw();
    if (strcmp(kind, "noise") == 0)
        return 1 + draw() % room;
    if (strcmp(kind, "magic") == 0)
        f.magic ^= 1u << draw() % 32;
    else if (strcmp(kind, "length") == 0)
        f.bytes += 1 + draw() % 4096;
    else if (strcmp(kind, "epoch") == 0)
        f.epoch -= 1 + draw() % 3;
    else if (strcmp(kind, "again") == 0)
        f.sequence--;
    f.crc = sum_of(&f);
    if (strcmp(kind, "sum") == 0)
        f.crc ^= 1u << draw() % 32;
    else if (strcmp(kind, "payload") != 0 && strcmp(kind, "words") != 0 &&
             strcmp(kind, "magic") != 0 && strcmp(kind, "length") != 0 &&
             strcmp(kind, "epoch") != 0 && strcmp(kind, "again") != 0)
        return 0;
    memcpy(buf, &f, sizeof f);
    uint32_t crc = tsr_crc32c_by(tsr_crc32c_level(), 0, buf + sizeof f, payload);
    if (strcmp(kind, "payload") == 0)
        crc ^= 1u << draw() % 32;
    memcpy(buf + sizeof f + payload, &crc, sizeof crc);
    return sizeof f + payload + sizeof crc;
}

int main(int argc, char **argv)
{
    unsigned char buf[8192];
    if (argc != 4)
        return 2;
    state = strtoull(argv[2], NULL, 10);
    if (find_worlds(argv[1]) != 0) {
        (void)fprintf(stderr, "garble: process %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    if (n == 0)
        return 1;
    const struct direction *d = &all[draw() % n];
    size_t                  bytes = make(d, argv[3], buf, sizeof buf);
    if (bytes == 0)
        return 2;
    uint64_t written = atomic_load(&d->ring->written), taken = atomic_load(&d->ring->taken);
    uint64_t at = taken;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)(d->ring + 1))[(at + i) % d->capacity] = buf[i];
    if (taken + bytes > written)
        atomic_store(&d->ring->written, taken + bytes);
    printf("%s: %zu bytes from rank %u to rank %u of world %u, behind message %llu, %llu were on "
           "their way\n",
           argv[3], bytes, d->from, d->to, d->world_number, (unsigned long long)d->last.sequence,
           (unsigned long long)(written - taken));
    return 0;
}
