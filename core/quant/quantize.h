/* quant/quantize.h - quantizes a model layer by layer into a folder, with one layer at a time in
 * memory in full precision.  A killed run can resume.
 *
 *   fingerprint.json -> for every layer: journal, layer file -> the rest of packed_model.h
 *
 * A layer whose file exists is done.  A resumed run with the same fingerprint produces the same
 * bytes as an uninterrupted one.
 */
#ifndef TSR_QUANT_QUANTIZE_H
#define TSR_QUANT_QUANTIZE_H

#include "checkpoint/packed/packed_model.h"
#include "quant/scheme_run.h"

struct tsr_quantize_options {
    const char                   *folder;      /* of the packed model; created if missing */
    const struct tsr_config_node *options;     /* the map that the scheme was read from */
    struct tsr_quant_calibration *calibration; /* or NULL */
    bool                          again;       /* first removes the files of an earlier run from the
                                          * folder */
    bool drop; /* keep only the description of a packed layer once it is written */
};

/* Quantizes m into the folder and finishes it as a packed model.  *o: what was packed; with drop
 * its matrices have no bytes (codes, meta and dense are NULL), only shape, format and report.  A
 * folder with another fingerprint is TSR_E_INPUT naming what differs; *done counts the layers that
 * were there already.  [setup] */
tsr_status tsr_quantize_model(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                              const struct tsr_model *m, const struct tsr_quantize_options *opt,
                              struct tsr_model_overlay **o, uint64_t *done, struct tsr_err *err);

/* ---- the identity of a run (resume.c) ------------------------------------------------- */

/* New reference: version, hashes of model and calibration (may be NULL), options, plugins. */
tsr_status tsr_quant_fingerprint_make(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                                      const struct tsr_model             *m,
                                      const struct tsr_quant_calibration *c,
                                      const struct tsr_config_node *options, json_t **out,
                                      struct tsr_err *err);
/* Writes it into the folder, or compares it with the one that is there.  hash: of its text. */
tsr_status tsr_quant_fingerprint_open(const char *folder, const json_t *print,
                                      char hash[TSR_HASH_TEXT], struct tsr_err *err);
/* Whether a run has left a layer in its folder. */
tsr_status tsr_quant_packed_model_begun(const char *folder, const struct tsr_model *m, bool *begun,
                                        struct tsr_err *err);
/* Removes everything that a run wrote to its folder. */
tsr_status tsr_quant_packed_model_forget(const char *folder, const struct tsr_model *m,
                                         struct tsr_err *err);
/* Seconds per linear; not stored in a layer's file, because they differ between runs. */
tsr_status tsr_quant_journal_write(const char *folder, const struct tsr_model *m, uint64_t layer,
                                   const struct tsr_model_overlay *o, struct tsr_err *err);
tsr_status tsr_quant_journal_read(const char *folder, const struct tsr_model *m, uint64_t layer,
                                  struct tsr_model_overlay *o, struct tsr_err *err);

/* ---- memory (memory.c) ------------------------------------------------------------ */

/* Most bytes in use in each phase, for a streamed model. */
struct tsr_quantize_memory {
    uint64_t process;   /* in use before anything begins: program, tokenizer, resident weights */
    uint64_t calibrate; /* beyond it */
    uint64_t quantize;
    uint64_t finish;
    uint64_t peak; /* process and the largest phase */
};
tsr_status tsr_quantize_memory(const struct tsr_quant_scheme *s, struct tsr_registry *r,
                               const struct tsr_model                   *m,
                               const struct tsr_quant_calibrate_options *calibrate, /* or NULL */
                               struct tsr_quantize_memory *out, struct tsr_err *err);
/* The most bytes that the process ever had in memory. */
uint64_t tsr_quant_memory_peak(void);

#endif
