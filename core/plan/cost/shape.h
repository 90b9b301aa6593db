/* plan/cost/shape.h - model description for the cost models: the sizes of its layers and ends.
 *
 *   model folder, headers only --tsr_plan_shape_of-->    struct tsr_plan_shape
 *   config.json alone          --tsr_plan_shape_config-->
 *
 * Identical layers form one class. No weights are read. The shape of a packed model has its layouts: the
 * candidate `original` then means the packed form. Packed experts of one layer that differ are in groups, those of
 * most bits first.
 */
#ifndef TSR_PLAN_COST_SHAPE_H
#define TSR_PLAN_COST_SHAPE_H

#include "model/model.h"
#include "tessera/format.h"

/* One matrix [rows, cols], out by in; rows 0: absent. */
struct tsr_plan_shape_matrix {
    uint64_t rows, cols;
    uint64_t count; /* of this shape: experts of the layer, else 1 */
    uint32_t dtype; /* as stored */
    bool     bias;  /* [rows], F32 when it runs */
    struct tsr_format
             packed; /* how a packed model has it; id NULL: as dtype.  A plugin's own format has the
                                * matrix's stored bytes in `outliers`, the rows of a unit in `group` and
                                * the stored bits of a weight, rounded, in `bits`; its id is the shape's */
    bool     ordered;                /* packed with a stored order of its columns */
    uint64_t whole_rows, whole_cols; /* of the matrix that this is a rank's part of; 0: none */
};

/* Linears of a layer by their enum tsr_linear_id; in a layer with experts gate, up and down are those of all experts.
 * The routers, which stay as they are, stand apart. */
#define TSR_PLAN_LINEARS TSR_MODEL_EXPERTS
/* Most groups of a layer's experts that can have bits of their own. */
#define TSR_PLAN_GROUPS 4
/* How a packed model has a matrix. */
struct tsr_plan_shape_stored {
    struct tsr_format format;
    bool              ordered;
};
struct tsr_plan_shape_layer {
    struct tsr_plan_shape_matrix lin[TSR_PLAN_LINEARS], router, shared_router;
    uint64_t                     norms; /* F32 numbers in gains and biases of its norms */
    uint64_t                     rule; /* F32 numbers of the delta rule that a rank has a part of */
    uint64_t                     window;    /* sliding window of attention in positions; 0: all */
    bool                         recurrent; /* the delta rule in place of attention */
    uint64_t group[TSR_PLAN_GROUPS];        /* experts of each group, where the shape has groups */
    /* gate, up and down of packed experts in groups after the first, which has that of lin */
    struct tsr_plan_shape_stored further[TSR_PLAN_GROUPS - 1][TSR_EXPERT_LINEARS];
};

struct tsr_plan_shape {
    char                        *name; /* path of the model, for people; owned */
    char                         hash[48];
    char                         family[16];
    uint64_t                     layers, classes;
    uint32_t                    *layer_class; /* [layers]; owned */
    struct tsr_plan_shape_layer *layer;       /* [classes]; owned */
    uint64_t                     vocab, hidden, ffn, embed_dim, max_positions;
    uint64_t                     expert_ffn, shared_ffn;
    struct tsr_model_latent      latent;                /* rank 0: none */
    struct tsr_model_delta       delta;                 /* value_heads 0: no layer is recurrent */
    uint32_t                     experts, experts_used; /* of a layer that has some; 0: none has */
    double *routing; /* [layers][experts]: the share of all tokens that an expert
                                           * takes, as measured; NULL: not measured; owned */
    double *
        suffers; /* [layers][experts]: an indicator of the expert, as measured; NULL: not measured; owned */
    uint8_t *group_of; /* [layers][experts]: the group of an expert; NULL: all are in one; owned */
    uint32_t groups;   /* most of a layer; 0 or 1: one */
    uint32_t heads, kv_heads, head_dim, rotary_dim; /* rotary_dim 0: no rope */
    bool     sliding_rope;  /* layers with a window have a rope of their own */
    bool     whole_qk_norm; /* queries and keys are normed over all heads */
    bool     lossy_sums;    /* the sums of ranks are coded with loss: set by the problem */
    bool     attn_gate;     /* gates of attention */
    bool     gated, tied, alibi;
    char     packed[24]; /* "gptq", ...: weights are packed already; "" */
    struct tsr_plan_shape_matrix embed, positions, project_in, project_out, head;
    uint64_t                     embed_norm, final_norm; /* F32 numbers; 0: absent */
    char                       **ids; /* of plugins' own formats, each once; owned */
    uint64_t                     n_ids;
};

/* Of a model, which may be loaded headers_only.  [any] */
tsr_status tsr_plan_shape_of(struct tsr_plan_shape **s, const struct tsr_model *m,
                             struct tsr_err *err);
/* Of an architecture without weights: the text of a config.json; name is for messages and in
 * `name`.  Matrices have the dtype that the config names (torch_dtype, dtype), else F16.  Malformed
 * ones are TSR_E_INPUT.  [any] */
tsr_status tsr_plan_shape_config(struct tsr_plan_shape **s, const char *name, const char *text,
                                 uint64_t len, struct tsr_err *err);
