/* plan/file/plan_file.h - reads tessera.plan/1 (docs/formats/plan.md) from YAML and checks every key.
 *
 * Packing is returned as nodes (rules as in quant/scheme.h); stages and micro-batches are returned as
 * numbers. Strings and nodes belong to the document. */
#ifndef TSR_PLAN_FILE_PLAN_FILE_H
#define TSR_PLAN_FILE_PLAN_FILE_H

#include "plan/cost/device.h"
#include "plan/cost/memory_job.h"
#include "plan/cost/quality.h"
#include "plugin/choices.h"

#define TSR_PLAN_FORMAT   "tessera.plan/1"
#define TSR_PLAN_LAYERS   100000u
#define TSR_PLAN_CHANNELS 1024u /* that k of `compensation` are selected of */
#define TSR_PLAN_PHASES   2

/* The transfer settings of a phase; "" where the file has none. */
struct tsr_plan_way {
    const char *codec, *algorithm;
    const char *state; /* of collective: the codec's calibration, a path relative to the plan */
};

/* The planner's predictions for a stage; NAN or -1 where the file has none. */
struct tsr_plan_stage_said {
    int64_t weights, kv, ends, workspace, capacity; /* bytes */
    double  prefill_ms, decode_ms, busy;
    int64_t residuals;           /* bytes */
    int64_t host, host_capacity; /* bytes of the node's memory, for experts */
};

struct tsr_plan_stage {
    uint64_t                      first, count;
    const char                   *node, *device; /* "" where the plan has no places */
    int64_t                       tp;
    int64_t                       experts;     /* TSR_PLAN_EXPERTS_* */
    bool                          cpu_experts; /* the node's CPU runs those of some layers */
    const struct tsr_config_node *map;
    struct tsr_plan_way           send[TSR_PLAN_PHASES], collective[TSR_PLAN_PHASES];
    bool                          compensated; /* some k above 0 */
    struct tsr_plan_stage_said    said;
};

struct tsr_plan_said {
    double      latency_ms, ttft_ms, tokens_per_second, omega, objective_ms, bound_ms, seconds;
    int32_t     proved;
    const char *solver;
    double      slower, lost;                          /* of compensation */
    double      kl;                                    /* nats per token */
    const struct tsr_config_node *kl_interval, *parts; /* [low, high]; {weights, kv, links, sums} */
    double                        kl_low, kl_high;     /* of kl_interval, or NAN */
    struct tsr_plan_quality_parts of;                  /* of parts */
};

struct tsr_plan_load {
    int64_t     prompt, generate, batch;
    int64_t     concurrency, chunk, kv; /* 0: batch; 0: all; of tessera/kv_cache.h */
    const char *kv_layers;              /* of some layers: plugin/kv_layers.h; "": of none */
};

struct tsr_plan_file {
    struct tsr_config_doc        *doc;
    const char                   *model, *headers; /* hashes, or "" */
    uint64_t                      layers;
    bool                          placed; /* has workload, micro-batches and places */
    struct tsr_plan_load          load;
    int64_t                       prefill_mb, decode_mb, replicas, objective, accounting;
    int64_t                       head;  /* TSR_HEAD_*: which stage has it */
    int64_t                       share; /* requests of one replica, filled in where left out */
    const struct tsr_config_node *replica_nodes; /* [replicas][nodes] names, NULL where left out */
    const char                   *quality, *table, *quality_hash;
    struct tsr_plan_stage        *stages;
    uint64_t                      n_stages;
    uint8_t                      *cpu_experts; /* [layers] 1: the CPU runs the layer's; owned */
    struct tsr_config_node      **entries;     /* of all schemes, in order; the array is owned */
    uint64_t                      n_entries;
    const struct tsr_config_node *ends; /* rules for embedding and head; NULL: none */
    struct tsr_plan_said          said;
};

/* Reads a file; its errors go to d, and then p holds nothing usable but must still be freed. An unreadable
 * file is TSR_E_INPUT. */
tsr_status tsr_plan_file_load(struct tsr_plan_file *p, const char *path, struct tsr_diag *d,
                              struct tsr_err *err);
/* The same from text; name is the file name in messages. */
tsr_status tsr_plan_file_parse(struct tsr_plan_file *p, const char *name, const char *text,
                               uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_plan_file_free(struct tsr_plan_file *p);

/* The rules that hold for a layer, as text: "use: gptq, bits: 4"; several with ';' between. */
tsr_status tsr_plan_file_layer(const struct tsr_plan_file *p, uint64_t layer, char *buf, size_t cap,
                               struct tsr_err *err);
/* The name of the node of rank `rank` (replica, stage, then the devices of a stage); NULL: the plan leaves
 * it open (a replica on any identical nodes). */
const char *tsr_plan_file_node(const struct tsr_plan_file *p, uint32_t rank);
/* Its stage. */
const struct tsr_plan_stage *tsr_plan_file_stage(const struct tsr_plan_file *p, uint32_t rank);
/* Is the layer among those of an entry?  Checked when the file was read. */
tsr_status tsr_plan_file_covers(const struct tsr_plan_file *p, const struct tsr_config_node *entry,
                                uint64_t layer, bool *yes, struct tsr_err *err);

/* "model.layers.3.mlp.down_proj", the name that patterns of `tensors` match. Returns buf. */
#define TSR_PLAN_LINEAR_TEXT 80
const char *tsr_plan_linear(uint64_t layer, int linear, char buf[TSR_PLAN_LINEAR_TEXT]);

extern const struct tsr_choice tsr_objective_choices[2], tsr_accounting_choices[2],
    tsr_head_choices[2];

#endif
