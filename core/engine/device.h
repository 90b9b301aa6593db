/* engine/device.h - one created backend, the memory allocated on it, and fallbacks for what it does
 * not support.
 *
 * A weight format that the device cannot read goes there as its dequantized F32 matrix, one of a plugin's own a
 * block of rows at a time, for each product; an
 * operation that it does not support is staged through host memory to the default backend.  Both
 * are logged once per kind.  All memory allocated here is freed with the device.
 */
#ifndef TSR_ENGINE_DEVICE_H
#define TSR_ENGINE_DEVICE_H

#include "base/err.h"
#include "checkpoint/prepacked/prepacked.h"
#include "model/own.h"
#include "plugin/spec.h"
#include "tessera/backend.h"
#include "tessera/backend_layout.h"
#include "tessera/draft/compensate.h"
#include "tessera/draft/launch.h"
#include "tessera/draft/linears.h"

/* A weight on a device. */
struct tsr_engine_weight {
    void                    *handle;   /* of the device's backend */
    void                    *fallback; /* of the default backend, loaded when first needed */
    bool                     widened;  /* the device declined the format: it has F32 */
    struct tsr_model_packed *own; /* in a plugin's own format: there is no handle; owned, or NULL */
    enum tsr_model_own_kernel   kernel; /* of own: how the plugin multiplies with it */
    struct tsr_engine_placed   *on;   /* of own: on the device (device_launch.c); NULL: only here */
    const struct tsr_prepacked *file; /* that it lies in; desc has no bytes then; or NULL */
    const struct tsr_prepacked_mapped_weight *mapped; /* offset in it */
    struct tsr_weight_desc                    desc;   /* as in host memory, which outlives the
                                               * device; codes NULL: released, no fallback */
    struct tsr_format                         format;
};

struct tsr_engine_device {
    const struct tsr_backend_v1 *iface;
    void                        *self;
    bool                         owns_self;
    struct tsr_plugin_spec       spec; /* what create() was given */
    struct tsr_registry         *registry;
    uint32_t                     numerics;  /* of the fallback too */
    struct tsr_engine_device    *fallback;  /* opened when first needed */
    bool                         automatic; /* numerics: auto, which its backend has */
    char                         text[96];
    void                       **buffers;
    uint64_t                     n_buffers, cap_buffers;
    struct tsr_engine_weight   **weights;
    uint64_t                     n_weights, cap_weights;
    uint64_t                     tensor_bytes;
    uint32_t                     said_ops;                 /* bit per TSR_OP_* */
    bool                         no_columns;               /* it has declined COLUMNS */
    char                         said_foreign[256];        /* the last layout of a plugin's own */
    uint64_t                     said_formats;             /* bit per layout and width */
    bool                         asked_site;               /* linears.c: for the next */
    const struct tsr_backend_compensate_v1 *site;          /* a table that has site(), or NULL */
    bool                                    asked_linears; /* the same */
    const struct tsr_backend_linears_v1    *linears;
    bool                                    asked_launch; /* device_launch.c */
    const struct tsr_backend_launch_v1     *launch;
    struct tsr_engine_loaded               *loaded; /* code of plugins */
    uint64_t                                n_loaded;
    void                                   *room; /* sums and scratch of their products */
    uint64_t                                room_bytes;
    char                                    said_own[256]; /* the last format of a plugin */
};

/* name: "cuda:device=1"; NULL: TSR_PLUGIN_DEFAULT_BACKEND; "auto": "cuda" if it has a device, else the default.
 * numerics: TSR_NUMERICS_*.  [setup] */
tsr_status tsr_engine_device_open(struct tsr_engine_device **d, struct tsr_registry *r,
                                  const char *name, uint32_t numerics, struct tsr_err *err);
/* The same over a table and an instance of the caller's, which must outlive the device and are
 * not destroyed with it: for tests.  [setup] */
tsr_status tsr_engine_device_wrap(struct tsr_engine_device **d, struct tsr_registry *r,
                                  const struct tsr_backend_v1 *iface, void *self,
                                  struct tsr_err *err);
void       tsr_engine_device_close(struct tsr_engine_device *d);

const char *tsr_engine_device_text(const struct tsr_engine_device *d); /* "cpu avx512 vnni" */
/* Bytes of an element, also of the integer dtypes. */
uint64_t tsr_engine_element_size(uint32_t dtype);
uint64_t tsr_engine_device_weight_bytes(const struct tsr_engine_device *d,
                                        const struct tsr_engine_weight *w);
