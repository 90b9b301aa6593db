/* plan/device.h - device profiles: tessera.device/1 (docs/formats/device.md).
 *
 * What a device can hold and run, and how fast: datasheet numbers with stated efficiencies, and
 * latencies of single decoder layers that were measured, each with its source.  latency.h turns
 * them into times.
 */
#ifndef TSR_PLAN_DEVICE_H
#define TSR_PLAN_DEVICE_H

#include "config/config.h"
#include "plan/candidate.h"

#define TSR_FEATURES 5 /* most of a regression */

enum tsr_phase { TSR_PREFILL, TSR_DECODE };

/* Where a time comes from, worst last. */
enum tsr_basis {
    TSR_MEASURED, /* a point of the profile itself (latency: table) */
    TSR_FITTED,   /* regression over points of this kernel */
    TSR_ROOFLINE  /* datasheet and efficiencies */
};
const char *tsr_basis_name(enum tsr_basis b);

/* Roofline of a kernel.  Efficiencies are shares of peak, in (0, 1]. */
struct tsr_kernel_speed {
    char        kernel[TSR_KERNEL_TEXT];
    double      ops;              /* peak operations a second of the unit that it uses */
    double      compute[2];       /* by phase: share of ops that is reached */
    double      read[2];          /* share of the device's bandwidth that weights are read at */
    double      bytes_per_weight; /* read; 0: as the candidate packs them */
    double      convert;          /* bytes a weight moved before the product begins */
    uint64_t    above;            /* this entry is for more tokens at once than that */
    const char *source;           /* in the profile's doc */
};

/* One measured decoder layer.  prefill: v prompts of s tokens behind t; decode: v tokens, one each,
 * with s + t positions behind them, s kept 0 or 1. */
struct tsr_point {
    const char    *kernel;
    enum tsr_phase phase;
    uint64_t       hidden, ffn; /* of the layer; ffn 0: attention alone */
    uint32_t       heads, kv_heads, head_dim;
    bool           gated;
    uint64_t       v, s, t;
    double         ms, spread; /* median; interquartile range over it, NaN: not known */
    const char    *source;
};

/* Ends of the model: one whole pass of v * s tokens through embedding or head. */
struct tsr_end_point {
    bool        head;
    char        kernel[TSR_KERNEL_TEXT]; /* of the matrix */
    uint64_t    vocab, width, tokens;    /* tokens embedded, or rows of logits */
    double      ms, spread;
    const char *source;
};

struct tsr_profile {
    char                    *name;    /* "T4": owned */
    char                    *path;    /* file; owned */
    char                    *backend; /* component that runs it, NULL: none of ours; owned */
    uint64_t                 memory_bytes, reserved_bytes; /* total; taken by driver and runtime */
    double                   usable;         /* share of the total that a plan may use, (0, 1] */
    double                   bandwidth;      /* bytes/s */
    double                   host_bandwidth; /* bytes/s of the host's memory; 0: not known */
    double                   overhead_ms[2]; /* by phase: of one layer beside roofline terms */
    uint64_t                 paper_bytes; /* `accounting: paper`: the papers' table; 0: as total */
    char                    *source_memory, *source_bandwidth; /* owned by the doc */
    struct tsr_kernel_speed *kernels;
    uint64_t                 n_kernels;
    struct tsr_point        *points;
    uint64_t                 n_points;
    struct tsr_end_point    *ends;
    uint64_t                 n_ends;
    uint64_t                 knots[2][8]; /* by phase: tokens at once where a kernel changes */
    uint32_t                 n_knots[2];
    struct tsr_doc          *doc;  /* owns the strings */
    struct tsr_fits         *fits; /* of latency.c, made at load */
};

/* Reads a profile and makes its regressions.  What is wrong with the file goes to d; TSR_OK with
 * *p NULL then.  [setup] */
tsr_status tsr_profile_load(struct tsr_profile **p, const char *path, struct tsr_diag *d,
                            struct tsr_err *err);
tsr_status tsr_profile_parse(struct tsr_profile **p, const char *name, const char *text,
                             uint64_t len, struct tsr_diag *d, struct tsr_err *err);
void       tsr_profile_destroy(struct tsr_profile *p); /* NULL is fine */

/* The file of a profile: NAME.yaml (NAME in lower case if there is none) in devices/ beside the
 * cluster file, which lies in `beside`, in ../devices, then in the configs that come with the
 * program.  A name with a '/' or that ends in .yaml is a path relative to `beside`.  Fresh memory;
 * TSR_E_INPUT names places and the nearest profile.  [setup] */
tsr_status tsr_profile_find(char **path, const char *name, const char *beside, struct tsr_err *err);

/* True where the device runs the kernel: it has a roofline or a point for it. */
bool tsr_profile_runs(const struct tsr_profile *p, const char *kernel);

#endif
