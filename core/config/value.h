/* config/value.h - one option value from text; shared by YAML and the command line. */
#ifndef TSR_CONFIG_VALUE_H
#define TSR_CONFIG_VALUE_H

#include "config/config.h"

#define TSR_VALUE_TEXT 512

/* How the text was written: plain YAML scalars that YAML 1.1 would read as something else are
 * refused as strings; quoted ones are refused as numbers; a command-line argument is plain text. */
enum tsr_value_form { TSR_CONFIG_FORM_PLAIN, TSR_CONFIG_FORM_QUOTED, TSR_CONFIG_FORM_ARGUMENT };

/* The i-th option of a set; a table of a newer, larger struct is read by its own stride. */
struct tsr_option tsr_config_option_at(const struct tsr_config_optset *set, uint64_t i);

/* Stores text as o's value.  On failure msg says what the value must be, beginning with a verb
 * ("must be an integer from 2 to 8, not 12"), and hint (may be empty) what to write. */
bool tsr_config_value_parse(const struct tsr_option *o, const char *text, enum tsr_value_form form,
                            void *into, char msg[TSR_VALUE_TEXT], char hint[TSR_VALUE_TEXT]);

/* Appends to a text of cap bytes, as far as it fits. */
void tsr_config_value_put(char *buf, size_t cap, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Bounds of an option that mean "none" on one side. */
#define TSR_VALUE_NO_LIMIT 1e300

/* "an integer from 2 to 8", "true or false", "one of even, odd" */
void tsr_config_value_wanted(const struct tsr_option *o, char *buf, size_t cap);

#endif
