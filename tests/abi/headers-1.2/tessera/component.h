/* tessera/component.h - component: one quantizer, codec, transport, solver, backend, sampler, step or KV codec of a plugin.
 *
 * The plugin provides it as constant data; strings and tables live as long as the file is loaded.
 * The host reads it to list components, to print --help and to check a job.  It then calls the
 * functions of iface, whose type the kind defines.
 *
 * Example: a codec with one option.
 *
 *     #include "tessera/codec.h"
 *     struct opts { int64_t block; };
 *     static const struct tsr_option options[] = {
 *         TSR_OPTION_INT(struct opts, block, 32, 1, 4096, NULL, "Columns that share a scale."),
 *     };
 *     extern const struct tsr_codec_v1 rows8_table;
 *     const struct tsr_component rows8 = {
 *         .struct_size = sizeof(struct tsr_component), .option_stride = sizeof(struct tsr_option),
 *         .kind = TSR_KIND_CODEC, .name = "rows8", .summary = "Eight bits per value.",
 *         .iface = &rows8_table, .options = options, .n_options = 1,
 *         .options_size = sizeof(struct opts),
 *     };
 */
#ifndef TSR_COMPONENT_H
#define TSR_COMPONENT_H

#include "tessera/option.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tsr_component {
    uint32_t                 struct_size;
    uint32_t                 option_stride; /* sizeof(struct tsr_option) as compiled  */
    const char              *kind;          /* "tessera.quantizer/1"                */
    const char              *name;          /* "rtn"                                 */
    const char              *summary;       /* one sentence                          */
    const void              *iface;         /* the table that kind names             */
    const struct tsr_option *options;
    uint64_t                 n_options;
    uint64_t                 options_size; /* bytes of the plugin's option struct   */
};

#ifdef __cplusplus
}
#endif
#endif
