#include "eval/kld.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC  "_logits_"
#define HEADER 20u
#define FLOOR  16.0f   /* values further below a row's largest logit are indistinguishable */
#define CODES  65535.f /* largest code */

/* ---- reading ----------------------------------------------------------------------- */

static int32_t word(const unsigned char *p)
{
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                     (uint32_t)p[3] << 24);
}

static float real(const unsigned char *p)
{
    uint32_t bits = (uint32_t)word(p);
    float    v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Words of 16 bits in a row. */
static uint64_t row_words(uint64_t vocab)
{
    return 2 * ((vocab + 1) / 2) + 4;
}

tsr_status tsr_eval_kld_parse(struct tsr_eval_kld *k, const char *name, const void *data,
                              uint64_t bytes, uint64_t size, struct tsr_err *err)
{
    const unsigned char *p = data;
    if (bytes < HEADER || memcmp(p, MAGIC, 8) != 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: does not begin with \"" MAGIC "\" and three numbers, as base files of "
                        "llama-perplexity do",
                        name);
    int32_t context = word(p + 8), vocab = word(p + 12), chunks = word(p + 16);
    if (context < 4 || vocab < 2 || chunks < 1)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: byte 8: %d chunks of %d tokens with a vocabulary of %d cannot be",
                        name, chunks, context, vocab);
    k->context = (uint64_t)context;
    k->vocab = (uint64_t)vocab;
    k->chunks = (uint64_t)chunks;
    k->rows = k->context - 1 - k->context / 2;
    k->row_bytes = 2 * row_words(k->vocab);
    uint64_t tokens, rows, want;
    bool     fits = tsr_mul(k->chunks, k->context, &tokens) && tsr_mul(tokens, 4, &tokens) &&
                tsr_add(tokens, HEADER, &k->data) && tsr_mul(k->chunks, k->rows, &rows) &&
                tsr_mul(rows, k->row_bytes, &rows) && tsr_add(k->data, rows, &want);
    if (!fits || want != size)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: has %llu bytes, and %d chunks of %d tokens with a vocabulary of %d "
                        "take %llu; write it anew",
                        name, (unsigned long long)size, chunks, context, vocab,
                        (unsigned long long)(fits ? want : UINT64_MAX));
    return TSR_OK;
}

static tsr_status read_tokens(struct tsr_eval_kld *k, struct tsr_err *err)
{
    uint64_t       n = k->chunks * k->context; /* parse() has checked that the file is longer */
    unsigned char *raw = tsr_new(n, 4);
    k->tokens = tsr_new(n, sizeof *k->tokens);
    tsr_status st = raw && k->tokens ? tsr_file_read(&k->file, HEADER, raw, 4 * n, err)
                                     : tsr_fail_nomem(err, 8 * n, k->file.path);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        int32_t id = word(raw + 4 * i);
        if (id < 0 || (uint64_t)id >= k->vocab)
            st = tsr_fail(err, TSR_E_INPUT,
                          "%s: byte %llu: token %d is outside the vocabulary of %llu", k->file.path,
                          (unsigned long long)(HEADER + 4 * i), id, (unsigned long long)k->vocab);
        k->tokens[i] = (uint32_t)id;
    }
    if (st == TSR_OK)
        tsr_hash_bytes(raw, 4 * n, k->hash);
    free(raw);
    return st;
}

tsr_status tsr_eval_kld_open(struct tsr_eval_kld **out, const char *path, struct tsr_err *err)
{
    unsigned char        head[HEADER];
    struct tsr_eval_kld *k = tsr_new(1, sizeof *k);
    *out = NULL;
    if (!k)
        return tsr_fail_nomem(err, sizeof *k, path);
    k->file.fd = -1;
    tsr_status st = tsr_file_open(&k->file, path, err);
    if (st != TSR_OK) {
        free(k);
        return st;
    }
    uint64_t n = k->file.size < HEADER ? k->file.size : HEADER;
    st = tsr_file_read(&k->file, 0, head, n, err);
    if (st == TSR_OK)
        st = tsr_eval_kld_parse(k, path, head, n, k->file.size, err);
    if (st == TSR_OK)
        st = read_tokens(k, err);
    if (st != TSR_OK) {
        tsr_eval_kld_close(k);
        return st;
    }
    *out = k;
    return TSR_OK;
}

