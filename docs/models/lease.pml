/*
 * The lease: a silent holder is told before the server lets the next one in. Time passes in ticks.
 * The server and each client have a clock of their own. A server's clock may gain a tick, and a
 * client's may lose one, each once in PACE ticks: only these two bring the owner's end nearer to
 * the server's. A message takes any time; a lost one is one that takes for ever. A client's timer
 * fires up to LATE ticks too late.
 *
 * Something may end a transaction and keep its connection: a proxy, or a server that restarts.
 *
 * Claims: when the server lets somebody in, nobody else believes that it holds the lock. Who
 * believes in a lock whose transaction has ended behind its back is told by the next heartbeat, and
 * within the lease: the model stands still until then, for another may get in before.
 *
 * Mutation FROM_RECEIVED: the owner counts from when the answer came, not from when it asked.
 * Mutation NO_MARGIN: the owner gives up when the server does, by its own clock.
 * Mutation GIVES_UP_AFTER: the owner gives up after the server.
 * Mutation CLOSE_FIRST: the owner closes the connection when it gives up, and is told later.
 * Mutation BACKDATES_NOTHING: a lock that was waited for counts from when its answer came.
 * Mutation PROVES_THE_CONNECTION: the server answers a ping also outside the transaction.
 * Mutation SLOW_GRANT: the answer to a lock that was waited for takes longer than a twelfth of the
 * lease. The client cannot know. This is what the lease relies on, see README.md.
 */
#define N 3      /* clients; their numbers are 1 to N */
#define LEASE 10
#define TWELFTH 1
#define LATE 1
#define PACE 10
#ifndef MARGIN
#define MARGIN 4 /* both clocks, LATE, and a tick, within which anything may come first */
#endif
#ifdef NO_MARGIN
#define GIVE_UP LEASE
#else
#ifdef GIVES_UP_AFTER
#define GIVE_UP (LEASE + MARGIN)
#else
#define GIVE_UP (LEASE - MARGIN)
#endif
#endif
#define LATEST (GIVE_UP + LATE) /* time does not pass the owner's timer */

/* The server. */
byte session;               /* whose session has the row; 0: nobody's */
byte idle;                  /* how long it has been idle, by the server's clock */
byte gained = PACE;         /* ticks since the server's clock gained one, at most PACE */
byte ended;                 /* whose transaction has ended behind its back; 0: nobody's */
byte since;                 /* how long ago that was */

/* The network: what is under way on the one connection of each client. */
mtype = { nothing, ping, answer, refusal, grant, close };
mtype wire[N + 1] = nothing;
byte flight;                /* how long the grant has been under way */

/* The clients. */
mtype = { waiting, holding, told };
mtype client[N + 1] = waiting;
byte heard[N + 1];          /* how long ago the last answered ping was sent; at first, the lock */
byte sent[N + 1];           /* how long ago the ping under way was sent */
byte lost[N + 1];           /* ticks since the client's clock lost one, at most PACE */

inline forget(me) {
	heard[me] = 0;
	sent[me] = 0;
	lost[me] = 0;
	if
	:: ended == me -> ended = 0; since = 0
	:: else
	fi
}

