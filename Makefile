# SPDX-License-Identifier: Apache-2.0
#
# One Makefile, no configure. `make` builds everything under build/$(VARIANT)/; `make help` lists
# the targets. Variables: VARIANT=release|asan|ubsan|cover, V=1 shows commands, DESTDIR, PREFIX.

VERSION   := 0.1.0
SOVERSION := 0

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
SBINDIR    ?= $(PREFIX)/sbin
LIBDIR     ?= $(PREFIX)/lib
LIBEXECDIR ?= $(PREFIX)/lib/nsbox
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
SYSCONFDIR ?= /etc
UNITDIR    ?= $(PREFIX)/lib/systemd/system

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
	$(if $(filter x86_64,$(shell uname -m)),-fcf-protection) -Wl,-z,relro,-z,now,-z,noexecstack

OPT_release := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
OPT_asan    := -O1 -g -fsanitize=address -fno-omit-frame-pointer
OPT_ubsan   := -O1 -g -fsanitize=undefined -fno-sanitize-recover=all
OPT_cover   := -O0 -g --coverage

CPPFLAGS := -D_GNU_SOURCE -Insbox/include -I. \
	-DNSBOX_VERSION='"$(VERSION)"' -DNSBOX_LIBEXECDIR='"$(LIBEXECDIR)"' -DNSBOX_SYSCONFDIR='"$(SYSCONFDIR)"'
CFLAGS   := -std=gnu17 $(WARN) $(HARDEN) $(OPT_$(VARIANT)) -fvisibility=hidden -MMD -MP
LDFLAGS  := -pie -Wl,--as-needed $(OPT_$(VARIANT))

PC := pkg-config
LIBS_CORE   := $(shell $(PC) --libs libmnl libcap 2>/dev/null)
LIBS_POLICY := $(shell $(PC) --libs libseccomp libnftnl json-c libcrypto 2>/dev/null)
LIBS_HTTP   := $(shell $(PC) --libs libmicrohttpd 2>/dev/null)
LIBS_ARCHIVE := $(shell $(PC) --libs libarchive 2>/dev/null)
LIBS_CHECK  := $(shell $(PC) --libs check 2>/dev/null)

# ---------------------------------------------------------------- what is built

# The library: nsbox/ and overlay/ need only libc, libcap and libmnl; policy/ brings JSON,
# libseccomp, libnftnl and SHA-256. nsbox-spawn links $(LIB_A) with LIBS_CORE alone, so that the
# linker itself keeps JSON out of it.
LIB_SRC     := $(wildcard nsbox/*.c) $(wildcard overlay/*.c) $(wildcard policy/*.c)
CLI_SRC     := $(wildcard nsbox/cli/*.c)
COMMON_SRC  := $(wildcard daemon/common/*.c)
FRONT_SRC   := $(wildcard daemon/front/*.c)
SPAWN_SRC   := $(wildcard daemon/spawn/*.c)
COMPILE_SRC := $(wildcard daemon/compile/*.c)
UNPACK_SRC  := $(wildcard overlay/unpack/*.c)

obj = $(patsubst %.c,$(B)/%.o,$(1))
LIB_A  := $(B)/libnsbox.a
LIB_SO := $(B)/libnsbox.so.$(SOVERSION)
PROGS  := nsbox nsboxd nsbox-spawn nsbox-compile nsbox-unpack

all: $(LIB_A) $(LIB_SO) $(addprefix $(B)/,$(PROGS)) $(B)/libnsbox.pc

$(B)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# The Python runner travels inside the library; overlay/ places it into each image.
$(B)/overlay/runner_py.o: nsbox/runner/python.py

$(LIB_A): $(call obj,$(LIB_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(LIB_SO): $(call obj,$(LIB_SRC)) nsbox/libnsbox.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libnsbox.so.$(SOVERSION) -Wl,--version-script=nsbox/libnsbox.map \
		-Wl,--as-needed -Wl,-z,relro,-z,now -Wl,-z,defs $(OPT_$(VARIANT)) -o $@ $(filter %.o,$^) $(LIBS_POLICY) $(LIBS_CORE)
	$(Q)ln -sf libnsbox.so.$(SOVERSION) $(B)/libnsbox.so

$(B)/libnsbox.pc: nsbox/libnsbox.pc.in Makefile
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|;s|@LIBDIR@|$(LIBDIR)|;s|@INCLUDEDIR@|$(INCLUDEDIR)|;s|@VERSION@|$(VERSION)|' $< >$@

# program: sources, libraries
define program
$(B)/$(1): $$(call obj,$(2)) $$(LIB_A)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$^ $(3)
endef
$(eval $(call program,nsbox,$(CLI_SRC) $(COMMON_SRC),$(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsboxd,$(FRONT_SRC) $(COMMON_SRC),$(LIBS_HTTP) $(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsbox-spawn,$(SPAWN_SRC),$(LIBS_CORE)))
$(eval $(call program,nsbox-compile,$(COMPILE_SRC),$(LIBS_POLICY) $(LIBS_CORE)))
$(eval $(call program,nsbox-unpack,$(UNPACK_SRC),$(LIBS_ARCHIVE) $(LIBS_CORE) $(shell $(PC) --libs libseccomp 2>/dev/null)))

# ---------------------------------------------------------------- tests

UNIT   := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test_*.c))
KERNEL := $(patsubst tests/kernel/%.c,$(B)/tests/kernel/%,$(wildcard tests/kernel/test_*.c))
SUPPORT_SRC := $(wildcard tests/support/*.c)

$(B)/tests/%: $(B)/tests/%.o $(call obj,$(SUPPORT_SRC) $(COMMON_SRC)) $(LIB_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_CHECK) $(LIBS_POLICY) $(LIBS_CORE)

clean:
	rm -rf build

-include $(shell find build/$(VARIANT) -name '*.d' 2>/dev/null)

.PHONY: all clean
.DEFAULT_GOAL := all
.SECONDARY:
