/* report/report.h - a job's results (docs/formats/results.md) as one standalone HTML page: no script, no
 * font, no other file. Plots are inline SVG in the page's own colours, light or dark as the reader's
 * system sets it. */
#ifndef TSR_REPORT_REPORT_H
#define TSR_REPORT_REPORT_H

#include "base/output.h"

#include <jansson.h>

/* The header above the results. */
struct tsr_report_head {
    const char *model; /* as the job names it */
    uint64_t    seed;
    const char *family, *hash; /* NULL: no model was loaded */
    uint64_t    parameters;
};

/* results: the object of that name in results.json. A missing field, or one of another type, omits its
 * part of the page. Errors stick to the writer, including ENOMEM. */
void tsr_report_page(struct tsr_writer *w, const struct tsr_report_head *head,
                     const json_t *results);

/* A chart of this program and a peer, as a separate SVG file. peers: tessera.peers/1, an object with
 * `speed` (title, ours, peer, rows of name, ours, peer, ratio) and `quality` (title, from_bits, two series
 * of name and points of name, bits_per_weight, perplexity). TSR_E_INPUT: another format. */
tsr_status tsr_report_peers(struct tsr_writer *w, const json_t *peers, struct tsr_err *err);

/* Shares of the peak of weight formats, for one token and for many, as a separate SVG file. rows: what `tessera bench
 * --json` prints (docs/formats/bench.md); others than gemv and gemm are left out. TSR_E_INPUT: none of these. */
tsr_status tsr_report_shares(struct tsr_writer *w, const json_t *rows, struct tsr_err *err);

#endif
