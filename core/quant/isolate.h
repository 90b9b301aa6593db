/* quant/isolate.h - quantizers in child processes (`plugins: {isolate: true}`).
 *
 * The host never calls an isolated plugin in its own process.  An instance is a struct of the host: a child
 * process that creates its own instance answers each query, and the host caches the answers.  One child,
 * with the threads of the whole pool, packs the linears of one input.  The returned size is the one of the
 * checked plan; the host decodes and checks the result again.  The bytes equal those of an in-process call.
 *
 * A child that crashes, exits, hangs or exceeds its memory limit is TSR_E_PLUGIN with one message. */
#ifndef TSR_QUANT_ISOLATE_H
#define TSR_QUANT_ISOLATE_H

#include "quant/quant.h"

/* Creates an instance, for tsr_quantizer_close(): in this process, or isolated as above if the registry
 * requires it (found->isolate).  host and options must outlive it.  q->name is the component's.  [setup] */
tsr_status tsr_quantizer_open(struct tsr_quantizer *q, struct tsr_registry *r,
                              const struct tsr_plugin_found *found, const struct tsr_host *host,
                              const void *options, struct tsr_err *err);
void       tsr_quantizer_close(struct tsr_quantizer *q);

/* One linear of those that share an input. */
struct tsr_quant_pack_item {
    const struct tsr_matrix      *whole, *w; /* w: all of it, or the part that `part` says */
    const struct tsr_model_slice *part;      /* or NULL */
    struct tsr_model_packed      *packed;    /* the answer; NULL if status is an error */
    tsr_status                    status;
    struct tsr_errbuf             why; /* of the status */
    double                        seconds;
};

/* Packs the items of an isolated quantizer in one child: prepare() with stats (may be NULL), then each as
 * tsr_quantize_prepared() or tsr_quantize_part() does.  After an error other than TSR_E_UNSUPPORTED, the
 * remaining items are unchanged.  The caller takes ownership of the results, also on failure.  [worker] */
tsr_status tsr_quant_isolated_pack(struct tsr_registry *r, const struct tsr_quantizer *q,
                                   const struct tsr_quant_stats *stats,
                                   struct tsr_quant_pack_item *items, uint64_t n,
                                   struct tsr_err *err);

#endif
