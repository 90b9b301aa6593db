#include "base/mem.h"
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_st_open_file(struct tsr_st *st, struct tsr_file *file, struct tsr_err *err)
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
        r = tsr_st_parse(st, f.path, head, bytes, f.size, err);
    free(head);
    if (r == TSR_OK)
        st->file = f;
    else
        tsr_file_close(&f);
    return r;
}

tsr_status tsr_st_open(struct tsr_st *st, const char *path, struct tsr_err *err)
{
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
    struct tsr_file f;
    TSR_TRY(tsr_file_open(&f, path, err));
    return tsr_st_open_file(st, &f, err);
}

void tsr_st_close(struct tsr_st *st)
{
    if (st->reader.close)
        st->reader.close(st->reader.self);
    tsr_file_close(&st->file);
    free(st->tensors);
    free(st->meta_keys);
    free(st->meta_values);
    free(st->text);
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
}

const struct tsr_st_tensor *tsr_st_find(const struct tsr_st *st, const char *name)
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

tsr_status tsr_st_read_part(const struct tsr_st *st, const struct tsr_st_tensor *t, uint64_t at,
                            uint64_t bytes, void *dst, struct tsr_err *err)
{
    if (st->reader.read)
        return st->reader.read(st->reader.self, t, at, bytes, dst, err);
    return tsr_file_read(&st->file, st->data_offset + t->begin + at, dst, bytes, err);
}

tsr_status tsr_st_read(const struct tsr_st *st, const struct tsr_st_tensor *t, void *dst,
                       struct tsr_err *err)
{
    return tsr_st_read_part(st, t, 0, t->end - t->begin, dst, err);
}
