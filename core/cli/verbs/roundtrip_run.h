/* cli/verbs/roundtrip_run.h - implementation of `tessera roundtrip`. */
#ifndef TSR_CLI_VERBS_ROUNDTRIP_RUN_H
#define TSR_CLI_VERBS_ROUNDTRIP_RUN_H

#include "checkpoint/safetensors/safetensors.h"
#include "config/config.h"
#include "plugin/spec.h"
#include "tessera/codec.h"
#include "tessera/quantizer.h"

struct roundtrip_item {
    const char                          *name; /* borrowed from the input's header */
    const struct tsr_safetensors_tensor *tensor;
    uint64_t                             rows, cols;
    double                               bits; /* as stored */
    double                               squared_error, relative_error;
    char                                 format[64]; /* "" for a codec */
};

struct roundtrip {
    struct tsr_registry   *registry;
    bool                   codec;
    struct tsr_plugin_spec spec;
    struct tsr_safetensors in;
    bool                   in_open;
    struct roundtrip_item *items; /* the 2-D tensors that are not statistics */
    uint64_t               n;
};

/* "rtn:bits=4,group=-1" and the input file. */
tsr_status roundtrip_open(struct roundtrip *rt, const char *spec, const char *path,
                          struct tsr_err *err);
tsr_status roundtrip_run(struct roundtrip *rt, const char *output, struct tsr_err *err);
void       roundtrip_close(struct roundtrip *rt);

#endif
