/* A model that is packed while it is loaded: the logits of the same model packed before, no more
 * memory than its share and a few pieces; what a rank of several reads and gets; and the pieces, which
 * are what an open layer has. */
#include "golden.h"
#include "wide.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "checkpoint/safetensors/safetensors.h"
#include "config/config.h"
#include "model/pieces.h"
#include "runtime/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_engine_token t[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        t[i] = (struct tsr_engine_token){ .id = 5 + 3 * i, .logits = true };
    must(tsr_engine_forward(e, t, TOKENS, out, &err.err), &err);
}

static struct tsr_quant_scheme *scheme_of(struct tsr_registry *r, const char *text,
                                          struct tsr_config_doc **doc)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_diag         *d = NULL;
    struct tsr_quant_scheme *s = NULL;
    must(tsr_config_diag_create(&d, &err.err), &err);
    must(tsr_config_doc_parse(doc, "scheme", text, strlen(text), d, &err.err), &err);
    must(tsr_quant_scheme_create(&s, r, tsr_config_doc_root(*doc), NULL, "the scheme", d, &err.err),
         &err);
    must(tsr_config_diag_status(d, &err.err), &err);
    tsr_config_diag_destroy(d);
    return s;
}

/* What a load of the whole model took; want are the logits of the model packed before. */
static void load_and_compare(struct tsr_registry *r, const struct tsr_model *m, const char *scheme,
                             struct tsr_engine_options opt, const float *want)
{
    struct tsr_errbuf                 err = TSR_ERRBUF(err);
    struct tsr_config_doc            *doc = NULL;
    struct tsr_quant_scheme          *s = scheme_of(r, scheme, &doc);
    struct tsr_loader                *l = NULL;
    struct tsr_runtime_loader_numbers n;
    uint64_t                          floats = TOKENS * m->hp.vocab, now, peak, weights, cache;
    float                            *got = malloc(floats * sizeof *got);
    assert_non_null(got);
    must(tsr_runtime_loader_open(&l, s, r, m, 0, m->hp.layers, NULL, true, NULL, &err.err), &err);
    opt.release = true;
    opt.source = tsr_runtime_loader_source(l);
    struct tsr_engine *e = golden_engine(r, m, tsr_runtime_loader_overlay(l), opt);
    logits(e, got);
    assert_memory_equal(got, want, floats * sizeof *got);
    tsr_runtime_loader_numbers(l, &n);
    tsr_plugin_registry_memory(r, &now, &peak);
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
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        assert_null(m->layers[0].lin[i].w.data); /* closed again */
    tsr_engine_destroy(e);
    tsr_runtime_loader_close(l);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    free(got);
}

static void same_as_before_with(const char *family, const char *scheme)
{
    struct tsr_pool          *pool = NULL, *other = NULL;
    struct tsr_registry      *r = golden_registry(2, NULL, &pool), *mine;
    char                      folder[64];
    struct tsr_model         *m = wide_load(family, true, folder);
    struct tsr_model_overlay *o = wide_pack(r, m, scheme);
    struct tsr_engine_options opt = {
        .act = TSR_ACT_A8, .kv_dtype = TSR_F16, .slots = 1, .context = 16
    };
    float             *want = malloc(TOKENS * m->hp.vocab * sizeof *want);
    struct tsr_engine *e = golden_engine(r, m, o, opt);
    assert_non_null(want);
    logits(e, want);
    tsr_engine_destroy(e);
    for (unsigned threads = 1; threads <= 3; threads += 2) { /* one part at a time, and two */
        mine = golden_registry(threads, NULL, &other);
        load_and_compare(mine, m, scheme, opt, want);
        golden_registry_close(mine, other);
    }
    tsr_model_overlay_destroy(o);
    wide_free(m, folder);
    free(want);
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

/* Copies of a layer's matrices. */
static void copy_layer(const struct tsr_model *m, uint64_t layer,
                       struct tsr_matrix all[TSR_MODEL_LINEARS])
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    must(tsr_model_open_layer(m, layer, &err.err), &err);
    for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++) {
        all[i] = m->layers[layer].lin[i].w;
        if (all[i].rows == 0)
            continue;
        all[i].data = malloc(bytes_of(&all[i]));
        assert_non_null(all[i].data);
        memcpy(all[i].data, m->layers[layer].lin[i].w.data, bytes_of(&all[i]));
    }
    tsr_model_close_layer(m, layer);
}

