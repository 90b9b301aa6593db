#include <tessera/sampler.h>

struct options {
    double penalty;
};

extern const struct tsr_sampler_v1 table;
