// Package cases runs fault reports of forge, CI and proxy operators, written
// down as small inputs, against the built gateway.
//
// A case says how the gateway is set up, what clients and operators do, and
// what must be seen. Its words are neutral: they name no directive of this
// product. The runner knows every word or refuses the case; a word it does not
// know is an error, never a pass.
//
// The parts, in the order a case passes them: file.go and model.go decode
// strictly; caddyfile.go, the adapter, writes the configuration; gateway.go
// starts the binary; upstream*.go are the servers behind it; step*.go drive;
// check*.go compare. The package imports no other package of this module: it
// sees the binary, its ports and its files.
package cases
