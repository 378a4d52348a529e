/* SPDX-License-Identifier: Apache-2.0 */
/* The tables behind layer.h and the names of causes and witnesses. */
#include <nsbox/layer.h>
#include <nsbox/sandbox.h>

#include <string.h>

#include "nsbox/util.h"

static const struct {
	const char *name, *text;
	int def;
} layers[NSBOX_LAYER_MAX] = {
#define X(sym, name, def, text) [NSBOX_LAYER_##sym] = { name, text, NSBOX_##def },
	NSBOX_LAYERS(X)
#undef X
};

const char *nsbox_layer_name(int layer)
{
	return layer >= 0 && layer < NSBOX_LAYER_MAX ? layers[layer].name : NULL;
}

const char *nsbox_layer_text(int layer)
{
	return layer >= 0 && layer < NSBOX_LAYER_MAX ? layers[layer].text : NULL;
}

int nsbox_layer_default(int layer)
{
	return layer >= 0 && layer < NSBOX_LAYER_MAX ? layers[layer].def : NSBOX_OFF;
}

int nsbox_layer_by_name(const char *name)
{
	for (int i = 0; i < NSBOX_LAYER_MAX; i++)
		if (!strcmp(layers[i].name, name))
			return i;
	return -1;
}

static const char *const causes[NSBOX_CAUSE_MAX] = {
#define X(sym, name) [NSBOX_CAUSE_##sym] = name,
	NSBOX_CAUSES(X)
#undef X
};

const char *nsbox_cause_name(int cause)
{
	return cause >= 0 && cause < NSBOX_CAUSE_MAX ? causes[cause] : "unknown";
}

static const struct {
	const char *name, *text;
} witnesses[NSBOX_WITNESS_MAX] = {
#define X(sym, name, text) [NSBOX_WITNESS_##sym] = { name, text },
	NSBOX_WITNESSES(X)
#undef X
};

const char *nsbox_witness_name(int w)
{
	return w >= 0 && w < NSBOX_WITNESS_MAX ? witnesses[w].name : NULL;
}

const char *nsbox_witness_text(int w)
{
	return w >= 0 && w < NSBOX_WITNESS_MAX ? witnesses[w].text : NULL;
}
