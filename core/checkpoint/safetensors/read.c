#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_safetensors_open_file(struct tsr_safetensors *st, struct tsr_file *file,
                                     struct tsr_err *err)
{
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
    struct tsr_file f = *file;
    file->fd = -1;
    file->path = NULL;
    unsigned char word[8] = { 0 };
    uint64_t      len = 0;
    tsr_status    r = TSR_OK;
    if (f.size >= 8)
        r = tsr_file_read(&f, 0, word, 8, err);
    for (int i = 7; i >= 0; i--)
        len = len << 8 | word[i];
    /* a length that cannot be is left to the parser, which sees the first 8 bytes then */
    uint64_t bytes = f.size < 8                                    ? f.size
                     : len > TSR_ST_MAX_HEADER || len > f.size - 8 ? 8
                                                                   : 8 + len;
    char    *head = NULL;
    if (r == TSR_OK && !(head = tsr_new(bytes, 1)))
        r = tsr_fail_nomem(err, bytes, f.path);
    if (r == TSR_OK)
        r = tsr_file_read(&f, 0, head, bytes, err);
    if (r == TSR_OK && bytes == 8 && len <= TSR_ST_MAX_HEADER && len > 0)
        r = tsr_fail(err, TSR_E_INPUT,
                     "%s: the header should have %llu bytes, %llu are there; the file is cut off, "
                     "fetch it again",
                     f.path, (unsigned long long)len, (unsigned long long)(f.size - 8));
    if (r == TSR_OK)
        r = tsr_safetensors_parse(st, f.path, head, bytes, f.size, err);
    free(head);
    if (r == TSR_OK)
        st->file = f;
    else
        tsr_file_close(&f);
    return r;
}

tsr_status tsr_safetensors_open(struct tsr_safetensors *st, const char *path, struct tsr_err *err)
{
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    return tsr_safetensors_open_file(st, &f, err);
}

const struct tsr_safetensors_tensor *tsr_safetensors_find(const struct tsr_safetensors *st,
                                                          const char                   *name)
{
    uint64_t lo = 0, hi = st->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int      c = strcmp(name, st->tensors[mid].name);
        if (c == 0)
            return &st->tensors[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

tsr_status tsr_safetensors_read_part(const struct tsr_safetensors        *st,
                                     const struct tsr_safetensors_tensor *t, uint64_t at,
                                     uint64_t bytes, void *dst, struct tsr_err *err)
{
    if (st->reader.read)
        return st->reader.read(st->reader.self, t, at, bytes, dst, err);
    return tsr_file_read(&st->file, st->data_offset + t->begin + at, dst, bytes, err);
}

tsr_status tsr_safetensors_read(const struct tsr_safetensors        *st,
                                const struct tsr_safetensors_tensor *t, void *dst,
                                struct tsr_err *err)
{
    return tsr_safetensors_read_part(st, t, 0, t->end - t->begin, dst, err);
}

void tsr_safetensors_shape_text(char *buf, size_t cap, uint32_t rank, const uint64_t *shape)
{
    size_t at = (size_t)snprintf(buf, cap, "[");
    for (uint32_t d = 0; d < rank && at < cap; d++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%llu", d ? ", " : "",
                               (unsigned long long)shape[d]);
    if (at < cap)
        (void)snprintf(buf + at, cap - at, "]");
}
