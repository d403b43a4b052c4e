/*
 * The lease protocol of tickslot: one name, N slots, H hosts, one store. README.md says which code each part models,
 * and what is left out.
 *
 * Time is discrete and unbounded: only remaining times and ages are stored. Nothing else is synchronous: a request or a
 * reply takes any time or never arrives (it then stays in flight), a caller may give up at any moment, a process may be
 * suspended anywhere.
 *
 * spin -DMUTANT breaks one rule: an error must be found. spin -DGOAL=n makes the n-th SEEN an error, to show that
 * the state is reached and therefore was checked.
 */
#ifndef H
#define H 2              /* hosts */
#endif
#ifndef N
#define N 1              /* slots */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2       /* of all hosts together */
#endif
#define TTL   4
#define DRIFT 1          /* by so much the store's clock may gain on the hosts' */

/* The margin is for DRIFT, and for one instant in which to end the run's context. */
#if defined(MUTANT_NO_MARGIN)
#define TRUST TTL
#elif defined(MUTANT_NO_TIME_TO_TELL)
#define TRUST (TTL - DRIFT)
#else
#define TRUST (TTL - DRIFT - 1)
#endif

#ifdef MUTANT_HALF_TTL
#define KEPT (TTL / 2)
#else
#define KEPT TTL
#endif

#ifdef MUTANT_ONE_SLOT_MORE
#define SLOTS (N + 1)
#else
#define SLOTS N
#endif

#if defined(MUTANT_NO_QUARANTINE)
#define QUARANTINE 0
#elif defined(MUTANT_SHORT_QUARANTINE)
#define QUARANTINE (TTL / 2)
#else
#define QUARANTINE TTL
#endif

#ifndef GOAL
#define GOAL 0
#endif
#define SEEN(n) assert(GOAL != n)

mtype = { idle, asking, asking_again, holding, releasing };
mtype = { none, sent, yes, no, again };

typedef Host {
	mtype doing = idle;
	byte token;          /* of the attempt or the lease; 0: none */
	mtype call = none;   /* its acquire or release: how far it got */
	byte asked;          /* how long ago the acquire was sent, TRUST: too long */
	byte slot;
	bool inside;         /* the handler has not returned */
	bool cancelled;      /* the run's context has ended */
	bool open;           /* the lease's state is "held" */
	byte left;           /* of the trust window */
	mtype beat = none;   /* its Extend: how far it got */
	byte beaten;         /* how long ago that was sent, TRUST: too long */
	mtype runs = yes;    /* no: the process stands still; again: it runs again since this instant */
	bool overtaken       /* its slot was granted to another; for an assertion */
}

typedef Slot { byte token; byte left }

Host host[H];
Slot slot[SLOTS];
byte attempts;

/* Requests whose caller has given up, by token. They may still arrive; no caller waits for the
   reply. */
byte late_acquire[ATTEMPTS + 1];
byte late_extend[ATTEMPTS + 1];
byte late_release[ATTEMPTS + 1];

bool fast;               /* the store's clock has gained DRIFT */
/* The last fence: 0 if before this instant, so that time alone makes the next one higher. */
byte fence;
byte quarantine;         /* left of it */
bool restarted;
bool killed;

byte highest;            /* fence granted, as fence; for an assertion */
bool granted, orphaned;  /* once; a killed host left a lease behind; for what must be SEEN */

hidden byte i, n, s, ok; /* scratch, not part of the state */
hidden byte who;         /* the token of the request that is carried out */

#define is_held(s)  (slot[s].left > 0)
#define less(x, by) (x > by -> x - by : 0)

/* Lease.Valid, for a run whose handler has not returned. */
#ifdef MUTANT_NO_DEADLINE
#define in_time(h)  true
#else
#define in_time(h)  (host[h].left > 0)
#endif
#define valid(h)    (host[h].inside && host[h].open && in_time(h))
/* The timer of the trust window has gone off. It waits for nothing, so time does not go on without
   it, unless the process stands still. */
#define awake(h)    (host[h].runs != no)
#define due(h)      (host[h].open && !in_time(h) && awake(h))

