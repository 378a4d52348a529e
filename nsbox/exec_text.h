/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a file cannot be started, in words: the same whether a run found out (diagnose.c) or the
 * files were looked at before (policy/skill).
 */
#ifndef NSBOX_EXEC_TEXT_H
#define NSBOX_EXEC_TEXT_H

#include <elf.h>

#if defined(__x86_64__)
#define EXEC_OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define EXEC_OWN_MACHINE EM_AARCH64
#else
#error "nsbox knows the system call tables of x86-64 and arm64 only"
#endif

/* clang-format off */
#define EXEC_WRONG_MACHINE  "it is built for %s and this machine is %s"
#define EXEC_NO_LOADER      "its loader '%s' is not in the image"
#define EXEC_NO_INTERPRETER "its interpreter '%s' is not in the image"
#define EXEC_CRLF                                                                                  \
	"its first line ends in a carriage return (CRLF line ends), so the interpreter is not "        \
	"found; convert the file to Unix line ends"
#define EXEC_NOT_EXECUTABLE                                                                        \
	"it is not executable (name it under files.executable in the manifest, or start it through "  \
	"its interpreter)"
/* clang-format on */

/* "aarch64 (arm64)"; "another machine" */
const char *exec_machine_name(unsigned machine);

#endif
