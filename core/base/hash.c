#include "base/hash.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <xxhash.h>

struct tsr_hasher {
    XXH3_state_t *state;
};

static void print128(XXH128_hash_t h, char text[TSR_HASH_TEXT])
{
    (void)snprintf(text, TSR_HASH_TEXT, "xxh3:%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
}

tsr_status tsr_hasher_create(struct tsr_hasher **out, struct tsr_err *err)
{
    struct tsr_hasher *h = tsr_new(1, sizeof *h);
    if (h)
        h->state = XXH3_createState();
    if (!h || !h->state) {
        free(h);
        return tsr_fail_nomem(err, sizeof *h, "a hash");
    }
    (void)XXH3_128bits_reset(h->state);
    *out = h;
    return TSR_OK;
}

void tsr_hasher_update(struct tsr_hasher *h, const void *data, uint64_t bytes)
{
    if (bytes)
        (void)XXH3_128bits_update(h->state, data, bytes);
}

void tsr_hasher_finish(struct tsr_hasher *h, char text[TSR_HASH_TEXT])
{
    if (!h)
        return;
    print128(XXH3_128bits_digest(h->state), text);
    (void)XXH3_freeState(h->state);
    free(h);
}

void tsr_hash_bytes(const void *data, uint64_t bytes, char text[TSR_HASH_TEXT])
{
    print128(XXH3_128bits(data, bytes), text);
}

tsr_status tsr_hash_file(const char *path, char text[TSR_HASH_TEXT], struct tsr_err *err)
{
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    struct tsr_hasher *h = NULL;
    enum { CHUNK = 1 << 20 };
    void      *buf = malloc(CHUNK);
    tsr_status st = buf ? tsr_hasher_create(&h, err) : tsr_fail_nomem(err, CHUNK, path);
    for (uint64_t at = 0; st == TSR_OK && at < f.size;) {
        uint64_t n = f.size - at < CHUNK ? f.size - at : CHUNK;
        st = tsr_file_read(&f, at, buf, n, err);
        if (st == TSR_OK)
            tsr_hasher_update(h, buf, n);
        at += n;
    }
    char scratch[TSR_HASH_TEXT];
    tsr_hasher_finish(h, st == TSR_OK ? text : scratch);
    free(buf);
    tsr_file_close(&f);
    return st;
}
