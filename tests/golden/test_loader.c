/* A model that is packed while it is loaded: the logits of the same model packed before, no more
 * memory than its share and a few pieces; and the pieces, which are what an open layer has. */
#include "golden.h"
#include "wide.h"

#include "config/config.h"
#include "runtime/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SCHEME "use: rtn\nbits: 4\ngroup: 32\nrules:\n  - {layers: 1, bits: 8}\n"
/* What stays as it is lies in pieces of its own, or in one with what is packed (phi3, bloom). */
#define KEEPS                                                                                      \
    SCHEME "  - {tensors: '*.v_proj', keep: true}\n  - {tensors: '*.up_proj', keep: true}\n"       \
           "  - {layers: 2, tensors: '*.down_proj', keep: true}\n"
#define HEAD   SCHEME "  - {tensors: lm_head, bits: 8}\n"
#define TOKENS 9u

static void must(tsr_status st, const struct tsr_errbuf *e)
{
    if (st != TSR_OK)
        fail_msg("status %d: %s", st, e->text);
}

static void logits(struct tsr_engine *e, float *out)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_token  t[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        t[i] = (struct tsr_token){ .id = 5 + 3 * i, .logits = true };
    must(tsr_engine_forward(e, t, TOKENS, out, &err.err), &err);
}

static struct tsr_scheme *scheme_of(struct tsr_registry *r, const char *text, struct tsr_doc **doc)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_diag   *d = NULL;
    struct tsr_scheme *s = NULL;
    must(tsr_diag_create(&d, &err.err), &err);
    must(tsr_doc_parse(doc, "scheme", text, strlen(text), d, &err.err), &err);
    must(tsr_scheme_create(&s, r, tsr_doc_root(*doc), NULL, "the scheme", d, &err.err), &err);
    must(tsr_diag_status(d, &err.err), &err);
    tsr_diag_destroy(d);
    return s;
}

/* What a load of the whole model took; want are the logits of the model packed before. */
static void load_and_compare(struct tsr_registry *r, const struct tsr_model *m, const char *scheme,
                             struct tsr_engine_options opt, const float *want)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_doc           *doc = NULL;
    struct tsr_scheme        *s = scheme_of(r, scheme, &doc);
    struct tsr_loader        *l = NULL;
    struct tsr_loader_numbers n;
    uint64_t                  floats = TOKENS * m->hp.vocab, now, peak, weights, cache;
    float                    *got = malloc(floats * sizeof *got);
    assert_non_null(got);
    must(tsr_loader_open(&l, s, r, m, 0, m->hp.layers, true, &err.err), &err);
    opt.release = true;
    opt.source = tsr_loader_source(l);
    struct tsr_engine *e = golden_engine(r, m, tsr_loader_overlay(l), opt);
    logits(e, got);
    assert_memory_equal(got, want, floats * sizeof *got);
    tsr_loader_numbers(l, &n);
    tsr_registry_memory(r, &now, &peak);
    tsr_engine_memory(e, &weights, &cache);
    assert_true(n.layer > 0 && n.layer == tsr_model_layer_bytes(m, 0));
    assert_true(n.piece > 0 && n.piece <= n.layer);
    /* two pieces as they are stored, and one packed one that host and device have both; what of the
     * layers is on the device while they are loaded lies below the weights at the end */
    if (n.total > weights + 3 * n.piece || n.total > weights + 2 * n.layer)
        fail_msg("%llu bytes while it was loaded; share %llu, a layer %llu, a piece %llu",
                 (unsigned long long)n.total, (unsigned long long)weights,
                 (unsigned long long)n.layer, (unsigned long long)n.piece);
    /* and a layer's worth of packed ones, at most 9 of 16 bits a weight */
    if (n.peak > 2 * n.piece + n.layer)
        fail_msg("%llu bytes of host memory, a layer has %llu, a piece %llu",
                 (unsigned long long)n.peak, (unsigned long long)n.layer,
                 (unsigned long long)n.piece);
    assert_true(weights > 0 && peak >= weights);
    for (int i = 0; i < TSR_LINEARS; i++)
        assert_null(m->layers[0].lin[i].w.data); /* closed again */
    tsr_engine_destroy(e);
    tsr_loader_close(l);
    tsr_scheme_destroy(s);
    tsr_doc_destroy(doc);
    free(got);
}

static void same_as_before_with(const char *family, const char *scheme)
{
    struct tsr_pool          *pool = NULL, *other = NULL;
    struct tsr_registry      *r = golden_registry(2, NULL, &pool), *mine;
    char                      folder[64];
    struct tsr_model         *m = wide_load(family, true, folder);
    struct tsr_overlay       *o = wide_pack(r, m, scheme);
    struct tsr_engine_options opt = {
        .act = TSR_ACT_A8, .kv_dtype = TSR_F16, .slots = 1, .context = 16
    };
    float             *want = malloc(TOKENS * m->hp.vocab * sizeof *want);
    struct tsr_engine *e = golden_engine(r, m, o, opt);
    assert_non_null(want);
    logits(e, want);
    tsr_engine_destroy(e);
    mine = golden_registry(1, NULL, &other);
    load_and_compare(mine, m, scheme, opt, want);
    tsr_overlay_destroy(o);
    wide_free(m, folder);
    free(want);
    golden_registry_close(mine, other);
    golden_registry_close(r, pool);
}

