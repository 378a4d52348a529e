/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a with 128 bits, over words of eight bytes.
 *
 * It names skeletons after their inputs, which are the host owner's own files: it has to tell
 * honest inputs apart, quickly, without a cryptographic library in the privileged process. Each
 * step is a bijection of the state, so that inputs that differ in one word never meet.
 */
#include "overlay/internal.h"

#include <nsbox/error.h>
#include <string.h>

#define FNV_PRIME  (((unsigned __int128)1 << 88) | 0x13b)
#define FNV_OFFSET (((unsigned __int128)0x6c62272e07bb0142 << 64) | 0x62b821756295c58d)

void hash128_init(struct hash128 *h)
{
	h->h = FNV_OFFSET;
}

static void add_word(struct hash128 *h, uint64_t w)
{
	h->h = (h->h ^ w) * FNV_PRIME;
}

void hash128_add(struct hash128 *h, const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t w;

	add_word(h, len);
	for (; len >= sizeof(w); p += sizeof(w), len -= sizeof(w)) {
		memcpy(&w, p, sizeof(w));
		add_word(h, w);
	}
	w = 0;
	memcpy(&w, p, len);
	add_word(h, w);
}

void hash128_add_str(struct hash128 *h, const char *s)
{
	hash128_add(h, s, strlen(s));
}

void hash128_text(const struct hash128 *h, char ret[HASH128_TEXT])
{
	static const char hex[] = "0123456789abcdef";

	for (int i = 0; i < 32; i++)
		ret[i] = hex[(unsigned)(h->h >> (124 - 4 * i)) & 15];
	ret[32] = '\0';
}
