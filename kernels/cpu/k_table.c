/* k_table.c - one instruction set's kernels as a table. */
#include "k_decl.h"
#include "linalg.h"

#define TABLE_(isa)  tsr_cpu_kernels_##isa
#define TABLE(isa)   TABLE_(isa)
#define LINALG_(isa) tsr_cpu_linalg_##isa
#define LINALG(isa)  LINALG_(isa)
#define EXTRA_(isa)  tsr_cpu_extra_##isa
#define EXTRA(isa)   EXTRA_(isa)
#define TEXT_(s)     #s
#define TEXT(s)      TEXT_(s)

#if defined(TSR_VNNI) /* one set in two encodings */
#define NAME "avxvnni"
#else
#define NAME TEXT(ISA_NAME)
#endif

const struct tsr_cpu_kernels TABLE(ISA_NAME) = {
    .name = NAME,
    .tile = ISA_TOKENS,
    .tile8 = ISA_TOKENS8,
    .linalg = &LINALG(ISA_BASE),
    .extra = &EXTRA(ISA_BASE),
    .act = K_BASE(act),
    .clamped = K_BASE(clamped),
    .add = K_BASE(add),
    .scale = K_BASE(scale),
    .norm = K_BASE(norm),
    .rope = K_BASE(rope),
    .hadamard = K_BASE(hadamard),
    .mix = K_BASE(mix),
    .kv_store = K_BASE(kv_store),
    .kv_block = K_BASE(kv_block),
    .attention = K_BASE(attention),
    .attention_tile = K_BASE(attention_tile),
    .round_bf16 = K_BASE(round_bf16),
    .quantize = K_BASE(quantize),
    .pack_q = K_BASE(pack_q),
    .linear = K_BASE(linear),
    .linear_a8 = K(linear_a8),
    .pairs_a8 = K(pairs_a8),
    .pair_tokens = TSR_SIMD == 512 ? DIRECT_MAX : 1,
    .place = K_BASE(place),
    .math = K_BASE(math),
    .probe_read = K(probe_read),
    .probe_fma = K(probe_fma),
    .probe_dot = K(probe_dot),
};
