// Package gate is the HTTP half of the admission gateway: net/http middleware
// that classifies a request, identifies its caller, asks the engine for a
// permit and runs the next handler while it is held.
//
// The path of a request is
//
//	classify ─▶ identify ─▶ small bodies ─▶ decide (may wait) ─▶ next ─▶ outcome
//
// Everything before next costs the upstream nothing, with two exceptions: the
// question that proves a credential (question.go), which rides on the permit of
// the request that caused it, and the one that asks a forge who somebody is
// (verify.go), on a permit of class candidate.
//
// Invariants:
//   - a permit that was granted ends exactly once, in a deferred call, with the
//     outcome of the request, whether next returned, failed or panicked;
//   - a request that is refused never reaches next, and its body is not read
//     by this package;
//   - a request that carried a credential is never answered 401 by the gate,
//     because git would erase the stored credential;
//   - a request of class other without a cap of its own is handed on as it
//     came; its answer is only looked at, to count the streams among them.
//
// The package knows nothing of Caddy. Its adapter supplies the few things that
// need the server (Options).
package gate
