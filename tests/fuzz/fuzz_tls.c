/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the beginning of a TLS connection. What was decided stays decided however much comes
 * behind, a name is one, and fewer bytes never say more.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/egress/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[TLS_NAME_MAX], before[TLS_NAME_MAX];
	enum tls_hello r = tls_read(data, size, name);

	if (r == TLS_NAMED && (!*name || strlen(name) >= TLS_NAME_MAX))
		abort();
	for (size_t n = 0; n < size; n = 2 * n + 1) {
		enum tls_hello less = tls_read(data, n, before);

		if (less != TLS_MORE && (less != r || strcmp(before, name) != 0))
			abort();
	}
	return 0;
}
