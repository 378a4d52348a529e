/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An import from its beginning to its end: look at the source, bring its layers in, describe the
 * result, and put everything in place at once (import.h has the theory).
 */
#include "overlay/image/import.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "nsbox/util.h"

static const struct {
	const char *machine, *platform;
} platforms[] = {
	{ "x86_64", "linux/amd64" }, { "aarch64", "linux/arm64" },
	{ "armv7l", "linux/arm" },   { "riscv64", "linux/riscv64" },
	{ "s390x", "linux/s390x" },  { "ppc64le", "linux/ppc64le" },
};

const char *image_platform(void)
{
	struct utsname u;

	if (uname(&u) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(platforms); i++)
			if (!strcmp(u.machine, platforms[i].machine))
				return platforms[i].platform;
	return "linux/unknown";
}

/* ------------------------------------------------------------------ kinds of sources */

static int set_text(struct import *m, char **at, const char *prefix, const char *value)
{
	char text[128];

	nsbox_format(text, sizeof(text), "%s%s", prefix, value);
	free(*at);
	*at = strdup(text);
	return *at ? 0 : nsbox_fail(m->err, NSBOX_E_NOMEM, ENOMEM, "import the image");
}

/* A root file system in one layer. */
static int single_layer(struct import *m, const struct incoming *in, const char *source)
{
	int r = set_text(m, &m->x.source, "", source);

	if (r == 0)
		r = set_text(m, &m->x.digest, "sha256:", in->digest);
	if (r == 0)
		r = set_text(m, &m->x.platform, "", m->in->platform ? m->in->platform : "");
	return r == 0 ? import_keep(m, in) : r;
}

static int from_directory(struct import *m, int fd)
{
	struct incoming in = { 0 };
	int r = m->in->plain ? 0 : import_layout(m, fd);

	if (r)
		return MIN(r, 0);
	r = import_directory(m, fd, &in);
	return r < 0 ? r : single_layer(m, &in, "directory");
}

/*
 * A tar file holds either a root or an image's layout. It is unpacked in the same way, as a layer
 * that is then either the image's only one or thrown away again.
 */
static int from_archive(struct import *m, int fd, uint64_t total)
{
	auto_close int top = -1;
	struct incoming in = { 0 };
	int r = import_archive(m, fd, "the archive", total, false, &in);

	if (r < 0)
		return r;
	top = openat(m->s.layers_fd, in.tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0)
		r = nsbox_fail(m->err, NSBOX_E_IO, errno, "open what was unpacked");
	else if (!m->in->plain)
		r = import_layout(m, top);
	if (r) {
		import_drop(m, &in);
		return MIN(r, 0);
	}
	return single_layer(m, &in, "tar");
}

static int from_source(struct import *m)
{
	const char *path = m->in->source;
	auto_close int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
					      : fcntl(0, F_DUPFD_CLOEXEC, 3);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return nsbox_fail(m->err, NSBOX_E_INVALID, errno, "open '%s'", path);
	if (S_ISDIR(st.st_mode))
		return from_directory(m, fd);
	if (strcmp(path, "-") && !S_ISREG(st.st_mode))
		return nsbox_fail(m->err, NSBOX_E_INVALID, 0,
				  "'%s' is neither a directory nor a file (give a pipe as '-')",
				  path);
	return from_archive(m, fd, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
}

/* ------------------------------------------------------------------ putting in place */

static int write_index(struct import *m, const char *id, const char *text, size_t len)
{
	char tmp[TMP_NAME];
	auto_close int fd = -1;
	int r;

	nsbox_format(tmp, sizeof(tmp), ".new.%d", (int)getpid());
	unlinkat(m->s.ids_fd, tmp, 0);
	fd = openat(m->s.ids_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return nsbox_fail(m->err, NSBOX_E_IO, errno, "write the image's index");
	r = write_full(fd, text, len);
	if (r == 0 && (fsync(fd) < 0 || renameat(m->s.ids_fd, tmp, m->s.ids_fd, id) < 0))
		r = -errno;
	if (r < 0) {
		unlinkat(m->s.ids_fd, tmp, 0);
		return nsbox_fail(m->err, NSBOX_E_IO, r, "write the image's index");
	}
	return 0;
}

/* Whole and on disk before anything names it: a layer that has its name is a good one. */
static int place_layers(struct import *m)
{
	if (m->pendings && syncfs(m->s.layers_fd) < 0)
		return nsbox_fail(m->err, NSBOX_E_IO, errno, "write the layers to disk");
	for (size_t i = 0; i < m->pendings; i++) {
		struct pending *p = &m->pending[i];
		int r = renameat(m->s.layers_fd, p->tmp, m->s.layers_fd, p->digest);

		/* Another import was faster, or this one brought what was there. */
		if (r < 0 && (errno == ENOTEMPTY || errno == EEXIST))
			r = owner_remove_layer(&m->s, p->tmp, NULL);
		if (r < 0)
			return nsbox_fail(m->err, NSBOX_E_IO, errno, "put a layer in place");
	}
	m->pendings = 0;
	return 0;
}

static int hash_text(const char *text, size_t len, char ret[DIGEST_TEXT], struct nsbox_error *err)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int r = -ENOMEM;

	if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) && EVP_DigestUpdate(ctx, text, len))
		r = import_hash_text(ctx, ret, err);
	EVP_MD_CTX_free(ctx);
	return r == -ENOMEM ? nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "compute a SHA-256") : r;
}

