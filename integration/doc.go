// Package integration holds the black-box tests of the gateway: the built Caddy binary, real git clients, a real Apache
// with git-http-backend, a real git-lfs, real webhook receivers and a real OpenID provider and relying party talk to one
// another over loopback, and the tests look at answers, ports and files.
//
// It imports no package of the product, so that a test here can only pass when the binary an operator runs behaves.
// The tools live in [github.com/caddy-admission/gateway/integration/harness].
package integration
