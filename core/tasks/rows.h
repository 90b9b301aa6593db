/* tasks/rows.h - the rows of a data set's split, from files on this machine.  Nothing is downloaded.
 *
 * A split SPLIT is all files SPLIT.EXT and SPLIT-*.EXT of the first of these folders that has one, EXT being jsonl (an
 * object a line) or json (a list of objects):
 *
 *   FOLDER/TASK, FOLDER/CONFIG, FOLDER/data, FOLDER     FOLDER: that of the user, else the data set's snapshot in the
 *                                                       cache of the hub (checkpoint/hub.h)
 *
 * The rows that a task asks about may also be in FOLDER/TASK/docs.jsonl, or in one file that is named instead of a
 * folder.
 */
#ifndef TSR_TASKS_ROWS_H
#define TSR_TASKS_ROWS_H

#include "tasks/task.h"

#include <jansson.h>

struct tsr_tasks_rows {
    json_t *list; /* of objects */
    char   *path; /* of the first file, for messages */
    char    hash[TSR_HASH_TEXT];
};

/* folder: NULL or "" for the cache, or one file.  TSR_E_INPUT names the data set and where it was looked for. */
tsr_status tsr_tasks_rows_find(struct tsr_tasks_rows *r, const struct tsr_tasks_task *t,
                               const char *split, const char *folder, struct tsr_err *err);
/* The rows of one file. */
tsr_status tsr_tasks_rows_file(struct tsr_tasks_rows *r, const char *path, struct tsr_err *err);
void       tsr_tasks_rows_free(struct tsr_tasks_rows *r);

#endif
