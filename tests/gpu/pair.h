/* pair.h - two backends side by side: the same operations on the same numbers, and their bytes
 * compared.  The first is the CPU backend, the reference. */
#ifndef TSR_TEST_PAIR_H
#define TSR_TEST_PAIR_H

#include <stdbool.h>

#include "plugin/spec.h"
#include "tessera/backend.h"

struct pair_device {
    const struct tsr_backend_v1 *t;
    void                        *self;
    struct tsr_plugin_spec       spec;
};

struct pair {
    struct pair_device d[2];     /* reference, device */
    uint32_t           numerics; /* of the device */
    uint64_t           random, checked, differ;
    struct tsr_errbuf  err; /* the first thing that was wrong */
};

/* Both from the registry; seed goes to the device's option `seed`, if it has one; numerics: the device's,
 * TSR_NUMERICS_*. */
tsr_status pair_open(struct pair *p, struct tsr_registry *r, const char *backend, uint64_t seed,
                     uint32_t numerics, struct tsr_err *err);
void       pair_close(struct pair *p);

uint64_t pair_draw(struct pair *p, uint64_t below);
float    pair_number(struct pair *p); /* mostly near 1; now and then 0, tiny, huge */

/* A tensor on both devices. */
struct pair_tensor {
    struct tsr_tensor t[2];
    uint64_t          bytes;
};
/* data: rows of cols elements, or NULL: random F32.  Rows lie apart by a drawn gap; with `indices`
 * they do not, as U32 rows of the engine. */
bool pair_tensor(struct pair *p, struct pair_tensor *x, uint32_t dtype, uint64_t rows,
                 uint64_t cols, const void *data);
void pair_tensor_free(struct pair *p, struct pair_tensor *x);

/* Runs op, whose tensors are those of x[] (0: out, then in[0]..., NULL: absent), and compares out's
 * buffers, the gaps between rows included.  weight: of both, or NULL.  False: p->err says what. */
bool pair_run(struct pair *p, const char *what, const struct tsr_op *op,
              struct pair_tensor *x[TSR_OP_INPUTS + 1], void *const weight[2]);

/* The two halves of pair_run(): runs op without a wait; compares the buffer of x. */
bool pair_queue(struct pair *p, const char *what, const struct tsr_op *op,
                struct pair_tensor *const x[TSR_OP_INPUTS + 1], void *const weight[2]);
bool pair_compare(struct pair *p, const char *what, const struct pair_tensor *x);

/* A weight of random codes on both; false: p->err. */
struct pair_format {
    struct tsr_format f;
    uint64_t          rows, cols;
    uint8_t          *codes, *meta;
    uint64_t          code_stride, meta_stride;
};
bool pair_weight(struct pair *p, const struct tsr_format *f, uint64_t rows, uint64_t cols,
                 void *weight[2]);
void pair_weight_free(struct pair *p, void *weight[2]);

/* ops.c, linears.c: `count` drawn cases; false at the first that differs, p->err has it. */
bool pair_check_ops(struct pair *p, uint64_t count);
bool pair_check_linears(struct pair *p, uint64_t count);
/* layers.c: `count` drawn sequences of operations without a wait between them. */
bool pair_check_layers(struct pair *p, uint64_t count);
/* candidates.c: `count` drawn cases of its tessera.backend.candidates/1. */
bool pair_check_candidates(struct pair *p, uint64_t count);
/* compensation.c: `count` drawn selections and compensations. */
bool pair_check_compensation(struct pair *p, uint64_t count);
/* attention.c: KV_STORE and ATTENTION; one case, and `count`. */
bool pair_attention(struct pair *p);
bool pair_check_attention(struct pair *p, uint64_t count);
/* fast.c: the device is one of numerics: fast or auto; each product within the bound of its type, and under auto those
 * of int8 activations the bytes of the CPU. */
bool pair_check_fast(struct pair *p, uint64_t count);
/* fast_attention.c: ATTENTIONs of prompts, the same. */
bool pair_check_fast_attention(struct pair *p, uint64_t count);
/* linalg.c: the same for its tessera.linalg/1. */
bool pair_check_linalg(struct pair *p, uint64_t count);
/* bench.c: JSON lines on stdout, one for each that is left out because the seconds were over, and how many in
 * the last; fast: the same device under numerics: fast.  seconds 0: a few small ones, to see that it runs. */
bool pair_bench(struct pair *p, struct pair *fast, uint64_t seconds);
/* Every kind of format once, as bench.c takes them; false past the end. */
bool pair_format_at(uint64_t i, struct tsr_format *f);

#endif