void tsr_eval_kld_close(struct tsr_eval_kld *k)
{
    if (!k)
        return;
    tsr_file_close(&k->file);
    free(k->tokens);
    free(k);
}

uint64_t tsr_eval_kld_vocab(const struct tsr_eval_kld *k)
{
    return k->vocab;
}

tsr_status tsr_eval_kld_read(const struct tsr_eval_kld *k, uint64_t chunk, uint64_t first,
                             uint64_t n, float *out, struct tsr_err *err)
{
    unsigned char *raw = tsr_new(1, k->row_bytes);
    tsr_status     st = raw ? TSR_OK : tsr_fail_nomem(err, k->row_bytes, k->file.path);
    if (st == TSR_OK && (chunk >= k->chunks || first > k->rows || n > k->rows - first))
        st = tsr_fail(err, TSR_E_BUG, "%s: row %llu of chunk %llu is not there", k->file.path,
                      (unsigned long long)(first + n), (unsigned long long)chunk);
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        uint64_t at = k->data + (chunk * k->rows + first + i) * k->row_bytes;
        st = tsr_file_read(&k->file, at, raw, k->row_bytes, err);
        if (st != TSR_OK)
            break;
        float scale = real(raw), low = real(raw + 4);
        if (!(scale >= 0.0f) || !isfinite(scale) || !isfinite(low) ||
            !isfinite(CODES * scale + low))
            st = tsr_fail(err, TSR_E_INPUT,
                          "%s: byte %llu: a row of scale %g and floor %g holds no "
                          "log-probabilities; write the file anew",
                          k->file.path, (unsigned long long)at, (double)scale, (double)low);
        for (uint64_t v = 0; v < k->vocab && st == TSR_OK; v++) {
            const unsigned char *c = raw + 8 + 2 * v;
            out[i * k->vocab + v] = scale * (float)((uint32_t)c[0] | (uint32_t)c[1] << 8) + low;
        }
    }
    free(raw);
    return st;
}

double tsr_eval_kld_divergence(const float *log_p, const float *q, double q_lse, uint64_t vocab)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < vocab; i++)
        if (!(log_p[i] <= -FLOOR))
            sum += exp((double)log_p[i]) * ((double)log_p[i] - ((double)q[i] - q_lse));
    return sum;
}

tsr_status tsr_eval_kld_windows(const struct tsr_eval_kld *k, int64_t bos, uint64_t max,
                                struct tsr_eval_windows **out, struct tsr_err *err)
{
    uint64_t                 n = max && max < k->chunks ? max : k->chunks, c = k->context;
    uint64_t                 from = c / 2 + 1;
    struct tsr_eval_windows *w = tsr_new(1, sizeof *w);
    *out = NULL;
    if (!w)
        return tsr_fail_nomem(err, sizeof *w, "evaluation windows");
    w->opt = (struct tsr_eval_options){ .protocol = TSR_EVAL_PPL_LLAMACPP_512,
                                        .window = c,
                                        .max_windows = max };
    w->ids = tsr_new(n * c, sizeof *w->ids);
    w->start = tsr_new(n + 1, sizeof *w->start);
    w->score_from = tsr_new(n, sizeof *w->score_from);
    w->weight = tsr_new(n, sizeof *w->weight);
    if (!w->ids || !w->start || !w->score_from || !w->weight) {
        tsr_eval_windows_destroy(w);
        return tsr_fail_nomem(err, n * c * 4, "evaluation windows");
    }
    memcpy(w->ids, k->tokens, n * c * sizeof *w->ids);
    for (uint64_t i = 0; i < n; i++) {
        w->start[i + 1] = (i + 1) * c;
        w->score_from[i] = from;
        w->weight[i] = (double)(c - from);
        if (bos >= 0)
            w->ids[i * c] = (uint32_t)bos;
    }
    w->n = n;
    w->tokens = w->scored = n * (c - from);
    w->window = c;
    w->protocol_name = tsr_eval_protocol_name(TSR_EVAL_PPL_LLAMACPP_512);
    w->bos = bos >= 0 ? "per window" : "none";
    (void)snprintf(w->text_hash, sizeof w->text_hash, "%s", k->hash);
    *out = w;
    return TSR_OK;
}