/* Bytes of all tensors and of all weights. */
void tsr_engine_device_memory(const struct tsr_engine_device *d, uint64_t *tensors,
                              uint64_t *weights);

/* A zeroed dense tensor; row_stride 0 means cols elements.  what is for messages. */
tsr_status tsr_engine_device_tensor(struct tsr_engine_device *d, uint32_t dtype, uint64_t rows,
                                    uint64_t cols, uint64_t row_stride, const char *what,
                                    struct tsr_tensor *t, struct tsr_err *err);
/* A [1,n] F32 tensor with these values. */
tsr_status tsr_engine_device_vector(struct tsr_engine_device *d, const float *v, uint64_t n,
                                    struct tsr_tensor *t, struct tsr_err *err);
/* w in its own dtype. */
tsr_status tsr_engine_device_weight(struct tsr_engine_device *d, const struct tsr_matrix *w,
                                    struct tsr_engine_weight **out, struct tsr_err *err);
/* The same for a part of a matrix that was cut between columns (model/packed_slice.h): segment is the slice's,
 * 0: all columns. */
tsr_status tsr_engine_device_part(struct tsr_engine_device *d, const struct tsr_matrix *w,
                                  uint64_t segment, struct tsr_engine_weight **out,
                                  struct tsr_err *err);
tsr_status tsr_engine_device_packed(struct tsr_engine_device *d, const char *name,
                                    const struct tsr_model_packed *p,
                                    struct tsr_engine_weight **out, struct tsr_err *err);
/* The same for one whose rows are decoded, too: an embedding. */
tsr_status tsr_engine_device_packed_rows(struct tsr_engine_device *d, const char *name,
                                         const struct tsr_model_packed *p,
                                         struct tsr_engine_weight **out, struct tsr_err *err);

/* The backend's table of layouts, or NULL: it keeps weights to itself. */
const struct tsr_backend_layout_v1 *tsr_engine_device_layout(const struct tsr_engine_device *d);
/* A weight of a prepacked file, in place; the file outlives the device.  TSR_E_INPUT for a layout
 * that the device does not have; the message lists those that it has. */
tsr_status tsr_engine_device_mapped(struct tsr_engine_device *d, const char *name,
                                    const struct tsr_prepacked               *p,
                                    const struct tsr_prepacked_mapped_weight *m,
                                    struct tsr_engine_weight **out, struct tsr_err *err);

/* A handle of the device over the bytes of a mapped weight. */
tsr_status tsr_engine_device_borrow(struct tsr_engine_device *d, const struct tsr_engine_weight *w,
                                    void **handle, struct tsr_err *err);

/* Frees a tensor of tsr_engine_device_tensor(), or a weight, before the device is closed.  Wait for
 * queued work that uses it first.  An empty tensor and NULL are allowed. */
void tsr_engine_device_drop_tensor(struct tsr_engine_device *d, struct tsr_tensor *t);
void tsr_engine_device_drop_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w);

/* All rows of a dense tensor, from or to host memory; done on return.  Queued work that uses
 * the tensor must have been waited for. */
tsr_status tsr_engine_device_upload(struct tsr_engine_device *d, const struct tsr_tensor *t,
                                    const void *src, struct tsr_err *err);
tsr_status tsr_engine_device_download(struct tsr_engine_device *d, const struct tsr_tensor *t,
                                      void *dst, struct tsr_err *err);
tsr_status tsr_engine_device_sync(struct tsr_engine_device *d, struct tsr_err *err);

/* Room for products of n tokens with w, so that none is taken later; nothing for weights that no code of a plugin
 * multiplies. */
tsr_status tsr_engine_device_reserve_own(struct tsr_engine_device       *d,
                                         const struct tsr_engine_weight *w, uint64_t n,
                                         struct tsr_err *err);

/* Opens d->fallback, the default backend; *other NULL: d already is that one. */
tsr_status tsr_engine_device_other(struct tsr_engine_device *d, struct tsr_engine_device **other,
                                   struct tsr_err *err);
/* The same; TSR_E_UNSUPPORTED with `why` if d already is that one. */
tsr_status tsr_engine_device_fallback(struct tsr_engine_device *d, const char *what,
                                      const char *why, struct tsr_err *err);

/* Queues op; w (may be NULL) fills op->weight. */
tsr_status tsr_engine_device_run(struct tsr_engine_device *d, struct tsr_op *op,
                                 struct tsr_engine_weight *w, struct tsr_err *err);

#endif
