/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image layouts: OCI ("oci-layout", "index.json", blobs by digest) and what `docker save` writes
 * ("manifest.json" with paths; newer ones are OCI layouts as well, and read as such).
 *
 * The documents are JSON of a stranger. The confined reader turns each into records; here their
 * digests are compared before, and what the records point to is opened below the layout only.
 */
#include "overlay/image/import.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/sys.h"
#include "nsbox/util.h"

#define DOCUMENT_MAX (8u << 20)
#define RECORDS_MAX  (16u << 20)
#define NESTED_MAX   4 /* indexes in indexes */

/* ------------------------------------------------------------------ files of the layout */

/* Links may lead about in the layout (old `docker save` has them), and not out of it. */
static int open_member(struct import *m, int dir_fd, const char *path, uint64_t *ret_size)
{
	auto_close int fd = sys_openat2(dir_fd, path, O_RDONLY | O_NONBLOCK, 0,
					RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(m->err, NSBOX_E_INVALID, errno, "open '%s' of the image", path);
	if (!S_ISREG(st.st_mode))
		return nsbox_fail(m->err, NSBOX_E_INVALID, 0, "'%s' of the image is no file", path);
	*ret_size = (uint64_t)st.st_size;
	return take_fd(&fd);
}

static int wrong_digest(struct import *m, const char *path)
{
	return nsbox_fail(m->err, NSBOX_E_INVALID, EBADMSG,
			  "'%s' of the image has another SHA-256 than it should: the image is "
			  "damaged, or was changed",
			  path);
}

static int hash_of(struct import *m, const char *data, size_t len, char ret[DIGEST_TEXT])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int r = -ENOMEM;

	if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) && EVP_DigestUpdate(ctx, data, len))
		r = import_hash_text(ctx, ret, m->err);
	EVP_MD_CTX_free(ctx);
	return r < 0 ? nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256") : 0;
}

/* digest NULL: not known, and left in `found`. */
static int read_document(struct import *m, int dir_fd, const char *path, const char *digest,
			 char found[DIGEST_TEXT], char **ret, size_t *ret_len)
{
	auto_free char *text = NULL;
	uint64_t size;
	auto_close int fd = open_member(m, dir_fd, path, &size);
	int r;

	if (fd < 0)
		return fd;
	if (size > DOCUMENT_MAX)
		return nsbox_fail(m->err, NSBOX_E_LIMIT, EFBIG,
				  "'%s' of the image is larger than %u bytes", path, DOCUMENT_MAX);
	text = malloc((size_t)size + 1);
	if (!text)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "read '%s'", path);
	r = read_full(fd, text, (size_t)size);
	if (r < 0)
		return nsbox_fail(m->err, NSBOX_E_IO, r, "read '%s'", path);
	r = hash_of(m, text, (size_t)size, found);
	if (r == 0 && digest && strcmp(digest, found) != 0)
		r = wrong_digest(m, path);
	if (r < 0)
		return r;
	*ret = take_ptr(&text);
	*ret_len = (size_t)size;
	return 0;
}

/* ------------------------------------------------------------------ asking the reader */

