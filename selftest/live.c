/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes by way of a running daemon: each is a job, sent by `nsbox job run` with a skill directory that
 * holds the probes and the policy under test. What the daemon answers becomes the same ending as that
 * of a sandbox of our own.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nsbox/util.h"
#include "selftest/selftest.h"

#define ANSWER_MAX (1u << 20)

/* ------------------------------------------------------------------ the skill */

static int copy_file(int from, const char *path, mode_t mode, struct nsbox_error *err)
{
	auto_close int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	char buf[65536];
	off_t at = 0;
	ssize_t n = 0;

	if (to < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", path);
	while ((n = pread(from, buf, sizeof(buf), at)) > 0 && write_full(to, buf, (size_t)n) == 0)
		at += n;
	return n ? nsbox_fail(err, NSBOX_E_IO, errno, "write '%s'", path) : 0;
}

static int write_manifest(const struct box_options *opt, const char *path, struct nsbox_error *err)
{
	auto_close int from = -1, to = -1;

	if (opt->manifest) {
		from = open(opt->manifest, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (from < 0)
			return nsbox_fail(err, NSBOX_E_IO, errno, "open '%s'", opt->manifest);
		return copy_file(from, path, 0644, err);
	}
	to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (to < 0 || dprintf(to,
			      "{\"manifestVersion\": 1, \"name\": \"selftest\", \"description\": "
			      "\"selftest\", \"profile\": \"%s\"}\n",
			      opt->profile ? opt->profile : "standard") < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", path);
	return 0;
}

static void live_path(const struct facts *f, const char *name, char *buf, int size)
{
	nsbox_format(buf, size, "%s/skill%s%s", f->dir, *name ? "/" : "", name);
}

int live_prepare(const struct box_options *opt, const struct facts *f, int probe_fd,
		 struct nsbox_error *err)
{
	char path[128];
	int r;

	live_path(f, "", path, sizeof(path));
	if (mkdir(path, 0755) < 0)
		return nsbox_fail(err, NSBOX_E_IO, errno, "make '%s'", path);
	live_path(f, "nsbox-probe", path, sizeof(path));
	r = copy_file(probe_fd, path, 0755, err);
	live_path(f, "skill.json", path, sizeof(path));
	return r < 0 ? r : write_manifest(opt, path, err);
}

void live_clean(const struct facts *f)
{
	static const char *const names[] = { "nsbox-probe", "skill.json" };
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		live_path(f, names[i], path, sizeof(path));
		unlink(path);
	}
	live_path(f, "", path, sizeof(path));
	rmdir(path);
}

/* ------------------------------------------------------------------ the answer */

static const char *text_of(struct json_object *o, const char *key)
{
	const char *s = json_object_get_string(json_object_object_get(o, key));

	return s ? s : "";
}

static void read_layers(struct json_object *o, struct nsbox_result *ret)
{
	struct json_object *list = json_object_object_get(o, "enforced");
	struct json_object *acts = json_object_object_get(o, "witness");

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		int layer =
			nsbox_layer_by_name(text_of(json_object_array_get_idx(list, i), "layer"));

		if (layer >= 0)
			ret->enforced |= NSBOX_LAYER_BIT(layer);
	}
	for (int i = 0; acts && i < NSBOX_WITNESS_MAX; i++) {
		const char *v = text_of(acts, nsbox_witness_name(i));

		ret->witness_held |= !strcmp(v, "held") ? 1U << i : 0;
		ret->witness_tried |= !strcmp(v, "held") || !strcmp(v, "hole") ? 1U << i : 0;
	}
}

static void read_answer(const char *text, struct ending *ret)
{
	struct json_object *o = json_tokener_parse(text);
	const char *cause = text_of(o, "cause");

	if (!json_object_is_type(o, json_type_object) || !*cause) {
		nsbox_format(ret->why, sizeof(ret->why), "the daemon answers: %.200s", text);
		json_object_put(o);
		return;
	}
	for (int i = 0; i < NSBOX_CAUSE_MAX; i++)
		if (!strcmp(cause, nsbox_cause_name(i)))
			ret->result.cause = (uint32_t)i;
	read_layers(o, &ret->result);
	nsbox_format(ret->out, sizeof(ret->out), "%s", text_of(o, "stdout"));
	if (ret->result.cause == NSBOX_CAUSE_EXIT)
		ret->status = json_object_get_int(json_object_object_get(o, "exit_code"));
	nsbox_format(ret->why, sizeof(ret->why), "it ended by %s: %.150s", cause,
		     text_of(o, "msg"));
	json_object_put(o);
}

/* ------------------------------------------------------------------ a job */

static void run_job(const char *const *argv, char *answer, size_t size)
{
	int out[2];
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	answer[0] = '\0';
	if (pipe2(out, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		dup2(out[1], 2);
		execv("/proc/self/exe", (char *const *)argv);
		_exit(125);
	}
	close(out[1]);
	while ((n = read(out[0], answer + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(out[0]);
	answer[len] = '\0';
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void live_run(const char *socket, const struct probe_row *row, const struct facts *f, int tier,
	      struct ending *ret)
{
	bool process = tier == NSBOX_TIER_PROCESS;
	char unlisted[300];
	const char *const more[] = { "inside=1", unlisted, process ? "tier=process" : NULL, NULL };
	auto_free char *answer = malloc(ANSWER_MAX);
	auto_free const char **probe = NULL;
	const char *argv[FACTS_MAX + 16] = { "nsbox",	 "job",	 "run",	   "--json",
					     "--socket", socket, "--skill" };
	char skill[128];
	int n = 7;

	*ret = (struct ending){ .status = -1, .in_box = true };
	facts_unlisted(f, process, unlisted, sizeof(unlisted));
	probe = probe_argv("./nsbox-probe", row, f, more);
	live_path(f, "", skill, sizeof(skill));
	argv[n++] = skill;
	argv[n++] = "--";
	for (int i = 0; probe && probe[i]; i++)
		argv[n++] = probe[i];
	for (int i = 0; answer && i < (row->flags & PF_TWICE ? 2 : 1); i++) {
		*ret = (struct ending){ .status = -1, .in_box = true };
		run_job(argv, answer, ANSWER_MAX);
		read_answer(answer, ret);
	}
}
