// Package harness starts and observes what a black-box test needs: the gateway binary, Apache with git-http-backend, an LFS
// store, webhook receivers, an OpenID provider and a relying party, fake upstreams, real git clients, clients that hold a request open, and recorders of the bytes between them.
//
// Everything listens on loopback, lives in a temporary directory and ends with the test that started it. Waiting is always for
// a condition and bounded by a time limit; nothing waits for time to pass. A tool that is not installed fails the test and
// names the package that brings it; no test is skipped.
//
// The package imports the standard library only, and no package of the product.
package harness
