/*
 * Fencing tokens on PostgreSQL, across crashes of the server. A token is an epoch, and a count
 * within it. The count comes from a sequence, which a crash may set back. The epoch stands in a
 * table that a crash empties. While that is empty, whoever needs a token draws an epoch from a
 * table that is on disk, commits, and writes it there. A pooler may keep a connection across the
 * crash, so that this goes on after it.
 *
 * Claim: tokens increase in the order in which they are drawn.
 *
 * Mutation KEPT_RUN: a crash does not empty the table with the epoch. Counts come again.
 * Mutation EPOCH_NOT_ON_DISK: a crash may undo the drawing of an epoch, which then comes again.
 * Mutation NO_LOOK: an epoch that was drawn before a crash is used after a higher one.
 */
#define N 3       /* sessions */
#define CRASHES 3
#define DRAWN 6   /* counts that are drawn from the sequence */
#define SPENT 4   /* counts of an epoch are smaller */

byte sequence;    /* as far as it was drawn; a crash sets it back */
byte drawn;       /* how often, in all */
byte epochs;      /* the highest that was drawn; on disk */
byte begun;       /* the highest that was used; on disk */
byte epoch;       /* of this run; 0: there is none */
byte start;       /* what the sequence had come to when the epoch began */
short last;       /* token */

#define count (sequence - start)
#define spent (count >= SPENT - 1)
#ifdef NO_LOOK
#define outrun false
#else
#define outrun (begun > mine) /* a higher one was used: a crash came after mine */
#endif

active [N] proctype session() {
	byte mine;

lock:
	atomic {
		if
		:: drawn == DRAWN -> goto over
		:: else
		fi;
		if
		:: epoch == 0 -> goto number
		:: else
		fi;
		sequence++;
		drawn++;
		if
		:: count >= SPENT -> goto number
		:: else
		fi;
		assert(epoch * SPENT + count > last);
		last = epoch * SPENT + count;
		goto lock
	}

number:
	atomic { epochs++; mine = epochs } /* the first transaction of drawEpoch */
	atomic { /* the second */
		if
		:: outrun || (epoch != 0 && !spent)
		:: !outrun && (epoch == 0 || spent) -> epoch = mine; start = sequence
		fi;
		begun = (epoch == mine && mine > begun -> mine : begun);
		mine = 0;
		goto lock
	}
over:
	skip
}

active proctype crash() {
	byte crashes;
end:
	do
	:: atomic { crashes < CRASHES ->
			crashes++;
			do
			:: sequence > 0 -> sequence--
			:: break
			od;
#ifdef EPOCH_NOT_ON_DISK
			if
			:: epochs > 0 -> epochs--
			:: true
			fi;
#endif
#ifndef KEPT_RUN
			epoch = 0;
			start = 0
#endif
		}
	od
}
