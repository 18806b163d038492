package main

// The rivals as somebody would configure them who knows them well and has the
// same aim: a git server with 16 workers whose pushes must pass. Neither can
// tell a genuine credential from a made-up one, so "push" is what asks for
// git-receive-pack.

// nginxGit keeps eight workers for each of push and read. Without the paid
// queue a request beyond max_conns is refused. Answers are buffered, so that a
// slow reader does not hold a worker.
const nginxGit = `daemon off;
worker_processes 2;
worker_rlimit_nofile 8192;
pid @DIR@/pid;
events {
	worker_connections 4096;
}
http {
	access_log off;
	client_body_temp_path @DIR@/body;
	proxy_temp_path @DIR@/proxy;
	fastcgi_temp_path @DIR@/fastcgi;
	uwsgi_temp_path @DIR@/uwsgi;
	scgi_temp_path @DIR@/scgi;
	client_max_body_size 0;
	map $request_uri $git {
		~git-receive-pack push;
		default read;
	}
	map $git $reading {
		read all;
		default "";
	}
	limit_conn_zone $reading zone=reading:1m;
	limit_conn_zone $binary_remote_addr zone=caller:16m;
	limit_req_zone $binary_remote_addr zone=rate:16m rate=@RATE@r/s;
	limit_conn_status 503;
	limit_req_status 429;
	upstream push {
		zone push 64k;
		server @UPSTREAM@ max_conns=@SHARE@ max_fails=0;
		keepalive 16;
	}
	upstream read {
		zone read 64k;
		server @UPSTREAM@ max_conns=@SHARE@ max_fails=0;
		keepalive 16;
	}
	server {
		listen @ADDR@ backlog=4096;
		keepalive_requests 1000000;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		proxy_set_header Host $host;
		proxy_set_header X-Forwarded-For $remote_addr;
		proxy_read_timeout 600s;
		location / {
			limit_conn reading @READING@;
			limit_conn caller 4;
			limit_req zone=rate burst=100 nodelay;
			proxy_pass http://$git;
		}
		error_page 502 503 = @busy;
		location @busy {
			internal;
			add_header Retry-After 5 always;
			default_type text/plain;
			return 503 "busy, try again in 5 s\n";
		}
	}
}
`

// haproxyGit keeps eight workers for each of push and read, with a queue in
// front, and caps and rates per address in a stick table.
const haproxyGit = `global
	maxconn 4000
	nbthread 2
defaults
	mode http
	timeout connect 5s
	timeout client 600s
	timeout server 600s
	timeout http-request 10s
	timeout http-keep-alive 60s
frontend git
	bind @ADDR@ backlog 4096
	stick-table type ip size 100k expire 5m store conn_cur,http_req_rate(10s)
	http-request track-sc0 src
	http-request return status 429 content-type text/plain string "busy, try again in 5 s" hdr Retry-After 5 if { sc_conn_cur(0) gt 4 } || { sc_http_req_rate(0) gt @RATE10@ }
	acl push path_end /git-receive-pack
	acl push url_param(service) -m str git-receive-pack
	use_backend push if push
	default_backend read
backend push
	timeout queue 60s
	server git @UPSTREAM@ maxconn @SHARE@
backend read
	timeout queue @READQUEUE@
	server git @UPSTREAM@ maxconn @SHARE@
`
