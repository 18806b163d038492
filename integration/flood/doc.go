// Package flood drives load against a git server on this machine and says how
// it went: floods of anonymous clones, made-up credentials and discovery
// requests from many loopback addresses, and real git pushes beside them. It
// also holds the server that is flooded: real `git http-backend` behind a
// fixed number of workers.
//
// Tests, the demo and the benchmarks use it. It imports no package of the
// gateway and needs nothing but git. Every driver is bounded in count and time,
// and traffic goes to loopback addresses only.
package flood
