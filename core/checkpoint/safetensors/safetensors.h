/* checkpoint/safetensors/safetensors.h - the safetensors container, read strictly and written aligned.
 *
 * Strict: header of at most 100 MB of plain JSON of depth 3, no duplicate key, offsets that
 * cover the buffer exactly without hole or overlap, sizes that equal shape times dtype.
 */
#ifndef TSR_CHECKPOINT_SAFETENSORS_SAFETENSORS_H
#define TSR_CHECKPOINT_SAFETENSORS_SAFETENSORS_H

#include "base/err.h"
#include "base/file.h"

#include <stdbool.h>

#define TSR_ST_MAX_RANK    8
#define TSR_ST_MAX_HEADER  100000000u
#define TSR_ST_MAX_TENSORS 262144u /* 112 bytes each; more are TSR_E_NOMEM */
#define TSR_ST_MAX_NAME    1024u   /* bytes */
#define TSR_ST_MAX_META    65536u  /* entries of __metadata__ */

struct tsr_safetensors_tensor {
    const char *name;
    char        dtype_name[12]; /* as written: "F32", "I64", "F8_E4M3" */
    uint32_t    dtype;          /* TSR_* of plugin.h, 0 for one that we do not compute with */
    uint32_t    rank;
    uint64_t    shape[TSR_ST_MAX_RANK];
    uint64_t    begin, end; /* bytes, from the start of the data section */
};

/* Produces the bytes of tensors that are listed but not stored in that form (importers).  Reads
 * [at, at+bytes) of a tensor, in any order; one thread at a time. */
struct tsr_safetensors_reader {
    tsr_status (*read)(void *self, const struct tsr_safetensors_tensor *t, uint64_t at,
                       uint64_t bytes, void *dst, struct tsr_err *err);
    void (*close)(void *self); /* by tsr_safetensors_close() */
    void *self;
};

/* A parsed header.  Tensors are sorted by name. */
struct tsr_safetensors {
    struct tsr_file                file;
    struct tsr_safetensors_reader  reader;      /* .read NULL: tensors are stored in the file */
    uint64_t                       data_offset; /* of the data section in the file */
    uint64_t                       n;
    struct tsr_safetensors_tensor *tensors;
    uint64_t                       n_meta; /* __metadata__ */
    char                         **meta_keys, **meta_values;
    char                          *text; /* every string above lives here */
};

tsr_status tsr_safetensors_open(struct tsr_safetensors *st, const char *path, struct tsr_err *err);
/* The same for a file that is open; takes it over, also on error. */
tsr_status tsr_safetensors_open_file(struct tsr_safetensors *st, struct tsr_file *file,
                                     struct tsr_err *err);
void       tsr_safetensors_close(struct tsr_safetensors *st);
const struct tsr_safetensors_tensor *tsr_safetensors_find(const struct tsr_safetensors *st,
                                                          const char                   *name);
/* Reads [at, at+bytes) of one tensor. */
tsr_status tsr_safetensors_read_part(const struct tsr_safetensors        *st,
                                     const struct tsr_safetensors_tensor *t, uint64_t at,
                                     uint64_t bytes, void *dst, struct tsr_err *err);
/* Reads one tensor's bytes into dst (end - begin bytes). */
tsr_status tsr_safetensors_read(const struct tsr_safetensors        *st,
                                const struct tsr_safetensors_tensor *t, void *dst,
                                struct tsr_err *err);

/* Header parser alone, also for the fuzzer: data is the file's first bytes, file_size its length.
 * name is for messages.  st->file stays closed; tsr_safetensors_close() frees the rest. */
tsr_status tsr_safetensors_parse(struct tsr_safetensors *st, const char *name, const void *data,
                                 uint64_t bytes, uint64_t file_size, struct tsr_err *err);

/* Writer: metadata, then declare all tensors, begin, then put the bytes of each in the declared order.
 * The data section starts at a multiple of 64. */
struct tsr_st_out;
tsr_status tsr_safetensors_create(struct tsr_st_out **o, const char *path, struct tsr_err *err);
tsr_status tsr_safetensors_declare(struct tsr_st_out *o, const char *name, uint32_t dtype,
                                   uint32_t rank, const uint64_t *shape, struct tsr_err *err);
/* The same for a dtype that we do not compute with: "I32", of `size` bytes. */
tsr_status tsr_safetensors_declare_as(struct tsr_st_out *o, const char *name, const char *dtype,
                                      uint64_t size, uint32_t rank, const uint64_t *shape,
                                      struct tsr_err *err);
tsr_status tsr_safetensors_metadata(struct tsr_st_out *o, const char *key, const char *value,
                                    struct tsr_err *err);
tsr_status tsr_safetensors_begin(struct tsr_st_out *o, struct tsr_err *err);
void       tsr_safetensors_put(struct tsr_st_out *o, const void *data, uint64_t bytes);
tsr_status tsr_safetensors_commit(struct tsr_st_out *o,
                                  struct tsr_err    *err); /* frees o, also on error */
void       tsr_safetensors_abort(struct tsr_st_out *o); /* NULL is allowed */

/* "[64, 256]" into buf, cut where cap ends.  [any] */
void tsr_safetensors_shape_text(char *buf, size_t cap, uint32_t rank, const uint64_t *shape);

#endif