static void same_as_before(void **state)
{
    (void)state;
    for (int i = 0; wide_names[i]; i++)
        same_as_before_with(wide_names[i], KEEPS);
    same_as_before_with("llama", HEAD);
}

static uint64_t bytes_of(const struct tsr_matrix *w)
{
    return w->rows * w->row_stride;
}

/* Each linear of a layer is in one piece and has there the bytes that an open layer has. */
static void pieces_of(const struct tsr_model *m, uint64_t layer)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    const struct tsr_layer *l = &m->layers[layer];
    struct tsr_layer_piece  piece[TSR_LINEARS];
    unsigned char          *want[TSR_LINEARS] = { 0 };
    uint32_t                seen = 0, all = 0;
    uint64_t                bytes = 0;
    must(tsr_model_open_layer(m, layer, &err.err), &err);
    for (unsigned i = 0; i < TSR_LINEARS; i++) {
        if (l->lin[i].w.rows == 0)
            continue;
        all |= 1u << i;
        bytes += bytes_of(&l->lin[i].w);
        want[i] = malloc(bytes_of(&l->lin[i].w));
        assert_non_null(want[i]);
        memcpy(want[i], l->lin[i].w.data, bytes_of(&l->lin[i].w));
    }
    uint32_t n = tsr_model_pieces(m, layer, piece);
    assert_int_equal(tsr_model_read_piece(m, layer, &piece[0], want[0], &err.err), TSR_E_BUG);
    tsr_model_close_layer(m, layer);
    for (uint32_t p = 0; p < n; p++) {
        void *to = aligned_alloc(64, (piece[p].bytes / 64 + 1) * 64);
        assert_non_null(to);
        assert_int_equal(seen & piece[p].linears, 0);
        seen |= piece[p].linears;
        bytes -= piece[p].bytes;
        must(tsr_model_read_piece(m, layer, &piece[p], to, &err.err), &err);
        for (unsigned i = 0; i < TSR_LINEARS; i++)
            if (piece[p].linears >> i & 1u)
                assert_memory_equal(l->lin[i].w.data, want[i], bytes_of(&l->lin[i].w));
            else
                assert_null(l->lin[i].w.data);
        tsr_model_forget_piece(m, layer, &piece[p]);
        free(to);
    }
    assert_int_equal(seen, all);
    assert_int_equal(bytes, 0);
    for (unsigned i = 0; i < TSR_LINEARS; i++) {
        assert_null(l->lin[i].w.data);
        free(want[i]);
    }
}

static void pieces(void **state)
{
    (void)state;
    for (int i = 0; wide_names[i]; i++) {
        char              folder[64];
        struct tsr_model *m = wide_load(wide_names[i], true, folder);
        for (uint64_t layer = 0; layer < m->hp.layers; layer++)
            pieces_of(m, layer);
        wide_free(m, folder);
    }
}

/* Of a model in memory nothing is read. */
static void nothing_to_read(void **state)
{
    struct tsr_errbuf      err = TSR_ERRBUF(err);
    char                   folder[64];
    struct tsr_model      *m = wide_load("phi3", false, folder);
    struct tsr_layer_piece piece[TSR_LINEARS];
    const void            *before = m->layers[1].lin[TSR_UP].w.data;
    (void)state;
    assert_int_equal(tsr_model_pieces(m, 1, piece), TSR_LINEARS);
    for (unsigned i = 0; i < TSR_LINEARS; i++) {
        assert_int_equal(piece[i].bytes, 0);
        assert_int_equal(piece[i].linears, 1u << i);
        must(tsr_model_read_piece(m, 1, &piece[i], NULL, &err.err), &err);
        tsr_model_forget_piece(m, 1, &piece[i]);
    }
    assert_non_null(before);
    assert_ptr_equal(m->layers[1].lin[TSR_UP].w.data, before);
    wide_free(m, folder);
}

/* A quantizer that asks for statistics is refused with what to do; nothing stays open. */
static void wants_statistics(void **state)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_pool          *pool = NULL;
    struct tsr_registry      *r = golden_registry(1, NULL, &pool);
    char                      folder[64];
    struct tsr_model         *m = wide_load("opt", true, folder);
    struct tsr_doc           *doc = NULL;
    struct tsr_scheme        *s = scheme_of(r, "use: gptq\nbits: 4\n", &doc);
    struct tsr_loader        *l = NULL;
    struct tsr_engine        *e = NULL;
    struct tsr_engine_options opt = {
        .kv_dtype = TSR_F16, .slots = 1, .context = 16, .release = true
    };
    (void)state;
    must(tsr_loader_open(&l, s, r, m, 1, 3, false, &err.err), &err);
    opt.source = tsr_loader_source(l);
    opt.first = 1;
    opt.no_embed = true;
    assert_int_equal(tsr_engine_create(&e, r, m, tsr_loader_overlay(l), &opt, &err.err),
                     TSR_E_INPUT);
    assert_non_null(strstr(err.text, "calibrate"));
    tsr_loader_close(l);
    for (uint64_t i = 0; i < m->hp.layers; i++)
        assert_null(m->layers[i].lin[TSR_Q].w.data);
    tsr_scheme_destroy(s);
    tsr_doc_destroy(doc);
    wide_free(m, folder);
    golden_registry_close(r, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(same_as_before),
        cmocka_unit_test(wants_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
