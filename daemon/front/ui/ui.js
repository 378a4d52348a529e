// SPDX-License-Identifier: Apache-2.0
// The status page: asks the interface that everybody uses, and changes nothing. What comes back is put in as text
// alone: names in it are other people's.
"use strict";

const EVERY_MS = 2000, POINTS = 120, RECENT = 50;
const $ = (id) => document.getElementById(id);
const known = new Map(); // denials by job: those of a job that has ended do not change
const seen = []; // [at work, waiting]
let timer = 0;

class Refused extends Error {}

async function ask(path) {
	const token = sessionStorage.getItem("nsbox-token");
	const answer = await fetch(path, { headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store" });
	if (answer.status === 401) {
		if (sessionStorage.getItem("nsbox-token") === token) // and not another that was entered since
			sessionStorage.removeItem("nsbox-token");
		throw new Refused();
	}
	if (!answer.ok)
		throw new Error(path + ": " + answer.status);
	return path === "/metrics" ? answer.text() : answer.json();
}

function make(name, text, className) {
	const node = document.createElement(name);
	if (text !== undefined)
		node.textContent = text;
	if (className)
		node.className = className;
	return node;
}

function age(ms) {
	const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
	return s < 100 ? s + " s" : s < 6000 ? Math.floor(s / 60) + " min" : Math.floor(s / 3600) + " h";
}

// Rows of cells: text, or [text, class], or a node.
function fill(id, rows, columns) {
	const body = $(id);
	const focused = document.activeElement && document.activeElement.getAttribute("href");
	body.replaceChildren(...rows.map((cells) => {
		const row = make("tr");
		for (const cell of cells) {
			const td = Array.isArray(cell) ? make("td", cell[0], cell[1]) : make("td");
			if (cell instanceof Node)
				td.append(cell);
			else if (!Array.isArray(cell))
				td.textContent = cell;
			td.title = td.textContent;
			row.append(td);
		}
		return row;
	}));
	if (!rows.length) {
		const td = make("td", "none", "none");
		td.colSpan = columns;
		const row = make("tr");
		row.append(td);
		body.append(row);
	}
	for (const link of focused ? body.querySelectorAll("a") : [])
		if (link.getAttribute("href") === focused)
			link.focus();
}

function list(id, pairs) {
	$(id).replaceChildren(...pairs.map(([key, value]) => {
		const div = make("div");
		div.append(make("dt", key), make("dd", String(value)));
		return div;
	}));
}

function numbersOf(text) {
	const found = {};
	for (const line of text.split("\n")) {
		const parts = line.split(" ");
		if (parts.length === 2 && !line.startsWith("#") && !line.includes("{"))
			found[parts[0]] = Number(parts[1]);
	}
	return found;
}

function spark(n) {
	seen.push([n.nsbox_jobs_running || 0, n.nsbox_queue_waiting || 0]);
	if (seen.length > POINTS)
		seen.shift();
	const top = Math.max(1, ...seen.flat());
	$("spark").replaceChildren(...["work", "wait"].map((name, which) => {
		const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
		const x = (i) => (240 * (i + POINTS - seen.length)) / (POINTS - 1);
		line.setAttribute("class", name);
		line.setAttribute("points", seen.map((p, i) => x(i).toFixed(1) + "," + (46 - (44 * p[which]) / top).toFixed(1)).join(" "));
		return line;
	}));
	$("span").textContent = "(most: " + top + ")";
}

function denialText(d) {
	return [d.what, d.name || d.pointer, d.error, d.times > 1 ? "(" + d.times + " times)" : ""].filter(Boolean).join(" ");
}

function receiptLink(job) {
	const link = make("a", job.id);
	link.href = "#" + encodeURIComponent(job.id);
	return link;
}

async function denials(job) {
	if (!known.has(job.id)) {
		try {
			known.set(job.id, (await ask("/v1/receipts/" + encodeURIComponent(job.id))).denials || []);
		} catch (error) {
			if (error instanceof Refused)
				throw error;
			known.set(job.id, []);
		}
	}
	return known.get(job.id);
}

async function showAll() {
	const [jobs, sessions, metrics, host] = await Promise.all(
		["/v1/jobs", "/v1/sessions", "/metrics", "/v1/capabilities"].map(ask));
	const n = numbersOf(metrics);
	const alive = jobs.jobs.filter((j) => j.state !== "finished");
	const ended = jobs.jobs.filter((j) => j.state === "finished").slice(0, RECENT);
	$("version").textContent = host.version;
	$("state").textContent = "Tier " + host.tier + ", kernel " + host.kernel;
	$("state").className = "";
	list("numbers", [["at work", n.nsbox_jobs_running + " of " + n.nsbox_runners],
		["waiting", n.nsbox_queue_waiting + " of " + n.nsbox_queue_max],
		["sandboxes alive", n.nsbox_sandboxes_alive], ["sessions", n.nsbox_sessions],
		["denied calls", n.nsbox_denied_calls_total], ["denied connections", n.nsbox_denied_network_total],
		["denied requests", n.nsbox_requests_denied_total]]);
	spark(n);
	fill("queue", alive.map((j) => [j.id, j.workspace_id, j.kind, j.state, age(j.started_ms || j.created_ms)]), 5);
	fill("sessions", sessions.sessions.map((s) => [s.id, s.workspace_id, s.state, s.running, s.commands]), 5);
	const told = [];
	for (const j of ended)
		told.push(await denials(j));
	fill("recent", ended.map((j, i) => [receiptLink(j), j.workspace_id, j.kind,
		[j.cause || "none", j.cause === "exit" ? "" : "bad"], age(j.finished_ms), told[i].map(denialText).join("; ")]), 6);
	$("main").hidden = false;
	$("receipt").hidden = true;
}

async function showReceipt(id) {
	const r = await ask("/v1/receipts/" + encodeURIComponent(id));
	$("h-receipt").textContent = "Receipt of " + id;
	list("summary", ["cause", "exit_code", "workspace_id", "kind", "image"].filter((k) => r[k] !== undefined && typeof r[k] !== "object")
		.map((k) => [k, r[k]]));
	const told = (r.denials || []).map((d) => make("li", denialText(d) + (d.why ? ": " + d.why : "")));
	$("denials").replaceChildren(...(told.length ? told : [make("li", "nothing")]));
	$("whole").textContent = JSON.stringify(r, null, 2);
	$("main").hidden = true;
	if ($("receipt").hidden) {
		$("receipt").hidden = false;
		$("receipt").focus();
	}
}

async function look() {
	clearTimeout(timer);
	try {
		const id = decodeURIComponent(location.hash.slice(1));
		await (id ? showReceipt(id) : showAll());
		$("login").hidden = true;
	} catch (error) {
		const refused = error instanceof Refused;
		$("main").hidden = $("receipt").hidden = true;
		$("state").textContent = refused ? "The service asks who you are." : "The service does not answer: " + error.message;
		$("state").className = refused ? "" : "bad";
		if (refused && $("login").hidden) {
			$("login").hidden = false;
			$("token").focus();
		}
		if (refused)
			return;
	}
	if (!location.hash.slice(1) && !document.hidden)
		timer = setTimeout(look, EVERY_MS);
}

$("login").addEventListener("submit", (event) => {
	event.preventDefault();
	sessionStorage.setItem("nsbox-token", $("token").value.trim());
	$("token").value = "";
	$("login").hidden = true;
	look();
});
window.addEventListener("hashchange", look);
document.addEventListener("visibilitychange", () => document.hidden || look());
look();