/* What the reader writes: records, or one "error TEXT". */
static int read_records(struct import *m, int fd, char **ret, size_t *ret_len)
{
	size_t len = 0, room = 65536;
	char *text = malloc(room);

	for (;;) {
		ssize_t n;

		if (text && len == room && room < RECORDS_MAX) {
			char *more = realloc(text, room *= 2);

			if (!more)
				free_ptr(&text);
			text = more;
		}
		if (!text || len == room) {
			free(text);
			return nsbox_fail(m->err, NSBOX_E_LIMIT, ENOMEM,
					  "the image's description is too large");
		}
		n = read(fd, text + len, room - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}

struct answer {
	struct import *m;
	record_fn *each;
	void *ctx;
};

static int one_record(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	const struct answer *a = ctx;

	if (!strcmp(key, "error"))
		return nsbox_fail(err, NSBOX_E_INVALID, 0, "%s", value);
	return a->each(a->ctx, key, value, err);
}

static int converse(struct import *m, const char *const *args, const char *data, size_t len,
		    char **ret, size_t *ret_len)
{
	auto_close int in = make_memfd("nsbox-document", data, len, false);
	int out[2], status, r;
	pid_t pid;

	if (in < 0 || pipe2(out, O_CLOEXEC) < 0)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, errno, "read the image's documents");
	pid = import_start_reader(m, args, in, out[1]);
	close(out[1]);
	r = pid < 0 ? pid : read_records(m, out[0], ret, ret_len);
	close(out[0]);
	if (pid < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == 0 && status) {
		free_ptr(ret);
		r = nsbox_fail(m->err, NSBOX_E_INVALID, 0, "'%s' ended with status 0x%x",
			       m->in->reader, (unsigned)status);
	}
	return r;
}

/* `what`: the reader's mode. */
static int ask(struct import *m, const char *what, const char *data, size_t len, record_fn *each,
	       void *ctx)
{
	const char *args[] = { "nsbox-import", what,
			       m->in->platform ? m->in->platform : image_platform(),
			       m->in->ref ? m->in->ref : "", NULL };
	struct answer a = { m, each, ctx };
	auto_free char *text = NULL;
	size_t text_len = 0;
	int r = converse(m, args, data, len, &text, &text_len);

	return r < 0 ? r : records_parse(text, text_len, one_record, &a, m->err);
}

/* ------------------------------------------------------------------ manifests */

struct blob_ref {
	char digest[DIGEST_TEXT]; /* "" where only the path is known */
	char *path;
};

struct manifest {
	struct import *m;
	struct blob_ref next; /* index: what to read next */
	bool nested;	      /* it is an index again */
	struct blob_ref config;
	struct blob_ref layer[IMAGE_LAYERS_MAX];
	size_t layers;
};

static void manifest_free(struct manifest *w)
{
	if (!w)
		return;
	free(w->next.path);
	free(w->config.path);
	for (size_t i = 0; i < w->layers; i++)
		free(w->layer[i].path);
	free(w);
}

static int set_path(struct blob_ref *b, const char *path, struct nsbox_error *err)
{
	free(b->path);
	b->path = strdup(path);
	return b->path ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "read the image's documents");
}

static int set_digest(struct blob_ref *b, const char *digest, struct nsbox_error *err)
{
	char path[DIGEST_TEXT + 16];

	if (!digest_ok(digest))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "malformed digest");
	memcpy(b->digest, digest, DIGEST_TEXT);
	nsbox_format(path, sizeof(path), "blobs/sha256/%s", digest);
	return set_path(b, path, err);
}

static int on_reference(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct manifest *w = ctx;
	bool is_path = !strcmp(key, "configpath") || !strcmp(key, "layerpath");
	int (*set)(struct blob_ref *, const char *, struct nsbox_error *) =
		is_path ? set_path : set_digest;

	if (!strcmp(key, "manifest") || !strcmp(key, "index")) {
		w->nested = *key == 'i';
		return set_digest(&w->next, value, err);
	}
	if (!strcmp(key, "config") || !strcmp(key, "configpath"))
		return set(&w->config, value, err);
	if (!strcmp(key, "name")) {
		free(w->m->named);
		w->m->named = strdup(value);
		return w->m->named ? 0 : nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "keep its name");
	}
	if (strcmp(key, "layer") != 0 && strcmp(key, "layerpath") != 0)
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "unknown record '%s'", key);
	if (w->layers == IMAGE_LAYERS_MAX)
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "image of more than %d layers",
				  IMAGE_LAYERS_MAX);
	return set(&w->layer[w->layers++], value, err);
}

static int on_config(void *ctx, const char *key, const char *value, struct nsbox_error *err)
{
	struct import *m = ctx;

	if (!strcmp(key, "diff"))
		return strings_add(&m->diffs, value, err);
	if (!strcmp(key, "layer") || !strcmp(key, "bytes") || !strcmp(key, "dir") ||
	    !strcmp(key, "file"))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EBADMSG, "unknown record '%s'", key);
	return index_record(&m->x, key, value, err);
}

static int read_config(struct manifest *w, int dir_fd)
{
	struct import *m = w->m;
	auto_free char *text = NULL;
	char found[DIGEST_TEXT], digest[DIGEST_TEXT + 8];
	size_t len;
	int r;

	if (!w->config.path)
		return nsbox_fail(m->err, NSBOX_E_INVALID, 0, "the image has no configuration");
	r = read_document(m, dir_fd, w->config.path, w->config.digest[0] ? w->config.digest : NULL,
			  found, &text, &len);
	if (r == 0)
		r = ask(m, "config", text, len, on_config, m);
	if (r < 0)
		return r;
	if (m->diffs.count != w->layers)
		return nsbox_fail(m->err, NSBOX_E_INVALID, 0,
				  "the image lists %zu layers, its configuration %zu", w->layers,
				  m->diffs.count);
	nsbox_format(digest, sizeof(digest), "sha256:%s", found);
	return index_record(&m->x, "digest", digest, m->err);
}

