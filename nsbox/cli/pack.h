/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NSBOX_CLI_PACK_H
#define NSBOX_CLI_PACK_H

#include <nsbox/error.h>
#include <stddef.h>

struct pack {
	char *data; /* malloc'd */
	size_t len;
};

/* Regular files, directories and links below dir as a tar archive. */
int pack_dir(const char *dir, struct pack *ret, struct nsbox_error *err);

#endif
