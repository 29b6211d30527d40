/*
 * The queue in front of a row: a queue lock that is strictly first come first served, and the row's
 * own queue, which lets newcomers in. Sessions lock, try, give up and die, without end. One more
 * session locks the row and knows of no queue lock, as another program may.
 *
 * Claims: never two inside. Of those who wait for the queue lock, whoever arrived first is inside
 * first. A try that passed the queue lock misses the row only for a session that means to keep it.
 *
 * Mutation NO_QUEUE_LOCK: the row alone is the queue. The order is lost, exclusion is not.
 * Mutation NO_ROW: the queue lock alone is the lock. Another program's lock excludes nobody.
 * Mutation TRY_TOUCHES: a try locks the row before it looks whether it passed. Of two tries at the
 * same time, none gets the lock.
 */
#define N 4 /* sessions of ours; their numbers are 1 to N */

byte queueLock;                   /* who has passed it; 0: nobody */
chan line = [N] of { byte };      /* who waits for it */
chan arrived = [N] of { byte };   /* who asked and is not inside, by the order of asking */
byte row;                         /* who has locked it; 0: nobody */
byte inside;                      /* who works under the lock, by its own view; 0: nobody */
byte passing;                     /* a try that has locked the row, and will give it back at once */

/* The lock manager grants in the act of releasing. */
inline releaseQueueLock() {
	if
	:: nempty(line) -> line?queueLock
	:: empty(line) -> queueLock = 0
	fi
}

inline enter() {
	assert(inside == 0);
	inside = me
}

/* A session dies at any point as it gives up: its server process ends the transaction. */
active [N] proctype session() {
	byte me = _pid + 1;
	byte first;
	bool passed;

idle:
	if
	:: goto lock
	:: goto try
	fi;

lock:
#ifdef NO_QUEUE_LOCK
	arrived!me;
#else
	atomic {
		arrived!me;
		if
		:: queueLock == 0 -> queueLock = me
		:: else -> line!me
		fi
	}
	if
	:: queueLock == me
	:: atomic { queueLock != me -> line??eval(me); arrived??eval(me); goto idle } /* gives up */
	fi;
#endif
	if
#ifdef NO_ROW
	:: atomic { true -> arrived?first; assert(first == me); enter() }
#else
	:: atomic { row == 0 -> row = me; arrived?first; assert(first == me); enter() }
#endif
	:: atomic { true -> arrived??eval(me); goto release } /* gives up */
	fi;
	goto work;

try:
	atomic {
		if
		:: queueLock == 0 -> queueLock = me; passed = true
		:: else -> passed = false
		fi
	}
#ifndef TRY_TOUCHES
	if
	:: !passed -> goto idle
	:: else
	fi;
#endif
	atomic { /* skip locked */
		if
		:: row == 0 -> row = me
		:: else ->
			assert(!passed || row != passing);
			goto release
		fi;
		if
		:: passed -> enter()
		:: else -> passing = me; goto release
		fi
	}

work:
	inside = 0; /* the owner leaves, or dies, before the server lets go */
release:
	/* The server ends the transaction, and then releases its locks. */
	atomic {
		if
		:: row == me -> row = 0
		:: else
		fi;
		if
		:: passing == me -> passing = 0
		:: else
		fi
	}
	atomic {
		if
		:: queueLock == me -> releaseQueueLock()
		:: else
		fi;
		goto idle
	}
}

active proctype program() {
	byte me = N + 1;
	do
	:: atomic { row == 0 -> row = me; enter() }
		inside = 0;
		row = 0
	od
}
