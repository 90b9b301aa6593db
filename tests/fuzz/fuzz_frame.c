/* A peer that writes what it likes into the memory that ranks share: what `local` hands on is the
 * payload of a sound frame of this group, or nothing.  Bytes: what to repair (1 head, 2 its CRC, 4 the
 * payload's CRC, 8 paced), what is asked for (kind, bytes), how far the peer says it has written, then
 * the ring. */
#include "base/err.h"
#include "base/mem.h"
#include "comm/local/ring.h"
#include "tessera/crc32c.h"
#include "tessera/transport.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct tsr_plugin tsr_builtin_local;

#define RING  1024u
#define HEAD  48u
#define EPOCH UINT64_C(7)

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static void no_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}
static void *get(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    (void)align;
    must(size < 1u << 20); /* nothing grows with what a frame says */
    return tsr_new_aligned(size, 1);
}
static void drop(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static int32_t never(void *ctx)
{
    (void)ctx;
    return 0;
}
static const struct tsr_host host = { .struct_size = sizeof host,
                                      .abi_major = TSR_ABI_MAJOR,
                                      .abi_minor = TSR_ABI_MINOR,
                                      .log = no_log,
                                      .alloc = get,
                                      .release = drop,
                                      .cancelled = never };

static void put32(unsigned char *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

/* The head as rank 1 would write it, where flags ask for that. */
static void repair(unsigned char *ring, uint8_t flags, uint16_t kind, uint64_t bytes)
{
    const uint16_t from = 1;
    const uint64_t zero = 0, epoch = EPOCH;
    if (flags & 1) {
        put32(ring, 0x46525354u);
        memcpy(ring + 4, &kind, 2);
        memcpy(ring + 6, &from, 2);
        memcpy(ring + 8, &zero, 8); /* sequence */
        memcpy(ring + 16, &bytes, 8);
        memcpy(ring + 24, &epoch, 8);
        put32(ring + 40, 0); /* to */
    }
    if (flags & 2)
        put32(ring + 44, tsr_crc32c_by(TSR_CRC32C_PORTABLE, 0, ring, 44));
    if (flags & 4 && HEAD + bytes + 4 <= RING)
        put32(ring + HEAD + bytes, tsr_crc32c_by(TSR_CRC32C_PORTABLE, 0, ring + HEAD, bytes));
}

static void look(const struct tsr_transport_v1 *t, void *self, uint16_t kind, uint64_t bytes,
                 const unsigned char *ring)
{
    unsigned char    *got = calloc(2 * bytes + 2, 1), mine[64] = { 0 };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *q = NULL;
    int32_t           done = 0;
    must(got != NULL);
    tsr_status st = kind == 1   ? t->recv(self, NULL, 1, got, bytes, &q, &e.err)
                    : kind == 2 ? t->all_gather(self, NULL, mine, got, bytes, &q, &e.err)
                                : t->all_to_all(self, NULL, got, got, 0, &q, &e.err);
    must(st == TSR_OK && q);
    st = t->test(self, q, &done, &e.err);
    must(st == TSR_OK || (done && *e.text));
    struct tsr_transport_counts c = { .struct_size = sizeof c };
    ((const struct tsr_transport_counts_v1 *)t->extension(self, TSR_TRANSPORT_COUNTS))
        ->read(self, &c);
    must(c.received <= bytes && c.refused <= 1);
    if (st == TSR_OK && done && kind == 1) {
        must(memcmp(got, ring + HEAD, bytes) == 0 && c.refused == 0);
        uint32_t crc = tsr_crc32c_by(TSR_CRC32C_PORTABLE, 0, ring + HEAD, bytes);
        must(memcmp(ring + HEAD + bytes, &crc, sizeof crc) == 0);
    }
    must(got[2 * bytes + 1] == 0);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tsr_component    *comp = tsr_builtin_local.components[0];
    const struct tsr_transport_v1 *t = comp->iface;
    struct tsr_errbuf              e = TSR_ERRBUF(e);
    if (size < 4)
        return 0;
    uint8_t        flags = data[0];
    const uint16_t kind = (uint16_t)(1 + (data[1] & 3) % 3);
    uint64_t       bytes = data[1] >> 2, written = (uint64_t)data[2] * 5;
    int64_t       *opts = calloc(1, comp->options_size);
    must(opts != NULL);
    opts[0] = 1; /* ring: 1 KiB; the rest as fast as it goes */
    if (flags & 8) {
        const double rate = 1000;
        memcpy(&opts[1], &rate, sizeof rate);
    }
    if (data[2] == 255)
        memset(&written, data[3], sizeof written);
    struct tsr_transport_world w = { .struct_size = sizeof w, .ranks = 2, .epoch = EPOCH };
    w.shared_bytes = t->world_bytes(opts, 2);
    w.shared = calloc(1, w.shared_bytes);
    must(w.shared != NULL);
    struct local_ring *r = local_ring_of(w.shared, 2, RING, 1, 0);
    unsigned char     *ring = (unsigned char *)(r + 1);
    memcpy(ring, data + 4, size - 4 < RING ? size - 4 : RING);
    repair(ring, flags, kind, bytes);
    atomic_store(&r->written, written);
    void *self = NULL;
    must(t->create(&host, opts, &w, &self, &e.err) == TSR_OK);
    look(t, self, kind, bytes, ring);
    t->destroy(self);
    free(w.shared);
    free(opts);
    return 0;
}
