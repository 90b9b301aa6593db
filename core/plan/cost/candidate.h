/* plan/cost/candidate.h - candidates for a layer: a quantizer plugin with its options, or the original.
 *
 * The plugin reports the bytes and the layout of a matrix (no plugin is known by name, so third-party
 * plugins are planned too). A device profile has times by the layout's kernel: "f16", "int4", "llm8",
 * "lut3", "fp4_e2m1" ...
 */
#ifndef TSR_PLAN_COST_CANDIDATE_H
#define TSR_PLAN_COST_CANDIDATE_H

#include "plan/cost/shape.h"
#include "plugin/spec.h"
#include "quant/quant.h"

#define TSR_PLAN_KERNEL_TEXT 80 /* an id of a format has up to 63 bytes */
/* Linears of a layer that can have schemes of their own: those before the router, then those of latent attention. */
#define TSR_PLAN_MIXED (TSR_MODEL_ROUTER + TSR_MODEL_KV_B - TSR_MODEL_Q_A + 1)
/* Parts of a mix: those, of which gate, up and down are the first group's; then gate, up and down of each further group. */
#define TSR_PLAN_PARTS      (TSR_PLAN_MIXED + TSR_EXPERT_LINEARS * (TSR_PLAN_GROUPS - 1))
#define TSR_PLAN_CANDIDATES 64 /* most of a list */

struct tsr_plan_candidate {
    char     name[40];     /* "gptq-4", "original": unique in a list */
    char     scheme[24];   /* plugin's name, or "original" */
    char     options[160]; /* "bits=4,group=128": as given, without the name */
    uint32_t bits;         /* of a weight's code; of the original: its dtype's */
    uint32_t stored_bits;  /* of a weight of a plugin's own format with its scales, else bits */
    uint64_t group;        /* columns that share a scale; 0: the row, 1: no scales */
    struct tsr_plugin_spec spec;
    struct tsr_quantizer   q; /* self NULL: original, or mixed */
    bool                   mixed;
    uint32_t               n_parts; /* of a mix: those of as many groups as its text names */
    /* mixed: another candidate of the list for each part */
    const struct tsr_plan_candidate *of[TSR_PLAN_PARTS];
};

struct tsr_plan_candidates {
    struct tsr_plan_candidate *v;
    uint64_t                   n;
};

/* Opens n texts, "gptq:bits=4,group=128" or "original" (also "f16", "bf16", "16": the weights as stored,
 * packed ones of a packed model as packed). A duplicate name gets its options appended. TSR_E_INPUT, with
 * the name, for an unknown plugin or option. [setup] */
tsr_status tsr_plan_candidates_open(struct tsr_plan_candidates *c, struct tsr_registry *r,
                                    const struct tsr_plan_shape *shape, const char *const *texts,
                                    uint64_t n, struct tsr_err *err);
/* A list may also have "mix|TEXT|...", one text of the list for each part: TSR_PLAN_MIXED of them, and three for each
 * further group of experts.  It is the result of plan files with schemes for single tensors. */
#define TSR_CANDIDATE_MIX "mix|"
/* The i-th of these linears. */
static inline enum tsr_linear_id tsr_plan_mixed(int i)
{
    return (enum tsr_linear_id)(i < TSR_MODEL_ROUTER ? i : TSR_MODEL_Q_A + i - TSR_MODEL_ROUTER);
}
/* Adds the mixes of a shape with groups of experts: one candidate for a layer's first group and what is around the
 * experts, and others for the other groups, whose bits do not rise from group to group.  [setup] */
tsr_status tsr_plan_candidates_groups(struct tsr_plan_candidates *c, const struct tsr_plan_shape *s,
                                      struct tsr_err *err);
/* The candidate of one linear of a group of experts: the candidate itself, or a part of it.  group: 0 for what is no
 * expert's. */
const struct tsr_plan_candidate *tsr_plan_candidate_part(const struct tsr_plan_candidate *c,
                                                         int linear, uint32_t group);
/* The k-th part, in the order above; of what is no mix itself at 0.  NULL past the last, and where an earlier one is the
 * same. */
const struct tsr_plan_candidate *tsr_plan_candidate_nth(const struct tsr_plan_candidate *c,
                                                        uint32_t                         k);
/* The share of what a layer suffers that is of the linears of this part.  parts[groups + 1]: of each group of experts,
 * and of all else, within which linears share by their weights.  NULL: all share by their weights, and experts count by
 * the tokens that take them: a group has its share of what is routed. */
double tsr_plan_candidate_share(const struct tsr_plan_candidate *c,
                                const struct tsr_plan_candidate *part,
                                const struct tsr_plan_shape *s, uint64_t layer,
                                const double *parts);
/* As tsr_plan_shape_splits(), for a layer under the candidate. */
tsr_status tsr_plan_candidate_splits(const struct tsr_plan_candidate *c,
                                     const struct tsr_plan_shape *s, uint32_t tp, bool whole,
                                     struct tsr_err *err);
void       tsr_plan_candidates_close(struct tsr_plan_candidates *c); /* zeroed or filled */

/* A matrix under a candidate: its layout, and the bytes that a product reads: codes and scales, or F32 for a
 * plugin's own format, which is decoded a block of rows at a time. TSR_E_UNSUPPORTED with the plugin's reason. [any] */
tsr_status tsr_plan_candidate_matrix(const struct tsr_plan_candidate    *c,
                                     const struct tsr_plan_shape_matrix *m, struct tsr_format *f,
                                     uint64_t *bytes, struct tsr_err *err);
/* A matrix in a plugin's own format: its resident bytes, and those of the decoded block of a product; *bytes 0: it is
 * not in one. A rank's part has all columns of its rows. [any] */
tsr_status tsr_plan_candidate_own(const struct tsr_plan_candidate    *c,
                                  const struct tsr_plan_shape_matrix *m, uint64_t *bytes,
                                  uint64_t *block, struct tsr_err *err);
/* The kernel that runs a class of layers: that of its down_proj, or of the linear with the most
 * weights.  "f32" for a layout that no backend of ours reads, as the engine runs it. */
tsr_status tsr_plan_candidate_kernel(const struct tsr_plan_candidate *c,
                                     const struct tsr_plan_shape *s, uint64_t cls,
                                     char kernel[TSR_PLAN_KERNEL_TEXT], struct tsr_err *err);
/* Name of a layout's kernel: "bf16", "int4", "llm8", "lut3", "mxint4", "fp4_e2m1"; of a plugin's own its id with the bits of
 * a weight, "org.example.trellis/1:2", where these are known, else "f32". */
void tsr_plan_kernel_name(const struct tsr_format *f, char kernel[TSR_PLAN_KERNEL_TEXT]);

#endif
