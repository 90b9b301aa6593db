/* How LINEAR fills an H100: launches of linear.c over a device that runs none of them, with the registers and the
 * shared memory of sass.tsv.
 *
 *   test_occupancy SASS.tsv OCCUPANCY.tsv [--write]
 *
 * For each format, shape and number of tokens: the kernel, its blocks, how many of them a multiprocessor holds, how
 * full the last round of blocks is, and the bytes of weights that are under way for each multiprocessor.  Fails where
 * one of the last two is below OCCUPANCY.tsv, and says how many are below the aims. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "host.h"
#include "k_tile_gemm.h"
#include "tessera/format.h"

/* Of an H100 SXM: NVIDIA H100 Tensor Core GPU Architecture, and "Compute Capabilities" of the CUDA C++
 * Programming Guide for 9.0. */
#define UNITS            132u
#define UNIT_THREADS     2048u
#define UNIT_REGISTERS   65536u
#define UNIT_BLOCKS      32u
#define UNIT_SHARED      233472u /* bytes; sass.tsv includes what the system takes of each block */
#define BLOCK_SHARED     232448u
#define REGISTERS_OF_ONE 256u /* a warp's registers come in units of so many */

#define AIM_FULL   0.85
#define AIM_FLIGHT 32768.0

#define FAKE_AT (UINT64_C(1) << 44)
#define LARGE   UINT64_C(4096)

static struct tsr_cuda_launch seen;
static char                   text[400];
static struct tsr_err         err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };

/* ---- a device ------------------------------------------------------------------------------- */

static tsr_status launch(void *d, void *s, const struct tsr_cuda_launch *l, struct tsr_err *e)
{
    (void)d;
    (void)s;
    (void)e;
    seen = *l; /* the last one of an operation is the product */
    return TSR_OK;
}
static tsr_status alloc(void *d, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *e)
{
    if (bytes < LARGE)
        return tsr_cuda_simt.alloc(d, bytes, kind, address, e);
    *address = FAKE_AT;
    return TSR_OK;
}
static void release(void *d, uint64_t address, enum tsr_cuda_memory kind)
{
    if (address != FAKE_AT)
        tsr_cuda_simt.release(d, address, kind);
}
static uint32_t units(const void *d)
{
    (void)d;
    return UNITS;
}
static uint32_t shared_of_block(const void *d)
{
    (void)d;
    return BLOCK_SHARED;
}

/* ---- what a kernel takes ------------------------------------------------------------------ */

static const char *const names[] = {
#define NAME(k) [KERNEL_##k] = #k,
    TSR_CUDA_KERNELS(NAME)
#undef NAME
};

static struct {
    unsigned registers, shared;
} takes[KERNEL_COUNT];

