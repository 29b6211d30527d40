/*
 * Shared and exclusive locks on PostgreSQL, of one row or of both. Each row has a queue lock in
 * front of it. Locks are taken in this order, and kept until the transaction ends:
 *
 *                queue locks   rows
 *   shared       shared       -
 *   exclusive    exclusive    exclusive
 *
 * An exclusive hold may be renewed (renewal.pml has its failures): its rows are free for a moment.
 * Sessions come back without end. Sessions 1 and 2 stay once they have asked; session 3 gives up or
 * ends at any point. A session that ends frees its rows first, and then the rest.
 *
 * Claims: no writer is inside with anybody else. A renewal finds the rows free. Who stays gets in,
 * whoever comes later, if holders leave. So the order of the locks allows no deadlock.
 *
 * Mutation FEW_QUEUE_LOCKS: a request for both rows passes the first queue lock alone. Of the second
 * row, which a reader does not lock, nobody keeps a writer out.
 * Mutation TWO_SPELLINGS: queue locks have other numbers for one session, as with hashes of a
 * table's name. Its writer has the row, in which no reader is seen.
 * Mutation NO_ORDER: a session takes the queue locks of both rows the other way round.
 * Mutation READERS_FIRST: a queue lock is shared at once though somebody waits for it alone. Readers
 * that overlap without end starve a writer.
 */
#define N 3          /* sessions; their numbers are 1 to N */

/* What is locked, each fair: first come, first served, and neighbours who share get in together. */
#define QUEUE_LOCK 0  /* of row 0; of row 1 it is 1 */
#define ROW 2        /* row 0; row 1 is 3 */
#define LOCKS 4

#define SELF (1 << me)
#define WANTS(r) (first <= (r) && (r) <= last)
#ifdef FEW_QUEUE_LOCKS
#define PASSES(r) ((r) == first)
#else
#define PASSES(r) WANTS(r)
#endif

byte alone[LOCKS];                  /* who has it exclusively; 0: nobody */
byte together[LOCKS];               /* the set of those who share it */
chan line[LOCKS] = [N] of { byte }; /* who waits for it */
bool shares[N + 1];                 /* the mode of a session's request */

byte writer[2];                     /* of a row, by its own view */
byte readers[2];

bool steady;                        /* session 1 has asked, and is not inside yet */

ltl served { [] (steady -> <> !steady) }

inline grant(l) { /* to those who wait, in the act of releasing */
	do
	:: nempty(line[l]) ->
		line[l]?<next>;
		if
		:: shares[next] && alone[l] == 0 -> line[l]?next; together[l] = together[l] | (1 << next)
		:: !shares[next] && alone[l] == 0 && together[l] == 0 -> line[l]?next; alone[l] = next
		:: else -> break
		fi
	:: empty(line[l]) -> break
	od;
	next = 0
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
#define PASSES_BY(l) ((l) < ROW)
#else
#define PASSES_BY(l) false
#endif

inline lock(l) {
	atomic {
		if
		:: shares[me] && alone[l] == 0 && (empty(line[l]) || PASSES_BY(l)) -> together[l] = together[l] | SELF
		:: !shares[me] && alone[l] == 0 && together[l] == 0 && empty(line[l]) -> alone[l] = me
		:: else -> line[l]!me
		fi
	}
	if
	:: alone[l] == me || (together[l] & SELF)
	:: atomic { !patient -> goto leave } /* gives up, or ends */
	fi
}

inline pass(r) {
	if
#ifdef TWO_SPELLINGS
	:: PASSES(r) && me != 3 -> lock(QUEUE_LOCK + r)
	:: !PASSES(r) || me == 3
#else
	:: PASSES(r) -> lock(QUEUE_LOCK + r)
	:: !PASSES(r)
#endif
	fi
}

inline lockRow(r) {
	if
	:: WANTS(r) && !shares[me] -> lock(ROW + r)
	:: !WANTS(r) || shares[me]
	fi
}

inline enter(r) {
	if
	:: !WANTS(r)
	:: WANTS(r) && shares[me] -> assert(writer[r] == 0); readers[r] = readers[r] | SELF
	:: WANTS(r) && !shares[me] -> assert(writer[r] == 0 && readers[r] == 0); writer[r] = me
	fi
}

inline quit(r) {
	writer[r] = (writer[r] == me -> 0 : writer[r]);
	readers[r] = readers[r] & ~SELF
}

inline relock(r) {
	if
	:: WANTS(r) -> assert(alone[ROW + r] == 0 && together[ROW + r] == 0); alone[ROW + r] = me
	:: !WANTS(r)
	fi
}

proctype session(byte me) {
	byte first, last; /* the rows that are asked for */
	bool patient;     /* it neither gives up nor ends before it is inside */
	byte next;

idle:
	atomic {
		if
		:: first = 0; last = 0
		:: first = 1; last = 1
		:: first = 0; last = 1
		fi;
		if
		:: shares[me] = true
		:: true
		fi;
		patient = (me <= 2);
		steady = (me == 1 -> true : steady)
	}
#ifdef NO_ORDER
	if
	:: me == 2 -> pass(1); pass(0)
	:: me != 2 -> pass(0); pass(1)
	fi;
#else
	pass(0);
	pass(1);
#endif
	lockRow(0);
	lockRow(1);
	atomic {
		enter(0);
		enter(1);
		steady = (me == 1 -> false : steady)
	}

	/* The renewal. The session has the queue locks for itself, beside its transaction. */
	if
	:: true
	:: atomic { !shares[me] -> release(ROW); release(ROW + 1) }
		atomic { relock(0); relock(1) }
	fi;

	atomic { quit(0); quit(1) } /* the owner leaves, or is told */
leave: /* The server ends the transaction: its rows, and then the others. */
	atomic { release(ROW); release(ROW + 1) }
	atomic {
		release(QUEUE_LOCK);
		release(QUEUE_LOCK + 1);
		shares[me] = false;
		first = 0;
		last = 0
	}
	goto idle
}

init { atomic { run session(1); run session(2); run session(3) } }