static void free_layer(struct tsr_matrix all[TSR_MODEL_LINEARS])
{
    for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++)
        if (all[i].rows)
            free(all[i].data);
}

static void same_rows(const struct tsr_matrix *got, const struct tsr_matrix *want)
{
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->rows, want->rows);
    assert_int_equal(got->cols, want->cols);
    for (uint64_t r = 0; r < got->rows; r++)
        assert_memory_equal((const char *)got->data + r * got->row_stride,
                            (const char *)want->data + r * want->row_stride,
                            want->cols * tsr_dtype_size(want->dtype));
}

/* Each linear of a layer is in one piece and has there the bytes that an open layer has; of a rank's
 * parts, all that is read is theirs. */
static void pieces_of(const struct tsr_model *m, uint64_t layer,
                      const struct tsr_engine_share *share)
{
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    struct tsr_model_layer_piece  piece[TSR_MODEL_LINEARS];
    struct tsr_model_piece_linear lin[TSR_MODEL_LINEARS];
    struct tsr_matrix             all[TSR_MODEL_LINEARS], part[TSR_MODEL_LINEARS];
    uint32_t                      seen = 0, wanted = 0;
    uint64_t                      bytes = 0;
    copy_layer(m, layer, all);
    uint64_t n = tsr_model_pieces(m, layer, piece, lin);
    for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++)
        wanted |= all[i].rows ? 1u << i : 0;
    for (uint64_t p = 0; p < n; p++)
        for (uint64_t k = 0; k < piece[p].n; k++) {
            enum tsr_linear_id     i = piece[p].lin[k].id;
            struct tsr_model_slice s = { .rows = all[i].rows, .cols = all[i].cols };
            if (share) {
                must(tsr_engine_share_linear(share, &m->hp, layer, i, &all[i], NULL, &s, &err.err),
                     &err);
                assert_true(s.rows * s.cols < all[i].rows * all[i].cols);
                tsr_model_piece_cut(m, layer, &piece[p], k, &s);
            }
            part[i] = tsr_model_matrix_slice(&all[i], &s);
            bytes += s.rows * s.cols * tsr_dtype_size(all[i].dtype);
        }
    for (uint64_t p = 0; p < n; p++) {
        unsigned char *to = aligned_alloc(64, piece[p].room + 64);
        assert_non_null(to);
        memset(to, 0xA5, piece[p].room + 64);
        assert_true(piece[p].n > 0 && piece[p].bytes > 0 && piece[p].room >= piece[p].bytes);
        bytes -= piece[p].bytes;
        must(tsr_model_read_piece(m, layer, &piece[p], to, &err.err), &err);
        for (uint64_t k = 0; k < piece[p].n; k++) {
            enum tsr_linear_id i = piece[p].lin[k].id;
            assert_int_equal(seen >> i & 1u, 0);
            seen |= 1u << i;
            same_rows(&piece[p].lin[k].w, &part[i]);
        }
        for (unsigned i = 0; i < 64; i++)
            assert_int_equal(to[piece[p].room + i], 0xA5);
        free(to);
    }
    assert_int_equal(seen, wanted);
    assert_int_equal(bytes, 0);
    for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++)
        assert_null(m->layers[layer].lin[i].w.data);
    free_layer(all);
}

static void pieces(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    (void)state;
    for (int i = 0; wide_names[i]; i++) {
        char                    folder[64];
        struct tsr_model       *m = wide_load(wide_names[i], true, folder);
        struct tsr_engine_share share;
        for (uint64_t layer = 0; layer < m->hp.layers; layer++)
            pieces_of(m, layer, NULL);
        for (uint32_t ranks = 2; ranks <= 4; ranks *= 2)
            for (uint32_t rank = 0; rank < ranks; rank++) {
                must(tsr_engine_share_of(&m->hp, rank, ranks, false, &share, &err.err), &err);
                pieces_of(m, rank % m->hp.layers, &share);
            }
        wide_free(m, folder);
    }
}

