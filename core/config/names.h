/* config/names.h - numbers for texts, so that an option of fixed choices can also take a text.
 *
 * A list of choices with TSR_CONFIG_OTHER at its end takes every other text that may name a component: its value is a number from
 * TSR_CONFIG_NAMES_FIRST on, the same for the same text.  Who reads the option asks for the text.
 */
#ifndef TSR_CONFIG_NAMES_H
#define TSR_CONFIG_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define TSR_CONFIG_OTHER       INT64_MIN /* tsr_choice.value */
#define TSR_CONFIG_NAMES_FIRST 0x10000
#define TSR_CONFIG_NAMES_MOST  256

/* The number of a text, new or known; -1: it is no name (a letter first, at most 255 bytes, no space), or the process has
 * TSR_CONFIG_NAMES_MOST of them.  [any] */
int64_t tsr_config_name_number(const char *text);
/* Its text, which lives as long as the process; NULL: no such number.  [any] */
const char *tsr_config_name_text(int64_t number);

#endif
