/* SPDX-License-Identifier: Apache-2.0 */
/* The store: its directories, its names, and removing what nothing refers to (store.h). */
#include "overlay/image/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include "nsbox/host_private.h"
#include "nsbox/ids.h"
#include "nsbox/util.h"

#define UNFINISHED ".new."

/* ------------------------------------------------------------------ names */

bool digest_ok(const char *text)
{
	return strspn(text, "0123456789abcdef") == DIGEST_TEXT - 1 && !text[DIGEST_TEXT - 1];
}

static bool plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int image_name_check(const char *name, struct nsbox_error *err)
{
	const char *p = name;
	bool ok = plain(*p);

	for (; ok && *p; p++)
		ok = plain(*p) || (strchr("._-/:", *p) && (plain(p[1]) || p[1] == '_'));
	if (!ok || p - name >= IMAGE_NAME_MAX)
		return nsbox_fail(
			err, NSBOX_E_INVALID, EINVAL,
			"an image's name is letters and digits with '.', '_', '-', '/' or "
			"':' between them, %d at most",
			IMAGE_NAME_MAX - 1);
	if (!strcmp(name, "host"))
		return nsbox_fail(err, NSBOX_E_INVALID, EEXIST,
				  "the image 'host' is this machine itself: take another name");
	return 0;
}

/* A name as one file name: '/' is the only byte it may not hold, and '=' is in no name. */
static void name_file(const char *name, char ret[IMAGE_NAME_MAX])
{
	nsbox_format(ret, IMAGE_NAME_MAX, "%s", name);
	for (char *p = ret; *p; p++)
		if (*p == '/')
			*p = '=';
}

static void file_name(const char *file, char ret[IMAGE_NAME_MAX])
{
	nsbox_format(ret, IMAGE_NAME_MAX, "%s", file);
	for (char *p = ret; *p; p++)
		if (*p == '=')
			*p = '/';
}