/* Of a model in memory nothing is read. */
static void nothing_to_read(void **state)
{
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    char                          folder[64];
    struct tsr_model             *m = wide_load("phi3", false, folder);
    struct tsr_model_layer_piece  piece[TSR_MODEL_LINEARS];
    struct tsr_model_piece_linear lin[TSR_MODEL_LINEARS];
    (void)state;
    assert_int_equal(tsr_model_pieces(m, 1, piece, lin), TSR_MODEL_LINEARS);
    for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_matrix *all = &m->layers[1].lin[i].w;
        struct tsr_model_slice   s = { .row = 3, .rows = 5, .cols = all->cols };
        assert_int_equal(piece[i].bytes, 0);
        assert_int_equal(piece[i].n, 1);
        assert_int_equal(piece[i].lin[0].id, i);
        must(tsr_model_read_piece(m, 1, &piece[i], NULL, &err.err), &err);
        assert_non_null(all->data);
        assert_ptr_equal(lin[i].w.data, all->data);
        tsr_model_piece_cut(m, 1, &piece[i], 0, &s);
        assert_int_equal(piece[i].bytes, 0);
        must(tsr_model_read_piece(m, 1, &piece[i], NULL, &err.err), &err);
        assert_int_equal(lin[i].w.rows, 5);
        assert_ptr_equal(lin[i].w.data, (char *)all->data + 3 * all->row_stride);
    }
    wide_free(m, folder);
}

/* ---- a rank of several ------------------------------------------------------- */

static void same_packed(const struct tsr_model_packed *got, const struct tsr_model_packed *want)
{
    assert_string_equal(got->format.id, want->format.id);
    assert_int_equal(got->format.bits, want->format.bits);
    assert_int_equal(got->format.group, want->format.group);
    assert_int_equal(got->rows, want->rows);
    assert_int_equal(got->cols, want->cols);
    assert_int_equal(got->segment, want->segment);
    assert_int_equal(got->code_stride, want->code_stride);
    assert_int_equal(got->meta_stride, want->meta_stride);
    assert_memory_equal(got->codes, want->codes, want->rows * want->code_stride);
    assert_memory_equal(got->meta, want->meta, want->rows * want->meta_stride);
}

/* What a source gives of one linear is the rank's part of what the whole became, or all of it. */
static void same_part(const struct tsr_model *m, const struct tsr_engine_share *share,
                      uint64_t layer, enum tsr_linear_id id, const struct tsr_engine_fetched *f,
                      const struct tsr_matrix *all, const struct tsr_model_packed *packed)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_model_slice   s = { .rows = all->rows, .cols = all->cols };
    struct tsr_model_packed *part = NULL;
    assert_true((f->packed != NULL) == (packed != NULL));
    if (f->part) {
        must(tsr_engine_share_linear(share, &m->hp, layer, id, all, packed, &s, &err.err), &err);
        assert_memory_equal(f->part, &s, sizeof s);
    }
    if (packed) {
        must(tsr_model_packed_slice(packed, &s, &part, &err.err), &err);
        same_packed(f->packed, part);
        tsr_model_packed_destroy(part);
    } else {
        struct tsr_matrix want = tsr_model_matrix_slice(all, &s);
        same_rows(&f->w, &want);
    }
    (void)layer;
}

/* One rank's load without an engine.  alone: linears of which a packed one is to come as a part.  Adds what
 * was read to *read, and what all ranks are to read together to *want. */
