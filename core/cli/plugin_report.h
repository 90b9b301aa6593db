/* cli/plugin_report.h - what a quantizer does to the bundled model: part of `tessera plugin check`
 * that tells and does not judge. */
#ifndef TSR_CLI_PLUGIN_REPORT_H
#define TSR_CLI_PLUGIN_REPORT_H

#include "cli/cli.h"

struct tsr_model_report {
    double bits;                    /* per weight */
    double perplexity, original;    /* of the quantized model and of the original */
    double kl, top1;                /* to the original: mean, share of equal first tokens */
    double prefill, decode;         /* tokens per second */
    double prefill_was, decode_was; /* of the original */
    char   failed[2048];            /* why there are no figures, or "" */
};

/* Quantizes @demo by component `name` of the plugin `id` in the file `path` with the --set of c, and
 * measures it, in a process of this program.  That this does not work is r->failed; an error is a
 * temporary folder that cannot be had, or Ctrl-C. */
tsr_status tsr_plugin_report(const struct tsr_cli *c, const char *path, const char *id,
                             const char *name, struct tsr_model_report *r, struct tsr_err *err);

#endif
