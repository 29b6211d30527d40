/*
 * The renewal of held rows on PostgreSQL: the transaction ends, another begins and locks the rows
 * again, and nobody gets in between. Advisory locks of the session keep the queue locks meanwhile.
 *
 * There are two rows, each with a queue lock in front of it. A request is for one of them or for
 * both: it passes all its queue locks, in one order, and then locks its rows. Requests wait or try,
 * give up at any point, and come back without end. A renewal asks for queue locks that its own
 * transaction has. The server grants these at once, so it waits for nobody. Each statement of a
 * renewal may fail. PostgreSQL then aborts the transaction, or what came after the last savepoint;
 * locks of the session stay. The client tells the owner, and then closes the connection.
 *
 * Claims: never two inside, where an owner is inside until it is told or leaves. A renewal finds
 * its queue locks passed and its rows free. No advisory lock of the session outlives the hold.
 * Nobody is blocked for ever.
 *
 * Mutation NO_SESSION_QUEUE_LOCK: a waiter gets in when the transaction ends.
 * Mutation KEEPS_ONE: of two queue locks the session keeps the first.
 * Mutation FEW_QUEUE_LOCKS: a request for both rows passes the first queue lock alone, and waits for
 * the second row itself. It gets in.
 * Mutation NO_FIRST_SAVEPOINT: a first statement that fails ends the transaction, and a waiter gets
 * in before the owner is told.
 * Mutation NO_LAST_SAVEPOINT: so does a last statement that fails after it has unlocked.
 * Mutation GOES_ON: after a failure behind a savepoint the client goes on with what the session keeps
 * for itself.
 * Mutation CLOSE_BEFORE_TELLING: the connection is closed before the owner is told.
 */
#define N 3 /* sessions; their numbers are 1 to N */

byte row[2];                    /* who has locked it; 0: nobody */
byte queueLock[2];              /* who has passed it */
bool byTransaction[2];          /* ... until the transaction ends */
bool bySession[2];              /* ... until it is unlocked, or the connection closed */
chan line[2] = [N] of { byte }; /* who waits for it */
byte inside[2];                 /* who works under the lock, by its own view */

#define WANTS(r) (first <= (r) && (r) <= last)
#ifdef FEW_QUEUE_LOCKS
#define PASSES(r) ((r) == first)
#else
#define PASSES(r) WANTS(r)
#endif

inline grantQueueLock(r) { /* to the first who waits, in the act of releasing */
	if
	:: queueLock[r] == me && !byTransaction[r] && !bySession[r] ->
		if
		:: nempty(line[r]) -> line[r]?queueLock[r]; byTransaction[r] = true
		:: empty(line[r]) -> queueLock[r] = 0
		fi
	:: else
	fi
}

inline freeRow(r) {
	row[r] = (row[r] == me -> 0 : row[r])
}

inline freeQueueLock(r) { /* that the transaction holds */
	byTransaction[r] = (queueLock[r] == me -> false : byTransaction[r]);
	grantQueueLock(r)
}

/* The server ends a transaction, and then releases its locks. */
inline endTransaction() {
	d_step { freeRow(0); freeRow(1) }
	d_step { freeQueueLock(0); freeQueueLock(1) }
}

inline close() { /* the connection: its transaction ends, and then the locks of the session */
	d_step { freeRow(0); freeRow(1) }
	d_step {
		bySession[0] = (queueLock[0] == me -> false : bySession[0]);
		bySession[1] = (queueLock[1] == me -> false : bySession[1]);
		freeQueueLock(0);
		freeQueueLock(1)
	}
}

inline leave() {
	d_step {
		inside[0] = (inside[0] == me -> 0 : inside[0]);
		inside[1] = (inside[1] == me -> 0 : inside[1])
	}
}

inline mayFail() {
	if
	:: true
	:: goto failed
	fi
}

/* A queue lock is waited for. The wait may end at any time, also when it was granted just now. */
inline pass(r) {
	atomic {
		if
		:: PASSES(r) && queueLock[r] == 0 -> queueLock[r] = me; byTransaction[r] = true
		:: PASSES(r) && queueLock[r] != 0 ->
			if
			:: goto release /* a try */
			:: line[r]!me
			fi
		:: !PASSES(r)
		fi
	}
	if
	:: !PASSES(r) || queueLock[r] == me
	:: atomic {
		PASSES(r) ->
			if
			:: line[r]??[eval(me)] -> line[r]??eval(me)
			:: else
			fi;
			goto release
		}
	fi
}

inline lock(r) {
	if
	:: !WANTS(r)
	:: atomic { WANTS(r) && row[r] == 0 -> row[r] = me }
	:: WANTS(r) -> goto release
	fi
}

inline keep(r) { /* pg_try_advisory_lock(t) */
	atomic {
		if
		:: PASSES(r) -> assert(queueLock[r] == me); bySession[r] = true
		:: !PASSES(r)
		fi
	}
}

inline passAgain(r) { /* pg_try_advisory_xact_lock(t) */
	atomic {
		if
		:: PASSES(r) -> assert(queueLock[r] == me); byTransaction[r] = true
		:: !PASSES(r)
		fi
	}
}

inline relock(r) { /* select ... for update nowait */
	atomic {
		if
		:: WANTS(r) -> assert(row[r] == 0); row[r] = me
		:: !WANTS(r)
		fi
	}
}

active [N] proctype session() {
	byte me = _pid + 1;
	byte first, last; /* the rows that are asked for */
	bool undoable;    /* a savepoint stands between a failure and the transaction */

idle:
	atomic {
		if
		:: first = 0; last = 0
		:: first = 1; last = 1
		:: first = 0; last = 1
		fi
	}
	pass(0);
	pass(1);
	lock(0);
	lock(1);
	d_step {
		if
		:: WANTS(0) -> assert(inside[0] == 0); inside[0] = me
		:: else
		fi;
		if
		:: WANTS(1) -> assert(inside[1] == 0); inside[1] = me
		:: else
		fi
	}

held:
	if
	:: goto unlock
	:: true
	fi;

	/* The renewal. A cancel in front of its first statement ends the transaction, so the lock is free
	 * before the owner can know. To the model that is an unlock. */
#ifndef NO_FIRST_SAVEPOINT
	undoable = true; /* savepoint */
#endif
	mayFail();
#ifndef NO_SESSION_QUEUE_LOCK
	keep(0);
	mayFail();
#ifdef KEEPS_ONE
	if
	:: first == 1 -> keep(1)
	:: else
	fi;
#else
	keep(1);
#endif
	mayFail();
#endif
	undoable = false;
	endTransaction(); /* rollback and chain */
	mayFail();
	passAgain(0);
	passAgain(1);
	mayFail();
	relock(0);
	relock(1);
	mayFail();
#ifndef NO_LAST_SAVEPOINT
	undoable = true; /* savepoint */
#endif
	/* pg_advisory_unlock(t), of what the session keeps */
	bySession[0] = (queueLock[0] == me -> false : bySession[0]);
	mayFail();
	bySession[1] = (queueLock[1] == me -> false : bySession[1]);
	mayFail();
	undoable = false; /* release */
	goto held;

failed:
	if
	:: undoable /* the transaction stands, with its locks */
#ifdef GOES_ON
		-> undoable = false; goto held
#endif
	:: else -> endTransaction()
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
release: /* the connection goes back to its pool */
	endTransaction();
	d_step { assert(queueLock[0] != me && queueLock[1] != me) }
	goto idle
}
