/* SPDX-License-Identifier: Apache-2.0 */
/* files.digests: a file has to be the one that the manifest was written for. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nsbox/util.h"
#include "policy/internal.h"
#include "policy/skill/check.h"

/* 0 with 64 hexadecimal digits, or -errno. */
static int digest_of(int fd, char ret[65])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char buf[65536], md[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	ssize_t n = -1;
	int r = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;

	while (r == 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		if (EVP_DigestUpdate(ctx, buf, (size_t)n) != 1)
			r = -EIO;
	if (r == 0 && n < 0)
		r = -errno;
	if (r == 0 && EVP_DigestFinal_ex(ctx, md, &len) != 1)
		r = -EIO;
	for (unsigned i = 0; r == 0 && i < 32; i++)
		snprintf(ret + (size_t)2 * i, 3, "%02x", md[i]);
	EVP_MD_CTX_free(ctx);
	return r;
}

static void check_digest(struct skill_check *c, const char *path, const char *wanted)
{
	auto_close int fd = skill_open(c->opt->dir_fd, path, O_RDONLY);
	char found[65] = "";
	struct stat st;
	int r = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EISDIR;

	if (!strncmp(wanted, "sha256:", 7))
		wanted += 7;
	if (r == 0)
		r = digest_of(fd, found);
	if (r < 0)
		report_add(c->rep, SKILL_F_DIGEST, path, "put the file back, or leave it out",
			   "files.digests names it, and it cannot be read: %s", strerror(-r));
	else if (strcasecmp(found, wanted) != 0)
		report_add(c->rep, SKILL_F_DIGEST, path,
			   "find out who changed it; then put the new value into files.digests",
			   "its SHA-256 is %s, and files.digests says %.64s", found, wanted);
}

void check_digests(struct skill_check *c)
{
	const struct nsbox_manifest *m = c->opt->manifest;

	for (size_t i = 0; m && i < m->n_digests; i++)
		check_digest(c, m->digests[i].name, m->digests[i].value);
}
