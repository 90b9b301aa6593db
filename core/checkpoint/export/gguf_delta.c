/* Metadata of a GGUF file with layers of the gated delta rule, and their numbers and columns as llama.cpp has them. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"

#include <math.h>
#include <string.h>

static const char *in_arch(const char *arch, const char *name, char text[96])
{
    (void)snprintf(text, 96, "%s.%s", arch, name);
    return text;
}

/* Three sections of the rotated columns, which a text's three positions take in turns. */
static void put_sections(const struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                         const char *arch)
{
    char     text[96];
    uint32_t n = x->m->hp.rope.dim / 2;
    tsr_export_gguf_key_array(b, in_arch(arch, "rope.dimension_sections", text), TSR_GGUF_OUT_I32,
                              4);
    for (uint32_t i = 0; i < 4; i++)
        tsr_export_gguf_add_u32(b, i < 3 ? (n + 2 - i) / 3 : 0);
}

tsr_status tsr_export_gguf_put_delta(struct tsr_export *x, struct tsr_export_gguf_bytes *b,
                                     const char *arch)
{
    const struct tsr_model_hparams *hp = &x->m->hp;
    const struct tsr_model_delta   *d = &hp->delta;
    char                            text[96];
    uint64_t                        interval = 0;
    if (x->m->storage->family->gguf.sections)
        put_sections(x, b, arch);
    if (!hp->recurrent)
        return TSR_OK;
    if (d->key_dim != d->value_dim)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: heads of the delta rule of %s have keys of %u and values of %u, which "
                        "llama.cpp takes to be equal; export to hf",
                        x->path, x->m->path, d->key_dim, d->value_dim);
    const struct {
        const char *name;
        uint64_t    v;
    } sizes[] = { { "ssm.conv_kernel", d->kernel },
                  { "ssm.state_size", d->key_dim },
                  { "ssm.group_count", d->key_heads },
                  { "ssm.time_step_rank", d->value_heads },
                  { "ssm.inner_size", (uint64_t)d->value_heads * d->value_dim } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tsr_export_gguf_key_u32(b, in_arch(arch, sizes[i].name, text), sizes[i].v);
    tsr_export_gguf_key_array(b, in_arch(arch, "attention.recurrent_layers", text), TSR_GGUF_BOOL,
                              hp->layers);
    for (uint64_t l = 0; l < hp->layers; l++) {
        unsigned char is = hp->recurrent[l];
        interval = !is && interval == 0 ? l + 1 : interval;
        tsr_export_gguf_add(b, &is, 1);
    }
    /* for older programs, which do not read the list */
    for (uint64_t l = 0; l < hp->layers && interval; l++)
        if (hp->recurrent[l] != ((l + 1) % interval != 0))
            interval = 0;
    if (interval)
        tsr_export_gguf_key_u32(b, in_arch(arch, "full_attention_interval", text), interval);
    return TSR_OK;
}

float tsr_export_gguf_number(const struct tsr_gguf_map *map, float v)
{
    return map->decay ? (float)-exp((double)v) : map->offset != 0 ? v + map->offset : v;
}

void tsr_export_gguf_turn_columns(const struct tsr_gguf_map *map, uint64_t cols, void *row,
                                  void *room, uint64_t each, uint64_t bytes)
{
    memcpy(room, row, cols / each * bytes);
    for (uint64_t i = 0; i < cols / each; i++)
        memcpy((char *)row + i * bytes,
               (char *)room + tsr_gguf_row_back(map, cols, i * each) / each * bytes, bytes);
}

bool tsr_export_gguf_is_turned(const struct tsr_gguf_map *map, const struct tsr_export_module *m)
{
    bool same = m->order != NULL;
    for (uint64_t c = 0; same && c < m->v->cols; c++)
        same = m->order[c] == tsr_gguf_row_back(map, m->v->cols, c);
    return same;
}
