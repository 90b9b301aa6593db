/* plan/cost/profile.h - content of a device profile: datasheet numbers, measured layers and ends. */
#ifndef TSR_PLAN_COST_PROFILE_H
#define TSR_PLAN_COST_PROFILE_H

#include "config/config.h"
#include "plan/cost/candidate.h"

#define TSR_PLAN_FEATURES 5 /* most of a regression */

enum tsr_phase { TSR_PLAN_PREFILL, TSR_PLAN_DECODE };

/* Source of a time, worst last. */
enum tsr_basis {
    TSR_PLAN_MEASURED, /* a point of the profile itself (latency: table) */
    TSR_PLAN_FITTED,   /* regression over points of this kernel */
    TSR_PLAN_ROOFLINE  /* datasheet and efficiencies */
};

/* Roofline of a kernel.  Efficiencies are shares of peak, in (0, 1]. */
struct tsr_plan_kernel_speed {
    char        kernel[TSR_PLAN_KERNEL_TEXT];
    double      ops;              /* peak operations a second of the unit that it uses */
    double      compute[2];       /* by phase: share of ops that is reached */
    double      read[2];          /* share of the device's bandwidth that weights are read at */
    double      bytes_per_weight; /* read; 0: as the candidate packs them */
    double      convert;          /* bytes a weight moved before the product begins */
    uint64_t    above;            /* this entry is for more tokens at once than that */
    const char *source;           /* in the profile's doc */
};

/* One measured decoder layer. prefill: v prompts of s tokens after t past ones; decode: v tokens, one
 * each, with s + t past positions, s kept 0 or 1. */
struct tsr_plan_point {
    const char    *kernel;
    enum tsr_phase phase;
    uint64_t       hidden, ffn; /* of the layer; ffn 0: attention alone */
    uint32_t       heads, kv_heads, head_dim;
    bool           gated;
    uint32_t       experts, used; /* of width ffn, and how many a token takes; 0: a feed-forward */
    uint64_t       shared_ffn; /* width of the expert that every token takes in addition; 0: none */
    bool           attn_gate;  /* attention has a gate */
    struct tsr_model_delta  delta;  /* in place of attention; value_heads 0: attention */
    struct tsr_model_latent latent; /* attention's linears; rank 0: q, k and v */
    uint64_t                v, s, t;
    double                  ms, spread; /* median; interquartile range over it, NaN: not known */
    const char             *source;
};

/* Ends of the model: one whole pass of v * s tokens through embedding or head. */
struct tsr_plan_end_point {
    bool        head;
    char        kernel[TSR_PLAN_KERNEL_TEXT]; /* of the matrix */
    uint64_t    vocab, width, tokens;         /* tokens embedded, or rows of logits */
    double      ms, spread;
    const char *source;
};

/* A codec on this device, in bytes/s of F32 rows: whole messages, as links and sums have them. */
struct tsr_plan_codec_speed {
    const char *codec; /* "mx:element=fp4_e2m1", or "mx" for all options without an entry */
    double      encode, decode;
    const char *source;
    uint64_t    above; /* this entry is for messages of more bytes of F32 rows than that */
};

struct tsr_plan_profile {
    char       *name;        /* "T4": owned */
    char       *path;        /* file; owned */
    char       *backend;     /* component that runs it, NULL: none of Tessera's;
                                            * owned */
    const char *measured_on; /* whose kernels `layers` and `ends` are of, and who measured them;
                                            * in doc; "": not stated */
    uint64_t    memory_bytes, reserved_bytes; /* total; taken by driver and runtime */
    double      usable;                       /* share of the total that a plan may use, (0, 1] */
    double      bandwidth;                    /* bytes/s */
    double      host_bandwidth;               /* bytes/s of the host's memory; 0: not known */
    double      overhead_ms[2];               /* by phase: of one layer, in addition to roofline
                                            * terms */
    uint64_t    paper_bytes; /* `accounting: paper`: the papers' table; 0: as total */
    char       *source_memory, *source_bandwidth; /* owned by the doc */
    struct tsr_plan_kernel_speed *kernels;
    uint64_t                      n_kernels;
    struct tsr_plan_point        *points;
    uint64_t                      n_points;
    struct tsr_plan_end_point    *ends;
    uint64_t                      n_ends;
    struct tsr_plan_codec_speed  *codecs;
    uint64_t                      n_codecs;
    uint64_t                      knots[2][8]; /* by phase: tokens at once where a kernel changes */
    uint32_t                      n_knots[2];
    struct tsr_config_doc        *doc;  /* owns the strings */
    struct tsr_plan_fits         *fits; /* of latency.c, made at load */
};

#endif
