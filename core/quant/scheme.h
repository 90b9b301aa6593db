/* quant/scheme.h - the plugin and options for each linear.
 *
 *   quantize:
 *     use: rtn                 a plugin's name; its options are keys of the same map
 *     bits: 4
 *     sequential: true         statistics after the packed layers, not the original ones
 *     rules:                   later rules win, option by option
 *       - {layers: 4-27, bits: 3}
 *       - {tensors: "*.down_proj", use: int8}
 *       - {experts: "0-3,7", bits: 8}       of each layer that has experts
 *       - {tensors: lm_head, keep: true}
 *
 * Names are the canonical ones of model.h.  Head and embedding are quantized only if a rule gives their full
 * name: `tensors: lm_head`, `tensors: model.embed_tokens`.  A rule with another `use` starts from that plugin's
 * own defaults.
 */
#ifndef TSR_QUANT_SCHEME_H
#define TSR_QUANT_SCHEME_H

#include "config/config.h"
#include "quant/quant.h"

struct tsr_quant_scheme;

/* The keys of a scheme that are not plugin options. */
struct tsr_quant_scheme_keys {
    const char                   *use;
    const struct tsr_config_node *rules;
    int64_t                       on_unsupported;
    int32_t                       sequential;
};
/* The same for a struct S that begins with the keys; need: TSR_OPT_REQUIRED, or 0 where the caller finds
 * `use` otherwise, and text says where. */
extern const struct tsr_choice tsr_unsupported_choices[2];
#define TSR_SCHEME_OPTION_LIST(S, k, need, text)                                                   \
    { .name = "use",                                                                               \
      .help = text,                                                                                \
      .type = TSR_OPT_STRING,                                                                      \
      .flags = need,                                                                               \
      .offset = TSR_FIELD(S, k use, const char *),                                                 \
      .def = { .s = "" } },                                                                        \
        { .name = "rules",                                                                         \
          .help = "Exceptions by layer or name; later ones win.",                                  \
          .type = TSR_OPT_NODE,                                                                    \
          .offset = TSR_FIELD(S, k rules, const struct tsr_config_node *) },                       \
        { .name = "on_unsupported",                                                                \
          .help = "What to do with a linear that the plugin cannot quantize.",                     \
          .type = TSR_OPT_ENUM,                                                                    \
          .offset = TSR_FIELD(S, k on_unsupported, int64_t),                                       \
          .choices = tsr_unsupported_choices,                                                      \
          .n_choices = 2 },                                                                        \
    {                                                                                              \
        .name = "sequential",                                                                      \
        .help = "Take a layer's statistics after the layers before it are quantized.",             \
        .type = TSR_OPT_BOOL, .offset = TSR_FIELD(S, k sequential, int32_t)                        \
    }

/* Reads and checks a map; every error goes to d, and *s is NULL if there is any.  The registry and
 * the map's doc must outlive the scheme.  keys: filled by the caller with TSR_SCHEME_OPTION_LIST, or
 * NULL to fill them here.  what: "step 'quantize'". */
tsr_status tsr_quant_scheme_create(struct tsr_quant_scheme **s, struct tsr_registry *r,
                                   const struct tsr_config_node       *map,
                                   const struct tsr_quant_scheme_keys *keys, const char *what,
                                   struct tsr_diag *d, struct tsr_err *err);
void       tsr_quant_scheme_destroy(struct tsr_quant_scheme *s);

/* Quantizes the linears of a model.  TSR_E_INPUT, with the place: a rule that matches no linear; a
 * statistic that a plugin needs and calibration (may be NULL) lacks.  Linears of one site that
 * share plugin and options share one prepare(). */
tsr_status tsr_quant_scheme_apply(struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, struct tsr_quant_calibration *c,
                                  struct tsr_model_overlay **o, struct tsr_err *err);

/* All TSR_NEED_* that tsr_quant_scheme_apply() will ask for.  A rule that matches no linear is
 * TSR_E_INPUT here already. */
tsr_status tsr_quant_scheme_needs(struct tsr_quant_scheme *s, struct tsr_registry *r,
                                  const struct tsr_model *m, uint64_t *need, struct tsr_err *err);

/* True if name matches pattern: '*' any run of characters, '?' one, '[a-c]' and '[!a-c]' sets.
 * Takes time in the product of the lengths at most. */
bool tsr_quant_name_matches(const char *pattern, const char *name);

#endif
