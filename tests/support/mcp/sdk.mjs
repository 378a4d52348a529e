// SPDX-License-Identifier: Apache-2.0
// The official SDK against a place of nsboxd: sdk.mjs http|sse|stdio|modern TARGET... Prints TAP.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [kind, ...target] = process.argv.slice(2);
const headers = process.env.TOKEN ? { Authorization: "Bearer " + process.env.TOKEN } : {};
let count = 0, failed = 0;

function ok(good, name, why) {
	count++;
	failed += good ? 0 : 1;
	console.log(`${good ? "ok" : "not ok"} ${count} - ${kind}: ${name}`);
	if (!good && why !== undefined)
		console.log("# " + JSON.stringify(why));
}

async function failure(promise) {
	try {
		return { unexpected: await promise };
	} catch (error) {
		return error;
	}
}

async function connect() {
	if (kind === "modern") {
		const v2 = await import("@modelcontextprotocol/client");
		const client = new v2.Client({ name: "sdk", version: "2" }, { versionNegotiation: { mode: "auto" } });
		const transport = new v2.StreamableHTTPClientTransport(new URL(target[0]), { requestInit: { headers } });
		await client.connect(transport);
		return [client, transport];
	}
	const client = new Client({ name: "sdk", version: "1" });
	const transport = kind === "http" ? new StreamableHTTPClientTransport(new URL(target[0]), { requestInit: { headers } })
		: kind === "sse" ? new SSEClientTransport(new URL(target[0]), { requestInit: { headers } })
		: new StdioClientTransport({ command: target[0], args: target.slice(1) });
	await client.connect(transport);
	return [client, transport];
}

const [client, transport] = await connect();
ok(client.getServerVersion()?.name === "nsbox", "connects", client.getServerVersion());
ok(kind !== "modern" || client.getNegotiatedProtocolVersion?.() === "2026-07-28", "in its era", client.getNegotiatedProtocolVersion?.());
const { tools } = await client.listTools();
ok(tools.length === 7 && tools.every((t) => t.inputSchema.type === "object" && t.outputSchema), "lists tools", tools.map((t) => t.name));

const call = (name, args, options) => kind === "modern" ? client.callTool({ name, arguments: args }, options)
	: client.callTool({ name, arguments: args }, undefined, options);
let r = await call("write_file", { path: "dir/é.txt", content: "一\n二\n" });
ok(r.structuredContent.size === 8, "writes a file", r);
r = await call("run_python", { code: "print(open('dir/é.txt').read(), end='')" });
ok(r.structuredContent.stdout === "一\n二\n" && !r.isError, "runs Python, and checks what comes by its schema", r);
r = await call("run_command", { command: "exit 3" });
ok(r.isError && r.structuredContent.exit_code === 3, "a failure is one", r);
r = await call("edit_file", { path: "dir/é.txt", old_text: "二", new_text: "三" });
ok(r.structuredContent.replaced === 1, "edits", r);
r = await call("search_files", { text: "三" });
ok(r.structuredContent.matches[0].line === 2, "searches", r);
r = await call("list_files", { path: "dir" });
ok(r.structuredContent.entries[0].path === "é.txt", "lists", r);
r = await call("read_file", { path: "none" });
ok(r.isError && r.content[0].text.includes("No such file"), "says what is not there", r);

const told = [];
r = await call("run_command", { command: "sleep 1.5; echo done" }, { onprogress: (p) => told.push(p) });
ok(r.structuredContent.stdout === "done\n" && told.length > 0 && told.every((p, i) => !i || p.progress > told[i - 1].progress),
	"hears of progress", told);

const stop = new AbortController();
const going = failure(call("run_command", { command: "echo > going; sleep 300" }, { signal: stop.signal, timeout: 120000 }));
while ((await call("read_file", { path: "going" })).isError)
	await new Promise((resolve) => setTimeout(resolve, 100));
stop.abort("enough");
const error = await going;
ok(error instanceof Error, "cancels", error);
const unknown = await failure(call("nothing", {}));
ok(unknown.code === -32602 || unknown.isError || unknown.unexpected?.isError, "an unknown tool is an error", unknown);
if (kind === "http")
	await transport.terminateSession();
await client.close();
console.log("1.." + count);
process.exitCode = failed ? 1 : 0;
