/* backend.h - the CUDA device that implements tessera/backend.h: buffers, weights, operations.
 *
 * All arithmetic follows docs/decisions/numerics.md, so that results are bit-identical to the CPU backend
 * on every device.
 */
#ifndef TSR_CUDA_BACKEND_H
#define TSR_CUDA_BACKEND_H

#include "../tensor/op.h"
#include "device.h"
#include "k_window.h"
#include "linalg.h"
#include "tessera/backend.h"
#include "tessera/backend_layout.h"
#include "tessera/draft/launch.h"
#include "tessera/draft/sizes.h"
#include "tessera/draft/window.h"

/* How launches reach the device. */
enum tsr_cuda_launching {
    TSR_CUDA_GRAPHS, /* lists that come again as graphs */
    TSR_CUDA_ONE_BY_ONE,
    TSR_CUDA_AND_WAIT, /* after each: an error names its kernel */
    TSR_CUDA_OVERLAP,  /* as graphs, whose kernels begin early; only as an option of create() */
};

/* Of prompts: the bytes of the CPU; tensor cores wherever they are faster; the same but for LINEAR of act: a8. */
enum tsr_cuda_numerics {
    TSR_CUDA_EXACT,
    TSR_CUDA_FAST,
    TSR_CUDA_AUTO,
};

struct tsr_cuda_options {
    int64_t device;    /* index */
    int64_t weights;   /* enum tsr_cuda_memory */
    int64_t numerics;  /* enum tsr_cuda_numerics */
    int64_t launching; /* enum tsr_cuda_launching */
    int64_t seed;      /* emulation */
};

/* Buffers of at most this many bytes keep a host copy of the uploaded bytes, so that indices in them are
 * checked without waiting for the device. */
#define TSR_CUDA_MIRROR (UINT64_C(1) << 20)

struct tsr_cuda_buffer {
    uint64_t address, bytes;
    uint8_t *mirror;  /* made at the first upload; NULL: none */
    int      written; /* an operation wrote to it: the mirror is old */
};

/* Launches with their arguments, in order. */
struct tsr_cuda_list {
    struct tsr_cuda_launch *l;
    uint8_t                *args;
    uint64_t                n, used; /* launches; bytes of arguments */
};

/* The graph of a list that has come a second time. */
struct tsr_cuda_graph {
    uint64_t             hash, stamp;
    struct tsr_cuda_list list;  /* the launches in the graph; its own memory */
    void                *graph; /* NULL: free */
};
#define TSR_CUDA_KEPT 256u /* graphs: two for each layer of a large model that ranks share */
#define TSR_CUDA_SEEN                                                                              \
    1024u /* hashes of lists, of which a list that never comes again takes no more */

/* Quantized activations in the scratch: what k_quantize or k_quantize_llm was launched with.  A launch with
 * equal arguments would write the same bytes again, as long as nobody has written to x or to the scratch. */
struct tsr_cuda_kept {
    struct k_quantize    q;
    uint64_t             from, end; /* the bytes of x: [from, end); from == end: nothing is kept */
    enum tsr_cuda_kernel kernel;
};

/* Memory of sample.c; 0: none is reserved. */
struct tsr_cuda_candidates {
    uint64_t  address, bytes; /* of the device */
    uint64_t *host;           /* what comes back */
    uint64_t  host_bytes;
};

struct tsr_cuda {
    const struct tsr_host       *host;
    const struct tsr_cuda_api   *api;
    void                        *device;
    enum tsr_cuda_memory         weights;
    enum tsr_cuda_launching      launching;
    int                          tensor, fast; /* not numerics: exact; and numerics: fast */
    int                          matmul;       /* there is a library for products in 16 bits */
    int                          flash_logged; /* why a prompt's ATTENTION is not on tensor cores */
    struct tsr_cuda_list         queue;
    int                          busy; /* a list was handed over since the last wait */
    struct tsr_cuda_graph        graphs[TSR_CUDA_KEPT];
    uint64_t                     stamp, seen[TSR_CUDA_SEEN];
    char                         text[128];
    uint64_t                     work, work_bytes; /* scratch of operations; grows */
    uint64_t                     done;             /* counters of k_linears */
    struct tsr_cuda_kept         kept;
    uint32_t                    *indices; /* fetched from the device */
    uint64_t                     indices_bytes;
    struct tsr_cuda_candidates   candidates;
    const struct tsr_window     *window; /* of sums over ranks; NULL: none so far */
    struct tsr_cuda_linalg       linalg;
    struct tsr_backend_launch_v1 own; /* for devices that take code of other plugins */
    pthread_mutex_t lock;             /* one call at a time: linear algebra comes from any thread */
};

