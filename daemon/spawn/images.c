/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What images there are, for the front, which has no way to the store: for each name the records
 * "image" and "id", and then those of its index.
 */
#include "daemon/spawn/spawn.h"
#include "nsbox/util.h"
#include "overlay/image/store.h"

struct telling {
	const struct store *s;
	int out;
	struct nsbox_error *err;
};

static int tell(struct telling *t, const char *name, const char *id, const struct image_index *x)
{
	auto_free char *text = NULL;
	char head[IMAGE_NAME_MAX + DIGEST_TEXT + 32];
	size_t len = 0;
	int n, r = index_text(x, &text, &len, t->err);

	if (r < 0)
		return r;
	n = nsbox_format(head, sizeof(head), "image %s\nid %s\n", name, id);
	r = write_full(t->out, head, (size_t)n);
	if (r == 0)
		r = write_full(t->out, text, len);
	return r < 0 ? nsbox_fail(t->err, NSBOX_E_IO, -r, "tell of the images") : 0;
}

static int one(void *ctx, const char *name, const char *id)
{
	struct telling *t = ctx;
	struct image_index x = { 0 };
	auto_close int fd = -1;
	int r;

	/* One that is removed just now is not there. */
	if (index_open(t->s, id, 0, &fd, NULL) < 0)
		return 0;
	r = index_read(fd, &x, t->err);
	if (r == 0)
		r = tell(t, name, id, &x);
	index_done(&x);
	return r;
}

int spawn_tell_images(const struct spawn *s, int out, struct nsbox_error *err)
{
	struct telling t = { .out = out, .err = err };
	struct store store;
	int r = store_open(s->state_dir, &store, err);

	if (r < 0)
		return r;
	t.s = &store;
	r = store_names(&store, one, &t, err);
	store_done(&store);
	return r;
}
