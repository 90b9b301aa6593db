/* model/config.h - config.json of a model, read as its family says.  Private to model, the folders of
 * checkpoint, and plan/cost/shape.c, which asks it for sizes. */
#ifndef TSR_MODEL_CONFIG_H
#define TSR_MODEL_CONFIG_H

#include "base/json.h"
#include "model/family.h"

/* Keys that the family reads: config.json has it, or its default counts. */
enum tsr_model_key_use { TSR_MODEL_KEY_USED, TSR_MODEL_KEY_DEFAULT };

struct tsr_model_key {
    const char            *name; /* lives as long as the family */
    enum tsr_model_key_use use;
};
#define TSR_CONFIG_KEYS 96

struct tsr_model_config {
    const struct tsr_model_family *family;
    const char                    *text; /* key of the object whose keys were read; NULL: the top */
    struct tsr_model_hparams       hp;
    uint64_t                       has;                   /* TSR_HAS_* */
    json_t                        *quantization;          /* quantization_config, or NULL; owned */
    struct tsr_model_key           keys[TSR_CONFIG_KEYS]; /* those read, in their order */
    unsigned                       n_keys;
};

/* Parses config.json from text; name is for messages.  Frees its memory on failure. */
tsr_status tsr_model_config_parse(struct tsr_model_config *c, const char *name, const char *json,
                                  uint64_t len, struct tsr_err *err);
/* generation_config.json on top: its bos and eos win. */
tsr_status tsr_model_generation_parse(struct tsr_model_config *c, const char *name,
                                      const char *json, uint64_t len, struct tsr_err *err);
void       tsr_model_config_free(struct tsr_model_config *c);
/* Frees what hparams own. */
void tsr_model_hparams_free(struct tsr_model_hparams *hp);
/* The configuration of a loaded model, borrowed from it; without quantization and keys. */
struct tsr_model_config tsr_model_config(const struct tsr_model *m);

#endif
