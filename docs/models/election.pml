/*
 * Elections: leaders, their terms, and what others read of them. A candidate locks the row of the
 * election in a session that it keeps, and draws its term there, behind the grant. It writes the
 * term to the info row on a second connection, where that shows a smaller one. Then it locks the
 * row of the leader in its session, and leads. Nobody ever writes to that row. Whoever asks for the
 * leader looks first whether that row is locked, by a shared lock without waiting, and then reads
 * the info row: two statements, one round trip.
 *
 * A session may end at any point. A leader is told before the server lets go (lease.pml). Whatever
 * was on its way on the second connection may arrive at any time later.
 *
 * Claims: never two leaders, by the leaders' own view. Terms increase in the order of leading. An
 * answer names nobody whose session had ended before the question, and no older term than an answer
 * that was given before the question. It is "nobody" only if nobody leads at the look.
 *
 * Mutation TERM_BEFORE_GRANT: the term is drawn before the row is locked.
 * Mutation TERM_ELSEWHERE: the term is drawn on the second connection. A candidate that has lost
 * the row draws a higher one than the leader, and its name stays.
 * Mutation NO_COMPARE: the info row takes any term. A late writer's name stays.
 * Mutation ONE_ROW: the info row is the leader's row too. While a candidate writes to it, it is
 * locked, and shows the leader before.
 * Mutation READ_FIRST: the info row is read before the look at the leader's row.
 * Mutation LOOK_EXCLUSIVE: the look locks exclusively. Two of them take each other for a leader.
 * Mutation RENEWED_ROW: a renewal lets go of the leader's row for a moment.
 * Mutation SERVER_FIRST: the server lets go of a session before its leader is told.
 */
#define N 3     /* candidates; their numbers are 1 to N */
#define R 2     /* who ask; their numbers are N + 1 to N + R */
#ifndef TERMS
#define TERMS 3 /* how many are drawn */
#endif

/* The server. */
byte election;          /* whose session has locked the row of the election; 0: nobody's */
byte leader;            /* who has locked the row of the leader; 0: nobody but looks */
byte info;              /* the term in the info row, which stands for a name too */
byte sequence;          /* of terms */
bool open[N + 1];       /* the session */

/* The clients. */
byte term[N + 1];       /* of the session; 0: none was drawn */
byte leads[N + 1];      /* the term in which it leads, by its own view; 0: it does not */
byte sent[N + 1];       /* the term that its second connection is to write; 0: none */
bool begun;             /* somebody has locked the row of the election */

/* What is claimed. */
byte ended = 1;         /* the set of terms whose sessions have ended; 0 is no term */
byte led;               /* the last term that was led */
byte answered;          /* the highest term that was an answer */

#define leading (leads[1] + leads[2] + leads[3]) /* one at most is not 0 */

/* The server ends a session, and releases its locks. */
inline end(me) {
	open[me] = false;
	if
	:: election == me -> election = 0
	:: else
	fi;
	if
	:: leader == me -> leader = 0
	:: else
	fi;
	ended = ended | (1 << term[me])
}

inline draw() {
	if
	:: sequence < TERMS -> sequence++; term[me] = sequence
	:: else -> goto over
	fi;
#ifdef TERM_ELSEWHERE
	ended = (open[me] -> ended : ended | (1 << term[me]))
#endif
}

/* Candidates are alike, so let the first be 1. */
inline lockElection() {
	election == 0 && (me == 1 || begun) -> election = me; open[me] = true; begun = true
}

proctype candidate(byte me) {
campaign:
#ifdef TERM_BEFORE_GRANT
	atomic { draw() }
	atomic { lockElection() }
#else
#ifdef TERM_ELSEWHERE
	atomic { lockElection(); term[me] = 0 }
	atomic { draw() } /* whatever has become of the session */
#else
	atomic { lockElection(); draw() }
#endif
#endif
	atomic { sent[me] == 0 -> sent[me] = term[me] }
	if
	:: sent[me] == 0
	:: !open[me] -> goto campaign /* what was sent may still arrive */
	fi;
	if
	:: atomic { open[me] && leader == 0 -> leader = me }
	:: !open[me] -> goto campaign
	fi;
	atomic {
		if
		:: open[me] ->
			assert(leading == 0);
			assert(term[me] > led);
			led = term[me];
			leads[me] = term[me]
		:: else -> goto campaign
		fi
	}
#ifdef RENEWED_ROW
	atomic { leader = (leader == me -> 0 : leader) }
	atomic {
		if
		:: open[me] && leader == 0 -> leader = me
		:: else
		fi
	}
#endif
	!open[me] -> goto campaign /* it was lost, or has resigned */
over:
	atomic { end(me) } /* so many terms are enough */
}

/* The second connection of a candidate. Its update locks, compares, and commits. */
proctype second(byte me) {
end0:
	do
	:: atomic { sent[me] != 0 ->
#ifdef ONE_ROW
			leader == 0 -> leader = N + R + me }
		atomic {
			leader = 0;
#endif
			if
#ifdef NO_COMPARE
			:: true -> info = sent[me]
#else
			:: info < sent[me] -> info = sent[me]
			:: info >= sent[me]
#endif
			:: open[me] && leads[me] == 0 -> end(me) /* it breaks, and the candidate gives up */
			:: !open[me] /* it breaks, and the candidate has given up */
			fi;
			sent[me] = 0
		}
	od
}

/* A leader is told that its session is lost, or resigns. A session ends. */
proctype fate(byte me) {
end0:
	do
#ifdef SERVER_FIRST
	:: atomic { open[me] -> end(me) }
	:: atomic { !open[me] && leads[me] != 0 -> leads[me] = 0 }
#else
	:: atomic { leads[me] != 0 -> leads[me] = 0 }
	:: atomic { open[me] && leads[me] == 0 -> end(me) }
#endif
	od
}

/* The first statement of a question. Claims are about this moment, or what lies between the two. */
inline look() {
	before = ended;
	least = answered;
	if
	:: leader != 0
	:: else ->
		assert(leading == 0);
#ifdef LOOK_EXCLUSIVE
		leader = me;
		goto letGo
#else
		goto none
#endif
	fi
}

proctype asks(byte me) {
	byte before, least, name;
end0:
begin:
#ifdef READ_FIRST
	atomic { before = ended; least = answered; name = info }
	atomic {
		if
		:: leader != 0
		:: else -> goto none
		fi
	}
#else
	atomic { look() }
	name = info;
#endif
	atomic {
		if
		:: name == 0 /* nobody has led yet */
		:: else ->
			assert(!(before & (1 << name)));
			assert(name >= least);
			answered = (name > answered -> name : answered)
		fi;
none:
		before = 0;
		least = 0;
		name = 0;
		goto begin
	}
letGo:
	atomic { leader = 0; goto none }
}

init {
	atomic {
		run candidate(1); run candidate(2); run candidate(3);
		run second(1); run second(2); run second(3);
		run fate(1); run fate(2); run fate(3);
		run asks(4); run asks(5)
	}
}
