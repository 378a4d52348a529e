# SPDX-License-Identifier: Apache-2.0
#
# One Makefile, no configure. `make` builds everything under build/$(VARIANT)/; `make help` lists
# the targets. Variables: VARIANT=release|sanitized|asan|ubsan|cover, V=1 shows commands, DESTDIR, PREFIX.

VERSION   := 0.1.0
SOVERSION := 0

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
SBINDIR    ?= $(PREFIX)/sbin
LIBDIR     ?= $(PREFIX)/lib
LIBEXECDIR ?= $(PREFIX)/lib/nsbox
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),,$(PREFIX))/etc
UNITDIR    ?= $(PREFIX)/lib/systemd/system
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
BASHCOMPDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR ?= $(PREFIX)/share/zsh/site-functions
FISHCOMPDIR ?= $(PREFIX)/share/fish/vendor_completions.d
MAXKBDIR   ?= $(PREFIX)/share/nsbox/maxkb
APPARMORDIR ?= $(PREFIX)/share/nsbox/apparmor

CC      ?= gcc
VARIANT ?= release
B       := build/$(VARIANT)

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

# ---------------------------------------------------------------- flags

WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition \
	-Wformat=2 -Wswitch-enum -Wpointer-arith -Wwrite-strings -Wundef -Wvla -Werror=implicit \
	-Werror=return-type -Werror=incompatible-pointer-types -Wno-missing-field-initializers \
	-Wno-unused-parameter
HARDEN := -fstack-protector-strong -fstack-clash-protection -fPIC \
	$(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),-fcf-protection)

OPT_release := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
OPT_arm64   := $(OPT_release)
OPT_asan    := -O1 -g -fsanitize=address -fno-omit-frame-pointer
OPT_sanitized := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_ubsan   := -O1 -g -fsanitize=undefined -fno-sanitize-recover=all
OPT_cover   := -O0 -g --coverage
OPT_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
	-Wno-unused-command-line-argument

CPPFLAGS := -D_GNU_SOURCE -Insbox/include -I. \
	-DNSBOX_VERSION='"$(VERSION)"' -DNSBOX_LIBEXECDIR='"$(LIBEXECDIR)"' -DNSBOX_SYSCONFDIR='"$(SYSCONFDIR)"'
CFLAGS   := -std=gnu17 $(WARN) $(HARDEN) $(OPT_$(VARIANT)) -fvisibility=hidden -MMD -MP $(EXTRA_CFLAGS)
LDFLAGS  := -pie -Wl,--as-needed,-z,relro,-z,now,-z,noexecstack $(OPT_$(VARIANT))

PC := pkg-config
LIBS_CORE   := $(shell $(PC) --libs libmnl libcap 2>/dev/null)
LIBS_POLICY := $(shell $(PC) --libs libseccomp libnftnl json-c libcrypto 2>/dev/null)
LIBS_HTTP   := $(shell $(PC) --libs libmicrohttpd 2>/dev/null)
LIBS_SQLITE := $(shell $(PC) --libs sqlite3 2>/dev/null)
LIBS_ARCHIVE := $(shell $(PC) --libs libarchive zlib 2>/dev/null)
LIBS_CARES  := $(shell $(PC) --libs libcares 2>/dev/null)
LIBS_CHECK  := $(shell $(PC) --libs check 2>/dev/null)

# ---------------------------------------------------------------- what is built

