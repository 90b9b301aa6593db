/* forge JOURNAL first N         keeps the first N lines of the journal of a batch, and no seal: a run that was cut there
 * forge JOURNAL line RECORD TEXT   puts TEXT in place of the line of a record, from 1
 * forge JOURNAL type RECORD        makes an error line a result and the other way round
 *
 * The journal is written over, with right sums. */
#include "batch/crc32c.h"
#include "batch/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *slurp(const char *path, uint64_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    *n = 0;
    for (size_t got = 1, cap = 0; f && got > 0; *n += got) {
        if (*n + (1u << 16) > cap)
            p = realloc(p, cap = *n + (1u << 20));
        got = p ? fread(p + *n, 1, 1u << 16, f) : 0;
    }
    if (f)
        (void)fclose(f);
    return p;
}

static int is_line(const struct tsr_batch_entry *f)
{
    return f->type == TSR_BATCH_ENTRY_RESULT || f->type == TSR_BATCH_ENTRY_ERROR;
}

int main(int argc, char **argv)
{
    uint64_t               n, need, lines = 0, hits = 0;
    char                  *data = argc > 3 ? slurp(argv[1], &n) : NULL, *out;
    const char            *how = argc > 3 ? argv[2] : "";
    uint64_t               number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    struct tsr_batch_entry f, other = { .payload = argc > 4 ? argv[4] : "" };
    if (!data || tsr_batch_entry_read(data, n, 0, &f, &need) != 1 ||
        f.type != TSR_BATCH_ENTRY_HEADER)
        return 2;
    uint32_t seed = tsr_batch_crc32c(0, f.payload, TSR_HASH_TEXT - 1);
    other.len = (uint32_t)strlen(other.payload);
    FILE *to = fopen(argv[1], "wb");
    if (!to)
        return 2;
    for (uint64_t at = 0;
         at < n && tsr_batch_entry_read(data + at, n - at, seed, &f, &need) == 1;) {
        at += tsr_batch_entry_bytes(f.len);
        if (strcmp(how, "first") == 0) {
            if (f.type == TSR_BATCH_ENTRY_SEAL || (is_line(&f) && ++lines > number))
                continue;
            hits = 1;
        } else if (is_line(&f) && f.index + 1 == number) {
            hits++;
            if (strcmp(how, "type") == 0) {
                f.type = f.type == TSR_BATCH_ENTRY_ERROR ? TSR_BATCH_ENTRY_RESULT
                                                         : TSR_BATCH_ENTRY_ERROR;
            } else {
                f.payload = other.payload;
                f.len = other.len;
            }
        }
        out = malloc(tsr_batch_entry_bytes(f.len));
        if (!out)
            return 2;
        tsr_batch_entry_write(&f, seed, out);
        (void)fwrite(out, 1, tsr_batch_entry_bytes(f.len), to);
        free(out);
    }
    free(data);
    return fclose(to) == 0 && hits > 0 ? 0 : 1;
}
