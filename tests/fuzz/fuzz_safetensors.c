/* The safetensors header, from bytes.  Every input is read twice: as a whole file, and, since a
 * mutated length or size rarely fits, as the JSON of a file whose length and size do. */
#include "checkpoint/safetensors/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

/* What the reader promises of a header that it accepts. */
static void check(const struct tsr_safetensors *st, uint64_t section)
{
    uint64_t covered = 0;
    for (uint64_t i = 0; i < st->n; i++) {
        const struct tsr_safetensors_tensor *t = &st->tensors[i];
        must(t->begin <= t->end && t->end <= section && t->rank <= TSR_ST_MAX_RANK);
        must(tsr_safetensors_find(st, t->name) == t);
        must(i == 0 || strcmp(st->tensors[i - 1].name, t->name) < 0);
        covered += t->end - t->begin;
    }
    must(covered == section);
    for (uint64_t i = 0; i < st->n_meta; i++)
        must(st->meta_keys[i] && st->meta_values[i]);
}

static void parse(const void *data, uint64_t bytes, uint64_t file_size)
{
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    tsr_status             r = tsr_safetensors_parse(&st, "input", data, bytes, file_size, &e.err);
    must(r == TSR_OK || r == TSR_E_INPUT || r == TSR_E_NOMEM);
    must(r == TSR_OK || e.text[0] != '\0');
    if (r == TSR_OK)
        check(&st, file_size - st.data_offset);
    tsr_safetensors_close(&st);
}

/* The largest second number behind a "data_offsets". */
static uint64_t section_of(const uint8_t *p, size_t size)
{
    static const char key[] = "\"data_offsets\":[";
    uint64_t          most = 0;
    for (size_t i = 0; i + sizeof key < size; i++) {
        if (memcmp(p + i, key, sizeof key - 1) != 0)
            continue;
        uint64_t v = 0;
        for (size_t k = i + sizeof key - 1; k < size && p[k] != ']'; k++)
            v = p[k] >= '0' && p[k] <= '9' ? v * 10 + (uint64_t)(p[k] - '0') : 0;
        most = v > most ? v : most;
    }
    return most < UINT64_MAX / 2 ? most : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size, size);
    uint8_t *b = malloc(size + 8);
    if (!b)
        return 0;
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)((uint64_t)size >> 8 * i);
    if (size > 0)
        memcpy(b + 8, data, size);
    parse(b, size + 8, size + 8 + section_of(data, size));
    free(b);
    return 0;
}
