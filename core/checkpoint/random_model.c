#include "checkpoint/random_model.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/held.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SIZE  (UINT64_C(1) << 24) /* of one side */
#define BLOCK     (UINT64_C(1) << 21) /* elements made before they are written */
#define GRAIN     (UINT64_C(1) << 15)
#define DEVIATION 0.02f

/* One pass declares, the other writes: both walk the same list. */
struct maker {
    const struct tsr_checkpoint_random_shape *s;
    uint64_t                                  head_dim, q, kv;
    struct tsr_st_out                        *out;
    struct tsr_pool                          *pool;
    void                                     *block;
    bool                                      writing;
    uint64_t                                  ordinal;
    struct tsr_err                           *err;
};

struct piece {
    void    *dst;
    uint32_t dtype;
    uint64_t key, first;
};

/* SplitMix64's finaliser: every output bit depends on every input bit. */
static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Four uniform 16-bit numbers: the sum has variance (65536^2 - 1) / 3. */
static inline float draw(uint64_t key, uint64_t index)
{
    uint64_t r = mix(key + index * UINT64_C(0x9e3779b97f4a7c15));
    int32_t  sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
    return (float)(sum - 131070) * (DEVIATION * 1.7320508f / 65536.0f);
}

static tsr_status fill(void *arg, uint64_t begin, uint64_t end)
{
    const struct piece *p = arg;
    float              *f = p->dst;
    uint16_t           *h = p->dst;
    if (p->dtype == TSR_F32) {
        for (uint64_t i = begin; i < end; i++)
            f[i] = draw(p->key, p->first + i);
    } else if (p->dtype == TSR_BF16) {
        for (uint64_t i = begin; i < end; i++)
            h[i] = tsr_f32_bf16(draw(p->key, p->first + i));
    } else {
        for (uint64_t i = begin; i < end; i++)
            h[i] = tsr_f32_f16(draw(p->key, p->first + i));
    }
    return TSR_OK;
}

static tsr_status matrix(struct maker *m, const char *name, uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = { rows, cols };
    uint64_t       n = rows * cols, size = tsr_dtype_size(m->s->dtype);
    if (!m->writing) {
        return m->out ? tsr_safetensors_declare(m->out, name, m->s->dtype, 2, shape, m->err)
                      : TSR_OK;
    }
    uint64_t key = mix(mix(m->s->seed) + ++m->ordinal);
    for (uint64_t at = 0; at < n; at += BLOCK) {
        uint64_t     count = n - at < BLOCK ? n - at : BLOCK;
        struct piece p = { m->block, m->s->dtype, key, at };
        TSR_TRY(tsr_pool_for(m->pool, count, GRAIN, fill, &p));
        tsr_safetensors_put(m->out, m->block, count * size);
    }
    return TSR_OK;
}

static tsr_status norm(struct maker *m, const char *name)
{
    uint64_t n = m->s->hidden;
    if (!m->writing) {
        return m->out ? tsr_safetensors_declare(m->out, name, TSR_F32, 1, &n, m->err) : TSR_OK;
    }
    static const float one = 1.0f;
    for (uint64_t i = 0; i < n; i++)
        tsr_safetensors_put(m->out, &one, sizeof one);
    return TSR_OK;
}

static tsr_status walk(struct maker *m)
{
    const struct tsr_checkpoint_random_shape *s = m->s;
    TSR_TRY(matrix(m, "model.embed_tokens.weight", s->vocab, s->hidden));
    for (uint64_t l = 0; l < s->layers; l++) {
        const struct {
            const char *name;
            uint64_t    rows, cols; /* rows 0: a norm */
        } parts[] = {
            { "input_layernorm", 0, 0 },
            { "self_attn.q_proj", m->q, s->hidden },
            { "self_attn.k_proj", m->kv, s->hidden },
            { "self_attn.v_proj", m->kv, s->hidden },
            { "self_attn.o_proj", s->hidden, m->q },
            { "post_attention_layernorm", 0, 0 },
            { "mlp.gate_proj", s->ffn, s->hidden },
            { "mlp.up_proj", s->ffn, s->hidden },
            { "mlp.down_proj", s->hidden, s->ffn },
        };
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "model.layers.%llu.%s.weight", (unsigned long long)l,
                           parts[i].name);
            TSR_TRY(parts[i].rows ? matrix(m, name, parts[i].rows, parts[i].cols) : norm(m, name));
        }
    }
    TSR_TRY(norm(m, "model.norm.weight"));
    return s->tied ? TSR_OK : matrix(m, "lm_head.weight", s->vocab, s->hidden);
}

