/* runtime/page.h - memory shared by all ranks of a job: the activity of each, the first failure, the
 * measurements. An anonymous mapping, made before processes are forked.
 */
#ifndef TSR_RUNTIME_PAGE_H
#define TSR_RUNTIME_PAGE_H

#include "comm/probe.h"
#include "runtime/progress.h"

#define TSR_CHOICE_TEXT 120

/* One piece of work of a rank, or rows on their way to it from the stage before (to a head on the first stage:
 * from the last one). */
struct tsr_runtime_span {
    uint64_t number; /* micro-batch of the replica, from 0 */
    uint32_t slot_set;
    uint16_t decode, head; /* head: the head alone, of rows that came back */
    uint64_t start, end;   /* ns, CLOCK_MONOTONIC */
};
struct tsr_runtime_spans {
    _Atomic uint64_t         n; /* all recorded so far; the first `cap` are kept */
    uint64_t                 cap;
    struct tsr_runtime_span *v;
};

/* Numbers of one rank, written by it alone. */
struct tsr_runtime_rank_numbers {
    _Atomic uint64_t weights, cache, tensors; /* bytes on its device, by the engine's count */
    _Atomic uint64_t residuals, linears, compensated, selected; /* engine.h: bytes, tokens, ... */
    _Atomic uint64_t acts[3];                                   /* tsr_engine_acts() */
    _Atomic uint64_t now, peak;             /* bytes accounted: device, kernels' scratch */
    _Atomic uint64_t host_peak;             /* VmHWM of its process; 0: shared with others */
    _Atomic uint64_t load_peak, load_layer; /* of a load that packs: loader.h */
    _Atomic uint64_t read_bytes, read_ns, quantize_ns, place_ns;
    _Atomic uint64_t load_ns, batches, paced, overruns, overrun_ns;
    _Atomic uint64_t sums, declared, sent, encode_ns, decode_ns, wait_ns; /* comm/group.h */
    _Atomic uint64_t
        passed, /* wire bytes of rows to other stages, and of logits to the coordinator */
        moved;  /* pieces of messages (comm/flow.h) that came or went so far, heads too */
};

struct tsr_runtime_page_rank {
    struct tsr_runtime_progress     progress;
    struct tsr_runtime_rank_numbers numbers;
    struct tsr_runtime_spans        work, link; /* v in the same mapping */
};

/* What `auto` of a stage and phase became: written by rank 0 of the first replica's stage. */
struct tsr_runtime_page_choice {
    _Atomic uint32_t fixed; /* 1: the other members are valid */
    uint32_t         algorithm;
    char             codec[TSR_CHOICE_TEXT];
};

struct tsr_runtime_page {
    uint32_t         ranks, stages;
    uint64_t         bytes;          /* of the mapping */
    _Atomic uint32_t ready, failure; /* ranks that have loaded; 0 none, 1 being written, 2 there */
    _Atomic uint64_t first_start, first_result; /* ns: of a micro-batch, of logits; 0: none yet */
    uint32_t         failed_rank;
    struct tsr_err_sent             why;
    struct tsr_runtime_page_choice *choice; /* [2 * stages], in the same mapping */
    char (*host)[TSR_COMM_HOST]; /* [ranks], of this process: names for failures; or NULL */
    struct tsr_runtime_page_rank rank[];
};

/* spans: most of each kind and rank that are kept; 0: none.  epoch: of the group.  [setup] */
tsr_status tsr_runtime_page_create(struct tsr_runtime_page **p, uint32_t ranks, uint32_t stages,
                                   uint64_t spans, uint64_t epoch, struct tsr_err *err);
void       tsr_runtime_page_destroy(struct tsr_runtime_page *p); /* NULL is fine */

/* The first failure stays.  [any] */
void tsr_runtime_page_fail(struct tsr_runtime_page *p, uint32_t rank,
                           const struct tsr_err_sent *why);
void tsr_runtime_page_fail_by(struct tsr_runtime_page *p, uint32_t rank, tsr_status st,
                              const struct tsr_err *err);
bool tsr_runtime_page_failed(const struct tsr_runtime_page *p);
/* What it was: "rank 2: ...", with its object and position; TSR_OK if there is none. */
tsr_status tsr_runtime_page_failure(const struct tsr_runtime_page *p, struct tsr_err *err);

void tsr_runtime_spans_add(struct tsr_runtime_spans *s, const struct tsr_runtime_span *one);

#endif
