/*
 * The renewal of a held row on PostgreSQL: the transaction ends, another begins and locks the row
 * again, and nobody gets in between. A session's advisory lock keeps the turnstile shut meanwhile.
 *
 * There are two rows. A small request is for one of them, through its turnstile. A large one is for
 * both, and has a turnstile in front of row 0 alone, as requests of more than 32 rows have
 * turnstiles in front of the first 32 alone. It passes a gate first. Requests wait or try, give up
 * at any point, and come back without end. Each statement of a renewal may fail. PostgreSQL then
 * aborts the transaction, or what came after the last savepoint; locks of the session stay. Where
 * that was a cancel, the client goes on: back to the savepoint, or, where the session keeps turnstile
 * and gate, with the next transaction. Else it tells the owner, and then closes the connection.
 *
 * Claims: never two inside, where an owner is inside until it is told or leaves. A renewal finds
 * the row free. No advisory lock of the session outlives the hold. Nobody is blocked for ever.
 *
 * Mutation NO_SESSION_TURNSTILE: a waiter gets in when the transaction ends.
 * Mutation NO_GATE: a large request that waits for row 1 itself gets in.
 * Mutation TRY_SKIPS_GATE: so does a large try, which waits for nothing.
 * Mutation RENEW_LARGE: a large request is renewed too. A small one that waits for row 1 gets in.
 * Mutation NO_FIRST_SAVEPOINT: a first statement that fails ends the transaction, and a waiter gets
 * in before the owner is told.
 * Mutation NO_LAST_SAVEPOINT: so does a last statement that fails after it has unlocked.
 * Mutation RESUMES_UNKEPT: after a cancel the client goes on whatever the session keeps.
 * Mutation CLOSE_BEFORE_TELLING: the connection is closed before the owner is told.
 */
#define N 3 /* sessions; their numbers are 1 to N */

byte row[2];                    /* who has locked it; 0: nobody */
byte turnstile[2];              /* who has passed it */
bool byTransaction[2];          /* ... until the transaction ends */
bool bySession[2];              /* ... until it is unlocked, or the connection closed */
chan line[2] = [N] of { byte }; /* who waits for it */
byte shared;                    /* the gate: the set of those who passed, for their transaction */
byte gate;                      /* the gate: who keeps it shut; 0: nobody */
byte inside[2];                 /* who works under the lock, by its own view */

#define SELF (1 << me)
#define KEPT (bySession[r] && gate == me)

inline grantTurnstile(r) { /* to the first who waits, in the act of releasing */
	if
	:: turnstile[r] == me && !byTransaction[r] && !bySession[r] ->
		if
		:: nempty(line[r]) -> line[r]?turnstile[r]; byTransaction[r] = true
		:: empty(line[r]) -> turnstile[r] = 0
		fi
	:: else
	fi
}

inline freeRows() {
	if
	:: row[0] == me -> row[0] = 0
	:: else
	fi;
	if
	:: row[1] == me -> row[1] = 0
	:: else
	fi
}

inline freeTurnstiles() { /* those that the transaction holds, and the gate */
	shared = shared & ~SELF;
	if
	:: turnstile[0] == me -> byTransaction[0] = false
	:: else
	fi;
	grantTurnstile(0);
	if
	:: turnstile[1] == me -> byTransaction[1] = false
	:: else
	fi;
	grantTurnstile(1)
}

/* The server ends a transaction, and then releases its locks. */
inline endTransaction() {
	d_step { freeRows() }
	d_step { freeTurnstiles() }
}

inline close() { /* the connection: its transaction ends, and then the locks of the session */
	d_step { freeRows() }
	d_step {
		if
		:: turnstile[r] == me -> bySession[r] = false
		:: else
		fi;
		if
		:: gate == me -> gate = 0
		:: else
		fi;
		freeTurnstiles()
	}
}

inline enter(r) {
	assert(inside[r] == 0);
	inside[r] = me
}

inline leave() {
	d_step {
		if
		:: inside[0] == me -> inside[0] = 0
		:: else
		fi;
		if
		:: inside[1] == me -> inside[1] = 0
		:: else
		fi
	}
}

inline mayFail() {
	if
	:: true
	:: goto failed
	fi
}