static tsr_status check(struct maker *m)
{
    const struct tsr_checkpoint_random_shape *s = m->s;
    const struct {
        const char *name;
        uint64_t    v;
    } sizes[] = {
        { "vocab", s->vocab },
        { "hidden", s->hidden },
        { "layers", s->layers },
        { "ffn", s->ffn },
        { "heads", s->heads },
        { "kv_heads", s->kv_heads },
        { "max_positions", s->max_positions },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].v < 1 || sizes[i].v > MAX_SIZE)
            return tsr_fail(m->err, TSR_E_INPUT, "random model: %s is %llu; 1 to %llu are possible",
                            sizes[i].name, (unsigned long long)sizes[i].v,
                            (unsigned long long)MAX_SIZE);
    if (s->heads % s->kv_heads != 0 || (s->head_dim == 0 && s->hidden % s->heads != 0))
        return tsr_fail(
            m->err, TSR_E_INPUT,
            "random model: %llu heads must divide into %llu key-value heads, and hidden "
            "size %llu into the heads",
            (unsigned long long)s->heads, (unsigned long long)s->kv_heads,
            (unsigned long long)s->hidden);
    m->head_dim = s->head_dim ? s->head_dim : s->hidden / s->heads;
    if (m->head_dim % 2 != 0 || m->head_dim > MAX_SIZE || s->heads * m->head_dim > MAX_SIZE)
        return tsr_fail(m->err, TSR_E_INPUT,
                        "random model: a head of %llu; it must be even, all heads at most %llu",
                        (unsigned long long)m->head_dim, (unsigned long long)MAX_SIZE);
    if (s->dtype != TSR_F32 && s->dtype != TSR_F16 && s->dtype != TSR_BF16)
        return tsr_fail(m->err, TSR_E_INPUT, "random model: dtype must be F32, F16 or BF16");
    m->q = s->heads * m->head_dim;
    m->kv = s->kv_heads * m->head_dim;
    /* an upper bound of all elements, so that no product below overflows */
    double total = (double)s->layers *
                       ((double)m->q * 2 + (double)m->kv * 2 + (double)s->ffn * 3 + 2) *
                       (double)s->hidden +
                   (double)s->vocab * 2 * (double)s->hidden;
    if (!(total < 1e15))
        return tsr_fail(m->err, TSR_E_INPUT, "random model: more than 10^15 parameters");
    return TSR_OK;
}

static tsr_status write_config(const char *folder, const struct maker *m)
{
    static const char *const                  dtypes[] = { "", "float32", "float16", "bfloat16" };
    const struct tsr_checkpoint_random_shape *s = m->s;
    struct tsr_writer                         w;
    char                                     *path = tsr_path_join(folder, "config.json");
    if (!path)
        return tsr_fail_nomem(m->err, strlen(folder), folder);
    tsr_status st = tsr_writer_open(&w, path, m->err);
    free(path);
    if (st != TSR_OK)
        return st;
    tsr_writer_printf(&w,
                      "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n"
                      "  \"model_type\": \"llama\",\n  \"vocab_size\": %llu,\n"
                      "  \"hidden_size\": %llu,\n  \"intermediate_size\": %llu,\n"
                      "  \"num_hidden_layers\": %llu,\n  \"num_attention_heads\": %llu,\n"
                      "  \"num_key_value_heads\": %llu,\n  \"head_dim\": %llu,\n"
                      "  \"max_position_embeddings\": %llu,\n  \"hidden_act\": \"silu\",\n"
                      "  \"rms_norm_eps\": 1e-05,\n  \"rope_theta\": 10000.0,\n"
                      "  \"tie_word_embeddings\": %s,\n  \"bos_token_id\": null,\n"
                      "  \"eos_token_id\": null,\n  \"torch_dtype\": \"%s\"\n}\n",
                      (unsigned long long)s->vocab, (unsigned long long)s->hidden,
                      (unsigned long long)s->ffn, (unsigned long long)s->layers,
                      (unsigned long long)s->heads, (unsigned long long)s->kv_heads,
                      (unsigned long long)m->head_dim, (unsigned long long)s->max_positions,
                      s->tied ? "true" : "false", dtypes[s->dtype]);
    return tsr_writer_commit(&w, m->err);
}

static tsr_status write_weights(const char *folder, struct maker *m)
{
    char *path = tsr_path_join(folder, "model.safetensors");
    if (!path)
        return tsr_fail_nomem(m->err, strlen(folder), folder);
    tsr_status st = tsr_safetensors_create(&m->out, path, m->err);
    free(path);
    if (st != TSR_OK)
        return st;
    st = tsr_safetensors_metadata(m->out, "format", "pt", m->err);
    if (st == TSR_OK)
        st = walk(m);
    if (st == TSR_OK)
        st = tsr_safetensors_begin(m->out, m->err);
    m->writing = true;
    if (st == TSR_OK)
        st = walk(m);
    if (st == TSR_OK)
        return tsr_safetensors_commit(m->out, m->err);
    tsr_safetensors_abort(m->out);
    return st;
}

tsr_status tsr_checkpoint_random_model_write(const char                               *folder,
                                             const struct tsr_checkpoint_random_shape *shape,
                                             struct tsr_pool *pool, struct tsr_err *err)
{
    struct maker m = { .s = shape, .pool = pool, .err = err };
    TSR_TRY(check(&m));
    int lock;
    TSR_TRY(tsr_output_lock_folder(&lock, folder, err));
    m.block = tsr_new_aligned(BLOCK, sizeof(float));
    /* config.json last: a folder with it is whole */
    tsr_status st = m.block ? write_weights(folder, &m)
                            : tsr_fail_nomem(err, BLOCK * sizeof(float), "a random model");
    if (st == TSR_OK)
        st = write_config(folder, &m);
    free(m.block);
    (void)tsr_held_close(lock);
    return st;
}