# The library: nsbox/ and overlay/ need only libc, libcap and libmnl; policy/ brings JSON,
# libseccomp, libnftnl and SHA-256. nsbox-spawn links $(LIB_A) with LIBS_CORE alone, so that the
# linker itself keeps JSON out of it.
LIB_SRC     := $(wildcard nsbox/*.c) $(wildcard overlay/*.c) $(wildcard overlay/image/*.c) $(wildcard policy/*.c) $(wildcard policy/skill/*.c)
CLI_SRC     := $(wildcard nsbox/cli/*.c)
COMMON_SRC  := $(wildcard daemon/common/*.c)
FRONT_SRC   := $(wildcard daemon/front/*.c)
SPAWN_SRC   := $(wildcard daemon/spawn/*.c)
COMPILE_SRC := $(wildcard daemon/compile/*.c)
UNPACK_SRC  := $(wildcard overlay/unpack/*.c)
READER_SRC  := $(wildcard overlay/reader/*.c)
COMMIT_SRC  := $(wildcard overlay/commit/*.c)
PACK_SRC    := $(wildcard overlay/pack/*.c)
SELFTEST_SRC := $(wildcard selftest/*.c)
PROBE_SRC   := $(wildcard selftest/probe/*.c)
EGRESS_SRC  := $(wildcard daemon/egress/*.c)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_A  := $(B)/libnsbox.a
LIB_SO := $(B)/libnsbox.so.$(SOVERSION)
TEMPLATE_SO := $(B)/nsbox-template.so
PROGS  := nsbox nsboxd nsbox-spawn nsbox-compile nsbox-unpack nsbox-import nsbox-commit nsbox-pack nsbox-egress nsbox-probe nsbox-mutant
LIBEXEC := $(filter-out nsbox nsboxd,$(PROGS))

all: $(LIB_A) $(LIB_SO) $(TEMPLATE_SO) $(addprefix $(B)/,$(PROGS)) $(B)/libnsbox.pc ## build everything (default)

# What objects depend on beside their sources: another PREFIX, say, compiles them anew.
FLAGS := $(CC) $(CPPFLAGS) $(CFLAGS)
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS))' >$@
FORCE:

$(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# The Python runner travels inside the library; overlay/ places it into each image.
$(B)/obj/overlay/runner_py.o: nsbox/runner/python.py
$(B)/obj/daemon/front/api.o: daemon/front/openapi.json
$(B)/obj/daemon/front/mcp_tools.o: daemon/front/mcp_tools.json
$(B)/obj/daemon/front/api_tools.o: daemon/front/tools_describe.py
$(B)/obj/daemon/front/ui.o: $(wildcard daemon/front/ui/*)

$(LIB_A): $(call obj,$(LIB_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(LIB_SO): $(call obj,$(LIB_SRC)) nsbox/libnsbox.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libnsbox.so.$(SOVERSION) -Wl,--version-script=nsbox/libnsbox.map \
		-Wl,--as-needed,-z,relro,-z,now,-z,noexecstack -Wl,-z,defs $(OPT_$(VARIANT)) -o $@ $(filter %.o,$^) $(LIBS_POLICY) $(LIBS_CORE)
	$(Q)ln -sf libnsbox.so.$(SOVERSION) $(B)/libnsbox.so

# What a template loads (nsbox/template.h): the same set-up, in an interpreter's process.
$(TEMPLATE_SO): $(LIB_A) nsbox/template.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,--version-script=nsbox/template.map -Wl,-u,nsbox_template_serve \
		-Wl,--as-needed,--gc-sections,-z,relro,-z,now,-z,noexecstack -Wl,-z,defs $(OPT_$(VARIANT)) -o $@ $(LIB_A) $(LIBS_POLICY) $(LIBS_CORE)

# Used again by install: PREFIX may differ from that of the build.
PC_SUBST = -e 's|@PREFIX@|$(PREFIX)|;s|@LIBDIR@|$(LIBDIR)|;s|@INCLUDEDIR@|$(INCLUDEDIR)|;s|@VERSION@|$(VERSION)|'
$(B)/libnsbox.pc: nsbox/libnsbox.pc.in Makefile
	@mkdir -p $(@D)
	$(Q)sed $(PC_SUBST) $< >$@

# program: sources, libraries
define program
$(B)/$(1): $$(call obj,$(2)) $$(LIB_A)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$^ $(3)
endef
$(eval $(call program,nsbox,$(CLI_SRC) $(SELFTEST_SRC) $(COMMON_SRC),$(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsboxd,$(FRONT_SRC) $(COMMON_SRC),$(LIBS_HTTP) $(LIBS_SQLITE) $(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsbox-spawn,$(SPAWN_SRC) $(addprefix daemon/common/,wire.c egress_wire.c release.c),$(LIBS_CORE)))
$(eval $(call program,nsbox-compile,$(COMPILE_SRC) daemon/common/wire.c,$(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsbox-unpack,$(UNPACK_SRC),$(LIBS_ARCHIVE) $(LIBS_CORE) $(shell $(PC) --libs libseccomp 2>/dev/null)))
$(eval $(call program,nsbox-commit,$(COMMIT_SRC),$(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsbox-pack,$(PACK_SRC),$(LIBS_ARCHIVE)))
$(eval $(call program,nsbox-import,$(READER_SRC) overlay/unpack/confine.c,$(LIBS_ARCHIVE) $(LIBS_POLICY) $(LIBS_CORE)))

$(eval $(call program,nsbox-egress,$(EGRESS_SRC) $(addprefix daemon/common/,egress_wire.c release.c) daemon/front/loop.c,$(LIBS_CARES) $(LIBS_CORE) $(shell $(PC) --libs libseccomp 2>/dev/null)))

# Mutation: the one program with a build of nsbox/ in which layers can be left out. See nsbox/weaken.h.
MUTANT_SRC := $(wildcard selftest/mutant/*.c)
WEAK_OBJ   := $(patsubst %.c,$(B)/obj/weak/%.o,$(wildcard nsbox/*.c) $(MUTANT_SRC))
$(B)/obj/weak/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -DNSBOX_WEAKEN $(CFLAGS) -c -o $@ $<
$(B)/nsbox-mutant: $(WEAK_OBJ) $(call obj,$(addprefix selftest/,box.c facts.c suite.c)) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_POLICY) $(LIBS_CORE)

# What the selftest sends into sandboxes: static, so that it needs nothing of the image, and without
# a sanitizer, whose runtime would not get along with what is refused there.
$(B)/nsbox-probe: $(PROBE_SRC) selftest/probe/probe.h selftest/probes.h $(B)/flags
	$(call say,LD,$@)
	$(Q)$(CC) $(CPPFLAGS) -std=gnu17 $(WARN) $(HARDEN) $(EXTRA_CFLAGS) -O2 -g -fPIE -static-pie -Wl,-z,relro,-z,now -pthread -o $@ $(PROBE_SRC)

# ---------------------------------------------------------------- tests

UNIT   := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test_*.c))
KERNEL := $(patsubst tests/kernel/%.c,$(B)/tests/kernel/%,$(wildcard tests/kernel/test_*.c))
SUPPORT_SRC := $(wildcard tests/support/*.c)

$(B)/tests/%: $(B)/obj/tests/%.o $(call obj,$(SUPPORT_SRC) $(COMMON_SRC) daemon/egress/dns.c daemon/egress/tls.c) $(LIB_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_CHECK) $(LIBS_SQLITE) $(LIBS_POLICY) $(LIBS_CORE)

# Programs that tests use, each of one file and without the library.
TOOLS := $(patsubst tests/support/tools/%.c,$(B)/tests/tools/%,$(wildcard tests/support/tools/*.c))

$(B)/tests/tools/%: $(B)/obj/tests/support/tools/%.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_POLICY)

SCRIPTS := $(wildcard tests/unit/test_*.py)
E2E    := $(sort $(wildcard tests/e2e/*.t))
ROOT   := $(filter 0,$(shell id -u))

export VARIANT PYTHONDONTWRITEBYTECODE = 1

tests: $(UNIT) $(KERNEL) $(TOOLS) ## build the unit and kernel tests

# Every test file is a program that prints TAP; prove's last line is the verdict.
PROVE := prove --timer --failures --exec ''
# The suites: what fails is run once more by itself, with its diagnostics.
RUN_TESTS := tests/support/run-tests
in_tree = $(addprefix ./,$(1))

# Builds take all processors unless the caller has said how many.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# The packages come first and make starts anew after them: it asks pkg-config as it reads this file.
check: ## install what is missing (apt, as root), build, run all tests
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory $(JOBS) all tests
	$(Q)$(MAKE) --no-print-directory check-here

# Files that look for what is left on the machine, or fill it; process-tier ends what has a user of its runs, in containers, too.
ALONE := $(addprefix ./tests/e2e/,$(addsuffix .t,cases-cli cases-daemon crash faults journal leaks load process-tier))

check-here: all tests
	$(Q)$(if $(ROOT),tests/support/system-users nsbox nsbox-test)
	$(Q)tests/support/both-halves $(RUN_TESTS) -j2 --alone "$(ALONE)" $(call in_tree,$(UNIT) $(SCRIPTS) $(KERNEL) $(E2E))

check-unit: $(UNIT) ## unit tests alone, as the caller
	$(Q)$(PROVE) $(call in_tree,$(UNIT) $(SCRIPTS))

check-kernel: all $(KERNEL) ## tests of single mechanisms in the running kernel
	$(Q)$(PROVE) $(call in_tree,$(KERNEL))

check-e2e: all $(TOOLS) ## tests of the whole product, as the caller
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(PROVE) $(call in_tree,$(E2E))

# Kernels of Debian, each in virtual machines: the oldest that is supported and newer ones, on the hosts
# of tests/vm/hosts.py. ARCH=arm64 compiles for that and boots its kernels.
comma       := ,
ARCH        ?= amd64
VM_KERNELS  ?= $(if $(filter arm64,$(ARCH)),6.1:plain$(comma)tests$(comma)tests-user \
		6.12:plain$(comma)tests$(comma)tests-user,6.1 6.12 6.18 7.3)
check-vm: ## run on other kernels and restricted hosts, in virtual machines (ARCH=arm64 too)
	$(Q)tests/support/install-packages build test vm $(filter-out vm-amd64,vm-$(ARCH))
	$(Q)$(MAKE) --no-print-directory $(if $(filter arm64,$(ARCH)),check-vm-cross,all tests)
	$(Q)$(if $(filter arm64,$(ARCH)),VARIANT=arm64) tests/vm/check $(VM_KERNELS)

check-vm-short: ## the oldest kernel with a few hosts: what fits into a few minutes
	$(Q)$(MAKE) --no-print-directory check-vm VM_KERNELS=6.1:plain$(comma)no-nftables$(comma)no-userns$(comma)no-landlock

check-auditors: ## stress-ng, fuzzers and the kernel's own tests inside a run, in a virtual machine
	$(Q)tests/support/install-packages build test vm auditors
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tests/vm/selftests
	$(Q)tests/vm/check auditors$(if $(SHORT),:short)

# The guest's root holds the libraries of its architecture.
CROSS_ROOT = build/vm/arm64/root
check-vm-cross:
	$(Q)ARCH=arm64 tests/vm/root >/dev/null
	$(Q)PKG_CONFIG_SYSROOT_DIR=$(abspath $(CROSS_ROOT)) \
		PKG_CONFIG_LIBDIR=$(abspath $(CROSS_ROOT))/usr/lib/aarch64-linux-gnu/pkgconfig \
		$(MAKE) --no-print-directory VARIANT=arm64 \
		CC='aarch64-linux-gnu-gcc --sysroot=$(abspath $(CROSS_ROOT))' all tests

hosts-page: ## docs/HOSTS.md of what check-vm and check-auditors found
	$(Q)tests/vm/page >docs/HOSTS.md

check-arm64: ## compile the library and the tools for arm64, without linking
	$(Q)tests/support/install-packages build arm64
	$(Q)tests/support/check-arm64 $(LIB_SRC) $(CLI_SRC) $(UNPACK_SRC) $(READER_SRC) $(COMMIT_SRC) $(PACK_SRC) $(SELFTEST_SRC) $(PROBE_SRC)

HEAVY ?= $(wildcard tests/e2e/heavy/*.t)
check-heavy: ## what needs large packages: Java, an office suite, other roots and interpreters
	$(Q)tests/support/install-packages build test heavy
	$(Q)$(MAKE) --no-print-directory $(JOBS) all
	$(Q)$(MAKE) --no-print-directory check-heavy-here

check-deb: ## the Debian packages alone: built, installed in a fresh Debian, used, purged
	$(Q)$(MAKE) --no-print-directory check-heavy HEAVY=tests/e2e/heavy/deb.t

check-maxkb-python: ## the drop-in's suites in another Python, that of a newer Debian
	$(Q)$(MAKE) --no-print-directory check-heavy HEAVY=tests/e2e/heavy/maxkb-python.t

check-heavy-here: all
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(RUN_TESTS) $(call in_tree,$(HEAVY))

quickstart: ## install what is missing, build, run a first function and a first skill
	$(Q)tests/support/install-packages build
	$(Q)$(MAKE) --no-print-directory $(JOBS) all
	$(Q)tests/support/quickstart

# Sanitizer builds: all but what counts leftovers (a thousand slow runs) and what installs.
sanitized asan ubsan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer, both or one
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory $(JOBS) VARIANT=$@ all tests
	$(Q)$(MAKE) --no-print-directory VARIANT=$@ check-sanitized

# Not under a sanitizer: what counts leftovers, memory or time of whole runs (the runtime's own would be
# counted as well), what limits a process's data (the runtime's shadow is data), shells, what lives in stand-ins for a
# host, what confines itself so far that the runtime cannot end, and what a foreign program loads (the library, an
# interpreter's template). SANITIZED=all takes them too.
UNSANITIZED = $(addprefix %/,test_confine test_session completion.t leaks.t selftest.t library.t journal.t crash.t load.t \
	api.t clients.t cases-cli.t cases-daemon.t process-tier.t process-service.t maxkb-kits.t session-walls.t zygote.t)
check-sanitized: all tests
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(RUN_TESTS) -j2 $(call in_tree,$(filter-out $(if $(filter all,$(SANITIZED)),,$(UNSANITIZED)), \
		$(UNIT) $(SCRIPTS) $(KERNEL) $(E2E)))

load: ## 64 clients at once for a minute
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)NSBOX_LOAD_SECONDS=60 $(PROVE) -v ./tests/e2e/load.t

soak: ## 200 rounds of kill -9 of the service under load, and 20,000 jobs (half an hour)
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory soak-here

soak-here: all $(B)/tests/kernel/test_session
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)NSBOX_ROUNDS=200 $(PROVE) ./tests/e2e/journal.t
	$(Q)NSBOX_RUNS=1000 $(PROVE) ./$(B)/tests/kernel/test_session ./tests/e2e/leaks.t
	$(Q)NSBOX_BIG_MB=50 NSBOX_CONNECTIONS=10000 $(PROVE) ./tests/e2e/api.t ./tests/e2e/clients.t
	$(Q)$(PROVE) -v ./tests/e2e/soak/jobs.t

soak-files: ## 100000 requests about files that hostile code swaps meanwhile (half an hour)
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory all $(B)/tests/kernel/test_hostile_files
	$(Q)NSBOX_ROUNDS=100000 $(PROVE) ./$(B)/tests/kernel/test_hostile_files

soak-pool: ## 50000 calls of functions by clients who share a pool that is too small for them, and again with a zygote (two hours; RUNS=400 for two minutes)
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)NSBOX_RUNS=$(or $(RUNS),50000) $(PROVE) -v ./tests/e2e/soak/pool.t

soak-snapshots: ## 1000 snapshots and forks of a session (five minutes)
	$(Q)tests/support/install-packages build test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)SNAPSHOT_CYCLES=1000 $(PROVE) ./tests/e2e/snapshots.t

# Each target runs for a while on its corpus; what it finds on the way stays in build/corpus.
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 20

# Beside the library: the readers that are programs of their own.
$(B)/tests/fuzz/fuzz_image: $(call obj,$(filter-out %/main.c,$(READER_SRC)))

$(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(call obj,$(COMMON_SRC) daemon/egress/dns.c daemon/egress/tls.c) $(LIB_A)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS_ARCHIVE) $(LIBS_POLICY) $(LIBS_CORE)

fuzz-smoke: ## fuzz each parser for FUZZ_SECONDS (20)
	$(Q)tests/support/install-packages build fuzz
	$(Q)$(MAKE) --no-print-directory $(JOBS) VARIANT=fuzz CC=clang fuzz-targets
	$(Q)$(MAKE) --no-print-directory VARIANT=fuzz CC=clang fuzz-here

fuzz-targets: $(FUZZ)
fuzz-here: $(FUZZ)
	$(Q)for f in $(FUZZ); do n=$${f##*/fuzz_}; \
		mkdir -p build/corpus/$$n tests/fuzz/corpus/$$n && echo "--- $$n" && \
		$$f -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=build/corpus/ build/corpus/$$n tests/fuzz/corpus/$$n || exit 1; done

