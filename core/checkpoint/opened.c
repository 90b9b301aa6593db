/* An open model: what it is not fit for, its texts, its end. */
#include "model/model.h"

#include "base/mem.h"
#include "checkpoint/import/import.h"
#include "checkpoint/prepacked/prepacked.h"
#include "checkpoint/texts.h"

#include <stdlib.h>
#include <string.h>

tsr_status tsr_model_plain(const struct tsr_model *m, const char *what, struct tsr_err *err)
{
    if (!m->prepacked)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: is a prepacked file: it runs, but its weights cannot be %s; use the model "
                    "that it was made from",
                    m->path, what);
}

tsr_status tsr_model_plain_attention(const struct tsr_model *m, const char *what,
                                     struct tsr_err *err)
{
    const char *has = m->hp.latent.rank ? "latent attention"
                      : m->hp.recurrent ? "the gated delta rule"
                      : m->hp.attn_gate ? "gates of attention"
                                        : NULL;
    return has ? tsr_fail(err, TSR_E_INPUT, "%s: its layers have %s, which %s", m->path, has, what)
               : TSR_OK;
}

void tsr_model_destroy(struct tsr_model *m)
{
    if (!m)
        return;
    if (m->prepacked)
        tsr_prepacked_close(m->prepacked);
    free(m->prepacked);
    tsr_sealed_destroy(&m->storage->sealed);
    tsr_model_layers_free(m->storage, m->hp.layers);
    tsr_checkpoint_shards_close(&m->storage->shards);
    tsr_model_overlay_destroy(m->packed);
    free(m->storage->floats);
    free(m->storage->names);
    free(m->storage->path);
    free(m->storage->folder);
    free(m->storage->config);
    free(m->storage);
    tsr_model_hparams_free(&m->hp);
    tsr_model_layers_destroy(m->layers);
    free(m);
}

tsr_status tsr_model_text_unchanged(const struct tsr_model *m, const char *name,
                                    struct tsr_err *err)
{
    const struct tsr_model_storage *s = m->storage;
    if (!s || !s->folder || m->prepacked)
        return TSR_OK;
    return tsr_model_text_stamps_check(&s->stamps, s->folder, name, err);
}

tsr_status tsr_model_text_list(const struct tsr_model *m, struct tsr_model_text_list *l,
                               struct tsr_err *err)
{
    const struct tsr_model_storage *s = m->storage;
    return s && s->folder ? tsr_checkpoint_text_list(s->folder, l, err) : TSR_OK;
}

tsr_status tsr_model_text(const struct tsr_model *m, const char *name, char **text, uint64_t *len,
                          struct tsr_err *err)
{
    const struct tsr_model_storage *s = m->storage;
    *text = NULL;
    *len = 0;
    if (!s || !s->folder)
        return TSR_OK;
    if (s->config && strcmp(name, "config.json") == 0) { /* of a GGUF file */
        *text = tsr_strdup(s->config);
        *len = s->config_len;
        return *text ? TSR_OK : tsr_fail_nomem(err, s->config_len, s->folder);
    }
    if (m->prepacked)
        return tsr_prepacked_text(m->prepacked, name, text, len, err);
    TSR_TRY(tsr_model_text_unchanged(m, name, err));
    TSR_TRY(tsr_checkpoint_text_read(s->folder, name, TSR_TEXT_MAX, text, len, NULL, err));
    tsr_status st = tsr_model_text_unchanged(m, name, err);
    if (st != TSR_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}
