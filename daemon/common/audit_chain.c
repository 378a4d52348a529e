/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/common/audit_chain.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/json_strict.h"

void audit_chain_init(struct audit_chain *c)
{
	c->seq = 0;
	memset(c->hash, '0', DIGEST_HEX - 1);
	c->hash[DIGEST_HEX - 1] = 0;
}

int audit_chain_add(struct audit_chain *c, const char *line, size_t len, struct nsbox_error *err)
{
	int r = digest_hex(line, len, c->hash, err);

	if (r == 0)
		c->seq++;
	return r;
}

static bool is_digest(const char *s)
{
	return strlen(s) == DIGEST_HEX - 1 && strspn(s, "0123456789abcdef") == DIGEST_HEX - 1;
}

int audit_line_read(const char *line, size_t len, uint64_t *ret_seq, char ret_prev[DIGEST_HEX],
		    struct nsbox_error *err)
{
	const struct json_limits lim = { .max_size = AUDIT_LINE_MAX,
					 .max_depth = 8,
					 .code = NSBOX_E_INVALID };
	struct json_object *o = NULL, *seq = NULL, *prev = NULL;
	bool good;
	int r = json_strict_parse(line, len, &lim, &o, err);

	if (r < 0)
		return r;
	good = json_object_is_type(o, json_type_object) &&
	       json_object_object_get_ex(o, "seq", &seq) &&
	       json_object_is_type(seq, json_type_int) && json_object_get_int64(seq) > 0 &&
	       json_object_object_get_ex(o, "prev", &prev) &&
	       json_object_is_type(prev, json_type_string) &&
	       is_digest(json_object_get_string(prev));
	if (good) {
		*ret_seq = json_object_get_uint64(seq);
		memcpy(ret_prev, json_object_get_string(prev), DIGEST_HEX);
	} else {
		r = nsbox_fail(err, NSBOX_E_INVALID, 0, "it has no valid \"seq\" and \"prev\"");
	}
	json_object_put(o);
	return r;
}

int audit_chain_check(struct audit_chain *c, bool first, const char *line, size_t len,
		      struct nsbox_error *err)
{
	char prev[DIGEST_HEX];
	uint64_t seq = 0;
	int r = audit_line_read(line, len, &seq, prev, err);

	if (r < 0)
		return r;
	if (first && seq > 1) {
		c->seq = seq - 1;
		memcpy(c->hash, prev, sizeof(prev));
	}
	if (seq != c->seq + 1)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "its number is %" PRIu64 ", %" PRIu64 " was due", seq,
				  c->seq + 1);
	if (strcmp(prev, c->hash) != 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "line number %" PRIu64 " is not the one it was written after",
				  c->seq);
	return audit_chain_add(c, line, len, err);
}