active [N] proctype session() {
	byte me = _pid + 1;
	byte r;        /* the row of a small request; the turnstile of a large one */
	bool large;
	bool try;
	bool undoable; /* a savepoint stands between a failure and the transaction */

idle:
	atomic {
		if
		:: r = 0; large = false
		:: r = 1; large = false
		:: r = 0; large = true
		fi;
		if
		:: try = false
		:: try = true
		fi
	}

#ifndef NO_GATE
	if
	:: !large
#ifdef TRY_SKIPS_GATE
	:: large && try
#endif
	:: atomic { large && gate == 0 -> shared = shared | SELF }
	:: large -> goto idle /* a try that missed, or a wait that ended */
	fi;
#endif

	atomic {
		if
		:: turnstile[r] == 0 -> turnstile[r] = me; byTransaction[r] = true
		:: else ->
			if
			:: try -> goto release
			:: !try -> line[r]!me
			fi
		fi
	}
	if
	:: turnstile[r] == me
	:: atomic { turnstile[r] != me -> line[r]??eval(me); goto release } /* gives up */
	fi;

	if
	:: atomic { row[r] == 0 -> row[r] = me }
	:: goto release
	fi;
	if
	:: !large
	:: atomic { large && row[1] == 0 -> row[1] = me }
	:: large -> goto release
	fi;
	atomic {
		enter(r);
		if
		:: large -> enter(1)
		:: else
		fi
	}

held:
	if
	:: goto unlock
#ifdef RENEW_LARGE
	:: true
#else
	:: !large
#endif
	fi;

	/* The renewal. A cancel in front of its first statement ends the transaction, so the lock is free
	 * before the owner can know. To the model that is an unlock, unless the client goes on. */
#ifdef RESUMES_UNKEPT
	if
	:: true
	:: leave(); endTransaction(); goto again
	fi;
#endif
#ifndef NO_FIRST_SAVEPOINT
	undoable = true; /* savepoint */
#endif
	mayFail();
#ifndef NO_GATE
	if
	:: atomic { gate == 0 && (shared & ~SELF) == 0 -> gate = me } /* pg_advisory_lock(gate) */
	:: atomic { !(gate == 0 && (shared & ~SELF) == 0) -> undoable = false; goto held } /* put off, after lock_timeout */
	fi;
	mayFail();
#endif
#ifndef NO_SESSION_TURNSTILE
	bySession[r] = true; /* pg_advisory_lock(t): its own lock is not in its way */
	mayFail();
#endif
	undoable = false;
	endTransaction(); /* rollback and chain */
	mayFail();
again:
	atomic { /* pg_advisory_xact_lock(t) */
		if
		:: turnstile[r] == me -> byTransaction[r] = true
		:: turnstile[r] == 0 -> turnstile[r] = me; byTransaction[r] = true
		:: else -> assert(false) /* somebody got in */
		fi
	}
	mayFail();
	atomic { /* select ... for update */
		assert(row[r] == 0);
		row[r] = me;
		if
		:: large -> assert(row[1] == 0); row[1] = me
		:: else
		fi
	}
	mayFail();
#ifndef NO_LAST_SAVEPOINT
	undoable = true; /* savepoint */
#endif
unkeep:
	bySession[r] = false; /* pg_advisory_unlock(t) */
	if
	:: gate == me -> gate = 0 /* pg_advisory_unlock(gate) */
	:: else
	fi;
	mayFail();
	undoable = false; /* release */
	goto held;

failed:
	if
	:: undoable -> /* the transaction stands, with its locks */
		if
		:: goto unkeep /* after a cancel; rollback to savepoint */
		:: true
		fi
	:: else ->
		endTransaction();
		if
		:: KEPT -> goto again /* after a cancel */
		:: true
		fi
	fi;
	undoable = false;
#ifdef CLOSE_BEFORE_TELLING
	close();
#endif
	leave(); /* the owner is told */
	close();
	goto idle;

unlock:
	leave();
release:
	atomic { freeRows() }
	d_step {
		freeTurnstiles();
		assert(gate != me && turnstile[r] != me && turnstile[1] != me && !(shared & SELF))
	}
	goto idle
}
