/* SPDX-License-Identifier: Apache-2.0 */
/* See plan_kit.h. */
#include "tests/support/plan_kit.h"

#include <check.h>
#include <string.h>

#include "nsbox/util.h"

struct nsbox_host kit_full_host(void)
{
	struct nsbox_host h = {
		.machine = "x86_64",
		.landlock_abi = 7,
		.overlay_userns = true,
		.proc_mountable = true,
		.nftables = true,
		.seccomp_filter = true,
		.cgroup_kind = NSBOX_CGROUP_V2,
		.cgroup_memory = true,
		.cgroup_pids = true,
		.cgroup_cpu = true,
		.ids_kind = NSBOX_IDS_PRIVILEGED,
		.cpus = 4,
	};

	for (int i = NSBOX_LAYER_USER; i <= NSBOX_LAYER_CGROUP_NS; i++)
		h.namespaces |= NSBOX_LAYER_BIT(i);
	return h;
}

int kit_compile(const struct nsbox_host *host, const char *manifest)
{
	struct nsbox_resolve_options opt = { .host = host, .as_operator = true };
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;
	struct nsbox_policy *p = NULL;
	int fd = -1;
	int r = manifest ? nsbox_manifest_parse(manifest, strlen(manifest), &m, &err)
			 : nsbox_manifest_default(&m, &err);

	if (r == 0)
		r = nsbox_policy_resolve(m, &opt, &p, &err);
	if (r == 0)
		r = nsbox_policy_compile(p, &fd, &err);
	ck_assert_msg(r == 0, "%s", err.msg);
	nsbox_policy_free(p);
	nsbox_manifest_free(m);
	return fd;
}

struct blob_builder *kit_rebuild(const struct blob *b)
{
	const struct blob_header *h = (const struct blob_header *)b->base;
	struct blob_builder *copy = blob_new(h->magic);

	ck_assert_ptr_nonnull(copy);
	for (int i = 0; i < SEC_MAX; i++)
		blob_set(copy, (enum blob_section)i, b->base + h->section[i].offset,
			 h->section[i].size);
	return copy;
}

struct plan_fixed kit_fixed(const struct blob *b)
{
	return *blob_fixed(b, struct plan_fixed);
}

void kit_set_fixed(struct blob_builder *b, const struct plan_fixed *f)
{
	blob_set(b, SEC_FIXED, f, sizeof(*f));
}

void *kit_bytes(struct blob_builder *b, size_t *ret_len)
{
	struct nsbox_error err = { 0 };
	void *bytes = NULL;

	ck_assert_msg(blob_bytes(b, &bytes, ret_len, &err) == 0, "%s", err.msg);
	blob_free(b);
	return bytes;
}

struct nsbox_plan *kit_open(struct blob_builder *b)
{
	struct nsbox_error err = { 0 };
	struct nsbox_plan *plan = NULL;
	auto_close int fd = -1;

	ck_assert_msg(blob_seal(b, "plan", &fd, &err) == 0, "%s", err.msg);
	blob_free(b);
	ck_assert_msg(nsbox_plan_open(fd, &plan, &err) == 0, "%s", err.msg);
	return plan;
}
