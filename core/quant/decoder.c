/* Decodes rows of weights in quantizers' own formats. */
#include "quant/decoder_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static tsr_status decode(const struct tsr_model_packed *p, uint64_t unit, uint64_t n, uint64_t rows,
                         float *dst, struct tsr_err *err)
{
    const struct tsr_quant_decoder *d = NULL;
    uint64_t                        scratch = 0;
    TSR_TRY(tsr_quant_decoder_of(p, &d, &scratch, err));
    const unsigned char *codes = (const unsigned char *)p->codes + unit * p->own.code_bytes;
    const unsigned char *meta =
        p->meta ? (const unsigned char *)p->meta + unit * p->own.meta_bytes : NULL;
    bool           apart = (uintptr_t)codes % 64 != 0 || (uintptr_t)meta % 64 != 0;
    uint64_t       code_bytes = n * p->own.code_bytes, meta_bytes = n * p->own.meta_bytes;
    unsigned char *copy = apart ? tsr_new_aligned(1, code_bytes) : NULL;
    unsigned char *copied = apart ? tsr_new_aligned(1, meta_bytes) : NULL;
    void          *room = tsr_new_aligned(1, scratch);
    if (!room || (apart && (!copy || !copied))) {
        free(copy);
        free(copied);
        free(room);
        return tsr_fail_nomem(err, scratch + code_bytes + meta_bytes, "quantizer scratch memory");
    }
    if (apart) { /* a job's buffers are aligned */
        memcpy(copy, codes, code_bytes);
        if (meta)
            memcpy(copied, meta, meta_bytes);
    }
    struct tsr_matrix    to = { .struct_size = sizeof to,
                                .dtype = TSR_F32,
                                .name = "a stored matrix",
                                .data = dst,
                                .rows = rows,
                                .cols = p->own.cols,
                                .row_stride = p->own.cols * sizeof *dst };
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .first_row = p->own.first + unit * p->own.unit,
                                 .dst = &to,
                                 .codes = apart ? copy : (void *)(uintptr_t)codes,
                                 .meta = apart ? copied : (void *)(uintptr_t)meta,
                                 .scratch = room };
    tsr_status           st = d->q.iface->dequantize(d->q.self, &job, err);
    free(room);
    free(copy);
    free(copied);
    return st == TSR_E_INVAL ? tsr_err_prefix(err, TSR_E_INPUT, "quantizer '%s'", p->own.use) : st;
}

static const struct tsr_model_own_functions functions = {
    .decode = decode,
    .kernel = tsr_quant_own_kernel,
    .prepare = tsr_quant_own_prepare,
    .inputs = tsr_quant_own_inputs,
    .multiply = tsr_quant_own_multiply,
    .device_code = tsr_quant_own_device_code,
    .device_scratch = tsr_quant_own_device_scratch,
    .device_launch = tsr_quant_own_device_launch,
};

tsr_status tsr_quant_decoders_open(struct tsr_registry *r, struct tsr_err *err)
{
    TSR_TRY(tsr_quant_decoders_begin(r, err));
    tsr_model_own_set(&functions);
    return TSR_OK;
}

void tsr_quant_decoders_close(void)
{
    tsr_model_own_set(NULL);
    tsr_quant_decoders_end();
}
