/* faulty.h - arguments of the kernels in faulty.cu. */
#ifndef TSR_TEST_FAULTY_H
#define TSR_TEST_FAULTY_H

#include <stdint.h>

struct faulty_args {
    uint64_t in, out;
    uint32_t n;
};

#endif
