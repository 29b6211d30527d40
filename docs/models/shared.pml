/*
 * Shared and exclusive locks on PostgreSQL, of one row (small) or of more rows than turnstiles
 * (large). There are two rows. A small request is for one of them. A large one is for both, and
 * passes the turnstile of row 0 alone. Locks are taken in this order, and kept until the
 * transaction ends:
 *
 *                     gate -1   gate -2     turnstiles   rows
 *   small, shared     -         shared      shared       -
 *   small, exclusive  -         -           exclusive    exclusive
 *   large, shared     shared    shared      shared       shared
 *   large, exclusive  shared    exclusive   exclusive    exclusive
 *
 * A small exclusive hold may be renewed (renewal.pml has its failures): its row is free for a
 * moment. It has gate -1 alone meanwhile, or is put off. Sessions come back without end. Sessions 1
 * and 2 stay once they have asked; session 3 gives up or ends at any point. A session that ends
 * frees its rows first, and then the rest.
 *
 * Claims: no writer is inside with anybody else. A renewal finds the row free. Who stays gets in,
 * whoever comes later, if holders leave. So the order of the locks allows no deadlock.
 *
 * Mutation NO_WIDE_GATE: a small shared request takes no gate. A large writer gets in beside it.
 * Mutation SHARES_WIDE_GATE: a large exclusive request shares gate -2.
 * Mutation NO_SHARED_ROWS: a large shared request locks no rows. A small writer gets in beside it.
 * Mutation SHARED_SKIPS_GATE: a large shared request passes by gate -1, and gets a row while it is
 * renewed.
 * Mutation TWO_SPELLINGS: turnstiles have other numbers for one session, as with hashes of a
 * table's name. Its writer has the row, in which no small reader is seen.
 * Mutation GATE_LAST: a small shared request passes gate -2 behind its turnstile.
 * Mutation READERS_FIRST: a turnstile is shared at once though somebody waits for it alone.
 * Mutation SHARES_ROW_AT_ONCE: a row is shared at once though somebody waits for it alone, as FOR
 * SHARE does. Large readers that overlap without end starve a writer of row 1.
 * Mutation NESTED: who has a row alone asks for a shared one besides, in the same transaction. A
 * gate then comes behind a turnstile, and a large writer completes the circle.
 */
#define N 3          /* sessions; their numbers are 1 to N */

/* What is locked, each fair: first come, first served, and neighbours who share get in together. */
#define WIDE 0       /* gate -2 */
#define TURNSTILE 1  /* of row 0; of row 1 it is 2 */
#define ROW 3        /* row 0; row 1 is 4 */
#define LOCKS 5

#define SELF (1 << me)

byte alone[LOCKS];                  /* who has it exclusively; 0: nobody */
byte together[LOCKS];               /* the set of those who share it */
chan line[LOCKS] = [N] of { byte }; /* who waits for it */
bool shares[N + 1];                 /* the mode of a session's request */
byte gate;                          /* gate -1: the set of those who share it */
byte renews;                        /* gate -1: who has it alone; 0: nobody */
byte behind;                        /* gate -1: the set of those who wait for him */

byte writer[2];                     /* of a row, by its own view */
byte readers[2];

bool steady;                        /* session 1 has asked, and is not inside yet */

ltl served { [] (steady -> <> !steady) }

inline grant(l) { /* to those who wait, in the act of releasing */
	do
	:: nempty(line[l]) ->
		line[l]?<first>;
		if
		:: shares[first] && alone[l] == 0 -> line[l]?first; together[l] = together[l] | (1 << first)
		:: !shares[first] && alone[l] == 0 && together[l] == 0 -> line[l]?first; alone[l] = first
		:: else -> break
		fi
	:: empty(line[l]) -> break
	od;
	first = 0
}

inline release(l) {
	if
	:: line[l]??[eval(me)] -> line[l]??eval(me)
	:: !(line[l]??[eval(me)])
	fi;
	alone[l] = (alone[l] == me -> 0 : alone[l]);
	together[l] = together[l] & ~SELF;
	grant(l)
}

#ifdef READERS_FIRST
#define PASSES_TURNSTILE(l) ((l) == TURNSTILE || (l) == TURNSTILE + 1)
#else
#define PASSES_TURNSTILE(l) false
#endif
#ifdef SHARES_ROW_AT_ONCE
#define PASSES_ROW(l) ((l) >= ROW)
#else
#define PASSES_ROW(l) false
#endif