# Reported, not judged. The service's plan cache is measured where it is.
BENCH_SRC := $(wildcard tests/bench/*.c) $(addprefix daemon/front/,compiler.c child.c loop.c)
$(eval $(call program,bench,$(BENCH_SRC) $(COMMON_SRC),$(LIBS_POLICY) $(LIBS_CORE)))

bench: ## what compiling, filtering and starting cost, against a bare process and what others do; small and large images
	$(Q)tests/support/install-packages build
	$(Q)$(MAKE) --no-print-directory all $(B)/bench
	$(Q)$(B)/bench $(if $(JSON),--json) $(B)
	$(Q)$(MAKE) --no-print-directory bench-peers
	$(Q)$(MAKE) --no-print-directory bench-maxkb
	$(Q)$(MAKE) --no-print-directory bench-egress

bench-peers: ## runs one at a time and many at once, by library and service, against other sandboxes and the way of MaxKB
	$(Q)tests/support/install-packages build bench
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(MAKE) --no-print-directory all $(B)/bench
	$(Q)tests/bench/peers $(if $(JSON),--json) $(ROUNDS)

bench-maxkb: ## functions, MCP servers and skills' commands by the drop-in for MaxKB, against the way of MaxKB
	$(Q)tests/support/install-packages build bench
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/bench/maxkb $(if $(JSON),--json) $(ROUNDS)

bench-egress: ## bytes and connections to outside, against loopback, pasta and slirp4netns
	$(Q)tests/support/install-packages build bench
	$(Q)$(if $(ROOT),tests/support/system-users nsbox)
	$(Q)$(MAKE) --no-print-directory all $(B)/tests/tools/netload
	$(Q)tests/bench/egress $(if $(JSON),--json) $(ROUNDS)

coverage: ## line coverage of the unit and kernel tests
	$(Q)tests/support/install-packages build test coverage
	$(Q)$(MAKE) --no-print-directory VARIANT=cover coverage-here

coverage-here: all tests
	$(Q)$(PROVE) $(call in_tree,$(UNIT) $(KERNEL))
	$(Q)gcovr --root . --exclude tests/ build/cover

# ---------------------------------------------------------------- lint

LINT_C    := $(LIB_SRC) $(CLI_SRC) $(COMMON_SRC) $(FRONT_SRC) $(SPAWN_SRC) $(COMPILE_SRC) $(UNPACK_SRC) $(READER_SRC) $(COMMIT_SRC) $(PACK_SRC) \
		$(EGRESS_SRC) $(SELFTEST_SRC) $(PROBE_SRC) $(MUTANT_SRC)
LINT_TEST := $(wildcard tests/unit/*.c tests/kernel/*.c tests/bench/*.c tests/fuzz/*.c tests/support/*.c tests/support/tools/*.c)
LINT_H    := $(wildcard nsbox/*.h nsbox/*/*.h nsbox/include/nsbox/*.h policy/*.h policy/*/*.h overlay/*.h overlay/*/*.h daemon/*/*.h selftest/*.h selftest/*/*.h tests/*/*.h)
LINT_SH   := $(shell grep -lE -d skip '^\#!/bin/(ba)?sh' .ci/run debian/* packaging/* maxkb/kits/* tests/support/* tests/e2e/*.t docs/examples/*/scripts/* 2>/dev/null)
LINT_PY   := $(wildcard maxkb/*/*.py) $(wildcard nsbox/python/nsbox/*.py) $(shell grep -lE '^\#!/usr/bin/(env )?python3' tests/e2e/*.t tests/e2e/*/*.t tests/unit/*.py) $(wildcard tests/support/*/*.py) $(shell grep -lE -d skip '^\#!/usr/bin/python3' tests/bench/* packaging/*)
MAN       := $(wildcard docs/*.[1-8])

lint: ## clang-format, cppcheck, clang-tidy, mandoc, shellcheck, exported symbols
	$(Q)tests/support/install-packages build test lint
	$(Q)$(MAKE) --no-print-directory -j2 lint-format lint-cppcheck lint-tidy lint-man lint-sh lint-py lint-symbols lint-docs
	@echo 'lint: clean'

lint-format:
	$(call say,FORMAT,'*.c *.h')
	$(Q)clang-format --dry-run --Werror $(LINT_C) $(LINT_TEST) $(LINT_H)

lint-cppcheck:
	$(call say,CPPCHK,'*.c')
	$(Q)mkdir -p build/cppcheck
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
		--suppressions-list=.cppcheck --cppcheck-build-dir=build/cppcheck -j2 \
		-D_GNU_SOURCE -D__x86_64__ -DNSBOX_VERSION='""' -Insbox/include -I. $(LINT_C)

# One stamp per file: a second run looks at what changed. Disabled checks: see .clang-tidy.
# The mutant is the one that knows how to leave layers out.
build/tidy/selftest/mutant/%.ok: CPPFLAGS += -DNSBOX_WEAKEN
lint-tidy: $(patsubst %.c,build/tidy/%.ok,$(LINT_C))
build/tidy/%.ok: %.c .clang-tidy $(LINT_H)
	$(call say,TIDY,$<)
	@mkdir -p $(@D)
	$(Q)clang-tidy --quiet $< -- $(CPPFLAGS) -std=gnu17 2>/dev/null && touch $@

lint-man:
	$(call say,MANDOC,$(notdir $(MAN)))
	$(Q)mandoc -T lint -W warning $(MAN)

lint-sh:
	$(call say,SHCHK,scripts)
	$(Q)shellcheck $(LINT_SH)

lint-py:
	$(call say,FLAKES,'*.py *.t')
	$(Q)pyflakes3 $(LINT_PY)
	$(Q)mypy --strict --no-error-summary --cache-dir=build/mypy nsbox/python/nsbox

lint-symbols: $(LIB_SO)
	$(call say,SYMS,$(LIB_SO))
	$(Q)tests/support/check-symbols $(LIB_SO) nsbox/libnsbox.map debian/libnsbox0.symbols nsbox/include/nsbox/*.h

lint-docs:
	$(call say,DOCS,docs)
	$(Q)tests/support/check-docs

# ---------------------------------------------------------------- install, dist

INSTALL := install
D       := $(DESTDIR)

UNIT_SUBST = -e 's|@BINDIR@|$(BINDIR)|;s|@SBINDIR@|$(SBINDIR)|;s|@LIBEXECDIR@|$(LIBEXECDIR)|;s|@SYSCONFDIR@|$(SYSCONFDIR)|'

install: all ## install below PREFIX (DESTDIR is honoured)
	$(Q)$(INSTALL) -d $(D)$(BINDIR) $(D)$(SBINDIR) $(D)$(LIBDIR)/pkgconfig $(D)$(LIBEXECDIR) \
		$(D)$(INCLUDEDIR)/nsbox $(addprefix $(D)$(MANDIR)/man,1 3 5 8)
	$(Q)$(INSTALL) -m 755 $(B)/nsbox $(D)$(BINDIR)/
	$(Q)$(INSTALL) -m 755 $(B)/nsboxd $(D)$(SBINDIR)/
	$(Q)$(INSTALL) -m 755 $(addprefix $(B)/,$(LIBEXEC)) $(D)$(LIBEXECDIR)/
	$(Q)$(INSTALL) -m 644 $(TEMPLATE_SO) $(D)$(LIBEXECDIR)/
	$(Q)$(INSTALL) -m 644 $(LIB_A) $(B)/libnsbox.so.$(SOVERSION) $(D)$(LIBDIR)/
	$(Q)ln -sf libnsbox.so.$(SOVERSION) $(D)$(LIBDIR)/libnsbox.so
	$(Q)sed $(PC_SUBST) nsbox/libnsbox.pc.in >$(D)$(LIBDIR)/pkgconfig/libnsbox.pc
	$(Q)$(INSTALL) -m 644 nsbox/include/nsbox/*.h $(D)$(INCLUDEDIR)/nsbox/
	$(Q)$(INSTALL) -d $(D)$(BASHCOMPDIR) $(D)$(ZSHCOMPDIR) $(D)$(FISHCOMPDIR)
	$(Q)$(INSTALL) -m 644 nsbox/completion/nsbox.bash $(D)$(BASHCOMPDIR)/nsbox
	$(Q)$(INSTALL) -m 644 nsbox/completion/_nsbox $(D)$(ZSHCOMPDIR)/
	$(Q)$(INSTALL) -m 644 nsbox/completion/nsbox.fish $(D)$(FISHCOMPDIR)/
	$(Q)$(INSTALL) -d $(D)$(MAXKBDIR)/nsbox_maxkb/nsbox
	$(Q)$(INSTALL) -m 644 maxkb/nsbox_maxkb/*.py $(D)$(MAXKBDIR)/nsbox_maxkb/
	$(Q)$(INSTALL) -m 644 nsbox/python/nsbox/*.py $(D)$(MAXKBDIR)/nsbox_maxkb/nsbox/
	$(Q)$(INSTALL) -d $(D)$(MAXKBDIR)/kits
	$(Q)$(INSTALL) -m 644 maxkb/nsbox_maxkb.pth.in $(D)$(MAXKBDIR)/
	$(Q)$(INSTALL) -m 644 maxkb/kits/*.yaml maxkb/kits/*.json $(D)$(MAXKBDIR)/kits/
	$(Q)$(INSTALL) -m 755 maxkb/kits/*.sh $(D)$(MAXKBDIR)/kits/
	$(Q)for page in $(MAN); do $(INSTALL) -m 644 $$page $(D)$(MANDIR)/man$${page##*.}/; done
	$(Q)$(INSTALL) -d $(D)$(UNITDIR) $(D)$(TMPFILESDIR) $(D)$(SYSUSERSDIR) $(D)$(SYSCONFDIR)/nsbox
	$(Q)for unit in nsboxd.service nsboxd.socket; do \
		sed -E $(UNIT_SUBST) daemon/units/$$unit.in >$(D)$(UNITDIR)/$$unit && chmod 644 $(D)$(UNITDIR)/$$unit || exit 1; done
	$(Q)$(INSTALL) -d $(D)$(APPARMORDIR)
	$(Q)sed $(UNIT_SUBST) packaging/apparmor/nsbox.in >$(D)$(APPARMORDIR)/nsbox && chmod 644 $(D)$(APPARMORDIR)/nsbox
	$(Q)$(INSTALL) -m 644 daemon/units/nsbox.tmpfiles $(D)$(TMPFILESDIR)/nsbox.conf
	$(Q)$(INSTALL) -m 644 daemon/units/nsbox.sysusers $(D)$(SYSUSERSDIR)/nsbox.conf
	$(Q)test -e $(D)$(SYSCONFDIR)/nsbox/nsboxd.json || \
		$(INSTALL) -m 644 daemon/units/nsboxd.json $(D)$(SYSCONFDIR)/nsbox/nsboxd.json

uninstall: ## remove what install put there
	$(Q)rm -f $(D)$(BINDIR)/nsbox $(D)$(SBINDIR)/nsboxd
	$(Q)rm -f $(addprefix $(D)$(LIBEXECDIR)/,$(LIBEXEC) nsbox-template.so)
	$(Q)rm -f $(addprefix $(D)$(LIBDIR)/,libnsbox.a libnsbox.so libnsbox.so.$(SOVERSION) pkgconfig/libnsbox.pc)
	$(Q)rm -f $(addprefix $(D)$(INCLUDEDIR)/,$(patsubst nsbox/include/%,%,$(wildcard nsbox/include/nsbox/*.h)))
	$(Q)rm -f $(D)$(BASHCOMPDIR)/nsbox $(D)$(ZSHCOMPDIR)/_nsbox $(D)$(FISHCOMPDIR)/nsbox.fish
	$(Q)rm -rf $(D)$(MAXKBDIR)
	$(Q)rm -f $(D)$(APPARMORDIR)/nsbox
	$(Q)for page in $(MAN); do rm -f $(D)$(MANDIR)/man$${page##*.}/$${page##*/}; done
	$(Q)if cmp -s daemon/units/nsboxd.json $(D)$(SYSCONFDIR)/nsbox/nsboxd.json; then rm $(D)$(SYSCONFDIR)/nsbox/nsboxd.json; fi
	$(Q)rm -f $(D)$(UNITDIR)/nsboxd.service $(D)$(UNITDIR)/nsboxd.socket $(D)$(TMPFILESDIR)/nsbox.conf $(D)$(SYSUSERSDIR)/nsbox.conf
	$(Q)rmdir $(D)$(APPARMORDIR) $(D)$(LIBEXECDIR) $(D)$(INCLUDEDIR)/nsbox $(D)$(SYSCONFDIR)/nsbox $(D)$(dir $(MAXKBDIR)) 2>/dev/null || true

