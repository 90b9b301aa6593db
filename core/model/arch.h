/* model/arch.h - the model families: one table whose rows say how config.json becomes
 * hparams and which stored tensor becomes which part.  Private to the folders of checkpoint and to
 * plan/cost/shape.c, which asks it for sizes.
 *
 *   config.json --tsr_model_config_parse--> tsr_config {row, hparams, has}
 *   row.roles   --bind.c-->           the parts of struct tsr_model
 */
#ifndef TSR_MODEL_ARCH_H
#define TSR_MODEL_ARCH_H

#include "base/json.h"
#include "model/model.h"

/* What a stored tensor contains.  *_ROWS: several matrices, one below the other; QKV_HEADS: rows
 * are ordered [head][q,k,v][head_dim] and are split by copying. */
// clang-format off
enum tsr_model_part {
    TSR_MODEL_PART_EMBED, TSR_MODEL_PART_POSITIONS, TSR_MODEL_PART_EMBED_NORM, TSR_MODEL_PART_FINAL_NORM,
    TSR_MODEL_PART_PROJECT_IN, TSR_MODEL_PART_PROJECT_OUT, TSR_MODEL_PART_HEAD,
    TSR_MODEL_PART_LINEAR, TSR_MODEL_PART_QKV_ROWS, TSR_MODEL_PART_QKV_HEADS, TSR_MODEL_PART_GATE_UP_ROWS,
    TSR_MODEL_PART_ATTN_IN, TSR_MODEL_PART_ATTN_OUT, TSR_MODEL_PART_FFN_IN, TSR_MODEL_PART_FFN_OUT
};
// clang-format on

/* What this config has; a role's weight or bias exists when all its bits are set. */
#define TSR_HAS_ALWAYS     0u
#define TSR_HAS_QKV_BIAS   1u
#define TSR_HAS_O_BIAS     2u
#define TSR_HAS_MLP_BIAS   4u
#define TSR_HAS_FINAL_NORM 8u
#define TSR_HAS_PROJECTION 16u
#define TSR_HAS_AFFINE     32u /* norms have gains and biases */
#define TSR_HAS_HEAD       64u /* the output head is stored, not tied */
#define TSR_HAS_NEVER      0x80000000u

/* NAME.weight and NAME.bias; '#' in name is replaced by the layer number. */
struct tsr_model_role {
    const char         *name;
    enum tsr_model_part part;
    enum tsr_linear_id  lin;          /* TSR_MODEL_PART_LINEAR only */
    uint32_t            weight, bias; /* TSR_HAS_* that each needs */
    bool                bare;         /* name excludes the prefix */
};

struct tsr_model_config;
struct tsr_model_config_source { /* config.json while it is read */
    const json_t   *json;
    const char     *name; /* the file, for messages */
    struct tsr_err *err;
};

/* A row.  The defaults are those of the reference implementation for an absent key. */
struct tsr_model_arch {
    struct tsr_model_family family;
    const char             *base; /* architecture of a checkpoint without head */
    tsr_status (*config)(const struct tsr_model_config_source *s, struct tsr_model_config *c);
    const char                  *prefixes[2]; /* tried in order */
    const struct tsr_model_role *roles;
    uint32_t                     n_roles;
    const char *const           *ignored; /* names, as in roles with suffix; NULL-terminated */
    struct {
        int64_t kv_heads;          /* 0: as many as heads */
        int64_t head_dim;          /* 0: hidden / heads */
        int64_t positions, window; /* window 0: none */
        double  eps;
        int64_t bos, eos; /* -1: none */
        bool    tied;
    } def;
};

struct tsr_model_config {
    const struct tsr_model_arch *arch;
    struct tsr_model_hparams     hp;
    uint32_t                     has;
    json_t                      *quantization; /* quantization_config, or NULL; owned */
};

const struct tsr_model_arch *tsr_model_arch_table(uint32_t *n);

/* Parses config.json from text; name is for messages.  Frees its memory on failure. */
tsr_status tsr_model_config_parse(struct tsr_model_config *c, const char *name, const char *json,
                                  uint64_t len, struct tsr_err *err);
/* generation_config.json on top: its bos and eos win. */
tsr_status tsr_model_generation_parse(struct tsr_model_config *c, const char *name,
                                      const char *json, uint64_t len, struct tsr_err *err);
void       tsr_model_config_free(struct tsr_model_config *c);
/* The configuration of a loaded model, borrowed from it; without quantization. */
struct tsr_model_config tsr_model_config(const struct tsr_model *m);

/* Rotary embedding from both styles of config; hp->head_dim and max_positions are set.
 * phi3: a part of the head may rotate, and only long rope scales. */
tsr_status tsr_model_config_rope(const struct tsr_model_config_source *s,
                                 struct tsr_model_hparams *hp, bool phi3);

/* config callbacks of the rows */
tsr_status tsr_model_config_llama(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c);
tsr_status tsr_model_config_mistral(const struct tsr_model_config_source *s,
                                    struct tsr_model_config              *c);
tsr_status tsr_model_config_qwen2(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c);
tsr_status tsr_model_config_gemma2(const struct tsr_model_config_source *s,
                                   struct tsr_model_config              *c);
tsr_status tsr_model_config_phi3(const struct tsr_model_config_source *s,
                                 struct tsr_model_config              *c);
tsr_status tsr_model_config_opt(const struct tsr_model_config_source *s,
                                struct tsr_model_config              *c);
tsr_status tsr_model_config_bloom(const struct tsr_model_config_source *s,
                                  struct tsr_model_config              *c);

/* True if name is pattern with a decimal number in place of '#'. */
bool tsr_model_tensor_name_matches(const char *pattern, const char *name);

#endif
