/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepared images. An image is looked up by name in a table of preparers; what they leave is a
 * root blob (layers, binds), a digest, and whatever keeps those layers from being removed.
 */
#include "overlay/root.h"

#include <string.h>

#include "nsbox/util.h"
#include "overlay/internal.h"

struct nsbox_root {
	const char *name; /* of the table */
	char digest[80];
	void *bytes;
	struct blob blob; /* of bytes */
	struct skeleton skeleton;
};

/* The sources may change while they are copied; a package manager is done after a few rounds. */
#define PREPARE_ROUNDS 5

static int prepare_host_once(const struct state_dir *state, struct nsbox_root *root,
			     struct nsbox_error *err)
{
	struct sources src = { 0 };
	size_t len = 0;
	int r = sources_scan(state, &src, err);

	if (r == 0)
		r = skeleton_ensure(state, &src, &root->skeleton, err);
	if (r == 0)
		r = host_image_blob(&src, root->skeleton.path, &root->bytes, &len, err);
	sources_done(&src);
	if (r < 0)
		return r;
	root->blob = (struct blob){ root->bytes, len };
	nsbox_format(root->digest, sizeof(root->digest), "host:%s", root->skeleton.name);
	return blob_check(root->bytes, len, ROOT_MAGIC, err);
}

static int prepare_host(const struct state_dir *state, struct nsbox_root *root,
			struct nsbox_error *err)
{
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < PREPARE_ROUNDS; i++)
		r = prepare_host_once(state, root, err);
	return r;
}

static const struct image {
	const char *name;
	int (*prepare)(const struct state_dir *, struct nsbox_root *, struct nsbox_error *);
} images[] = {
	{ "host", prepare_host },
};

static const struct image *find_image(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		if (strcmp(images[i].name, name ? name : "host") == 0)
			return &images[i];
	}
	return NULL;
}

int nsbox_root_prepare(const char *state_dir, const char *name, struct nsbox_root **ret,
		       struct nsbox_error *err)
{
	const struct image *image = find_image(name);
	struct state_dir state = { .fd = -1 };
	struct nsbox_root *root;
	int r;

	if (!image)
		return nsbox_fail_at(err, NSBOX_STAGE_IMAGE, NSBOX_E_INVALID, ENOENT,
				     "no image is called '%s' (there is: host)", name);
	root = calloc(1, sizeof(*root));
	if (!root)
		return nsbox_fail(err, NSBOX_E_NOMEM, ENOMEM, "image '%s'", image->name);
	root->name = image->name;
	root->skeleton.lock_fd = -1;
	r = state_open(state_dir, &state, err);
	if (r == 0)
		r = image->prepare(&state, root, err);
	state_done(&state);
	if (r < 0) {
		if (err)
			err->stage = NSBOX_STAGE_IMAGE;
		nsbox_error_prefix(err, "image '%s'", image->name);
		nsbox_root_free(root);
		return r;
	}
	*ret = root;
	return 0;
}

void nsbox_root_free(struct nsbox_root *root)
{
	if (!root)
		return;
	skeleton_done(&root->skeleton);
	free(root->bytes);
	free(root);
}

const char *nsbox_root_name(const struct nsbox_root *root)
{
	return root->name;
}

const char *nsbox_root_digest(const struct nsbox_root *root)
{
	return root->digest;
}

const struct blob *nsbox_root_blob(const struct nsbox_root *root)
{
	return &root->blob;
}
