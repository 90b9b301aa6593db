/* One linear of a checkpoint that another program quantized, from bytes: two of length, then that
 * many of quantization_config, then a safetensors file.  TSR_FUZZ_METHOD is the writer: its
 * quant_method is put into the configuration. */
#include "base/log.h"
#include "checkpoint/import/import.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

struct bytes {
    const uint8_t *p;
    uint64_t       n;
};

static tsr_status read_bytes(void *self, const struct tsr_safetensors_tensor *t, uint64_t at,
                             uint64_t bytes, void *dst, struct tsr_err *err)
{
    const struct bytes *b = self;
    (void)err;
    must(t->begin + at + bytes <= b->n);
    memcpy(dst, b->p + t->begin + at, bytes);
    return TSR_OK;
}

/* What is accepted can be decoded, row by row. */
static void check(const struct tsr_model_packed *p, bool headers_only)
{
    float row[64];
    must(tsr_model_format_known(&p->format) && tsr_model_format_fits(&p->format, p->cols) &&
         p->cols <= 64);
    must(p->code_stride == tsr_model_format_code_bytes(&p->format, p->cols));
    must(p->meta_stride == tsr_model_format_meta_bytes(&p->format, p->cols));
    for (uint64_t r = 0; !headers_only && r < p->rows; r++) {
        const unsigned char *meta =
            p->meta ? (const unsigned char *)p->meta + r * p->meta_stride : NULL;
        must(!meta || !tsr_model_format_row_check(&p->format, p->cols, meta));
        tsr_model_format_decode_row(&p->format, p->cols,
                                    (const unsigned char *)p->codes + r * p->code_stride, meta,
                                    row);
        for (uint64_t k = 0; k < p->cols; k++)
            must(!isnan(row[k]));
    }
    unsigned char seen[64] = { 0 };
    must((p->order != NULL) == (p->ordered && !headers_only));
    must(!p->order || !tsr_model_packed_order_check(p, seen));
}

static void read_linear(struct tsr_checkpoint_shards *s, const json_t *config, uint64_t rows,
                        uint64_t cols, bool headers_only)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    struct tsr_import        im;
    struct tsr_model_packed *p = NULL;
    tsr_status               st = tsr_import_open(&im, config, "input", s, &e.err);
    im.headers_only = headers_only;
    if (st == TSR_OK)
        st = tsr_import_linear(&im, "l", rows, cols, &p);
    must(st == TSR_OK || st == TSR_E_INPUT || st == TSR_E_NOMEM);
    must(st == TSR_OK || e.text[0] != '\0');
    if (p)
        check(p, headers_only);
    tsr_model_packed_destroy(p);
    tsr_import_close(&im);
}

static void read_all(struct tsr_safetensors *st, const json_t *config)
{
    static const uint64_t         shapes[][2] = { { 32, 64 }, { 8, 16 }, { 2, 33 } };
    struct tsr_checkpoint_stored *list = calloc(st->n + 1, sizeof *list);
    struct tsr_checkpoint_shards  s = { .files = st, .n_files = 1, .tensors = list, .n = st->n };
    for (size_t i = 0; list && i < sizeof shapes / sizeof *shapes; i++)
        for (int headers = 0; headers < 2; headers++) {
            for (uint64_t k = 0; k < st->n; k++)
                list[k] = (struct tsr_checkpoint_stored){ .t = &st->tensors[k] };
            read_linear(&s, config, shapes[i][0], shapes[i][1], headers);
        }
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (size < 2 || n > size - 2)
        return 0;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    json_t                *config = NULL;
    tsr_log_set_level(TSR_LOG_WARN + 1);
    if (tsr_json_parse(&config, "input", (const char *)data + 2, n, 16, &e.err) != TSR_OK)
        return 0;
    if (json_is_object(config) &&
        json_object_set_new(config, "quant_method", json_string(TSR_FUZZ_METHOD)) == 0 &&
        tsr_safetensors_parse(&st, "input", data + 2 + n, size - 2 - n, size - 2 - n, &e.err) ==
            TSR_OK) {
        struct bytes b = { data + 2 + n + st.data_offset, size - 2 - n - st.data_offset };
        st.reader = (struct tsr_safetensors_reader){ .read = read_bytes, .self = &b };
        st.file.path = (char *)(uintptr_t) "input";
        read_all(&st, config);
        st.file.path = NULL;
        st.reader = (struct tsr_safetensors_reader){ 0 };
        tsr_safetensors_close(&st);
    }
    json_decref(config);
    return 0;
}