/* I1. Only a start or a renewal makes a run valid, so it is checked there. */
inline check_limit() {
	n = 0;
	for (i : 0 .. H - 1) { n = n + (valid(i) -> 1 : 0) }
	assert(n <= N)
}

/* I2 and I4: slot s is about to be granted to who. */
inline check_grant() {
	for (i : 0 .. H - 1) {
		if
		:: host[i].inside && host[i].slot == s && host[i].token != who ->
			assert(!valid(i));
			assert(host[i].cancelled || host[i].runs != yes);
#ifdef NEVER_AGAIN
			host[i].overtaken = true;
#endif
			/* A handler that ignores its context, or is in a process that stands still. */
			SEEN(10)
		:: else
		fi
	}
#ifdef FENCES
	assert(fence > highest);
	highest = fence
#else
	n = 0
#endif
}

/* ------------------------------------------------------------ the store */

/* s is the slot that who holds, SLOTS if none. */
inline find() {
	s = SLOTS;
	for (i : 0 .. SLOTS - 1) {
		if
		:: slot[i].token == who && is_held(i) -> s = i
		:: else
		fi
	}
}

inline serve_acquire() {
	ok = false;
	find();
	if
	:: s < SLOTS ->                                /* the same attempt, asked again */
		slot[s].left = KEPT;
		ok = true;
		SEEN(2)
	:: else ->
		for (i : 0 .. SLOTS - 1) {
			if
			:: s == SLOTS && !is_held(i) -> s = i
			:: else
			fi
		}
		if
		:: s == SLOTS                              /* full */
		:: s < SLOTS && quarantine > 0 -> SEEN(11)  /* quarantine */
		:: s < SLOTS && quarantine == 0 ->
#ifdef FENCES
			fence++;
#endif
			if
			:: restarted -> SEEN(1)
			:: !restarted && granted -> SEEN(3)
			:: else
			fi;
			if
			:: orphaned -> SEEN(7)
			:: else
			fi;
#if GOAL == 3
			granted = true;
#endif
			check_grant();
			slot[s].token = who;
			slot[s].left = KEPT;
			ok = true
		fi
	fi
}

inline serve_extend() {
#ifdef MUTANT_ANYONE_EXTENDS
	s = (is_held(0) -> 0 : SLOTS);
#else
	find();
#endif
	ok = (s < SLOTS);
	if
	:: ok ->
		/* I5: an extension by another holder does no harm, since a closed window stays closed, but it
		   is wrong. */
		assert(slot[s].token == who);
		slot[s].left = KEPT
	:: else
	fi
}

inline serve_release() {
#ifdef MUTANT_NAIVE_DEL
	s = (is_held(0) -> 0 : SLOTS);
#else
	find();
#endif
	ok = (s < SLOTS);
	if
	:: ok -> slot[s].token = 0; slot[s].left = 0
	:: else
	fi
}

/* Forgets requests that can have no effect any more: nothing is, or can become, theirs. That changes
   only the number of states. A mutant in which they can have an effect keeps them. */
#define asks(h, t) (host[h].token == t && (host[h].doing == asking || host[h].doing == asking_again))
inline tidy() {
#if !defined(MUTANT_NAIVE_DEL) && !defined(MUTANT_ANYONE_EXTENDS) && !defined(MUTANT_TOKEN_USED_AGAIN)
	for (n : 1 .. ATTEMPTS) {
		ok = (late_acquire[n] > 0);
		for (i : 0 .. H - 1) { ok = (ok || asks(i, n)) }
		for (i : 0 .. SLOTS - 1) { ok = (ok || slot[i].token == n) }
		late_extend[n] = (ok -> late_extend[n] : 0);
		late_release[n] = (ok -> late_release[n] : 0)
	}
#endif
	n = 0
}

/* The store carries out what h asked, in its own time. */
proctype Served(byte h) {
end:
	do
	:: d_step { host[h].call == sent && host[h].doing != releasing ->
		who = host[h].token;
		serve_acquire();
		if
		:: ok -> host[h].slot = s; host[h].call = yes
		:: else -> host[h].call = no
		fi;
		tidy() }
	:: d_step { host[h].call == sent && host[h].doing == releasing ->
		who = host[h].token;
		serve_release();
		host[h].call = (ok -> yes : no);
		tidy() }
	:: d_step { host[h].beat == sent ->
		who = host[h].token;
		serve_extend();
		host[h].beat = (ok -> yes : no) }
	od
}

