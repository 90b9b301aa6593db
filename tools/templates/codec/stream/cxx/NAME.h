#include <tessera/codec.h>

extern const struct tsr_codec_v1 table;
