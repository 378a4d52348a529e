/* SPDX-License-Identifier: Apache-2.0 */
/* skill.json: what is read, and the exact words for what is not. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "nsbox/util.h"
#include "policy/internal.h"

static struct nsbox_manifest *parse(const char *json)
{
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;

	ck_assert_msg(nsbox_manifest_parse(json, strlen(json), &m, &err) == 0, "%s", err.msg);
	return m;
}

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static const char whole[] =
	"{\"$schema\":\"https://nsbox.example/schema/skill-1.json\",\"manifestVersion\":1,"
	"\"name\":\"pdf-report\",\"version\":\"1.2.0\",\"description\":\"d\",\"license\":\"MIT\","
	"\"authors\":[\"a\",\"b\"],\"profile\":\"strict\",\"platforms\":[\"linux/amd64\"],"
	"\"entrypoints\":{\"main\":{\"command\":[\"python3\",\"run.py\"],\"timeout\":\"60s\","
	"\"stdin\":\"text\",\"cwd\":\"sub\",\"description\":\"x\"},\"other\":{\"command\":[\"sh\"]}"
	"},"
	"\"runtime\":{\"rootfs\":\"host\",\"interpreter\":{\"name\":\"python3\",\"version\":\">=3."
	"11,<4\"},"
	"\"packages\":{\"lockfile\":\"requirements.lock\",\"sha256\":\"" ZEROS "\"}},"
	"\"compatibility\":{\"kernel\":\">=5.13\",\"landlockAbi\":1,\"features\":[\"proc\"]},"
	"\"files\":{\"executable\":[\"tool.sh\"],\"digests\":{\"bin/x\":\"" ZEROS "\"}},"
	"\"filesystem\":{\"read\":[\"/"
	"data\",{\"path\":\"/"
	"x\",\"optional\":true,\"description\":\"d\"}],\"write\":[\"out\"],\"exec\":[\"bin\"],"
	"\"mask\":[\".env\"],"
	"\"readOnly\":[\"conf\"],\"skill\":\"overlay\",\"workspace\":{\"mode\":\"overlay\","
	"\"size\":"
	"\"32Mi\"},\"tmp\":{\"size\":\"16Mi\",\"exec\":true}},"
	"\"outputs\":[{\"glob\":\"out/*.pdf\",\"maxBytes\":\"20Mi\",\"maxFiles\":3,\"mediaType\":"
	"\"application/pdf\"}],"
	"\"network\":{\"mode\":\"allowlist\",\"allow\":[{\"host\":\"*.Example.com.\",\"ports\":["
	"443,80],"
	"\"protocol\":\"udp\",\"description\":\"d\",\"optional\":true}],\"denyCidrs\":[\"fd00::/"
	"8\"],"
	"\"dns\":\"broker\"},"
	"\"secrets\":[{\"name\":\"TOKEN\",\"source\":\"vault:t\",\"hosts\":[\"a.example\"],"
	"\"inject\":\"file\",\"sensitive\":true,\"description\":\"d\",\"optional\":true}],"
	"\"userConfig\":{\"size\":{\"type\":\"integer\",\"title\":\"t\",\"description\":\"d\","
	"\"default\":2,\"required\":true,\"min\":1,\"max\":3,\"enum\":[1,2,3]}},"
	"\"session\":{\"mode\":\"session\",\"idleTimeout\":\"5m\",\"ttl\":\"1h\",\"maxCommands\":9,"
	"\"warm\":true},"
	"\"determinism\":{\"time\":\"2026-01-31T12:00:00Z\",\"seed\":7,\"hostname\":\"h-1\"},"
	"\"audit\":{\"level\":\"full\",\"retain\":\"30d\"},"
	"\"mcp\":{\"tools\":[\"main\",{\"entrypoint\":\"other\",\"name\":\"o\",\"description\":"
	"\"d\","
	"\"inputSchema\":{\"type\":\"object\"}}],\"transport\":\"stdio\"},"
	"\"env\":{\"pass\":[\"LANG\"],\"set\":{\"A\":\"1\",\"b_2\":"
	"\"\"}},"
	"\"process\":{\"subprocess\":\"skill\",\"jit\":true,\"threads\":false,\"ptrace\":true,"
	"\"userns\":false,\"netlink\":false,\"listen\":false,\"user\":\"nobody\"},"
	"\"syscalls\":{\"allow\":[\"personality\"],\"groups\":[\"@ipc\"]},"
	"\"resources\":{\"cpu\":\"1.5\",\"memory\":\"512Mi\",\"pids\":32,\"disk\":\"100Mi\","
	"\"swap\":\"1Gi\",\"openFiles\":"
	"256,\"fileSize\":\"10Mi\",\"stdout\":\"64Ki\",\"stderr\":65536,\"result\":\"1Mi\"},"
	"\"timeouts\":{\"wall\":\"90s\",\"cpu\":\"10s\",\"grace\":\"500ms\"},"
	"\"require\":{\"landlockFs\":\"require\"},\"minTier\":\"cgroup\","
	"\"tests\":[{\"name\":\"t\",\"entrypoint\":\"other\",\"args\":[\"-v\"],\"stdin\":\"in\","
	"\"expect\":{\"exit\":3,\"stdoutMatches\":\"^a$\",\"stderrMatches\":\"b\","
	"\"outputs\":[\"out/x\"]}}],"
	"\"x-vendor\":{\"anything\":[1]},\"_meta\":{\"com.example\":1}}";

START_TEST(every_field_is_read)
{
	struct nsbox_manifest *m = parse(whole);

	ck_assert_str_eq(nsbox_manifest_name(m), "pdf-report");
	ck_assert_str_eq(m->version, "1.2.0");
	ck_assert_str_eq(m->authors[1], "b");
	ck_assert_uint_eq(m->profile, PROFILE_STRICT);
	ck_assert_str_eq(m->platforms[0], "linux/amd64");
	ck_assert_uint_eq(m->n_entrypoints, 2);
	ck_assert_uint_eq(m->n_tests, 1);
	ck_assert_str_eq(m->tests[0].name, "t");
	ck_assert_str_eq(m->tests[0].entrypoint, "other");
	ck_assert_str_eq(m->tests[0].args[0], "-v");
	ck_assert_str_eq(m->tests[0].input, "in");
	ck_assert_uint_eq(m->tests[0].exit, 3);
	ck_assert_str_eq(m->tests[0].stdout_matches, "^a$");
	ck_assert_str_eq(m->tests[0].stderr_matches, "b");
	ck_assert_str_eq(m->tests[0].outputs[0], "out/x");
	ck_assert_str_eq(m->executable[0], "tool.sh");
	ck_assert_str_eq(m->runtime.interpreter_version, ">=3.11,<4");
	ck_assert_str_eq(m->runtime.lockfile, "requirements.lock");
	ck_assert_str_eq(m->compatibility.features[0], "proc");
	ck_assert_str_eq(m->digests[0].name, "bin/x");
	ck_assert_str_eq(m->digests[0].value, ZEROS);
	ck_assert_uint_eq(m->fs.read.n, 2);
	ck_assert_str_eq(m->fs.read.v[0].path, "/data");
	ck_assert(!m->fs.read.v[0].optional);
	ck_assert_str_eq(m->fs.read.v[1].path, "/x");
	ck_assert(m->fs.read.v[1].optional);
	ck_assert_uint_eq(m->network.mode, NETWORK_ALLOWLIST);
	ck_assert_uint_eq(m->network.n_allow, 1);
	ck_assert_str_eq(m->network.allow[0].host, "*.Example.com.");
	ck_assert_uint_eq(m->network.allow[0].ports[1], 80);
	ck_assert_uint_eq(m->network.allow[0].ports[2], 0);
	ck_assert_uint_eq(m->network.allow[0].protocol, 1);
	ck_assert(m->network.allow[0].optional);
	ck_assert_str_eq(m->network.deny_cidrs[0], "fd00::/8");
	ck_assert_str_eq(m->secrets[0].source, "vault:t");
	ck_assert_uint_eq(m->secrets[0].inject, INJECT_FILE);
	ck_assert_str_eq(m->config[0].id, "size");
	ck_assert_uint_eq(m->config[0].type, CONFIG_INTEGER);
	ck_assert(m->config[0].required);
	ck_assert_uint_eq(m->session.mode, SESSION_SESSION);
	ck_assert_uint_eq(m->session.ttl_ms, 3600000);
	ck_assert_uint_eq(m->determinism.seed, 7);
	ck_assert_str_eq(m->determinism.hostname, "h-1");
	ck_assert_uint_eq(m->audit.level, 2);
	ck_assert_uint_eq(m->mcp.n_tools, 2);
	ck_assert_str_eq(m->mcp.tools[0].entrypoint, "main");
	ck_assert_str_eq(m->mcp.tools[1].name, "o");
	ck_assert_str_eq(m->syscall_groups[0], "@ipc");
	ck_assert_uint_eq(m->process.listen, 0);
	ck_assert_uint_eq(m->res.swap, 1u << 30);
	ck_assert_str_eq(m->fs.mask[0], ".env");
	ck_assert_uint_eq(m->fs.skill, SKILL_OVERLAY);
	ck_assert_uint_eq(m->fs.workspace, WORKSPACE_OVERLAY);
	ck_assert_uint_eq(m->fs.workspace_size, 32u << 20);
	ck_assert_uint_eq(m->fs.tmp_size, 16u << 20);
	ck_assert_uint_eq(m->fs.tmp_exec, 1);
	ck_assert_str_eq(m->outputs[0].glob, "out/*.pdf");
	ck_assert_uint_eq(m->outputs[0].max_bytes, 20u << 20);
	ck_assert_uint_eq(m->outputs[0].max_files, 3);
	ck_assert_str_eq(m->env_pass[0], "LANG");
	ck_assert_uint_eq(m->n_env_set, 2);
	ck_assert_str_eq(m->env_set[1].name, "b_2");
	ck_assert_str_eq(m->env_set[1].value, "");
	ck_assert_uint_eq(m->process.subprocess, SUBPROCESS_SKILL);
	ck_assert_uint_eq(m->process.jit, 1);
	ck_assert_uint_eq(m->process.threads, 0);
	ck_assert_str_eq(m->syscalls[0], "personality");
	ck_assert_uint_eq(m->res.cpu_milli, 1500);
	ck_assert_uint_eq(m->res.memory, 512u << 20);
	ck_assert_uint_eq(m->res.stderr_max, 65536);
	ck_assert_uint_eq(m->timeouts.wall_ms, 90000);
	ck_assert_uint_eq(m->timeouts.grace_ms, 500);
	ck_assert_uint_eq(m->require[NSBOX_LAYER_LANDLOCK_FS], NSBOX_REQUIRE);
	ck_assert_uint_eq(m->require[NSBOX_LAYER_USER], UNSET);
	ck_assert_uint_eq(m->min_tier, NSBOX_TIER_CGROUP);
	ck_assert_uint_eq(strlen(m->sha256), 64);
	nsbox_manifest_free(m);
}
END_TEST

START_TEST(the_default_manifest)
{
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;

	ck_assert_int_eq(nsbox_manifest_default(&m, &err), 0);
	ck_assert(m->is_default);
	ck_assert_uint_eq(m->profile, PROFILE_STANDARD);
	ck_assert_str_eq(m->sha256, "");
	ck_assert_str_eq(nsbox_manifest_name(m), "");
	nsbox_manifest_free(m);
	nsbox_manifest_free(NULL);
}
END_TEST

START_TEST(the_text_is_what_is_hashed)
{
	/* printf '{"manifestVersion":1}' | sha256sum */
	struct nsbox_manifest *m = parse("{\"manifestVersion\":1}");

	ck_assert_str_eq(m->sha256,
			 "735477383583dad89e27956e0876542e6dcccb12923e877318c50c1ba4c2f2d6");
	nsbox_manifest_free(m);
}
END_TEST

