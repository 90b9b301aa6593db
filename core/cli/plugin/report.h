/* cli/plugin/report.h - the effect of a quantizer on the bundled model: the part of `tessera plugin check`
 * that reports without a verdict. */
#ifndef TSR_CLI_PLUGIN_REPORT_H
#define TSR_CLI_PLUGIN_REPORT_H

#include "cli/cli.h"

struct tsr_cli_model_report {
    double bits;                    /* per weight */
    double perplexity, original;    /* of the quantized model and of the original */
    double kl, top1;                /* to the original: mean, share of equal first tokens */
    double prefill, decode;         /* tokens per second */
    double prefill_was, decode_was; /* of the original */
    char   failed[2048];            /* why figures are missing, or "" */
};

/* Quantizes @demo by component `name` of the plugin `id` in the file `path` with the --set of c, and
 * measures it, in a process of this program. A failure of the quantizer goes to r->failed; an error means
 * that no temporary folder is available, or Ctrl-C. */
tsr_status tsr_plugin_report(const struct tsr_cli *c, const char *path, const char *id,
                             const char *name, struct tsr_cli_model_report *r, struct tsr_err *err);

#endif
