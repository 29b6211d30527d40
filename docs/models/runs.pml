/*
 * Fencing tokens on MySQL and MariaDB, across restarts, crashes and switchovers. A token is a run,
 * and a count within it. The count comes from UUID_SHORT(): a counter of the server's, which begins
 * anew at each start, with the number of that second. A run is a row that is on disk and on the
 * replicas: its server, and the count at which it began. The last row alone is good, on its own
 * server, up to the end of the counts of one second. Who finds none that is good numbers the next.
 * Connections outlive a switchover, there and back. Other tables draw counts, too.
 *
 * Claim: tokens of a key increase in the order in which it is locked.
 *
 * Fewer counts are drawn in a second than it has: the manual asks for no more than 16 million. So
 * they fall behind the clock. Else the claim holds for any number of counts if the clock is not set
 * back. If it is, no more than ALLOWED counts may be drawn between a start and the first row that is
 * written behind it.
 *
 * Mutation ANY_SERVER: nobody looks whose run it is.
 * Mutation READ_ONCE: a connection reads the run once.
 * Mutation IN_THE_SECOND: a run may begin in the second of the server's start.
 * Mutation NO_SKIP: no count is skipped before a run begins.
 * Mutation ONE_WRITE: the last row stays good while counts are skipped.
 * Mutation NO_END: a run does not end with the counts of a second.
 */
#define SPAN 14    /* counts of a second */
#define SKIPPED 3
#define ALLOWED 4
#define OTHERS 8   /* counts that other tables draw behind a start */
#define CLOCKS 3
#define RUNS 3
#define TRIES 5    /* to lock */
#define NEVER 255  /* the row's first count, while its run has not begun */

/* The servers, 0 and 1. */
byte clock;
bool setBack;          /* the clock may be set back, once */
byte counter[2];
bool again[2];         /* it was started again: a connection ends with that */
byte came[2];          /* the first count since */
bool wrote[2];         /* a row of a new run, since then */
byte primary;
bool locked[2];        /* the key */
bool numbers[2];       /* GET_LOCK */

/* The tables, which all servers have. */
byte runs;             /* the highest number that was drawn */
byte written;          /* the number of the last row */
byte whose[RUNS + 1];
byte begins[RUNS + 1]; /* its first count */

short last;            /* token */
byte tries;

#define fits(c, s) (c / SPAN < clock || c / SPAN == came[s] / SPAN)
#define mayDraw(s, n) (fits((counter[s] + n), s) && \
	(!setBack || wrote[s] || counter[s] + n - came[s] <= ALLOWED))
#define gone (again[on] != since || primary != on)

#ifdef ANY_SERVER
#define ours(r) true
#else
#define ours(r) (whose[r] == on)
#endif
#ifdef NO_END
#define inTime(first) true
#else
#define inTime(first) (count - first < SPAN - SKIPPED - first % SPAN)
#endif
#define good(r, first) (ours(r) && count > first && inTime(first))

inline draw() {
	count = counter[on];
	counter[on]++
}

inline row(r, start) { /* REPLACE */
	whose[r] = on;
	begins[r] = start;
	written = (r > written -> r : written)
}

inline starts(s) {
	counter[s] = clock * SPAN;
	came[s] = counter[s];
	if
	:: skip
	:: counter[s] = counter[s] + (setBack -> 2 : OTHERS)
	fi
}

active proctype world() {
	byte restarts, changes;
	bool back;

	atomic { /* server 0 was up in second 1, and has begun a run then */
		runs = 1;
		written = 1;
		begins[1] = SPAN + SKIPPED;
		last = 100;
		if
		:: setBack = true; clock = CLOCKS
		:: setBack = true; clock = 2
		:: clock = 2
		fi;
		starts(0);
		starts(1);
		run session();
		run session()
	}
end:
	do
	:: atomic { clock < CLOCKS -> clock++ }
	:: atomic { setBack && !back -> back = true; clock-- }
	/* one server shows what a clock that is set back does */
	:: atomic { changes < (setBack -> 0 : 2) -> changes++; primary = 1 - primary }
	:: atomic { restarts == 0 ->
		restarts = 1;
		again[primary] = true;
		starts(primary);
		wrote[primary] = false;
		locked[primary] = false;
		numbers[primary] = false }
	od
}

proctype session() {
	byte on, count, mine, first;
	bool since, holds;
#ifdef READ_ONCE
	byte cached[2];
#endif

end:
	do
	:: atomic { tries < TRIES && !locked[primary] && mayDraw(primary, 1) ->
		tries++;
		on = primary;
		since = again[on];
		locked[on] = true;
		holds = true;
		draw() }
		atomic { /* the plain read of the statement */
			if
			:: gone -> goto over
			:: else
			fi;
			mine = written;
#ifdef READ_ONCE
			mine = (cached[on] != 0 && !since -> cached[on] : mine);
#endif
			first = begins[mine];
			locked[on] = false;
			holds = false;
			if
			:: good(mine, first) ->
				assert(mine * 100 + count - first > last);
				last = mine * 100 + count - first;
#ifdef READ_ONCE
				cached[on] = mine;
#endif
				goto over
			:: else
			fi
		}
end_look:	/* numberRun */
		atomic {
			if
			:: gone -> goto over
			:: !gone && !numbers[on] && mayDraw(on, 1) -> draw()
			fi;
			first = begins[written];
			if
			:: good(written, first) || runs == RUNS -> goto over
			:: else
			fi;
			numbers[on] = true;
			runs++;
			mine = runs;
			wrote[on] = true;
#ifndef ONE_WRITE
			row(mine, NEVER)
#endif
		}
#ifndef IN_THE_SECOND
end_second:
		if
		:: gone -> goto gives
		:: counter[on] / SPAN != clock
		fi;
#endif
end_skips:
		atomic {
			if
			:: gone -> goto gives
#ifndef NO_SKIP
			:: !gone && fits((counter[on] + SKIPPED), on) -> counter[on] = counter[on] + SKIPPED
#else
			:: !gone
#endif
			fi
		}
end_begins:
		atomic {
			if
			:: gone -> goto gives
			:: !gone && mayDraw(on, 1) -> draw(); first = count
			fi;
#ifndef NO_SKIP
			if
			:: first % SPAN < SKIPPED || first % SPAN >= SPAN - 2 * SKIPPED -> goto end_skips
			:: else
			fi
#endif
		}
		atomic {
			if
			:: gone
			:: else -> row(mine, first)
			fi
		}
gives:
		atomic { numbers[on] = (again[on] == since -> false : numbers[on]) }
over:
		atomic {
			locked[on] = (holds && again[on] == since -> false : locked[on]);
			holds = false; on = 0; since = false; count = 0; mine = 0; first = 0
		}
	od
}
