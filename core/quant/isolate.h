/* quant/isolate.h - quantizers at work in processes of their own (`plugins: {isolate: true}`).
 *
 * The host never calls such a plugin itself.  An instance is a struct of the host's: each question is asked
 * in a child that makes an instance of its own, and what the host has seen is kept; the linears of one input
 * are packed in one child, which has the whole pool's threads.  What comes back has the size that the
 * checked plan says, and is decoded and checked here again.  Bytes are those of a call in this process.
 *
 * A child that crashes, exits, hangs or takes too much is TSR_E_PLUGIN and one sentence. */
#ifndef TSR_QUANT_ISOLATE_H
#define TSR_QUANT_ISOLATE_H

#include "quant/quant.h"

/* Makes an instance for tsr_quantizer_close(): in this process, or, where the registry says so
 * (found->isolate), as above.  host and options must outlive it.  q->name is the component's.  [setup] */
tsr_status tsr_quantizer_open(struct tsr_quantizer *q, struct tsr_registry *r,
                              const struct tsr_found *found, const struct tsr_host *host,
                              const void *options, struct tsr_err *err);
void       tsr_quantizer_close(struct tsr_quantizer *q);

/* One linear of those that share an input. */
struct tsr_pack_item {
    const struct tsr_matrix *whole, *w; /* w: all of it, or the part that `part` says */
    const struct tsr_slice  *part;      /* or NULL */
    struct tsr_packed       *packed;    /* the answer; NULL where status is an error */
    tsr_status               status;
    char                     text[sizeof((struct tsr_errbuf *)0)->text]; /* of the status */
    double                   seconds;
};

/* Packs the items of an isolated quantizer in one child: prepare() with stats (may be NULL), then each as
 * tsr_quantize_prepared() or tsr_quantize_part() does.  Behind an error that is not TSR_E_UNSUPPORTED items
 * are left as they are.  The caller takes the answers over, also when this fails.  [worker] */
tsr_status tsr_isolated_pack(struct tsr_registry *r, const struct tsr_quantizer *q,
                             const struct tsr_quant_stats *stats, struct tsr_pack_item *items,
                             uint64_t n, struct tsr_err *err);

#endif
