/* weight.h - valid weight descriptions, and the numbers that codes represent. Shared by the backends, each
 * with its own layout of the codes. The formats are those of tessera/format.h; nothing here allocates
 * memory or has state.
 */
#ifndef TSR_WEIGHT_H
#define TSR_WEIGHT_H

#include "tessera/backend.h"
#include "tessera/format.h"

#define WEIGHT_SEGMENTS 8u /* at most, docs/decisions/numerics.md */

/* Checks d against its format. data: its codes and meta are set and are checked (strides, and the columns
 * of outliers); else only its shape and format. TSR_E_UNSUPPORTED for a format other than float, int, lut,
 * table, fp8 and mx; TSR_E_INVAL with the weight's name for everything else; `device` is the backend's name in
 * messages. */
tsr_status tsr_weight_check(const struct tsr_weight_desc *d, int data, const char *device,
                            struct tsr_err *err);
/* TSR_E_INVAL: "weight 'NAME': why". */
tsr_status tsr_weight_refuse(struct tsr_err *err, const struct tsr_weight_desc *d, const char *why);
/* TSR_E_UNSUPPORTED: a format that `device` does not read. */
tsr_status tsr_weight_not_read(struct tsr_err *err, const struct tsr_weight_desc *d,
                               const char *device);
/* d's columns per segment, 0 if unset. */
uint64_t tsr_weight_segment(const struct tsr_weight_desc *d);
/* Bytes of an element of tessera.float/1. */
uint64_t tsr_weight_float_size(uint32_t dtype);

/* Code k of a row's bit stream. */
uint32_t tsr_weight_code(const uint8_t *row, uint64_t k, uint32_t bits);
/* Entry i of a table of lut (its values of outliers follow the entries), F16 or F32. */
float tsr_weight_entry(const struct tsr_format *f, const uint8_t *meta, uint64_t i);
/* Scale g of a row of tessera.fp8/1. */
float tsr_weight_fp8_scale(const struct tsr_format *f, const uint8_t *meta, uint64_t g);
/* n entries as int8, by the rule for activations (docs/decisions/numerics.md): t[i] times the
 * returned scale, largest magnitude over 127; 0 for a table of zeros, NaN where one is not finite. */
float tsr_weight_round_table(const float *table, uint64_t n, int8_t *t);

/* The table of tessera.table/1 as int8: t[i] times the returned unit (docs/decisions/numerics.md); codes of
 * more than 4 bits are whole numbers without a table. */
float tsr_weight_map_table(const struct tsr_format *f, int8_t t[TSR_TABLE_ENTRIES]);

/* An MX element's value without its block's scale (docs/formats/mx.md). */
float tsr_element_value(uint32_t element, uint32_t code);
/* Values are whole numbers of 2^-unit; */
int tsr_element_unit(uint32_t element);
/* the number of them in a magnitude (a code without its sign; a code that is not a number counts by its
 * bits); */
uint32_t tsr_element_units(uint32_t element, uint32_t magnitude);
/* and in the largest. */
uint32_t tsr_element_largest(uint32_t element);
/* False for a magnitude that is infinite or NaN. */
int tsr_element_finite(uint32_t element, uint32_t magnitude);
/* How many digits of `bits` the units of the largest finite magnitude take. */
uint32_t tsr_element_digits(uint32_t element, uint32_t bits);
/* 2^(scale - lim - unit) of a block of mx, NaN for a NaN block. */
float tsr_element_scale(const struct tsr_format *f, uint8_t scale, int unit);

#endif