/* Requests that come after their caller has given up. */
proctype Late(byte t) {
end:
	do
	:: d_step { late_acquire[t] > 0 ->
		late_acquire[t]--;
		who = t; serve_acquire();
		if
		:: ok && host[0].token != t && host[H-1].token != t -> SEEN(6)
		:: else
		fi;
		tidy() }
	:: d_step { late_extend[t] > 0 -> late_extend[t]--; who = t; serve_extend() }
	:: d_step { late_release[t] > 0 -> late_release[t]--; who = t; serve_release();
		if
		:: ok && host[0].token != t && host[H-1].token != t -> SEEN(5)
		:: else
		fi;
		tidy() }
	od
}

inline age(by) {
	for (i : 0 .. SLOTS - 1) {
		slot[i].left = less(slot[i].left, by);
		slot[i].token = (slot[i].left > 0 -> slot[i].token : 0)
	}
	quarantine = less(quarantine, by)
}

proctype Time() {
end:
	do
	:: d_step { !due(0) && !due(1) && !due(H - 1) ->
		for (i : 0 .. H - 1) {
			host[i].runs = (host[i].runs == again -> yes : host[i].runs);
			host[i].left = less(host[i].left, 1);
			host[i].asked = (host[i].call != none && host[i].asked < TRUST -> host[i].asked + 1 : host[i].asked);
			host[i].beaten = (host[i].beat != none && host[i].beaten < TRUST -> host[i].beaten + 1 : host[i].beaten)
		}
		age(1);
		tidy();
#ifndef MUTANT_FENCE_IS_A_COUNTER
		fence = 0; highest = 0
#endif
		}
#ifndef NO_DRIFT
	:: d_step { !fast -> fast = true; age(DRIFT); tidy() }
#endif
#ifndef NO_RESTART
	/* kill -9 of the store, and back without its data. */
	:: d_step { !restarted ->
		restarted = true;
		for (i : 0 .. SLOTS - 1) { slot[i].token = 0; slot[i].left = 0 }
		fence = 0;
		quarantine = QUARANTINE;
		tidy() }
#endif
	od
}

/* -------------------------------------------------- a host: session.go, heartbeat.go, lease.go */

inline abandon_call() {
	if
	:: host[h].call == sent && host[h].doing == releasing -> late_release[host[h].token] = 1
	:: host[h].call == sent && host[h].doing != releasing -> late_acquire[host[h].token]++
	:: else
	fi;
	host[h].call = none
}

inline abandon_beat() {
	if
	:: host[h].beat == sent -> late_extend[host[h].token] = 1
	:: else
	fi;
	host[h].beat = none; host[h].beaten = 0
}

/* An acquire of unknown outcome is given back by its token; such a request may be repeated. */
inline settle() { late_release[host[h].token] = 1 }

/* done ends the attempt or the lease. */
inline done() {
	abandon_beat();
	host[h].doing = idle; host[h].call = none; host[h].asked = 0; host[h].left = 0; host[h].slot = 0;
	host[h].open = false;
	if
	:: host[h].inside                  /* only where it is released before it has returned */
	:: else -> host[h].token = 0; host[h].cancelled = false; host[h].overtaken = false
	fi;
	tidy()
}

inline lose() { host[h].open = false; host[h].cancelled = true }

