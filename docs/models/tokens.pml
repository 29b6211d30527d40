/*
 * Fencing tokens on PostgreSQL, across crashes of the server. A token is an epoch, and a count
 * within it. The count comes from a sequence, which a crash may set back. The epoch stands in a
 * table of one row, with the server that it was begun on: a server is another one after a crash,
 * and so is a replica that takes over. The crash may empty that table, or not: nobody reads the row
 * of another server. Who finds no epoch of this server draws one from a table that is on disk,
 * commits, and writes it there, while it has that table alone. A pooler may keep a connection
 * across the crash, so that this goes on after it.
 *
 * Claim: tokens increase in the order in which they are drawn.
 *
 * Mutation ANY_SERVER: nobody looks whose epoch it is. Counts come again.
 * Mutation EPOCH_NOT_ON_DISK: a crash may undo the drawing of an epoch, which then comes again.
 * Mutation NO_LOOK: an epoch that was drawn before a crash is used after a higher one.
 * Mutation NOT_ALONE: another epoch may be begun between the look and the writing.
 */
#define N 3       /* sessions */
#define CRASHES 3
#define DRAWN 6   /* counts that are drawn from the sequence */
#define SPENT 4   /* counts of an epoch are smaller */

byte sequence;    /* as far as it was drawn; a crash sets it back */
byte drawn;       /* how often, in all */
byte epochs;      /* the highest that was drawn; on disk */
byte begun;       /* the highest that was used; on disk */
bool here;        /* the epoch was begun on this server */
byte epoch;
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
	bool begins;

lock:
	atomic {
		if
		:: drawn == DRAWN -> goto over
		:: else
		fi;
		if
		:: !here -> goto number
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
#ifdef NOT_ALONE
	atomic { begins = !outrun && (!here || spent) }
#endif
	atomic { /* the second */
#ifndef NOT_ALONE
		begins = !outrun && (!here || spent);
#endif
		if
		:: begins ->
			epoch = mine;
			start = sequence;
			here = true
		:: else
		fi;
		begun = (begins && mine > begun -> mine : begun);
		begins = false;
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
#ifndef ANY_SERVER
			here = false;
			epoch = 0;
			start = 0 /* whatever they are: fewer states */
#endif
		}
	od
}
