/* probe.c - "tessera.probe/1": times the probe kernels of the instance's instruction set. */
#include "probe.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "../encode/encode.h"
#include "backend.h"

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keeps a value alive without storing it. */
static inline void use(uint64_t v)
{
    __asm__ volatile("" : : "r"(v));
}

static tsr_status probe_read(void *self, const void *buffer, uint64_t offset, uint64_t bytes,
                             uint32_t shape, struct tsr_probe_result *r, struct tsr_err *err)
{
    struct tsr_cpu              *c = self;
    const struct tsr_cpu_buffer *b = buffer;
    if (!b || offset > b->bytes || bytes > b->bytes - offset || bytes < 65536)
        return tsr_fail(err, TSR_E_INVAL,
                        "probe: %llu bytes at %llu do not lie inside the buffer, "
                        "or are fewer than 65536",
                        (unsigned long long)bytes, (unsigned long long)offset);
    double t = now();
    use(c->k->probe_read(b->data + offset, bytes, shape));
    r->seconds = now() - t;
    uint64_t streams = UINT64_C(1) << (shape & 3);
    uint64_t read = bytes / streams / 256 * 256 * streams; /* whole blocks of every stream */
    r->work = (double)read;
    return TSR_OK;
}

static tsr_status probe_fma(void *self, double seconds, struct tsr_probe_result *r,
                            struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    const uint64_t  rounds = 480000; /* a multiple of every chain count */
    double          t = now(), work = 0;
    (void)err;
    do {
        use((uint64_t)c->k->probe_fma(rounds));
        work += (double)rounds * 16;
    } while (now() - t < seconds);
    r->seconds = now() - t;
    r->work = work;
    return TSR_OK;
}

static tsr_status probe_dot(void *self, double seconds, struct tsr_probe_result *r,
                            struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    const uint64_t  rounds = 480000;
    double          t = now(), work = 0;
    (void)err;
    do {
        use((uint64_t)c->k->probe_dot(rounds));
        work += (double)rounds * 64;
    } while (now() - t < seconds);
    r->seconds = now() - t;
    r->work = work;
    return TSR_OK;
}

#if defined(__aarch64__)
#define ADD "add %0, %0, %1\n\t"
#else
#define ADD "add %1, %0\n\t"
#endif
#define ADD4  ADD ADD ADD ADD
#define ADD16 ADD4 ADD4 ADD4 ADD4

static tsr_status probe_clock(void *self, double seconds, struct tsr_probe_result *r,
                              struct tsr_err *err)
{
    double   t = now(), work = 0;
    uint64_t x = 1, step = 3;
    (void)self;
    (void)err;
    do {
        for (int i = 0; i < 10000; i++) { /* each addition waits for the one before */
            __asm__ volatile(ADD16 : "+r"(x) : "r"(step));
        }
        work += 16.0 * 10000;
    } while (now() - t < seconds);
    r->seconds = now() - t;
    r->work = work;
    use(x);
    return TSR_OK;
}

static tsr_status probe_bf16(void *self, double seconds, struct tsr_probe_result *r,
                             struct tsr_err *err)
{
    struct tsr_cpu *c = self;
    const uint64_t  rounds = 480000;
    double          t = now(), work = 0;
    if (!c->bf16)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "probe: BF16 products need numerics: fast");
    do {
        use((uint64_t)c->bf16->probe(rounds));
        work += (double)rounds * 32;
    } while (now() - t < seconds);
    r->seconds = now() - t;
    r->work = work;
    return TSR_OK;
}

#define ENCODE_COLS 4096u

static tsr_status probe_encode(void *self, const struct tsr_format *f, double seconds,
                               struct tsr_probe_result *r, struct tsr_err *err)
{
    const struct tsr_encode *e = NULL;
    struct tsr_encode_mx     mx = { f->element, f->scale_bits, TSR_ENCODE_EVEN, 0, f->group };
    int                      is_mx = strcmp(f->id, TSR_FORMAT_MX) == 0;
    tsr_status               st = tsr_encode_pick(&e, err);
    (void)self;
    if (st == TSR_OK && is_mx)
        st = tsr_encode_mx_check(&mx, err);
    else if (st == TSR_OK && (strcmp(f->id, TSR_FORMAT_INT) != 0 || f->bits != 4))
        st = tsr_fail(err, TSR_E_UNSUPPORTED, "%s of %u bits has no encoder", f->id, f->bits);
    if (st != TSR_OK)
        return st;
    float    x[ENCODE_COLS];
    uint8_t  codes[ENCODE_COLS], bytes[ENCODE_COLS];
    uint16_t halves[ENCODE_COLS];
    for (uint32_t i = 0; i < ENCODE_COLS; i++)
        x[i] = (float)((int32_t)(i * 7919 % 2001) - 1000) * 1e-3f;
    double t = now(), work = 0;
    do {
        for (int i = 0; i < 50; i++) {
            use(is_mx ? e->mx_row(&mx, ENCODE_COLS, x, codes, bytes)
                      : e->int4_row(f->group, ENCODE_COLS, x, codes, halves));
            use(codes[0]);
        }
        work += 50.0 * ENCODE_COLS;
    } while (now() - t < seconds);
    r->seconds = now() - t;
    r->work = work;
    return TSR_OK;
}

#define PROBE(f, d, b)                                                                             \
    {                                                                                              \
        .struct_size = sizeof(struct tsr_probe_v1), .read = probe_read, .fma = probe_fma,          \
        .dot = probe_dot, .clock = probe_clock, .n_shapes = 4, .fma_per_cycle = f,                 \
        .dot_per_cycle = d, .encode = probe_encode, .bf16 = probe_bf16, .bf16_per_cycle = b        \
    }

/* two 512-bit or two 256-bit FMAs a cycle; the same for vpdpbusd and vdpbf16ps; AVX2 needs two vpmaddwd,
 * two additions and two shifts or masks per 32 products; the scalar set has no fixed rate */
static const struct tsr_probe_v1 probe_of[] = { [TSR_CPU_AVX512] = PROBE(32, 128, 0),
                                                [TSR_CPU_AVX2] = PROBE(16, 0, 0),
                                                [TSR_CPU_SCALAR] = PROBE(0, 0, 0) },
                                 probe_fast = PROBE(32, 128, 64);
/* one 512-bit instruction a cycle */
static const struct tsr_probe_v1 probe_halves = PROBE(16, 64, 0),
                                 probe_fast_halves = PROBE(16, 64, 32);

/* Whether 512-bit operations take two passes through units of 256 bits: AMD's family 19h (Zen 4).
 * Source: AMD, Software Optimization Guide for the AMD Zen4 Microarchitecture (57647), section 2.11. */
static bool runs_in_halves(void)
{
    bool yes = false;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
        d == signature_AMD_edx && __get_cpuid(1, &a, &b, &c, &d))
        yes = (a >> 8 & 15) + (a >> 20 & 255) == 0x19;
#endif
    return yes;
}

const struct tsr_probe_v1 *tsr_cpu_probe(const void *self)
{
    const struct tsr_cpu *c = self;
    bool                  halves = tsr_cpu_set_of(c->k) == TSR_CPU_AVX512 && runs_in_halves();
    if (c->bf16)
        return halves ? &probe_fast_halves : &probe_fast;
    return halves ? &probe_halves : &probe_of[tsr_cpu_set_of(c->k)];
}