/* ------------------------------------------------------------------ entry points */

START_TEST(entrypoints_by_name)
{
	struct nsbox_manifest *m = parse(whole);
	struct nsbox_error err = { 0 };
	struct nsbox_entrypoint e;

	ck_assert_int_eq(nsbox_manifest_entrypoint(m, NULL, &e, &err), 0);
	ck_assert_str_eq(e.id, "main");
	ck_assert_str_eq(e.command[1], "run.py");
	ck_assert_ptr_null(e.command[2]);
	ck_assert_str_eq(e.cwd, "sub");
	ck_assert_uint_eq(e.timeout_ms, 60000);
	ck_assert_int_eq(nsbox_manifest_entrypoint(m, "other", &e, &err), 0);
	ck_assert_ptr_null(e.cwd);
	ck_assert(!e.no_stdin);
	ck_assert_int_lt(nsbox_manifest_entrypoint(m, "mian", &e, &err), 0);
	ck_assert_int_eq(err.code, NSBOX_E_INVALID);
	ck_assert_str_eq(err.msg, "no entrypoint 'mian'; the manifest has: main, other");
	nsbox_manifest_free(m);
}
END_TEST

START_TEST(the_only_entrypoint)
{
	struct nsbox_manifest *m =
		parse("{\"manifestVersion\":1,\"entrypoints\":{\"go\":{\"command\":"
		      "[\"a\"],\"stdin\":\"none\",\"cwd\":\"..a/b..\"}}}");
	struct nsbox_error err = { 0 };
	struct nsbox_entrypoint e;

	ck_assert_int_eq(nsbox_manifest_entrypoint(m, NULL, &e, &err), 0);
	ck_assert_str_eq(e.id, "go");
	ck_assert(e.no_stdin);
	nsbox_manifest_free(m);
	m = parse("{\"manifestVersion\":1}");
	ck_assert_int_lt(nsbox_manifest_entrypoint(m, NULL, &e, &err), 0);
	ck_assert_str_eq(err.msg, "the manifest has no entrypoints");
	nsbox_manifest_free(m);
}
END_TEST

