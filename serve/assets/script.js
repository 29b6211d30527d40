// Loads the page again and again, and replaces the picture. It changes only what differs, so that the
// focus, a selection and an open search stay.
"use strict";
(() => {
	const picture = document.getElementById("picture");
	const state = document.getElementById("state");
	const pause = document.getElementById("pause");
	if (!picture) return;
	const every = Number(picture.dataset.every);
	let gone = "", loading = false, asked = 0;

	function say(text) {
		if (state.textContent !== text) state.textContent = text; // a screen reader says each change
	}

	function update(now, next) {
		if (now.nodeType !== Node.ELEMENT_NODE) {
			if (now.data !== next.data) now.data = next.data;
			return;
		}
		for (const { name } of [...now.attributes]) if (!next.hasAttribute(name)) now.removeAttribute(name);
		for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
		children(now, next);
	}

	// children makes those of now like those of next. What has an id is found again wherever it was.
	function children(now, next) {
		const known = new Map();
		for (const child of now.children) if (child.id) known.set(child.id, child);
		let at = now.firstChild;
		for (const want of [...next.childNodes]) {
			const have = want.id ? known.get(want.id) : at;
			if (!have || have.nodeType !== want.nodeType || have.nodeName !== want.nodeName || (have.id || "") !== (want.id || "")) {
				now.insertBefore(want, at);
				continue;
			}
			if (have === at) at = at.nextSibling;
			else now.insertBefore(have, at);
			update(have, want);
		}
		while (at) {
			const gone = at;
			at = at.nextSibling;
			gone.remove();
		}
	}

	function show(next) {
		const focused = document.activeElement;
		const inside = picture.contains(focused);
		children(picture, next);
		if (inside && document.activeElement !== focused) {
			(focused.isConnected ? focused : document.getElementById("main")).focus({ preventScroll: true });
		}
	}

	function lost() {
		gone ||= "This page has lost its program since " + new Date().toISOString().slice(11, 19) + " UTC.";
		say(gone);
	}

	// A page that nobody sees asks for nothing. The program answers soon, also while the
	// server is silent.
	async function load() {
		if (loading && Date.now() - asked > 10000) lost();
		if (loading || document.hidden || pause.getAttribute("aria-pressed") === "true") return;
		loading = true;
		asked = Date.now();
		try {
			const answer = await fetch(location.origin + location.pathname + location.search);
			if (!answer.ok) throw new Error(answer.statusText);
			const next = new DOMParser().parseFromString(await answer.text(), "text/html");
			show(next.getElementById("picture"));
			say(next.getElementById("state").textContent);
			gone = "";
		} catch {
			lost();
		}
		loading = false;
	}

	pause.hidden = false;
	pause.addEventListener("click", () => {
		pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
		load();
	});
	document.addEventListener("visibilitychange", load);
	setInterval(load, every);
})();
