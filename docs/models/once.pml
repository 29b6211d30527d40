/*
 * The marker of work that must not be done twice. A call reads the marker, and takes the lock where
 * it is not there. Behind the grant one statement reads the server's clock, and looks again. The
 * marker comes behind the work and behind the proof that the transaction is the one of the lock,
 * with the COMMIT. So work that sends COMMIT itself, and fails, leaves none. In a caller's own
 * transaction (DoTx) the marker is written behind the grant. It may have begun long before, and may
 * ask twice. Sessions end at any point. Whoever does not learn the answer of its COMMIT calls again,
 * as anybody may. The clock counts windows, in each of which the work is to be done once. It goes on
 * at any point, and once it goes back by a window. Sweep deletes the markers of the window before
 * the last, and of those before.
 *
 * Claims: in each window at most one work commits, by the window of its marker. A marker is
 * committed with its work or not at all. Whoever is told "done" is told of a work that has
 * committed, and, behind the grant, of one in the window of the grant or later.
 *
 * Mutation LOOKS_ONCE: the marker is looked at before the wait, and not behind the grant.
 * Mutation OLD_SNAPSHOT: the look behind the grant sees what was committed when the transaction
 * began, as a plain SELECT does at REPEATABLE READ.
 * Mutation MARKER_FIRST: the marker is written behind the grant, in the transaction of the lock, as
 * for DoTx. The COMMIT of work that then fails keeps it.
 * Mutation NO_PROOF: the marker is written in whatever transaction is open.
 * Mutation MARKER_BEFORE: the marker is committed before the work, in a transaction of its own.
 * Mutation MARKER_AFTER: the marker is committed after the work, in a transaction of its own.
 * Mutation FROZEN_CLOCK: the clock is that of the begin of the transaction, as now() is.
 * Mutation SAME_WINDOW: done is a marker of this very window. The clock goes back, and the work is
 * done again.
 * Mutation SWEEPS_PRESENT: Sweep's age is shorter than a window.
 * Mutation SWEEPS_UNSEEN: Sweep notes a key that is old, and deletes its marker later, without
 * another look and without a wait for who writes it.
 */
#define N 3       /* sessions; their numbers are 1 to N */
#define WINDOWS 3 /* they count from 1 */

/* The server. */
byte clock = 1;
bool back;               /* the clock has gone back */
byte lock;               /* whose session holds it; 0: nobody's */
byte marker;             /* committed: the window in which the work was done; 0: there is none */
byte writing;            /* the marker that the transaction of the lock has written; 0: none */

/* What is claimed. */
byte works[WINDOWS + 1]; /* committed, by the window of the marker */

#ifdef SAME_WINDOW
#define DONE(m) ((m) == window)
#else
#define DONE(m) ((m) >= window) /* 0 is before all windows */
#endif

/* The server ends the transaction: as it is told, or because the session is gone. */
inline ends() {
	if
	:: lock == me -> lock = 0; writing = 0
	:: else
	fi;
	window = 0;
	granted = 0;
	own = false;
	goto idle
}

inline mayEnd() {
	if
	:: true
	:: atomic { true -> ends() }
	fi
}

inline commitMarker() { marker = window }

inline commitWork() {
	works[window]++;
	assert(works[window] == 1)
}

inline toldDone(m) { assert(m != 0 && works[m] == 1) }

active [N] proctype session() {
	byte me = _pid + 1;
	byte window;   /* as read from the clock */
	byte granted;  /* the clock at the grant */
	bool own;      /* the caller's transaction */
#ifdef OLD_SNAPSHOT
	byte snapshot; /* the marker at the begin of the transaction */
#endif

idle:
	atomic { /* without a lock, one round trip; DoTx does not look here */
		if
		:: true
		:: window = clock;
			if
			:: DONE(marker) -> toldDone(marker); ends()
			:: else
			fi
		fi;
#ifdef OLD_SNAPSHOT
		snapshot = marker;
#endif
#ifndef FROZEN_CLOCK
		window = 0
#else
		window = clock
#endif
	}
	if
	:: atomic { lock == 0 -> lock = me; granted = clock }
	:: atomic { true -> ends() } /* gives up */
	fi;
	mayEnd();
	atomic { /* one statement */
#ifndef FROZEN_CLOCK
		window = clock;
#endif
#ifndef LOOKS_ONCE
#ifdef OLD_SNAPSHOT
#define marker snapshot
#endif
		if
		:: DONE(marker) ->
			toldDone(marker);
			assert(marker >= granted || back);
			ends()
		:: else
		fi;
#undef marker
#endif
#ifdef MARKER_BEFORE
		commitMarker();
#endif
		granted = 0;
		if
		:: own = true
		:: true
		fi;
#ifndef MARKER_FIRST
		if
		:: own -> writing = window
		:: else
		fi
#else
		writing = window
#endif
	}
	mayEnd();
	if
	:: true
	:: atomic { own -> assert(writing == window) } /* DoTx again sees its own: it was done */
	fi;
	mayEnd(); /* the work */
	if
	:: true
	:: atomic { !own -> /* sends COMMIT, and its call is an error */
		if
		:: writing != 0 -> commitMarker()
		:: else
		fi;
#ifdef NO_PROOF
		commitMarker();
#endif
		ends()
	   }
	fi;

	/* COMMIT. What it writes is seen before the lock is free. Its answer may be lost. */
	atomic {
		commitWork();
#if !defined(MARKER_BEFORE) && !defined(MARKER_AFTER)
		commitMarker()
#endif
	}
#ifdef MARKER_AFTER
	mayEnd();
	commitMarker();
#endif
	atomic { true -> ends() }
}

active proctype time() {
end:
	do
	:: atomic { clock < WINDOWS -> clock++ }
	:: atomic { clock > 1 && !back -> clock--; back = true }
	od
}

#ifdef SWEEPS_PRESENT
#define OLD (marker != 0 && marker <= clock)
#else
#define OLD (marker != 0 && marker + 2 <= clock)
#endif

active proctype sweep() {
end:
	do
#ifdef SWEEPS_UNSEEN
	:: OLD -> marker = 0
#else
	:: atomic { OLD && writing == 0 -> marker = 0 } /* skips what somebody writes */
#endif
	od
}