static inline void tsr_cuda_leave(const struct tsr_cuda *const *c)
{
    (void)pthread_mutex_unlock(&((struct tsr_cuda *)(uintptr_t)*c)->lock);
}
static inline const struct tsr_cuda *tsr_cuda_enter(const struct tsr_cuda *c)
{
    (void)pthread_mutex_lock(&((struct tsr_cuda *)(uintptr_t)c)->lock);
    return c;
}
/* To the end of the block, no other thread is in the queue, the scratch or the device. */
#define TSR_CUDA_ALONE(c)                                                                          \
    const struct tsr_cuda *const alone __attribute__((cleanup(tsr_cuda_leave), unused)) =          \
        tsr_cuda_enter(c)

/* ---- the table's functions -------------------------------------------------------- */

tsr_status  tsr_cuda_create(const struct tsr_host *host, const struct tsr_cuda_api *api,
                            const struct tsr_cuda_options *o, void **self, struct tsr_err *err);
void        tsr_cuda_destroy(void *self);
tsr_status  tsr_cuda_properties(const void *self, struct tsr_backend_props *p, struct tsr_err *err);
tsr_status  tsr_cuda_buffer_alloc(void *self, uint64_t bytes, void **buffer, struct tsr_err *err);
void        tsr_cuda_buffer_free(void *self, void *buffer);
tsr_status  tsr_cuda_upload(void *self, void *buffer, uint64_t offset, const void *src,
                            uint64_t bytes, struct tsr_err *err);
tsr_status  tsr_cuda_download(void *self, const void *buffer, uint64_t offset, void *dst,
                              uint64_t bytes, struct tsr_err *err);
tsr_status  tsr_cuda_weight_load(void *self, const struct tsr_weight_desc *w, void **weight,
                                 struct tsr_err *err);
void        tsr_cuda_weight_free(void *self, void *weight);
uint64_t    tsr_cuda_weight_bytes(const void *self, const void *weight);
tsr_status  tsr_cuda_run(void *self, void *stream, const struct tsr_op *op, struct tsr_err *err);
tsr_status  tsr_cuda_sync(void *self, void *stream, struct tsr_err *err);
const void *tsr_cuda_extension(const void *self, const char *id);

/* Everything of the table but create. */
#define TSR_CUDA_TABLE                                                                             \
    .struct_size = sizeof(struct tsr_backend_v1), .destroy = tsr_cuda_destroy,                     \
    .properties = tsr_cuda_properties, .buffer_alloc = tsr_cuda_buffer_alloc,                      \
    .buffer_free = tsr_cuda_buffer_free, .upload = tsr_cuda_upload, .download = tsr_cuda_download, \
    .weight_load = tsr_cuda_weight_load, .weight_free = tsr_cuda_weight_free,                      \
    .weight_bytes = tsr_cuda_weight_bytes, .run = tsr_cuda_run, .sync = tsr_cuda_sync,             \
    .extension = tsr_cuda_extension

/* ---- weights: layout.c, weight.c ---------------------------------------------------- */

/* Places in a weight's bytes, multiples of 256. */
struct tsr_cuda_places {
    uint64_t scales, minimums, factors, zeros, table, table8, unit, column, value, delta, total;
};

struct tsr_cuda_weight {
    struct k_weight        k; /* with addresses */
    struct tsr_cuda_places at;
    uint64_t               address;
    enum tsr_cuda_memory   memory;
    int                    a8, llm; /* has an int8 form; is LLM.int8 */
    int                    zeros;   /* stores zero points */
    int                    far;     /* one of them is above K_ZERO_MOST */
};

/* k without addresses, and the places; data: codes and meta are set and are checked. */
tsr_status tsr_cuda_outline(const struct tsr_weight_desc *d, int data, struct tsr_cuda_weight *w,
                            struct tsr_err *err);
