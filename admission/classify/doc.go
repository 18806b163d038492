// Package classify says what one HTTP request is, from its request-target and
// a few headers: which git operation on which repository, or none.
//
// It reads the target as it is spelled, before any decoding, against a strict
// grammar. <repo> is one or more path segments; a profile narrows it.
//
//	GET  <repo>/info/refs?service=git-upload-pack     ReadDiscovery
//	GET  <repo>/info/refs?service=git-receive-pack    PushDiscovery
//	GET  <repo>/info/refs                             DumbDiscovery
//	POST <repo>/git-upload-pack                       ReadRPC
//	POST <repo>/git-receive-pack                      PushRPC
//	POST <repo>/git-upload-archive                    ArchiveRPC
//	GET  <repo>/HEAD                                  DumbHead
//	GET  <repo>/objects/…                             Dumb
//	POST <repo>/info/lfs/objects/batch                LFSBatch
//	GET, POST <repo>/info/lfs/locks…                  LFSLocks
//	POST <repo>/info/lfs/verify                       LFSVerify
//	GET, PUT <repo>/info/lfs/objects/<oid>…           LFSObject
//
// Three outcomes are possible. A request that fits is its kind; spellings that
// every server reads alike (repeated slashes around the repository, trailing
// slashes, needless percent-encoding in the repository) are normalised and the
// normal form must be what is forwarded. A request that does not fit, but that
// some upstream would run as a git service, is refused. All else is Other.
//
// The package is pure: no state, no clock, no I/O. Everything is safe for
// concurrent use. A classification costs time linear in the target's length.
package classify
