#include <tessera/step.h>

struct options {
    double below;
};

extern const struct tsr_step_v1 table;
