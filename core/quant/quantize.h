/* quant/quantize.h - quantizes a model layer by layer into a folder, so that one layer at a time
 * is in memory in full precision, and what was done survives a kill.
 *
 *   fingerprint.json -> for every layer: journal, layer file -> the rest of packed_model.h
 *
 * A layer whose file is there is done.  Run again with the same fingerprint, the folder gets the
 * same bytes as from a run that nobody disturbed.
 */
#ifndef TSR_QUANT_QUANTIZE_H
#define TSR_QUANT_QUANTIZE_H

#include "model/packed_model.h"
#include "quant/scheme_run.h"

struct tsr_quantize_options {
    const char             *folder;      /* of the packed model; made where it is missing */
    const struct tsr_node  *options;     /* the map that the scheme was read from */
    struct tsr_calibration *calibration; /* or NULL */
    bool                    again;       /* what an earlier run left in the folder goes first */
    bool drop; /* keep of a packed layer its description only, once it is written */
};

/* Quantizes m into the folder and finishes it as a packed model.  *o: what was packed; with drop
 * its matrices have no bytes (codes, meta and dense are NULL), only shape, format and report.  A
 * folder with another fingerprint is TSR_E_INPUT naming what differs; *done counts the layers that
 * were there already.  [setup] */
tsr_status tsr_quantize_model(const struct tsr_scheme *s, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_quantize_options *opt,
                              struct tsr_overlay **o, uint64_t *done, struct tsr_err *err);

/* ---- what a run is of (resume.c) ------------------------------------------------- */

/* New reference: version, hashes of model and calibration (may be NULL), options, plugins. */
tsr_status tsr_fingerprint_make(const struct tsr_scheme *s, struct tsr_registry *r,
                                const struct tsr_model *m, const struct tsr_calibration *c,
                                const struct tsr_node *options, json_t **out, struct tsr_err *err);
/* Writes it into the folder, or compares it with the one that is there.  hash: of its text. */
tsr_status tsr_fingerprint_open(const char *folder, const json_t *print, char hash[TSR_HASH_TEXT],
                                struct tsr_err *err);
/* Whether a run has left a layer in its folder. */
tsr_status tsr_packed_model_begun(const char *folder, const struct tsr_model *m, bool *begun,
                                  struct tsr_err *err);
/* Removes what a run leaves in its folder. */
tsr_status tsr_packed_model_forget(const char *folder, const struct tsr_model *m,
                                   struct tsr_err *err);
/* Seconds per linear, which are no part of a layer's file: they differ from run to run. */
tsr_status tsr_journal_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                             const struct tsr_overlay *o, struct tsr_err *err);
tsr_status tsr_journal_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                            struct tsr_overlay *o, struct tsr_err *err);

/* ---- memory (memory.c) ------------------------------------------------------------ */

/* Most bytes in use in each phase, for a streamed model. */
struct tsr_quantize_memory {
    uint64_t process;   /* in use before anything begins: program, tokenizer, resident weights */
    uint64_t calibrate; /* beyond it */
    uint64_t quantize;
    uint64_t finish;
    uint64_t peak; /* process and the largest phase */
};
tsr_status tsr_quantize_memory(const struct tsr_scheme *s, struct tsr_registry *r,
                               const struct tsr_model             *m,
                               const struct tsr_calibrate_options *calibrate, /* or NULL */
                               struct tsr_quantize_memory *out, struct tsr_err *err);
/* Bytes that the process has in memory now, and the most it ever had. */
uint64_t tsr_memory_now(void);
uint64_t tsr_memory_peak(void);

#endif
