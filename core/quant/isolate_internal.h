/* quant/isolate_internal.h - shared by isolate.c (instances, questions), isolate_pack.c and
 * isolate_search.c. */
#ifndef TSR_QUANT_ISOLATE_INTERNAL_H
#define TSR_QUANT_ISOLATE_INTERNAL_H

#include "base/process.h"
#include "quant/isolate.h"
#include "tessera/quantizer_block.h"

#include <pthread.h>

/* An answer that was given. */
struct plan_memo {
    uint64_t              rows, cols, row_stride;
    uint32_t              dtype;
    struct tsr_quant_plan plan;
    char                  format[256]; /* plan.format.id */
};
struct clip_memo {
    uint64_t cols, group;
};

struct tsr_quant_isolated {
    struct tsr_plugin_found       found;
    struct tsr_registry          *registry;
    const struct tsr_host        *host;
    const void                   *options;
    struct tsr_process            limits;
    struct tsr_quantizer_v1       table; /* the host's */
    struct tsr_quantizer_block_v1 block;
    bool                          met; /* an instance has already reported its remarks about its
                                        * options */
    bool                          has_block;
    uint64_t                      block_need, columns_alone;
    double                        max_error_steps;
    pthread_mutex_t               lock; /* guards the memos */
    struct plan_memo            **plans;
    uint64_t                      n_plans;
    struct clip_memo             *clips;
    uint64_t                      n_clips;
    tsr_status                    failed; /* of a question that has no status, and why */
    struct tsr_errbuf             why;
};

enum isolated_call {
    ISOLATED_CREATE,
    ISOLATED_PLAN,
    ISOLATED_PREPARE,
    ISOLATED_QUANTIZE,
    ISOLATED_SEARCH,
    ISOLATED_QUESTION,
    ISOLATED_DESTROY,
    ISOLATED_CALLS
};

/* Memory shared by parent and one child, before the memory of the call itself. */
struct isolated_head {
    volatile uint32_t call;     /* enum isolated_call: the current call */
    char              name[96]; /* of the tensor or block that it is at; "": none */
    tsr_status        status;
    struct tsr_errbuf said;
};

/* In the child: calls of q, an instance in this process. */
typedef tsr_status isolated_work(struct tsr_quant_isolated *x, const struct tsr_quantizer *q,
                                 struct isolated_head *head, void *arg, struct tsr_err *err);

/* The child's current call, for the message about its end. */
void isolated_at(struct isolated_head *head, enum isolated_call call, const char *name);

/* create(), work(), destroy() in a child; head is tsr_process_memory().  threads: the child has the pool's.
 * An error is the child's end, without the quantizer's name, or what head->status says; *mine: the
 * former. */
tsr_status isolated_run(struct tsr_quant_isolated *x, isolated_work *work,
                        struct isolated_head *head, void *arg, bool threads, bool *mine,
                        struct tsr_err *err);

/* isolate_search.c: fills x->block. */
void isolated_block(struct tsr_quant_isolated *x);

#endif
