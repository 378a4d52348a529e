/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: JSON, as strict as a manifest, by a table. What is not in the table, of
 * another type or out of range is an error with its place.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/front/options.h"
#include "nsbox/util.h"
#include "policy/json_strict.h"

#define AT(member)    offsetof(struct front_options, member)
#define SPACE(member) sizeof(((struct front_options *)0)->member)
#define PLACE(type)   ((type *)(void *)((char *)dst + f->offset))
#define DAY_S	      UINT64_C(86400)

/* ------------------------------------------------------------------ readers */

/* Into an array of f->max bytes. */
static int take_chars(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	const char *s = json_string(r, v);
	size_t n = s ? strlen(s) : 0;

	if (!s)
		return -EINVAL;
	if (n == 0 || n >= f->max)
		return json_fail(r, "needs 1 to %llu bytes", (unsigned long long)f->max - 1);
	memcpy(PLACE(char), s, n + 1);
	return 0;
}

static int take_path(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	const char *s = json_string(r, v);

	if (s && (s[0] != '/' || !s[1]))
		return json_fail(r, "must be an absolute path, not \"%.60s\"", s);
	return s ? take_chars(r, v, f, dst) : -EINVAL;
}

static int take_modules(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	const char *s = json_string(r, v);

	if (s && !options_modules_ok(s))
		return json_fail(r, "must be names of Python modules with commas, or \"none\"");
	return s ? take_chars(r, v, f, dst) : -EINVAL;
}

static int take_seconds(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct json_field ms = { .name = f->name, .min = f->min * 1000, .max = f->max * 1000 };
	uint64_t value = 0;
	int ret = json_take_ms(r, v, &ms, &value);

	if (ret < 0)
		return ret;
	if (value % 1000)
		return json_fail(r, "is counted in whole seconds, such as \"30s\" or \"2m\"");
	*PLACE(uint64_t) = value / 1000;
	return 0;
}

static int take_mb(struct json_reader *r, struct json_object *v, const struct json_field *f,
		   void *dst)
{
	struct json_field bytes = { .name = f->name, .min = 1 << 20, .max = UINT64_C(1) << 50 };
	uint64_t value = 0;
	int ret = json_take_bytes(r, v, &bytes, &value);

	if (ret == 0)
		*PLACE(uint64_t) = value >> 20;
	return ret;
}

static int take_ids(struct json_reader *r, struct json_object *v, uint32_t *list, unsigned *n,
		    unsigned max)
{
	const struct json_field id = { .name = "id", .min = 0, .max = UINT32_MAX - 1 };

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array of numbers, found %s", json_type_text(v));
	if (json_object_array_length(v) > max)
		return json_fail(r, "has more than %u entries", max);
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		size_t mark = json_enter_index(r, i);
		int ret = json_take_u32(r, json_object_array_get_idx(v, i), &id, &list[i]);

		if (ret < 0)
			return ret;
		json_leave(r, mark);
		++*n;
	}
	return 0;
}

static int take_uids(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	struct http_peers *p = PLACE(struct http_peers);

	return take_ids(r, v, p->uids, &p->n_uids, ARRAY_SIZE(p->uids));
}

static int take_gids(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	struct http_peers *p = PLACE(struct http_peers);

	return take_ids(r, v, p->gids, &p->n_gids, ARRAY_SIZE(p->gids));
}

/* ["https://chat.example.org"] */
static int take_origins(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct front_options *o = dst;

	if (!json_object_is_type(v, json_type_array))
		return json_fail(r, "expected an array of strings, found %s", json_type_text(v));
	o->n_origins = 0;
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		size_t mark = json_enter_index(r, i);
		const char *s = json_string(r, json_object_array_get_idx(v, i));

		if (!s)
			return -EINVAL;
		if (options_add_origin(o, s) < 0)
			return json_fail(r,
					 "must be an origin such as \"https://host:8443\"; %d of "
					 "them at most",
					 OPTION_ORIGINS_MAX);
		json_leave(r, mark);
	}
	return 0;
}

