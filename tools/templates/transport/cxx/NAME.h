#include <tessera/transport.h>
extern const struct tsr_transport_v1 table;