/* ------------------------------------------------------------------ refusals */

/* `body` is what follows {"manifestVersion":1, */
static const struct {
	const char *body, *message;
} refusals[] = {
	{ "\"profil\":\"strict\"", "/profil: unknown key, did you mean \"profile\"?" },
	{ "\"profile\":\"srict\"", "/profile: \"srict\" is not known, did you mean \"strict\"?" },
	{ "\"profile\":null", "/profile: expected a string, found null" },
	{ "\"name\":\"Big Name\"",
	  "/name: must be lower-case letters, digits, '-', '_' and '.', at most 64" },
	{ "\"name\":\"../x\"",
	  "/name: must be lower-case letters, digits, '-', '_' and '.', at most 64" },
	{ "\"name\":\".x\"",
	  "/name: must be lower-case letters, digits, '-', '_' and '.', at most 64" },
	{ "\"filesystem\":{\"mask\":[\"a\",\"../x\"]}",
	  "/filesystem/mask/1: must not contain \"..\"" },
	{ "\"filesystem\":{\"read\":[\"/a/../../x\"]}",
	  "/filesystem/read/0: must not contain \"..\"" },
	{ "\"filesystem\":{\"mask\":[\"a\\nb\"]}",
	  "/filesystem/mask/0: contains a control character" },
	{ "\"files\":{\"digests\":{\"a\\u007fb\":\"12\"}}",
	  "/files/digests/a\\u007fb: contains a control character" },
	{ "\"filesystem\":{\"read\":[{\"path\":\"..\"}]}",
	  "/filesystem/read/0/path: must not contain \"..\"" },
	{ "\"filesystem\":{\"read\":[{\"optional\":true}]}",
	  "/filesystem/read/0/path: is required" },
	{ "\"filesystem\":{\"read\":[{\"path\":\"a\",\"optionl\":true}]}",
	  "/filesystem/read/0/optionl: unknown key, did you mean \"optional\"?" },
	{ "\"filesystem\":{\"read\":[1]}",
	  "/filesystem/read/0: expected a string, found a number" },
	{ "\"runtime\":{\"interpreter\":{\"name\":\"python3\",\"version\":\"3.11\"}}",
	  "/runtime/interpreter/version: is not a range of versions like \">=3.11,<3.13\"" },
	{ "\"runtime\":{\"packages\":{\"lockfile\":\"/etc/x\",\"sha256\":\"00\"}}",
	  "/runtime/packages/lockfile: is not a file of the skill: a relative path without empty, "
	  "\".\" or \"..\" parts" },
	{ "\"compatibility\":{\"kernel\":\"5.13\"}",
	  "/compatibility/kernel: is not a least version like \">=5.13\"" },
	{ "\"compatibility\":{\"features\":[\"landlockfs\"]}",
	  "/compatibility/features/0: unknown layer, did you mean \"landlockFs\"?" },
	{ "\"files\":{\"digests\":{\"a\":\"12\"}}",
	  "/files/digests/a: is not a SHA-256: 64 digits 0-9 and a-f" },
	{ "\"files\":{\"digests\":{\"a//b\":\"12\"}}",
	  "/files/digests/a~1~1b: is not a file of the skill: a relative path without empty, \".\" "
	  "or \"..\" parts" },
	{ "\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[443]}]}",
	  "/network/allow/0/description: is required" },
	{ "\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[0],\"description\":\"d\"}]}",
	  "/network/allow/0/ports/0: must be at least 1" },
	{ "\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[65536],\"description\":\"d\"}"
	  "]}",
	  "/network/allow/0/ports/0: must be at most 65535" },
	{ "\"network\":{\"allow\":[{\"host\":\"a.example\",\"ports\":[],\"description\":\"d\"}]}",
	  "/network/allow/0/ports: needs at least 1 entries" },
	{ "\"network\":{\"allow\":[{\"host\":\"*\",\"ports\":[1],\"description\":\"d\"}]}",
	  "/network/allow/0/host: \"*\" is every host: that is network.mode \"open\"" },
	{ "\"network\":{\"denyCidrs\":[\"10.0.0.0/8\",\"10.1/16\"]}",
	  "/network/denyCidrs/1: \"10.1/16\" is not an address in full form, like 192.0.2.0/24" },
	{ "\"network\":{\"dns\":\"host\"}", "/network/dns: \"host\" is not one of \"broker\"" },
	{ "\"secrets\":[{\"name\":\"KEY\",\"source\":\"vault:x\"}]",
	  "/secrets/0/description: is required" },
	{ "\"secrets\":[{\"name\":\"KEY\",\"source\":\"s3cr3t=\",\"description\":\"d\"}]",
	  "/secrets/0/source: must name a secret, like \"vault:team/token\": letters, digits and "
	  "-_./: alone; its value never stands here" },
	{ "\"userConfig\":{\"n\":{\"type\":\"integer\",\"default\":\"1\"}}",
	  "/userConfig/n/default: is not of the type \"integer\"" },
	{ "\"userConfig\":{\"n\":{\"type\":\"integer\",\"default\":9,\"max\":8}}",
	  "/userConfig/n: min, max and default contradict each other" },
	{ "\"userConfig\":{\"n\":{\"type\":\"string\",\"max\":8}}",
	  "/userConfig/n/max: is not of the type \"string\"" },
	{ "\"userConfig\":{\"n\":{\"type\":\"string\",\"default\":\"x\",\"sensitive\":true}}",
	  "/userConfig/n/default: would put a sensitive value into the file" },
	{ "\"userConfig\":{\"n\":{\"type\":\"string\",\"default\":\"c\",\"enum\":[\"a\",\"b\"]}}",
	  "/userConfig/n/default: is not one of the values of enum" },
	{ "\"userConfig\":{\"n\":{\"type\":\"string\",\"enum\":[\"a\",1]}}",
	  "/userConfig/n/enum: is not of the type \"string\"" },
	{ "\"userConfig\":{\"n\":{\"type\":\"string\",\"default\":null}}",
	  "/userConfig/n/default: must not be null" },
	{ "\"userConfig\":{\"1x\":{\"type\":\"string\"}}",
	  "/userConfig/1x: is not the name of a parameter: letters, digits and '_'" },
	{ "\"session\":{\"mode\":\"forever\"}",
	  "/session/mode: \"forever\" is not one of \"oneshot\", \"session\"" },
	{ "\"determinism\":{\"time\":\"2026-01-31\"}",
	  "/determinism/time: is not a time like \"2026-01-31T12:00:00Z\"" },
	{ "\"determinism\":{\"hostname\":\"a_b\"}",
	  "/determinism/hostname: is not a host name of at most 63 characters" },
	{ "\"audit\":{\"level\":\"everything\"}",
	  "/audit/level: \"everything\" is not one of \"decisions\", \"denials\", \"full\"" },
	{ "\"mcp\":{\"tools\":[{\"name\":\"x\"}]}", "/mcp/tools/0/entrypoint: is required" },
	{ "\"syscalls\":{\"groups\":[\"@mounts\"]}",
	  "/syscalls/groups/0: unknown group of system calls, did you mean \"@mount\"?" },
	{ "\"platforms\":[\"amd64\"]",
	  "/platforms/0: \"amd64\" is not a platform like \"linux/amd64\"" },
	{ "\"tests\":{}", "/tests: expected an array, found an object" },
	{ "\"tests\":[{}]", "/tests/0/expect: is required" },
	{ "\"tests\":[{\"expect\":{\"exit\":256}}]", "/tests/0/expect/exit: must be at most 255" },
	{ "\"tests\":[{\"expect\":{\"stdout\":\"x\"}}]", "/tests/0/expect/stdout: unknown key" },
	{ "\"network\":{\"mode\":\"None\"}",
	  "/network/mode: \"None\" is not known, did you mean \"none\"?" },
	{ "\"network\":\"none\"", "/network: expected an object, found a string" },
	{ "\"entrypoints\":{\"main\":{}}", "/entrypoints/main/command: is required" },
	{ "\"entrypoints\":{\"main\":{\"command\":[]}}",
	  "/entrypoints/main/command: needs at least 1 entries" },
	{ "\"entrypoints\":{\"main\":{\"command\":\"ls\"}}",
	  "/entrypoints/main/command: expected an array of strings, found a string" },
	{ "\"entrypoints\":{\"main\":{\"command\":[\"a\",\"\"]}}",
	  "/entrypoints/main/command/1: is empty" },
	{ "\"entrypoints\":{\"a b\":{\"command\":[\"a\"]}}",
	  "/entrypoints/a b: is not a name: lower-case letters, digits, '-', '_'" },
	{ "\"entrypoints\":{\"main\":{\"command\":[\"a\"],\"timeout\":60}}",
	  "/entrypoints/main/timeout: expected a time like \"30s\", found a number" },
	{ "\"entrypoints\":{\"main\":{\"command\":[\"a\"],\"cwd\":\"a/../b\"}}",
	  "/entrypoints/main/cwd: must not contain \"..\"" },
	{ "\"entrypoints\":[]", "/entrypoints: expected an object, found an array" },
	{ "\"resources\":{\"memory\":\"512MB\"}",
	  "/resources/memory: \"512MB\" has no unit of bytes: Ki, Mi, Gi, Ti, or k, M, G, T" },
	{ "\"resources\":{\"memory\":-1}",
	  "/resources/memory: \"-1\" is not a plain decimal number with a unit" },
	{ "\"resources\":{\"memory\":1e18}",
	  "/resources/memory: \"1e18\" has no unit of bytes: Ki, Mi, Gi, Ti, or k, M, G, T" },
	{ "\"resources\":{\"memory\":\"1Mi\"}", "/resources/memory: must be at least 16777216" },
	{ "\"resources\":{\"memory\":true}",
	  "/resources/memory: expected an amount like \"512Mi\", found true or false" },
	{ "\"resources\":{\"pids\":\"32\"}",
	  "/resources/pids: expected a whole number, found a string" },
	{ "\"resources\":{\"pids\":0}", "/resources/pids: must be at least 2" },
	{ "\"resources\":{\"pids\":-0}", "/resources/pids: must be at least 2" },
	{ "\"resources\":{\"pids\":1.5}",
	  "/resources/pids: expected a whole number, found a fraction" },
	{ "\"resources\":{\"pids\":4294967296}", "/resources/pids: is too large" },
	{ "\"resources\":{\"cpu\":\"0\"}", "/resources/cpu: must be at least 10" },
	{ "\"timeouts\":{\"wall\":\"0s\"}", "/timeouts/wall: must be at least 1" },
	{ "\"timeouts\":{\"wall\":0}",
	  "/timeouts/wall: expected a time like \"30s\", found a number" },
	{ "\"timeouts\":{\"wall\":\"-1s\"}",
	  "/timeouts/wall: \"-1s\" is not a plain decimal number with a unit" },
	{ "\"filesystem\":{\"mask\":\"x\"}",
	  "/filesystem/mask: expected an array of strings, found a string" },
	{ "\"filesystem\":{\"readonly\":[]}",
	  "/filesystem/readonly: unknown key, did you mean \"readOnly\"?" },
	{ "\"process\":{\"user\":0}", "/process/user: expected a string, found a number" },
	{ "\"process\":{\"jit\":\"yes\"}", "/process/jit: expected true or false, found a string" },
	{ "\"syscalls\":[\"mount\"]", "/syscalls: expected an object, found an array" },
	{ "\"env\":{\"set\":{\"A=B\":\"1\"}}",
	  "/env/set/A=B: is not the name of a variable: letters, digits and '_'" },
	{ "\"env\":{\"set\":{\"BASH_FUNC_x%%\":\"1\"}}",
	  "/env/set/BASH_FUNC_x%%: is not the name of a variable: letters, digits and '_'" },
	{ "\"env\":{\"set\":{\"\":\"1\"}}",
	  "/env/set/: is not the name of a variable: letters, digits and '_'" },
	{ "\"env\":{\"set\":{\"1A\":\"1\"}}",
	  "/env/set/1A: is not the name of a variable: letters, digits and '_'" },
	{ "\"env\":{\"set\":{\"A\":1}}", "/env/set/A: expected a string, found a number" },
	{ "\"env\":{\"pass\":[\"A\",\"B C\"]}",
	  "/env/pass/1: is not the name of a variable: letters, digits and '_'" },
	{ "\"require\":{\"landlock\":\"require\"}",
	  "/require/landlock: unknown key, did you mean \"landlockFs\"?" },
	{ "\"require\":{\"seccomp\":\"must\"}",
	  "/require/seccomp: \"must\" is not one of \"off\", \"prefer\", \"require\"" },
	{ "\"minTier\":\"vm\"",
	  "/minTier: \"vm\" is not one of \"process\", \"namespace\", \"cgroup\"" },
	{ "\"platforms\":[]", "/platforms: needs at least 1 entries" },
	{ "\"outputs\":[{}]", "/outputs/0/glob: is required" },
	{ "\"outputs\":[{\"glob\":\"a\",\"maxFiles\":0}]",
	  "/outputs/0/maxFiles: must be at least 1" },
	{ "\"seccomp\":\"unconfined\"", "/seccomp: unknown key" },
	{ "\"mounts\":[]", "/mounts: unknown key" },
	{ "\"manifestVersion\":1", "duplicate key \"manifestVersion\" (line 1, column 22)" },
};

