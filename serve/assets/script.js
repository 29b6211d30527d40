// Replaces the picture whenever the server has a new one. It changes only what differs, so that the
// focus, a selection and an open search stay.
"use strict";
(() => {
	const picture = document.getElementById("picture");
	const state = document.getElementById("state");
	const pause = document.getElementById("pause");
	if (!picture || !window.EventSource) return;
	let source = null, cut = "", trouble = state.textContent;

	function say() {
		const text = cut || trouble;
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

	function show(html) {
		const focused = document.activeElement;
		const inside = picture.contains(focused);
		children(picture, new DOMParser().parseFromString(html, "text/html").body);
		if (inside && document.activeElement !== focused) {
			(focused.isConnected ? focused : document.getElementById("main")).focus({ preventScroll: true });
		}
	}

	function follow() {
		if (source || document.hidden || pause.getAttribute("aria-pressed") === "true") return;
		source = new EventSource(picture.dataset.events);
		source.addEventListener("state", (event) => { trouble = event.data; });
		source.addEventListener("picture", (event) => { cut = ""; show(event.data); say(); });
		source.addEventListener("error", () => {
			if (!cut) cut = "This page has lost its program since " + new Date().toISOString().slice(11, 19) + " UTC.";
			if (source.readyState === EventSource.CLOSED) {
				source.close();
				source = null;
				cut = cut.replace(/\.$/, ": load it again.");
			}
			say();
		});
	}

	function rest() {
		if (source) source.close();
		source = null;
	}

	pause.hidden = false;
	pause.addEventListener("click", () => {
		const paused = pause.getAttribute("aria-pressed") !== "true";
		pause.setAttribute("aria-pressed", String(paused));
		paused ? rest() : follow();
	});
	// A page that nobody sees asks for nothing.
	document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
	window.addEventListener("pagehide", rest);
	window.addEventListener("pageshow", follow);
	follow();
})();
