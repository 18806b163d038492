// Package gateway is the admission gateway for Caddy. Importing it registers
// the app "admission", the handler "http.handlers.admission", the Caddyfile
// directive "admission" and the command "caddy admission", which is what
//
//	xcaddy build --with github.com/caddy-admission/gateway
//
// needs. It exports nothing; the parts are in the packages below it.
package gateway

import _ "github.com/caddy-admission/gateway/caddymodule" // registers everything
