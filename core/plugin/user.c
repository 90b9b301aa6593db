#include "plugin/user.h"

#include "base/file.h"

#include <stdlib.h>

tsr_status tsr_plugin_user_folder(char **path, struct tsr_err *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    *path = NULL;
    if (data && *data == '/') /* a relative one does not count, by the XDG specification */
        *path = tsr_path_join(data, "tessera/plugins");
    else if (home && *home == '/')
        *path = tsr_path_join(home, ".local/share/tessera/plugins");
    else
        return TSR_OK;
    return *path ? TSR_OK : tsr_fail_nomem(err, 1, "the folder of the user's plugins");
}