/* ------------------------------------------------------------------ layers */

static int bring_layer(struct manifest *w, int dir_fd, size_t i)
{
	struct import *m = w->m;
	const struct blob_ref *b = &w->layer[i];
	/* A layer without a digest of its own is known by what it inflates to. */
	const char *digest = b->digest[0] ? b->digest : m->diffs.item[i];
	struct incoming in = { 0 };
	char what[32];
	uint64_t size;
	auto_close int fd = -1;
	int r = import_reuse(m, digest);

	if (r)
		return MIN(r, 0);
	fd = open_member(m, dir_fd, b->path, &size);
	if (fd < 0)
		return fd;
	nsbox_format(what, sizeof(what), "layer %zu of %zu", i + 1, w->layers);
	r = import_archive(m, fd, what, size, true, &in);
	if (r < 0) {
		nsbox_error_prefix(m->err, "%s", what);
		return r;
	}
	if ((b->digest[0] && strcmp(b->digest, in.digest) != 0) ||
	    strcmp(m->diffs.item[i], in.sums.diff) != 0) {
		import_drop(m, &in);
		return wrong_digest(m, b->path);
	}
	return import_keep(m, &in);
}

static int bring_layers(struct manifest *w, int dir_fd)
{
	int r = read_config(w, dir_fd);

	for (size_t i = 0; r == 0 && i < w->layers; i++)
		r = bring_layer(w, dir_fd, i);
	return r;
}

/* ------------------------------------------------------------------ the two layouts */

static int import_oci(struct manifest *w, int dir_fd)
{
	struct import *m = w->m;
	auto_free char *path = strdup("index.json");
	char found[DIGEST_TEXT];
	int r = path ? 0 : nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "read the image");

	w->nested = true;
	for (int depth = 0; r == 0 && w->nested; depth++) {
		auto_free char *text = NULL;
		size_t len;

		if (depth == NESTED_MAX)
			return nsbox_fail(m->err, NSBOX_E_LIMIT, 0, "indexes in too many indexes");
		r = read_document(m, dir_fd, path, depth ? w->next.digest : NULL, found, &text,
				  &len);
		w->nested = false;
		if (r == 0)
			r = ask(m, "index", text, len, on_reference, w);
		if (r == 0 && !w->next.path)
			r = nsbox_fail(m->err, NSBOX_E_INVALID, 0, "the layout has no image");
		free_ptr(&path);
		if (r == 0)
			path = take_ptr(&w->next.path);
	}
	if (r == 0) {
		auto_free char *text = NULL;
		size_t len;

		r = read_document(m, dir_fd, path, w->next.digest, found, &text, &len);
		if (r == 0)
			r = ask(m, "manifest", text, len, on_reference, w);
	}
	return r == 0 ? bring_layers(w, dir_fd) : r;
}

static int import_docker(struct manifest *w, int dir_fd)
{
	auto_free char *text = NULL;
	char found[DIGEST_TEXT];
	size_t len;
	int r = read_document(w->m, dir_fd, "manifest.json", NULL, found, &text, &len);

	if (r == 0)
		r = ask(w->m, "docker", text, len, on_reference, w);
	return r == 0 ? bring_layers(w, dir_fd) : r;
}

static bool has(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int import_layout(struct import *m, int dir_fd)
{
	bool oci = has(dir_fd, "oci-layout") && has(dir_fd, "index.json");
	struct manifest *w;
	int r;

	if (!oci && !has(dir_fd, "manifest.json"))
		return 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		return nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "read the image");
	w->m = m;
	/* The budget is that of the image itself, not of the archive it came in. */
	m->left = m->in->limits;
	r = index_record(&m->x, "source", oci ? "oci" : "docker", m->err);
	if (r == 0)
		r = oci ? import_oci(w, dir_fd) : import_docker(w, dir_fd);
	manifest_free(w);
	return r < 0 ? r : 1;
}
