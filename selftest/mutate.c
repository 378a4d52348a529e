/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutation: is each layer missed where it is not there?
 *
 * The program nsbox-mutant, the only one that can leave layers out, makes a sandbox inside a stand-in
 * for a host and runs one probe in it. Control groups are left out by choosing the tier.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "nsbox/cli/cli.h"
#include "nsbox/plan_build.h"
#include "nsbox/util.h"
#include "selftest/selftest.h"

#define NAMESPACES NSBOX_TIER_NAMESPACE
#define PROCESS	   NSBOX_TIER_PROCESS

/* clang-format off */
struct mutation mutations[] = {
	{ NAMESPACES, NSBOX_LAYER_USER, 0, "A06_ns_user", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_MOUNT, LB(USER), "A06_ns_mnt", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_PID, 0, "A06_ns_pid", NULL, true },
	{ NAMESPACES, NSBOX_LAYER_NET, 0, "G01_loopback", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_IPC, 0, "A06_ns_ipc", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_UTS, 0, "A06_ns_uts", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_CGROUP_NS, 0, "A06_ns_cgroup", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_ROOT, 0, "B04_host_file", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_OVERLAY, 0, "B25_leftovers", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_PROC, 0, "C10_neighbours", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_NO_NEW_PRIVS, LB(SECCOMP) | LB(LANDLOCK_FS) | LB(LANDLOCK_SCOPES), "F02_no_new_privs", NULL, true },
	{ NAMESPACES, NSBOX_LAYER_CAPABILITIES, 0, "F03_capabilities", NULL, true },
	{ NAMESPACES, NSBOX_LAYER_SECCOMP, 0, "D13_mount_family", NULL, true },
	{ NAMESPACES, NSBOX_LAYER_LANDLOCK_FS, 0, "E01_unlisted", NULL, true },
	{ NAMESPACES, NSBOX_LAYER_LANDLOCK_SCOPES, LB(NET), "E04_abstract", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_NFTABLES, LB(NET) | LB(USER), "G04_special", "a virtual link", false },
	{ NAMESPACES, NSBOX_LAYER_CGROUP, 0, "H03_pipes", NULL, false },
	{ NAMESPACES, NSBOX_LAYER_WITNESS, 0, "W01_witness", NULL, false },
	/* A mutant is an ordinary user: it cannot have another, and has no capabilities that outlast execve. */
	{ PROCESS, NSBOX_LAYER_LANDLOCK_FS, 0, "B04_host_file", NULL, true },
	{ PROCESS, NSBOX_LAYER_LANDLOCK_SCOPES, 0, "E06_signal", NULL, true },
	{ PROCESS, NSBOX_LAYER_NO_NEW_PRIVS, LB(SECCOMP) | LB(LANDLOCK_FS) | LB(LANDLOCK_SCOPES), "F02_no_new_privs", NULL, true },
	{ PROCESS, NSBOX_LAYER_SECCOMP, 0, "D13_mount_family", NULL, true },
	{ PROCESS, NSBOX_LAYER_WITNESS, 0, "W01_witness", NULL, false },
};
/* clang-format on */
const size_t mutations_n = ARRAY_SIZE(mutations);

static const struct probe_row *find_row(const char *name)
{
	for (size_t i = 0; i < probe_n_rows; i++)
		if (!strcmp(probe_rows[i].name, name))
			return &probe_rows[i];
	return NULL;
}

/* ------------------------------------------------------------------ the mutant */

static void layer_names(uint32_t layers, char *buf, int size)
{
	int n = nsbox_format(buf, size, "none");

	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (layers & NSBOX_LAYER_BIT(i))
			n += nsbox_format(buf + n, size - n, ",%s", nsbox_layer_name(i));
}

struct mutant {
	pid_t pid;
	int out;
};

static struct mutant start_program(const char *const *argv)
{
	struct mutant m = { -1, -1 };
	int out[2];

	if (pipe2(out, O_CLOEXEC) < 0)
		return m;
	m.pid = fork();
	if (m.pid == 0) {
		dup2(out[1], 1);
		execv(argv[0], (char *const *)argv);
		dprintf(1, "SKIP: %s: %s\n", argv[0], strerror(errno));
		_exit(125);
	}
	close(out[1]);
	m.out = out[0];
	return m;
}

/* A sandbox without these layers, in which a probe runs: several at once, for what they take. */
static struct mutant start_without(const struct box_options *opt, const struct probe_row *row,
				   uint32_t layers, bool witness, int tier)
{
	char path[4096], names[400];
	const char *argv[12] = { cli_libexec("nsbox-mutant", path, sizeof(path)) };
	int n = 1;

	if (!witness)
		layers |= LB(WITNESS);
	layer_names(layers, names, sizeof(names));
	argv[n++] = row->name;
	argv[n++] = names;
	argv[n++] = opt->profile ? opt->profile : "";
	argv[n++] = opt->manifest ? opt->manifest : "";
	argv[n++] = nsbox_tier_name(tier);
	argv[n] = NULL;
	return start_program(argv);
}

