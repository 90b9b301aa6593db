/* model/family_internal.h - parts of reading a family file: family_read.c for its sections, family_words.c for
 * values, family_tensors.c for the two long tables, family_gguf.c for GGUF files. */
#ifndef TSR_MODEL_FAMILY_INTERNAL_H
#define TSR_MODEL_FAMILY_INTERNAL_H

#include "model/family.h"

#define TSR_COUNT(a) (sizeof(a) / sizeof *(a))

struct tsr_family_reading {
    struct tsr_model_family *f;
    struct tsr_diag         *d; /* takes every error */
};

/* A map into a struct, by a table of options. */
#define TSR_FAMILY_FILL(r, table, node, what, into)                                                \
    tsr_config_options_fill(&(struct tsr_config_optset){ table, TSR_COUNT(table), sizeof *(table), \
                                                         into },                                   \
                            1, NULL, node, what, (r)->d)

/* NULL for "". */
const char *tsr_family_some(const char *s);
/* One of the words; false with an error. */
bool tsr_family_word(struct tsr_family_reading *r, const struct tsr_config_node *n,
                     const char *what, const struct tsr_choice *of, size_t n_of, int64_t *v);
/* A scalar or a list of them into out[cap], which NULL ends; n may be NULL. */
void tsr_family_strings(struct tsr_family_reading *r, const struct tsr_config_node *n,
                        const char *what, const char **out, size_t cap);
/* Index of a flag; -1 for "", and with an error for an unknown name. */
int  tsr_family_flag(struct tsr_family_reading *r, const struct tsr_config_mark *at,
                     const char *name);
bool tsr_family_number(struct tsr_family_reading *r, const struct tsr_config_node *n,
                       const char *what, double *v);
void tsr_family_flags(struct tsr_family_reading *r, const struct tsr_config_node *map);
/* KEY, [KEY, ...] or {key, default, null, form} over what v holds; n may be NULL. */
void tsr_family_value(struct tsr_family_reading *r, const struct tsr_config_node *n,
                      const char *what, bool is_word, struct tsr_model_value *v);

/* family_rules.c: all, none, even, sliding, unrotated, or a map with from, every, except_every, listed, except; n may be
 * NULL. */
void tsr_family_rule(struct tsr_family_reading *r, const struct tsr_config_node *n,
                     const char *what, struct tsr_model_layer_rule *rule);
/* family_latent.c, family_experts.c, family_delta.c: these sections; map may be NULL. */
void tsr_family_latent(struct tsr_family_reading *r, const struct tsr_config_node *map);
void tsr_family_experts(struct tsr_family_reading *r, const struct tsr_config_node *map);
void tsr_family_delta(struct tsr_family_reading *r, const struct tsr_config_node *map);

void tsr_family_config(struct tsr_family_reading *r, const struct tsr_config_node *map);
void tsr_family_tensors(struct tsr_family_reading *r, const struct tsr_config_node *map,
                        const struct tsr_config_mark *at);
/* Index of the part of that name in the family's roles, or -1; *known: it is a part. */
int tsr_family_role(const struct tsr_family_reading *r, const char *part, bool *known);
/* The part of that name, or the nearest one. */
const char *tsr_family_part_near(const char *name);
void        tsr_family_gguf(struct tsr_family_reading *r, const struct tsr_config_node *map);
void        tsr_family_gguf_check(struct tsr_family_reading *r, const struct tsr_config_mark *at);

/* family_check.c: the sections fit together; errors are at the given place. */
void tsr_family_check(struct tsr_family_reading *r, const struct tsr_config_mark *at);

/* family_installed.c: the families that the user installed, sorted by name, in fresh memory.  TSR_E_INPUT is about a file
 * that cannot be read. */
tsr_status tsr_model_family_installed(struct tsr_model_family ***v, uint64_t *n,
                                      struct tsr_err *err);

#endif