/* Fills the layout's bytes, zeroed. */
tsr_status tsr_cuda_pack(const struct tsr_cuda *c, const struct tsr_weight_desc *d,
                         const struct tsr_cuda_weight *w, uint8_t *bytes);
const struct tsr_backend_layout_v1 *tsr_cuda_layout(void);
const struct tsr_sizes_v1          *tsr_cuda_sizes(void);

/* Up to this many tokens, a LINEAR reads its weight again for every four tokens. */
#define TSR_CUDA_FEW 8u

/* ---- operations ------------------------------------------------------------------- */

struct tsr_view {
    uint64_t p; /* device address */
    uint64_t stride, rows, cols;
};
struct tsr_view tsr_cuda_at(const struct tsr_op_part *part);
/* Checks an operation of tessera/backend.h (kernels/tensor/op.h). */
tsr_status tsr_cuda_check(struct tsr_cuda *c, const struct tsr_op *op, struct tsr_op_parts *parts,
                          struct tsr_err *err);
/* One tensor of any other operation: t must be `dtype`; rows, cols: required sizes, or 0 for any (> 0). */
tsr_status tsr_cuda_view(struct tsr_view *v, const struct tsr_tensor *t, const char *op,
                         const char *what, uint32_t dtype, uint64_t rows, uint64_t cols,
                         struct tsr_err *err);
/* The U32 elements of t, whose view is made, on the host: valid until the next call. */
tsr_status tsr_cuda_indices(struct tsr_cuda *c, const struct tsr_tensor *t, const uint32_t **p,
                            uint64_t *stride, struct tsr_err *err);
/* Launches on the default stream are queued until a wait or a copy: tsr_cuda_flush() submits them. A
 * sufficiently long list that repeats with the same kernels, grids and arguments becomes a graph;
 * docs/decisions/cuda.md. */
tsr_status tsr_cuda_queue_open(struct tsr_cuda *c, struct tsr_err *err);
void       tsr_cuda_queue_close(struct tsr_cuda *c);
tsr_status tsr_cuda_flush(struct tsr_cuda *c, struct tsr_err *err);
void       tsr_cuda_graphs_free(struct tsr_cuda *c); /* lists that come again are recorded again */

/* A launch that does what two launches do one after the other. */
struct tsr_cuda_fused {
    struct tsr_cuda_launch l; /* with args of its own */
    union {
        struct k_norm_step    norm;
        struct k_summed_step  window;
        struct k_act_step     act;
        struct k_combine_step combine;
        struct k_heads_step   heads;
        struct k_linears      linears;
    } args;
};
/* Whether its argument is a struct k_linears. */
int tsr_cuda_takes_some(enum tsr_cuda_kernel kernel);
/* 1 and *f, if one launch may take the place of both; 0 if not. */
int tsr_cuda_fuse(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                  struct tsr_cuda_fused *f);

/* Bytes of the scratch that LINEARs read whose ACT waits with x for an output, so that the quantization of x may join them
 * if it writes after those bytes; 0: none wait. */
uint64_t tsr_cuda_read_before_act(const struct tsr_cuda *c, uint64_t x);

/* At least `bytes` of device scratch until the next call. */
tsr_status tsr_cuda_work(struct tsr_cuda *c, uint64_t bytes, uint64_t *address,
                         struct tsr_err *err);
/* Quantized activations that stay in the scratch; all of it on the default stream.  keep: q has been launched;
 * wrote: an operation may have written to [from, end) of the device; forget: anybody may have written anywhere. */
int        tsr_cuda_kept_has(const struct tsr_cuda *c, enum tsr_cuda_kernel kernel,
                             const struct k_quantize *q);
void       tsr_cuda_kept_keep(struct tsr_cuda *c, enum tsr_cuda_kernel kernel,
                              const struct k_quantize *q);
void       tsr_cuda_kept_wrote(struct tsr_cuda *c, uint64_t from, uint64_t end);
void       tsr_cuda_kept_forget(struct tsr_cuda *c);
tsr_status tsr_cuda_launch(struct tsr_cuda *c, void *stream, enum tsr_cuda_kernel kernel,
                           uint64_t x, uint64_t y, uint64_t z, uint32_t threads, const void *args,
                           uint64_t bytes, struct tsr_err *err);