/* The source's own word names what had no name; what another image is called takes the caller's. */
static int name_it(struct import *m, const char *id)
{
	const char *name = m->in->name ? m->in->name : m->named;
	char other[DIGEST_TEXT];

	if (!m->in->name && store_find(&m->s, name, other, NULL) == 0 && strcmp(other, id) != 0)
		return nsbox_fail(m->err, NSBOX_E_INVALID, EEXIST,
				  "the source calls its image '%s', which is another image here: "
				  "give the name yourself",
				  name);
	if (m->in->ret_name)
		nsbox_format(m->in->ret_name, IMAGE_NAME_MAX, "%s", name);
	return store_set_name(&m->s, name, id, m->err);
}

static int put_in_place(struct import *m, char id[DIGEST_TEXT])
{
	auto_free char *text = NULL;
	auto_close int lock = -1;
	size_t len;
	int r = set_text(m, &m->x.owner, "", m->s.own_ids ? "block" : "caller");

	m->x.bytes = 0;
	for (size_t i = 0; i < m->x.layers; i++)
		m->x.bytes += m->x.layer[i].bytes;
	if (r == 0)
		r = index_text(&m->x, &text, &len, m->err);
	if (r == 0)
		r = hash_text(text, len, id, m->err);
	if (r == 0)
		r = state_lock(m->s.images_fd, ".lock", LOCK_EX, &lock, m->err);
	if (r == 0)
		r = place_layers(m);
	/* One that is there is the same, and may be locked by what runs in it. */
	if (r == 0 && faccessat(m->s.ids_fd, id, F_OK, 0) < 0)
		r = write_index(m, id, text, len);
	return r == 0 ? name_it(m, id) : r;
}

/* ------------------------------------------------------------------ all of it */

static int bring_in(struct import *m)
{
	int r = m->in->source ? from_source(m)
			      : nsbox_fail(m->err, NSBOX_E_INVALID, 0, "no source to import");

	if (r == 0 && !m->x.layers)
		r = nsbox_fail(m->err, NSBOX_E_INVALID, 0, "the image has no files");
	if (r == 0 && !m->in->name)
		r = m->named ? image_name_check(m->named, m->err)
			     : nsbox_fail(m->err, NSBOX_E_INVALID, 0,
					  "the source does not say what its image is called: give "
					  "a name");
	return r;
}

struct way_in {
	const char *base, *digest; /* a commit, of this stream; or NULL */
	int stream;
};

/* What a layer comes on top of; all that the survey finds is found anew. */
static int load_base(struct import *m, const char *base, const char *digest)
{
	char id[DIGEST_TEXT];
	auto_close int fd = -1;
	int r = store_find(&m->s, base, id, m->err);

	if (r == 0)
		r = index_open(&m->s, id, 0, &fd, m->err);
	if (r == 0)
		r = index_read(fd, &m->x, m->err);
	if (r == 0 && digest && strcmp(digest, m->x.digest) != 0)
		r = nsbox_fail(m->err, NSBOX_E_INVALID, ESTALE,
			       "'%s' is another image (%.20s) by now than the one that was changed "
			       "(%.20s)",
			       base, m->x.digest, digest);
	free_ptr(&m->x.passwd);
	free_ptr(&m->x.group);
	strings_done(&m->x.dirs);
	strings_done(&m->x.files);
	return r;
}

static int add_changes(struct import *m, const struct way_in *way)
{
	struct incoming in = { 0 };
	int r = load_base(m, way->base, way->digest);

	if (r == 0)
		r = import_stream(m, way->stream, &in);
	if (r == 0)
		r = set_text(m, &m->x.source, "", "commit");
	if (r == 0) /* a commit is known by its topmost layer */
		r = set_text(m, &m->x.digest, "sha256:", in.digest);
	return r == 0 ? import_keep(m, &in) : r;
}

static int run_import(const char *state_dir, struct import *m, const struct way_in *way,
		      char id[DIGEST_TEXT])
{
	struct gc_result freed;
	int importing = -1, r = m->in->name ? image_name_check(m->in->name, m->err) : 0;

	if (r == 0)
		r = store_open(state_dir, &m->s, m->err);
	if (r < 0)
		return r;
	/* What an import that was killed has left goes before this one needs the room. */
	store_gc(&m->s, &freed, NULL);
	r = state_lock(m->s.images_fd, ".importing", LOCK_SH, &importing, m->err);
	if (r == 0)
		r = way->base ? add_changes(m, way) : bring_in(m);
	if (r == 0)
		r = import_survey(m);
	if (r == 0)
		r = put_in_place(m, id);
	for (size_t i = 0; i < m->pendings; i++)
		owner_remove_layer(&m->s, m->pending[i].tmp, NULL);
	close_fd(&importing);
	if (r == 0) /* the name may have been another's */
		store_gc(&m->s, &freed, NULL);
	free(m->pending);
	free(m->named);
	strings_done(&m->diffs);
	index_done(&m->x);
	store_done(&m->s);
	return r;
}

int image_import(const char *state_dir, const struct image_import *in, char ret_id[DIGEST_TEXT],
		 struct nsbox_error *err)
{
	struct nsbox_error local = { 0 };
	struct import m = { .in = in, .left = in->limits, .err = err ? err : &local };
	const struct way_in way = { .stream = -1 };

	return run_import(state_dir, &m, &way, ret_id);
}

int image_commit(const char *state_dir, const char *base, const char *digest, const char *name,
		 int stream, char ret_id[DIGEST_TEXT], struct nsbox_error *err)
{
	const struct image_import in = { .name = name, .limits = LAYER_LIMITS_DEFAULT };
	struct nsbox_error local = { 0 };
	struct import m = { .in = &in, .left = in.limits, .err = err ? err : &local };
	const struct way_in way = { base, digest, stream };

	return run_import(state_dir, &m, &way, ret_id);
}