# Built beside the tree, of what git knows of it (elsewhere: of all but build/).
DEB_TREE := build/deb/nsbox-$(VERSION)
# Without what is in the caller's home, such as other interpreters.
SYSTEM_PATH = $(shell echo "$$PATH" | tr : '\n' | grep -v "^$$HOME/" | paste -sd :)
deb: ## Debian packages below build/deb
	$(Q)tests/support/install-packages build package
	$(Q)rm -rf build/deb && mkdir -p $(DEB_TREE)
	$(Q)packaging/tree | tar -c -T - | tar -x -C $(DEB_TREE)
	$(Q)cd $(DEB_TREE) && PATH=$(SYSTEM_PATH) dpkg-buildpackage --build=binary --no-sign -rfakeroot $(or $(filter -j%,$(MAKEFLAGS)),-j$(shell nproc))
	@ls build/deb/*.deb

# The tool as one file, for hosts that have none of its libraries. What it warns of is in parts of libcrypto
# that are never called.
LIBMNL_A ?= $(or $(wildcard $(shell $(CC) -print-file-name=libmnl.a)),build/static/libmnl.a)
STATIC_SRC := $(CLI_SRC) $(SELFTEST_SRC) $(COMMON_SRC)
build/static/libmnl.a: packaging/libmnl-archive
	$(Q)packaging/libmnl-archive $@
$(B)/nsbox-static: $(call obj,$(STATIC_SRC)) $(LIB_A) $(LIBMNL_A)
	$(call say,LD,$@)
	$(Q)rm -f $@; $(CC) -static-pie -Wl,-z,relro,-z,now,-z,noexecstack $(OPT_$(VARIANT)) -o $@ $(call obj,$(STATIC_SRC)) $(LIB_A) \
		-Wl,--start-group $(shell $(PC) --libs --static libseccomp libnftnl json-c libcrypto libcap | sed 's/-lmnl//g') $(LIBMNL_A) \
		-Wl,--end-group -pthread 2>&1 | grep -vE "in statically linked applications|in function .(dlfcn|BIO|DSO)" >&2; test -x $@
static: ## the command line tool as one file without libraries, build/release/nsbox-static
	$(Q)tests/support/install-packages build
	$(Q)$(MAKE) --no-print-directory $(JOBS) $(B)/nsbox-static

SIDECAR = build/sidecar/layout
sidecar: deb ## an OCI image of the service for a container beside another, below build/sidecar (as root)
	$(Q)mkdir -p $(dir $(SIDECAR))
	$(Q)SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || date +%s) \
		packaging/sidecar $(VERSION) build/deb/nsbox_*.deb build/deb/nsbox-maxkb_*.deb $(SIDECAR)
	@echo $(SIDECAR)

check-sidecar: ## that image alone: built, looked at, run beside a container
	$(Q)$(MAKE) --no-print-directory check-heavy HEAVY=tests/e2e/heavy/sidecar.t

# The same bytes whoever makes it of the same commit; the list and the sums beside it.
DIST = build/dist/nsbox-$(VERSION)
dist: all ## the committed state as a tarball, with SBOM and SHA256SUMS, below build/dist
	$(Q)rm -rf build/dist && mkdir -p build/dist
	$(Q)git archive --format=tar --prefix=nsbox-$(VERSION)/ -o $(DIST).tar HEAD
	$(Q)gzip -n -9 $(DIST).tar
	$(Q)packaging/sbom $(VERSION) $(DIST).tar.gz $(filter-out %/nsbox-probe %/nsbox-mutant,$(addprefix $(B)/,$(PROGS))) $(LIB_SO) \
		>$(DIST).spdx.json
	$(Q)cd build/dist && sha256sum nsbox-* >SHA256SUMS
	@ls build/dist/*

help: ## this list
	@sed -nE 's/^([a-z][a-z0-9 -]*):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F '\t' '{ printf "  %-14s %s\n", $$1, $$2 }'

clean: ## remove build/
	rm -rf build

-include $(shell find build/$(VARIANT) -name '*.d' 2>/dev/null)

.PHONY: all soak-files soak-pool soak-snapshots tests bench bench-egress bench-maxkb bench-peers check check-vm check-arm64 check-here check-unit check-kernel check-e2e check-heavy check-deb check-maxkb-python static sidecar check-sidecar check-heavy-here \
	check-sanitized quickstart soak soak-here sanitized asan ubsan fuzz-smoke fuzz-targets fuzz-here coverage coverage-here lint lint-format lint-cppcheck \
	lint-tidy lint-man lint-sh lint-py lint-symbols lint-docs install uninstall deb dist help clean
.DEFAULT_GOAL := all
.SECONDARY:
