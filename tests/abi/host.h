/* host.h - a small host that knows the SDK headers alone.  It is built against the headers of every
 * minor and uses plugins of every other: what it is given longer it reads as far as it knows, what
 * is shorter it does without. */
#ifndef TSR_TEST_ABI_HOST_H
#define TSR_TEST_ABI_HOST_H

#include <stdbool.h>
#include <tessera/plugin.h>

struct user {
    const struct tsr_host *host;
    void                  *options; /* the component's defaults */
    char                   text[512];
    struct tsr_err         err; /* writes into text */
    const char            *wrong;
};

/* Each does typical work with a full-size copy of the kind's table and compares what comes out;
 * false with u->wrong (and u->text, where the plugin said something). */
bool use_quantizer(struct user *u, const void *iface);
bool use_codec(struct user *u, const void *iface);
bool use_transport(struct user *u, const void *iface);
bool use_solver(struct user *u, const void *iface);
/* Keeps the instance for the plugins that follow: backend_service() asks it. */
bool        use_backend(struct user *u, const void *iface);
const void *backend_service(const char *id);
void        backend_close(void);

#define SAY(u, words) ((u)->wrong = (words), false)

static inline float noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

/* Bytes behind a struct that a plugin fills, all 0xcd before. */
static inline bool untouched(const unsigned char *behind, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (behind[i] != 0xcd)
            return false;
    return true;
}

/* The size of the kind's table in these headers and its function above; false: unknown. */
struct kind {
    const char *id;
    uint64_t    size;
    bool (*use)(struct user *u, const void *iface);
};
const struct kind *kind_find(const char *id);

#endif
