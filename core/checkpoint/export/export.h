/* checkpoint/export/export.h - writes a model as a file to run from, or in the formats of other programs;
 * docs/formats/export.md.
 *
 *   hf                  a Hugging Face folder of 16-bit weights
 *   gptq                GPTQ: v1 where every zero point is in the middle, else v2
 *   compressed-tensors  pack-quantized, int-quantized, naive-quantized (FP8), mxfp4-pack-quantized,
 *                       nvfp4-pack-quantized
 *   awq                 AutoAWQ's GEMM: 4 bits
 *   fp8                 E4M3 with a scale for each block or matrix
 *   mxfp4               experts as _blocks and _scales, as gpt-oss has them
 *   gguf                GGUF with F16, Q8_0, Q4_0 or MXFP4 tensors, or a mix of K types
 *   prepacked           ours: weights as a backend keeps them (docs/formats/prepacked.md)
 *   imatrix             no weights: a calibration's mean squares, as llama.cpp has them
 *
 * Packed weights keep their codes and scales where the format has them; one that does not is
 * refused, or quantized a second time where that is allowed.
 */
#ifndef TSR_CHECKPOINT_EXPORT_EXPORT_H
#define TSR_CHECKPOINT_EXPORT_EXPORT_H

#include "model/packed.h"
#include "plugin/registry.h"
#include "tessera/quantizer.h"

#include <jansson.h>
#include <stdio.h>

enum tsr_export_format {
    TSR_EXPORT_HF,
    TSR_EXPORT_GPTQ,
    TSR_EXPORT_CT,
    TSR_EXPORT_AWQ,
    TSR_EXPORT_FP8,
    TSR_EXPORT_MXFP4,
    TSR_EXPORT_GGUF,
    TSR_EXPORT_PREPACKED,
    TSR_EXPORT_IMATRIX
};
extern const struct tsr_choice tsr_export_formats[9];
extern const struct tsr_choice tsr_export_dtypes[3]; /* auto, f16, bf16 */

#define TSR_EXPORT_SHARD_BYTES UINT64_C(5000000000)

/* Statistics of the inputs of a layer's linears by site (enum tsr_site): mean and variance, and a Hessian where there is one.
 * Layers in ascending order; valid until the next call. */
struct tsr_export_layer_inputs {
    tsr_status (*layer)(void *ctx, uint64_t layer, const struct tsr_quant_stats **sites,
                        struct tsr_err *err); /* NULL: there are none */
    void       *ctx;
    const char *text; /* imatrix: what was run */
    uint64_t    sequences, seqlen;
};

/* Called for every tensor of an hf export, whose values are F32 then until they are written; [rows, cols] of the view; and
 * once for config.json, behind the changes of the export. */
struct tsr_model_stored_view;
struct tsr_export_edit {
    tsr_status (*edit)(void *ctx, const struct tsr_model_stored_view *v, float *values,
                       struct tsr_err *err); /* NULL: tensors stay as they are */
    tsr_status (*config)(void *ctx, json_t *config, struct tsr_err *err); /* or NULL */
    void *ctx;
};

/* A dtype, type, shard_bytes or backend that differs from the default and belongs to another format
 * is TSR_E_CONFIG; allow_requantize is a permission that every format accepts. */
struct tsr_export_options {
    enum tsr_export_format format;
    uint32_t dtype; /* hf, mxfp4: TSR_F16 or TSR_BF16, with `edit` also TSR_F32; 0: the model's */
    struct tsr_export_edit edit; /* hf */
    const char *type;    /* gguf: "auto", "f16", "q4_0", "q4_k_m" and others (gguf_types.c) */
    const char *imatrix; /* gguf: a file with weights of the error, instead of inputs; NULL: none */
    struct tsr_export_layer_inputs inputs;           /* gguf, imatrix */
    bool                           allow_requantize; /* packed weights may be quantized again */
    bool                           replace;          /* the existing file is from an earlier run */
    uint64_t                 shard_bytes; /* most bytes of a safetensors file; 0: the default */
    struct tsr_registry     *registry;    /* prepacked: the source of the backend */
    struct tsr_plugin_run_on on;          /* prepacked: whose layout */
    const char *compensation; /* prepacked: a folder whose residuals go in; NULL: m's own */
};

struct tsr_export_report {
    uint64_t tensors, bytes; /* written; bytes with the unused ones */
    uint64_t unused;         /* copied: they are not run (model/unused.h) */
    uint64_t packed;         /* matrices with the codes that they had */
    uint64_t widened;        /* packed matrices that were written as 16-bit weights */
    uint64_t quantized;      /* 16-bit matrices that were quantized here (gguf) */
    uint64_t requantized;    /* packed matrices that were quantized again */
    uint64_t rounded;        /* values that lost bits when they became 16-bit */
};

/* Writes m, with the packed weights o (NULL: its own), to path: a folder, or a file for gguf and
 * prepacked.  It
 * appears under that name only when it is whole; a path that exists is TSR_E_INPUT unless replace.
 * One layer of a streamed model is in memory at a time.  What the format cannot hold is TSR_E_INPUT
 * before anything is written.  [setup] */
tsr_status tsr_export(const struct tsr_model *m, const struct tsr_model_overlay *o,
                      const char *path, const struct tsr_export_options *opt,
                      struct tsr_export_report *report, struct tsr_err *err);

/* Whether these options fit together, whatever the model: TSR_E_CONFIG where one is about another format and would be
 * without effect, TSR_E_INPUT for a type of gguf that is not known.  [any] */
tsr_status tsr_export_check(const struct tsr_export_options *o, struct tsr_err *err);

/* {"output": path, "tensors": n, ...}; NULL when out of memory. */
json_t *tsr_export_report_json(const struct tsr_export_report *r, const char *path);
/* Log lines for what the export did to packed weights; empty if nothing. */
void tsr_export_report_print(const json_t *report, FILE *to);

#endif
