/* import_image.h - a safetensors file in memory, tensor by tensor, and one linear read from it. */
#ifndef TSR_TEST_IMPORT_IMAGE_H
#define TSR_TEST_IMPORT_IMAGE_H

#include "checkpoint/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IMAGE_CAP 65536

struct image {
    char                         header[IMAGE_CAP / 4];
    size_t                       header_len;
    unsigned char                data[IMAGE_CAP], file[IMAGE_CAP * 2];
    uint64_t                     bytes;
    struct tsr_checkpoint_shards shards;
    struct tsr_safetensors       st;
    struct tsr_checkpoint_stored stored[64];
    json_t                      *config;
};

static inline uint64_t image_item(const char *dtype)
{
    return strchr(dtype, '8')                                        ? 1
           : strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0 ? 2
           : strcmp(dtype, "I64") == 0                               ? 8
                                                                     : 4;
}

/* data holds rows*cols elements; cols 0: one dimension, rows 0 too: a scalar. */
static inline void image_add(struct image *m, const char *name, const char *dtype, uint64_t rows,
                             uint64_t cols, const void *data)
{
    uint64_t n = (rows ? rows : 1) * (cols ? cols : 1) * image_item(dtype);
    char     shape[64] = "";
    if (rows && cols)
        (void)snprintf(shape, sizeof shape, "%d,%d", (int)rows, (int)cols);
    else if (rows)
        (void)snprintf(shape, sizeof shape, "%d", (int)rows);
    assert_true(m->bytes + n <= sizeof m->data);
    m->header_len +=
        (size_t)snprintf(m->header + m->header_len, sizeof m->header - m->header_len,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                         m->header_len ? "," : "{", name, dtype, shape, (int)m->bytes,
                         (int)(m->bytes + n));
    assert_true(m->header_len + 2 < sizeof m->header);
    memcpy(m->data + m->bytes, data, n);
    m->bytes += n;
}

/* The same element everywhere; bits as they are stored. */
static inline void image_fill(struct image *m, const char *name, const char *dtype, uint64_t rows,
                              uint64_t cols, uint64_t bits)
{
    static unsigned char buf[IMAGE_CAP];
    uint64_t             size = image_item(dtype), n = (rows ? rows : 1) * (cols ? cols : 1);
    assert_true(n * size <= sizeof buf);
    for (uint64_t i = 0; i < n; i++)
        memcpy(buf + i * size, &bits, size);
    image_add(m, name, dtype, rows, cols, buf);
}

static inline tsr_status image_read(void *self, const struct tsr_safetensors_tensor *t, uint64_t at,
                                    uint64_t bytes, void *dst, struct tsr_err *err)
{
    const struct image *m = self;
    (void)err;
    memcpy(dst, m->data + t->begin + at, bytes);
    return TSR_OK;
}

/* Opens what was added.  Once per image. */
static inline void image_open(struct image *m)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    uint64_t          n = m->header_len + 1;
    m->header[m->header_len] = '}';
    memcpy(m->file, &n, 8);
    memcpy(m->file + 8, m->header, n);
    memcpy(m->file + 8 + n, m->data, m->bytes);
    if (tsr_safetensors_parse(&m->st, "input", m->file, 8 + n + m->bytes, 8 + n + m->bytes,
                              &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    m->st.reader = (struct tsr_safetensors_reader){ .read = image_read, .self = m };
    m->st.file.path = (char *)(uintptr_t) "input";
    assert_true(m->st.n <= 64);
    for (uint64_t i = 0; i < m->st.n; i++)
        m->stored[i] = (struct tsr_checkpoint_stored){ .t = &m->st.tensors[i] };
    m->shards = (struct tsr_checkpoint_shards){
        .files = &m->st, .n_files = 1, .tensors = m->stored, .n = m->st.n
    };
}

static inline void image_free(struct image *m)
{
    m->st.file.path = NULL;
    m->st.file.fd = -1;
    tsr_safetensors_close(&m->st);
    json_decref(m->config);
    free(m);
}

static inline struct image *image_new(const char *config)
{
    struct image *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->config = json_loads(config, 0, NULL);
    if (!m->config)
        fail_msg("not JSON: %s", config);
    return m;
}

/* The linear "l" of the image. */
static inline tsr_status image_linear(struct image *m, uint64_t rows, uint64_t cols,
                                      struct tsr_model_packed **p, struct tsr_errbuf *e)
{
    struct tsr_import im;
    if (!m->st.tensors)
        image_open(m);
    tsr_status st = tsr_import_open(&im, m->config, "config.json", &m->shards, &e->err);
    if (st == TSR_OK)
        st = tsr_import_linear(&im, "l", rows, cols, p);
    tsr_import_close(&im);
    return st;
}

#endif
