#include <tessera/backend.h>

extern const struct tsr_backend_v1 table;
