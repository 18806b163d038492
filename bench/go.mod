module github.com/caddy-admission/gateway/bench

go 1.26.0

require github.com/caddy-admission/gateway v0.0.0

replace github.com/caddy-admission/gateway => ../