static void load_rank(struct tsr_registry *r, const struct tsr_model *m, const char *scheme,
                      const struct tsr_model_overlay *o, const struct tsr_engine_share *share,
                      uint32_t alone, uint64_t *read, uint64_t *want)
{
    struct tsr_errbuf                 err = TSR_ERRBUF(err);
    struct tsr_config_doc            *doc = NULL;
    struct tsr_quant_scheme          *s = scheme_of(r, scheme, &doc);
    struct tsr_loader                *l = NULL;
    struct tsr_runtime_loader_numbers n;
    const struct tsr_engine_source   *from;
    uint64_t                          whole = 0;
    struct tsr_matrix                 every[WIDE_LAYERS][TSR_MODEL_LINEARS];
    assert_int_equal(m->hp.layers, WIDE_LAYERS);
    for (uint64_t layer = 0; layer < WIDE_LAYERS; layer++) /* before threads look at the model */
        copy_layer(m, layer, every[layer]);
    must(tsr_runtime_loader_open(&l, s, r, m, 0, m->hp.layers, share, false, NULL, &err.err), &err);
    from = tsr_runtime_loader_source(l);
    for (uint64_t layer = 0; layer < m->hp.layers; layer++) {
        const struct tsr_matrix *all = every[layer];
        uint64_t                 bytes = 0;
        for (unsigned i = 0; i < TSR_MODEL_LINEARS; i++) {
            struct tsr_engine_fetched f = { 0 };
            must(from->fetch(from->ctx, layer, (enum tsr_linear_id)i, &f, &err.err), &err);
            if (all[i].rows) {
                const struct tsr_model_packed *p = o->lin[layer][i];
                same_part(m, share, layer, (enum tsr_linear_id)i, &f, &all[i], p);
                assert_true((f.part != NULL) == (!p || (alone >> i & 1u)));
                bytes += !f.part ? bytes_of(&all[i])
                                 : f.part->rows * f.part->cols * tsr_dtype_size(all[i].dtype);
                /* once in all, what is not cut once for each rank */
                if (f.part && share->rank == 0)
                    *want += bytes_of(&all[i]);
                else if (!f.part)
                    *want += bytes_of(&all[i]);
            }
            from->placed(from->ctx, layer, (enum tsr_linear_id)i);
        }
        whole = bytes > whole ? bytes : whole;
    }
    tsr_runtime_loader_numbers(l, &n);
    /* every linear of these models is a multiple of 64 bytes in every part */
    assert_int_equal(n.layer, whole);
    assert_true(n.piece <= n.layer && n.peak <= 2 * n.piece + n.layer);
    *read += n.read;
    tsr_runtime_loader_close(l);
    for (uint64_t layer = 0; layer < WIDE_LAYERS; layer++)
        free_layer(every[layer]);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
}

#define ALL ((1u << TSR_MODEL_LINEARS) - 1)
#define ROWS                                                                                       \
    (1u << TSR_MODEL_Q | 1u << TSR_MODEL_K | 1u << TSR_MODEL_V | 1u << TSR_MODEL_GATE |            \
     1u << TSR_MODEL_UP)

/* Ranks read their rows and columns alone and get what the whole would have there. */
static void parts(void **state)
{
    static const struct {
        const char *scheme;
        uint32_t    alone;
    } cases[] = {
        { KEEPS, ALL },
        { "use: rtn\nbits: 3\ngroup: 32\nrounding: stochastic\nseed: 5\n", ROWS },
        { "use: rtn\nbits: 4\ngroup: -1\n", ROWS },
        { "use: mx\nblock: 32\n", ALL },
        { "use: mx\nblock: 32\nelement: fp8_e4m3\nscale_bits: 8\n", ALL },
        { "use: squeeze\nbits: 2\nsensitivity: none\nrules:\n  - {tensors: '*.[oqkgud]*_proj', "
          "use: rtn, group: -1}\n",
          ROWS },
    };
    struct tsr_errbuf    err = TSR_ERRBUF(err);
    struct tsr_pool     *pool = NULL;
    struct tsr_registry *r = golden_registry(2, NULL, &pool);
    (void)state;
    for (int i = 0; wide_names[i]; i++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            char                    folder[64];
            struct tsr_engine_share share;
            struct tsr_model       *m = wide_load(wide_names[i], true, folder);
            if (c > 0 && i > 0) { /* every family with the first, one with the others */
                wide_free(m, folder);
                continue;
            }
            struct tsr_model_overlay *o = wide_pack(r, m, cases[c].scheme);
            for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
                uint64_t read = 0, want = 0;
                for (uint32_t rank = 0; rank < ranks; rank++) {
                    must(tsr_engine_share_of(&m->hp, rank, ranks, false, &share, &err.err), &err);
                    load_rank(r, m, cases[c].scheme, o, &share, cases[c].alone, &read, &want);
                }
                assert_int_equal(read, want);
            }
            tsr_model_overlay_destroy(o);
            wide_free(m, folder);
        }
    golden_registry_close(r, pool);
}

