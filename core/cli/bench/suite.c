/* bench suite: the kernels that inference and quantization spend their time in, and a model if one is given. */
#include "cli/bench/bench.h"
#include "tessera/linalg.h"

#include <string.h>

/* Formats of a group size; each at one token and at 512. */
static const struct list {
    int64_t     group;
    const char *formats;
} lists[] = {
    { 128, "f32,f16,bf16,int8,int4,int4z,int3,int2,affine4,nf4,fp8_e4m3,fp4_e2m1,fp8_block" },
    { 32, "int4,affine5,affine4,q6_k,q3_k,affine2,iq4_xs,nvfp4,tq2_0" },
};
#define LISTS (sizeof lists / sizeof *lists)

static tsr_status kernels(struct bench *b, const struct bench_options *user,
                          struct bench_options *o, bool many, struct tsr_err *err)
{
    bool given = *user->formats || *user->bits;
    for (size_t i = 0; i < (given ? 1 : LISTS); i++) {
        *o = *user;
        o->m = "";
        if (!given) {
            o->formats = lists[i].formats;
            o->group = lists[i].group;
        }
        TSR_TRY(many ? bench_gemm(b, err) : bench_gemv(b, err));
    }
    return TSR_OK;
}

tsr_status bench_suite(struct bench *b, const char *model, struct tsr_err *err)
{
    const struct bench_options *user = b->o;
    struct bench_options        o = *user;
    b->o = &o;
    tsr_status st = kernels(b, user, &o, false, err);
    if (st == TSR_OK)
        st = kernels(b, user, &o, true, err);
    o = *user;
    o.m = "";
    o.cols = o.rows;
    if (st == TSR_OK && b->iface->extension && b->iface->extension(b->self, TSR_LINALG)) {
        st = bench_linalg(b, false, err);
        if (st == TSR_OK)
            st = bench_linalg(b, true, err);
    }
    uint32_t threads = b->threads;
    if (st == TSR_OK && b->probe)
        st = bench_encode(b, err); /* on one thread */
    b->threads = threads;
    if (st == TSR_OK && (model || *user->shape))
        st = bench_e2e(b, model, err);
    b->o = user;
    return st;
}
