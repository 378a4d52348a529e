/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsbox-compile: one manifest in, one plan out (daemon/common/compile.h). The socket is descriptor
 * 3. Confines itself, reads, answers, exits; a second request needs a second process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "daemon/common/compile.h"
#include "daemon/common/wire.h"
#include "daemon/compile/confine.h"
#include "nsbox/util.h"

#define SOCK 3

static struct compile_request request;
static struct compile_reply reply;

/* The packet and the manifest's descriptor (-1: none). */
static int receive(int *ret_fd, struct nsbox_error *err)
{
	int fds[WIRE_FDS_MAX], r;
	unsigned n;

	r = wire_recv(SOCK, &request, sizeof(request), fds, &n, err);
	if (r < 0)
		return r;
	if (r == 0 || n != (request.manifest_len ? 1u : 0u) ||
	    request.base_len > request.manifest_len ||
	    (request.base_len && !(request.flags & COMPILE_NARROWER)) ||
	    !memchr(request.skill_dir, 0, sizeof(request.skill_dir)) ||
	    !memchr(request.entrypoint, 0, sizeof(request.entrypoint)))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "malformed compile request");
	if (n)
		*ret_fd = fds[0];
	return 0;
}

/* Sealed: its sender can neither change nor shrink it below us. */
static bool is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS), need = F_SEAL_SHRINK | F_SEAL_WRITE;

	return seals >= 0 && (seals & need) == need;
}

static int parse_part(const char *text, size_t len, struct nsbox_manifest **ret,
		      struct nsbox_error *err)
{
	return len ? nsbox_manifest_parse(text, len, ret, err) : nsbox_manifest_default(ret, err);
}

/* What is to be compiled, and what it may not be wider than: NULL where that was not asked for. */
static int parse(int fd, struct nsbox_manifest **ret, struct nsbox_manifest **ret_base,
		 struct nsbox_error *err)
{
	const size_t len = request.manifest_len, base = request.base_len;
	void *text = NULL;
	int r = 0;

	if (len && !is_sealed(fd))
		return nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "the manifest is not sealed");
	if (len)
		text = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		return nsbox_fail(err, NSBOX_E_NOMEM, errno, "map the manifest");
	if (len && lseek(fd, 0, SEEK_END) != (off_t)len)
		r = nsbox_fail(err, NSBOX_E_PROTOCOL, EPROTO, "the manifest has another length");
	if (r == 0 && (request.flags & COMPILE_NARROWER))
		r = parse_part(text, base, ret_base, err);
	if (r == 0)
		r = parse_part((const char *)text + base, len - base, ret, err);
	if (text)
		munmap(text, len);
	return r;
}

static int put_command(const struct nsbox_entrypoint *e, struct nsbox_error *err)
{
	size_t len = 0;

	for (const char *const *arg = e->command; *arg; arg++) {
		size_t n = strlen(*arg) + 1;

		if (n > sizeof(reply.command) - len)
			return nsbox_fail(err, NSBOX_E_LIMIT, 0,
					  "the command of entry point '%s' is too long", e->id);
		memcpy(reply.command + len, *arg, n);
		len += n;
		reply.command_args++;
	}
	reply.command_len = (uint32_t)len;
	return 0;
}

static int put_entrypoint(const struct nsbox_manifest *m, const struct nsbox_policy *p,
			  struct nsbox_error *err)
{
	struct nsbox_entrypoint e;
	auto_free char *cwd = NULL;
	int r;

	r = nsbox_manifest_entrypoint(m, *request.entrypoint ? request.entrypoint : NULL, &e, err);
	if (r < 0)
		return r;
	reply.timeout_ms = e.timeout_ms;
	if (e.no_stdin && (request.flags & COMPILE_STDIN))
		return nsbox_fail(err, NSBOX_E_INVALID, 0,
				  "/stdin: entry point '%s' reads no standard input", e.id);
	r = e.cwd ? nsbox_policy_path(p, e.cwd, &cwd, err) : 0;
	if (r < 0) {
		nsbox_error_prefix(err, "/entrypoints/%s/cwd", e.id);
		return r;
	}
	if (cwd && strlen(cwd) > 255) /* what a request to collect can name */
		return nsbox_fail(err, NSBOX_E_LIMIT, 0,
				  "the directory of entry point '%s' is too long", e.id);
	if (cwd)
		strcpy(reply.cwd, cwd);
	return put_command(&e, err);
}

