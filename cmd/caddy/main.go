// Command caddy is Caddy with its standard modules and the admission gateway.
// It is what the tests build; operators usually build their own with xcaddy.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-admission/gateway"
)

func main() { caddycmd.Main() }
