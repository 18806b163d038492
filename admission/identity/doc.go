// Package identity knows which credentials are genuine, and only from what
// the upstream did: it accepted a request with the credential and refused the
// same request without it. A header alone never proves anything.
//
// # Vocabulary
//
//   - secret: the part of an Authorization line that the upstream compares:
//     the password, the token, or the user name where it carries the token.
//     Secrets are never kept; only a keyed digest is.
//   - group: the caller's network, /24 for IPv4 and /48 for IPv6.
//   - proof: the pair (secret, group). A secret proven from one group is
//     worth nothing from another, so that refusals are no password oracle.
//   - target: one service of one repository of one site.
//   - rest: every other credential of a request (cookies, query tokens,
//     headers of a login proxy, client certificate).
//   - answer: what the upstream says to a target with the rest alone.
//   - question: the request sent to learn an answer. Its sender is the caller
//     of [Store.Ask]; this package does no I/O.
//   - bare: without an Authorization line.
//
// # Invariants
//
//   - Nothing here grants access. The worst a wrong entry does is to give, or
//     take away, a place in a pool.
//   - An Accepted answer wins over a Refused one for as long as it is kept.
//   - Only an accepted request makes an answer. Guessed names, refused as they
//     are, fill a table of their own that saves questions and nothing else.
//   - Every table has a fixed number of entries, every call does a bounded
//     amount of work, and nothing runs in the background: entries expire when
//     they are looked at or when a later call sweeps a few of the oldest.
//
// # Locks
//
// Each table has its own mutex, held for map and list operations only. No two
// are ever held together, and none is held while a question is asked.
package identity
