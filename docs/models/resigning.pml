/*
 * Elections: when the work of a new leader may begin. A candidate locks the row of the election in
 * a session that it keeps, and draws its term there. It writes the term to the info row on a second
 * connection, where that shows a smaller one, and learns by that whether the last leader has
 * resigned: then its work has ended. Else it waits for longer than it takes to tell that one that
 * its session has ended. Then it asks its session for another lock, which proves it, and leads.
 *
 * The server may end any session at any point, before its leader is told. A leader whose work has
 * ended says so in the info row, on a second connection, if its term is still there, and ends its
 * session. Whatever was on its way on a second connection may arrive at any time later, or never.
 *
 * Claims: never two leaders at work, by their own view. Terms increase in the order of leading.
 *
 * Mutation NO_WAIT: nobody waits until the last leader knows.
 * Mutation NO_COMPARE: a candidate that was overtaken goes on, if its session does.
 * Mutation NO_PROOF: a leader does not ask its session behind the wait.
 * Mutation RESIGNS_EARLY: a leader says that its work has ended, and it has not.
 * Mutation RESIGNS_ANY_TERM: it says so in whatever term the info row has.
 * Mutation NEVER_BEGUN: a candidate that gives up while it waits says so, too.
 */
#define N 3     /* candidates; their numbers are 1 to N */
#define TERMS 4 /* how many are drawn */

/* The server. */
byte election;         /* whose session has locked the row of the election; 0: nobody's */
byte info;             /* the term in the info row */
bool resigned = true;  /* the info row has no name: the work of that term has ended */
byte sequence;         /* of terms */
bool open[N + 1];      /* the session */

/* The clients. */
byte term[N + 1];      /* of the session */
byte leads[N + 1];     /* the term in which it works, by its own view; 0: it does not */
byte sent[N + 1];      /* the term that its second connection is to write; 0: none */
byte wrote[N + 1];     /* what it has answered */
byte done[N + 1];      /* the term whose end its second connection is to write; 0: none */

byte led;              /* the last term that was led */

#define NOTHING 0      /* no answer, or it was overtaken */
#define LOST 1
#define RESIGNED 2
#define leading (leads[1] + leads[2] + leads[3]) /* one at most is not 0 */

inline end(me) {
	open[me] = false;
	election = (election == me -> 0 : election)
}

inline write(me) {
	wrote[me] = (resigned -> RESIGNED : LOST);
	info = sent[me];
	resigned = false
}

proctype candidate(byte me) {
campaign:
	atomic {
		election == 0 && sent[me] == 0 && done[me] == 0 ->
		if
		:: sequence < TERMS -> sequence++
		:: else -> goto over
		fi;
		election = me;
		open[me] = true;
		term[me] = sequence;
		wrote[me] = NOTHING;
		sent[me] = sequence
	}
	if
	:: atomic { sent[me] == 0 && wrote[me] != NOTHING }
#ifdef NO_COMPARE
	:: atomic { sent[me] == 0 && open[me] }
#else
	:: atomic { sent[me] == 0 && wrote[me] == NOTHING -> end(me); goto campaign }
#endif
	:: atomic { !open[me] -> goto campaign } /* it is told before the answer comes */
	fi;
	if
	:: atomic { wrote[me] == RESIGNED }
#ifdef NO_WAIT
	:: atomic { wrote[me] != RESIGNED }
#else
	:: atomic { wrote[me] != RESIGNED && leading == 0 }
#endif
	:: atomic { !open[me] ->
#ifdef NEVER_BEGUN
			done[me] = term[me];
#endif
			goto campaign
		}
	fi;
	atomic {
		if
#ifdef NO_PROOF
		:: true ->
#else
		:: !open[me] -> goto campaign
		:: open[me] ->
#endif
			assert(leading == 0);
			assert(term[me] > led);
			led = term[me];
			leads[me] = term[me]
		fi
	}
	if
	:: atomic { !open[me] -> leads[me] = 0 } /* it is told */
	:: atomic { true -> /* the work has ended, perhaps with a session that nobody knows to be dead */
#ifndef RESIGNS_EARLY
			leads[me] = 0;
#endif
			done[me] = term[me] }
		if
		:: done[me] == 0
		:: true /* it waits for no answer for long */
		fi;
		atomic { leads[me] = 0; end(me) }
	fi;
	goto campaign;
over:
	skip
}

/* The second connections. An update locks, compares, and commits. */
proctype second(byte me) {
end0:
	do
	:: atomic { sent[me] != 0 ->
			if
			:: info < sent[me] -> write(me)
			:: info >= sent[me]
			:: true /* it breaks */
			fi;
			sent[me] = 0
		}
	:: atomic { done[me] != 0 ->
			if
#ifdef RESIGNS_ANY_TERM
			:: true -> resigned = true
#else
			:: info == done[me] -> resigned = true
			:: info != done[me]
#endif
			:: true /* it breaks */
			fi;
			done[me] = 0
		}
	od
}

/* The server ends sessions. */
active proctype kill() {
	byte me;
end0:
	do
	:: atomic { select(me : 1 .. N); if :: open[me] -> end(me) :: else fi; me = 0 }
	od
}

init {
	atomic {
		run candidate(1); run candidate(2); run candidate(3);
		run second(1); run second(2); run second(3)
	}
}
