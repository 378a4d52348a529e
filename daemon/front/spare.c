/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has to spare (spare.h). */
#include "daemon/front/spare.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "nsbox/util.h"

uint64_t spare_memory_mb(void)
{
	static const char key[] = "\nMemAvailable:";
	char text[4096];
	const char *at;

	if (read_small_file(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
		return 0;
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) / 1024 : 0;
}