static int put_inputs(const struct nsbox_manifest *m, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	int r = nsbox_manifest_inputs(m, &text, err);

	if (r < 0)
		return r;
	if (strlen(text) >= sizeof(reply.inputs))
		return nsbox_fail(err, NSBOX_E_LIMIT, 0,
				  "/userConfig: secrets and parameters take more than %d bytes",
				  COMPILE_INPUTS_MAX);
	strcpy(reply.inputs, text);
	return 0;
}

static int put_policy(const struct nsbox_policy *p, struct nsbox_error *err)
{
	size_t len = 0;
	const void *noexec = nsbox_policy_noexec_filter(p, &len);

	if (len > sizeof(reply.noexec))
		return nsbox_fail(err, NSBOX_E_LIMIT, 0, "the filter has %zu bytes", len);
	if (len)
		memcpy(reply.noexec, noexec, len);
	reply.noexec_len = (uint32_t)len;
	if (nsbox_policy_image(p))
		snprintf(reply.image, sizeof(reply.image), "%s", nsbox_policy_image(p));
	nsbox_policy_limits(p, &reply.limits);
	return nsbox_policy_digest(p, reply.digest, err);
}

/* Secrets and parameters are no part of a policy, and a session has what it was made with. */
static int compare_inputs(const struct nsbox_manifest *base, struct nsbox_error *err)
{
	auto_free char *text = NULL;
	int r = nsbox_manifest_inputs(base, &text, err);

	if (r < 0 || strcmp(text, reply.inputs) == 0)
		return r;
	return nsbox_fail(
		err, NSBOX_E_UNSUPPORTED, 0,
		"/secrets: secrets, userConfig and files.digests are fixed when the sandbox "
		"is made: say them as they are, or make a new one");
}

static int check_narrower(const struct nsbox_manifest *base,
			  const struct nsbox_resolve_options *opt, struct nsbox_policy *then,
			  struct nsbox_error *err)
{
	struct nsbox_policy *now = NULL;
	int r = nsbox_policy_resolve(base, opt, &now, err);

	if (r < 0) {
		nsbox_error_prefix(err, "what the sandbox was made with");
		return r;
	}
	r = nsbox_policy_digest(now, reply.base_digest, err);
	if (r == 0)
		r = nsbox_policy_narrower(now, then, err);
	if (r == 0)
		r = compare_inputs(base, err);
	nsbox_policy_free(now);
	return r;
}

static int compile(int fd, int *ret_plan, struct nsbox_error *err)
{
	struct nsbox_resolve_options opt = {
		.host = &request.host,
		.ceiling = &request.ceiling,
		.skill_dir = *request.skill_dir ? request.skill_dir : NULL,
		.python_function = request.flags & COMPILE_PYTHON,
		.as_operator = request.flags & COMPILE_OPERATOR,
	};
	struct nsbox_manifest *m = NULL, *base = NULL;
	struct nsbox_policy *p = NULL;
	int r;

	r = parse(fd, &m, &base, err);
	if (r == 0)
		snprintf(reply.name, sizeof(reply.name), "%s", nsbox_manifest_name(m));
	if (r == 0)
		r = nsbox_policy_resolve(m, &opt, &p, err);
	if (r == 0 && (request.flags & COMPILE_ENTRYPOINT))
		r = put_entrypoint(m, p, err);
	if (r == 0)
		r = put_inputs(m, err);
	if (r == 0 && base)
		r = check_narrower(base, &opt, p, err);
	if (r == 0)
		r = put_policy(p, err);
	if (r == 0)
		r = nsbox_policy_compile(p, ret_plan, err);
	nsbox_policy_free(p);
	nsbox_manifest_free(base);
	nsbox_manifest_free(m);
	return r;
}

int main(int argc, char **argv)
{
	auto_close int fd = -1, plan = -1;
	int type = 0, r;
	socklen_t len = sizeof(type);

	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		puts("nsbox-compile " NSBOX_VERSION);
		return 0;
	}
	if (argc != 1 || getsockopt(SOCK, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
	    type != SOCK_SEQPACKET) {
		fprintf(stderr, "<3>nsbox-compile: it is started by nsboxd, not by hand\n");
		return 2;
	}
	reply.magic = WIRE_MAGIC;
	r = confine(SOCK, &reply.error);
	if (r == 0)
		r = receive(&fd, &reply.error);
	if (r == 0)
		r = compile(fd, &plan, &reply.error);
	return wire_send(SOCK, &reply, sizeof(reply), &plan, r == 0 ? 1 : 0, NULL) < 0;
}
