package main

// The fixed parts of docs/benchmarks.md.

const intro = `# Benchmarks

The gateway beside bare Caddy, nginx and HAProxy as Debian has them. Written by
` + "`make bench`" + `: edit ` + "`bench/`" + `, not this file.

Read ratios, not times. All systems of a table were measured in one run, round by
round in turn, and a ratio is the median over the rounds; absolute times depend
on what else the machine did, and clients, proxy and server shared its cores.
The last run shared the machine with other builds and tests, as the load average
shows: a difference of less than a fifth is noise there. CPU is what the kernel
charged the proxy's processes.

"Caddy" is the same binary as the gateway, without the directive. nginx and
HAProxy have the configurations at the end of this page: half of the 16 workers
for each of push and read, caps per address, and for HAProxy queues. They tell a
push by its path, which anybody can ask for; neither can see whether a credential
is genuine.

Four people push all the time, each from an address of their own, and give up
after 15 s; every attempt counts. "Most at the server" is how many requests the
server worked on at once.

`

const engineText = `### Engine

Decide and release with caller cap, caller bucket and class bucket at 1,000 and
1,000,000 callers, beside a bare sharded look-up with ` + "`AllowN`" + `; refusals; queue
operations with that many waiters.

` + "```\n%s\n```" + `

`

const configurations = `## Configurations

nginx:

` + "```\n%s\n```" + `

HAProxy:

` + "```\n%s\n```" + `
`
