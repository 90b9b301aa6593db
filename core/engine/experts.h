/* engine/experts.h - shared by the files of a layer with experts: what a chunk's routing is, and where experts run. */
#ifndef TSR_ENGINE_EXPERTS_H
#define TSR_ENGINE_EXPERTS_H

#include "engine/internal.h"

/* A device that runs experts, with the tensors that they need there. */
struct tsr_engine_experts_at {
    struct tsr_engine_device *dev;     /* NULL: no layer has its experts here */
    struct tsr_tensor         rows;    /* U32 [1, chunk * used] */
    struct tsr_tensor         places;  /* U32 [chunk, each] */
    struct tsr_tensor         weights; /* [chunk, each] */
    struct tsr_tensor         in; /* [chunk, hidden]: rows of some experts, one behind the other */
    struct tsr_tensor said;     /* [chunk * each, hidden]; the shared expert's rows are the last */
    struct tsr_tensor gate, up; /* room for all rows of `in`, and for all experts of one token */
    struct tsr_tensor x, out;   /* [chunk, hidden] of the host: the layer's input and output */
    struct tsr_tensor
        zero; /* [1, hidden], where experts are whole: what those of other ranks say here */
    struct tsr_tensor zeros; /* U32 [1, chunk * used]: its row for each of theirs */
};

struct tsr_engine_routes {
    uint64_t          each;   /* experts of a token, with the shared one */
    uint32_t         *chosen; /* [chunk, used] of each token */
    float            *weight; /* [chunk, each] */
    float            *scores, *scratch;
    uint64_t          spread;       /* tokens that went by a count */
    float            *shared;       /* [chunk]: scores of the shared expert; or NULL */
    uint64_t         *count;        /* [experts + 1]: where an expert's rows end */
    uint32_t         *host_rows;    /* [chunk * used]: tokens, by expert */
    uint32_t         *host_places;  /* [chunk, each]: rows of `said` */
    struct tsr_tensor score;        /* [chunk, experts] */
    struct tsr_tensor shared_score; /* [chunk, 1] */
    struct tsr_tensor
        shared_said; /* [chunk, hidden] where the host runs the other experts; of each simulated rank */
    struct tsr_engine_experts_at own, host;
    float                       *border;   /* [chunk, hidden] between the two; or NULL */
    struct tsr_engine_product   *products; /* [2 * experts] */
};

/* The rows of one expert in the order of host_rows. */
static inline uint64_t tsr_engine_experts_first(const struct tsr_engine_routes *r, uint64_t expert)
{
    return expert ? r->count[expert - 1] : 0;
}

/* The ranks' parts of what the shared expert says are added up before the others': compensation follows the sum. */
static inline bool tsr_engine_experts_shared_apart(const struct tsr_engine *e)
{
    return e->share.whole_experts && e->comp;
}

/* The first n elements of a row. */
static inline struct tsr_tensor tsr_engine_part_of_row(const struct tsr_tensor *t, uint64_t first,
                                                       uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * sizeof(uint32_t);
    v.cols = n;
    return v;
}

/* gate = func(gate) * up */
static inline struct tsr_op tsr_engine_act_op(const struct tsr_engine *e, struct tsr_tensor *gate,
                                              const struct tsr_tensor *up)
{
    return (struct tsr_op){ .struct_size = sizeof(struct tsr_op),
                            .kind = TSR_OP_ACT,
                            .out = gate,
                            .in = { gate, up },
                            .func = e->model->hp.func,
                            .scale = e->model->hp.func_alpha,
                            .softcap = e->model->hp.func_limit };
}

/* experts_token.c: those of one token in one call; *done false: the device does not do that, or somebody observes or
 * adds to what happens between the operations. */
tsr_status tsr_engine_experts_run_token(struct tsr_engine *e, uint64_t layer,
                                        const struct tsr_engine_experts_at *at,
                                        const struct tsr_tensor *x, bool *done,
                                        struct tsr_err *err);
/* experts_run.c: what each expert says of its rows, at `at`, where x is the layer's input; then of the shared expert, on
 * the engine's device, of each simulated rank `apart` rows behind the one before. */
tsr_status tsr_engine_experts_run_chosen(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_engine_experts_at *at,
                                         const struct tsr_tensor *x, struct tsr_err *err);
tsr_status tsr_engine_experts_run_shared(struct tsr_engine *e, uint64_t layer,
                                         const struct tsr_tensor *x, const struct tsr_tensor *said,
                                         uint64_t apart, struct tsr_err *err);
/* One expert over all rows, for an observer. */
tsr_status tsr_engine_experts_show(struct tsr_engine *e, uint64_t layer, uint32_t expert,
                                   const struct tsr_tensor *x, struct tsr_err *err);

#endif
