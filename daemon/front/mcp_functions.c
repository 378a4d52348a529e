/* SPDX-License-Identifier: Apache-2.0 */
/* x */
#include "daemon/front/mcp.h"
struct json_object *mcp_functions_list(struct mcp *m, const struct mcp_place *place,
				       const struct mcp_client *client)
{
	return NULL;
}
bool mcp_functions_call(const struct mcp_turn *t, const struct mcp_message *msg, const char *name,
			struct json_object *args)
{
	return false;
}
bool mcp_functions_there(struct mcp *m, const struct mcp_place *place,
			 const struct mcp_client *client)
{
	return false;
}
