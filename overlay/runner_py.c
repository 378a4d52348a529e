/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python runner, as bytes of the library: an image gets exactly the runner that its library
 * was built with, and there is no file to be missing, older or changed by someone.
 */
#include "overlay/internal.h"

__asm__(".pushsection .rodata, \"a\"\n"
	".global runner_py_start\n"
	".hidden runner_py_start\n"
	"runner_py_start:\n"
	".incbin \"nsbox/runner/python.py\"\n"
	".Lrunner_py_end:\n"
	".byte 0\n"
	".balign 8\n"
	".global runner_py_size\n"
	".hidden runner_py_size\n"
	"runner_py_size:\n"
	".quad .Lrunner_py_end - runner_py_start\n"
	".popsection\n");
