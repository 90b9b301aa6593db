/* plugin/fpmode.h - the control part of the floating-point environment: rounding, flush to zero
 * and exception masks.  Code linked with -ffast-math changes it when it is loaded. */
#ifndef TSR_PLUGIN_FPMODE_H
#define TSR_PLUGIN_FPMODE_H

#include <stdbool.h>
#include <stdint.h>

struct tsr_plugin_fpmode {
    uint32_t vector, scalar; /* x86: MXCSR without its status flags, x87 control word */
};

static inline struct tsr_plugin_fpmode tsr_fpmode_get(void)
{
    struct tsr_plugin_fpmode m = { 0, 0 };
#if defined(__x86_64__)
    uint16_t cw;
    __asm__ volatile("fnstcw %0" : "=m"(cw));
    m.scalar = cw;
    m.vector = __builtin_ia32_stmxcsr() & ~UINT32_C(0x3f);
#elif defined(__aarch64__)
    uint64_t r;
    __asm__ volatile("mrs %0, fpcr" : "=r"(r));
    m.vector = (uint32_t)r;
#endif
    return m;
}

static inline void tsr_fpmode_set(struct tsr_plugin_fpmode m)
{
#if defined(__x86_64__)
    uint16_t cw = (uint16_t)m.scalar;
    __asm__ volatile("fldcw %0" : : "m"(cw));
    __builtin_ia32_ldmxcsr(m.vector);
#elif defined(__aarch64__)
    uint64_t r = m.vector;
    __asm__ volatile("msr fpcr, %0" : : "r"(r));
#endif
}

static inline bool tsr_fpmode_equal(struct tsr_plugin_fpmode a, struct tsr_plugin_fpmode b)
{
    return a.vector == b.vector && a.scalar == b.scalar;
}

#endif
