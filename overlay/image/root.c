/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root list of an imported image: its layers, and what every run needs of a root and an image
 * may lack or have otherwise. The latter goes into the upper layer (a directory or a small file
 * costs a few microseconds there): mount points, the runner, the users, name service settings.
 */
#include <string.h>
#include <sys/file.h>

#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"

static const char *const needed_dirs[] = {
	"/dev",
	"/proc",
	"/sys",
	"/sys/devices",
	"/sys/devices/system",
	"/sys/devices/system/cpu",
	"/etc",
	"/opt",
	"/opt/nsbox",
	"/home",
	"/workspace",
	"/skills",
	"/.nsbox",
};

static void add_support(const struct image_index *x, struct blob_builder *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(needed_dirs); i++)
		blob_op(b, OP_DIR, 0, 0755, NULL, needed_dirs[i], 0);
	skeleton_files(b);
	blob_file(b, "/etc/passwd", 0, 0644, x->passwd ? x->passwd : "",
		  x->passwd ? strlen(x->passwd) : 0);
	blob_file(b, "/etc/group", 0, 0644, x->group ? x->group : "",
		  x->group ? strlen(x->group) : 0);
}

static void add_env(struct blob_builder *b, char *text)
{
	char *value = strchr(text, '=');

	if (!value || value == text)
		return;
	*value = '\0';
	blob_env(b, text, value + 1);
	*value = '=';
}

/* What every plan may not know of; what nsbox puts there is not the image's. */
static void add_tree(struct blob_builder *b, const char *name, uint64_t rights)
{
	static const char *const ours[] = { "dev", "proc", "sys", ".nsbox" };
	char path[300];

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (!strcmp(name, ours[i]))
			return;
	nsbox_format(path, sizeof(path), "/%s", name);
	blob_landlock(b, path, rights, true);
}

static int build(const struct state_dir *state, const struct image_index *x, void **ret,
		 size_t *ret_len, struct nsbox_error *err)
{
	struct blob_builder *b = blob_new(ROOT_MAGIC);
	char path[4096];
	int r;

	if (!b)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "list the mounts of the image");
	for (size_t i = x->layers; i--;) {
		nsbox_format(path, sizeof(path), "%s/layers/%s", state->path, x->layer[i].digest);
		blob_op(b, OP_LOWER, 0, 0, path, NULL, 0);
	}
	add_support(x, b);
	blob_op(b, OP_BIND,
		OPF_RDONLY | OPF_NOSUID | OPF_NODEV | OPF_NOEXEC | OPF_RECURSIVE | OPF_OPTIONAL, 0,
		"/sys/devices/system/cpu", "/sys/devices/system/cpu", 0);
	for (size_t i = 0; i < x->env.count; i++)
		add_env(b, x->env.item[i]);
	for (size_t i = 0; i < x->dirs.count; i++)
		add_tree(b, x->dirs.item[i], ROOT_TREE_RIGHTS);
	for (size_t i = 0; i < x->files.count; i++)
		add_tree(b, x->files.item[i], ROOT_FILE_RIGHTS);
	r = blob_bytes(b, ret, ret_len, err);
	blob_free(b);
	return r;
}

static int check_owner(const struct store *s, const struct image_index *x, struct nsbox_error *err)
{
	bool block = !strcmp(x->owner, "block");

	if (block == s->own_ids)
		return 0;
	return nsbox_fail(
		err, NSBOX_E_INVALID, EPERM,
		"it was imported by a process that could%s set ids, unlike this one: import "
		"it again",
		block ? "" : " not");
}

int image_root_blob(const struct state_dir *state, const char *name, void **ret, size_t *ret_len,
		    char **ret_digest, int *ret_lock, struct nsbox_error *err)
{
	struct image_index x = { 0 };
	char id[DIGEST_TEXT];
	auto_close int lock = -1, fd = -1;
	struct store s;
	int r = store_open(state->path, &s, err);

	if (r < 0)
		return r;
	/* Nothing is removed between finding the image and holding it. */
	r = state_lock(s.images_fd, ".lock", LOCK_SH, &lock, err);
	if (r == 0)
		r = store_find(&s, name, id, err);
	if (r == 0)
		r = index_open(&s, id, LOCK_SH, &fd, err);
	close_fd(&lock);
	if (r == 0)
		r = index_read(fd, &x, err);
	if (r == 0)
		r = check_owner(&s, &x, err);
	if (r == 0)
		r = build(state, &x, ret, ret_len, err);
	if (r == 0) {
		*ret_digest = take_ptr(&x.digest);
		*ret_lock = take_fd(&fd);
	}
	index_done(&x);
	store_done(&s);
	return r;
}