proctype owner(byte me) {
	do
	:: atomic { client[me] == waiting && wire[me] == grant -> /* Heard */
			client[me] = holding;
			wire[me] = nothing;
			flight = 0;
			if
			:: heard[me] < MARGIN /* it was asked for then */
			:: else ->
#ifdef BACKDATES_NOTHING
				heard[me] = 0
#else
				heard[me] = TWELFTH
#endif
			fi }

	:: atomic { client[me] == holding && wire[me] == nothing && heard[me] >= TWELFTH -> /* Look */
			wire[me] = ping }

	:: atomic { client[me] == holding && wire[me] == answer ->
			wire[me] = nothing;
#ifdef FROM_RECEIVED
			heard[me] = 0;
#else
			heard[me] = sent[me];
#endif
			sent[me] = 0 }

	:: atomic { client[me] == holding && wire[me] == refusal -> /* giveUp */
			client[me] = told; wire[me] = nothing; forget(me) }

#ifdef CLOSE_FIRST
	:: atomic { client[me] == holding && heard[me] >= GIVE_UP && wire[me] != close ->
			wire[me] = close }
#endif
	:: atomic { client[me] == holding && heard[me] >= GIVE_UP -> /* giveUp */
			client[me] = told; forget(me) }

	:: atomic { client[me] == holding && wire[me] == nothing -> /* unlocks */
			client[me] = told; forget(me) }

	/* A margin later, or at once; how much later does not matter. */
	:: atomic { client[me] == told && session == me && wire[me] != close ->
			wire[me] = close }

	:: atomic { client[me] == told && session != me ->
			client[me] = waiting; wire[me] = nothing }
	od
}

inline let(me) { /* in */
	assert(client[1] != holding && client[2] != holding && client[3] != holding);
	session = me;
	wire[me] = grant;
	gained = PACE;
	lost[me] = PACE;
	select(i : 0 .. MARGIN); /* so long has it waited */
	heard[me] = i;
	i = 0
}

inline letGo() {
	session = 0;
	idle = 0;
	flight = 0;
	gained = PACE
}

active proctype server() {
	byte i;
	do
	:: atomic { session != 0 && wire[session] == ping -> wire[session] = answer; idle = 0 }
	:: atomic { session != 0 && client[session] == holding -> ended = session; letGo() }
#ifdef PROVES_THE_CONNECTION
	:: atomic { ended != 0 && wire[ended] == ping -> wire[ended] = answer }
#else
	:: atomic { ended != 0 && wire[ended] == ping -> wire[ended] = refusal }
#endif
	:: atomic { session != 0 && wire[session] == close -> letGo() }
	:: atomic { session != 0 && idle >= LEASE -> letGo() } /* its timer, however late */
	:: atomic { session == 0 && ended == 0 && client[1] == waiting -> let(1) }
	:: atomic { session == 0 && ended == 0 && client[2] == waiting -> let(2) }
	:: atomic { session == 0 && ended == 0 && client[3] == waiting -> let(3) }
	od
}

#define up(counter, limit) counter = (counter < limit -> counter + 1 : limit)
#define waits(me) (client[me] == waiting && wire[me] == grant)

/* A client's clock goes on, unless it loses this tick. Only what matters is counted. */
inline pass(me) {
	if
	:: client[me] == holding || waits(me) ->
		if
		:: lost[me] == PACE -> lost[me] = 0
		:: true ->
			up(lost[me], PACE);
			if
			:: client[me] == holding -> heard[me]++
			:: else -> up(heard[me], MARGIN)
			fi;
			if
			:: wire[me] == ping || wire[me] == answer -> sent[me]++
			:: else
			fi
		fi
	:: else
	fi
}

#define due(me) (client[me] == holding && heard[me] >= LATEST)
#ifdef SLOW_GRANT
#define grantDue false
#else
#define grantDue (session != 0 && waits(session) && flight >= TWELFTH && heard[session] >= MARGIN - 1)
#endif

active proctype clock() {
	do
	:: atomic { !due(1) && !due(2) && !due(3) && !grantDue ->
			pass(1);
			pass(2);
			pass(3);
			if
			:: ended != 0 -> since++; assert(since <= LATEST + 1) /* the client's clock may lose one */
			:: else
			fi;
			if
			:: session == 0
			:: session != 0 ->
				if
				:: waits(session) -> up(flight, LEASE)
				:: else
				fi;
				up(idle, LEASE);
				up(gained, PACE);
				if
				:: gained == PACE -> up(idle, LEASE); gained = 0
				:: true
				fi
			fi }
	od
}

init {
	atomic { run owner(1); run owner(2); run owner(3) }
}
