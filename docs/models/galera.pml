/*
 * A lock on a cluster of Galera. A session locks the row on its own node, changes it, and has the
 * cluster take the change, a fragment, at a place in the order of all fragments, commits and
 * rollbacks. The cluster takes it if its node has applied all that was ordered before and concerns
 * the row (certification); otherwise it rolls the session back. Each node applies the order at its
 * own pace. A fragment that it applies there locks the row, and rolls back a session of the node
 * that has locked the row and is not certified. Work reads a number on its node and writes it back
 * one larger; it commits at a place in the order.
 *
 * A node may be cut off. The others then order a view without it, behind which its sessions are
 * rolled back. It orders nothing any more, and learns some time later that it is alone. What its
 * sessions had sent before the cut is in the order, or never is. It may come back: its sessions are
 * rolled back, and it has all of the order.
 *
 * Claims: what was acknowledged is committed in the order, and no update is lost. A holder that
 * proves itself by fragments, and gives up before the others drop its node, knows of its loss when
 * they grant the lock.
 *
 * Mutation NO_FRAGMENT: the row is locked on its node alone. Two work at a time.
 * Mutation NO_CERTIFICATION: a fragment is taken whatever was ordered before it.
 * Mutation EARLY_READ: the work reads before it has the row.
 * Mutation COMMIT_ALONE: a node that is cut off acknowledges a commit by itself.
 * Mutation KEEPS_SESSIONS: a node that comes back goes on with its sessions.
 * Mutation LONG_LEASE: the holder's lease is longer than the time after which a silent node is
 * dropped.
 */
#define N 3       /* nodes, with a session each; the first may be cut off */
#define ROUNDS 3  /* in all, whoever takes them */
#define CUT 0

/* The order, as far as it concerns the row: who has the fragment that is in force, and what was
 * committed. A node that has applied all of it has seen as many steps as there are. */
byte steps;            /* ordered: fragments, commits, rollbacks, views */
byte owner;            /* session with a fragment in force, plus 1; 0: none */
byte number;           /* committed */
byte commits;          /* that took effect */
byte acknowledged;

/* Each node, as far as it has applied the order. */
byte applied[N];       /* steps */
byte sees[N];          /* the number that is committed there */
byte row[N];         /* the session that has the row there, plus 1; 0: none */

bool inView[N];        /* the others reckon with the node */
bool cut;              /* the node is cut off */
bool alone;            /* and knows it */

mtype = { idle, locked, certified, lost };
mtype state[N] = idle;
byte round;
bool believes[N];      /* a holder of a Lock, which works elsewhere */

#define reaches(n) (!(cut && n == CUT))
#define current(n) (applied[n] == steps)

/* Something is ordered. */
inline order() { steps++ }

/* The lease of a holder counts from when it asked. */
inline grant() {
	if
	:: holds ->
		believes[me] = true;
		assert(!believes[(me + 1) % N] && !believes[(me + 2) % N])
	:: else
	fi
}

active [N] proctype node() {
	/* Applies the order, all that is there at once: what matters is how far a node is behind. */
	byte n = _pid;
	inView[n] = true;
end:
	do
	:: atomic {
		applied[n] < steps && reaches(n) && inView[n] ->
		sees[n] = number;
		if /* what it applies has taken the row */
		:: state[n] == locked -> state[n] = lost
		:: else
		fi;
		if
		:: owner != n + 1 -> row[n] = owner
		:: else
		fi;
		applied[n] = steps
	}
	od
}

active [N] proctype session() {
	byte me = _pid - N;
	byte value;
	bool holds; /* a Lock, and no Do */

next:
	atomic {
		value = 0;
		if
		:: round == ROUNDS -> goto over
		:: else -> round++
		fi;
		if
		:: holds = true
		:: holds = false
		fi
	}
#ifdef EARLY_READ
	value = sees[me];
#endif
lock:
	/* The wait on the node. */
	atomic {
		if
		:: row[me] == 0 -> row[me] = me + 1; state[me] = locked
		:: alone && me == CUT -> goto next /* the node takes no statements */
		fi
	}
#ifdef NO_FRAGMENT
	atomic { state[me] == locked -> state[me] = certified; grant() }
#else
	/* The fragment. */
	atomic {
		if
		:: state[me] == lost -> state[me] = idle; goto lock
		:: alone && me == CUT -> goto gone
		:: state[me] == locked && reaches(me) && inView[me] ->
#ifndef NO_CERTIFICATION
			if
			:: current(me) && owner == 0
			:: else -> /* another was first: rolled back, and asks again */
				state[me] = idle;
				if
				:: row[me] == me + 1 -> row[me] = 0
				:: else
				fi;
				goto lock
			fi;
#endif
			order();
			owner = me + 1;
			applied[me] = steps;
			state[me] = certified;
			grant()
		fi
	}
#endif
	if
	:: holds -> goto held
	:: else
	fi;

	/* The work of a Do. */
#ifndef EARLY_READ
	atomic {
		if
		:: state[me] == certified -> value = sees[me]
		:: else -> goto gone
		fi
	}
#endif
	/* COMMIT. */
	atomic {
		if
		:: state[me] != certified -> goto gone
		:: state[me] == certified && reaches(me) && inView[me] ->
			order();
			number = value + 1;
			commits++;
			assert(number == commits);
			sees[me] = number;
			applied[me] = steps;
			owner = 0;
			row[me] = 0;
			state[me] = idle;
			acknowledged++
#ifdef COMMIT_ALONE
		:: alone && me == CUT -> acknowledged++; goto gone
#else
		:: alone && me == CUT -> goto gone
#endif
		fi
	}
	assert(acknowledged <= commits);
	goto next;

held:
	/* The work of a Lock is elsewhere. It gives the lock back, or is told that it is lost: by an
	 * answer, or, where none comes, by its own clock. */
	atomic {
		if
		:: state[me] == certified && reaches(me) && inView[me] ->
			order();
			owner = 0;
			applied[me] = steps
		:: state[me] != certified
		:: cut && me == CUT
		fi;
		believes[me] = false
	}
	goto gone;

gone:
	atomic {
		state[me] = idle;
		if
		:: row[me] == me + 1 -> row[me] = 0
		:: else
		fi;
		if
		:: owner == me + 1 && reaches(me) && inView[me] -> order(); owner = 0; applied[me] = steps
		:: else
		fi;
		goto next
	}
over:
	skip
}

active proctype network() {
	atomic { inView[CUT] -> cut = true }
	/* The others drop the node, some time after the last that they have heard. A holder whose lease
	 * is shorter has given up by then. */
	atomic {
#ifndef LONG_LEASE
		!believes[CUT] ->
#endif
		inView[CUT] = false;
		order();
		if
		:: owner == CUT + 1 -> owner = 0
		:: else
		fi
	}
	alone = true;
	atomic {
		cut = false;
		alone = false;
		inView[CUT] = true;
#ifndef KEEPS_SESSIONS
		if
		:: state[CUT] != idle -> state[CUT] = lost
		:: else
		fi;
		row[CUT] = owner;
#endif
		sees[CUT] = number;
		applied[CUT] = steps
	}
}
