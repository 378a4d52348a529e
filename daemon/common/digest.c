/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>

int digest_hex(const void *data, size_t len, char ret[DIGEST_HEX], struct nsbox_error *err)
{
	unsigned char md[32];
	unsigned n = 0;

	if (!EVP_Digest(data, len, md, &n, EVP_sha256(), NULL) || n != sizeof(md))
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256");
	for (unsigned i = 0; i < n; i++)
		snprintf(ret + (size_t)2 * i, 3, "%02x", md[i]);
	return 0;
}
