/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.digests: what goes into a run as the skill's files is hashed on its way, in the file stream
 * that the sandbox will unpack, so nothing can change between the look and the use.
 */
#include <json-c/json.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nsbox/files_format.h"
#include "nsbox/util.h"
#include "policy/inputs.h"

#define CHUNK 65536

struct checking {
	int fd;
	off_t at;
	struct json_object *left; /* path to digest, of what has not been seen */
	bool in_skill;
	char path[FILES_PATH_MAX];
};

static int hash(const struct checking *c, uint64_t size, char ret[65])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	auto_free char *buf = malloc(CHUNK);
	unsigned char md[EVP_MAX_MD_SIZE];
	bool ok = ctx && buf && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;
	uint64_t done = 0;

	while (ok && done < size) {
		ssize_t n = pread(c->fd, buf, (size_t)MIN(size - done, (uint64_t)CHUNK),
				  c->at + (off_t)done);

		ok = n > 0 && EVP_DigestUpdate(ctx, buf, (size_t)n) == 1;
		done += ok ? (uint64_t)n : 0;
	}
	ok = ok && EVP_DigestFinal_ex(ctx, md, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	for (size_t i = 0; ok && i < 32; i++)
		snprintf(ret + 2 * i, 3, "%02x", md[i]);
	return ok ? 0 : -EIO;
}

static int compare(struct checking *c, uint64_t size, struct nsbox_error *err)
{
	struct json_object *want = NULL;
	char is[65] = "";

	if (!json_object_object_get_ex(c->left, c->path, &want))
		return 0;
	if (hash(c, size, is) < 0)
		return nsbox_fail(err, NSBOX_E_IO, EIO, "hash '%s'", c->path);
	if (strcmp(is, json_object_get_string(want)) != 0)
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "/files/digests/%s: the file has the SHA-256 %s", c->path, is);
	json_object_object_del(c->left, c->path);
	return 0;
}

/* 1: goes on; 0: the stream has ended. */
static int frame(struct checking *c, const char *skill_dir, struct nsbox_error *err)
{
	struct nsbox_frame f;
	int r = 0;

	if (pread(c->fd, &f, sizeof(f), c->at) != (ssize_t)sizeof(f) ||
	    f.magic != NSBOX_FRAME_MAGIC || f.path_len >= sizeof(c->path))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "the run's files are no stream");
	c->at += (off_t)sizeof(f);
	if (pread(c->fd, c->path, f.path_len, c->at) != (ssize_t)f.path_len)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "the run's files end early");
	c->path[f.path_len] = 0;
	c->at += f.path_len;
	if (f.kind == NSBOX_FRAME_BASE)
		c->in_skill = strcmp(c->path, skill_dir) == 0;
	else if (f.kind == NSBOX_FRAME_FILE && c->in_skill)
		r = compare(c, f.size, err);
	c->at += (off_t)f.size;
	return r < 0 ? r : f.kind != NSBOX_FRAME_END;
}

int digests_check(const char *described, int files_fd, const char *skill_dir,
		  struct nsbox_error *err)
{
	struct json_object *o = *described ? json_tokener_parse(described) : NULL;
	struct checking c = { .fd = files_fd };
	int r = 1;

	if (!json_object_object_get_ex(o, "digests", &c.left)) {
		json_object_put(o);
		return 0;
	}
	while (r == 1 && files_fd >= 0 && *skill_dir)
		r = frame(&c, skill_dir, err);
	if (r >= 0 && json_object_object_length(c.left)) {
		json_object_object_foreach (c.left, path, value) {
			r = nsbox_fail(err, NSBOX_E_INVALID, ENOENT,
				       "/files/digests/%s: the skill has no such file", path);
			break;
		}
	}
	json_object_put(o);
	return r < 0 ? r : 0;
}
