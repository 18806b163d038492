// Package caddymodule makes the admission gateway a Caddy module: the app
// "admission", which owns what outlives a configuration, the handler
// "http.handlers.admission", the Caddyfile directive, metrics, the admin
// endpoint and the command line. Decisions are made in package admission and
// its children; this package only adapts.
//
// Life of a configuration: Provision parses and checks and touches nothing that
// another configuration can see, because it also runs for a configuration that
// is then rejected and for "caddy validate" beside a live server. Start is the
// commit point: limits change there, on the named state in the process-lifetime
// registry. Stop gives the limits back to the newest generation that is still
// running. Cleanup drops the generation's references; it runs while requests
// of the generation are still being served, so releasing a permit never needs
// the generation.
package caddymodule
