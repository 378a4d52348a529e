/* SPDX-License-Identifier: Apache-2.0 */
/* Writing blobs: sections grow apart and are laid out, 8-byte aligned, when the blob is taken. */
#include "nsbox/plan_build.h"

#include <string.h>

#include "nsbox/util.h"

struct section {
	unsigned char *data;
	size_t len, cap;
};

struct blob_builder {
	uint32_t magic;
	int failed; /* errno of the first append that failed */
	struct section sec[SEC_MAX];
};

static void *grow(struct blob_builder *b, enum blob_section s, size_t len)
{
	struct section *sec = &b->sec[s];

	if (b->failed)
		return NULL;
	if (len > NSBOX_PLAN_MAX || sec->len + len > NSBOX_PLAN_MAX) {
		b->failed = E2BIG;
		return NULL;
	}
	if (sec->len + len > sec->cap) {
		size_t cap = MAX(sec->cap * 2, sec->len + len + 256);
		void *p = realloc(sec->data, cap);

		if (!p) {
			b->failed = ENOMEM;
			return NULL;
		}
		sec->data = p;
		sec->cap = cap;
	}
	sec->len += len;
	return sec->data + sec->len - len;
}

struct blob_builder *blob_new(uint32_t magic)
{
	struct blob_builder *b = calloc(1, sizeof(*b));
	char *empty;

	if (!b)
		return NULL;
	b->magic = magic;
	empty = grow(b, SEC_STRINGS, 1); /* offset 0 is "" */
	if (!empty) {
		free(b);
		return NULL;
	}
	*empty = '\0';
	return b;
}

void blob_free(struct blob_builder *b)
{
	if (!b)
		return;
	for (int i = 0; i < SEC_MAX; i++)
		free(b->sec[i].data);
	free(b);
}

static const char *find_string(const struct section *sec, const char *s, size_t len)
{
	const char *p = (const char *)sec->data, *end = p + sec->len;

	for (; p < end; p += strlen(p) + 1)
		if (strlen(p) == len && !memcmp(p, s, len))
			return p;
	return NULL;
}

str_off blob_str(struct blob_builder *b, const char *s)
{
	size_t len = s ? strlen(s) : 0;
	const char *known;
	char *p;

	if (!len || b->failed)
		return 0;
	/* Plans repeat paths; an exec request's arguments are many and rarely alike. */
	known = b->magic == EXEC_MAGIC ? NULL : find_string(&b->sec[SEC_STRINGS], s, len);
	if (known)
		return (str_off)(known - (const char *)b->sec[SEC_STRINGS].data);
	p = grow(b, SEC_STRINGS, len + 1);
	if (!p)
		return 0;
	memcpy(p, s, len + 1);
	return (str_off)((unsigned char *)p - b->sec[SEC_STRINGS].data);
}

uint32_t blob_append(struct blob_builder *b, enum blob_section sec, const void *data, size_t len)
{
	size_t at = b->sec[sec].len;
	void *p = len ? grow(b, sec, len) : NULL;

	if (p)
		memcpy(p, data, len);
	return (uint32_t)at;
}

void blob_set(struct blob_builder *b, enum blob_section sec, const void *data, size_t len)
{
	b->sec[sec].len = 0;
	blob_append(b, sec, data, len);
}

void blob_op(struct blob_builder *b, enum mount_op_kind kind, unsigned flags, unsigned mode,
	     const char *src, const char *dst, uint64_t size)
{
	struct mount_op op = {
		.kind = (uint16_t)kind,
		.flags = (uint16_t)flags,
		.mode = mode,
		.src = blob_str(b, src),
		.dst = blob_str(b, dst),
		.size = size,
	};

	blob_append(b, SEC_OPS, &op, sizeof(op));
}

void blob_file(struct blob_builder *b, const char *dst, unsigned flags, unsigned mode,
	       const void *data, size_t len)
{
	struct mount_op op = {
		.kind = OP_FILE,
		.flags = (uint16_t)flags,
		.mode = mode,
		.dst = blob_str(b, dst),
		.size = len,
		.data = blob_append(b, SEC_DATA, data, len),
	};

	blob_append(b, SEC_OPS, &op, sizeof(op));
}

