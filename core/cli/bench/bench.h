/* cli/bench/bench.h - the parts of `tessera bench`: a device with its probes, and rows of results. */
#ifndef TSR_CLI_BENCH_BENCH_H
#define TSR_CLI_BENCH_BENCH_H

#include "cli/cli.h"
#include "plugin/spec.h"
#include "tessera/backend.h"
#include "tessera/draft/peaks.h"
#include "tessera/draft/probe.h"

/* The user's options. */
struct bench_options {
    const char *formats, *bits, *backend, *shape, *checkpoint, *quantizer, *head;
    const char *m, *positions; /* see bench_numbers */
    int64_t     rows, cols, group, act, segment, repeats, mib, output;
    int64_t     prompt, tokens, kv, slots;
    int64_t     used; /* experts of a token, at most BENCH_MOST_USED */
    int64_t     hidden, layers, ffn, heads, kv_heads, head_dim, vocab;
    int64_t     seed, numerics;
    const char *channels, *chart;
    int64_t     residual;
    const char *solver, *transport, *codecs, *sizes, *link;
    int64_t     ranks;
    double      gap, time_limit, tolerance;
};

#define BENCH_MOST_USED 32u

#define BENCH_MD       0
#define BENCH_CSV      1
#define BENCH_JSON     2
#define BENCH_ACT_AUTO 100 /* a8 for packed weights, f32 for others */

/* How activations enter packed weights. */
static inline uint32_t bench_act(const struct bench_options *o)
{
    return o->act == BENCH_ACT_AUTO ? TSR_ACT_A8 : (uint32_t)o->act;
}

#define BENCH_BUSY 0.9 /* the least `busy` of a row that counts */

/* One line of the result.  value and probe are in `unit`; share is the median over the rounds
 * of value / probe of the same round. */
struct bench_row {
    char     what[16], format[64], act[8], unit[16];
    uint64_t rows, cols, m;
    double   value, best, probe, share;
    double   rate; /* probe / its instruction's rate; 0: no such rate */
    double   busy; /* CPU time over threads times wall time: low when other processes used the
                    * cores */
    double   milliseconds;
    /* tokens a second over those of the first row that shares its rounds (sizes of --m; experts), median over
     * the rounds of the ratio within a round; 0: none does; below 0: the first did not have its cores */
    double   times;
    int64_t  group;   /* --group of the moment */
    uint32_t threads; /* of the moment */
    double *
        each; /* [n_each] of the rounds: shares, or values without a probe; owned by the row of a bench */
    uint64_t n_each;
};

struct bench {
    struct tsr_cli              *cli;
    const struct bench_options  *o;
    const struct tsr_host       *host;
    const struct tsr_backend_v1 *iface;
    const struct tsr_probe_v1   *probe; /* NULL: the backend has none */
    const struct tsr_peaks_v1   *peaks; /* of a device with its own memory; NULL: none */
    struct tsr_plugin_spec       spec;
    void                        *self;
    uint32_t                     threads;
    char                         device[96];
    void                        *memory; /* the buffer of the read probe */
    uint64_t                     bytes;  /* of it */
    uint32_t                     shape;  /* the best order of reading */
    struct bench_row            *row;
    uint64_t                     n_rows;
};

/* Opens the backend and its probe table.  [setup] */
tsr_status bench_open(struct bench *b, struct tsr_cli *c, const struct bench_options *o,
                      struct tsr_err *err);
void       bench_close(struct bench *b);

enum bench_probe { BENCH_READ, BENCH_FMA, BENCH_DOT, BENCH_BF16, BENCH_CLOCK };
/* All threads at once; units a second over all of them.  A backend with peaks gives its copy rate for READ and its
 * stated peak for BF16.  0: the backend has neither. */
tsr_status bench_measure(struct bench *b, enum bench_probe which, double *rate,
                         struct tsr_err *err);
/* CPU seconds of the process so far. */
double bench_cpu_s(void);
/* BF16 weights run on BF16 products (numerics: fast). */
bool bench_has_bf16(const struct bench *b);
/* FMA, DOT or BF16 as a share of the instruction's peak at the clock of the same moment. */
double bench_instruction_rate(const struct bench *b, enum bench_probe which, double rate,
                              double clock);
/* Allocates the memory of the read probe and finds the best order. */
tsr_status bench_prepare_read(struct bench *b, struct tsr_err *err);

/* Text of an option as in 1,4: at most `most` numbers from 1 to 65536, into m. */
tsr_status bench_numbers(const char *option, const char *text, uint64_t *m, uint32_t most,
                         uint32_t *n, struct tsr_err *err);

/* Appends a row; its median share and best come from n rounds, whose values it copies: r->each may be NULL. */
tsr_status bench_add(struct bench *b, const struct bench_row *r, struct tsr_err *err);
double     bench_median(double *v, uint64_t n); /* sorts v */
tsr_status bench_print(struct bench *b, struct tsr_err *err);
/* Writes the shares of the formats as --chart. */
tsr_status bench_chart(struct bench *b, struct tsr_err *err);