/* Either: path is a config.json or a folder with it and without weights (tsr_model_config_alone()), else a model, whose
 * headers are read.  [setup] */
tsr_status tsr_plan_shape_load(struct tsr_plan_shape **s, const char *path, struct tsr_err *err);
void       tsr_plan_shape_destroy(struct tsr_plan_shape *s); /* NULL is fine */

/* Takes the routing frequencies from the statistics of a calibration in `folder`.  TSR_E_INPUT if they are not of such a
 * model.  [setup] */
tsr_status tsr_plan_shape_measured(struct tsr_plan_shape *s, const char *folder,
                                   struct tsr_err *err);
/* Experts that `tokens` tokens reach in a layer of a class, 0 without experts: the sum over experts of 1 - (1 - f)^tokens,
 * with f as measured, on average over the layers of the class; not measured: k/E, any k with the same chance. */
double tsr_plan_shape_reached(const struct tsr_plan_shape *s, uint64_t cls, double tokens);
/* Divides the experts of each layer into n groups of numbers as even as can be: those that suffer most are in the first
 * where that is measured, else those that most tokens take.  Equal ones: the one that more tokens take, then the lower
 * expert is in the earlier group.  TSR_E_INPUT without experts or frequencies.  [setup] */
tsr_status tsr_plan_shape_group(struct tsr_plan_shape *s, uint32_t n, struct tsr_err *err);
/* Takes over groups of[layers][experts], also when it fails.  Layers whose groups have other numbers of experts become
 * classes of their own.  [setup] */
tsr_status tsr_plan_shape_put_groups(struct tsr_plan_shape *s, uint8_t *of, struct tsr_err *err);
/* How many groups some layer has: at least one. */
static inline uint32_t tsr_plan_shape_groups(const struct tsr_plan_shape *s)
{
    return s->groups > 1 ? s->groups : 1;
}
/* Experts of a group that `tokens` tokens reach, and the share that it takes of what a layer of the class routes. */
double tsr_plan_shape_group_reached(const struct tsr_plan_shape *s, uint64_t cls, uint32_t group,
                                    double tokens);
double tsr_plan_shape_group_taken(const struct tsr_plan_shape *s, uint64_t cls, uint32_t group);
/* The same share of one layer. */
double tsr_plan_shape_layer_taken(const struct tsr_plan_shape *s, uint64_t layer, uint32_t group);
/* Matrices of a linear's shape that one token multiplies with. */
double tsr_plan_shape_used(const struct tsr_plan_shape *s, const struct tsr_plan_shape_matrix *m);
/* Whether a linear stands for those of experts that a router chooses from. */
static inline bool tsr_plan_shape_is_expert(const struct tsr_plan_shape_layer *l, int linear)
{
    return l->router.rows &&
           (linear == TSR_MODEL_GATE || linear == TSR_MODEL_UP || linear == TSR_MODEL_DOWN);
}
/* Matrices of a linear in a group; those of a linear that is not an expert's are in the first. */
static inline uint64_t tsr_plan_shape_matrices(const struct tsr_plan_shape       *s,
                                               const struct tsr_plan_shape_layer *l, int linear,
                                               uint32_t group)
{
    if (s->groups > 1 && tsr_plan_shape_is_expert(l, linear))
        return l->group[group];
    return group == 0 ? l->lin[linear].count : 0;
}
/* A linear in a group of experts: how many there are, and how a packed model has them. */
struct tsr_plan_shape_matrix tsr_plan_shape_matrix_of(const struct tsr_plan_shape       *s,
                                                      const struct tsr_plan_shape_layer *l,
                                                      int linear, uint32_t group);
/* The delta rule's heads of one of tp ranks. */
struct tsr_model_delta tsr_plan_shape_delta(const struct tsr_model_delta *d, uint32_t tp);
/* Weights in the linears of a class, of all experts, and numbers per token in its K and V together. */
uint64_t tsr_plan_shape_weights(const struct tsr_plan_shape *s, uint64_t cls);
uint64_t tsr_plan_shape_kv(const struct tsr_plan_shape *s);

/* TSR_E_CONFIG with the reason where tp ranks cannot share a layer: heads, KV heads or the
 * feed-forward do not divide, or a part would cut groups of `group` columns (0: whole rows, which
 * cannot be cut by columns without a scale for each part and are refused for tp > 1; 1: none).  whole: experts are not
 * cut, and their number divides. */
tsr_status tsr_plan_shape_splits(const struct tsr_plan_shape *s, uint32_t tp, bool whole,
                                 uint64_t group, struct tsr_err *err);
/* The part of a linear that one of tp ranks holds: rows of q, k, v, z, b, a, gate, up; columns of o, down; all of q_a and kv_a;
 * whole: some of the experts.  tsr_plan_shape_splits() holds. */
struct tsr_plan_shape_matrix tsr_plan_shape_part(const struct tsr_plan_shape_matrix *m,
                                                 enum tsr_linear_id id, uint32_t tp, bool whole);
/* Of `reached` experts of a layer, any with the same chance, those of the rank that has the most; each of tp ranks has as
 * many of the layer's. */
double tsr_plan_shape_busiest(const struct tsr_plan_shape *s, double reached, uint32_t tp);

#endif
