// Package admission decides which request may go to an upstream that serves only
// so many at once, which waits and which is refused.
//
// # Model
//
// A request has one Class. The git classes draw on one total: first on their own
// reserve, then on the shared rest, never above their max. Every other class has
// a pool of its own. On top of the pool there are caps and buckets per caller
// and buckets per class. All of them are decided together: a request takes
// everything it needs or changes nothing.
//
// What is admitted holds a Permit until its one End. What is not admitted gets a
// Refusal, or waits in its class's bounded queue: in rotation over groups, then
// over the callers of a group, then in order of arrival. A waiter stopped by its
// caller's own cap or bucket is set aside and holds nobody up.
//
// # Invariants
//
// The places held by a class never exceed its max, those of all git classes
// never the total, and what others use of the shared rest never touches a
// reserve. When the controller's lock is free, nobody waits who could be
// admitted, with two exceptions: a newcomer behind one that waits for bytes, and
// one parked behind the overflow budget while the caller table has got room
// again; both go when the one ahead does. A limit lowered below what is held
// admits nobody until it fits again.
//
// Of several git classes that wait for the same shared place the one with the
// most proof goes first (push, read, discovery, candidate, anonymous).
//
// # Concurrency
//
// One mutex per Controller guards everything; it is a leaf, held for well under
// a microsecond in the usual case and never across I/O, a callback or a blocking
// operation. Configuration changes walk all permits, waiters and, when a caller
// bucket changes, all remembered callers under it.
//
// # Vocabulary
//
// class, pool, total, reserve, shared rest, max; permit, place (what a permit
// holds in a pool); caller, key, scope, group; bucket, token, charge; waiter,
// queue, parked (set aside behind an own cap); continuation, newcomer; refusal,
// reason, outcome, decision.
package admission