/* A NaN in the place of a weight of the last row, or of the first. */
static void spoil(const char *folder, const char *name, bool last)
{
    struct tsr_errbuf      err = TSR_ERRBUF(err);
    struct tsr_safetensors st;
    char                   path[128];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    must(tsr_safetensors_open(&st, path, &err.err), &err);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(&st, name);
    assert_non_null(t);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(st.data_offset + (last ? t->end - 4 : t->begin)), SEEK_SET),
                     0);
    assert_int_equal(fwrite("\xff\xff\xff\xff", 1, 4, f), 4); /* in any of the types */
    assert_int_equal(fclose(f), 0);
    tsr_safetensors_close(&st);
}

/* Of two linears that cannot be packed, and are packed at the same time, the first one's sentence comes,
 * though the other fails at once; the linears before are there. */
static void first_failure(void **state)
{
    char                     folder[] = "/tmp/tessera-wide-XXXXXX";
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_pool         *pool = NULL;
    struct tsr_registry     *r = golden_registry(2, NULL, &pool);
    struct tsr_config_doc   *doc = NULL;
    struct tsr_quant_scheme *s = scheme_of(r, SCHEME, &doc);
    struct tsr_model        *m = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    wide_write("llama", folder);
    spoil(folder, "model.layers.1.mlp.gate_proj.weight", true);
    spoil(folder, "model.layers.1.mlp.up_proj.weight", false);
    must(tsr_model_load_streamed(&m, folder, &err.err), &err);
    for (int i = 0; i < 20; i++) {
        struct tsr_loader *l = NULL;
        tsr_status         st = TSR_OK;
        uint64_t           got = 0;
        must(tsr_runtime_loader_open(&l, s, r, m, 0, m->hp.layers, NULL, false, NULL, &err.err),
             &err);
        const struct tsr_engine_source *from = tsr_runtime_loader_source(l);
        for (uint64_t k = 0; k < WIDE_LAYERS * TSR_MODEL_LINEARS && st == TSR_OK; k++) {
            struct tsr_engine_fetched f = { 0 };
            enum tsr_linear_id        id = (enum tsr_linear_id)(k % TSR_MODEL_LINEARS);
            st = from->fetch(from->ctx, k / TSR_MODEL_LINEARS, id, &f, &err.err);
            if (st == TSR_OK)
                from->placed(from->ctx, k / TSR_MODEL_LINEARS, id);
            got = k;
        }
        assert_int_equal(st, TSR_E_INPUT);
        assert_int_equal(got, TSR_MODEL_LINEARS + TSR_MODEL_GATE);
        assert_true(error_is(&err.err, "model.layers.1.mlp.gate_proj", "703 255"));
        tsr_runtime_loader_close(l);
    }
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    wide_free(m, folder);
    golden_registry_close(r, pool);
}

/* A quantizer that asks for statistics is refused with what to do; nothing stays open. */
static void wants_statistics(void **state)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_pool         *pool = NULL;
    struct tsr_registry     *r = golden_registry(1, NULL, &pool);
    char                     folder[64];
    struct tsr_model        *m = wide_load("opt", true, folder);
    struct tsr_config_doc   *doc = NULL;
    struct tsr_quant_scheme *s = scheme_of(r, "use: gptq\nbits: 4\n", &doc);
    struct tsr_loader       *l = NULL;
    (void)state;
    assert_int_equal(tsr_runtime_loader_open(&l, s, r, m, 1, 3, NULL, false, NULL, &err.err),
                     TSR_E_INPUT);
    assert_null(l);
    assert_true(error_is(&err.err, "", "1"));
    for (uint64_t i = 0; i < m->hp.layers; i++)
        assert_null(m->layers[i].lin[TSR_MODEL_Q].w.data);
    tsr_quant_scheme_destroy(s);
    tsr_config_doc_destroy(doc);
    wide_free(m, folder);
    golden_registry_close(r, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(parts),         cmocka_unit_test(same_as_before),
        cmocka_unit_test(first_failure), cmocka_unit_test(wants_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
