/*
 * The permits of a semaphore, and the queue in front of them. A server can wait for one permit, not
 * for any of several. So there is a lock that is the queue, in a session of its own. Whoever comes
 * looks whether somebody has it, and if nobody has, tries all permits once. Others, and those that
 * have found none, wait for that lock. Who has it tries all permits again and again, and gives it
 * back with a permit in hand. One caller of each process is at the server. Whoever waits behind one
 * of the same process has no session yet.
 *
 * Callers come, lock or try, give up, and hold for as long as they like, for ever if they like. At
 * any point a statement may fail, or a session may end: that of the queue, or that of the permit.
 *
 * Claims: never two with one permit, so never more inside than there are permits. Those in the
 * queue get permits in the order in which they came there, and whoever passes it has seen it empty.
 * Nobody leaves the queue's lock behind. While somebody waits who neither fails nor gives up, no
 * permit stays free for ever, whatever the holders of the others do.
 *
 * Mutation COUNTS: the head sees that a permit is free, gives the queue back, and then notes that it
 * has it. Another head sees it free as well.
 * Mutation HEAD_GIVES_UP_FIRST: the head gives the queue back before it has a permit.
 * Mutation SKIPS_THE_LOOK: whoever comes tries all permits, also while others wait.
 * Mutation KEEPS_HEAD: a statement fails, and the queue's session goes on.
 * Mutation TRIES_ONCE: the head tries all permits once, and then waits at one of them.
 * Mutation HOLDS_AS_HEAD: the queue is given back with the permit.
 * Mutation HOLDS_PLACE: a caller is its process's at the server for as long as it holds a permit.
 */
#define N 4  /* callers; their numbers are 1 to N */
#define K 2  /* permits */
#define PROCESS ((me - 1) / 2)

byte head;                      /* who has the queue's lock; 0: nobody */
chan line = [N] of { byte };    /* who waits for it */
chan arrived = [N] of { byte }; /* who is in the queue and has no permit, by the order of coming */
byte permit[K];                 /* whose transaction has it */
byte inside[K];                 /* who works with it, by its own view */
byte place[N / 2];              /* a process's caller at the server */
chan behind[N / 2] = [2] of { byte }; /* who waits for that place */
bool steady;                    /* caller 1 waits, and will neither fail nor give up */

#define idle (steady && (permit[0] == 0 || permit[1] == 0))
#define MAYFAIL !(me == 1 && steady)

ltl used { [] (idle -> <> !idle) }

inline giveHeadBack() {
	if
	:: head == me ->
		if
		:: nempty(line) -> line?head
		:: empty(line) -> head = 0
		fi
	:: else
	fi
}

inline endTransaction() {
	if
	:: permit[0] == me -> permit[0] = 0
	:: else
	fi;
	if
	:: permit[1] == me -> permit[1] = 0
	:: else
	fi
}

inline leaveQueue() {
	if
	:: arrived??[eval(me)] -> arrived??eval(me)
	:: else
	fi;
	if
	:: line??[eval(me)] -> line??eval(me)
	:: else
	fi
}

inline leavePlace() {
	if
	:: place[PROCESS] == me ->
		if
		:: nempty(behind[PROCESS]) -> behind[PROCESS]?place[PROCESS]
		:: empty(behind[PROCESS]) -> place[PROCESS] = 0
		fi
	:: else
	fi
}

/* A statement fails, or the caller gives up, or the session ends. */
inline mayFail() {
	if
	:: true
	:: MAYFAIL -> goto failed
	fi
}

inline take(p) {
	permit[p] = me
}

proctype caller(byte me) {
	byte p; /* the permit */
	bool try, passed; /* passed: it has seen the queue empty, and is not in it */

outside:
	if
	:: goto outside
	:: try = false
	:: try = true
	:: atomic { me == 1 -> try = false; steady = true }
	fi;
	atomic {
		if
		:: try && empty(behind[PROCESS]) /* passes by */
		:: try && nempty(behind[PROCESS]) -> goto leave
		:: !try && place[PROCESS] == 0 -> place[PROCESS] = me
		:: !try && place[PROCESS] != 0 -> behind[PROCESS]!me
		fi
	}
	if
	:: try || place[PROCESS] == me
	:: atomic { !try && MAYFAIL && place[PROCESS] != me -> /* gives up */
		behind[PROCESS]??eval(me); goto leave }
	fi;

	atomic { /* a look */
		passed = false;
		if
		:: head == 0 -> passed = true
#ifdef SKIPS_THE_LOOK
		:: head != 0
#else
		:: head != 0 && try -> goto leave
		:: head != 0 && !try -> goto queue
#endif
		fi
	}
	atomic {
		if
		:: permit[0] == 0 -> p = 0
		:: permit[0] != 0 && permit[1] == 0 -> p = 1
		:: else ->
			if
			:: try -> goto leave
			:: else -> goto queue
			fi
		fi;
		assert(passed);
		take(p);
		goto got
	}

queue:
	atomic {
		passed = false;
		if
		:: head == 0 -> head = me
		:: else -> line!me
		fi;
		arrived!me
	}
	if
	:: head == me
	:: atomic { MAYFAIL && head != me -> goto failed }
	fi;

look:
	mayFail();
#ifdef HEAD_GIVES_UP_FIRST
	atomic { giveHeadBack() }
#endif
	p = 0;
	do
	:: atomic { p < K && permit[p] == 0 ->
#ifdef COUNTS
		goto got
#else
		take(p);
		goto got
#endif
	}
	:: atomic { p < K && permit[p] != 0 -> p++ }
	:: atomic { p == K -> break }
	od;
#ifdef TRIES_ONCE
	p = 0;
	if
	:: atomic { permit[p] == 0 -> take(p); goto got }
	:: MAYFAIL -> goto failed
	fi;
#endif
	goto look;

got:
#ifdef COUNTS
	atomic { giveHeadBack() }
	take(p);
#endif
	atomic {
#ifndef HOLDS_AS_HEAD
		giveHeadBack();
#endif
		assert(inside[p] == 0);
#ifndef COUNTS
		assert(passed || arrived?[eval(me)]);
#endif
		leaveQueue();
		inside[p] = me;
		passed = false;
		try = false;
		steady = (me == 1 -> false : steady);
#ifndef HOLDS_PLACE
		leavePlace()
#endif
	}

held:
	if
	:: goto held
	:: true
	fi;
	atomic {
		inside[p] = 0;
		endTransaction();
#ifdef HOLDS_AS_HEAD
		giveHeadBack();
#endif
		goto leave
	}

failed: /* Both transactions are undone, by the client or by the end of the session. */
	atomic { endTransaction(); leaveQueue() }
#ifndef KEEPS_HEAD
	atomic { giveHeadBack() }
#endif

leave: /* the connections go back to the pool */
	atomic {
		assert(head != me);
		leavePlace();
		p = 0;
		try = false;
		passed = false;
		goto outside
	}
}

init { atomic { run caller(1); run caller(2); run caller(3); run caller(4) } }