/* The last line and exit status are as a probe's. */
static struct verdict end_mutant(struct mutant *m, const struct probe_row *row)
{
	struct ending e = { .status = -1 };
	int status = 0;
	size_t len = 0;
	ssize_t n;

	while (m->out >= 0 && (n = read(m->out, e.out + len, sizeof(e.out) - 1 - len)) > 0)
		len += (size_t)n;
	close_fd(&m->out);
	e.out[len] = '\0';
	while (m->pid > 0 && waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (m->pid > 0 && WIFEXITED(status))
		e.status = WEXITSTATUS(status);
	nsbox_format(e.why, sizeof(e.why), "the mutant did not end by itself");
	return judge_ending(&(struct probe_row){ .name = row->name }, &e);
}

/* ------------------------------------------------------------------ each layer */

static void by_tier(struct mutation *m, const struct box *b, const struct facts *f)
{
	const struct probe_row *row = find_row(m->probe);
	struct ending e;

	box_run(b, row, f, NSBOX_TIER_CGROUP, &e);
	m->with = judge_ending(row, &e);
	box_run(b, row, f, NSBOX_TIER_NAMESPACE, &e);
	m->without = judge_ending(row, &e);
}

static void by_mutants(struct mutation *m, const struct box_options *opt,
		       const struct probe_row *row)
{
	uint32_t bit = NSBOX_LAYER_BIT(m->layer);
	struct mutant with, without, found = { -1, -1 };

	with = start_without(opt, row, m->others, m->layer == NSBOX_LAYER_WITNESS, m->tier);
	without = start_without(opt, row, m->others | bit, false, m->tier);
	if (m->witness)
		found = start_without(opt, row, bit, true, m->tier);
	m->with = end_mutant(&with, row);
	m->without = end_mutant(&without, row);
	if (m->witness)
		m->found = end_mutant(&found, row);
}

static const char *why_not(const struct mutation *m, const struct box *b)
{
	uint32_t have = nsbox_host_layers(&b->host), need = NSBOX_LAYER_BIT(m->layer) | m->others;

	if (b->process && !(have & LB(USER)))
		return "a stand-in for a host takes namespaces, which this one has not";
	if (b->plan &&
	    blob_fixed(plan_blob(b->plan), struct plan_fixed)->layer[m->layer] == NSBOX_OFF)
		return "the policy does without it";
	return (have & need) != need ? "this host does not have it; see nsbox doctor" : NULL;
}

static void try_mutation(struct mutation *m, const struct box_options *opt, const struct box *b,
			 const struct facts *f)
{
	const struct probe_row *row = find_row(m->probe);
	const char *why = why_not(m, b);

	m->kind = V_NA;
	if (why) {
		nsbox_format(m->without.text, sizeof(m->without.text), "%s", why);
		return;
	}
	if (m->layer == NSBOX_LAYER_CGROUP)
		by_tier(m, b, f);
	else
		by_mutants(m, opt, row);
	if (m->needs && (m->with.kind == V_NA || m->without.kind == V_NA)) {
		m->without = m->with.kind == V_NA ? m->with : m->without;
		return;
	}
	m->kind = m->with.kind == V_HELD && m->without.kind == V_ESCAPED ? V_HELD : V_BROKEN;
	if (m->witness &&
	    (m->found.kind != V_BROKEN || !strstr(m->found.text, "it ended by sandbox")))
		m->kind = V_BROKEN;
}

const char *mutation_word(const struct mutation *m)
{
	static const char *const words[V_MAX] = { [V_NONE] = "not tried",
						  [V_HELD] = "noticed",
						  [V_BROKEN] = "UNNOTICED",
						  [V_NA] = "n/a" };

	return words[m->kind];
}

bool mutation_tried(const struct mutation *m)
{
	return m->kind != V_NONE;
}

unsigned mutations_tried(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < mutations_n; i++)
		n += mutation_tried(&mutations[i]);
	return n;
}

const char *mutation_probe(const struct mutation *m)
{
	return find_row(m->probe)->id;
}

static void tell(const struct mutation *m)
{
	printf("%-10s without %-16s", mutation_word(m), nsbox_layer_name(m->layer));
	if (m->kind == V_NA)
		printf(" %s\n", m->without.text);
	else if (m->kind == V_HELD)
		printf(" %s%s\n", find_row(m->probe)->id, m->witness ? ", and the witness" : "");
	else
		printf(" %s: with it %s (%s), without %s (%s)%s%s\n", find_row(m->probe)->id,
		       verdict_name(m->with.kind), m->with.text, verdict_name(m->without.kind),
		       m->without.text, m->witness ? "; the witness: " : "",
		       m->witness ? m->found.text : "");
	fflush(stdout);
}

unsigned mutate_all(const struct box_options *opt, const struct box *b, const struct facts *f,
		    bool text)
{
	unsigned unnoticed = 0;

	for (size_t i = 0; i < mutations_n; i++) {
		if ((mutations[i].tier == NSBOX_TIER_PROCESS) != b->process)
			continue;
		try_mutation(&mutations[i], opt, b, f);
		unnoticed += mutations[i].kind == V_BROKEN;
		if (text)
			tell(&mutations[i]);
	}
	return unnoticed;
}