/* The same, of which the caller knows that the device takes it. */
tsr_status tsr_cuda_launch_any(struct tsr_cuda *c, void *stream, const struct tsr_cuda_launch *l,
                               struct tsr_err *err);

tsr_status tsr_cuda_linear_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                              const struct tsr_op_parts *parts, struct tsr_err *err);
/* numerics: fast and auto. Whether a LINEAR runs in the library; TSR_E_UNSUPPORTED: the library does not support
 * this shape, which was logged. a: x, out, bias, tokens. */
int        tsr_cuda_is_fast(const struct tsr_cuda *c, const struct tsr_cuda_weight *w, uint32_t act,
                            uint64_t tokens);
tsr_status tsr_cuda_linear_fast(struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                                const struct k_linear *a, uint32_t act, struct tsr_err *err);
uint64_t   tsr_cuda_fast_work(const struct tsr_cuda *c, const struct tsr_cuda_weight *w,
                              uint64_t tokens);
const struct tsr_cuda_bench_v1    *tsr_cuda_bench(void); /* bench.h */
const struct tsr_peaks_v1         *tsr_cuda_peaks(void); /* tessera/draft/peaks.h */
const struct tsr_backend_codec_v1 *tsr_cuda_codec(void); /* tessera/backend_codec.h */
struct tsr_codec_wire;
/* codec.c: the element of wire `mx`, as kernels/encode/encode.c has it, and the bits of a code; 0: not known to devices. */
uint32_t tsr_cuda_mx_bits(const struct tsr_codec_wire *w, struct k_mx *k);
const struct tsr_backend_candidates_v1 *tsr_cuda_candidates(void);
void                                    tsr_cuda_candidates_free(struct tsr_cuda *c);
const struct tsr_backend_window_v1     *tsr_cuda_window(void); /* window.c */
/* window_lists.c.  Sets lanes, words and scaled.most and outliers of a, whose rank and ranks are there; 0: not such wires. */
int tsr_cuda_scaled_outline(const struct tsr_window_codes *c, struct k_window *a);
/* Then, with runs and slices: the 32-bit words of the lists; the lists, for the device at `address`, and where they are. */
uint64_t tsr_cuda_scaled_words(const struct k_window *a);
void     tsr_cuda_scaled_lists(const struct tsr_window_codes *c, uint64_t address, uint32_t *list,
                               struct k_window *a);
/* After a wait whose status is st: st, or what has become of a sum over ranks. */
tsr_status tsr_cuda_waited(const struct tsr_cuda *c, tsr_status st, struct tsr_err *err);
struct tsr_backend_launch_v1 tsr_cuda_own(const struct tsr_cuda_api *api); /* own.c */

struct tsr_backend_compensate_v1;
const struct tsr_backend_compensate_v1 *tsr_cuda_compensation(void); /* compensation.c */

tsr_status tsr_cuda_embed_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                             const struct tsr_op_parts *parts, struct tsr_err *err);
tsr_status tsr_cuda_attention_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                 const struct tsr_op_parts *parts, struct tsr_err *err);
/* Whether most tokens follow another one of their sequence. */
int tsr_cuda_is_prompt(const struct tsr_op_parts *parts);
/* numerics: fast and auto, attention_fast.c. Whether the operation's prompts run on tensor cores; what keeps them from it is logged
 * once. a: all but first, tokens, tile, chunks and share, of tokens [0, tokens). */
int        tsr_cuda_is_flash(struct tsr_cuda *c, const struct k_attention *a,
                             const struct tsr_op_parts *parts);
tsr_status tsr_cuda_flash(struct tsr_cuda *c, void *stream, struct k_attention *a, uint64_t tokens,
                          struct tsr_err *err);
tsr_status tsr_cuda_kv_store_op(struct tsr_cuda *c, void *stream, const struct tsr_op *op,
                                const struct tsr_op_parts *parts, struct tsr_err *err);
/* Device scratch of operations; 0 where it overflows. */
uint64_t tsr_cuda_linear_work(const struct tsr_cuda_weight *w, uint32_t act, uint64_t tokens);
uint64_t tsr_cuda_attention_work(uint64_t tokens, uint64_t positions, uint32_t heads,
                                 uint32_t head_dim);

static inline uint64_t cuda_ceil(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}
static inline uint64_t cuda_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
