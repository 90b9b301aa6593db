#include "batch/entry.h"

#include "batch/crc32c.h"

#include <string.h>

#define MAGIC   UINT32_C(0x4a525401) /* 01 'T' 'R' 'J' */
#define VERSION 1u

static void put(unsigned char *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get(const unsigned char *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

uint64_t tsr_batch_entry_synced(const struct tsr_batch_entry *f)
{
    bool has =
        f->len == 8 && (f->type == TSR_BATCH_ENTRY_LEASE || f->type == TSR_BATCH_ENTRY_EPOCH);
    return has ? get((const unsigned char *)f->payload, 8) : 0;
}

void tsr_batch_entry_put_synced(unsigned char payload[8], uint64_t bytes)
{
    put(payload, bytes, 8);
}

uint64_t tsr_batch_entry_bytes(uint32_t len)
{
    return (uint64_t)TSR_ENTRY_HEAD + len + TSR_ENTRY_TAIL;
}

void tsr_batch_entry_write(const struct tsr_batch_entry *f, uint32_t seed, void *out)
{
    unsigned char *p = out;
    put(p, MAGIC, 4);
    put(p + 4, VERSION, 2);
    put(p + 6, f->type, 2);
    put(p + 8, f->epoch, 8);
    put(p + 16, f->index, 8);
    put(p + 24, f->attempt, 2);
    put(p + 26, f->flags, 2);
    put(p + 28, f->len, 4);
    if (f->len)
        memcpy(p + TSR_ENTRY_HEAD, f->payload, f->len);
    if (f->type == TSR_BATCH_ENTRY_HEADER)
        seed = 0;
    put(p + TSR_ENTRY_HEAD + f->len, tsr_batch_crc32c(seed, p, TSR_ENTRY_HEAD + (uint64_t)f->len),
        4);
}

int tsr_batch_entry_read(const void *data, uint64_t n, uint32_t seed, struct tsr_batch_entry *f,
                         uint64_t *need)
{
    const unsigned char *p = data;
    unsigned char        magic[6];
    put(magic, MAGIC, 4);
    put(magic + 4, VERSION, 2);
    *need = TSR_ENTRY_HEAD;
    if (memcmp(p, magic, n < sizeof magic ? n : sizeof magic) != 0)
        return 0;
    if (n < TSR_ENTRY_HEAD)
        return -1;
    uint64_t type = get(p + 6, 2), len = get(p + 28, 4);
    if (type < TSR_BATCH_ENTRY_HEADER || type > TSR_BATCH_ENTRY_SEAL || len > TSR_ENTRY_MOST)
        return 0;
    *need = tsr_batch_entry_bytes((uint32_t)len);
    if (n < *need)
        return -1;
    if (type == TSR_BATCH_ENTRY_HEADER)
        seed = 0;
    if (tsr_batch_crc32c(seed, p, TSR_ENTRY_HEAD + len) != get(p + TSR_ENTRY_HEAD + len, 4))
        return 0;
    *f = (struct tsr_batch_entry){ .type = (enum tsr_entry_type)type,
                                   .epoch = get(p + 8, 8),
                                   .index = get(p + 16, 8),
                                   .attempt = (uint16_t)get(p + 24, 2),
                                   .flags = (uint16_t)get(p + 26, 2),
                                   .len = (uint32_t)len,
                                   .payload = (const char *)p + TSR_ENTRY_HEAD };
    return 1;
}