/* {"1000": "team-a"} */
static int take_users(struct json_reader *r, struct json_object *v, const struct json_field *f,
		      void *dst)
{
	struct who_ties *ties = PLACE(struct who_ties);

	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	json_object_object_foreach (v, uid, value) {
		size_t mark = json_enter(r, uid);
		const char *s = json_string(r, value);
		auto_free char *both = NULL;

		if (!s)
			return -EINVAL;
		if (asprintf(&both, "%s=%s", uid, s) < 0)
			return json_nomem(r);
		if (who_tie_parse(ties, both) < 0)
			return json_fail(
				r,
				"must be the number of a user, once, with a workspace of 1 "
				"to %d bytes; %d of them at most",
				WHO_WORKSPACE_MAX, WHO_TIES_MAX);
		json_leave(r, mark);
	}
	return 0;
}

struct workspace_entry {
	struct workspace_limits limits;
	char directory[OPTION_PATH_MAX];
};

#define LIMIT(member) offsetof(struct workspace_entry, limits.member)
static const struct json_field limit_fields[] = {
	{ "runners", json_take_u32, LIMIT(runners), .min = 1, .max = 1000 },
	{ "queue", json_take_u32, LIMIT(queue), .min = 1, .max = 100000 },
	{ "cpuPerHour", take_seconds, LIMIT(cpu_s), .min = 1, .max = 100000000 },
	{ "directory", take_path, offsetof(struct workspace_entry, directory),
	  .max = OPTION_PATH_MAX },
};

static int add_share(struct json_reader *r, struct front_options *o, const char *name,
		     const char *directory)
{
	struct workspace_share *s = &o->shares[o->n_shares];

	json_enter(r, "directory");
	if (strcmp(name, "*") == 0)
		return json_fail(r, "is of one workspace: \"*\" would share it between all");
	if (o->n_shares == OPTION_SHARES_MAX)
		return json_fail(r, "at most %d workspaces can have one", OPTION_SHARES_MAX);
	strcpy(s->name, name);
	strcpy(s->directory, directory);
	o->n_shares++;
	return 0;
}

/* {"*": {"runners": 2}, "team-a": {...}} */
static int take_workspaces(struct json_reader *r, struct json_object *v, const struct json_field *f,
			   void *dst)
{
	if (!json_object_is_type(v, json_type_object))
		return json_fail(r, "expected an object, found %s", json_type_text(v));
	json_object_object_foreach (v, name, value) {
		size_t mark = json_enter(r, name);
		struct workspace_limits *l = *name ? options_limits(dst, name) : NULL;
		int ret;

		if (!l)
			return json_fail(r, "names have 1 to %d bytes; there can be %d of them",
					 WHO_WORKSPACE_MAX, OPTION_LIMITS_MAX);
		struct workspace_entry entry = { .limits = *l };

		ret = json_read_object(r, value, limit_fields, ARRAY_SIZE(limit_fields), false,
				       &entry);
		if (ret < 0)
			return ret;
		*l = entry.limits;
		if (*entry.directory && add_share(r, dst, name, entry.directory) < 0)
			return -EINVAL;
		json_leave(r, mark);
	}
	return 0;
}

static int take_tier(struct json_reader *r, struct json_object *v, const struct json_field *f,
		     void *dst)
{
	if (!json_object_is_type(v, json_type_string))
		return json_fail(r, "expected a string, found %s", json_type_text(v));
	if (options_min_tier(dst, json_object_get_string(v)) == 0)
		return 0;
	return json_fail(r, "expected \"process\", \"namespace\" or \"cgroup\"");
}

static int take_ceiling(struct json_reader *r, struct json_object *v, const struct json_field *f,
			void *dst)
{
	struct nsbox_error why = { 0 };
	size_t len = 0;
	const char *text = json_object_to_json_string_length(v, JSON_C_TO_STRING_PLAIN, &len);
	const char *colon;

	if (!text)
		return json_nomem(r);
	if (nsbox_ceiling_parse(text, len, PLACE(struct nsbox_ceiling), &why) == 0)
		return 0;
	colon = strstr(why.msg, ": ");
	if (why.msg[0] != '/' || !colon)
		return json_fail(r, "%s", why.msg);
	why.msg[colon - why.msg] = 0;
	if (why.msg[1])
		json_enter(r, why.msg + 1);
	return json_fail(r, "%s", colon + 2);
}

static const struct json_field session_fields[] = {
	{ "max", json_take_u64, AT(sessions), .min = 1, .max = 1000 },
	{ "commands", json_take_u64, AT(session_commands), .min = 1, .max = 64 },
	{ "idleTimeout", take_seconds, AT(session_idle_s), .min = 1, .max = 30 * DAY_S },
	{ "ttl", take_seconds, AT(session_ttl_s), .min = 1, .max = 365 * DAY_S },
};

