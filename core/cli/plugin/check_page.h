/* cli/plugin/check_page.h - the report of `tessera plugin check` as one standalone HTML page. */
#ifndef TSR_CLI_PLUGIN_CHECK_PAGE_H
#define TSR_CLI_PLUGIN_CHECK_PAGE_H

#include "base/output.h"

#include <jansson.h>

/* check: an object of docs/formats/check.md, complete.  The page has no script, no font and no other file.  Errors stick
 * to the writer. */
void tsr_cli_check_page(struct tsr_writer *w, const json_t *check);

#endif
