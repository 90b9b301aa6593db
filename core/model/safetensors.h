/* model/safetensors.h - the safetensors container, read strictly and written aligned.
 *
 * Strict: header of at most 100 MB of plain JSON of depth 3, no duplicate key, offsets that
 * cover the buffer exactly without hole or overlap, sizes that equal shape times dtype.
 */
#ifndef TSR_MODEL_SAFETENSORS_H
#define TSR_MODEL_SAFETENSORS_H

#include "base/err.h"
#include "base/file.h"

#include <stdbool.h>

#define TSR_ST_MAX_RANK    8
#define TSR_ST_MAX_HEADER  100000000u
#define TSR_ST_MAX_TENSORS 262144u /* 112 bytes each; more are TSR_E_NOMEM */
#define TSR_ST_MAX_NAME    1024u   /* bytes */
#define TSR_ST_MAX_META    65536u  /* entries of __metadata__ */

struct tsr_st_tensor {
    const char *name;
    char        dtype_name[12]; /* as written: "F32", "I64", "F8_E4M3" */
    uint32_t    dtype;          /* TSR_* of plugin.h, 0 for one that we do not compute with */
    uint32_t    rank;
    uint64_t    shape[TSR_ST_MAX_RANK];
    uint64_t    begin, end; /* bytes, from the start of the data section */
};

/* Makes the bytes of tensors that do not stand in the file as they are listed (importers).  Reads
 * [at, at+bytes) of a tensor, in any order; one thread at a time. */
struct tsr_st_reader {
    tsr_status (*read)(void *self, const struct tsr_st_tensor *t, uint64_t at, uint64_t bytes,
                       void *dst, struct tsr_err *err);
    void (*close)(void *self); /* by tsr_st_close() */
    void *self;
};

/* A parsed header.  Tensors are sorted by name. */
struct tsr_st {
    struct tsr_file       file;
    struct tsr_st_reader  reader;      /* .read NULL: tensors stand in the file */
    uint64_t              data_offset; /* of the data section in the file */
    uint64_t              n;
    struct tsr_st_tensor *tensors;
    uint64_t              n_meta; /* __metadata__ */
    char                **meta_keys, **meta_values;
    char                 *text; /* every string above lives here */
};

tsr_status tsr_st_open(struct tsr_st *st, const char *path, struct tsr_err *err);
/* The same for a file that is open; takes it over, also on error. */
tsr_status tsr_st_open_file(struct tsr_st *st, struct tsr_file *file, struct tsr_err *err);
void       tsr_st_close(struct tsr_st *st);
const struct tsr_st_tensor *tsr_st_find(const struct tsr_st *st, const char *name);
/* Reads [at, at+bytes) of one tensor. */
tsr_status tsr_st_read_part(const struct tsr_st *st, const struct tsr_st_tensor *t, uint64_t at,
                            uint64_t bytes, void *dst, struct tsr_err *err);
/* Reads one tensor's bytes into dst (end - begin bytes). */
tsr_status tsr_st_read(const struct tsr_st *st, const struct tsr_st_tensor *t, void *dst,
                       struct tsr_err *err);

/* Header parser alone, also for the fuzzer: data is the file's first bytes, file_size its length.
 * name is for messages.  st->file stays closed; tsr_st_close() frees the rest. */
tsr_status tsr_st_parse(struct tsr_st *st, const char *name, const void *data, uint64_t bytes,
                        uint64_t file_size, struct tsr_err *err);

/* Writer: metadata, then declare all tensors, begin, then put the bytes of each in the declared order.
 * The data section starts at a multiple of 64. */
struct tsr_st_out;
tsr_status tsr_st_create(struct tsr_st_out **o, const char *path, struct tsr_err *err);
tsr_status tsr_st_declare(struct tsr_st_out *o, const char *name, uint32_t dtype, uint32_t rank,
                          const uint64_t *shape, struct tsr_err *err);
/* The same for a dtype that we do not compute with: "I32", of `size` bytes. */
tsr_status tsr_st_declare_as(struct tsr_st_out *o, const char *name, const char *dtype,
                             uint64_t size, uint32_t rank, const uint64_t *shape,
                             struct tsr_err *err);
tsr_status tsr_st_metadata(struct tsr_st_out *o, const char *key, const char *value,
                           struct tsr_err *err);
tsr_status tsr_st_begin(struct tsr_st_out *o, struct tsr_err *err);
void       tsr_st_put(struct tsr_st_out *o, const void *data, uint64_t bytes);
tsr_status tsr_st_commit(struct tsr_st_out *o, struct tsr_err *err); /* frees o, also on error */
void       tsr_st_abort(struct tsr_st_out *o);                       /* NULL is fine */

#endif