START_TEST(refusals_by_place)
{
	char text[1024];
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;

	snprintf(text, sizeof(text), "{\"manifestVersion\":1,%s}", refusals[_i].body);
	ck_assert_msg(nsbox_manifest_parse(text, strlen(text), &m, &err) == -EINVAL, "accepted: %s",
		      text);
	ck_assert_ptr_null(m);
	ck_assert_str_eq(err.msg, refusals[_i].message);
	ck_assert_int_eq(err.code, NSBOX_E_MANIFEST);
}
END_TEST

static const struct {
	const char *text, *message;
} wrong[] = {
	{ "", "empty text (line 1, column 1)" },
	{ "[]", "/: expected an object, found an array" },
	{ "null", "/: expected an object, found null" },
	{ "{}", "/manifestVersion: is required" },
	{ "{\"manifestVersion\":2}", "/manifestVersion: must be 1" },
	{ "{\"manifestVersion\":\"1\"}",
	  "/manifestVersion: expected a whole number, found a string" },
	{ "{\"manifestVersion\":1.0}",
	  "/manifestVersion: expected a whole number, found a fraction" },
};

START_TEST(wrong_texts)
{
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;

	ck_assert_int_lt(nsbox_manifest_parse(wrong[_i].text, strlen(wrong[_i].text), &m, &err), 0);
	ck_assert_str_eq(err.msg, wrong[_i].message);
}
END_TEST