void blob_trust(struct blob_builder *b, const char *dst, const void *data, size_t len)
{
	struct mount_op op = {
		.kind = OP_TRUST,
		.dst = blob_str(b, dst),
		.size = len,
		.data = blob_append(b, SEC_DATA, data, len),
	};

	blob_append(b, SEC_OPS, &op, sizeof(op));
}

void blob_landlock(struct blob_builder *b, const char *path, uint64_t access, bool optional)
{
	struct landlock_rule rule = {
		.access = access,
		.path = blob_str(b, path),
		.optional = optional,
	};

	blob_append(b, SEC_LANDLOCK, &rule, sizeof(rule));
}

void blob_landlock_port(struct blob_builder *b, uint16_t port, uint64_t access)
{
	struct landlock_rule rule = { .access = access, .path = blob_str(b, ""), .port = port };

	blob_append(b, SEC_LANDLOCK, &rule, sizeof(rule));
}

void blob_env(struct blob_builder *b, const char *name, const char *value)
{
	size_t n = strlen(name), v = strlen(value);
	auto_free char *text = malloc(n + v + 2);
	str_off off;

	if (!text) {
		b->failed = b->failed ? b->failed : ENOMEM;
		return;
	}
	memcpy(text, name, n);
	text[n] = '=';
	memcpy(text + n + 1, value, v + 1);
	off = blob_str(b, text);
	blob_append(b, SEC_ENV, &off, sizeof(off));
}

void blob_output(struct blob_builder *b, const char *glob, uint64_t max_bytes, uint32_t max_files)
{
	struct output_rule rule = {
		.glob = blob_str(b, glob),
		.max_files = max_files,
		.max_bytes = max_bytes,
	};

	blob_append(b, SEC_OUTPUTS, &rule, sizeof(rule));
}

static size_t align8(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

int blob_bytes(struct blob_builder *b, void **ret, size_t *ret_len, struct nsbox_error *err)
{
	size_t size = align8(sizeof(struct blob_header)), at = size;
	struct blob_header *h;
	unsigned char *p;

	for (int i = 0; i < SEC_MAX; i++)
		size += align8(b->sec[i].len);
	if (!b->failed && size > NSBOX_PLAN_MAX)
		b->failed = E2BIG;
	if (b->failed)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE,
				     b->failed == ENOMEM ? NSBOX_E_NOMEM : NSBOX_E_LIMIT, b->failed,
				     "build a plan of at most %u bytes", NSBOX_PLAN_MAX);
	p = calloc(1, size);
	if (!p)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, ENOMEM,
				     "allocate %zu bytes for a plan", size);
	h = (struct blob_header *)p;
	h->magic = b->magic;
	h->version = BLOB_VERSION;
	h->sections = SEC_MAX;
	h->size = (uint32_t)size;
	for (int i = 0; i < SEC_MAX; i++) {
		h->section[i].offset = (uint32_t)at;
		h->section[i].size = (uint32_t)b->sec[i].len;
		if (b->sec[i].len)
			memcpy(p + at, b->sec[i].data, b->sec[i].len);
		at += align8(b->sec[i].len);
	}
	*ret = p;
	*ret_len = size;
	return 0;
}

int blob_seal(struct blob_builder *b, const char *name, int *ret_fd, struct nsbox_error *err)
{
	auto_free void *bytes = NULL;
	size_t len;
	int r, fd;

	r = blob_bytes(b, &bytes, &len, err);
	if (r < 0)
		return r;
	fd = make_memfd(name, bytes, len, true);
	if (fd < 0)
		return nsbox_fail_at(err, NSBOX_STAGE_COMPILE, NSBOX_E_NOMEM, fd,
				     "make a sealed memfd of %zu bytes", len);
	*ret_fd = fd;
	return 0;
}
