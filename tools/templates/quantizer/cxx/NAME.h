#include <tessera/quantizer.h>
struct options { int64_t bits, group; };
extern const struct tsr_quantizer_v1 table;