START_TEST(large_files_are_refused)
{
	size_t n = (256u << 10) + 1;
	auto_free char *text = malloc(n);
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;

	memset(text, ' ', n);
	memcpy(text, "{\"manifestVersion\":1}", 21);
	ck_assert_int_eq(nsbox_manifest_parse(text, n - 1, &m, &err), 0);
	nsbox_manifest_free(m);
	ck_assert_int_lt(nsbox_manifest_parse(text, n, &m, &err), 0);
	ck_assert_int_eq(err.code, NSBOX_E_MANIFEST);
}
END_TEST

/* A list of paths longer than a plan could hold. */
START_TEST(long_lists_are_refused)
{
	char text[4096];
	struct nsbox_error err = { 0 };
	struct nsbox_manifest *m = NULL;
	size_t len =
		(size_t)sprintf(text, "{\"manifestVersion\":1,\"filesystem\":{\"mask\":[\"a\"");

	for (int i = 1; i < 256; i++)
		len += (size_t)sprintf(text + len, ",\"a\"");
	strcpy(text + len, "]}}");
	ck_assert_int_eq(nsbox_manifest_parse(text, strlen(text), &m, &err), 0);
	nsbox_manifest_free(m);
	strcpy(text + len, ",\"a\"]}}");
	ck_assert_int_lt(nsbox_manifest_parse(text, strlen(text), &m, &err), 0);
	ck_assert_str_eq(err.msg, "/filesystem/mask: has more than 256 entries");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("manifest");
	TCase *tc = tcase_create("manifest");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, every_field_is_read);
	tcase_add_test(tc, the_default_manifest);
	tcase_add_test(tc, the_text_is_what_is_hashed);
	tcase_add_test(tc, entrypoints_by_name);
	tcase_add_test(tc, the_only_entrypoint);
	tcase_add_loop_test(tc, refusals_by_place, 0, (int)ARRAY_SIZE(refusals));
	tcase_add_loop_test(tc, wrong_texts, 0, (int)ARRAY_SIZE(wrong));
	tcase_add_test(tc, large_files_are_refused);
	tcase_add_test(tc, long_lists_are_refused);
	suite_add_tcase(s, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