/* ---- writing ----------------------------------------------------------------------- */

struct tsr_kld_out {
    struct tsr_writer w;
    uint64_t          vocab, rows, left; /* rows in all and still to come */
    unsigned char    *row;
};

static void put_word(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
    p[2] = (unsigned char)(v >> 16);
    p[3] = (unsigned char)(v >> 24);
}

static void put_real(unsigned char *p, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_word(p, bits);
}

static void put_header(struct tsr_kld_out *o, const struct tsr_eval_windows *w)
{
    unsigned char b[12];
    tsr_writer_put(&o->w, MAGIC, 8);
    put_word(b, (uint32_t)w->window);
    put_word(b + 4, (uint32_t)o->vocab);
    put_word(b + 8, (uint32_t)w->n);
    tsr_writer_put(&o->w, b, sizeof b);
    for (uint64_t i = 0; i < w->n * w->window; i++) {
        put_word(b, w->ids[i]);
        tsr_writer_put(&o->w, b, 4);
    }
}

tsr_status tsr_eval_kld_create(struct tsr_kld_out **out, const char *path,
                               const struct tsr_eval_windows *w, uint64_t vocab,
                               struct tsr_err *err)
{
    *out = NULL;
    if (w->opt.protocol != TSR_EVAL_PPL_LLAMACPP_512)
        return tsr_fail(
            err, TSR_E_CONFIG,
            "a .kld file holds windows as llamacpp-512 scores them; take that protocol");
    if (w->window > INT32_MAX || vocab > INT32_MAX || w->n > INT32_MAX)
        return tsr_fail(err, TSR_E_INPUT, "%s: a .kld file has no room for so many tokens", path);
    struct tsr_kld_out *o = tsr_new(1, sizeof *o);
    if (!o)
        return tsr_fail_nomem(err, sizeof *o, path);
    o->vocab = vocab;
    o->rows = o->left = w->scored;
    o->row = tsr_new(row_words(vocab), 2);
    tsr_status st = o->row ? tsr_writer_open(&o->w, path, err)
                           : tsr_fail_nomem(err, 2 * row_words(vocab), path);
    if (st != TSR_OK) {
        free(o->row);
        free(o);
        return st;
    }
    put_header(o, w);
    *out = o;
    return TSR_OK;
}

/* As llama.cpp computes it: codes count from 16 below the largest, or from the smallest. */
void tsr_eval_kld_put(struct tsr_kld_out *o, const float *logits)
{
    float max = logits[0], min = logits[0];
    for (uint64_t i = 1; i < o->vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
        min = logits[i] < min ? logits[i] : min;
    }
    min = min > max - FLOOR ? min : max - FLOOR;
    double sum = 0.0;
    for (uint64_t i = 0; i < o->vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    float scale = (max - min) / CODES, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    put_real(o->row, scale);
    put_real(o->row + 4, (float)((double)min - (double)max - log(sum)));
    for (uint64_t i = 0; i < o->vocab; i++) {
        float code = logits[i] > min ? nearbyintf(inverse * (logits[i] - min)) : 0.0f;
        code = code < CODES ? code : CODES;
        o->row[8 + 2 * i] = (unsigned char)((uint32_t)code & 255u);
        o->row[9 + 2 * i] = (unsigned char)((uint32_t)code >> 8);
    }
    tsr_writer_put(&o->w, o->row, 2 * row_words(o->vocab));
    o->left -= o->left > 0;
}

tsr_status tsr_eval_kld_commit(struct tsr_kld_out *o, struct tsr_err *err)
{
    tsr_status st;
    if (o->left) {
        st = tsr_fail(err, TSR_E_BUG, "%s: %llu of %llu rows were not written", o->w.path,
                      (unsigned long long)o->left, (unsigned long long)o->rows);
        tsr_writer_abort(&o->w);
    } else {
        st = tsr_writer_commit(&o->w, err);
    }
    free(o->row);
    free(o);
    return st;
}

void tsr_eval_kld_abort(struct tsr_kld_out *o)
{
    if (!o)
        return;
    tsr_writer_abort(&o->w);
    free(o->row);
    free(o);
}