/* lut2 to lut8, lut2o (with 0.5 % outliers), an MX element (blocks of 32; mxint2 to mxint8) or llm8;
 * false for another name. */
bool bench_format_parse(const char *name, uint64_t cols, struct tsr_format *f);
/* Sane meta for lut and mx: rows of `stride` bytes. */
void bench_format_fill(const struct tsr_format *f, uint64_t rows, uint64_t stride, uint64_t cols,
                       uint8_t *meta);

/* LINEAR over weights in rotation; zeroed before. */
struct bench_work {
    void            **weights;
    uint64_t          n, bytes; /* weights, and bytes of each on the device */
    struct tsr_tensor in, out;
    uint32_t          act;
};
/* The next format of *list, which starts as NULL: of --bits, else of --formats, else of `otherwise`;
 * false: end of list. */
bool bench_next_format(const struct bench *b, const char *otherwise, const char **list,
                       char name[24]);
/* A format of the list: "bf16", "int4". */
struct bench_format {
    char              name[16];
    struct tsr_format f;
    bool              packed;
};
tsr_status bench_format_of(const char *s, size_t len, int64_t group, uint64_t cols,
                           struct bench_format *k, struct tsr_err *err);
/* --act; where it is auto, what the format runs best with. */
uint32_t bench_format_act(const struct bench *b, const struct bench_format *k);
/* At least `rotate` bytes of weights on the device, all equal in shape. */
tsr_status bench_work_make(struct bench *b, const struct bench_format *k, uint64_t m,
                           uint64_t rotate, struct bench_work *w, struct tsr_err *err);
/* --rows by --cols of a format by name, at least `rotate` bytes of it; m tokens. */
tsr_status    bench_work_named(struct bench *b, const char *format, uint64_t m, uint64_t rotate,
                               struct bench_work *w, struct tsr_err *err);
struct tsr_op bench_work_op(const struct bench_work *w, uint64_t i);
void          bench_work_free(struct bench *b, struct bench_work *w);

tsr_status bench_gemv(struct bench *b, struct tsr_err *err);
tsr_status bench_gemm(struct bench *b, struct tsr_err *err);
/* One token through the experts that it takes: of --used each of width --ffn, over --hidden columns. */
tsr_status bench_experts(struct bench *b, struct tsr_err *err);
/* One token of each of --m sequences against caches of --positions, for each type of --formats.  Rows: rows is positions, cols
 * the numbers of a key, group the query heads of a KV head. */
tsr_status bench_attention(struct bench *b, struct tsr_err *err);
tsr_status bench_linalg(struct bench *b, bool cholesky, struct tsr_err *err);
/* One token through --formats with residuals of --residual bits on top, per k of --channels; with a
 * model (or --shape) through all of it, packed by --quantizer. */
#define BENCH_DEC_QUANTIZER "rtn:bits=3" /* where none is given */
tsr_status bench_dec(struct bench *b, const char *model, struct tsr_err *err);
tsr_status bench_dec_model(struct bench *b, const char *path, const uint32_t *k, uint32_t n,
                           struct tsr_err *err);
/* Memory for residuals in large pages, as a mapped file is that was read from the disk (base/map.c), or
 * NULL; any codes and scales (NULL for 16 bits). */
void *bench_large_pages(uint64_t bytes);
void  bench_fill_residuals(unsigned char *codes, uint64_t bytes, uint16_t *scales, uint64_t outputs,
                           uint32_t bits);
tsr_status bench_encode(struct bench *b, struct tsr_err *err);
/* path: a prepacked file.  Rows: rows is the bytes that the first token reads; value is them over the
 * seconds from the file's name to its logits; probe of "file" is reading them once, of
 * "cpu" the same in processor time of all threads, of "memory" the read probe.  busy is that of the reading. */
tsr_status bench_load(struct bench *b, const char *path, struct tsr_err *err);
tsr_status bench_e2e(struct bench *b, const char *model, struct tsr_err *err);
/* --slots sequences with prompts of 8 to --prompt tokens, drawn at temperature 1: tokens a second of steps in which all decode.
 * The probe is as many tokens of one prompt with all their logits, without a draw.  rows and cols are --prompt and --tokens. */
tsr_status bench_batch(struct bench *b, const char *model, struct tsr_err *err);
/* gemv and gemm of all formats, syrk, cholesky and encode; e2e where there is a MODEL or --shape. */
tsr_status bench_suite(struct bench *b, const char *model, struct tsr_err *err);
/* MODEL or a random one of --shape. Linears are packed by `quantizer` and the head by --head, if those are
 * not "" (else *o stays NULL). The caller owns both, even after an error. */
struct tsr_model;
struct tsr_model_overlay;
tsr_status bench_model_open(struct bench *b, const char *path, const char *quantizer,
                            struct tsr_model **m, struct tsr_model_overlay **o,
                            struct tsr_err *err);
/* Bytes of weights that a decode step reads, of device_bytes. */
double bench_step_bytes(const struct tsr_model *m, uint64_t device_bytes);

#endif