static int take_sessions(struct json_reader *r, struct json_object *v, const struct json_field *f,
			 void *dst)
{
	return json_read_object(r, v, session_fields, ARRAY_SIZE(session_fields), false, dst);
}

static const struct json_field snapshot_fields[] = {
	{ "max", json_take_u64, AT(snapshots), .min = 1, .max = 100000 },
	{ "size", take_mb, AT(snapshot_mb) },
	{ "keep", take_seconds, AT(snapshot_keep_s), .min = 1, .max = 3650 * DAY_S },
};

static int take_snapshots(struct json_reader *r, struct json_object *v, const struct json_field *f,
			  void *dst)
{
	return json_read_object(r, v, snapshot_fields, ARRAY_SIZE(snapshot_fields), false, dst);
}

static const struct json_field tcp_fields[] = {
	{ "listen", take_chars, AT(tcp), .max = SPACE(tcp), .required = true },
	{ "tokens", take_path, AT(tokens), .max = SPACE(tokens), .required = true },
	{ "anyAddress", json_take_bool, AT(tcp_any) },
};

static int take_tcp(struct json_reader *r, struct json_object *v, const struct json_field *f,
		    void *dst)
{
	return json_read_object(r, v, tcp_fields, ARRAY_SIZE(tcp_fields), false, dst);
}

/* ------------------------------------------------------------------ the table */

/* clang-format off */
static const struct json_field config_fields[] = {
	{ "socket",      take_chars,      AT(socket_path), .max = SPACE(socket_path) },
	{ "tcp",         take_tcp },
	{ "secrets",     take_path,       AT(secrets), .max = SPACE(secrets) },
	{ "user",        take_chars,      AT(user), .max = SPACE(user) },
	{ "allowUids",   take_uids,       AT(peers) },
	{ "allowGids",   take_gids,       AT(peers) },
	{ "users",       take_users,      AT(ties) },
	{ "mcpOrigins",  take_origins },
	{ "runners",     json_take_u64,   AT(runners), .min = 1, .max = 1000 },
	{ "queue",       json_take_u64,   AT(queue_max), .min = 1, .max = 100000 },
	{ "zygote",      take_modules,    AT(zygote), .max = SPACE(zygote) },
	{ "pool",        json_take_u64,   AT(pool), .max = 256 },
	{ "poolSpare",   take_mb,         AT(pool_spare_mb) },
	{ "workspaces",  take_workspaces },
	{ "sessions",    take_sessions },
	{ "snapshots",   take_snapshots },
	{ "keepResults", take_seconds,    AT(keep_s), .min = 1, .max = 3650 * DAY_S },
	{ "keepSize",    take_mb,         AT(keep_mb) },
	{ "requestTime", take_seconds,    AT(request_s), .min = 1, .max = 3600 },
	{ "drain",       take_seconds,    AT(drain_s), .min = 1, .max = DAY_S },
	{ "minTier",     take_tier },
	{ "ceiling",     take_ceiling,    AT(ceiling) },
	{ "dataDir",     take_path,       AT(data_dir), .max = SPACE(data_dir) },
	{ "stateDir",    take_path,       AT(state_dir), .max = SPACE(state_dir) },
	{ "libexec",     take_path,       AT(libexec), .max = SPACE(libexec) },
	{ "egressProxy", take_chars,      AT(egress_proxy), .max = SPACE(egress_proxy) },
	{ "egressDns",   take_chars,      AT(egress_dns), .max = SPACE(egress_dns) },
};
/* clang-format on */

int config_parse(const char *text, size_t len, struct front_options *o, struct nsbox_error *err)
{
	const struct json_limits limits = { .max_size = 256u << 10,
					    .max_depth = 16,
					    .code = NSBOX_E_INVALID };
	struct json_object *root = NULL;
	struct json_reader r;
	int rc = json_strict_parse(text, len, &limits, &root, err);

	if (rc < 0)
		return rc;
	json_reader_init(&r, NSBOX_E_INVALID, err);
	rc = json_read_object(&r, root, config_fields, ARRAY_SIZE(config_fields), true, o);
	json_object_put(root);
	return rc;
}