static int read_resources(const char *path)
{
    char  line[300], arch[16], kernel[64];
    FILE *f = fopen(path, "r");
    if (!f) {
        (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 0;
    }
    while (fgets(line, sizeof line, f)) {
        unsigned registers, stack, shared;
        if (sscanf(line, "%15s %63s %u %u %u", arch, kernel, &registers, &stack, &shared) != 5 ||
            strcmp(arch, "sm_90") != 0)
            continue;
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (strcmp(kernel, names[k]) == 0) {
                takes[k].registers = registers;
                takes[k].shared = shared;
            }
    }
    (void)fclose(f);
    return 1;
}

/* Bytes that the launch asks for beside those of the code: device_shared(), which needs the driver's types. */
static unsigned asked(enum tsr_cuda_kernel k)
{
    switch ((int)k) {
    case KERNEL_k_block_int:
        return K_BLOCK_SHARED;
    case KERNEL_k_tile16_int:
    case KERNEL_k_tile32_int:
    case KERNEL_k_tile16_table:
    case KERNEL_k_tile32_table:
        return K_TILE_SHARED;
    default:
        return 0;
    }
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Blocks of a launch that a multiprocessor holds at the same time; 0: the kernel is not in sass.tsv. */
static unsigned resident(const struct tsr_cuda_launch *l)
{
    const unsigned warps = (l->threads + 31) / 32, registers = takes[l->kernel].registers;
    if (!registers)
        return 0;
    const unsigned of_warp =
        (registers * 32 + REGISTERS_OF_ONE - 1) / REGISTERS_OF_ONE * REGISTERS_OF_ONE;
    return least(least(UNIT_BLOCKS, UNIT_THREADS / l->threads),
                 least(UNIT_REGISTERS / (of_warp * warps),
                       UNIT_SHARED / (takes[l->kernel].shared + asked(l->kernel))));
}

/* Bytes of weights that a block has asked for and not yet got, while it works: the ring less the stage that is used. */
static double flight(const struct tsr_cuda_launch *l, int table, int bits, int zeros)
{
    const uint32_t kind = table ? K_MX : K_INT, weights = TILE_WEIGHTS(bits);
    if (l->kernel == KERNEL_k_block_int) {
        const uint32_t stages = BLOCK_BYTES / BLOCK_STEP((int)kind, bits, K_SCALE_F16);
        return BLOCK_PANELS * (double)weights * (least(stages, 6) - 1);
    }
    const uint32_t nt = l->kernel == KERNEL_k_tile8_int || l->kernel == KERNEL_k_tile8_table ? 1
                        : l->kernel == KERNEL_k_tile16_int || l->kernel == KERNEL_k_tile16_table
                            ? 2
                            : 4;
    if (l->kernel == KERNEL_k_tile8_zero || l->kernel == KERNEL_k_tile8_cut ||
        (l->kernel == KERNEL_k_tile8_int && bits == 4 &&
         !zeros)) /* k_tile_run.h, k_tile_zero.h, k_tile_cut.h */
        return K_SEGMENTS * (double)RUN_WEIGHTS * (RUN_STAGES - 1);
    const uint32_t stages = TILE_ROOM(nt) / TILE_STAGE((int)kind, bits, K_SCALE_F16, nt);
    return K_SEGMENTS * (double)weights * (least(stages, 8) - 1);
}

/* ---- cases -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int         table, bits, group, zeros;
} formats[] = { { "int4", 0, 4, 128, 0 },
                { "int4z", 0, 4, 128, 1 },
                { "int8", 0, 8, 128, 0 },
                { "table4", 1, 4, 64, 0 } };
static const uint64_t rows_of[] = { 1024, 4096, 8192, 14336, 28672 };
static const uint64_t cols_of[] = { 4096, 11008, 14336 };
static const uint64_t tokens_of[] = { 1, 8, 16, 32, 64, 512 };
#define COUNT(a) (sizeof(a) / sizeof *(a))

struct row {
    char     text[128]; /* what identifies it */
    unsigned blocks, resident;
    double   full, kib; /* of the last round; under way for a multiprocessor */
};

static int tensor(void *self, struct tsr_tensor *t, uint64_t rows, uint64_t cols)
{
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = TSR_F32,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = cols * 4 };
    return tsr_cuda_buffer_alloc(self, rows * cols * 4, &t->buffer, &err) == TSR_OK;
}

static int launched(void *self, unsigned f, uint64_t rows, uint64_t cols, uint64_t tokens)
{
    struct tsr_format      format = { .struct_size = sizeof format,
                                      .id = formats[f].table ? TSR_FORMAT_TABLE : TSR_FORMAT_INT,
                                      .bits = (uint32_t)formats[f].bits,
                                      .group = (uint64_t)formats[f].group,
                                      .zero = formats[f].zeros ? TSR_ZERO_STORED : TSR_ZERO_MID,
                                      .scale_dtype = TSR_F16 };
    struct tsr_weight_desc d = {
        .struct_size = sizeof d, .name = "w", .format = &format, .rows = rows, .cols = cols
    };
    struct tsr_cuda_weight w;
    struct tsr_tensor      out = { 0 }, x = { 0 };
    for (unsigned i = 0; i < 16 && formats[f].table; i++)
        format.table[i] = (float)i - 8.0f;
    int ok = tsr_cuda_outline(&d, 0, &w, &err) == TSR_OK && tensor(self, &out, tokens, rows) &&
             tensor(self, &x, tokens, cols);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out,
                         .in = { &x },
                         .weight = &w,
                         .act = TSR_ACT_A8 };
    ok = ok && tsr_cuda_run(self, NULL, &op, &err) == TSR_OK;
    tsr_cuda_buffer_free(self, out.buffer);
    tsr_cuda_buffer_free(self, x.buffer);
    return ok;
}