proctype Process(byte h) {
end:
	do
	/* It stands still, or the machine sleeps. That differs from being slow only when its timer should
	   go off. */
	:: d_step { due(h) -> host[h].runs = no; SEEN(8) }
	:: d_step { !awake(h) -> host[h].runs = again }

	/* acquire */
	:: d_step { awake(h) && host[h].doing == idle && !host[h].inside && attempts < ATTEMPTS &&
		(h == 0 || attempts > 0) ->   /* the hosts are alike: let the first begin */
		attempts++;
#ifdef MUTANT_TOKEN_USED_AGAIN
		host[h].token = h + 1;
#else
		host[h].token = attempts;
#endif
		host[h].doing = asking; host[h].call = sent; host[h].asked = 0 }
	/* No reply in time: the same token once more. */
	:: d_step { awake(h) && host[h].doing == asking && host[h].call == sent ->
		abandon_call();
		host[h].doing = asking_again; host[h].call = sent; host[h].asked = 0 }
	/* No reply in time again. */
	:: d_step { awake(h) && host[h].doing == asking_again && host[h].call == sent ->
		abandon_call(); settle(); done() }
	:: d_step { awake(h) && (host[h].doing == asking || host[h].doing == asking_again) && host[h].call == no ->
		if
		:: host[h].doing == asking_again -> settle()
		:: else
		fi;
		done() }
	:: d_step { awake(h) && (host[h].doing == asking || host[h].doing == asking_again) && host[h].call == yes ->
		host[h].call = none;
#ifdef MUTANT_TRUST_FROM_THE_REPLY
		host[h].asked = 0;
#endif
		if
		:: host[h].asked < TRUST ->
			host[h].doing = holding; host[h].open = true; host[h].inside = true; host[h].left = TRUST - host[h].asked;
			host[h].asked = 0;
			check_limit()
		:: else -> settle(); done()
		fi }

	/* heartbeat */
#ifndef NO_HEARTBEAT
	:: d_step { awake(h) && host[h].open && host[h].beat == none -> host[h].beat = sent; host[h].beaten = 0 }
#endif
	:: d_step { awake(h) && host[h].beat == sent -> abandon_beat() }
#ifndef MUTANT_OPENED_AGAIN
	:: d_step { awake(h) && host[h].beat == yes && due(h) ->
		if
		:: host[h].open && host[h].beaten < TRUST -> SEEN(12)
		:: else
		fi;
		lose(); host[h].beat = none; host[h].beaten = 0 }
	:: d_step { awake(h) && host[h].beat == yes && !due(h) ->
#else
	:: d_step { awake(h) && host[h].beat == yes ->
#endif
#ifdef MUTANT_TRUST_FROM_THE_REPLY
		host[h].beaten = 0;
#endif
		if
		:: host[h].open ->
			if
			:: TRUST - host[h].beaten > host[h].left -> SEEN(9)
			:: else
			fi;
			host[h].left = TRUST - host[h].beaten;
#ifdef NEVER_AGAIN
			assert(!host[h].overtaken || !valid(h));
#endif
			check_limit()
		:: else
		fi;
		host[h].beat = none; host[h].beaten = 0 }
	:: d_step { awake(h) && host[h].beat == no ->
		if
		:: host[h].open -> lose(); SEEN(13)
		:: else
		fi;
		host[h].beat = none; host[h].beaten = 0 }

	/* the timer of the trust window */
	:: d_step { due(h) -> lose(); SEEN(4) }

	/* the handler */
	:: d_step { awake(h) && host[h].inside && host[h].doing == holding ->
		abandon_beat();
		host[h].open = false; host[h].inside = false; host[h].left = 0;
		host[h].doing = releasing; host[h].call = sent }
#ifdef MUTANT_RELEASE_BEFORE_RETURN
	:: d_step { awake(h) && host[h].inside && host[h].doing == holding ->
		abandon_beat();
		host[h].open = false; host[h].left = 0;
		host[h].doing = releasing; host[h].call = sent }
	:: d_step { awake(h) && host[h].inside && host[h].doing != holding -> host[h].inside = false }
#endif
	:: d_step { awake(h) && host[h].doing == releasing && host[h].call != sent -> done() }
	:: d_step { awake(h) && host[h].doing == releasing && host[h].call == sent -> abandon_call(); settle(); done() }

	/* kill -9 */
#ifdef KILL
	:: d_step { !killed && host[h].token != 0 ->
		killed = true;
		who = host[h].token;
		find();
		orphaned = (s < SLOTS && host[h].inside);
		abandon_call();
		host[h].inside = false; host[h].runs = yes;
		done() }
#endif
	od
}

init {
	atomic {
		run Time();
		run Process(0); run Served(0);
		run Process(1); run Served(1);
#if H > 2
		run Process(2); run Served(2);
#endif
		for (i : 1 .. ATTEMPTS) { run Late(i) }
	}
}
