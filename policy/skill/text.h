/* SPDX-License-Identifier: Apache-2.0 */
/* Text of strangers: is it UTF-8, and how is it shown without it acting on a terminal? */
#ifndef POLICY_SKILL_TEXT_H
#define POLICY_SKILL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Well-formed, no NUL, no surrogates. */
bool text_is_utf8(const char *s, size_t len);
/* Bytes written to ret (at most 4); 0: no such character. */
size_t text_encode(uint32_t c, char ret[4]);

/*
 * A copy in which whatever is not a printable character of well-formed UTF-8 stands as \xNN:
 * control characters, escape sequences, marks that change the direction of text. malloc'd; NULL
 * only without memory.
 */
char *text_shown(const char *s, size_t len);

#endif
