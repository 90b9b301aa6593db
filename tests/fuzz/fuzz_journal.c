/* A journal of frames with right sums and garbage between them, whose lines are answers, answers with a byte
 * changed, or none: it is looked at, opened, completed and published, or refused; what is published is
 * answers alone.  Input: a stream of pieces, each a byte of kind and its fields. */
#include "batch/adopt.h"
#include "batch/crc32c.h"
#include "batch/journal.h"
#include "disk.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB     "xxh3:00112233445566778899aabbccddeeff"
#define RECORDS 5u
#define FRAME   1024u

#define RESULT                                                                                     \
    "{\"id\":\"batch_req_0\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"request_"     \
    "id\":\"req_0\","                                                                              \
    "\"body\":{\"id\":\"cmpl-0\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","    \
    "\"choices\":[{\"index\":0}],\"usage\":{}}},\"error\":null}"
#define ERROR                                                                                      \
    "{\"id\":\"batch_req_0\",\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"poison\"," \
    "\"message\":\"it was\"}}"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        __builtin_trap();
}

static uint8_t next(const uint8_t **p, size_t *n)
{
    if (*n == 0)
        return 0;
    (*n)--;
    return *(*p)++;
}

/* One piece appended to the file. */
static uint64_t piece(const uint8_t **p, size_t *n, char *out)
{
    uint8_t kind = next(p, n), len = next(p, n) % 64;
    char    payload[FRAME / 2] = JOB;
    if (kind >= 224) { /* garbage */
        for (uint8_t i = 0; i < len; i++)
            out[i] = (char)next(p, n);
        return len;
    }
    struct tsr_batch_entry f = { .type = (enum tsr_entry_type)(1 + kind % 6),
                                 .epoch = next(p, n) % 8,
                                 .index = next(p, n) % (RECORDS + 1),
                                 .attempt = next(p, n) % 3,
                                 .flags = next(p, n) % 3,
                                 .len = len,
                                 .payload = payload };
    if (f.type == TSR_BATCH_ENTRY_HEADER || f.type == TSR_BATCH_ENTRY_SEAL)
        f.len = TSR_HASH_TEXT - 1;
    else if (len == 8)
        tsr_batch_entry_put_synced((unsigned char *)payload, next(p, n));
    else if (len % 4 == 0)
        memset(payload, 'a' + len % 3, len);
    else {
        bool error =
            (f.type == TSR_BATCH_ENTRY_ERROR) != (len % 16 == 15); /* or the other kind of line */
        f.len = (uint32_t)snprintf(payload, sizeof payload, "%s", error ? ERROR : RESULT);
        if (len % 4 == 3)
            payload[(uint32_t)next(p, n) * 2 % f.len] = (char)next(p, n);
    }
    tsr_batch_entry_write(&f, tsr_batch_crc32c(0, JOB, TSR_HASH_TEXT - 1), out);
    uint64_t bytes = tsr_batch_entry_bytes(f.len);
    if (kind >= 192 && len) /* torn */
        bytes = bytes > len ? bytes - len : 0;
    return bytes;
}

static void work(struct disk_process *p, struct tsr_batch_io *io)
{
    struct tsr_errbuf                e = TSR_ERRBUF(e);
    struct tsr_batch_journal        *j;
    char                            *about;
    struct tsr_batch_adopt           adopt = { 0 };
    struct tsr_batch_journal_options o = { .io = io,
                                           .folder = "f",
                                           .job = JOB,
                                           .about = "{}",
                                           .records = RECORDS,
                                           .who = "fuzz",
                                           .check = tsr_batch_adopt_check,
                                           .check_ctx = &adopt };
    tsr_status                       st = tsr_batch_journal_open(&j, &o, &about, &e.err);
    if (st != TSR_OK) {
        must(st == TSR_E_CHECK || st == TSR_E_INPUT);
        must(st != TSR_E_INPUT || about || strstr(e.text, "is not an answer to its request"));
        free(about);
        return;
    }
    for (uint64_t i = 0; i < RECORDS; i++)
        if (tsr_batch_journal_record(j, i)->state == TSR_BATCH_RECORD_OPEN)
            must(tsr_batch_journal_line(j, i, false, RESULT, sizeof RESULT - 1, &e.err) == TSR_OK);
    st = tsr_batch_journal_finish(j, "out.part", "out", &e.err);
    must(st == TSR_OK || st == TSR_E_CHECK); /* a seal of other bytes */
    if (st == TSR_OK) {
        const struct disk_blob *b = disk_file(p->d, "out");
        uint64_t                lines = 0, from = 0;
        for (uint64_t i = 0; i < b->n; i++) {
            if (b->p[i] != '\n')
                continue;
            must(tsr_batch_adopt_check(&adopt, lines,
                                       tsr_batch_journal_record(j, lines)->state ==
                                           TSR_BATCH_RECORD_ERROR,
                                       (const char *)b->p + from, i - from, &e.err) == TSR_OK);
            lines++;
            from = i + 1;
        }
        must(lines == RECORDS && from == b->n);
    }
    tsr_batch_journal_close(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct disk                  *d = calloc(1, sizeof *d);
    struct disk_process           p;
    struct tsr_batch_io           io;
    struct tsr_batch_journal_view v;
    char                          frame[FRAME];
    int                           f;
    must(d != NULL && size < 65536);
    disk_init(d, 1);
    disk_process_start(&p, d, 0, &io);
    must(io.open(&p, "f/journal", TSR_BATCH_IO_APPEND, &f) == 0);
    for (int pieces = 0; size > 0 && pieces < 200; pieces++) {
        uint64_t n = piece(&data, &size, frame);
        must(n == 0 || tsr_batch_io_put(&io, f, 0, frame, n) == 0);
    }
    must(io.close(&p, f) == 0);
    tsr_status st = tsr_batch_journal_look(&v, &io, "f/journal", &e.err);
    if (st == TSR_OK) {
        for (uint64_t i = 0; i < v.n; i++) {
            char *line;
            if (v.records[i].state == TSR_BATCH_RECORD_OPEN)
                continue;
            must(tsr_batch_journal_view_line(&v, i, &line, &e.err) == TSR_OK);
            free(line);
        }
        tsr_batch_journal_look_end(&v);
    } else {
        must(st == TSR_E_INPUT || st == TSR_E_CHECK);
    }
    work(&p, &io);
    disk_free(d);
    free(d);
    return 0;
}