static int measure(void *self, unsigned f, uint64_t rows, uint64_t cols, uint64_t tokens,
                   struct row *r)
{
    if (!launched(self, f, rows, cols, tokens))
        return 0;
    r->blocks = seen.grid[0] * seen.grid[1];
    r->resident = resident(&seen);
    if (!r->resident) {
        (void)snprintf(text, sizeof text, "%s is not in sass.tsv", names[seen.kernel]);
        return 0;
    }
    (void)snprintf(r->text, sizeof r->text, "%s\t%d\t%d\t%d\t%s", formats[f].name, (int)rows,
                   (int)cols, (int)tokens, names[seen.kernel]);
    /* a round that no multiprocessor waits for: as many blocks for each, even if fewer than it holds */
    const unsigned round = UNITS * r->resident, last = r->blocks % round;
    const unsigned each = last ? (last + UNITS - 1) / UNITS : r->resident;
    r->full = last == 0           ? 1.0
              : r->blocks < round ? (double)last / (UNITS * each)
                                  : (double)last / round;
    const double there = r->blocks < round ? (double)r->blocks / UNITS : r->resident;
    r->kib = there * flight(&seen, formats[f].table, formats[f].bits, formats[f].zeros) / 1024;
    return 1;
}

/* The line of the table that begins like r; 0: there is none. */
static int known(const char *path, const struct row *r, double *full, double *kib)
{
    char   line[300];
    size_t n = strlen(r->text);
    FILE  *f = fopen(path, "r");
    int    found = 0;
    while (f && !found && fgets(line, sizeof line, f))
        found =
            strncmp(line, r->text, n) == 0 && sscanf(line + n, " %*u %*u %lf %lf", full, kib) == 2;
    if (f)
        (void)fclose(f);
    return found;
}

static int all(void *self, const char *path, FILE *to)
{
    unsigned n = 0, bad = 0, thin = 0, few = 0;
    for (unsigned f = 0; f < COUNT(formats); f++)
        for (unsigned i = 0; i < COUNT(rows_of); i++)
            for (unsigned j = 0; j < COUNT(cols_of); j++)
                for (unsigned k = 0; k < COUNT(tokens_of); k++) {
                    struct row r;
                    double     full = 0, kib = 0;
                    if (!measure(self, f, rows_of[i], cols_of[j], tokens_of[k], &r)) {
                        (void)fprintf(stderr, "%s\n", text);
                        return 0;
                    }
                    n++;
                    thin += !(r.full >= AIM_FULL);
                    few += !(r.kib * 1024 >= AIM_FLIGHT);
                    if (to) {
                        (void)fprintf(to, "%s\t%u\t%u\t%.2f\t%.1f\n", r.text, r.blocks, r.resident,
                                      r.full, r.kib);
                    } else if (!known(path, &r, &full, &kib)) {
                        (void)fprintf(stderr, "%s: is not in %s\n", r.text, path);
                        bad++;
                    } else if (!(r.full >= full - 0.006) || !(r.kib >= kib - 0.06)) {
                        (void)fprintf(stderr,
                                      "%s: the last round is %.2f full, %.1f KiB are under way; "
                                      "the table has %.2f and %.1f\n",
                                      r.text, r.full, r.kib, full, kib);
                        bad++;
                    }
                }
    (void)printf("%u cases; the last round of blocks is below %.0f %% in %u, less than 32 KiB a "
                 "multiprocessor are under way in %u\n",
                 n, AIM_FULL * 100, thin, few);
    return bad == 0;
}

int main(int argc, char **argv)
{
    static struct tsr_cuda_api api;
    struct tsr_cuda_options    o = { .launching = TSR_CUDA_ONE_BY_ONE };
    void                      *self;
    if (argc < 3 || !read_resources(argv[1]))
        return 2;
    api = tsr_cuda_simt;
    api.launch = launch;
    api.alloc = alloc;
    api.release = release;
    api.units = units;
    api.shared = shared_of_block;
    if (tsr_cuda_create(&host, &api, &o, &self, &err) != TSR_OK) {
        (void)fprintf(stderr, "%s\n", text);
        return 2;
    }
    FILE *to = argc > 3 && strcmp(argv[3], "--write") == 0 ? fopen(argv[2], "w") : NULL;
    if (argc > 3 && !to) {
        (void)fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
        return 2;
    }
    if (to)
        (void)fprintf(to, "# written by test_occupancy SASS.tsv OCCUPANCY.tsv --write\n"
                          "format\trows\tcols\ttokens\tkernel\tblocks\tresident\tfull\tkib\n");
    int ok = all(self, argv[2], to);
    if (to)
        ok &= fclose(to) == 0;
    tsr_cuda_destroy(self);
    return ok ? 0 : 1;
}
