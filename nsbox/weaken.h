/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving a layer out, to see that its absence is noticed. Only the program nsbox-mutant is built with
 * NSBOX_WEAKEN: in all others left_out() is false at compile time, and there is nothing to switch. What
 * is left out is still reported as enforced, as by a build in which the call got lost.
 */
#ifndef NSBOX_WEAKEN_H
#define NSBOX_WEAKEN_H

#include <nsbox/layer.h>

#ifdef NSBOX_WEAKEN
extern uint32_t weaken_layers; /* NSBOX_LAYER_BIT of those that are left out */
#define left_out(l) ((weaken_layers & NSBOX_LAYER_BIT(NSBOX_LAYER_##l)) != 0)
#define weakened()  weaken_layers
#else
#define left_out(l) false
#define weakened()  UINT32_C(0)
#endif

#endif
