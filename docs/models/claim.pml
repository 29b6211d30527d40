/*
 * A claim: a row that says who has it, by a token, and until when. Who takes it passes by if the
 * row is locked; who uses or changes it waits for the lock. Each reads the server's clock and the
 * row behind the grant, and keeps the lock up to COMMIT. Holders may be late: they go on at any
 * time, and their own clocks are never asked. Any session may crash at each step; then nothing of
 * its transaction is there. The clock goes on at any point.
 *
 * Claims: work commits only under the claim that its holder has taken, and which was not over when
 * its lock was granted; nobody else has taken the claim before that COMMIT. Tokens increase. The
 * time of one holder is over, or given back, when that of the next begins.
 *
 * Mutation NO_TOKEN: the token is not compared.
 * Mutation EARLY_CLOCK: the clock of who uses the claim is read before the grant.
 * Mutation OWN_CLOCK: the end is compared with a clock of the holder's.
 * Mutation TAKER_LOCKS_NOT: who takes the claim looks at the end alone, and at no lock.
 * Mutation TAKER_LOOKS_BEFORE: who takes the claim looks at the end before the grant alone.
 * Mutation DRAWN_BEFORE: who takes the claim counts its token before the grant.
 * Mutation EXTENDS_LATE: a claim that is over, and that nobody has taken, can be extended. Then the
 * time for which it was held has a gap.
 */
#define N 3
#define LASTS 2
#define CLOCKS 6

/* The server. */
byte clock = 1;
byte lock;        /* whose session holds it; 0: nobody's */
byte token;       /* committed: of the claim's row; 0: there is none */
byte until;       /* its end; 0: given back */

active proctype time() {
	do
	:: clock < CLOCKS -> clock++
	:: break
	od
}

inline grant() { atomic { lock == 0 -> lock = me; at = clock } }

inline read() {
#ifndef EARLY_CLOCK
	now = clock;
#endif
#ifdef OWN_CLOCK
	if
	:: now = 1
	:: skip
	fi;
#endif
	skip
}

#ifdef NO_TOKEN
#define HELD (until > now)
#else
#define HELD (token == mine && until > now)
#endif

#define LOOK now = clock; if :: until > now -> goto missed :: else fi

active [N] proctype session() {
	byte me = _pid;
	byte mine;   /* the token of the claim that it has taken; 0: none */
	byte new;
	byte now;    /* as read */
	byte at;     /* the clock at the grant */
	byte tries;

end:
	do
	:: mine == 0 && tries < 2 -> /* takes */
		tries++;
#ifdef DRAWN_BEFORE
		new = token + 1;
#endif
#ifdef TAKER_LOOKS_BEFORE
		LOOK;
#endif
#ifdef TAKER_LOCKS_NOT
		at = clock;
#else
		atomic {
			if
			:: lock == 0 -> lock = me; at = clock
			:: else -> goto missed
			fi
		};
#endif
#ifndef TAKER_LOOKS_BEFORE
		LOOK;
#endif
#ifndef DRAWN_BEFORE
		new = token + 1;
#endif
		if
		:: atomic {
			true -> assert(new > token && now >= until);
			token = new;
			until = now + LASTS;
			mine = new;
			goto ends }
		:: goto missed /* it crashes */
		fi;
missed:
		goto ends
	:: mine != 0 -> /* uses it */
#ifdef EARLY_CLOCK
		now = clock;
#endif
		grant();
		read();
		if
		:: !HELD -> mine = 0; goto ends
		:: else -> assert(until > at)
		fi;
		if
		:: atomic { true -> assert(token == mine); goto ends } /* COMMIT */
		:: mine = 0; goto ends
		fi
	:: mine != 0 -> /* extends it */
		grant();
		now = clock;
		if
#ifdef EXTENDS_LATE
		:: token != mine -> mine = 0; goto ends
		:: else
#else
		:: !HELD -> mine = 0; goto ends
		:: else
#endif
		fi;
		if
		:: atomic { true -> assert(token == mine && until > at); until = now + LASTS; goto ends }
		:: mine = 0; goto ends
		fi
	:: mine != 0 -> /* gives it back */
		grant();
		now = clock;
		if
		:: !HELD -> skip
		:: else ->
			if
			:: atomic { true -> assert(token == mine); until = 0 }
			:: skip
			fi
		fi;
		mine = 0;
ends:
		if
		:: lock == me -> lock = 0
		:: else
		fi;
		now = 0; at = 0; new = 0
	:: mine != 0 -> mine = 0 /* it crashes, or goes away */
	od
}
