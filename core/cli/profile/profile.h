/* cli/profile/profile.h - the parts of `tessera profile`: measured points, the file, the check. */
#ifndef TSR_CLI_PROFILE_PROFILE_H
#define TSR_CLI_PROFILE_PROFILE_H

#include "base/output.h"
#include "cli/bench/bench.h"
#include "engine/stopwatch.h"
#include "plan/cost/latency.h"

#define PROFILE_ROUNDS 16
#define PROFILE_FORMS                                                                              \
    4 /* of layers in a model: attention or the delta rule, with experts or without */

struct profile_options {
    const char            *output, *of, *name, *backend, *transport, *times;
    struct tsr_cli_strings model, scheme, codec;
    int64_t                repeats, rounds, positions, sequences, check, seed, ranks;
    int32_t                quick, links, fits;
};

/* One time: the median of the repeats; of several rounds their geometric mean. */
struct profile_point {
    enum tsr_phase phase;
    uint64_t       v, s, t;
    double         ms, spread; /* interquartile range over the median */
    double         raw_ms;     /* as ms, but not normalised */
    double         probe;      /* read rate of the same second, bytes/s */
    double power; /* ms is as it would be at another probe: raw_ms times their ratio to this */
    double round_ms[PROFILE_ROUNDS], round_probe[PROFILE_ROUNDS];
};

/* What one time of a point is made of. */
struct profile_repeat {
    double   ms;
    uint64_t interrupted; /* times that the system took a thread of ours off its CPU for others */
    uint64_t order;
};
struct profile_taken {
    double                 warm; /* seconds, not counted */
    struct profile_repeat *repeat;
    uint64_t               n;
    double                 before[2], after[2]; /* read probes, bytes/s */
};

/* All points of one scheme on one model: the grid that goes into the file, then the workloads of --check,
 * which no regression uses. */
struct profile_scheme {
    const char           *text; /* "rtn:bits=4" */
    char                  kernel[TSR_PLAN_KERNEL_TEXT];
    uint64_t              layer_bytes;
    struct profile_point *points;
    uint64_t              n_points, n_grid, rounds;
};
struct profile_end {
    bool     head;
    uint64_t tokens;
    double   ms, spread;
};
/* A codec at one size of message, bytes/s of F32 rows. */
struct profile_codec {
    const char *text;         /* "plain:dtype=bf16" */
    uint64_t    bytes, above; /* of the message; the entry is for messages above that */
    double      encode, decode;
};
/* The layers of one form in a model. */
struct profile_model {
    const char                *path;  /* as the user gave it */
    uint64_t                   cls;   /* of the form's first layer */
    bool                       again; /* ends are those of the entry before */
    struct tsr_model          *m;
    struct tsr_plan_shape     *shape;
    struct tsr_plan_candidates candidates; /* one for each scheme */
    struct profile_scheme     *schemes;    /* [n_schemes] */
    struct profile_end        *ends;
    uint64_t                   n_ends;
};

struct profile {
    const struct profile_options *o;
    struct bench_options          bench_options;
    struct bench                  bench;
    struct tsr_registry          *r;
    const char *const            *texts; /* schemes */
    uint64_t                      n_schemes;
    struct profile_model         *models;
    uint64_t                      n_models; /* forms of all models */
    struct profile_codec         *codecs;
    uint64_t                      n_codecs;
    double                        bandwidth, fma, dot; /* medians of the probes */
    double                       *probes;              /* every read probe that was taken */
    uint64_t                      n_probes, cap_probes;
    struct tsr_writer             times; /* of --times; zeroed: none */
};

/* Most sequences and positions that models are measured with. */
uint64_t profile_sequences(const struct profile *p);
uint64_t profile_positions(const struct profile *p, const struct profile_model *m);

/* Layers of a form have one shape in a profile. */
bool profile_same_form(const struct tsr_plan_shape_layer *a, const struct tsr_plan_shape_layer *b);
/* The first layer of its form. */
uint64_t profile_first(const struct profile_model *m);

/* Computes the points from their rounds: ms becomes the geometric mean of times normalized to the
 * profile's memory bandwidth. Times vary with a power of the read probe of the same second: about -1 where
 * reading the weights from memory dominates a step, near 0 for long prompts, and above 0 where a machine
 * computes slower while its memory is fast. The power is fitted from the rounds, for each phase and range
 * of tokens of the scheme, from times of one point (of the grid, if possible) at different probes. If the
 * probes did not differ, it is the share of weight reading in the time for up to PROFILE_FEW tokens, and 0
 * for more. */
#define PROFILE_FEW 4
void profile_average(struct profile *p, struct profile_scheme *s);
/* Packs a scheme's layers and measures the grid and the workloads of --check. */
tsr_status profile_measure(struct profile *p, struct profile_model *m, uint64_t scheme,
                           struct tsr_err *err); /* one round */
/* Appends the workloads of --check to s->points, which has room: none of the grid's, none of dev's (NULL:
 * no profile yet). */
void profile_choose(struct profile *p, const struct profile_model *m, struct profile_scheme *s,
                    const struct tsr_plan_profile *dev);
/* Allocates room for the grid, if requested, and for the workloads of --check; names the scheme. */
tsr_status profile_begin(struct profile *p, struct profile_model *m, uint64_t scheme, bool grid,
                         struct tsr_err *err);
/* --times: a line for a peak, a time of a point in a round, a time of an end; nothing without --times.  The
 * caller commits p->times. */
tsr_status profile_times_open(struct profile *p, struct tsr_err *err);
tsr_status profile_times_peak(struct profile *p, const char *probe, const double *rates, uint64_t n,
                              struct tsr_err *err);
tsr_status profile_times_point(struct profile *p, const struct profile_model *m,
                               const struct profile_scheme *s, const struct profile_point *at,
                               const struct profile_taken *x, struct tsr_err *err);
tsr_status profile_times_end(struct profile *p, const struct profile_model *m,
                             const struct profile_end *at, const double *ms, uint64_t n,
                             struct tsr_err *err);
tsr_status profile_times_codec(struct profile *p, const struct profile_codec *c,
                               struct tsr_err *err);
/* Measures the codecs of --codec, at the sizes of messages that links and sums have; into p->codecs, which the caller
 * frees.  TSR_E_INPUT for a codec that does not exist or needs a calibration. */
tsr_status profile_codecs(struct profile *p, struct tsr_err *err);
/* The file tessera.device/1 as text; fresh memory. */
tsr_status profile_text(const struct profile *p, char **text, size_t *len, struct tsr_err *err);
/* --links: measures every pair of ranks, prints them and writes a cluster file. */
tsr_status profile_links(struct tsr_cli *c, struct tsr_registry *r, const struct profile_options *o,
                         struct tsr_err *err);
/* --fits: prints dev's regressions. */
tsr_status profile_fits(const struct tsr_cli *c, const struct tsr_plan_profile *dev,
                        struct tsr_err *err);
/* What dev predicts for the workloads that were measured; prints. */
tsr_status profile_check(struct profile *p, const struct tsr_plan_profile *dev,
                         struct tsr_err *err);

#endif
