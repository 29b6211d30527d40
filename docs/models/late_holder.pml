/*
 * A holder that is late: it is paused for longer than its lease, does not know, and goes on. Each
 * worker reads a number and writes it back one larger, either in the database under Do, or in
 * another system, the store, under Lock with a fencing token. The server ends any session at any
 * point. Besides, work under Do may end its own transaction, or swallow an error with which the
 * server ended it (a deadlock), and go on. An Exec is such a Do: the server takes its steps by
 * itself, each as late as it likes, and the worker may be gone.
 *
 * Claims: nothing of a Do commits while another may hold the lock. No update is lost, in the
 * database or in the store. Tokens increase in the order of holders.
 *
 * Mutation NO_PROOF: COMMIT does not look for the mark. What work did in a transaction that the
 * server began by itself commits without the lock.
 * Mutation NO_GUARD: outside its transaction, a statement of the work commits by itself.
 * Mutation NO_COMPARE: the store does not compare tokens.
 * Mutation NOTES_WRITES_ONLY: the store compares tokens, but does not note those of readers.
 * Mutation TOKEN_BEFORE_GRANT: the token is drawn before the wait.
 */
#define N 3      /* workers; their numbers are 1 to N */
#define ROUNDS 4 /* in all, whoever takes them */

/* The server. */
byte row;                /* whose session has the row; 0: nobody's */
bool open[N + 1];        /* the session */
mtype = { none, marked, unmarked };
mtype transaction[N + 1] = none; /* marked: the one that took the lock; unmarked: a later one */
byte pending[N + 1];     /* what the transaction has written; 0: nothing */
byte number;             /* committed */
byte sequence;           /* of tokens */

/* The store. */
byte stored;
byte seen;               /* the highest token */

/* What is claimed. */
byte round;
byte commits, writes;    /* updates that took effect */
byte latest;             /* token of the last holder */

inline endTransaction(p) { /* and the row is free */
	transaction[p] = none;
	pending[p] = 0;
	if
	:: row == p -> row = 0
	:: else
	fi
}

inline takesEffect(value) { /* in the database */
	assert(row == me);
	number = value;
	commits++;
	assert(number == commits)
}

/*
 * The transaction ends in the work: by a ROLLBACK of the work's, by a deadlock, or by a COMMIT of
 * the work's, which it sends once at most.
 */
inline mayEndTransaction() {
	atomic {
		if
		:: true
		:: open[me] && transaction[me] != none ->
			if
			:: pending[me] != 0 && transaction[me] == marked -> takesEffect(pending[me])
			:: true
			fi;
			endTransaction(me)
		fi
	}
}

/* A statement outside a transaction begins one where autocommit is off, as on MySQL and MariaDB. On
 * PostgreSQL the handle refuses it. */
inline mayBegin() {
	if
	:: transaction[me] == none && autocommitOff -> transaction[me] = unmarked
	:: else
	fi
}

active [N] proctype worker() {
	byte me = _pid + 1;
	byte value, token;
	bool autocommitOff;

next:
	atomic {
		value = 0;
		token = 0;
		autocommitOff = false;
		if
		:: round == ROUNDS -> goto end
		:: else -> round++
		fi
	}
#ifndef TOKEN_BEFORE_GRANT
	atomic {
		row == 0 -> row = me; open[me] = true; transaction[me] = marked;
		if
		:: goto lock
		:: autocommitOff = true
		:: autocommitOff = false
		fi
	}
#else
	atomic { sequence++; token = sequence }
	atomic { row == 0 -> row = me; open[me] = true; transaction[me] = marked; goto lock }
#endif

	/* A Do. */
	mayEndTransaction();
	atomic { /* reads */
		if
		:: open[me] -> mayBegin(); value = (pending[me] != 0 -> pending[me] : number)
		:: else -> goto next
		fi
	}
	mayEndTransaction();
	atomic { /* writes */
		if
		:: open[me] ->
#ifdef NO_GUARD
			if
			:: transaction[me] == none -> takesEffect(value + 1)
			:: else -> pending[me] = value + 1
			fi
#else
			mayBegin();
			if
			:: transaction[me] == none /* refused, and the work does not care */
			:: else -> pending[me] = value + 1
			fi
#endif
		:: else -> goto next
		fi
	}
	mayEndTransaction();
	atomic { /* commits */
		if
		:: !open[me] /* ErrLost */
#ifndef NO_PROOF
		:: open[me] && transaction[me] != marked /* ErrLost */
		:: open[me] && transaction[me] == marked ->
#else
		:: open[me] ->
#endif
			if
			:: pending[me] != 0 -> takesEffect(pending[me])
			:: else
			fi
		fi;
		endTransaction(me);
		open[me] = false;
		goto next
	}

lock:
	atomic { /* behind the grant, in the same round trip */
		if
		:: open[me] ->
#ifndef TOKEN_BEFORE_GRANT
			sequence++;
			token = sequence;
#endif
			assert(token > latest);
			latest = token
		:: else -> goto next
		fi
	}
	atomic { /* reads the store */
#ifndef NO_COMPARE
		if
		:: token < seen -> goto unlock
		:: else
		fi;
#ifndef NOTES_WRITES_ONLY
		seen = token;
#endif
#endif
		value = stored
	}
	atomic { /* writes to the store */
#ifndef NO_COMPARE
		if
		:: token < seen -> goto unlock /* refused */
		:: else
		fi;
		seen = token;
#endif
		stored = value + 1;
		writes++;
		assert(stored == writes)
	}
unlock:
	atomic {
		endTransaction(me);
		open[me] = false;
		goto next
	}

end:
	skip
}

/* The lease of a paused holder runs out; or somebody kills its session. */
active proctype server() {
	byte p;
end:
	do
	:: atomic { open[1] -> p = 1; open[p] = false; endTransaction(p); p = 0 }
	:: atomic { open[2] -> p = 2; open[p] = false; endTransaction(p); p = 0 }
	:: atomic { open[3] -> p = 3; open[p] = false; endTransaction(p); p = 0 }
	od
}