static int read_name(const struct store *s, const char *file, char ret[DIGEST_TEXT])
{
	char target[DIGEST_TEXT + 1];
	ssize_t n = readlinkat(s->names_fd, file, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (!digest_ok(target))
		return -EBADMSG;
	memcpy(ret, target, DIGEST_TEXT);
	return 0;
}

/* ------------------------------------------------------------------ directories */

/* The group is the image block's, so that a sandbox's init, which is its root, may pass. */
static int open_layers(struct store *s, struct nsbox_error *err)
{
	mode_t mode = s->own_ids ? 0730 : 0700;
	auto_close int fd = -1;
	struct stat st;
	bool made;

	if (s->own_ids)
		setfsgid(IDS_IMAGE_BASE);
	made = mkdirat(s->state.fd, "layers", 0700) == 0;
	if (s->own_ids)
		setfsgid(getegid());
	if (!made && errno != EEXIST)
		return nsbox_fail(err, NSBOX_E_IO, errno, "create the directory 'layers'");
	fd = openat(s->state.fd, "layers", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (made && fchmod(fd, mode) < 0) || fstat(fd, &st) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "open the directory 'layers'");
	if (st.st_uid != geteuid() || (st.st_mode & 07777) != mode ||
	    (s->own_ids && st.st_gid != IDS_IMAGE_BASE))
		return nsbox_fail(
			err, NSBOX_E_INVALID, EPERM,
			"'layers' of the state directory has another owner, group or mode "
			"(%u:%u, %o) than this caller's images (%u:%u, %o)",
			st.st_uid, st.st_gid, st.st_mode & 07777, geteuid(),
			s->own_ids ? IDS_IMAGE_BASE : getegid(), mode);
	s->layers_fd = take_fd(&fd);
	return 0;
}

int store_open(const char *state_dir, struct store *ret, struct nsbox_error *err)
{
	struct store s = { .state = { .fd = -1 },
			   .images_fd = -1,
			   .ids_fd = -1,
			   .names_fd = -1,
			   .layers_fd = -1 };
	int r = state_open(state_dir, &s.state, err);

	s.own_ids = host_ids_kind() == NSBOX_IDS_PRIVILEGED;
	if (r == 0)
		r = state_subdir(s.state.fd, "images", &s.images_fd, err);
	if (r == 0)
		r = state_subdir(s.images_fd, "id", &s.ids_fd, err);
	if (r == 0)
		r = state_subdir(s.images_fd, "name", &s.names_fd, err);
	if (r == 0)
		r = open_layers(&s, err);
	if (r < 0)
		store_done(&s);
	else
		*ret = s;
	return r;
}

void store_done(struct store *s)
{
	close_fd(&s->layers_fd);
	close_fd(&s->names_fd);
	close_fd(&s->ids_fd);
	close_fd(&s->images_fd);
	state_done(&s->state);
}

/* ------------------------------------------------------------------ lists */

static int list(int dir_fd, int (*each)(void *ctx, const char *file), void *ctx,
		struct nsbox_error *err)
{
	struct dirent **names = NULL;
	int r = 0, n = scandirat(dir_fd, ".", &names, NULL, alphasort);

	if (n < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "list the images");
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;

		if (r == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			r = each(ctx, name);
		free(names[i]);
	}
	free(names);
	return r;
}

struct naming {
	const struct store *s;
	int (*each)(void *ctx, const char *name, const char *id);
	void *ctx;
};

static int one_name(void *ctx, const char *file)
{
	const struct naming *n = ctx;
	char name[IMAGE_NAME_MAX], id[DIGEST_TEXT];

	if (file[0] == '.' || read_name(n->s, file, id) < 0)
		return 0;
	file_name(file, name);
	return n->each(n->ctx, name, id);
}

int store_names(const struct store *s, int (*each)(void *ctx, const char *name, const char *id),
		void *ctx, struct nsbox_error *err)
{
	struct naming n = { s, each, ctx };

	return list(s->names_fd, one_name, &n, err);
}

struct finding {
	const char *prefix;
	char *found;
	unsigned count;
};

static int one_id(void *ctx, const char *file)
{
	struct finding *f = ctx;

	if (digest_ok(file) && strncmp(file, f->prefix, strlen(f->prefix)) == 0) {
		memcpy(f->found, file, DIGEST_TEXT);
		f->count++;
	}
	return 0;
}

struct by_digest {
	const struct store *s;
	const char *prefix;
	char *found;
	unsigned count;
};

static int one_digest(void *ctx, const char *id)
{
	struct by_digest *f = ctx;
	struct image_index x = { 0 };
	auto_close int fd = -1;

	if (!digest_ok(id) || index_open(f->s, id, 0, &fd, NULL) < 0 ||
	    index_read(fd, &x, NULL) < 0)
		return 0;
	if (strncmp(x.digest, f->prefix, strlen(f->prefix)) == 0 ||
	    strncmp(id, f->prefix + 7, strlen(f->prefix) - 7) == 0) {
		memcpy(f->found, id, DIGEST_TEXT);
		f->count++;
	}
	index_done(&x);
	return 0;
}

/* By what receipts call it. 1: there is none. */
static int find_digest(const struct store *s, const char *name, char ret[DIGEST_TEXT],
		       struct nsbox_error *err)
{
	struct by_digest f = { .s = s, .prefix = name, .found = ret };
	int r = list(s->ids_fd, one_digest, &f, err);

	if (r < 0 || f.count == 1)
		return r;
	if (!f.count)
		return 1;
	return nsbox_fail(err, NSBOX_E_INVALID, ENOENT,
			  "several images have a digest that begins with '%s'", name);
}

int store_find(const struct store *s, const char *name, char ret[DIGEST_TEXT],
	       struct nsbox_error *err)
{
	char file[IMAGE_NAME_MAX];
	struct finding f = { .prefix = name, .found = ret };
	int r = image_name_check(name, err);

	if (r < 0)
		return r;
	name_file(name, file);
	r = read_name(s, file, ret);
	if (r == 0)
		return 0;
	if (r != -ENOENT)
		return nsbox_fail(err, NSBOX_E_IO, r, "read the image's name");
	if (strlen(name) >= 8 && strspn(name, "0123456789abcdef") == strlen(name)) {
		r = list(s->ids_fd, one_id, &f, err);
		if (r < 0)
			return r;
		if (f.count > 1)
			return nsbox_fail(err, NSBOX_E_INVALID, ENOENT,
					  "several images have an id that begins with '%s'", name);
		if (f.count == 1)
			return 0;
	}
	if (strncmp(name, "sha256:", 7) == 0 && strlen(name) >= 15) {
		r = find_digest(s, name, ret, err);
		if (r <= 0)
			return r;
	}
	return nsbox_fail(err, NSBOX_E_INVALID, ENOENT,
			  "no image is called '%s': `nsbox image list` shows what there is, `nsbox "
			  "image import` brings one (and \"host\" is always there)",
			  name);
}

int store_set_name(const struct store *s, const char *name, const char *id, struct nsbox_error *err)
{
	char file[IMAGE_NAME_MAX], tmp[64];

	name_file(name, file);
	nsbox_format(tmp, sizeof(tmp), ".new.%d", (int)getpid());
	unlinkat(s->names_fd, tmp, 0);
	if (symlinkat(id, s->names_fd, tmp) < 0 ||
	    renameat(s->names_fd, tmp, s->names_fd, file) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "name the image '%s'", name);
	return 0;
}

/* ------------------------------------------------------------------ removing */

struct using
{
	const char *id;
	bool named;
};

static int is_named(void *ctx, const char *name, const char *id)
{
	struct using *u = ctx;

	u->named |= strcmp(u->id, id) == 0;
	return 0;
}

/* The caller holds the store's lock. 1: removed; 0: it has a name, or something runs in it. */
static int remove_unused_id(const struct store *s, const char *id, struct nsbox_error *err)
{
	struct using u = { .id = id };
	auto_close int fd = -1;
	int r = store_names(s, is_named, &u, err);

	if (r < 0 || u.named)
		return r;
	if (index_open(s, id, LOCK_EX | LOCK_NB, &fd, NULL) < 0)
		return 0;
	return unlinkat(s->ids_fd, id, 0) == 0;
}

struct sweep {
	const struct store *s;
	struct nsbox_error *err;
	struct gc_result *result;
	struct strings used; /* layers */
	bool unfinished;     /* no import is under way: what is unfinished is left over */
};

static int sweep_id(void *ctx, const char *file)
{
	struct sweep *w = ctx;
	int r = digest_ok(file) ? remove_unused_id(w->s, file, w->err) : 0;

	w->result->images += r > 0;
	return MIN(r, 0);
}

static int mark_layers(void *ctx, const char *file)
{
	struct sweep *w = ctx;
	struct image_index x = { 0 };
	auto_close int fd = -1;
	int r;

	if (!digest_ok(file))
		return 0;
	r = index_open(w->s, file, 0, &fd, w->err);
	if (r == 0)
		r = index_read(fd, &x, w->err);
	if (r < 0) { /* an image that cannot be read may still be one that is used */
		nsbox_error_prefix(w->err, "image '%.12s'", file);
		return r;
	}
	for (size_t i = 0; r == 0 && i < x.layers; i++)
		r = strings_add(&w->used, x.layer[i].digest, w->err);
	index_done(&x);
	return r;
}

static bool is_used(const struct sweep *w, const char *name)
{
	for (size_t i = 0; i < w->used.count; i++)
		if (!strcmp(w->used.item[i], name))
			return true;
	return false;
}

static int sweep_layer(void *ctx, const char *file)
{
	struct sweep *w = ctx;
	bool unfinished = strncmp(file, UNFINISHED, sizeof(UNFINISHED) - 1) == 0;
	int r;

	if (!unfinished && (!digest_ok(file) || is_used(w, file)))
		return 0;
	r = owner_remove_layer(w->s, file, w->err);
	if (r < 0)
		return r;
	*(unfinished ? &w->result->unfinished : &w->result->layers) += 1;
	return 0;
}

/* The caller holds the store's lock. */
static int sweep(const struct store *s, struct gc_result *ret, struct nsbox_error *err)
{
	struct sweep w = { .s = s, .err = err, .result = ret };
	auto_close int importing = -1;
	int r = list(s->ids_fd, sweep_id, &w, err);

	if (r < 0)
		return r;
	if (state_lock(s->images_fd, ".importing", LOCK_EX | LOCK_NB, &importing, NULL) < 0) {
		ret->busy = true;
		return 0;
	}
	r = list(s->ids_fd, mark_layers, &w, err);
	if (r == 0)
		r = list(s->layers_fd, sweep_layer, &w, err);
	strings_done(&w.used);
	return r;
}

int store_gc(const struct store *s, struct gc_result *ret, struct nsbox_error *err)
{
	auto_close int lock = -1;
	int r = state_lock(s->images_fd, ".lock", LOCK_EX, &lock, err);

	*ret = (struct gc_result){ 0 };
	return r < 0 ? r : sweep(s, ret, err);
}

int store_remove(const struct store *s, const char *name, bool *ret_kept, struct nsbox_error *err)
{
	char id[DIGEST_TEXT], file[IMAGE_NAME_MAX];
	struct gc_result freed = { 0 };
	auto_close int lock = -1;
	int r = state_lock(s->images_fd, ".lock", LOCK_EX, &lock, err);

	if (r == 0)
		r = store_find(s, name, id, err);
	if (r < 0)
		return r;
	name_file(name, file);
	if (unlinkat(s->names_fd, file, 0) < 0)
		return nsbox_fail(err, NSBOX_E_INVALID, errno,
				  "'%s' is an id and not a name: remove the names it has", name);
	r = sweep(s, &freed, err);
	*ret_kept = freed.busy || faccessat(s->ids_fd, id, F_OK, 0) == 0;
	return r;
}
