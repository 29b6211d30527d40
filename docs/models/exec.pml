/*
 * Exec: lock, statements and COMMIT travel together, in a flight. The server takes its steps by
 * itself, each as late as it likes. A connection may break at any point: the caller is told at once,
 * and the server goes on, or notices in the wait. Each caller has one order, which its statements
 * write. A flight that waits, for its lock or in a statement, may be interrupted once: it is rolled
 * back, and runs again as a Do, which is not asked. After any other error a caller may run again
 * (Retry). Some statements send COMMIT themselves; these callers have no Retry.
 *
 * Claims: nothing is committed without the lock. An order is written once at most. Who is told nil
 * has written it. Who is told of an error that is no ErrLost has not written it, and nothing at the
 * server will, but for what a COMMIT of the statements has kept.
 *
 * Mutation NO_JUDGE: the number of rows is judged by the caller, behind the COMMIT.
 * Mutation SAYS_NOTHING: when the connection breaks, the error says that nothing is committed.
 * Mutation RUNS_AGAIN: a caller runs again also after the loss of its connection.
 * Mutation COMMITS_TRAVEL: statements that send COMMIT travel with the lock, and may be asked.
 */
#define N 2
#define FLIGHTS 7    /* their numbers are 1 to 6 */
#define ATTEMPTS 2   /* besides one behind a flight that was interrupted */

mtype = { none, nil, failed, gaveWay, lost };

/* The server. */
byte row;            /* which flight has it; 0: none */
bool pending[N];     /* written by an order, and not committed */
byte written[N];     /* how often an order was committed */

/* The network. */
mtype answer[FLIGHTS] = none;
bool broken[FLIGHTS];

/* The callers. */
byte flights;
bool commits[N];     /* its statements send COMMIT */
mtype told[N] = none;

inline commit() {
	assert(row == me);
	written[c] = written[c] + pending[c];
	pending[c] = false;
	assert(written[c] <= 1);
	assert(told[c] != failed || commits[c])
}

inline endTransaction() {
	pending[c] = false;
	if
	:: row == me -> row = 0
	:: else
	fi
}

/* asked: it may be interrupted. */
proctype flight(byte c; byte me; bool asked) {
	bool right;

	if /* waits for its lock */
	:: atomic { row == 0 -> row = me }
	:: atomic { asked -> answer[me] = gaveWay; goto end }
	:: atomic { broken[me] -> goto end }
	fi;
	atomic { /* statements, which affect the right number of rows or another */
		pending[c] = true;
		if
		:: right = true
		:: right = false
		fi
	}
	if
	:: commits[c] -> atomic { commit() }
	:: else
	fi;
	atomic {
		if
#ifndef NO_JUDGE
		:: right
		:: !right -> endTransaction(); answer[me] = failed; goto end
#else
		:: true
#endif
		:: asked ->
			endTransaction();
			answer[me] = gaveWay;
			goto end
		:: endTransaction(); answer[me] = failed; goto end /* a deadlock */
		fi
	}
	atomic {
		commit();
		endTransaction();
		if
		:: right -> answer[me] = nil
		:: else -> answer[me] = failed
		fi
	}
end:
	skip
}

proctype caller(byte c) {
	byte me, attempts;
	bool asked = true;

	if
	:: commits[c] = true
	:: true
	fi;
#ifndef COMMITS_TRAVEL
	asked = !commits[c];
#endif
again:
	atomic { flights++; me = flights; attempts++; run flight(c, me, asked) }
	if
	:: atomic { answer[me] == nil -> assert(written[c] == 1); told[c] = nil }
	:: atomic { answer[me] == failed ->
		if
		:: attempts < ATTEMPTS && !commits[c] -> goto again
		:: told[c] = failed; assert(written[c] == 0 || commits[c])
		fi
	}
	:: atomic { answer[me] == gaveWay -> asked = false; goto again }
	:: atomic { answer[me] == none -> broken[me] = true;
#ifdef RUNS_AGAIN
		if
		:: attempts < ATTEMPTS && !commits[c] -> goto again
		:: else
		fi;
#endif
#ifdef SAYS_NOTHING
		told[c] = failed
#else
		told[c] = lost
#endif
	}
	fi
}

init { atomic { run caller(0); run caller(1) } }
