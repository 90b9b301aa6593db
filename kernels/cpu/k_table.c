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

const struct tsr_cpu_kernels TABLE(ISA_NAME) = {
    .name = TEXT(ISA_NAME),
    .tile = ISA_TOKENS,
    .tile8 = ISA_TOKENS8,
    .linalg = &LINALG(ISA_NAME),
    .extra = &EXTRA(ISA_NAME),
    .act = K(act),
    .clamped = K(clamped),
    .add = K(add),
    .scale = K(scale),
    .norm = K(norm),
    .rope = K(rope),
    .hadamard = K(hadamard),
    .mix = K(mix),
    .kv_store = K(kv_store),
    .kv_block = K(kv_block),
    .attention = K(attention),
    .attention_tile = K(attention_tile),
    .round_bf16 = K(round_bf16),
    .quantize = K(quantize),
    .pack_q = K(pack_q),
    .linear = K(linear),
    .linear_a8 = K(linear_a8),
    .pairs_a8 = K(pairs_a8),
    .pair_tokens = TSR_SIMD == 512 ? DIRECT_MAX : 1,
    .place = K(place),
    .math = K(math),
    .probe_read = K(probe_read),
    .probe_fma = K(probe_fma),
    .probe_dot = K(probe_dot),
};