inline lock(l) {
	atomic {
		if
		:: shares[me] && alone[l] == 0 && (empty(line[l]) || PASSES_TURNSTILE(l) || PASSES_ROW(l)) ->
			together[l] = together[l] | SELF
		:: !shares[me] && alone[l] == 0 && together[l] == 0 && empty(line[l]) -> alone[l] = me
		:: else -> line[l]!me
		fi
	}
	if
	:: alone[l] == me || (together[l] & SELF)
	:: atomic { !patient -> goto leave } /* gives up, or ends */
	fi
}

inline lockWide() {
#ifdef SHARES_WIDE_GATE
	atomic {
		if
		:: alone[WIDE] == 0 -> together[WIDE] = together[WIDE] | SELF
		:: else -> goto leave
		fi
	}
#else
	lock(WIDE)
#endif
}

inline enter(r) {
	if
	:: shares[me] -> assert(writer[r] == 0); readers[r] = readers[r] | SELF
	:: else -> assert(writer[r] == 0 && readers[r] == 0); writer[r] = me
	fi
}

inline quit(r) {
	writer[r] = (writer[r] == me -> 0 : writer[r]);
	readers[r] = readers[r] & ~SELF
}

proctype session(byte me) {
	byte r;       /* the row of a small request; the turnstile of a large one */
	bool large;
	bool patient; /* it neither gives up nor ends before it is inside */
	byte first;

idle:
	atomic {
		if
		:: r = 0
		:: r = 1
		:: r = 0; large = true
		fi;
		if
		:: shares[me] = true
		:: true
		fi;
		patient = (me <= 2);
		steady = (me == 1 -> true : steady);
		if
#ifdef SHARED_SKIPS_GATE
		:: large && shares[me] -> goto passed
#endif
		:: !large -> goto passed
		:: large && renews == 0 -> gate = gate | SELF; goto passed
		:: large && renews != 0 -> behind = behind | SELF
		fi
	}
	if
	:: gate & SELF
	:: atomic { !patient -> goto leave }
	fi;
passed:
	if
#if defined(NO_WIDE_GATE) || defined(GATE_LAST)
	:: large -> lockWide()
	:: !large
#else
	:: large || shares[me] -> lockWide()
	:: !large && !shares[me]
#endif
	fi;
#ifdef TWO_SPELLINGS
	if
	:: me != 3 -> lock(TURNSTILE + r)
	:: me == 3
	fi;
#else
	lock(TURNSTILE + r);
#endif
#ifdef GATE_LAST
	if
	:: !large && shares[me] -> lockWide()
	:: large || !shares[me]
	fi;
#endif
	if
#ifdef NO_SHARED_ROWS
	:: !shares[me] -> lock(ROW + r)
	:: shares[me]
#else
	:: large || !shares[me] -> lock(ROW + r)
	:: !large && shares[me]
#endif
	fi;
	if
#ifdef NO_SHARED_ROWS
	:: large && !shares[me] -> lock(ROW + 1)
	:: !large || shares[me]
#else
	:: large -> lock(ROW + 1)
	:: !large
#endif
	fi;
#ifdef NESTED
	if
	:: atomic { !large && !shares[me] -> shares[me] = true } lock(WIDE); shares[me] = false
	:: true
	fi;
#endif
	atomic {
		enter(r);
		if
		:: large -> enter(1)
		:: else
		fi;
		steady = (me == 1 -> false : steady)
	}

	/* The renewal. The session has the turnstile for itself, beside its transaction. */
	if
	:: true
	:: atomic { !large && !shares[me] && gate == 0 && renews == 0 -> renews = me }
		d_step { release(ROW + r) }
		atomic {
			assert(alone[ROW + r] == 0 && together[ROW + r] == 0);
			alone[ROW + r] = me
		}
		atomic { renews = 0; gate = gate | behind; behind = 0 }
	fi;

	atomic { quit(0); quit(1) } /* the owner leaves, or is told */
leave: /* The server ends the transaction: its rows, and then the others. */
	atomic { release(ROW); release(ROW + 1) }
	atomic {
		release(TURNSTILE);
		release(TURNSTILE + 1);
		release(WIDE);
		gate = gate & ~SELF;
		behind = behind & ~SELF;
		shares[me] = false;
		large = false;
		r = 0
	}
	goto idle
}

init { atomic { run session(1); run session(2); run session(3) } }
