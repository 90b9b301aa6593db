/* planning/options.h - the keys of the step `plan`, for its table and the verb's. */
#ifndef TSR_PLANNING_OPTIONS_H
#define TSR_PLANNING_OPTIONS_H

#include "plan/file/plan_file.h"
#include "plan/search/search.h"
#include "tessera/solver.h"

struct tsr_planning_plan_keys {
    const struct tsr_config_node *bits, *candidates, *quality, *kv, *compensate, *ends, *at_most,
        *codecs, *sums, *verify;
    const char *use, *solver, *codec, *tp_codec, *tp, *replicas, *baselines, *to, *routing;
    int64_t objective, accounting, latency, head, experts, layer_group, expert_groups, prefill_mb,
        decode_mb, min_tp, max_tp, copy_nodes, share_unit, seed;
    double  gap, time_limit;
    int32_t use_all;
};
#define TSR_PLAN_OPTIONS 36
extern const struct tsr_option tsr_plan_step_options[TSR_PLAN_OPTIONS];
/* The map `verify`. */
struct tsr_planning_verify_keys {
    const char *text;
    int64_t     window, max_windows, act;
};
extern const struct tsr_choice tsr_latency_choices[2], tsr_planning_experts_choices[3];

// clang-format off
#define TSR_PLAN_OPTION_LIST \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, bits, "Bit widths to choose from, 16 the original weights: [3, 4, 8, 16]."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, use, "gptq", "The quantizer of these bit widths; its options are keys next to it. Where a step run follows and no step quantize between: rtn."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, candidates, \
                    "Instead of bits: [{use: gptq, bits: 3}, {use: int8}, original]."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, quality, \
                    "{at_least: uniform-4}, {max_omega: X} or {theta: X}, with {indicators: FILE, " \
                    "table: NAME} or by a prior; at_least uniform-4 by default."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, kv, \
                    "Types of the KV cache to choose from, [f16, int8]; by default both where 'quality' is a limit on omega, " \
                    "else f16. By indicators of measure: kl each layer has its own; else one for all, and int8 counts as 8 bits " \
                    "in all layers do."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, compensate, \
                    "Channels of 1,024 that a layer may have compensated, [0, 8, 16, 32], by indicators of measure: kl."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, ends, \
                    "Schemes for embedding and head, [original, rtn-8], by indicators of measure: kl."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, at_most, \
                    "{latency_s: X}: the least omega of the plans that take at most X seconds, in place of the fastest plan. " \
                    "{ttft_s: X}: all prompts of the first round are done in X seconds. " \
                    "{kl: X}: the fastest plan of at most X nats per token, by indicators of measure: kl."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, verify, \
                    "{text: FILE}: measure the KL of what later steps make of the plan, and solve again where it is above the " \
                    "limit and its interval, three times at most."), \
    TSR_OPTION_PATH(struct tsr_planning_plan_keys, routing, "", "FOLDER", \
                    "Statistics of a calibration that say how often each expert is taken; by default those of the " \
                    "last step calibrate before this one."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, expert_groups, 1, 1, TSR_PLAN_GROUPS, "groups", \
                   "Groups of a layer's experts, by their indicators or by how often they are taken; each may have other bits."), \
    TSR_OPTION_ENUM(struct tsr_planning_plan_keys, objective, TSR_OBJECTIVE_STEADY, tsr_objective_choices, "What is minimised."), \
    TSR_OPTION_ENUM(struct tsr_planning_plan_keys, accounting, TSR_PLAN_ACCOUNT_EXACT, tsr_accounting_choices, \
                    "How memory is counted."), \
    TSR_OPTION_ENUM(struct tsr_planning_plan_keys, latency, TSR_PLAN_LATENCY_FIT, tsr_latency_choices, "Where times come from."), \
    TSR_OPTION_ENUM(struct tsr_planning_plan_keys, head, TSR_PLAN_HEAD_LAST, tsr_head_choices, "Which stage has the head."), \
    TSR_OPTION_ENUM(struct tsr_planning_plan_keys, experts, TSR_PLAN_EXPERTS_ROWS, tsr_planning_experts_choices, \
                    "What of the experts each of the devices of a stage has."), \
    TSR_OPTION_PATH(struct tsr_planning_plan_keys, to, "plan.yaml", "FILE", "The plan file, in the job folder."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, solver, "exact", "The solver, with its options as NAME:key=value,..."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, baselines, "uniform,pipeedge,het,adabits", \
                      "Solvers that the same work is shown under, or none."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, codec, "plain:dtype=bf16", \
                      "Codec between stages, NAME:key=value,...; plain: F32, exact."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, tp_codec, "", "Codec inside a stage of several devices; \"\": F32, exact."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, codecs, \
                    "Codecs between stages to choose from for each boundary, [plain, 'plain:dtype=bf16']; a lossy one needs " \
                    "indicators of measure: kl."), \
    TSR_OPTION_NODE(struct tsr_planning_plan_keys, sums, \
                    "Codecs inside stages of several devices to choose from for each stage; a lossy one needs indicators of " \
                    "measure: kl."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, tp, "auto", \
                      "Devices that share a layer: auto, each stage its own number; or one number for all, where a node's " \
                      "devices and the model allow it."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, max_tp, 0, 0, 1024, NULL, "Most devices that share a layer; 0: any."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, min_tp, 0, 0, 1024, NULL, \
                   "Fewest devices that share a layer, where a node's devices and the model allow it; 0: any."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, layer_group, 1, 1, 1000, "layers", \
                   "Layers that are decided together, for speed."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, prefill_mb, 0, 0, 1 << 30, "requests", \
                   "Prefill micro-batch; 0: the best of the powers of two."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, decode_mb, 0, 0, 1 << 30, "requests", \
                   "Decode micro-batch; 0: the best of the even shares."), \
    TSR_OPTION_STRING(struct tsr_planning_plan_keys, replicas, "1", \
                      "Replicas of the model on equal parts of the devices, each with a share of the batch: their number. auto: " \
                      "as many as are fastest, also on groups of whole nodes with shares that fit their speed."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, copy_nodes, 0, 0, 4, "nodes", \
                   "Replicas of the model, each on at most so many nodes with a share of the batch. " \
                   "0: one replica, or replicas on up to 2 nodes if there are more than 8 nodes."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, share_unit, 0, 0, 1 << 30, "requests", \
                   "Shares of copies are multiples of it; 0: equal parts, up to 256."), \
    TSR_OPTION_BOOL(struct tsr_planning_plan_keys, use_all, 0, "Leave no device without layers."), \
    TSR_OPTION_REAL(struct tsr_planning_plan_keys, gap, 1e-4, 0.0, 1.0, NULL, "Relative gap at which a plan is proved."), \
    TSR_OPTION_REAL(struct tsr_planning_plan_keys, time_limit, 60, 0.0, 1e6, "s", \
                    "Stop with the best plan so far; 0: no limit."), \
    TSR_OPTION_INT(struct tsr_planning_plan_keys, seed, -1, -1, INT64_MAX, NULL, "Of solvers that draw; -1: the job's.")
// clang-format on

#endif
