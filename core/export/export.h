/* export/export.h - writes a model in the formats of other programs; docs/formats/export.md.
 *
 *   hf                  a Hugging Face folder of 16-bit weights
 *   gptq                GPTQ: v1 where every zero point is in the middle, else v2
 *   compressed-tensors  pack-quantized, int-quantized and mxfp4-pack-quantized
 *   gguf                GGUF with F16, Q8_0, Q4_0 or MXFP4 tensors
 *
 * Packed weights keep their codes and scales where the format has them; one that does not is
 * refused, or quantized a second time where that is allowed.
 */
#ifndef TSR_EXPORT_EXPORT_H
#define TSR_EXPORT_EXPORT_H

#include "quant/quant.h"

#include <jansson.h>
#include <stdio.h>

enum tsr_export_format { TSR_EXPORT_HF, TSR_EXPORT_GPTQ, TSR_EXPORT_CT, TSR_EXPORT_GGUF };
extern const struct tsr_choice tsr_export_formats[4];
extern const struct tsr_choice tsr_export_dtypes[3]; /* auto, f16, bf16 */

struct tsr_export_options {
    enum tsr_export_format format;
    uint32_t               dtype;            /* hf: TSR_F16 or TSR_BF16; 0: the model's */
    const char            *type;             /* gguf: "f16", "q8_0", "q4_0", "mxfp4" or "auto" */
    bool                   allow_requantize; /* packed weights may be quantized again */
    bool                   replace;          /* what stands at the path is an earlier run's */
    uint64_t               shard_bytes;      /* most bytes of a safetensors file; 0: 5 GB */
};

struct tsr_export_report {
    uint64_t tensors, bytes; /* written */
    uint64_t packed;         /* matrices with the codes that they had */
    uint64_t widened;        /* packed matrices that were written as 16-bit weights */
    uint64_t quantized;      /* 16-bit matrices that were quantized here (gguf) */
    uint64_t requantized;    /* packed matrices that were quantized again */
    uint64_t rounded;        /* values that lost bits when they became 16-bit */
};

/* Writes m, with the packed weights o (NULL: its own), to path: a folder, or a file for gguf.  It
 * appears under that name only when it is whole; a path that exists is TSR_E_INPUT unless replace.
 * One layer of a streamed model is in memory at a time.  What the format cannot hold is TSR_E_INPUT
 * before anything is written.  [setup] */
tsr_status tsr_export(const struct tsr_model *m, const struct tsr_overlay *o, const char *path,
                      const struct tsr_export_options *opt, struct tsr_export_report *report,
                      struct tsr_err *err);

/* {"output": path, "tensors": n, ...}; NULL when out of memory. */
json_t *tsr_export_report_json(const struct tsr_export_report *r, const char *path);
/* What happened to packed weights, in lines for people; nothing where nothing did. */
void tsr_export_report_print(const struct tsr_export_report *r, FILE *to);

#endif
