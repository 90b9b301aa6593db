#include <tessera/kv.h>

struct options {
    int32_t nearest;
};

extern const struct tsr_kv_v1 table;
