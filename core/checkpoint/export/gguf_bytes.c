/* Bytes of the head of a GGUF file: numbers, texts, keys with their types. */
#include "checkpoint/export/gguf_out.h"

#include "base/mem.h"

#include <string.h>

enum { U32 = 4, F32 = 6, BOOL = 7, ARRAY = 9 };

void tsr_export_gguf_add(struct tsr_export_gguf_bytes *b, const void *data, uint64_t n)
{
    if (b->failed)
        return;
    if (n > b->cap - b->n) {
        uint64_t       want = (b->n + n) * 2 + 4096;
        unsigned char *v = tsr_renew(b->v, want, 1);
        if (!v) {
            b->failed = true;
            return;
        }
        b->v = v;
        b->cap = want;
    }
    if (n)
        memcpy(b->v + b->n, data, n);
    b->n += n;
}

void tsr_export_gguf_add_u32(struct tsr_export_gguf_bytes *b, uint32_t v)
{
    tsr_export_gguf_add(b, &v, sizeof v);
}

void tsr_export_gguf_add_u64(struct tsr_export_gguf_bytes *b, uint64_t v)
{
    tsr_export_gguf_add(b, &v, sizeof v);
}

void tsr_export_gguf_add_text(struct tsr_export_gguf_bytes *b, const char *s, uint64_t n)
{
    tsr_export_gguf_add_u64(b, n);
    tsr_export_gguf_add(b, s, n);
}

void tsr_export_gguf_key_begin(struct tsr_export_gguf_bytes *b, const char *name, uint32_t type)
{
    tsr_export_gguf_add_text(b, name, strlen(name));
    tsr_export_gguf_add_u32(b, type);
    b->keys++;
}

void tsr_export_gguf_key_u32(struct tsr_export_gguf_bytes *b, const char *name, uint64_t v)
{
    tsr_export_gguf_key_begin(b, name, U32);
    tsr_export_gguf_add_u32(b, (uint32_t)v);
}

void tsr_export_gguf_key_f32(struct tsr_export_gguf_bytes *b, const char *name, double v)
{
    float f = (float)v;
    tsr_export_gguf_key_begin(b, name, F32);
    tsr_export_gguf_add(b, &f, sizeof f);
}

void tsr_export_gguf_key_bool(struct tsr_export_gguf_bytes *b, const char *name, bool v)
{
    unsigned char c = v;
    tsr_export_gguf_key_begin(b, name, BOOL);
    tsr_export_gguf_add(b, &c, 1);
}

void tsr_export_gguf_key_text(struct tsr_export_gguf_bytes *b, const char *name, const char *v)
{
    tsr_export_gguf_key_begin(b, name, TSR_GGUF_OUT_STRING);
    tsr_export_gguf_add_text(b, v, strlen(v));
}

void tsr_export_gguf_key_array(struct tsr_export_gguf_bytes *b, const char *name, uint32_t type,
                               uint64_t n)
{
    tsr_export_gguf_key_begin(b, name, ARRAY);
    tsr_export_gguf_add_u32(b, type);
    tsr_export_gguf_add_u64(b, n);
}
