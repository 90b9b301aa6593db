/* Sizes of KV-cache codecs, kept for the process. */
#include "plugin/kv_sizes.h"

#include <pthread.h>
#include <string.h>

#define KNOWN_MOST 256

struct known {
    int64_t              kv;
    uint64_t             head_dim;
    struct tsr_kv_layout layout[2];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known    known[KNOWN_MOST];
static int             n_known;
static uint32_t        type_of[TSR_CONFIG_NAMES_MOST]; /* 0: not known, or of the codec alone */

int64_t tsr_plugin_kv_type(int64_t kv)
{
    if (!tsr_plugin_kv_is_text(kv))
        return kv;
    pthread_mutex_lock(&lock);
    uint32_t type = type_of[kv - TSR_CONFIG_NAMES_FIRST];
    pthread_mutex_unlock(&lock);
    return type ? type : kv;
}

void tsr_plugin_kv_put_type(int64_t kv, const struct tsr_kv_layout layout[2])
{
    uint32_t keys = layout[TSR_KV_KEYS].type, values = layout[TSR_KV_VALUES].type;
    bool     pair = values == TSR_Q4 ? keys == TSR_Q4_CHANNEL : keys == values;
    pthread_mutex_lock(&lock);
    type_of[kv - TSR_CONFIG_NAMES_FIRST] = pair ? values : 0;
    pthread_mutex_unlock(&lock);
}

/* lock is held. */
static struct known *find(int64_t kv, uint64_t head_dim)
{
    for (int i = 0; i < n_known; i++)
        if (known[i].kv == kv && (!head_dim || known[i].head_dim == head_dim))
            return &known[i];
    return NULL;
}

tsr_status tsr_plugin_kv_remember(int64_t kv, uint64_t head_dim,
                                  const struct tsr_kv_layout layout[2], const char *name,
                                  struct tsr_err *err)
{
    pthread_mutex_lock(&lock);
    struct known *k = find(kv, head_dim);
    if (!k && n_known < KNOWN_MOST)
        k = &known[n_known++];
    if (k) {
        *k = (struct known){ .kv = kv, .head_dim = head_dim };
        memcpy(k->layout, layout, sizeof k->layout);
    }
    pthread_mutex_unlock(&lock);
    return k ? TSR_OK
             : tsr_fail(err, TSR_E_NOMEM,
                        "KV-cache codec '%s': this process has %d codecs and head dimensions, "
                        "which is all that it has room for",
                        name, KNOWN_MOST);
}

bool tsr_plugin_kv_layouts(int64_t kv, uint64_t head_dim, uint64_t *dim,
                           struct tsr_kv_layout layout[2])
{
    pthread_mutex_lock(&lock);
    const struct known *k = find(kv, head_dim);
    if (k)
        memcpy(layout, k->layout, sizeof k->layout);
    if (k && dim)
        *dim = k->head_dim;
    pthread_mutex_unlock(&lock);
    return k != NULL;
}

bool tsr_plugin_kv_has_blocks(int64_t kv)
{
    struct tsr_kv_layout l[2];
    kv = tsr_plugin_kv_type(kv);
    if (!tsr_plugin_kv_is_codec(kv))
        return kv == TSR_Q4;
    return !tsr_plugin_kv_layouts(kv, 0, NULL, l) || l[TSR_KV_KEYS].positions > 1 ||
           l[TSR_KV_VALUES].positions > 1;
}
